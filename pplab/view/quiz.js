// Questions: radio buttons or a number field, a button, and what Python says of the answer.
const QUIET = { "data-lm-suppress-shortcuts": "true" };

// `code` and *emphasis* become elements.
function prose(node, text) {
  for (const part of text.split(/(`[^`]+`|\*\w[^*]*\*)/)) {
    const inside = part.slice(1, -1);
    if (/^`.+`$/s.test(part)) make("code", "", node, inside);
    else if (/^\*\w.*\*$/s.test(part)) make("em", "", node, inside);
    else node.append(part);
  }
  return node;
}

let groups = 0;

function questions(model, root) {
  root.classList.add("pplab", "pp-quiz");
  const group = ++groups, parts = [], timers = [];
  const head = make("div", "quiz-head", root);
  prose(make("b", "", head), model.get("title"));
  const score = make("span", "score", head, "", { role: "status" });
  if (model.get("intro")) prose(make("p", "soft", root), model.get("intro"));

  model.get("cards").forEach((card, i) => {
    const form = make("form", "card", root);
    const box = make("fieldset", "", form);
    prose(make("legend", "", box), (model.get("cards").length > 1 ? `${i + 1}. ` : "") + card.text);
    const inputs = card.options.map((text, k) => {
      const label = make("label", "option", box);
      const input = make("input", "", label, undefined,
        { type: "radio", name: `pp-quiz-${group}-${i}`, value: k, ...QUIET });
      prose(make("span", "", label), text);
      return input;
    });
    let field;
    if (!inputs.length) {
      const label = make("label", "number", box, "Your number ");
      field = make("input", "", label, undefined,
        { type: "text", inputmode: "decimal", size: 8, autocomplete: "off", ...QUIET });
      label.append(` ${card.unit}`);
      // JupyterLab keeps Enter in a text field from submitting its form.
      field.onkeydown = (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        form.requestSubmit();
      };
    }
    const button = make("button", "", form, model.get("button"), { type: "submit", ...QUIET });
    const said = make("p", "said", form, "", { role: "status" });
    const note = (text) => { said.dataset.state = ""; said.textContent = text; };
    form.onsubmit = (event) => {
      event.preventDefault();
      const chosen = inputs.find((input) => input.checked);
      if (field ? !field.value.trim() : !chosen) {
        note(field ? "Type a number first." : "Choose one first.");
        return;
      }
      model.send({ card: i, answer: field ? field.value.trim() : Number(chosen.value) });
      note("…");
      clearTimeout(timers[i]);
      timers[i] = setTimeout(() => {
        note("No answer from the kernel: it is busy, or gone. Run the cell again.");
      }, 4000);
    };
    // A changed choice is a new answer, about which nothing was said yet.
    form.oninput = () => note("");
    parts.push({ inputs, field, said, button });
  });

  const show = () => {
    const cards = model.get("cards"), counted = model.get("counted");
    cards.forEach((card, i) => {
      const { inputs, field, said } = parts[i];
      if (!card.said || said.dataset.shown === JSON.stringify(card)) return;
      clearTimeout(timers[i]);
      said.dataset.shown = JSON.stringify(card);
      if (field) field.value = card.answer ?? "";
      else inputs.forEach((input, k) => { input.checked = k === Number(card.answer); });
      said.dataset.state = card.said.state;
      said.replaceChildren();
      const { state, sign, head = state, reason } = card.said;
      make("b", "", said, `${sign} ${head}${reason && head === state ? ":" : ""}`);
      if (reason) prose(said, ` ${reason}`);
    });
    const right = cards.filter((card) => card.said?.state === counted).length;
    score.textContent = counted ? `${right} of ${cards.length} ${counted}` : "";
    root.dataset.rev = model.get("rev");
    window.__pplab_painted = { rev: model.get("rev"), t: performance.now() };
  };
  show();
  const again = () => {
    for (const { said } of parts) if (said.textContent === "…") delete said.dataset.shown;
    show();
  };
  model.on("change:rev", again);
  return () => {
    timers.forEach(clearTimeout);
    model.off("change:rev", again);
  };
}
