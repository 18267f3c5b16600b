// The picture of cuts on a canvas: one line a cut, layers as boxes as wide as their time, all on one
// scale; under each line the names and times of its stages, the heaviest one outlined.
const OWN_BAR = 36, BAR = 22, MEASURED = 13, LABELS = 18, GAP = 14;
const FEW = 16;  // layers; of more than these, most are named or none is

class Strips {
  constructor(canvas, root, about, layers) {
    Object.assign(this, { canvas, root, about, layers, lines: [], stale: true, widths: new Map() });
    this.ctx = canvas.getContext("2d");
  }

  // Colours of the page, as solid "#rrggbb".
  theme() {
    const style = getComputedStyle(this.root), probe = this.ctx, c = {};
    for (const name of ["page", "ink", "soft", "line", "hatch", "cap"]) {
      probe.fillStyle = "#888888";
      probe.fillStyle = style.getPropertyValue("--pp-" + name).trim();
      const colour = probe.fillStyle;
      const [r, g, b, alpha] = colour[0] === "#" ? [] : colour.match(/[\d.]+/g).map(Number);
      c[name] = colour[0] === "#" ? colour : blend(c.page || "#ffffff", "#" + [r, g, b].map((x) =>
        x.toString(16).padStart(2, "0")).join(""), alpha);
    }
    c.dark = luminance(c.page) < 0.3;
    c.font = style.fontFamily;
    this.widths.clear();
    this.c = c;
    this.stale = false;
  }

  font(size, weight = 400) {
    this.ctx.font = `${weight} ${size}px ${this.c.font}`;
  }

  wide(text) {
    const key = this.ctx.font + text;
    let width = this.widths.get(key);
    if (width === undefined) this.widths.set(key, (width = this.ctx.measureText(text).width));
    return width;
  }

  colour(problem, s) {
    const { colours } = this.about, share = problem.chunk[s] / Math.max(1, problem.chunks - 1);
    return blend(colours[problem.rank[s] % colours.length], "#ffffff", 0.55 * share);
  }

  // What slice s is called: its stage, or its rank and chunk.
  name(problem, s) {
    return problem.chunks > 1 ? `${problem.rank[s]}.${problem.chunk[s]}` : `${problem.rank[s]}`;
  }

  layer(i) {
    return this.about.names.length ? this.about.names[i] : `layer ${i}`;
  }

  // `lines` are { name, note, bounds, problem, sums, measured, excess, own }.
  set(lines) {
    this.lines = lines;
  }

  // Left end of each layer of a line, in pixels, and the right end of the last.
  edges({ bounds, problem }) {
    const { time, n } = this.layers, x = new Float64Array(n + 1);
    let at = 0;
    for (let s = 0; s + 1 < bounds.length; s++) {
      const [a, b] = [bounds[s], bounds[s + 1]];
      for (let i = a; i < b; i++) x[i] = this.px(at + (time[i] - time[a]) / problem.speed[s]);
      at += (time[b] - time[a]) / problem.speed[s];
    }
    x[n] = this.px(at);
    return x;
  }

  px(time) {
    return this.left + time / this.longest * this.span;
  }

  layout() {
    const total = (line) => Math.max(line.sums.loads.reduce((a, b) => a + b, 0),
      line.measured ? line.measured.reduce((a, b) => a + b, 0) : 0);
    // While a cut is dragged the scale may grow with it, but does not shrink under the pointer.
    const longest = Math.max(...this.lines.map(total)) || 1;
    this.longest = this.held ? Math.max(this.longest, longest) : longest;
    const narrow = this.width < 560;
    this.left = narrow ? 2 : 132;
    this.span = this.width - this.left - 14;
    let y = 18;  // room for the knobs of the handles
    for (const line of this.lines) {
      if (narrow) y += 17;
      line.y = y;
      line.bar = line.own ? OWN_BAR : BAR;
      line.foot = y + line.bar;
      y = line.foot + LABELS + (line.measured ? MEASURED + LABELS + 2 : 0) + GAP;
    }
    this.axis = y - GAP + 6;
    this.height = this.axis + 22;
  }

  paint() {
    const { canvas, ctx } = this;
    const dpr = (this.dpr = window.devicePixelRatio || 1);
    this.width = Math.max(300, canvas.parentElement.clientWidth);
    if (this.stale) this.theme();
    this.layout();
    const w = Math.round(this.width * dpr), h = Math.round(this.height * dpr);
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.width = this.width + "px";
      canvas.style.height = this.height + "px";
    }
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.fillStyle = this.c.page;
    ctx.fillRect(0, 0, this.width, this.height);
    for (const line of this.lines) this.paintLine(line);
    this.paintAxis();
  }

  paintLine(line) {
    const { ctx, c } = this, { problem, bounds } = line, x = (line.x = this.edges(line));
    const narrow = this.left < 100, base = narrow ? line.y - 9 : line.y + line.bar / 2 - 7;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    this.font(13, 600);
    ctx.fillStyle = c.ink;
    const named = this.fit(line.name, narrow ? this.width / 2 : this.left - 14);
    ctx.fillText(named, 2, base);
    const after = 2 + this.wide(named) + 8;
    this.font(12);
    ctx.fillStyle = c.soft;
    if (line.note) ctx.fillText(line.note, narrow ? after : 2, base + (narrow ? 0 : 15));
    line.texts = this.texts(line);
    for (let s = 0; s + 1 < bounds.length; s++) {
      const colour = this.colour(problem, s), from = x[bounds[s]], to = x[bounds[s + 1]];
      ctx.fillStyle = colour;
      ctx.fillRect(from, line.y, Math.max(1, to - from - 2), line.bar);
      if (problem.chunk[s]) {  // a light colour needs an edge on a light page
        ctx.strokeStyle = this.about.colours[problem.rank[s] % this.about.colours.length];
        ctx.lineWidth = 1;
        ctx.strokeRect(from + 0.5, line.y + 0.5, Math.max(1, to - from - 3), line.bar - 1);
      }
      this.paintLayers(line, s, colour);
    }
    const unnamed = this.paintLabels(line, line.foot + LABELS / 2 + 1, line.sums.loads,
      (s) => (line.sums.slowest === problem.rank[s]));
    for (const s of unnamed) if (problem.rank[s] % 2) this.hatch(line, s);
    this.outline(line);
    if (line.measured) this.paintMeasured(line);
  }

  // The name of each layer, or its number, or nothing where neither fits its box.
  texts({ x, bar }) {
    this.font(bar > 30 ? 12 : 11);
    const found = Array.from({ length: this.layers.n }, (_, i) => {
      const room = x[i + 1] - x[i] - 6;
      return room < 6 ? "" : [this.layer(i), `${i}`].find((one) => this.wide(one) < room) || "";
    });
    const named = found.filter(Boolean).length;
    return found.length > FEW && named < found.length / 2 ? found.fill("") : found;
  }

  // Lines between the layers of a slice, and their names.
  paintLayers({ x, y, bar, bounds, texts }, s, colour) {
    const { ctx } = this, ink = luminance(colour) < 0.1833 ? "#ffffff" : "#000000";
    this.font(bar > 30 ? 12 : 11);
    ctx.textAlign = "center";
    for (let i = bounds[s]; i < bounds[s + 1]; i++) {
      const width = x[i + 1] - x[i];
      if (i > bounds[s] && width >= 3 && x[i] - x[i - 1] >= 3) {
        ctx.fillStyle = this.c.page;
        ctx.globalAlpha = 0.75;
        ctx.fillRect(x[i] - 1, y, 1, bar);
        ctx.globalAlpha = 1;
      }
      ctx.fillStyle = ink;
      if (texts[i]) ctx.fillText(texts[i], (x[i] + x[i + 1]) / 2 - 1, y + bar / 2);
    }
  }

  // Names and values under (or over) the slices; the marked ones first and in bold, others where
  // room is left. Gives the slices that got no name.
  paintLabels(line, y, values, marked, says) {
    const { ctx, c, about } = this, { problem, x, bounds } = line;
    const left = [], taken = [], word = about.piece;
    ctx.textAlign = "center";
    const place = (s) => {
      const from = x[bounds[s]], to = x[bounds[s + 1]], heavy = marked(s);
      this.font(12, heavy ? 700 : 400);
      const value = timeWords(values[s], about.unit), name = this.name(problem, s);
      const more = says ? says(s) : "";
      const short = [`${name}: ${value}${more}`, `${name}${more}`, name];
      const texts = [`${word} ${name}: ${value}${more}`, ...short];
      if (heavy && !says) {  // its name may be wider than the stage is, when it must
        texts.splice(2, 1);
        texts.push(texts[problem.chunks > 1 ? 1 : 0]);
        texts.forEach((text, k) => { texts[k] = `▲ ${text}`; });
      }
      for (const [k, text] of texts.entries()) {
        const half = this.wide(text) / 2;
        const room = heavy && !says && k === 3 ? Infinity : (to - from) / 2 - 3;
        const middle = clamp((from + to) / 2, this.left + half, this.width - 2 - half);
        if (half > room || taken.some(([a, b]) => middle + half + 5 > a && middle - half - 5 < b)) {
          continue;
        }
        taken.push([middle - half, middle + half]);
        ctx.fillStyle = heavy ? c.ink : c.soft;
        ctx.fillText(text, middle, y);
        return;
      }
      left.push(s);
    };
    const all = values.map((_, s) => s);
    all.filter(marked).forEach(place);
    all.filter((s) => !marked(s)).forEach(place);
    return left;
  }

  // Colour is never the only sign: where no name fits, every second stage is hatched.
  hatch({ x, y, bar, bounds }, s) {
    const { ctx } = this, from = x[bounds[s]], to = x[bounds[s + 1]] - 2;
    ctx.save();
    ctx.beginPath();
    ctx.rect(from, y, to - from, bar);
    ctx.clip();
    ctx.strokeStyle = "#ffffff";
    ctx.globalAlpha = 0.6;
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (let at = from - bar; at < to; at += 5) { ctx.moveTo(at, y + bar); ctx.lineTo(at + bar, y); }
    ctx.stroke();
    ctx.restore();
  }

  outline({ x, y, bar, bounds, problem, sums }) {
    const { ctx, c } = this;
    ctx.strokeStyle = c.ink;
    ctx.lineWidth = 2.5;
    problem.rank.forEach((rank, s) => {
      if (rank !== sums.slowest) return;
      const from = x[bounds[s]], to = x[bounds[s + 1]] - 2;
      ctx.strokeRect(from - 1.25, y - 1.25, Math.max(1, to - from) + 2.5, bar + 2.5);
    });
  }

  // Measured times of the slices under the predicted ones, end to end, with the difference.
  paintMeasured(line) {
    const { ctx, c } = this, { problem, measured, excess } = line, y = line.foot + LABELS + 2;
    const x = [this.px(0)];
    measured.reduce((at, time) => { x.push(this.px(at + time)); return at + time; }, 0);
    this.font(12);
    ctx.textAlign = "left";
    ctx.fillStyle = c.soft;
    if (this.left > 100) ctx.fillText("measured", 2, y + MEASURED / 2);
    measured.forEach((_, s) => {
      ctx.fillStyle = this.colour(problem, s);
      ctx.fillRect(x[s], y, Math.max(1, x[s + 1] - x[s] - 2), MEASURED);
      const predicted = this.px(line.sums.loads[s]) - this.px(0);
      const width = x[s + 1] - x[s];
      if (width <= predicted) return;
      const part = { x: [x[s] + predicted, x[s + 1]], y, bar: MEASURED, bounds: [0, 1] };
      this.hatch(part, 0);  // longer than predicted: the excess is hatched
    });
    const most = measured.indexOf(Math.max(...measured));
    this.paintLabels({ ...line, x, bounds: x.map((_, s) => s) }, y + MEASURED + LABELS / 2,
      measured, (s) => s === most, (s) => (excess[s] ? ` (${excess[s]})` : ""));
    line.under = y;
  }

  paintAxis() {
    const { ctx, c, about } = this, y = this.axis;
    const [factor, unit] = about.unit !== "s" ? [1, about.unit] : this.longest >= 1 ? [1, "s"]
      : this.longest >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    const rough = this.longest * factor / Math.max(2, this.span / 90);
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((s) => s * size >= rough * (1 - 1e-9)) * size;
    ctx.fillStyle = c.line;
    ctx.fillRect(this.left, y, this.span, 1);
    this.font(11);
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    const last = Math.floor(this.longest * factor / step + 1e-9);
    for (let k = 0; k <= last; k++) {
      const at = this.px(k * step / factor), text = `${+(k * step).toPrecision(6)}`;
      ctx.fillStyle = c.line;
      ctx.fillRect(at, y, 1, 4);
      ctx.fillStyle = c.soft;
      ctx.fillText(k === last ? `${text} ${unit}` : text, k === last ? Math.min(at, this.width
        - this.wide(`${text} ${unit}`) / 2 - 2) : at, y + 6);
    }
  }

  // A text cut to fit.
  fit(text, room) {
    if (this.wide(text) <= room) return text;
    let n = text.length;
    while (n > 1 && this.wide(text.slice(0, n) + "…") > room) n--;
    return text.slice(0, n) + "…";
  }

  // Line and layer at a point of the canvas, or null.
  hit(px, py) {
    const line = this.lines.find((one) => py >= one.y - 3 && py < one.foot + LABELS);
    if (!line || !line.x || px < line.x[0] || px >= line.x[this.layers.n]) return null;
    const i = lower(line.x, px + 1e-9, 0, this.layers.n + 1) - 1;
    return { line, i: clamp(i, 0, this.layers.n - 1) };
  }
}
