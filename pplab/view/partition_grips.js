// The handles between the slices of one's own cut: dragged by mouse or finger, moved by arrow keys.
// They are elements over the canvas that stay while it is painted again, so the focus stays too.
// `own` is { line(), layers, strips, name(i), move(cut, to), begin(), settle() }.
function grips(host, own) {
  const box = make("div", "grips", host);
  let handles = [], drag = null;

  const limits = (cut) => {
    const { bounds } = own.line();
    return [bounds[cut - 1] + 1, bounds[cut + 1] - 1];
  };
  const move = (cut, to) => {
    const [low, high] = limits(cut), at = clamp(to, low, high);
    if (at !== own.line().bounds[cut]) own.move(cut, at);
  };
  // The layer whose left end lies nearest to a place of the canvas.
  const nearest = (cut, px) => {
    const { bounds, problem, x } = own.line(), { time } = own.layers, [low, high] = limits(cut);
    const a = bounds[cut - 1], per = own.strips.longest / own.strips.span;
    const wanted = time[a] + (px - x[a]) * per * problem.speed[cut - 1];
    const after = clamp(lower(time, wanted, low, high), low, high);
    return after > low && wanted - time[after - 1] < time[after] - wanted ? after - 1 : after;
  };
  const where = (e) => e.clientX - box.getBoundingClientRect().left;

  const handle = (cut) => {
    const node = make("div", "grip", box, undefined, { role: "slider", tabindex: 0,
      "aria-orientation": "horizontal", "data-lm-suppress-shortcuts": "true" });
    make("i", "", node);
    node.onpointerdown = (e) => {
      if (e.button) return;
      e.preventDefault();
      node.focus();
      node.setPointerCapture(e.pointerId);
      const { x, bounds } = own.line();
      drag = { cut, off: where(e) - x[bounds[cut]] };
      own.begin();
    };
    node.onpointermove = (e) => {
      if (drag && drag.cut === cut) move(cut, nearest(cut, where(e) - drag.off));
    };
    node.onpointerup = node.onpointercancel = () => {
      if (!drag) return;
      drag = null;
      own.settle();
    };
    node.onkeydown = (e) => {
      if (e.altKey || e.metaKey || e.ctrlKey) return;
      const at = own.line().bounds[cut], [low, high] = limits(cut), far = e.shiftKey ? 10 : 1;
      const to = { ArrowRight: at + far, ArrowUp: at + far, ArrowLeft: at - far,
        ArrowDown: at - far, PageUp: at + 10, PageDown: at - 10, Home: low, End: high }[e.key];
      if (to === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      move(cut, to);
    };
    node.onkeyup = (e) => { if (e.key !== "Tab" && e.key !== "Shift") own.settle(); };
    return node;
  };

  // Put every handle where its boundary is, and say in words what lies on its two sides.
  const place = () => {
    const line = own.line(), { bounds, x, sums, problem } = line;
    if (handles.length !== bounds.length - 2) {
      box.replaceChildren();
      handles = bounds.slice(1, -1).map((_, k) => handle(k + 1));
    }
    const gaps = bounds.slice(1).map((b, s) => x[b] - x[bounds[s]]);
    handles.forEach((node, k) => {
      const cut = k + 1, at = bounds[cut], [low, high] = limits(cut), say = own.piece(problem);
      const room = clamp(Math.min(gaps[k], gaps[cut]) - 1, 7, 20);
      node.style.width = `${room}px`;
      node.classList.toggle("pp-slim", room < 12);
      node.style.left = `${x[at] - 1 - room / 2}px`;
      node.style.top = `${line.y - 15}px`;
      node.style.height = `${line.bar + 17}px`;
      const words = { "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": at,
        "aria-label": `Boundary between ${say(k)} and ${say(cut)}`,
        "aria-valuetext": `${say(cut)} begins with layer ${at}, ${own.name(at)}; `
          + `${say(k)}: ${own.time(sums.loads[k])}, ${say(cut)}: ${own.time(sums.loads[cut])}`,
        title: `${say(cut)} begins with ${own.name(at)}`
          + (own.message(cut) ? `; a message here takes ${own.message(cut)}` : "") };
      for (const key in words) node.setAttribute(key, words[key]);
    });
  };
  return { place, dragging: () => drag !== null };
}
