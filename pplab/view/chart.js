// The picture of one or several timelines on a canvas: what part of the time is shown, which
// colours the page asks for, where everything lies. Time runs right, rank 0 on top; one lane is
// one rank of one timeline, and lanes of the same rank lie above each other.
class Chart {
  constructor(canvas, root) {
    this.canvas = canvas;
    this.root = root;
    this.ctx = canvas.getContext("2d");
    this.hover = this.at = -1;  // span under the pointer; span the reader stepped to
    this.now = Infinity;        // while playing: nothing later has happened yet
    this.order = null;
    this.spread = this.room = 0;  // least space between ranks, and above them
    this.cursor = false;        // draw a line at the moment the reader stepped to
  }

  load(data) {
    const old = this.d;
    this.d = data;
    this.hover = this.at = -1;
    this.now = Infinity;
    this.order = null;
    if (!old || old.total !== data.total) this.fit();
  }

  fit() {
    this.from = 0;
    this.to = this.d.total * 1.005;
  }

  // Keep the view inside the data, and no narrower than a thousandth of a mean operation.
  look(from, to) {
    const all = this.d.total * 1.005, width = clamp(to - from, this.d.mean / 1000, all);
    this.from = clamp(from, 0, all - width);
    this.to = this.from + width;
  }

  zoom(factor, share = 0.5) {
    const width = this.to - this.from, fixed = this.from + width * share;
    this.look(fixed - width * factor * share, fixed + width * factor * (1 - share));
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.look(this.from + by, this.to + by);
  }

  // Useful spans in the order they begin: what stepping walks along.
  steps() {
    if (this.order) return this.order;
    const { n, kind, start, lane } = this.d, order = [];
    for (let i = 0; i < n; i++) if (kind[i] < SOLID) order.push(i);
    order.sort((a, b) => start[a] - start[b] || lane[a] - lane[b]);
    this.rank = new Int32Array(n).fill(-1);
    order.forEach((i, place) => { this.rank[i] = place; });
    return (this.order = order);
  }

  // -- theme -------------------------------------------------------------------------------

  theme() {
    const style = getComputedStyle(this.root), probe = this.ctx, c = {};
    const read = (name) => {
      probe.fillStyle = "#888888";
      probe.fillStyle = style.getPropertyValue("--pp-" + name).trim();
      const colour = probe.fillStyle;  // "#rrggbb", or "rgba(...)" when it is translucent
      if (colour[0] === "#") return colour;
      const [r, g, b, alpha] = colour.match(/[\d.]+/g).map(Number);
      const solid = [r, g, b].map((x) => x.toString(16).padStart(2, "0")).join("");
      return blend(c.page || "#ffffff", "#" + solid, alpha);
    };
    for (const name of ["page", "ink", "soft", "line", "hatch", "cap"]) c[name] = read(name);
    c.dark = luminance(c.page) < 0.3;
    c.font = style.fontFamily;
    c.grey = blend(c.ink, c.page, 0.55);
    const { work, chunks } = this.d.meta;
    c.edge = "FBWU".split("").map((k) => (c.dark ? blend(work[k], "#ffffff", 0.42) : work[k]));
    c.fill = "FBWU".split("").map((k) => Array.from({ length: chunks }, (_, i) =>
      blend(work[k], "#ffffff", 0.55 * i / Math.max(1, chunks - 1))));
    c.text = c.fill.map((row) => row.map((x) => (luminance(x) < 0.1833 ? "#ffffff" : "#000000")));
    c.tint = c.fill.map((row, k) => row.map((colour, i) => (c.dark ? blend(c.page, colour, 0.45)
      : blend(c.page, c.edge[k], 0.28 - 0.22 * i / Math.max(1, chunks - 1)))));
    // The hatch is a tile with one diagonal, drawn at the device's resolution.
    const tile = document.createElement("canvas"), dpr = this.dpr, size = 6 * dpr;
    tile.width = tile.height = size;
    const t = tile.getContext("2d");
    t.strokeStyle = c.hatch;
    t.lineWidth = 0.9 * dpr;
    t.beginPath();
    for (const s of [-size, 0, size]) { t.moveTo(s, size); t.lineTo(s + size, 0); }
    t.stroke();
    c.idle = probe.createPattern(tile, "repeat");
    c.idle.setTransform(new DOMMatrix().scale(1 / dpr));
    this.c = c;
  }

  // -- geometry ------------------------------------------------------------------------------

  layout() {
    const d = this.d, { rows, lines, groups } = d.meta, two = d.of > 1, ctx = this.ctx;
    this.bar = groups ? clamp(Math.floor(800 / d.lanes) - 4, 6, 16)
      : clamp(Math.floor(420 / d.lanes) - 4, two && d.lanes <= 64 ? 11 : 6, two ? 20 : 26);
    this.mid = two ? clamp(Math.round(this.bar / 2.2), 3, 9) : 0;
    const free = this.bar > 12 ? (two ? 12 : groups ? 4 : 8) : two ? 9 : 3;
    const gap = Math.max(free, this.spread);
    const pitch = d.of * this.bar + (d.of - 1) * this.mid + gap;
    this.every = Math.ceil(12 / pitch);  // which ranks have room for their names
    const many = groups || new Set(rows.map((row) => row[0])).size > 1;
    let y = Math.max(two ? 20 : 6, this.room);
    this.y = [];
    this.heads = [];
    rows.forEach(([replica], r) => {
      if (many && (r === 0 || rows[r - 1][0] !== replica)) {
        if (r && groups) y += 10;
        this.heads.push([groups ? groups[replica].title : `replica ${replica}`, y + 10]);
        y += groups ? 21 : 16;
      }
      for (let t = 0; t < d.of; t++) this.y.push(y + t * (this.bar + this.mid));
      y += pitch;
    });
    this.foot = y - gap + 4;
    this.large = d.n / d.lanes > 400;  // a line for words about shares, always or never
    ctx.font = `12px ${this.c.font}`;
    const wide = (text) => ctx.measureText(text).width;
    this.lanesNamed = two && this.bar >= 11;
    const names = this.lanesNamed ? Math.max(...lines.map((l) => wide(l.name))) * 0.92 + 10 : 0;
    this.rankWidth = wide(`rank ${Math.max(...rows.map((row) => row[1]))}`) + 8;
    if (d.meta.heldAt.length) {
      this.strip = this.foot + (this.large ? 62 : 46);
      this.stripBar = clamp(Math.floor(150 / rows.length), 8, 20);
      this.peaks();
      this.height = this.strip + rows.length * (this.stripBar + 4) + 4;
    } else this.height = this.foot + (this.large ? 40 : 22);
    this.left = Math.ceil(Math.max(this.rankWidth + names, d.meta.heldAt.length ? 118 : 0)) + 2;
    this.right = this.width - 14;
    this.span = Math.max(10, this.right - this.left);
  }

  x(time) {
    return this.left + (time - this.from) / (this.to - this.from) * this.span;
  }

  time(x) {
    return this.from + (x - this.left) / this.span * (this.to - this.from);
  }

  // Lane and span at a point of the canvas: { lane, i } (i = -1 where the rank is idle), or null.
  hit(x, y) {
    if (x < this.left || x > this.right || !this.y) return null;
    const lane = this.y.findIndex((top) => y >= top - 2 && y < top + this.bar + 2);
    if (lane < 0) return null;
    const { d } = this, t = this.time(x), pixel = (this.to - this.from) / this.span;
    let best = -1;
    const after = lower(d.start, t + pixel, d.first[lane], d.first[lane + 1]);
    for (let i = after - 1; i >= Math.max(d.first[lane], after - 12); i--) {
      if (d.end[i] + pixel < t) continue;
      if (best < 0 || d.kind[i] < SOLID && (d.kind[best] >= SOLID || d.end[best] < t)) best = i;
    }
    return { lane, i: best, time: t };
  }

  // Spans of a lane that touch the view, as a range.
  visible(lane) {
    const { d } = this, low = d.first[lane], high = d.first[lane + 1];
    const from = lower(d.start, this.from - d.longest[lane], low, high);
    return [from, lower(d.start, this.to, from, high)];
  }

  // -- painting ------------------------------------------------------------------------------

  paint() {
    const { canvas, ctx, root } = this;
    this.dpr = window.devicePixelRatio || 1;
    this.width = Math.max(320, canvas.parentElement.clientWidth);
    if (!this.c || this.stale) { this.theme(); this.stale = false; }
    this.layout();
    const w = Math.round(this.width * this.dpr), h = Math.round(this.height * this.dpr);
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.width = this.width + "px";
      canvas.style.height = this.height + "px";
    }
    ctx.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    ctx.fillStyle = this.c.page;
    ctx.fillRect(0, 0, this.width, this.height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.left, 0, this.span + 1, this.height);
    ctx.clip();
    this.paintIdle();
    if (this.d.of > 1) this.paintDifference();
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    this.piled = false;
    for (let lane = 0; lane < this.d.lanes; lane++) this.paintLane(lane);
    this.paintCursor();
    ctx.restore();
    this.paintNames();
    this.paintAxis();
    if (this.strip && this.d.meta.heldAt.length) this.paintMemory();
  }
}
