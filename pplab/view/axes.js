// What stands around the lanes: names, the time axis, and the memory strip below it.
class Picture extends Bars {
  paintNames() {
    const { ctx, d, c } = this;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    d.meta.rows.forEach(([, rank], r) => {
      const first = this.y[r * d.of], last = this.y[r * d.of + d.of - 1] + this.bar;
      ctx.fillStyle = c.ink;
      ctx.font = `${this.bar > 9 ? 12 : SMALL}px ${c.font}`;
      if (rank % this.every === 0) ctx.fillText(`rank ${rank}`, 2, (first + last) / 2);
      if (!this.lanesNamed) return;
      ctx.fillStyle = c.soft;
      ctx.font = `11px ${c.font}`;
      d.meta.lines.forEach((line, t) => {
        ctx.fillText(line.name, this.rankWidth, this.y[r * d.of + t] + this.bar / 2);
      });
    });
    ctx.font = `600 ${d.meta.groups ? 13 : 11}px ${c.font}`;
    ctx.fillStyle = d.meta.groups ? c.ink : c.soft;
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
    ctx.fillText(unit, this.left - 14, y + 7);
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
    const titles = [`Memory: activations in flight, and the peak${names}${limit}`,
      `Activations in flight${names}${limit}`, `Activations in flight${limit}`];
    const fits = (text) => ctx.measureText(text).width < this.width - 4;
    ctx.fillText(titles.find(fits) || titles[2], 2, this.strip - 12);
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
      ctx.font = `${h > 9 ? 12 : SMALL}px ${c.font}`;
      ctx.fillStyle = c.ink;
      ctx.fillText(`rank ${rank}`, 2, y + h / 2);
      ctx.fillStyle = over ? c.cap : c.ink;
      ctx.font = "600 " + ctx.font;
      ctx.fillText(peaks.join(" / ") + (over ? " over" : ""), this.rankWidth, y + h / 2);
    });
  }

  paintHeld(lane, tall, foot) {
    const { ctx, d, c } = this, at = d.meta.heldAt, outlined = d.line(lane).outlined;
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
