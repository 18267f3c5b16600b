// What stands around the picture: numbers, buttons, legend, tooltip, keyboard, words for a reader
// who does not see it. `mount` fills an element and returns { refresh, close }.
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

// What a span is, when it ran and what it waited for, as lines of text.
function describe(chart, i) {
  const { d } = chart, { meta } = d, lane = d.lane[i], line = meta.lines[lane % d.of];
  const [replica, rank] = meta.rows[Math.floor(lane / d.of)], kind = d.kind[i];
  const name = (j) => LETTERS[d.kind[j]] + (d.micro[j] < 0 ? "" : d.micro[j])
    + (d.chunk[j] ? "." + d.chunk[j] : "");
  const rankOf = (j) => meta.rows[Math.floor(d.lane[j] / d.of)][1];
  const of = (j) => `${name(j)} of ${rankOf(j) === rank ? "this rank" : "rank " + rankOf(j)}`;
  const where = `rank ${rank}` + (meta.rows[meta.rows.length - 1][0] ? `, replica ${replica}` : "");
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
  const line = d.meta.lines[lane % d.of], high = d.first[lane + 1];
  if (!line.windows.some(([a, b]) => time >= a && time <= b)) return null;
  let next = lower(d.start, time, d.first[lane], high);
  while (next < high && d.kind[next] >= SOLID) next++;
  const lines = [`rank ${rank} is idle (${line.label})`];
  const inside = next < high && line.windows.some(([a, b]) => time >= a && d.end[next] <= b);
  if (!inside) lines.push("no more work for it in this step");
  else {
    const op = LETTERS[d.kind[next]] + (d.micro[next] < 0 ? "" : d.micro[next]);
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
  meta.lines.forEach((line, t) => {
    const box = make("div", "one" + (t === meta.lines.length - 1 ? " pp-main" : ""), head);
    const big = make("div", "big", box);
    make("b", "", big, line.bubble);
    make("span", "", big, "bubble: idle / total");
    const more = make("div", "more", box);
    make("div", "step", more, `step ${line.step}`);
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
  const whole = meta.split ? "backward (input gradient only)" : "backward (whole)";
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

function mount(model, root) {
  root.classList.add("pplab");
  const head = make("div", "head", root), bar = make("div", "bar", root);
  const button = (text, label, act) => {
    const node = make("button", "", bar, text, { type: "button", "aria-label": label,
      title: label, "data-lm-suppress-shortcuts": "true" });
    node.onclick = act;
    return node;
  };
  const host = make("div", "host", root, undefined, { tabindex: 0, role: "group",
    "aria-label": "Timeline. " + HINT, "data-lm-suppress-shortcuts": "true" });
  const canvas = make("canvas", "", host, undefined, { role: "img" });
  const wrong = make("div", "wrong", root, undefined, { role: "alert" });
  const tip = make("div", "tip", root);
  tip.hidden = true;
  const keys = make("div", "legend", root);
  const live = make("div", "live", root, HINT, { role: "status", "aria-live": "polite" });
  const chart = new Chart(canvas, root);
  let frame = 0, playing = 0, hidden = 0;

  const draw = () => { if (!frame) frame = requestAnimationFrame(paint); };
  const paint = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (!chart.d || !root.isConnected) return;
    // JupyterLab hides the page for a moment while it changes themes, and no observer tells.
    if (host.clientWidth) hidden = 0;
    else if (hidden++ < 20) return setTimeout(draw, 100);
    if (host.clientWidth) chart.paint();
  };
  const say = (text) => { live.textContent = text; };

  const refresh = () => {
    const meta = model.get("meta"), rev = model.get("rev");
    stop();
    wrong.replaceChildren(...(meta.problems || []).map((text) => make("p", "", null, text)));
    wrong.hidden = !wrong.childNodes.length;
    host.hidden = bar.hidden = keys.hidden = !meta.lines.length;
    header(head, meta);
    if (meta.lines.length) legend(keys, meta);
    canvas.setAttribute("aria-label", meta.text);
    tip.hidden = true;
    say(HINT);
    if (meta.lines.length) {
      chart.c = null;
      chart.load(unpack(meta, model.get("spans")));
      if (root.isConnected) paint(); else draw();
    }
    // For measuring: the frame is over when a message posted while it was prepared arrives.
    root.dataset.rev = rev;
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        window.__pplab_painted = { rev, t: performance.now() };
        channel.port1.close();
      };
      channel.port2.postMessage(0);
    });
  };

  // -- playing and stepping ---------------------------------------------------------------------

  const stop = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    play.textContent = "Play";
    play.setAttribute("aria-label", "Play");
  };
  const all = () => {
    stop();
    chart.at = -1;
    chart.now = Infinity;
    say(HINT);
    draw();
  };
  const go = (place) => {
    const order = chart.steps();
    stop();
    if (place >= order.length) return all();
    chart.now = Infinity;
    chart.at = order[Math.max(0, place)];
    const i = chart.at, middle = (chart.d.start[i] + chart.d.end[i]) / 2;
    if (middle < chart.from || middle > chart.to) chart.pan((middle - chart.from)
      / (chart.to - chart.from) - 0.5);
    say(`${Math.max(0, place) + 1} of ${order.length}. ` + describe(chart, i).join("; "));
    draw();
  };
  const step = (by) => {
    const order = chart.steps();
    const paused = chart.now === Infinity ? -1 : order.filter((i) => chart.d.start[i] < chart.now)
      .length - 1;
    const here = chart.at >= 0 ? chart.rank[chart.at] : paused;
    if (by < 0 && here < 0) go(order.length - 1);
    else go(here + by);
  };
  const toggle = () => {
    if (playing) {
      stop();
      say(`paused at ${chart.words(chart.now)}`);
      return;
    }
    const wide = chart.to - chart.from;
    if (chart.at >= 0) chart.now = chart.d.start[chart.at];
    if (chart.now === Infinity || chart.now >= chart.to) chart.now = chart.from;
    chart.steps();
    chart.at = -1;
    play.textContent = "Pause";
    play.setAttribute("aria-label", "Pause");
    say("playing");
    let last = performance.now();
    const tick = (t) => {
      chart.now += Math.min(t - last, 100) / 9000 * wide;  // the whole view in nine seconds
      last = t;
      if (chart.now >= Math.min(chart.to, chart.d.total)) return all();
      paint();
      playing = requestAnimationFrame(tick);
    };
    playing = requestAnimationFrame(tick);
  };
  const zoom = (factor, share) => { chart.zoom(factor, share); draw(); };
  const pan = (share) => { chart.pan(share); draw(); };
  const fit = () => { chart.fit(); all(); };

  const play = button("Play", "Play", toggle);
  button("Back", "Step back", () => step(-1));
  button("Next", "Step forward", () => step(1));
  button("+", "Zoom in", () => zoom(0.6));
  button("−", "Zoom out", () => zoom(1 / 0.6));
  button("All", "Show all", fit);

  host.addEventListener("keydown", (e) => {
    if (e.altKey || e.metaKey || e.ctrlKey) return;
    const act = {
      ArrowRight: () => (e.shiftKey ? pan(0.15) : step(1)),
      ArrowLeft: () => (e.shiftKey ? pan(-0.15) : step(-1)),
      Home: () => go(0), End: () => go(chart.steps().length - 1), " ": toggle, Escape: all,
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), _: () => zoom(1 / 0.7),
      0: fit,
    }[e.key];
    if (!act) return;
    act();
    e.preventDefault();
    e.stopPropagation();
  });

  // -- the pointer ------------------------------------------------------------------------------

  const place = (e) => {
    const box = canvas.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  };
  const point = (e) => {
    const spot = chart.d && chart.hit(...place(e));
    const lines = spot && (spot.i >= 0 ? describe(chart, spot.i) : describeIdle(chart, spot));
    const i = spot ? spot.i : -1;
    if (i !== chart.hover) { chart.hover = i; draw(); }
    tip.hidden = !lines;
    if (!lines) return;
    tip.textContent = lines.join("\n");
    const box = root.getBoundingClientRect(), x = e.clientX - box.left;
    const left = x + tip.offsetWidth + 20 > box.width ? x - tip.offsetWidth - 14 : x + 14;
    tip.style.left = Math.max(0, left) + "px";
    tip.style.top = e.clientY - box.top + 16 + "px";
  };
  let grip = null;
  canvas.addEventListener("pointermove", (e) => {
    if (grip === null) return point(e);
    chart.pan((grip - e.clientX) / chart.span);
    grip = e.clientX;
    draw();
  });
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button) return;
    grip = e.clientX;
    tip.hidden = true;
    canvas.setPointerCapture(e.pointerId);
  });
  const release = () => { grip = null; };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
    if (chart.hover >= 0) { chart.hover = -1; draw(); }
  });
  host.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.shiftKey) return;
    e.preventDefault();
    const share = clamp((place(e)[0] - chart.left) / chart.span, 0, 1);
    zoom((e.deltaY || e.deltaX) > 0 ? 1 / 0.8 : 0.8, share);
  }, { passive: false });

  // -- what changes around it: size and theme -----------------------------------------------------

  const sized = new ResizeObserver(draw);
  sized.observe(host);
  const restyle = () => { chart.stale = true; draw(); };
  const themed = new MutationObserver(restyle);
  const watched = { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name",
    "data-theme", "class"] };
  themed.observe(document.body, watched);
  themed.observe(document.documentElement, watched);
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", restyle);
  refresh();
  return { refresh, close: () => {
    stop();
    cancelAnimationFrame(frame);
    sized.disconnect();
    themed.disconnect();
    system.removeEventListener("change", restyle);
  } };
}
