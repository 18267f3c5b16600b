// Sweeps over the number of micro-batches: three panels on one axis, drawn as SVG. Everything that
// is printed comes from Python (see sweep_panels.py); here it only gets its place.
const SVG = "http://www.w3.org/2000/svg";
const SWEEP_HINT = "Arrow keys walk through the numbers of micro-batches.";

function sweep(model, root) {
  root.classList.add("pplab", "pp-sweep");
  const head = make("div", "head", root);
  const host = make("div", "panels", root, undefined, { tabindex: 0, role: "group",
    "aria-label": "Sweep. " + SWEEP_HINT, "data-lm-suppress-shortcuts": "true" });
  const keys = make("div", "legend", root), missing = make("div", "wrong", root);
  const says = make("div", "live", root, SWEEP_HINT, { role: "status", "aria-live": "polite" });
  const going = make("div", "going", root, "", { role: "status" });
  const details = make("details", "ops", root);
  make("summary", "", details, "The numbers as a table");
  const tables = make("div", "numbers", details);
  let at = -1, frame = 0, marks = [];

  const node = (parent, tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const look = (element, one) => {
    element.style.setProperty("--pp-light", one.colour);
    element.style.setProperty("--pp-dark", one.dark);
  };
  const mark = (svg, name, x, y, r, cls) => {
    const points = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
      diamond: [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]],
      triangle: [[0, -1.25], [1.25, 1], [-1.25, 1]] }[name];
    if (!points) return node(svg, "circle", { cx: x, cy: y, r, class: cls });
    const path = points.map(([a, b]) => `${x + a * r * 0.9},${y + b * r * 0.9}`).join(" ");
    return node(svg, "polygon", { points: path, class: cls });
  };

  const panel = (meta, number, wide, tall) => {
    const what = meta.panels[number], large = number === 0;
    const left = 54, right = 14, top = large ? 46 : 24, foot = 34;
    const svg = node(host, "svg", { width: wide, height: tall, role: "img",
      "aria-label": what.title, class: large ? "pp-large" : "pp-small" });
    const [low, high] = meta.x, inside = wide - left - right, height = tall - top - foot;
    const x = (value) => left + 8 + (value - low) / (high - low) * (inside - 16);
    const y = (value) => top + height * (1 - value);
    node(svg, "text", { x: 2, y: 13, class: "pp-title" }, what.title);
    for (const [value, label] of what.ticks) {
      node(svg, "line", { x1: left, x2: wide - right, y1: y(value), y2: y(value),
        class: "pp-grid" });
      node(svg, "text", { x: left - 6, y: y(value) + 4, class: "pp-tick pp-end" }, label);
    }
    for (const [value, label] of meta.xticks) {
      node(svg, "text", { x: x(value), y: top + height + 15, class: "pp-tick pp-mid" }, label);
    }
    node(svg, "text", { x: wide - right, y: tall - 4, class: "pp-tick pp-end" },
      "micro-batches M (GAS)");
    if (large) {
      for (const [value, label] of meta.rules) {
        node(svg, "line", { x1: x(value), x2: x(value), y1: top - 4, y2: top + height,
          class: "pp-rule" });
        node(svg, "text", { x: x(value), y: top - 8, class: "pp-tick pp-mid" }, label);
      }
      if (meta.knee) {
        const [value, label] = meta.knee;
        node(svg, "line", { x1: x(value), x2: x(value), y1: top, y2: top + height,
          class: "pp-knee" });
        node(svg, "text", { x: x(value) + 5, y: top + height - 7, class: "pp-kneeword" }, label);
      }
    }
    if (what.level) {
      const [value, label, kind] = what.level;
      node(svg, "line", { x1: left, x2: wide - right, y1: y(value), y2: y(value),
        class: "pp-" + kind });
      node(svg, "text", { x: left + 4, y: y(value) - 4, class: `pp-word pp-${kind}word` }, label);
    }
    meta.series.forEach((one, s) => {
      const group = node(svg, "g", { class: "pp-series" });
      look(group, one);
      const line = what.lines[s].map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
      if (line) node(group, "polyline", { points: line, "stroke-dasharray": one.dash || "none" });
      for (const [a, b, over] of what.dots[s]) {
        mark(group, one.mark, x(a), y(b), large ? 5.5 : 4.2, over ? "pp-open" : "pp-dot");
      }
    });
    if (large && meta.best) {
      const [a, b, label] = meta.best;
      node(svg, "circle", { cx: x(a), cy: y(b), r: 10, class: "pp-best" });
      node(svg, "text", { x: x(a), y: y(b) + 27, class: "pp-kneeword pp-mid" }, label);
    }
    const cursor = node(svg, "line", { y1: top, y2: top + height, class: "pp-cursor" });
    const place = (value) => {
      cursor.style.display = value === null ? "none" : "";
      if (value !== null) { cursor.setAttribute("x1", x(value)); cursor.setAttribute("x2", x(value)); }
    };
    const nearest = (px) => {
      let best = 0;
      meta.counts.forEach(([value], i) => {
        if (Math.abs(x(value) - px) < Math.abs(x(meta.counts[best][0]) - px)) best = i;
      });
      return best;
    };
    svg.onpointermove = (event) => go(nearest(event.offsetX));
    place(null);
    return { svg, place };
  };

  const go = (index) => {
    const { counts, says: words } = model.get("meta");
    at = Math.max(0, Math.min(counts.length - 1, index));
    for (const one of marks) one.place(counts[at][0]);
    const text = words[counts[at][1]];
    if (says.textContent !== text) says.textContent = text;
  };

  const paint = () => {
    frame = 0;
    const meta = model.get("meta"), wide = host.clientWidth;
    if (!root.isConnected || !wide) return;
    const beside = wide >= 620, right = beside ? Math.floor(wide * 0.42) : wide;
    const left = beside ? wide - right : wide;
    host.classList.toggle("pp-beside", beside);
    host.replaceChildren();
    const column = make("div", "", host);
    marks = [panel(meta, 0, left, beside ? 356 : 270)];
    column.append(marks[0].svg);
    const other = make("div", "", host);
    for (const number of [1, 2]) {
      marks.push(panel(meta, number, right, 178));
      other.append(marks[number].svg);
    }
    if (at >= 0) go(at);
    window.__pplab_painted = { rev: model.get("rev"), t: performance.now() };
  };
  const draw = () => { if (!frame) frame = requestAnimationFrame(paint); };

  const refresh = () => {
    const meta = model.get("meta");
    head.replaceChildren();
    meta.facts.forEach(([value, text], i) => {
      const box = make("div", i ? "fact" : "big", make("div", i ? "" : "one pp-main", head));
      make("b", "", box, value);
      make("span", "", box, text);
    });
    const box = make("div", "more", head);
    make("div", "step", box, meta.title[0]);
    make("div", "soft", box, meta.title[1]);
    keys.replaceChildren();
    meta.series.forEach((one) => {
      const key = make("span", "key", keys), svg = node(key, "svg", { width: 34, height: 14 });
      look(svg, one);
      svg.classList.add("pp-series");
      node(svg, "polyline", { points: "1,7 33,7", "stroke-dasharray": one.dash || "none" });
      mark(svg, one.mark, 17, 7, 4.2, "pp-dot");
      key.append(one.name);
    });
    for (const [, text] of meta.legend) make("span", "key", keys, text);
    missing.textContent = meta.missing;
    missing.hidden = !meta.missing;
    tables.replaceChildren();
    for (const [name, rows] of meta.tables) {
      const table = make("table", "", tables);
      make("caption", "", table, name);
      rows.forEach((cells, i) => {
        const row = make("tr", "", table);
        for (const text of cells) make(i ? "td" : "th", "", row, text, i ? {} : { scope: "col" });
      });
    }
    paint();
    root.dataset.rev = model.get("rev");
  };
  const status = () => {
    going.textContent = model.get("status");
    going.hidden = !going.textContent;
  };
  host.onkeydown = (event) => {
    const { counts } = model.get("meta"), last = counts.length - 1;
    const next = { ArrowLeft: at < 0 ? last : at - 1, ArrowRight: at + 1, Home: 0, End: last,
      ArrowDown: at < 0 ? last : at - 1, ArrowUp: at + 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    go(next);
  };
  refresh();
  status();
  const seen = new ResizeObserver(draw);
  seen.observe(host);
  model.on("change:rev", refresh);
  model.on("change:status", status);
  return {
    close: () => {
      seen.disconnect();
      cancelAnimationFrame(frame);
      model.off("change:rev", refresh);
      model.off("change:status", status);
    },
  };
}
