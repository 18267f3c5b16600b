// The schedule explorer: native sliders beside the picture. Python computes, one question at a
// time: while an answer is on its way only the latest wish is kept.
const CONTROLS = [["stages", "Stages P"], ["micro_batches", "Micro-batches M"],
  ["backward", "Backward : forward"], ["link", "Link cost (forwards)"]];

function explore(model, root) {
  root.classList.add("pplab", "pp-explorer");
  const form = make("div", "form", root, undefined, { role: "group",
    "aria-label": "Schedule and its numbers" });
  const view = make("div", "", root), inputs = {}, outputs = {};
  const quiet = { "data-lm-suppress-shortcuts": "true" };
  let waiting = false, again = false, asked = 0, timer = 0, nudges = [];

  const note = make("span", "note", null, "", { role: "status" });
  const ask = () => {
    for (const key in outputs) outputs[key].textContent = inputs[key].value;
    if (waiting) { again = true; return; }
    waiting = true;
    again = false;
    const wish = { schedule: inputs.schedule.value, seq: ++asked };
    for (const [key] of CONTROLS) wish[key] = Number(inputs[key].value);
    model.send(wish);
    // Jupyter's WebSocket keeps Nagle's algorithm on: the answer lies in the server until this
    // side acknowledges the "busy" before it, which it puts off for 40 ms unless it sends too.
    nudges = [10, 20].map((ms) => setTimeout(() => model.send({ nudge: ms }), ms));
    timer = setTimeout(() => {
      note.textContent = "No answer from the kernel: it is busy, or gone. Run the cell again.";
      waiting = false;
    }, 4000);
  };
  const params = model.get("params"), ranges = model.get("ranges");
  const row = (key, text) => {
    const label = make("label", "field", form);
    make("span", "", label, text);
    return label;
  };
  const choice = make("select", "", row("schedule", "Schedule"), undefined,
    { "aria-label": "Schedule", ...quiet });
  for (const name of model.get("choices")) make("option", "", choice, name, { value: name });
  choice.onchange = ask;
  inputs.schedule = choice;
  for (const [key, text] of CONTROLS) {
    const [min, max, step] = ranges[key], label = row(key, text);
    const input = make("input", "", label, undefined, { type: "range", min, max, step,
      name: key, "aria-label": text, ...quiet });
    outputs[key] = make("output", "", label);
    input.oninput = ask;
    inputs[key] = input;
  }
  form.append(note);
  const show = (p) => {
    for (const key in inputs) inputs[key].value = p[key];
    for (const key in outputs) outputs[key].textContent = inputs[key].value;
  };
  show(params);
  const picture = mount(model, view);
  const mark = () => { root.dataset.rev = model.get("rev"); };
  const quieten = () => [timer, ...nudges].forEach(clearTimeout);
  const answered = () => {
    quieten();
    note.textContent = "";
    const mine = waiting;
    waiting = false;
    if (again) ask(); else if (!mine || model.get("seq") === asked) show(model.get("params"));
    picture.refresh();
    mark();
  };
  mark();
  model.on("change:rev", answered);
  return () => {
    quieten();
    model.off("change:rev", answered);
    picture.close();
  };
}
