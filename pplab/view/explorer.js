// The schedule explorer: one schedule and its numbers beside the picture.
const SLIDERS = [["stages", "Stages P"], ["micro_batches", "Micro-batches M"],
  ["backward", "Backward : forward"], ["link", "Link cost (forwards)"]];

function explore(model, root) {
  root.classList.add("pplab", "pp-explorer");
  let choice;
  const form = controls(model, root, "Schedule and its numbers", SLIDERS, {
    build: (box, ask) => {
      const label = make("label", "field", box);
      make("span", "", label, "Schedule");
      choice = make("select", "", label, undefined, { "aria-label": "Schedule", ...QUIET });
      for (const name of model.get("choices")) make("option", "", choice, name, { value: name });
      choice.onchange = ask;
    },
    read: () => ({ schedule: choice.value }),
    show: (params) => { choice.value = params.schedule; },
  });
  const picture = mount(model, make("div", "", root));
  const answered = () => form.answered(picture.refresh);
  model.on("change:rev", answered);
  return () => {
    form.close();
    model.off("change:rev", answered);
    picture.close();
  };
}
