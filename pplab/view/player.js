// The player: one line a rank, which says what it runs or waits for at the moment under the
// cursor, what it holds in memory and what comes next. moments.py says the same in Python.
const OTHER = { S: "sends", R: "waits for a message", G: "reduces gradients", L: "loads data" };
const LISTED = 8;

// Everything about one lane at a time; operations are numbers of spans, -1 for none.
function moment(d, lane, time) {
  const at = time + 1e-9 * d.total, found = { run: -1, other: -1, next: -1, held: [], late: [] };
  const held = new Map(), late = new Map(), split = new Set();
  const name = (i) => d.micro[i] * 256 + d.chunk[i];
  for (let i = d.first[lane]; i < d.first[lane + 1]; i++) if (d.kind[i] === 2) split.add(name(i));
  for (let i = d.first[lane]; i < d.first[lane + 1]; i++) {
    const kind = d.kind[i], over = d.end[i] <= at, key = name(i);
    if (d.start[i] > at) {
      if (kind < SOLID && found.next < 0) found.next = i;
      continue;
    }
    if (!over) found[kind < SOLID ? "run" : "other"] = i;
    if (kind === 0) held.set(key, i);
    else if (kind === 1 && over && split.has(key)) late.set(key, i);
    else if (kind < 3 && over && kind) { held.delete(key); late.delete(key); }
  }
  found.held = [...held.values()];
  found.late = [...late.values()];
  found.waits = -1;  // the span that waits for its input
  const { next, other } = found;
  if (found.run < 0 && other >= 0) {
    if (d.kind[other] === WAIT) found.waits = d.needs[other];
  } else if (found.run < 0 && next >= 0 && d.wait[next] > 0 && d.needs[next] >= 0
    && at >= d.start[next] - d.wait[next] * 1.000001) found.waits = next;
  return found;
}

function doing(d, found, time) {
  const { run, other, waits, next } = found, at = time + 1e-9 * d.total;
  if (run >= 0) return `runs ${opName(d, run)}`;
  if (waits >= 0) {
    const j = d.needs[waits];
    if (j < 0) return `waits for ${opName(d, waits)}`;
    const state = d.end[j] <= at ? "on its way" : d.start[j] <= at ? "running" : "not started";
    return `waits for ${opName(d, j)} of rank ${d.meta.rows[d.lane[j]][1]} (${state})`;
  }
  if (other >= 0) return OTHER[LETTERS[d.kind[other]]];
  return next >= 0 ? "idle" : "done";
}

// Micro-batches one by one; many of them in runs, as 0–15. `late` breaks a run.
function runs(d, spans, late = new Set()) {
  const found = [];
  for (const i of spans) {
    const last = found[found.length - 1], j = last && last[last.length - 1];
    if (spans.length > LISTED && last && late.has(i) === late.has(j)
      && d.micro[i] === d.micro[j] + 1 && d.chunk[i] === d.chunk[j]) last.push(i);
    else found.push([i]);
  }
  return found;
}
const runName = (d, run) => run.filter((_, k) => k === 0 || k === run.length - 1)
  .map((i) => opName(d, i).slice(1)).join("–");
const listed = (d, spans) => runs(d, spans).map((run) => runName(d, run)).join(" ");

function holding(d, { held, late }) {
  let text = `${held.length} activation${held.length === 1 ? "" : "s"}`;
  if (held.length) text += ": " + listed(d, held);
  return late.length ? `${text}; W pending: ${listed(d, late)}` : text;
}

// The table under the picture. `watch` is called with every moment shown and gives its words.
function player(model, root) {
  const box = make("div", "now"), clock = make("p", "clock", box);
  const table = make("table", "", box), top = make("tr", "", make("thead", "", table));
  const split = model.get("meta").split ? " (dashed: only W is left)" : "";
  for (const text of ["Rank", "Now", "In memory: activations" + split, "Next"]) {
    make("th", "", top, text, { scope: "col" });
  }
  const body = make("tbody", "", table);
  let shown = "", lines = [];

  const mark = (cell, chart, kind, text) => {
    const node = make("i", "work", cell, text, { "aria-hidden": "true" });
    node.style.setProperty("--pp-c", chart.d.meta.work[LETTERS[kind]]);
  };
  const chips = (cell, d, found) => {
    make("b", "", cell, found.held.length);
    const names = new Set(found.late.map((i) => d.micro[i] * 256 + d.chunk[i]));
    const late = new Set(found.held.filter((i) => names.has(d.micro[i] * 256 + d.chunk[i])));
    for (const run of runs(d, found.held, late)) {
      const only = late.has(run[0]);
      cell.append(" ");
      make("span", only ? "chip pp-late" : "chip", cell, (only ? "W" : "") + runName(d, run));
    }
  };
  const watch = (chart, time) => {
    const { d } = chart, t = time === null ? d.total * 2 : time;
    const found = d.meta.rows.map((_, lane) => moment(d, lane, t));
    const says = found.map((one) => [doing(d, one, t), holding(d, one),
      one.next < 0 ? "nothing" : opName(d, one.next)]);
    clock.textContent = time === null ? "After the step:" : `At ${chart.words(time)}:`;
    lines = says.map(([now, held, next], r) =>
      `rank ${d.meta.rows[r][1]} ${now}; holds ${held}; next ${next}`);
    const all = lines.join("\n");
    if (all === shown) return lines;
    shown = all;
    body.replaceChildren(...found.map((one, r) => {
      const [replica, rank] = d.meta.rows[r], row = make("tr");
      const many = d.meta.rows[d.meta.rows.length - 1][0] > 0;
      make("th", "", row, (many ? `replica ${replica}, ` : "") + `rank ${rank}`, { scope: "row" });
      const now = make("td", "", row), held = make("td", "", row), next = make("td", "", row);
      if (one.run >= 0) mark(now, chart, d.kind[one.run], LETTERS[d.kind[one.run]]);
      else make("i", one.waits >= 0 ? "wait" : "idle", now, "", { "aria-hidden": "true" })
        .style.setProperty("--pp-c", one.waits < 0 ? "" : d.meta.work[LETTERS[d.kind[one.waits]]]);
      now.append(says[r][0]);
      chips(held, d, one);
      next.textContent = says[r][2];
      return row;
    }));
    return lines;
  };
  const view = mount(model, root, { watch, below: box });
  const begin = () => {
    const { begin, at } = model.get("meta");
    if (at !== null) view.pauseAt(at); else view.begin(begin);
  };
  const refresh = () => { shown = ""; view.refresh(); begin(); };
  begin();
  return { refresh, close: view.close };
}
