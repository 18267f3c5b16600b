// What happens on the lanes: work, waiting, idle time, and where two timelines differ.
class Bars extends Chart {
  paintIdle() {
    const { ctx, d } = this;
    for (let lane = 0; lane < d.lanes; lane++) {
      for (const [a, b] of d.line(lane).windows) {
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
    const y = this.y[lane], h = this.bar, outlined = d.line(lane).outlined;
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
      // The letter repeats what the colour says; where only the number fits, the number. Bars of
      // one width are all labelled or none: the longest number decides.
      const whole = d.micro[i] < 0, need = (whole ? 1 : d.digits) * letter;
      if (h >= 11 && w > need + 3) {
        const text = (whole || w > need + letter + 5 ? LETTERS[kind] : "")
          + (whole ? "" : d.micro[i]);
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
