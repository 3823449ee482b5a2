// A text field that keeps what is being typed, whatever else on the page changes meanwhile.
export default {
  template: `<input type="text" spellcheck="false" autocomplete="off" v-model="text" @input="$emit('typed', text)" />`,
  props: { start: String },
  emits: ["typed"],
  data() {
    return { text: this.start };
  },
  methods: {
    put(text) {
      this.text = text;
    },
  },
};
