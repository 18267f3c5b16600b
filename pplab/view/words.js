// The picture in words: tooltips, headline numbers, legend.
const HINT = "Arrow keys step through the operations, space plays, + and - zoom, "
  + "shift and arrows pan, 0 shows all.";

function make(tag, name, parent, text, attributes = {}) {
  const node = document.createElement(tag);
  if (name) node.className = "pp-" + name;
  if (text !== undefined) node.textContent = text;
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (parent) parent.append(node);
  return node;
}

// Show a tooltip beside the pointer, and inside the picture where it has room there.
function tell(tip, root, event, lines) {
  tip.hidden = !lines;
  if (!lines) return;
  tip.textContent = lines.join("\n");
  tip.style.left = 0;  // as wide as it wants to be
  const box = root.getBoundingClientRect(), { offsetWidth: wide, offsetHeight: tall } = tip;
  const x = event.clientX - box.left, y = event.clientY - box.top;
  tip.style.left = Math.max(0, x + wide + 20 > box.width ? x - wide - 14 : x + 14) + "px";
  tip.style.top = (y + 16 + tall > box.height && y > tall + 12 ? y - tall - 12 : y + 16) + "px";
}

// The operation of a span as a schedule writes it: F3, F3.1, U.
function opName(d, j) {
  return LETTERS[d.kind[j]] + (d.micro[j] < 0 ? "" : d.micro[j])
    + (d.chunk[j] ? "." + d.chunk[j] : "");
}

// What a span is, when it ran and what it waited for, as lines of text.
function describe(chart, i) {
  const { d } = chart, { meta } = d, lane = d.lane[i], line = d.line(lane);
  const [replica, rank] = meta.rows[Math.floor(lane / d.of)], kind = d.kind[i];
  const name = (j) => opName(d, j);
  const rankOf = (j) => meta.rows[Math.floor(d.lane[j] / d.of)][1];
  const of = (j) => `${name(j)} of ${rankOf(j) === rank ? "this rank" : "rank " + rankOf(j)}`;
  const many = !meta.groups && meta.rows[meta.rows.length - 1][0];
  const where = `rank ${rank}` + (many ? `, replica ${replica}` : "");
  const lines = [`${name(i)}: ${KIND_WORDS[kind]}`
    + (d.micro[i] < 0 ? "" : `, micro-batch ${d.micro[i]}`)
    + (meta.chunks > 1 && kind < 3 ? `, chunk ${d.chunk[i]}` : ""),
  `${where} (${line.label})`,
  `from ${chart.words(d.start[i])} to ${chart.words(d.end[i])}, `
    + `lasts ${chart.words(d.end[i] - d.start[i])}`];
  const j = d.needs[i];
  if (kind === WAIT) {
    if (j >= 0) lines.push(`for the input of ${name(j)}`
      + (d.needs[j] >= 0 ? ` from rank ${rankOf(d.needs[j])}` : ""));
  } else if (kind < SOLID) {
    const waited = d.wait[i] > 1e-6 * d.mean ? `waited ${chart.words(d.wait[i])} for ` : "";
    if (waited) lines.push(waited + (j >= 0 ? of(j) : "its message"));
    else if (j >= 0) lines.push(`needs ${of(j)}: no wait`);
    const twin = d.twin[i];
    if (twin >= 0) {
      const late = d.start[i] - d.start[twin], other = meta.lines[d.lane[twin] % d.of].name;
      lines.push(Math.abs(late) < 1e-9 * d.total ? `starts as in ${other}`
        : `starts ${chart.words(Math.abs(late))} ${late > 0 ? "later" : "earlier"} than ${other}`);
    }
  }
  return lines;
}

function describeIdle(chart, { lane, time }) {
  const { d } = chart, [, rank] = d.meta.rows[Math.floor(lane / d.of)];
  const line = d.line(lane), high = d.first[lane + 1];
  if (!line.windows.some(([a, b]) => time >= a && time <= b)) return null;
  let next = lower(d.start, time, d.first[lane], high);
  while (next < high && d.kind[next] >= SOLID) next++;
  const lines = [`rank ${rank} is idle (${line.label})`];
  const inside = next < high && line.windows.some(([a, b]) => time >= a && d.end[next] <= b);
  if (!inside) {
    lines.push(d.meta.notes ? `it ${d.meta.notes[lane]}` : "no more work for it in this step");
  }
  else {
    const op = opName(d, next);
    const j = d.needs[next];
    lines.push(`until ${op} starts at ${chart.words(d.start[next])}`);
    if (d.wait[next] > 0 && j >= 0) {
      lines.push(`which needs ${op} of rank ${d.meta.rows[Math.floor(d.lane[j] / d.of)][1]}`);
    }
  }
  return lines;
}

function header(head, meta) {
  head.replaceChildren();
  if (meta.groups) return;
  meta.lines.forEach((line, t) => {
    const box = make("div", "one" + (t === meta.lines.length - 1 ? " pp-main" : ""), head);
    const big = make("div", "big", box);
    make("b", "", big, line.bubble);
    make("span", "", big, line.caption || "bubble: idle / total");
    const more = make("div", "more", box);
    if (!line.caption) make("div", "step", more, `step ${line.step}`);
    const label = make("div", "label", more);
    make("i", line.outlined ? "outlined" : "filled", label);
    label.append(line.label);
    if (line.hardware) make("div", "soft", more, line.hardware);
  });
  const fact = (value, text) => {
    const box = make("div", "fact", head);
    make("b", "", box, value);
    make("span", "", box, text);
  };
  if (meta.ratio) {
    const [one, other] = meta.lines;
    fact(meta.ratio, `the step, ${other.name} / ${one.name}`);
  }
  for (const [value, text] of meta.facts || []) fact(value, text);
}

function legend(box, meta) {
  box.replaceChildren();
  const item = (swatch, text, colour, letter) => {
    const node = make("span", "key", box);
    const mark = make("i", swatch, node, letter);
    if (colour) mark.style.setProperty("--pp-c", colour);
    mark.style.setProperty("--pp-d", meta.work.B);
    node.append(text);
  };
  const whole = meta.whole || (meta.split ? "backward (input gradient only)" : "backward (whole)");
  const text = { F: "forward", B: whole, W: "weight gradient", U: "optimizer step" };
  for (const k of "FBWU") if (meta.kinds.includes(k)) item("work", text[k], meta.work[k], k);
  if (meta.chunks > 1) item("light", "lighter: later chunk of the rank", meta.work.F);
  item("idle", "idle");
  item("wait", "waiting for F or B to arrive", meta.work.F);
  const thin = { S: "sending", G: "gradient reduction, waiting for all", L: "loading" };
  const others = [..."SGL"].filter((k) => meta.kinds.includes(k)).map((k) => thin[k]);
  if (others.length) item("thin", others.join(", "));
  const styles = new Set(meta.lines.map((line) => line.outlined));
  if (styles.has(true)) item("outlined", "outlined: simulated");
  if (styles.has(false)) item("filled", "filled: measured");
  if (meta.lines.length > 1) item("apart", "shaded: where the two differ");
}
