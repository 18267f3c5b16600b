// Schedules beside each other: checkboxes and sliders, a table of bars, and under it the timelines
// on one time axis.
const NUMBERS = [["stages", "Stages P"], ["micro_batches", "Micro-batches M"],
  ["forward", "Forward F"], ["backward", "Backward B + W"], ["weight", "W, part of it"],
  ["link", "Time of a message"], ["cap", "Memory cap"]];

function versus(model, root) {
  root.classList.add("pplab", "pp-versus");
  const boxes = {};
  const form = controls(model, root, "Schedules and their numbers", NUMBERS, {
    build: (box, ask) => {
      const set = make("fieldset", "choices", box);
      make("legend", "", set, "Schedules");
      for (const name of model.get("choices")) {
        const label = make("label", "", set);
        boxes[name] = make("input", "", label, undefined,
          { type: "checkbox", value: name, ...QUIET });
        boxes[name].onchange = ask;
        label.append(name);
      }
    },
    read: () => ({ schedules: Object.keys(boxes).filter((name) => boxes[name].checked) }),
    show: (params) => {
      for (const name in boxes) boxes[name].checked = params.schedules.includes(name);
    },
    says: { cap: (value) => (Number(value) ? value : "none") },
  });
  const says = make("div", "verdict", root, undefined, { role: "status" });
  const board = make("div", "board", root), picture = mount(model, make("div", "", root));

  const bar = (row, [text, share, note, over], cap) => {
    const cell = make("td", "", row), track = make("span", "track", cell);
    make("i", over ? "over" : "", track).style.width = `${100 * share}%`;
    if (cap !== null) make("em", "", track).style.left = `${100 * cap}%`;
    make("b", "", cell, text);
    if (note) cell.append(" ", make("span", over ? "warn" : "soft", null, note));
  };
  const table = () => {
    const { scores, columns, capShare, cap, verdict, setting } = model.get("meta");
    says.replaceChildren();
    make("b", "", says, verdict);
    make("span", "soft", says, setting);
    board.hidden = !scores.length;
    const table = make("table", ""), head = make("tr", "", make("thead", "", table));
    const body = make("tbody", "", table);
    make("th", "", head, "Schedule", { scope: "col" });
    columns.forEach((title, k) => {
      const cell = make("th", "", head, title + " ", { scope: "col" });
      if (k === 2 && cap) make("span", "cap", cell, `| cap ${cap}`);
    });
    for (const { name, cells, remarks } of scores) {
      const row = make("tr", "", body);
      const title = make("th", "", row, name, { scope: "row" });
      if (cells) {
        make("span", "soft", title, remarks);
        cells.forEach((cell, k) => bar(row, cell, k === 2 ? capShare : null));
      } else make("td", "warn", row, remarks, { colspan: columns.length });
    }
    board.replaceChildren(table);
  };
  table();
  const answered = () => form.answered(() => { table(); picture.refresh(); });
  model.on("change:rev", answered);
  return () => {
    form.close();
    model.off("change:rev", answered);
    picture.close();
  };
}
