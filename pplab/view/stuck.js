// A schedule that cannot run to its end: right of the lanes stands what each rank would run next
// and never does. In a deadlock numbered arrows lead from what waits to what it waits for.
const HEADING = "Next in line, never starts";

class Stuck extends Picture {
  constructor(canvas, root) {
    super(canvas, root);
    this.room = 24;
  }

  layout() {
    this.spread = this.d.meta.arrows.length ? 40 : 10;  // room for arrows and their numbers
    super.layout();
    if (!this.d.meta.ghosts.length) return;
    const { ctx, c } = this, { ghosts, briefs } = this.d.meta;
    ctx.font = `12px ${c.font}`;
    const wide = (text) => Math.ceil(ctx.measureText(text).width);
    const columns = [];
    for (const [, label, , column] of ghosts) {
      columns[column] = Math.max(columns[column] || 34, wide(label) + 14);
    }
    this.columnX = [14];
    columns.forEach((w, k) => { this.columnX[k + 1] = this.columnX[k] + w + 62; });
    const inside = columns.length ? this.columnX[columns.length] - 48 : 0;
    const beside = briefs.map((text, rank) => {
      const own = ghosts.find(([on]) => on === rank);
      return 24 + wide(text) + (own ? wide(own[1]) + 22 : 0);
    });
    ctx.font = `600 12px ${c.font}`;
    const heading = wide(HEADING) + 24;
    ctx.font = `12px ${c.font}`;
    this.panel = Math.min(Math.max(inside, heading, ...beside), 0.5 * this.width);
    this.right -= this.panel + 4;
    this.span = Math.max(10, this.right - this.left);
    this.boxes = ghosts.map(([rank, label, , column]) => {
      const x = this.right + 6 + this.columnX[column], y = this.y[rank];
      return { x, y, w: Math.max(34, wide(label) + 14), h: this.bar };
    });
  }

  paint() {
    super.paint();
    if (!this.d.meta.ghosts.length) return;
    const { ctx, d, c } = this, { ghosts, arrows, awaits } = d.meta, left = this.right + 6;
    ctx.fillStyle = blend(c.page, c.ink, 0.06);
    ctx.fillRect(left, this.room - 6, this.panel - 2, this.foot - this.room + 8);
    ctx.fillStyle = c.cap;
    ctx.fillRect(left, this.room - 6, 2, this.foot - this.room + 8);
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.font = `600 12px ${c.font}`;
    ctx.fillText(HEADING, left + 14, 9);
    awaits.forEach((kind, rank) => {  // it waits from its last operation on, for ever
      const last = d.first[rank + 1] - 1, from = last >= d.first[rank] ? this.x(d.end[last]) : 0;
      const x = Math.max(this.left, from);
      if (kind < 0 || x >= this.right) return;
      ctx.fillStyle = c.edge[kind];
      ctx.fillRect(x, this.y[rank] + this.bar - 3, left - x, 3);
    });
    ghosts.forEach((ghost, k) => this.paintGhost(ghost, k));
    d.meta.briefs.forEach((text, rank) => {
      const k = ghosts.findIndex(([on]) => on === rank), box = this.boxes[k];
      const x = box ? box.x + box.w + 9 : left + 14;
      ctx.font = `12px ${c.font}`;
      ctx.fillStyle = c.ink;
      ctx.textAlign = "left";
      ctx.fillText(text, x, this.y[rank] + this.bar / 2 + 0.5);
    });
    arrows.map((arrow) => this.paintArrow(arrow)).forEach((badge) => this.paintBadge(badge));
  }

  paintGhost([rank, label, kind, column, leftOut, wrong], k) {
    const { ctx, c } = this, { x, y, w, h } = this.boxes[k], middle = y + h / 2 + 0.5;
    ctx.font = `12px ${c.font}`;
    if (column > 0) {
      const from = this.boxes[k - 1].x + this.boxes[k - 1].w + 3;
      const text = leftOut ? `+${leftOut}, then` : "then";
      ctx.fillStyle = c.soft;
      ctx.textAlign = "center";
      ctx.fillText(text, (from + x - 3) / 2, middle);
    }
    ctx.fillStyle = c.page;
    ctx.fillRect(x, y, w, h);
    ctx.strokeStyle = wrong ? c.cap : c.edge[kind];
    ctx.lineWidth = wrong ? 2.5 : 1.5;
    ctx.setLineDash(wrong ? [] : [4, 3]);
    ctx.strokeRect(x + 1, y + 1, w - 2, h - 2);
    ctx.setLineDash([]);
    ctx.fillStyle = c.ink;
    ctx.textAlign = "center";
    ctx.fillText(label, x + w / 2, middle);
    if (!wrong) return;
    ctx.beginPath();
    for (const [a, b] of [[0, 1], [1, 0]]) {
      ctx.moveTo(x - 5, y - 5 + 10 * a);
      ctx.lineTo(x + 5, y - 5 + 10 * b);
    }
    ctx.stroke();
  }

  // Draws the line and returns where its number belongs, which is drawn over all lines.
  paintArrow([number, a, b]) {
    const { ctx, c } = this, from = this.boxes[a], to = this.boxes[b], down = to.y > from.y;
    const xa = from.x + from.w / 2, xb = to.x + to.w / 2;
    const ya = down ? from.y + from.h : from.y, yb = down ? to.y - 1 : to.y + to.h + 1;
    const angle = Math.atan2(yb - ya, xb - xa), tip = 9;
    for (const [style, width] of [[c.page, 6], [c.cap, 2]]) {
      ctx.strokeStyle = ctx.fillStyle = style;
      ctx.lineWidth = width;
      ctx.beginPath();
      ctx.moveTo(xa, ya);
      ctx.lineTo(xb - tip * Math.cos(angle) * 0.8, yb - tip * Math.sin(angle) * 0.8);
      ctx.stroke();
    }
    ctx.beginPath();
    ctx.moveTo(xb, yb);
    for (const turn of [-0.42, 0.42]) {
      ctx.lineTo(xb - tip * Math.cos(angle + turn), yb - tip * Math.sin(angle + turn));
    }
    ctx.fill();
    const far = (xa === xb ? 16 : 10) / Math.abs(yb - ya);
    return [number, xa + (xb - xa) * far, ya + (yb - ya) * far];
  }

  paintBadge([number, x, y]) {
    const { ctx, c } = this;
    ctx.fillStyle = c.cap;
    ctx.beginPath();
    ctx.arc(x, y, 8.5, 0, 7);
    ctx.fill();
    ctx.fillStyle = c.page;
    ctx.font = `700 11px ${c.font}`;
    ctx.textAlign = "center";
    ctx.fillText(number, x, y + 0.5);
  }
}
