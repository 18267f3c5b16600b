// The picture of one or several timelines on a canvas: time runs right, rank 0 on top.
// One lane is one rank of one timeline; lanes of the same rank lie above each other.
// Colours are those of colours.py, words and numbers those of columns.py.
const LETTERS = "FBWUSRGL", WAIT = 5, SOLID = 4;
const KIND_WORDS = ["forward", "backward", "weight gradient", "optimizer step", "send",
  "wait for a message", "gradient reduction", "load data"];
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

// The binary block of columns.py as typed arrays.
function unpack(meta, raw) {
  const n = meta.n, at = meta.heldAt, h = at.length ? at[at.length - 1] : 0;
  const bytes = raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength);
  let offset = 0;
  const take = (Type, length) => {
    const column = new Type(bytes, offset, length);
    offset += column.byteLength;
    return column;
  };
  const d = { meta, n, start: take(Float64Array, n), end: take(Float64Array, n),
    held: take(Float64Array, h), lane: take(Int32Array, n), micro: take(Int32Array, n),
    needs: take(Int32Array, n), twin: take(Int32Array, n), count: take(Int32Array, h),
    wait: take(Float32Array, n), kind: take(Uint8Array, n), chunk: take(Uint8Array, n) };
  d.of = meta.lines.length;
  d.lanes = meta.rows.length * d.of;
  d.first = new Int32Array(d.lanes + 1);
  for (let i = 0; i < n; i++) d.first[d.lane[i] + 1]++;
  for (let l = 0; l < d.lanes; l++) d.first[l + 1] += d.first[l];
  d.total = 0;
  d.longest = new Float64Array(d.lanes);  // of a lane: how far back an open span can begin
  let time = 0, work = 0;
  for (let i = 0; i < n; i++) {
    const last = d.end[i] - d.start[i], l = d.lane[i];
    d.total = Math.max(d.total, d.end[i]);
    d.longest[l] = Math.max(d.longest[l], last);
    if (d.kind[i] < SOLID) { time += last; work++; }
  }
  d.total = d.total || 1;
  d.mean = work ? time / work : 1;
  // Recorded runs draw the waits they recorded, the others those that follow from the operations.
  d.recorded = meta.lines.map(() => false);
  for (let i = 0; i < n; i++) if (d.kind[i] === WAIT) d.recorded[d.lane[i] % d.of] = true;
  return d;
}

// First index of a sorted column in [low, high) whose value is >= x.
function lower(column, x, low, high) {
  while (low < high) {
    const mid = (low + high) >> 1;
    if (column[mid] < x) low = mid + 1; else high = mid;
  }
  return low;
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.substr(i, 2), 16));
const blend = (a, b, share) => {
  const p = rgb(a), q = rgb(b);
  return "#" + p.map((x, i) => Math.round(x + (q[i] - x) * share).toString(16).padStart(2, "0"))
    .join("");
};
const luminance = (hex) => rgb(hex).map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);

class Chart {
  constructor(canvas, root) {
    this.canvas = canvas;
    this.root = root;
    this.ctx = canvas.getContext("2d");
    this.hover = this.at = -1;  // span under the pointer; span the reader stepped to
    this.now = Infinity;        // while playing: nothing later has happened yet
    this.order = null;
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
    const style = getComputedStyle(this.root), probe = this.ctx;
    const read = (name) => {
      probe.fillStyle = "#888888";
      probe.fillStyle = style.getPropertyValue("--pp-" + name).trim();
      return probe.fillStyle;
    };
    const c = {};
    for (const name of ["page", "ink", "soft", "line", "hatch", "cap"]) c[name] = read(name);
    c.dark = luminance(c.page) < 0.3;
    c.font = style.fontFamily;
    c.grey = blend(c.ink, c.page, 0.55);
    const { work, chunks } = this.d.meta;
    c.edge = "FBWU".split("").map((k) => (c.dark ? blend(work[k], "#ffffff", 0.42) : work[k]));
    c.fill = "FBWU".split("").map((k) => Array.from({ length: chunks }, (_, i) =>
      blend(work[k], "#ffffff", 0.55 * i / Math.max(1, chunks - 1))));
    c.text = c.fill.map((row) => row.map((x) => (luminance(x) < 0.1833 ? "#ffffff" : "#000000")));
    c.tint = c.fill.map((row, k) => row.map((_, i) =>
      blend(c.page, c.edge[k], c.dark ? 0.3 + 0.25 * i / Math.max(1, chunks - 1)
        : 0.28 - 0.22 * i / Math.max(1, chunks - 1))));
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
    const d = this.d, { rows, lines } = d.meta, two = d.of > 1, ctx = this.ctx;
    this.bar = clamp(Math.floor(420 / d.lanes) - 4, 6, two ? 20 : 26);
    this.mid = two ? clamp(Math.round(this.bar / 2.2), 3, 9) : 0;
    const gap = this.bar > 12 ? (two ? 12 : 8) : 3;
    const many = new Set(rows.map((row) => row[0])).size > 1;
    let y = two ? 20 : 6;
    this.y = [];
    this.heads = [];
    rows.forEach(([replica], r) => {
      if (many && (r === 0 || rows[r - 1][0] !== replica)) {
        this.heads.push([`replica ${replica}`, y + 10]);
        y += 16;
      }
      for (let t = 0; t < d.of; t++) this.y.push(y + t * (this.bar + this.mid));
      y += d.of * this.bar + (d.of - 1) * this.mid + gap;
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

  paintIdle() {
    const { ctx, d } = this;
    for (let lane = 0; lane < d.lanes; lane++) {
      for (const [a, b] of d.meta.lines[lane % d.of].windows) {
        const x0 = this.x(Math.max(a, this.from)), x1 = this.x(Math.min(b, this.to));
        if (x1 <= x0) continue;
        ctx.fillStyle = this.c.idle;
        ctx.fillRect(x0, this.y[lane], x1 - x0, this.bar);
      }
    }
  }

  // Between the two lanes of a rank: where an operation began and ended in the one and in the
  // other, the darker the further they are apart. Beside the ends: by how much the step differs.
  paintDifference() {
    const { ctx, d, c } = this, [one, other] = d.meta.lines;
    ctx.fillStyle = c.ink;
    if (d.of === 2 && one.windows.length && other.windows.length) {
      const a = one.windows[one.windows.length - 1][1];
      const b = other.windows[other.windows.length - 1][1];
      const x0 = this.x(Math.min(a, b)), x1 = this.x(Math.max(a, b));
      ctx.globalAlpha = 0.12;
      ctx.fillRect(x0, 16, x1 - x0, this.foot - 16);
      ctx.globalAlpha = 1;
      ctx.fillRect(this.x(a) - 0.5, 16, 1, this.foot - 16);
      ctx.fillRect(this.x(b) - 0.5, 16, 1, this.foot - 16);
      const late = Math.abs(b - a);
      if (late > 1e-9 * d.total) {
        const text = `${other.name} ends ${this.words(late, 3)} ${b > a ? "later" : "earlier"}`;
        ctx.font = `600 12px ${c.font}`;
        const half = ctx.measureText(text).width / 2;
        ctx.textAlign = "center";
        ctx.textBaseline = "alphabetic";
        ctx.fillText(text, clamp((x0 + x1) / 2, this.left + half, this.right - half), 12);
      }
    }
    for (let lane = 1; lane < d.lanes; lane++) {
      if (lane % d.of === 0) continue;
      const top = this.y[lane - 1] + this.bar + 1, foot = this.y[lane] - 1;
      const [low, high] = this.visible(lane), dense = high - low > this.span / 3;
      for (let i = low; i < high; i++) {
        const j = d.twin[i];
        if (j < 0 || d.lane[j] !== lane - 1 || !this.shown(i)) continue;
        const apart = Math.abs(d.start[i] + d.end[i] - d.start[j] - d.end[j]) / 2 / d.mean;
        const level = Math.min(8, Math.round(apart * 6));
        if (!level) continue;
        ctx.globalAlpha = 0.05 * level;
        const x0 = this.x(d.start[i]), x1 = this.x(d.end[i]);
        if (dense) {
          ctx.fillRect(x0, top, Math.max(0.7, x1 - x0), foot - top);
          continue;
        }
        ctx.beginPath();
        ctx.moveTo(this.x(d.start[j]), top);
        ctx.lineTo(this.x(d.end[j]), top);
        ctx.lineTo(x1, foot);
        ctx.lineTo(x0, foot);
        ctx.fill();
      }
      ctx.globalAlpha = 1;
    }
  }

  // False for what has not happened yet where the reader stands.
  shown(i) {
    const { at, rank } = this, { start } = this.d;
    if (this.now !== Infinity) return start[i] < this.now;
    return at < 0 || (rank[i] < 0 ? start[i] < start[at] : rank[i] <= rank[at]);
  }

  paintLane(lane) {
    const { ctx, d, c } = this, [low, high] = this.visible(lane);
    if (high - low > 1.2 * this.span) return this.paintDense(lane, low, high);
    const y = this.y[lane], h = this.bar, outlined = d.meta.lines[lane % d.of].outlined;
    const size = clamp(h - 9, 8, 13);
    ctx.font = `${size}px ${c.font}`;
    const letter = size * 0.62;
    for (let i = low; i < high; i++) {
      const kind = d.kind[i], x0 = Math.max(this.x(d.start[i]), this.left - 4);
      let end = d.end[i];
      if (end < this.from || d.start[i] > this.now) continue;
      if (end > this.now) end = this.now;
      const x1 = Math.min(this.x(end), this.right + 4), w = x1 - x0;
      ctx.globalAlpha = this.shown(i) ? 1 : 0.13;
      if (kind >= SOLID) {
        const awaited = kind === WAIT && d.needs[i] >= 0 ? d.kind[d.needs[i]] : -1;
        ctx.fillStyle = awaited >= 0 ? c.edge[awaited] : c.grey;
        if (kind === WAIT) ctx.fillRect(x0, y + h - 3, Math.max(w, 0.5), 3);
        else ctx.fillRect(x0, y + h * 0.32, Math.max(w, 0.5), h * 0.36);
        continue;
      }
      if (d.wait[i] > 0 && !d.recorded[lane % d.of]) {
        ctx.fillStyle = c.edge[kind];
        const from = this.x(d.start[i] - d.wait[i]);
        ctx.fillRect(from, y + h - 3, x0 - from, 3);
      }
      const chunk = d.chunk[i] % c.fill[kind].length;
      if (outlined) {
        ctx.fillStyle = w > 3 ? c.tint[kind][chunk] : c.edge[kind];
        ctx.fillRect(x0, y, Math.max(w - (w > 3 ? 1 : 0), 0.6), h);
        if (w > 3) {
          ctx.strokeStyle = c.edge[kind];
          ctx.lineWidth = 1.3;
          ctx.strokeRect(x0 + 0.65, y + 0.65, w - 2.3, h - 1.3);
        }
      } else {
        ctx.fillStyle = c.fill[kind][chunk];
        ctx.fillRect(x0, y, Math.max(w - (w > 3 ? 1 : 0), 0.6), h);
        if (c.dark && w > 3) {
          ctx.strokeStyle = c.edge[kind];
          ctx.lineWidth = 1;
          ctx.strokeRect(x0 + 0.5, y + 0.5, w - 2, h - 1);
        }
      }
      // The letter repeats what the colour says; where only the number fits, the number.
      let text = d.micro[i] < 0 ? LETTERS[kind] : LETTERS[kind] + d.micro[i];
      if (w < text.length * letter + 5 && d.micro[i] >= 0) text = text.slice(1);
      if (h >= 11 && w > text.length * letter + 3) {
        ctx.fillStyle = outlined ? c.ink : c.text[kind][chunk];
        ctx.fillText(text, (x0 + x1 - 1) / 2, y + h / 2 + 0.5);
      }
    }
    ctx.globalAlpha = 1;
  }

  // More spans than pixels: each pixel column shows the shares of time of its kinds, piled up.
  paintDense(lane, low, high) {
    this.piled = true;
    const { ctx, d, c } = this, width = Math.ceil(this.span), per = width / (this.to - this.from);
    const share = (this.pile && this.pile.length === width * SOLID) ? this.pile.fill(0)
      : (this.pile = new Float32Array(width * SOLID));
    const from = this.from, stepping = this.at >= 0 || this.now !== Infinity;
    for (let i = low; i < high; i++) {
      const kind = d.kind[i];
      if (kind >= SOLID || stepping && !this.shown(i)) continue;
      const a = Math.max(0, (d.start[i] - from) * per), b = Math.min(width, (d.end[i] - from) * per);
      const last = Math.floor(b);
      let p = Math.floor(a);
      if (p === last) {
        if (p < width) share[p * SOLID + kind] += b - a;
        continue;
      }
      if (p < width) share[p * SOLID + kind] += p + 1 - a;
      for (p++; p < last; p++) share[p * SOLID + kind] += 1;
      if (last < width) share[last * SOLID + kind] += b - last;
    }
    const outlined = d.meta.lines[lane % d.of].outlined, top = this.y[lane], h = this.bar;
    for (let kind = 0; kind < SOLID; kind++) {
      ctx.fillStyle = outlined ? blend(c.page, c.edge[kind], 0.62) : c.fill[kind][0];
      let run = 0;
      for (let p = 0; p < width; p = run) {
        const at = p * SOLID, tall = share[at + kind];
        run = p + 1;
        if (tall < 0.02) continue;
        let above = 0;
        for (let k = 0; k < kind; k++) above += share[at + k];
        while (run < width && Math.abs(share[run * SOLID + kind] - tall) < 0.03
          && Math.abs(share[run * SOLID] - share[at]) < 0.03) run++;
        ctx.fillRect(this.left + p, top + Math.min(above, 1) * h, run - p, Math.min(tall, 1) * h);
      }
    }
  }

  // The span the reader looks at, and an arrow from the operation it waited for.
  paintCursor() {
    const { ctx, d, c } = this;
    const line = this.now !== Infinity ? this.now : -1;
    ctx.strokeStyle = ctx.fillStyle = c.ink;
    if (line >= 0) ctx.fillRect(this.x(line) - 0.75, 0, 1.5, this.foot);
    for (const i of new Set([this.at, this.hover])) {
      if (i < 0 || i >= d.n) continue;
      const x0 = this.x(d.start[i]), x1 = this.x(d.end[i]), y = this.y[d.lane[i]];
      ctx.lineWidth = 2.5;
      ctx.strokeRect(x0, y - 0.5, Math.max(2, x1 - x0 - 1), this.bar + 1);
      const j = d.needs[i];
      if (j < 0 || d.kind[i] >= SOLID || d.lane[j] === d.lane[i]) continue;
      const down = this.y[d.lane[j]] < y, xa = this.x(d.end[j]) - 1;
      const ya = this.y[d.lane[j]] + (down ? this.bar : 0), yb = down ? y : y + this.bar;
      const xb = x0 + 2, angle = Math.atan2(yb - ya, xb - xa);
      ctx.lineWidth = 1.6;
      ctx.beginPath();
      ctx.moveTo(xa, ya);
      ctx.lineTo(xb, yb);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(xb, yb);
      ctx.lineTo(xb - 8 * Math.cos(angle - 0.4), yb - 8 * Math.sin(angle - 0.4));
      ctx.lineTo(xb - 8 * Math.cos(angle + 0.4), yb - 8 * Math.sin(angle + 0.4));
      ctx.fill();
    }
  }

  paintNames() {
    const { ctx, d, c } = this;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    d.meta.rows.forEach(([, rank], r) => {
      const first = this.y[r * d.of], last = this.y[r * d.of + d.of - 1] + this.bar;
      ctx.fillStyle = c.ink;
      ctx.font = `${this.bar > 9 ? 12 : 9}px ${c.font}`;
      ctx.fillText(`rank ${rank}`, 2, (first + last) / 2);
      if (!this.lanesNamed) return;
      ctx.fillStyle = c.soft;
      ctx.font = `11px ${c.font}`;
      d.meta.lines.forEach((line, t) => {
        ctx.fillText(line.name, this.rankWidth, this.y[r * d.of + t] + this.bar / 2);
      });
    });
    ctx.font = `600 11px ${c.font}`;
    ctx.fillStyle = c.soft;
    for (const [text, y] of this.heads) ctx.fillText(text, 2, y);
  }

  // Time in words, in a unit that suits the whole picture.
  words(time, digits = 4) {
    const [factor, unit] = this.unit();
    return `${+(time * factor).toPrecision(digits)} ${unit}`;
  }

  unit() {
    const { meta, total } = this.d;
    if (meta.unit !== "s") return [1, meta.unit];
    return total >= 1 ? [1, "s"] : total >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  }

  paintAxis() {
    const { ctx, c } = this, [factor, unit] = this.unit(), y = this.foot;
    const wide = (this.to - this.from) * factor;
    const rough = wide / Math.max(2, this.span / 90), size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((s) => s * size >= rough) * size;
    ctx.font = `11px ${c.font}`;
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    ctx.fillStyle = c.line;
    ctx.fillRect(this.left, y, this.span, 1);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (let k = Math.ceil(this.from * factor / step - 1e-9); ; k++) {
      const t = k * step / factor;
      if (t > this.to) break;
      const x = this.x(t);
      ctx.fillStyle = c.line;
      ctx.fillRect(x - 0.5, y, 1, 4);
      ctx.fillStyle = c.soft;
      if (x < this.right - 8) ctx.fillText((k * step).toFixed(Math.min(digits, 9)), x, y + 7);
    }
    ctx.textAlign = "right";
    ctx.fillText(unit, this.left - 9, y + 7);
    if (this.piled) ctx.fillText(this.d.meta.piled, this.right, y + 24);
  }

  // -- memory ----------------------------------------------------------------------------------

  peaks() {
    const { d } = this, at = d.meta.heldAt;
    this.peak = at.slice(1).map((end, lane) => {
      let most = 0;
      for (let i = at[lane]; i < end; i++) most = Math.max(most, d.count[i]);
      return most;
    });
    this.most = Math.max(1, d.meta.cap || 0, ...this.peak) * 1.05;
  }

  paintMemory() {
    const { ctx, d, c } = this, { rows, heldAt, cap } = d.meta, h = this.stripBar;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.font = `600 12px ${c.font}`;
    ctx.fillStyle = c.soft;
    const names = d.of > 1 ? ` (${d.meta.lines.map((l) => l.name).join(" / ")})` : "";
    const limit = cap ? `; dashed: the cap, ${cap}` : "";
    ctx.fillText(`Memory: activations in flight, and the peak${names}${limit}`, 2, this.strip - 12);
    rows.forEach(([, rank], r) => {
      const y = this.strip + r * (h + 4), tall = (n) => y + h - n / this.most * h;
      ctx.save();
      ctx.beginPath();
      ctx.rect(this.left, y - 1, this.span, h + 2);
      ctx.clip();
      for (let t = d.of - 1; t >= 0; t--) this.paintHeld(r * d.of + t, tall, y + h);
      if (cap) {
        ctx.strokeStyle = c.cap;
        ctx.setLineDash([5, 3]);
        ctx.lineWidth = 1.5;
        ctx.beginPath();
        ctx.moveTo(this.left, tall(cap));
        ctx.lineTo(this.right, tall(cap));
        ctx.stroke();
        ctx.setLineDash([]);
      }
      ctx.restore();
      ctx.fillStyle = c.line;
      ctx.fillRect(this.left, y + h, this.span, 1);
      const peaks = d.meta.lines.map((_, t) => this.peak[r * d.of + t]);
      const over = cap && Math.max(...peaks) > cap;
      ctx.font = `${h > 9 ? 12 : 9}px ${c.font}`;
      ctx.fillStyle = c.ink;
      ctx.fillText(`rank ${rank}`, 2, y + h / 2);
      ctx.fillStyle = over ? c.cap : c.ink;
      ctx.font = "600 " + ctx.font;
      ctx.fillText(peaks.join(" / ") + (over ? " over" : ""), this.rankWidth, y + h / 2);
    });
  }

  paintHeld(lane, tall, foot) {
    const { ctx, d, c } = this, at = d.meta.heldAt, outlined = d.meta.lines[lane % d.of].outlined;
    let i = Math.max(at[lane], lower(d.held, this.from, at[lane], at[lane + 1]) - 1);
    let level = i < at[lane + 1] && d.held[i] <= this.from ? d.count[i] : 0;
    ctx.beginPath();
    ctx.moveTo(this.left, foot);
    ctx.lineTo(this.left, tall(level));
    for (; i < at[lane + 1] && d.held[i] < this.to && d.held[i] < this.now; i++) {
      let next = d.count[i];
      const here = Math.max(this.left, this.x(d.held[i]));
      while (i + 1 < at[lane + 1] && this.x(d.held[i + 1]) < here + 0.7) {
        next = Math.max(next, d.count[++i]);  // within a pixel the most counts
      }
      ctx.lineTo(here, tall(level));
      level = d.count[i];
      ctx.lineTo(here, tall(Math.max(next, level)));
    }
    const stop = Math.min(this.right, this.x(Math.min(this.now, d.total)));
    ctx.lineTo(stop, tall(level));
    ctx.lineTo(stop, foot);
    ctx.fillStyle = c.ink;
    ctx.globalAlpha = outlined ? 0.1 : 0.3;
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.strokeStyle = c.soft;
    ctx.lineWidth = 1.2;
    ctx.stroke();
  }
}
