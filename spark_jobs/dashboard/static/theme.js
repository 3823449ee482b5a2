// Light, dark, or as the system has it; remembered in this browser.
const KEY = "locus-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const ICON = { auto: "◐", light: "☀", dark: "☾" };

export default {
  template: `<button type="button" class="l-theme" :aria-label="'Theme: ' + theme + '. Change to ' + next" :title="'Theme: ' + theme"
    @click="change"><span aria-hidden="true">{{ icon }}</span></button>`,
  data() {
    return { theme: "auto" };
  },
  computed: {
    next() {
      return NEXT[this.theme];
    },
    icon() {
      return ICON[this.theme];
    },
  },
  mounted() {
    try {
      const kept = localStorage.getItem(KEY);
      if (kept in NEXT) this.theme = kept;
    } catch { /* a browser that keeps nothing follows the system */ }
    this.show();
    setTimeout(() => this.show(), 0);
  },
  methods: {
    show() {
      setDark(this.theme === "auto" ? null : this.theme === "dark");
    },
    change() {
      this.theme = this.next;
      try {
        localStorage.setItem(KEY, this.theme);
      } catch { /* as above */ }
      this.show();
    },
  },
};
