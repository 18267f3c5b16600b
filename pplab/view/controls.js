// A form of native inputs beside a picture. Python computes, one question at a time: while an
// answer is on its way only the latest wish is kept.
const QUIET = { "data-lm-suppress-shortcuts": "true" };

// `sliders` are [name, words]; `own` builds what else the form has and reads and shows it:
// { build(form, ask), read(), show(params) }. Returns { answered(refresh), close }.
function controls(model, root, name, sliders, own) {
  const form = make("div", "form", root, undefined, { role: "group", "aria-label": name });
  const ranges = model.get("ranges"), inputs = {}, outputs = {};
  let waiting = false, again = false, asked = 0, timer = 0, nudges = [];

  const note = make("span", "note", null, "", { role: "status" });
  const said = (key) => { outputs[key].textContent = own.says?.[key]?.(inputs[key].value)
    ?? inputs[key].value; };
  const ask = () => {
    for (const key in outputs) said(key);
    if (waiting) { again = true; return; }
    waiting = true;
    again = false;
    const wish = { ...own.read(), seq: ++asked };
    for (const key in inputs) wish[key] = Number(inputs[key].value);
    model.send(wish);
    // Jupyter's WebSocket keeps Nagle's algorithm on: the answer lies in the server until this
    // side acknowledges the "busy" before it, which it puts off for 40 ms unless it sends too.
    nudges = [10, 20].map((ms) => setTimeout(() => model.send({ nudge: ms }), ms));
    timer = setTimeout(() => {
      note.textContent = "No answer from the kernel: it is busy, or gone. Run the cell again.";
      waiting = false;
    }, 4000);
  };
  own.build(form, ask);
  for (const [key, text] of sliders) {
    const [min, max, step] = ranges[key], label = make("label", "field", form);
    make("span", "", label, text);
    const input = make("input", "", label, undefined, { type: "range", min, max, step,
      name: key, "aria-label": text, ...QUIET });
    outputs[key] = make("output", "", label);
    input.oninput = ask;
    inputs[key] = input;
  }
  form.append(note);
  const show = (params) => {
    own.show(params);
    for (const key in inputs) { inputs[key].value = params[key]; said(key); }
  };
  show(model.get("params"));
  const quieten = () => [timer, ...nudges].forEach(clearTimeout);
  const mark = () => { root.dataset.rev = model.get("rev"); };
  mark();
  return {
    close: quieten,
    answered: (refresh) => {
      quieten();
      note.textContent = "";
      const mine = waiting;
      waiting = false;
      if (again) ask(); else if (!mine || model.get("seq") === asked) show(model.get("params"));
      refresh();
      mark();
    },
  };
}
