// What stands around the picture: buttons, tooltip, keyboard. `mount` fills an element and returns
// { refresh, close, begin }. `Kind` is the picture's class; `watch(chart, time)` hears of every
// moment the reader goes to (null: the whole step) and returns sentences to be read out; `below`
// is put under the picture.
function mount(model, root, { Kind = Picture, watch, below } = {}) {
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
  if (below) root.append(below);
  const wrong = make("div", "wrong", root, undefined, { role: "alert" });
  const tip = make("div", "tip", root);
  tip.hidden = true;
  const keys = make("div", "legend", root);
  const ops = make("details", "ops", root);
  make("summary", "", ops, "The operations of each rank as text");
  const list = make("pre", "", ops);
  const live = make("div", "live", root, HINT, { role: "status", "aria-live": "polite" });
  const chart = new Kind(canvas, root);
  chart.cursor = !!watch;
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
  const say = (text, heard = []) => {
    live.textContent = text;
    if (heard.length) make("span", "heard", live, " " + heard.join(". ") + ".");
  };
  const look = (time) => (watch && chart.d ? watch(chart, time) : []);

  const refresh = () => {
    const meta = model.get("meta"), rev = model.get("rev");
    stop();
    const numbered = (meta.problems || []).some((problem) => problem[0] === 1);
    wrong.replaceChildren(...(meta.problems || []).map((problem) => {
      const [number, text] = Array.isArray(problem) ? problem : [null, problem];
      const line = make("p", number || !numbered ? "" : "indent");
      if (number) make("b", "badge", line, number);
      line.append(text);
      return line;
    }));
    wrong.hidden = !wrong.childNodes.length;
    host.hidden = bar.hidden = keys.hidden = !meta.lines.length;
    header(head, meta);
    if (meta.lines.length) legend(keys, meta);
    ops.hidden = !meta.ops;
    list.textContent = meta.ops || "";
    canvas.setAttribute("aria-label", meta.text);
    tip.hidden = true;
    say(meta.lines.length ? HINT : "");
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
    look(null);
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
    say(`${Math.max(0, place) + 1} of ${order.length}. ` + describe(chart, i).join("; "),
      look(chart.d.start[i]));
    draw();
  };
  const pauseAt = (time) => {
    stop();
    chart.at = -1;
    chart.now = time;
    say(`paused at ${chart.words(time)}`, look(time));
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
    if (playing) return pauseAt(chart.now);
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
      look(chart.now);
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
    tell(tip, root, e, lines);
  };
  let grip = null, still = false;
  canvas.addEventListener("pointermove", (e) => {
    if (grip === null) return point(e);
    if (e.clientX !== grip) still = false;
    chart.pan((grip - e.clientX) / chart.span);
    grip = e.clientX;
    draw();
  });
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button) return;
    grip = e.clientX;
    still = true;
    tip.hidden = true;
    canvas.setPointerCapture(e.pointerId);
  });
  const release = () => { grip = null; };
  canvas.addEventListener("pointerup", (e) => {
    release();
    if (still && watch) pauseAt(clamp(chart.time(place(e)[0]), 0, chart.d.total));
  });
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

  const unwatch = watchLooks(host, draw, () => { chart.stale = true; draw(); });
  refresh();
  const begin = (span) => { chart.steps(); go(chart.rank[span]); };
  return { refresh, begin, pauseAt, close: () => {
    stop();
    cancelAnimationFrame(frame);
    unwatch();
  } };
}
