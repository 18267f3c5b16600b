// What happens on the lanes: work, waiting, idle time, and where two timelines differ.
const AHEAD = 0.3;  // opacity of what has not happened yet where the reader stands
const SMALL = 11;   // pixels: the smallest text

class Bars extends Chart {
  paintIdle() {
    const { ctx, d } = this, now = this.moment();
    ctx.fillStyle = this.c.idle;
    const fill = (a, b, lane, alpha) => {
      const x0 = this.x(Math.max(a, this.from)), x1 = this.x(Math.min(b, this.to));
      ctx.globalAlpha = alpha;
      if (x1 > x0) ctx.fillRect(x0, this.y[lane], x1 - x0, this.bar);
    };
    for (let lane = 0; lane < d.lanes; lane++) {
      for (const [a, b] of d.line(lane).windows) {
        fill(a, Math.min(b, now), lane, 1);
        fill(Math.max(a, now), b, lane, AHEAD);
      }
    }
    ctx.globalAlpha = 1;
  }

  // The time the reader has come to; what lies ahead is drawn faintly.
  moment() {
    return this.now !== Infinity ? this.now : this.at < 0 ? Infinity : this.d.start[this.at];
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
    const { ctx, d, c, now } = this, [low, high] = this.visible(lane);
    if (high - low > 1.2 * this.span) return this.paintDense(lane, low, high);
    const y = this.y[lane], h = this.bar;
    const fill = (colour, a, b, top, tall) => {
      ctx.fillStyle = colour;
      ctx.fillRect(a, top, Math.max(b - a, 0.5), tall);
    };
    // What lies ahead is drawn faintly, and what has begun once more, until now.
    const both = (i, from, to, draw) => {
      if (to < this.from) return;
      const a = Math.max(this.x(from), this.left - 4), b = Math.min(this.x(to), this.right + 4);
      const later = now === Infinity ? !this.shown(i) : to > now;
      if (!later) return draw(a, b, false);
      ctx.globalAlpha = AHEAD;
      draw(a, b, true);
      ctx.globalAlpha = 1;
      if (from < now && now !== Infinity) draw(a, Math.min(b, this.x(now)), false);
    };
    for (let i = low; i < high; i++) {
      const kind = d.kind[i];
      if (kind >= SOLID) {
        const awaited = kind === WAIT && d.needs[i] >= 0 ? d.kind[d.needs[i]] : -1;
        const colour = awaited >= 0 ? c.edge[awaited] : c.grey;
        both(i, d.start[i], d.end[i], (a, b) => (kind === WAIT ? fill(colour, a, b, y + h - 3, 3)
          : fill(colour, a, b, y + h * 0.32, h * 0.36)));
        continue;
      }
      if (d.wait[i] > 0 && !d.recorded[lane % d.of]) {
        both(i, d.start[i] - d.wait[i], d.start[i],
          (a, b) => fill(c.edge[kind], a, b, y + h - 3, 3));
      }
      both(i, d.start[i], d.end[i], (a, b, ahead) => this.paintBar(i, a, b, y, ahead));
    }
  }

  // The bar of an operation from x0 to x1, with its name where that fits.
  paintBar(i, x0, x1, y, ahead) {
    const { ctx, d, c } = this, h = this.bar, w = x1 - x0, kind = d.kind[i];
    const outlined = d.line(d.lane[i]).outlined, chunk = d.chunk[i] % c.fill[kind].length;
    const wide = Math.max(w - (w > 3 ? 1 : 0), 0.6);
    if (ahead) {  // no idle time shines through
      ctx.globalAlpha = 1;
      ctx.fillStyle = c.page;
      ctx.fillRect(x0, y, wide, h);
      ctx.globalAlpha = AHEAD;
    }
    ctx.fillStyle = !outlined ? c.fill[kind][chunk] : w > 3 ? c.tint[kind][chunk] : c.edge[kind];
    ctx.fillRect(x0, y, wide, h);
    if (w > 3 && (outlined || c.dark)) {
      const thick = outlined ? 1.3 : 1;
      ctx.strokeStyle = c.edge[kind];
      ctx.lineWidth = thick;
      ctx.strokeRect(x0 + thick / 2, y + thick / 2, w - 1 - thick, h - thick);
    }
    // The letter repeats what the colour says; where only the number fits, the number. Bars of
    // one width are all labelled or none: the longest number decides. The smaller of two sizes
    // is for letters that would not fit otherwise.
    const whole = d.micro[i] < 0, large = clamp(h - 9, SMALL, 13);
    const need = (size, letters) => size * 0.62 * ((whole ? 0 : d.digits) + letters);
    const size = w > need(large, 1) + 5 || w <= need(SMALL, 1) + 5 ? large : SMALL;
    if (h < SMALL || w <= (whole ? need(size, 1) : need(size, 0)) + 3) return;
    const text = (whole || w > need(size, 1) + 5 ? LETTERS[kind] : "") + (whole ? "" : d.micro[i]);
    ctx.font = `${size}px ${c.font}`;
    ctx.fillStyle = outlined ? c.ink : c.text[kind][chunk];
    ctx.fillText(text, (x0 + x1 - 1) / 2, y + h / 2 + 0.5);
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
      const a = Math.max(0, (d.start[i] - from) * per);
      const b = Math.min(width, (d.end[i] - from) * per);
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
    const outlined = d.line(lane).outlined, top = this.y[lane], h = this.bar;
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
    const line = this.now !== Infinity ? this.now
      : this.cursor && this.at >= 0 ? d.start[this.at] : -1;
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
}
