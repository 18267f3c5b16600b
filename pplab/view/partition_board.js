// The numbers of one's own cut: large ones beside those of the best cut, and a table of its ranks.

// Returns show(own, best, meta, fresh): sums of both cuts, what the kernel says, and whether it
// says it of this very cut.
function headline(head, about) {
  const fact = (caption, name = "fact") => {
    const box = make("div", name, head), value = make("b", "", box);
    const note = make("span", "", box, caption), beside = make("span", "soft", box);
    return { box, value, note, beside };
  };
  const main = make("div", "one pp-main", head), big = make("div", "big", main);
  const bubble = { box: big, value: make("b", "", big), note: make("span", "", big,
    "bubble: idle / total"), beside: make("span", "soft", big) };
  const step = fact("predicted step"), most = fact(""), level = fact("above the mean");
  const memory = about.hasMemory ? fact("") : null;
  const set = (one, value, note, beside) => {
    one.value.textContent = value;
    if (note) one.note.textContent = note;
    one.beside.textContent = beside;
  };
  return (own, best, meta, fresh) => {
    const ref = about.best, time = (t) => timeWords(t, about.unit), { piece } = about;
    const beside = (text, more) => {
      if (!ref) return "";
      return more ? `${more} (${ref.name}: ${text})` : `${ref.name}: ${text}`;
    };
    const over = (a, b) => (b ? signedWords(a / b - 1) : "");
    set(bubble, meta.bubble, "", beside(ref?.bubble));
    set(step, meta.step, "", beside(ref?.step, fresh ? meta.lost : ""));
    for (const one of [bubble, step]) {
      one.box.classList.toggle("pp-stale", !fresh);
      one.box.setAttribute("aria-busy", String(!fresh));
    }
    set(most, time(own.most), `largest ${piece} (${piece} ${own.slowest})`,
      best ? beside(time(best.most), over(own.most, best.most)) : "");
    set(level, percentWords(own.imbalance), `largest ${piece} above the mean`,
      best ? beside(percentWords(best.imbalance)) : "");
    if (memory) {
      set(memory, byteWords(own.memory[own.fullest]), `most memory (${piece} ${own.fullest})`,
        best ? beside(byteWords(best.memory[best.fullest])) : "");
      memory.box.classList.toggle("pp-over", !own.fits);
    }
  };
}

// A row a rank: its layers, its time and its memory, with those of the best cut as marks.
function board(box, about) {
  const { piece } = about, table = make("table", "", box), body = make("tbody", "");
  const top = make("tr", "", make("thead", "", table)), best = about.best?.name;
  const mark = best ? `; | ${best}` : "";
  const titles = [piece[0].toUpperCase() + piece.slice(1), "Layers",
    `Time of a micro-batch, F + B${mark}`];
  if (about.hasMemory) titles.push(`Memory at its peak${mark}`);
  titles.forEach((text) => make("th", "", top, text, { scope: "col" }));
  table.append(body);
  let rows = [];
  const cell = (row) => {
    const td = make("td", "", row), track = make("span", "track", td);
    return { bar: make("i", "", track), cap: make("em", "", track), mark: make("u", "", track),
      text: make("b", "", td), note: make("span", "warn", td) };
  };
  const build = (ranks) => {
    body.replaceChildren();
    rows = Array.from({ length: ranks }, () => {
      const row = make("tr", "", body), head = make("th", "", row, undefined, { scope: "row" });
      const swatch = make("i", "swatch", head), name = make("span", "", head);
      const layers = make("td", "", row);
      return { swatch, name, layers, time: cell(row), memory: about.hasMemory ? cell(row) : null };
    });
  };
  const at = (node, share) => {
    node.hidden = share === null;
    if (share !== null) node.style.left = `${100 * share}%`;
  };
  return (own, problem, bounds, other) => {
    if (rows.length !== problem.ranks) build(problem.ranks);
    const longest = Math.max(own.most, other ? other.most : 0) || 1;
    const caps = problem.caps.filter((cap) => cap !== null);
    const fullest = Math.max(...own.memory, ...(other ? other.memory : []), ...caps) || 1;
    rows.forEach((row, r) => {
      const mine = problem.rank.flatMap((rank, s) => (rank === r ? [s] : []));
      const device = problem.devices[r];
      row.swatch.style.background = about.colours[r % about.colours.length];
      row.name.textContent = `${piece} ${r}${device ? ` (${device})` : ""}`;
      row.layers.textContent = mine.map((s) => {
        const [a, b] = [bounds[s], bounds[s + 1] - 1];
        return a === b ? `${a}` : `${a}–${b}`;
      }).join(", ");
      row.time.bar.style.width = `${100 * own.rankLoads[r] / longest}%`;
      row.time.bar.style.background = about.colours[r % about.colours.length];
      row.time.text.textContent = timeWords(own.rankLoads[r], about.unit);
      row.time.note.textContent = "";
      row.time.text.className = r === own.slowest ? "pp-most" : "";
      at(row.time.cap, null);
      at(row.time.mark, other && r < other.rankLoads.length ? other.rankLoads[r] / longest : null);
      if (!row.memory) return;
      const over = own.over.includes(r), cap = problem.caps[r];
      row.memory.bar.className = over ? "pp-over" : "";
      row.memory.bar.style.width = `${100 * own.memory[r] / fullest}%`;
      row.memory.text.textContent = byteWords(own.memory[r]);
      row.memory.note.textContent = over ? `over its ${byteWords(cap)}` : "";
      at(row.memory.cap, cap === null ? null : cap / fullest);
      at(row.memory.mark, other && r < other.memory.length ? other.memory[r] / fullest : null);
    });
  };
}
