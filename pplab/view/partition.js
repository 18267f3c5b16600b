// Cuts of one model beside each other: what stands around the picture, and the way to the kernel.
const GRIP_HINT = "Drag a boundary, or focus it and press the arrow keys (shift: ten layers, Home and "
  + "End: as far as it goes).";

function cuts(model, root) {
  root.classList.add("pplab", "pp-partition");
  const about = model.get("about"), layers = unpackLayers(about, model.get("spans"));
  const sums = ({ problem, bounds }) => sumsOf(layers, problem, bounds);
  const fixed = about.rows.map((row) => ({ ...row, problem: about.problems[row.problem] }));
  for (const row of fixed) Object.assign(row, { sums: sums(row), note: `step ${row.step}` });
  const best = about.best && sums({ ...about.best, problem: about.problems[about.best.problem] });
  const own = { name: "yours", own: true };
  let base = 0, ask, frame = 0, hidden = 0, paints = 0, told = "";

  const head = make("div", "head", root), show = headline(head, about);
  const misfit = make("div", "warn", root, undefined, { role: "status" });
  const take = (bounds, from) => {
    base = from;
    own.problem = fixed[from].problem;
    own.bounds = [...bounds];
    own.sums = sums(own);
    draw();
  };
  const form = controls(model, root, "Where to start from", [], {
    build: (box, asks) => {
      ask = asks;
      make("span", "soft", box, "Start from:");
      fixed.forEach((row, k) => {
        make("button", "", box, row.name, { type: "button", "aria-label": `Start from ${row.name}`,
          "data-lm-suppress-shortcuts": "true" }).onclick = () => {
          take(row.bounds, k);
          ask();
          settle();
        };
      });
    },
    read: () => ({ bounds: own.bounds, base }),
    show: (params) => take(params.bounds, params.base),
  });
  const host = make("div", "host", root), canvas = make("canvas", "", host, undefined,
    { role: "img" });
  const strips = new Strips(canvas, root, about, layers);
  const piece = (problem) => (s) => (problem.chunks > 1
    ? `chunk ${problem.chunk[s]} of rank ${problem.rank[s]}` : `stage ${problem.rank[s]}`);
  const handles = grips(host, {
    line: () => own, layers, strips, piece, name: (i) => strips.layer(i),
    time: (t) => timeWords(t, about.unit),
    message: (cut) => (fresh() ? model.get("meta").messages[cut - 1] : ""),
    begin: () => { strips.held = true; tip.hidden = true; },
    move: (cut, to) => {
      take(own.bounds.map((b, k) => (k === cut ? to : b)), base);
      ask();
    },
    settle: () => settle(),
  });
  const live = make("div", "live", root, GRIP_HINT, { role: "status", "aria-live": "polite" });
  const ranks = make("div", "board", root), list = board(ranks, about);
  make("div", "soft pp-setting", root, `${about.setting} ${about.key}`);
  if (about.why) make("div", "warn", root, about.why);
  const tip = make("div", "tip", root);
  tip.hidden = true;

  // Whether the kernel has answered for the cut that is shown.
  const fresh = () => {
    const { bounds } = model.get("meta"), params = model.get("params");
    return params.base === base && bounds.every((b, k) => b === own.bounds[k]);
  };
  const say = () => {
    const meta = model.get("meta"), { sums: s } = own, time = timeWords(s.most, about.unit);
    let text = `Cut at ${own.bounds.slice(1, -1).join(", ") || "no place"}: the largest `
      + `${about.piece} is ${s.slowest} with ${time}, ${percentWords(s.imbalance)} above the mean.`;
    if (fresh()) {
      text += ` Step ${meta.step}, ${meta.bubble} idle`;
      if (meta.lost && about.best) text += `, ${meta.lost} against ${about.best.name}`;
      text += ".";
    }
    if (text !== told) live.textContent = told = text;
  };
  // A drag is over: tell the kernel at once, whatever it still works on, so that the next cell
  // finds this cut.
  const settle = () => {
    strips.held = false;
    if (!fresh()) model.send({ settled: own.bounds, base });
    say();
    draw();
  };

  function draw() {
    if (!frame) frame = requestAnimationFrame(() => paint());
  }
  const paint = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (!root.isConnected) return;
    // JupyterLab hides the page for a moment while it changes themes, and no observer tells.
    if (host.clientWidth) hidden = 0;
    else if (hidden++ < 20) return setTimeout(draw, 100);
    else return;
    const meta = model.get("meta"), now = fresh();
    own.note = now ? `step ${meta.step}` : "";
    strips.set([own, ...fixed]);
    strips.paint();
    handles.place();
    show(own.sums, best, meta, now);
    list(own.sums, own.problem, own.bounds, best);
    misfit.textContent = own.sums.over.length ? own.sums.over.map((r) => `Does not fit: `
      + `${about.piece} ${r} needs ${byteWords(own.sums.memory[r])} and has `
      + `${byteWords(own.problem.caps[r])}.`).join(" ")
      : own.sums.apart ? "Tied layers lie on different ranks." : "";
    misfit.hidden = !misfit.textContent;
    // For measuring: the frame is over when a message posted while it was prepared arrives.
    const done = { rev: model.get("rev"), paints: ++paints, bounds: own.bounds, fresh: now };
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      window.__pplab_painted = { ...done, t: performance.now() };
      channel.port1.close();
    };
    channel.port2.postMessage(0);
  };

  // -- the pointer ------------------------------------------------------------------------------

  canvas.onpointermove = (e) => {
    const box = canvas.getBoundingClientRect();
    const spot = strips.hit(e.clientX - box.left, e.clientY - box.top);
    if (!spot || handles.dragging()) return tell(tip);
    const { line, i } = spot, s = sliceOf(line.bounds, i), { problem } = line;
    const speed = problem.speed[s], part = (column) => column[i + 1] - column[i];
    const time = (t) => timeWords(t / speed, about.unit);
    const full = part(layers.time), forward = part(layers.forward);
    const lines = [`${strips.layer(i)} (layer ${i}): ${time(full)}`,
      `forward ${time(forward)}, backward ${time(full - forward)}`
        + (speed !== 1 ? ` on a device of speed ${speed}` : "")];
    if (about.hasMemory) lines.push(`${byteWords(part(layers.still[problem.number]))} stay, `
      + `${byteWords(part(layers.kept))} a micro-batch in flight`);
    const last = line.bounds[s + 1] - 1;
    lines.push(`${line.name}, ${piece(problem)(s)}: layers ${line.bounds[s]} to ${last}, `
      + timeWords(line.sums.loads[s], about.unit));
    if (line.measured) lines.push(`measured ${timeWords(line.measured[s], about.unit)}`
      + (line.excess[s] ? ` (${line.excess[s]})` : ""));
    if (line.warnings?.length) lines.push(...line.warnings);
    tell(tip, root, e, lines);
  };
  canvas.onpointerleave = () => { tip.hidden = true; };

  // -- what changes around it: answers, size and theme --------------------------------------------

  const answered = () => form.answered(() => {
    canvas.setAttribute("aria-label", model.get("meta").text);
    if (!handles.dragging() && told) say();
    draw();
  });
  canvas.setAttribute("aria-label", model.get("meta").text);
  model.on("change:rev", answered);
  const unwatch = watchLooks(host, draw, () => { strips.stale = true; draw(); });
  draw();
  return () => {
    form.close();
    model.off("change:rev", answered);
    cancelAnimationFrame(frame);
    unwatch();
  };
}
