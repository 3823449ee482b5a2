// The map: a canvas that draws what the server sends, at most a dozen times a second, however much comes.
// The server sends frames with what changed; each is acknowledged, and the next comes only after that.
const LAYERS = [
  ["street", "Streets", true],
  ["vehicle", "Vehicles", true],
  ["person", "People", true],
  ["subscriber", "Subscribers", true],
  ["delivery", "Deliveries", true],
  ["alert", "Alerts", true],
  ["fence", "Fences", true],
  ["sensor", "Sensors", false],
  ["blockR", "R blocks", false],
  ["blockQ", "Q blocks", false],
  ["region", "Blocks of nodes", true],
  ["other", "Other topics", true],
];
const FRAME_MS = 80;
const LINE_MS = 700;
const MOVE_MS = 4000;
const MOST_LINES = 150;
const METRES_A_DEGREE = 111320;

export default {
  template: `
    <div class="lm" @keydown="onKey">
      <canvas ref="canvas" class="lm-canvas" tabindex="0" role="application" :aria-label="label"
        :class="{ 'lm-drawing': drawing }" @wheel.prevent="onWheel" @pointerdown="onDown" @pointermove="onMove"
        @pointerup="onUp" @pointercancel="onUp" @pointerleave="tip = null" @dblclick="onDouble"></canvas>
      <div v-if="tip" class="lm-tip" :style="{ left: tip.x + 'px', top: tip.y + 'px' }">{{ tip.text }}</div>
      <div class="lm-zoom" role="group" aria-label="Zoom">
        <button type="button" aria-label="Zoom in" @click="zoomBy(1.5)">+</button>
        <button type="button" aria-label="Zoom out" @click="zoomBy(1 / 1.5)">−</button>
        <button type="button" aria-label="Show everything" title="Show everything" @click="fit(true)">⤢</button>
      </div>
      <details class="lm-layers" :open="wide">
        <summary>Layers</summary>
        <label v-for="layer in shownLayers" :key="layer[0]">
          <input type="checkbox" v-model="layers[layer[0]]" @change="stale = true" />
          <span class="lm-key" :class="'lm-key-' + layer[0]" aria-hidden="true"></span>
          <span class="lm-name">{{ layer[1] }}</span>
          <span class="lm-count">{{ counted(layer[0]) }}</span>
        </label>
      </details>
      <div v-if="drawing" class="lm-hint" role="status">
        <span>{{ ring.length < 3 ? "Click corners on the map (" + ring.length + " so far; three or more)"
                                 : ring.length + " corners: close the fence, or add more" }}</span>
        <button type="button" class="l-button l-primary" :disabled="ring.length < 3" @click="finish">Close fence</button>
        <button type="button" class="l-button" @click="cancel">Cancel</button>
      </div>
      <div v-else-if="!hasData && empty" class="lm-empty" role="status">
        <strong>{{ empty[0] }}</strong><span>{{ empty[1] }}</span><code v-if="empty[2]">{{ empty[2] }}</code>
      </div>
    </div>`,
  props: { label: String, empty: Array, layersOn: Array },
  emits: ["shown", "fence", "cancelled"],
  data() {
    const on = this.layersOn || [];
    const layers = {};
    for (const [key, , usual] of LAYERS) layers[key] = usual || on.includes(key);
    return { drawing: false, ring: [], layers, counts: {}, hasData: false, tip: null, wide: true, stale: true };
  },
  computed: {
    shownLayers() {
      return LAYERS.filter(([key]) => !["other", "region"].includes(key) || this.counts[key]);
    },
  },
  created() {
    this.movers = new Map();
    this.lines = [];
    this.moves = [];
    this.alerts = [];
    this.streets = [];
    this.fences = [];
    this.blocks = [];
    this.regions = [];
    this.bounds = null;
    this.auto = true;
    this.view = { lon: 0, lat: 20, scale: 2, k: 1 };
    this.size = [0, 0];
    this.pointers = new Map();
    this.lastDraw = 0;
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  },
  mounted() {
    this.ground = document.createElement("canvas");
    this.resizes = new ResizeObserver(() => this.resize());
    this.resizes.observe(this.$el);
    this.themes = new MutationObserver(() => (this.stale = true));
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.resize();
    this.loop = (now) => {
      if (!this.$refs.canvas) return;
      if (now - this.lastDraw >= FRAME_MS) {
        this.lastDraw = now;
        this.draw(now);
      }
      this.running = requestAnimationFrame(this.loop);
    };
    this.running = requestAnimationFrame(this.loop);
  },
  unmounted() {
    cancelAnimationFrame(this.running);
    this.resizes?.disconnect();
    this.themes?.disconnect();
  },
  methods: {
    // From the server.
    frame(data) {
      const now = performance.now();
      if (data.whole) this.movers.clear();
      for (const key of data.gone) this.movers.delete(key);
      for (const [key, kind, lon, lat, heading, radius] of data.movers) {
        const old = this.movers.get(key);
        const [fromLon, fromLat] = old ? this.at(old, now) : [lon, lat];
        const far = Math.abs(fromLon - lon) + Math.abs(fromLat - lat) > 0.02;
        const last = old ? Math.min(1500, Math.max(150, now - old.began)) : 0;
        this.movers.set(key, {
          kind, lon, lat, heading, radius, began: now,
          fromLon: far ? lon : fromLon, fromLat: far ? lat : fromLat, lasts: this.calm.matches ? 0 : last,
        });
      }
      for (const line of data.deliveries.slice(-60)) this.lines.push([...line, now]);
      if (this.lines.length > MOST_LINES) this.lines.splice(0, this.lines.length - MOST_LINES);
      for (const each of data.handovers) this.moves.push([...each, now]);
      if (this.moves.length > 20) this.moves.splice(0, this.moves.length - 20);
      this.alerts = data.alerts.map((alert) => [...alert, now]);
      for (const what of ["streets", "fences", "blocks", "regions"]) {
        if (data[what]) {
          this[what] = data[what];
          this.stale = true;
        }
      }
      if (JSON.stringify(data.bounds) !== JSON.stringify(this.bounds)) {
        this.bounds = data.bounds;
        if (this.auto) this.fit(false);
      }
      this.hasData = this.movers.size > 0 || this.streets.length > 0 || this.fences.length > 0;
      this.count();
      this.$emit("shown", data.revision);
    },
    startDrawing() {
      this.ring = [];
      this.drawing = true;
      this.$refs.canvas.focus();
    },
    centre() {
      return [this.view.lon, this.view.lat];
    },
    count() {
      const counts = { region: this.regions.length, street: this.streets.length, fence: this.fences.length, alert: this.alerts.length };
      for (const kind of ["vehicle", "person", "subscriber", "sensor", "other"]) counts[kind] = 0;
      for (const mover of this.movers.values()) counts[mover.kind] += 1;
      counts.blockR = this.blocks.filter((b) => b[0] === "R").length;
      counts.blockQ = this.blocks.length - counts.blockR;
      if (JSON.stringify(counts) !== JSON.stringify(this.counts)) this.counts = counts;
    },
    counted(key) {
      return key === "delivery" || key === "street" ? "" : this.counts[key] ?? "";
    },

    // Where things are on the canvas.
    xy(lon, lat) {
      const { view, size } = this;
      return [(lon - view.lon) * view.k * view.scale + size[0] / 2, (view.lat - lat) * view.scale + size[1] / 2];
    },
    lonLat(x, y) {
      const { view, size } = this;
      return [view.lon + (x - size[0] / 2) / (view.k * view.scale), view.lat - (y - size[1] / 2) / view.scale];
    },
    at(mover, now) {
      const share = mover.lasts ? Math.min(1, (now - mover.began) / mover.lasts) : 1;
      return [mover.fromLon + (mover.lon - mover.fromLon) * share, mover.fromLat + (mover.lat - mover.fromLat) * share];
    },
    resize() {
      const { clientWidth: width, clientHeight: height } = this.$el;
      if (!width || !height) return;
      this.size = [width, height];
      this.wide = window.innerWidth >= 900; // the list of layers would hide half of a phone's map
      this.ratio = Math.min(2, window.devicePixelRatio || 1);
      for (const canvas of [this.$refs.canvas, this.ground]) {
        canvas.width = Math.round(width * this.ratio);
        canvas.height = Math.round(height * this.ratio);
      }
      this.mark = width < 600 ? 0.7 : 1; // marks are smaller where there is little room
      this.stale = true;
      if (this.auto) this.fit(false);
    },
    fit(asked) {
      if (asked) this.auto = true;
      if (!this.bounds || !this.size[0]) return;
      const [west, south, east, north] = this.bounds;
      const lat = (south + north) / 2;
      const earth = Math.abs(lat) < 89 && west >= -180 && east <= 180;
      const k = earth ? Math.cos((lat * Math.PI) / 180) : 1;
      const wide = Math.max((east - west) * k, 1e-3);
      const high = Math.max(north - south, 1e-3);
      const scale = Math.min(this.size[0] / wide, this.size[1] / high) * 0.92;
      this.view = { lon: (west + east) / 2, lat, scale, k };
      this.stale = true;
    },
    zoomBy(factor, x = this.size[0] / 2, y = this.size[1] / 2) {
      const [lon, lat] = this.lonLat(x, y);
      this.auto = false;
      this.view.scale = Math.min(5e7, Math.max(0.5, this.view.scale * factor));
      const [newLon, newLat] = this.lonLat(x, y);
      this.view.lon += lon - newLon;
      this.view.lat += lat - newLat;
      this.stale = true;
    },
    panBy(dx, dy) {
      this.auto = false;
      this.view.lon -= dx / (this.view.k * this.view.scale);
      this.view.lat += dy / this.view.scale;
      this.stale = true;
    },

    // Pointer and keyboard.
    where(event) {
      const box = this.$refs.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    },
    onWheel(event) {
      this.zoomBy(Math.exp(-event.deltaY * 0.0015), ...this.where(event));
    },
    onDown(event) {
      try { this.$refs.canvas.setPointerCapture(event.pointerId); } catch { /* the pointer has gone already */ }
      const [x, y] = this.where(event);
      this.pointers.set(event.pointerId, { x, y, startX: x, startY: y });
    },
    onMove(event) {
      const [x, y] = this.where(event);
      const held = this.pointers.get(event.pointerId);
      if (!held) return this.point(x, y);
      if (this.pointers.size === 2) {
        const [a, b] = [...this.pointers.values()];
        const before = Math.hypot(a.x - b.x, a.y - b.y);
        [held.x, held.y] = [x, y];
        const after = Math.hypot(a.x - b.x, a.y - b.y);
        if (before > 0) this.zoomBy(after / before, (a.x + b.x) / 2, (a.y + b.y) / 2);
        held.moved = true;
        return;
      }
      if (held.moved || Math.hypot(x - held.startX, y - held.startY) > 5) {
        held.moved = true;
        this.panBy(x - held.x, y - held.y);
      }
      [held.x, held.y] = [x, y];
    },
    onUp(event) {
      const held = this.pointers.get(event.pointerId);
      this.pointers.delete(event.pointerId);
      if (!held || held.moved || !this.drawing || event.type !== "pointerup") return;
      const [x, y] = this.where(event);
      if (this.ring.length >= 3) {
        const [firstX, firstY] = this.xy(...this.ring[0]);
        if (Math.hypot(firstX - x, firstY - y) < 10) return this.finish();
      }
      this.ring.push(this.lonLat(x, y));
    },
    onDouble() {
      if (!this.drawing) return;
      this.ring.pop(); // the second click of the two
      if (this.ring.length >= 3) this.finish();
    },
    onKey(event) {
      if (event.target !== this.$refs.canvas) return;
      const step = 60;
      const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
      if (moves[event.key]) this.panBy(...moves[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoomBy(1.5);
      else if (event.key === "-") this.zoomBy(1 / 1.5);
      else if (event.key === "0") this.fit(true);
      else if (this.drawing && event.key === " ") this.ring.push(this.centre());
      else if (this.drawing && event.key === "Enter" && this.ring.length >= 3) this.finish();
      else if (this.drawing && event.key === "Backspace") this.ring.pop();
      else if (this.drawing && event.key === "Escape") this.cancel();
      else return;
      event.preventDefault();
    },
    point(x, y) {
      let best = null;
      let least = 12;
      const now = performance.now();
      for (const [key, mover] of this.movers) {
        if (!this.layers[mover.kind]) continue;
        const [mx, my] = this.xy(...this.at(mover, now));
        const away = Math.hypot(mx - x, my - y);
        if (away < least) [least, best] = [away, { text: key, x: mx, y: my }];
      }
      if (best?.text !== this.tip?.text) this.tip = best;
    },
    finish() {
      const ring = this.ring.map(([lon, lat]) => [lon, lat]);
      this.drawing = false;
      this.ring = [];
      this.$emit("fence", ring);
    },
    cancel() {
      this.drawing = false;
      this.ring = [];
      this.$emit("cancelled");
    },

    // Drawing.
    colours() {
      const style = getComputedStyle(this.$el);
      const get = (name) => style.getPropertyValue(name).trim();
      const found = { land: get("--map-land"), street: get("--map-street"), ink: get("--ink"), halo: get("--map-land") };
      for (const key of ["vehicle", "person", "subscriber", "delivery", "alert", "fence", "sensor", "blockR", "blockQ", "other"])
        found[key] = get("--map-" + key);
      return found;
    },
    drawGround() {
      this.stale = false;
      this.colour = this.colours();
      const { colour, ground } = this;
      const c = ground.getContext("2d");
      c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      c.fillStyle = colour.land;
      c.fillRect(0, 0, ...this.size);
      c.lineJoin = c.lineCap = "round";
      if (this.layers.street) {
        c.strokeStyle = colour.street;
        c.lineWidth = Math.min(7, Math.max(1, (8 / METRES_A_DEGREE) * this.view.scale));
        c.beginPath();
        for (const street of this.streets) street.forEach((p, i) => (i ? c.lineTo : c.moveTo).apply(c, this.xy(...p)));
        c.stroke();
      }
      if (this.layers.region) this.drawRegions(c);
      for (const side of ["R", "Q"]) {
        if (!this.layers["block" + side]) continue;
        c.strokeStyle = colour["block" + side];
        c.lineWidth = 1;
        c.setLineDash(side === "Q" ? [4, 3] : []);
        c.beginPath();
        for (const [which, west, south, east, north] of this.blocks) {
          if (which !== side) continue;
          const [x, y] = this.xy(west, north);
          const [x2, y2] = this.xy(east, south);
          const inset = side === "Q" ? 3.5 : 0.5; // beside each other where cells of both sides are the same
          c.rect(x + inset, y + inset, Math.max(1, x2 - x - 2 * inset), Math.max(1, y2 - y - 2 * inset));
        }
        c.stroke();
        c.setLineDash([]);
      }
      if (this.layers.fence) for (const [name, rings] of this.fences) this.drawFence(c, name, rings);
    },
    drawRegions(c) {
      const owners = [...new Set(this.regions.map((region) => region[0]))].sort();
      const style = getComputedStyle(this.$el);
      for (const [owner, west, south, east, north] of this.regions) {
        const [x, y] = this.xy(west, north).map((v) => Math.max(-9, v));
        const [x2, y2] = [Math.min(this.size[0] + 9, this.xy(east, south)[0]), Math.min(this.size[1] + 9, this.xy(east, south)[1])];
        if (x2 <= x || y2 <= y) continue;
        c.fillStyle = c.strokeStyle = style.getPropertyValue("--o" + ((owners.indexOf(owner) % 6) + 1));
        c.globalAlpha = 0.07;
        c.fillRect(x, y, x2 - x, y2 - y);
        c.globalAlpha = 0.9;
        c.lineWidth = 1.5;
        c.strokeRect(x + 1, y + 1, x2 - x - 2, y2 - y - 2);
        c.globalAlpha = 1;
        if (x2 - x < 70 || y2 - y < 34) continue;
        c.globalAlpha = 0.65; // fences and alerts have names as well
        this.write(c, owner, (x + x2) / 2, y2 - 9, c.fillStyle);
        c.globalAlpha = 1;
      }
    },
    drawFence(c, name, rings) {
      c.beginPath();
      for (const ring of rings) {
        ring.forEach((p, i) => (i ? c.lineTo : c.moveTo).apply(c, this.xy(...p)));
        c.closePath();
      }
      c.strokeStyle = c.fillStyle = this.colour.fence;
      c.globalAlpha = 0.1;
      c.fill("evenodd");
      c.globalAlpha = 1;
      c.lineWidth = 1.75;
      c.stroke();
      const top = rings[0].reduce((a, b) => (b[1] > a[1] ? b : a));
      const [x, y] = this.xy(...top);
      this.write(c, name, x, y - 7, this.colour.fence);
    },
    write(c, text, x, y, colour) {
      c.font = "600 12px system-ui, sans-serif";
      c.textAlign = "center";
      const half = c.measureText(text).width / 2 + 4;
      if (x > -half && x < this.size[0] + half) x = Math.max(half, Math.min(this.size[0] - half, x)); // whole, or not at all
      c.lineWidth = 4;
      c.strokeStyle = this.colour.halo;
      c.strokeText(text, x, y);
      c.fillStyle = colour;
      c.fillText(text, x, y);
    },
    draw(now) {
      if (document.hidden || !this.size[0]) return;
      if (this.stale) this.drawGround();
      const c = this.$refs.canvas.getContext("2d");
      c.setTransform(1, 0, 0, 1, 0, 0);
      c.drawImage(this.ground, 0, 0);
      c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      c.lineCap = "round";
      const kinds = { vehicle: [], person: [], subscriber: [], sensor: [], other: [] };
      for (const mover of this.movers.values()) {
        if (!this.layers[mover.kind]) continue;
        const [x, y] = this.xy(...this.at(mover, now));
        if (x > -400 && y > -400 && x < this.size[0] + 400 && y < this.size[1] + 400) kinds[mover.kind].push([x, y, mover]);
      }
      this.drawCircles(c, kinds.subscriber);
      this.drawDots(c, kinds.sensor, this.colour.sensor, 2);
      this.drawDots(c, kinds.person, this.colour.person, 2 * this.mark);
      this.drawLines(c, now);
      this.drawVehicles(c, kinds.vehicle);
      this.drawDots(c, kinds.other, this.colour.other, 3.5);
      this.drawDots(c, kinds.subscriber, this.colour.subscriber, 4 * this.mark);
      if (this.layers.alert) this.drawAlerts(c, now);
      this.drawMoves(c, now);
      if (this.drawing) this.drawRing(c);
    },
    drawDots(c, dots, colour, radius) {
      c.fillStyle = colour;
      c.beginPath();
      for (const [x, y] of dots) {
        c.moveTo(x + radius, y);
        c.arc(x, y, radius, 0, 7);
      }
      c.fill();
    },
    drawVehicles(c, vehicles) {
      c.fillStyle = this.colour.vehicle;
      c.beginPath();
      for (const [x, y, { heading }] of vehicles) {
        if (heading === null || heading === undefined) {
          c.moveTo(x + 3, y);
          c.arc(x, y, 3, 0, 7);
          continue;
        }
        const turn = (heading * Math.PI) / 180;
        const [s, o] = [Math.sin(turn) * this.mark, Math.cos(turn) * this.mark];
        c.moveTo(x + 6 * s, y - 6 * o);
        c.lineTo(x - 4 * s + 3.2 * o, y + 4 * o + 3.2 * s);
        c.lineTo(x - 4 * s - 3.2 * o, y + 4 * o - 3.2 * s);
        c.closePath();
      }
      c.fill();
    },
    drawCircles(c, subscribers) {
      c.strokeStyle = c.fillStyle = this.colour.subscriber;
      c.lineWidth = 1;
      for (const [x, y, { radius }] of subscribers) {
        if (!radius) continue;
        c.beginPath();
        c.arc(x, y, (radius / METRES_A_DEGREE) * this.view.scale, 0, 7);
        c.globalAlpha = subscribers.length > 20 ? 0.03 : 0.06;
        c.fill();
        c.globalAlpha = subscribers.length > 20 ? 0.3 : 0.4;
        c.stroke();
      }
      c.globalAlpha = 1;
    },
    drawLines(c, now) {
      this.lines = this.lines.filter((line) => now - line[4] < LINE_MS);
      if (!this.layers.delivery || this.calm.matches) return;
      c.strokeStyle = this.colour.delivery;
      c.lineWidth = 1.5;
      for (const fresh of [2, 1, 0]) {
        c.globalAlpha = 0.25 + fresh * 0.25;
        c.beginPath();
        for (const [lon, lat, toLon, toLat, began] of this.lines) {
          if (Math.min(2, Math.floor((1 - (now - began) / LINE_MS) * 3)) !== fresh) continue;
          c.moveTo(...this.xy(lon, lat));
          c.lineTo(...this.xy(toLon, toLat));
        }
        c.stroke();
      }
      c.globalAlpha = 1;
    },
    drawAlerts(c, now) {
      for (const [, lon, lat, kind, , age, told] of this.alerts) {
        const seconds = age + (now - told) / 1000;
        const [x, y] = this.xy(lon, lat);
        const beat = this.calm.matches ? 0.5 : (seconds % 1.6) / 1.6;
        c.strokeStyle = c.fillStyle = this.colour.alert;
        c.lineWidth = 2;
        c.globalAlpha = Math.max(0, 1 - beat) * Math.max(0.15, 1 - seconds / 45);
        c.beginPath();
        c.arc(x, y, 6 + 16 * beat, 0, 7);
        c.stroke();
        c.globalAlpha = Math.max(0.25, 1 - seconds / 45);
        c.beginPath();
        c.arc(x, y, 4.5, 0, 7);
        c.fill();
        if (seconds < 12) this.write(c, kind, x, y - 12, this.colour.alert);
        c.globalAlpha = 1;
      }
    },
    drawMoves(c, now) {
      // Handovers: a ring where the client was when it went to another node, and from which to which.
      this.moves = this.moves.filter((move) => now - move[3] < MOVE_MS);
      for (const [lon, lat, what, began] of this.moves) {
        const [x, y] = this.xy(lon, lat);
        const share = (now - began) / MOVE_MS;
        c.strokeStyle = this.colour.subscriber;
        c.lineWidth = 3;
        c.globalAlpha = 1 - share;
        c.beginPath();
        c.arc(x, y, this.calm.matches ? 14 : 6 + 22 * share, 0, 7);
        c.stroke();
        this.write(c, what, x, y - 16, this.colour.subscriber);
        c.globalAlpha = 1;
      }
    },
    drawRing(c) {
      const corners = this.ring.map((corner) => this.xy(...corner));
      c.strokeStyle = c.fillStyle = this.colour.fence;
      c.lineWidth = 2;
      c.setLineDash([6, 4]);
      c.beginPath();
      corners.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
      if (corners.length > 2) c.closePath();
      c.stroke();
      c.setLineDash([]);
      this.drawDots(c, corners, this.colour.fence, 5);
      const [x, y] = [this.size[0] / 2, this.size[1] / 2];
      c.strokeStyle = this.colour.ink;
      c.lineWidth = 1;
      c.globalAlpha = 0.5;
      c.beginPath();
      c.moveTo(x - 9, y);
      c.lineTo(x + 9, y);
      c.moveTo(x, y - 9);
      c.lineTo(x, y + 9);
      c.stroke();
      c.globalAlpha = 1;
    },
  },
};
