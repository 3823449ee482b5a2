// A plain table with numbers set right, small bars for shares, and a sentence where there is nothing.
export default {
  template: `
    <div class="lt" tabindex="0" role="region" :aria-label="title">
      <table v-if="rows.length">
        <caption class="l-hidden">{{ title }}</caption>
        <thead><tr><th v-for="c in columns" :key="c.label" scope="col" :class="'lt-' + c.kind">{{ c.label }}</th></tr></thead>
        <tbody>
          <tr v-for="(row, i) in rows" :key="i">
            <td v-for="(c, j) in columns" :key="c.label" :class="'lt-' + c.kind">
              <span v-if="c.kind === 'share' && row[j] !== null" class="lt-bar" :title="row[j]">
                <i :style="{ '--share': Math.max(3, Math.min(100, row[j] * 100)) + '%' }"></i><b>{{ percent(row[j]) }}</b>
              </span>
              <span v-else-if="c.kind === 'state'" class="lt-pill" :class="'lt-pill-' + row[j]">{{ row[j] }}</span>
              <template v-else>{{ row[j] === null ? "–" : row[j] }}</template>
            </td>
          </tr>
        </tbody>
      </table>
      <p v-else class="lt-empty">{{ empty }}</p>
    </div>`,
  props: { columns: Array, rows: Array, title: String, empty: String },
  methods: {
    percent(share) {
      return share >= 0.1 ? (share * 100).toFixed(0) + " %" : +(share * 100).toPrecision(2) + " %";
    },
  },
};
