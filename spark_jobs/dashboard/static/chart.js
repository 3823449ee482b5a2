// A chart over time, or of bars: SVG, so that it takes its colours from the page's theme.
const PAD = { left: 46, right: 10, top: 8, bottom: 20 };
const SCALES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of SCALES) if (size >= unit) return +(value / unit).toPrecision(3) + letter;
  if (size >= 100) return Math.round(value).toString();
  return (+value.toPrecision(3)).toString();
}
function nice(most) {
  if (!(most > 0)) return 1;
  const base = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((f) => f * base).find((v) => v >= most * 0.999);
}
function clock(seconds, span) {
  const date = new Date(seconds * 1000);
  if (span > 36 * 3600) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  const parts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return date.toLocaleTimeString([], span < 600 ? { ...parts, second: "2-digit" } : parts);
}

export default {
  template: `
    <figure class="lc" :aria-label="said">
      <figcaption class="lc-legend">
        <span v-for="(s, i) in series" :key="s.name" class="lc-item">
          <span class="lc-key" :style="{ background: 'var(' + s.color + ')' }" aria-hidden="true"></span>{{ s.name }}
          <b>{{ reading(s) }}</b>
        </span>
        <span class="lc-when" v-if="shownAt !== null">{{ when }}</span>
      </figcaption>
      <div class="lc-area" ref="area" tabindex="0" role="img" :aria-label="said" @pointermove="onMove" @pointerleave="near = null"
        @blur="near = null" @keydown.left.prevent="step(-1)" @keydown.right.prevent="step(1)">
        <svg v-if="width && !isEmpty" :width="width" :height="height" aria-hidden="true">
          <g v-for="t in ticks" :key="t.y">
            <line class="lc-grid" :x1="pad.left" :x2="width - pad.right" :y1="t.y" :y2="t.y" />
            <text class="lc-text" :x="pad.left - 7" :y="t.y + 4" text-anchor="end">{{ t.text }}</text>
          </g>
          <text v-for="t in times" :key="t.x" class="lc-text" :x="t.x" :y="height - 4" :text-anchor="t.anchor">{{ t.text }}</text>
          <template v-if="bars">
            <template v-for="(s, i) in series" :key="s.name">
              <rect v-for="(p, j) in s.points" :key="j" v-bind="bar(i, j, p[1])" :style="{ fill: 'var(' + s.color + ')' }" />
            </template>
          </template>
          <template v-else>
            <template v-if="kind !== 'dots'"><path v-for="s in series" :key="s.name" class="lc-line" :d="path(s)" :style="{ stroke: 'var(' + s.color + ')' }" /></template>
            <template v-for="s in series" :key="s.name + '.'">
              <circle v-for="p in lone(s)" :key="p[0]" :cx="p[0]" :cy="p[1]" r="2.5" :style="{ fill: 'var(' + s.color + ')' }" />
            </template>
          </template>
          <line v-if="near !== null" class="lc-cross" :x1="crossX" :x2="crossX" :y1="pad.top" :y2="height - pad.bottom" />
        </svg>
        <div v-if="isEmpty" class="lc-empty">{{ empty || "Nothing to show yet." }}</div>
      </div>
    </figure>`,
  props: { series: Array, unit: String, empty: String, title: String, kind: String, range: Array, height: { type: Number, default: 190 } },
  data() {
    return { width: 0, near: null, pad: PAD };
  },
  mounted() {
    this.sizes = new ResizeObserver(() => (this.width = this.$refs.area?.clientWidth || 0));
    this.sizes.observe(this.$refs.area);
  },
  unmounted() {
    this.sizes?.disconnect();
  },
  computed: {
    bars() {
      return this.kind === "bars";
    },
    isEmpty() {
      return !this.series.some((s) => s.points.some((p) => p[1] !== null));
    },
    stamps() {
      return [...new Set(this.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
    },
    span() {
      const all = this.stamps;
      if (this.bars) return [0, Math.max(1, this.series[0]?.points.length || 1)];
      if (this.range) return this.range;
      return all.length > 1 ? [all[0], all[all.length - 1]] : [(all[0] || 0) - 60, (all[0] || 0) + 1];
    },
    top() {
      return nice(Math.max(...this.series.flatMap((s) => s.points.map((p) => p[1] || 0)), 0));
    },
    ticks() {
      return [0, 0.5, 1].map((share) => ({ y: this.y(share * this.top), text: short(share * this.top) }));
    },
    times() {
      if (this.bars) {
        const points = this.series[0]?.points || [];
        const every = Math.ceil(points.length / Math.max(1, Math.floor(this.width / 70)));
        return points.map((p, j) => ({ x: this.x(j + 0.5), text: p[0], anchor: "middle" })).filter((_, j) => j % every === 0);
      }
      const [from, to] = this.span;
      const many = this.width > 420 ? 4 : 2;
      return Array.from({ length: many + 1 }, (_, i) => from + ((to - from) * i) / many).map((at, i) => ({
        x: this.x(at), text: clock(at, to - from), anchor: i === 0 ? "start" : i === many ? "end" : "middle",
      }));
    },
    shownAt() {
      return this.near === null ? null : this.bars ? this.near : this.stamps[this.near] ?? null;
    },
    when() {
      if (this.bars) return this.series[0]?.points[this.near]?.[0];
      return new Date(this.shownAt * 1000).toLocaleTimeString([], { hourCycle: "h23" });
    },
    crossX() {
      return this.x(this.bars ? this.near + 0.5 : this.shownAt);
    },
    said() {
      return `${this.title}: ` + this.series.map((s) => `${s.name} ${this.reading(s)}`).join(", ");
    },
  },
  methods: {
    x(at) {
      const [from, to] = this.span;
      return PAD.left + ((at - from) / (to - from || 1)) * (this.width - PAD.left - PAD.right);
    },
    y(value) {
      return this.height - PAD.bottom - (value / this.top) * (this.height - PAD.top - PAD.bottom);
    },
    gap() {
      // A line is interrupted where much more time passed than usual between two points.
      const all = this.stamps;
      if (all.length < 3) return Infinity;
      const gaps = all.slice(1).map((at, i) => at - all[i]).sort((a, b) => a - b);
      return Math.max(gaps[Math.floor(gaps.length / 2)] * 4, 3);
    },
    path(s) {
      let path = "";
      let last = null;
      const most = this.gap();
      for (const [at, value] of s.points) {
        if (value === null) {
          last = null;
          continue;
        }
        path += (last === null || at - last > most ? "M" : "L") + this.x(at).toFixed(1) + " " + this.y(value).toFixed(1);
        last = at;
      }
      return path;
    },
    lone(s) {
      if (this.kind === "dots") return s.points.filter((p) => p[1] !== null).map((p) => [this.x(p[0]), this.y(p[1])]);
      const found = s.points.filter((p, i) => p[1] !== null && (s.points[i - 1]?.[1] ?? null) === null && (s.points[i + 1]?.[1] ?? null) === null);
      return found.map((p) => [this.x(p[0]), this.y(p[1])]);
    },
    bar(i, j, value) {
      const step = this.x(1) - this.x(0);
      const width = Math.max(1, (step * 0.72) / this.series.length);
      const y = this.y(value || 0);
      return { x: this.x(j) + step * 0.14 + i * width, y, width: Math.max(1, width - 1), height: Math.max(0, this.y(0) - y), rx: 2 };
    },
    reading(s) {
      let value = null;
      if (this.near !== null) value = this.bars ? s.points[this.near]?.[1] : s.points.find((p) => p[0] === this.shownAt)?.[1];
      else if (this.bars) value = s.points.reduce((sum, p) => sum + (p[1] || 0), 0);
      else for (const p of s.points) if (p[1] !== null) value = p[1];
      return short(value ?? null) + (this.unit && value != null ? " " + this.unit : "");
    },
    onMove(event) {
      const x = event.clientX - this.$refs.area.getBoundingClientRect().left;
      if (this.bars) {
        const many = this.series[0]?.points.length || 0;
        const j = Math.floor(((x - PAD.left) / (this.width - PAD.left - PAD.right)) * many);
        this.near = many ? Math.min(many - 1, Math.max(0, j)) : null;
        return;
      }
      let best = null;
      this.stamps.forEach((at, i) => {
        if (best === null || Math.abs(this.x(at) - x) < Math.abs(this.x(this.stamps[best]) - x)) best = i;
      });
      this.near = best;
    },
    step(by) {
      const many = this.bars ? this.series[0]?.points.length || 0 : this.stamps.length;
      if (many) this.near = Math.min(many - 1, Math.max(0, (this.near ?? many - 1) + by));
    },
  },
};
