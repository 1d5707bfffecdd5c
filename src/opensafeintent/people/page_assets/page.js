// Moving, answering, keys.

function say(text) {
  byId("live").textContent = text;
}

function step(by) {
  const next = place.item + by;
  if (next >= ITEMS.length) show("end");
  else if (next >= 0) show("item", next);
}

/** Draw the item again; the focus stays at its place. */
function redraw() {
  const focused = document.activeElement;
  const { field, value } = focused?.dataset ?? {};
  const id = focused?.id;
  draw();
  const again = field && value !== undefined ? main.querySelector(`.choice[data-field="${field}"][data-value="${value}"]`) : id && byId(id);
  (again || main).focus({ preventScroll: true });
}

/** Give the active question an answer, and go to the next one that has none. */
function answer(choice) {
  const item = ITEMS[place.item];
  const fields = fieldsOf(item);
  const { field, question } = fields[active];
  setAnswer(item.code, field, valueOf(choice));
  const given = answers.get(item.code);
  const open = [...fields.keys()].filter((at) => !(fields[at].field in given));
  active = open.find((at) => at > active) ?? open[0] ?? active;
  redraw();
  reach();
  const heading = (ask) => item.questions?.[ask.field] ?? QUESTIONS.get(ask.question).heading;
  const next = open.length ? ` Next: ${heading(fields[active])}.` : " The item is complete.";
  say(`${heading({ field, question })}: ${choice.label}.${next}`);
}

/** Bring the next thing into view: the active question, or, when a practice item is done, our answers. */
function reach() {
  (main.querySelector(".reveal") ?? main.querySelector(".question.active"))?.scrollIntoView({ block: "nearest" });
}

function move(by) {
  active = Math.min(Math.max(active + by, 0), fieldsOf(ITEMS[place.item]).length - 1);
  redraw();
  reach();
}

function takeBack() {
  const step = undo();
  if (!step) return;
  const at = ITEMS.indexOf(BY_CODE.get(step.code));
  place = { view: "item", item: at };
  if (step.field) active = fieldsOf(ITEMS[at]).findIndex(({ field }) => field === step.field);
  draw();
  main.focus({ preventScroll: true });
  reach();
  say("Undone.");
}

const KEYS = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  ArrowRight: () => step(1),
  ArrowLeft: () => step(-1),
  Enter: () => step(1),
  Backspace: () => clear(),
  Delete: () => clear(),
  c: () => byId("note").focus(),
  ".": () => goOn(),
  z: takeBack,
  "?": () => show("guide"),
};

function clear() {
  const item = ITEMS[place.item];
  setAnswer(item.code, fieldsOf(item)[active].field, undefined);
  redraw();
}

function onKey(event) {
  const inText = event.target.matches("textarea, input");
  if (inText) {
    if (event.key === "Escape") main.focus({ preventScroll: true });
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && place.view === "item") {
    event.preventDefault();
    takeBack();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const onButton = event.target.matches("button, a, summary") && event.target.getAttribute("aria-pressed") !== "true";
  if (event.key === "Enter" && onButton) return;
  if (place.view !== "item") {
    if (event.key === "Enter") main.querySelector(".primary")?.click();
    return;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const choice = QUESTIONS.get(fieldsOf(ITEMS[place.item])[active].question).choices.find((one) => one.key === key);
  if (choice) answer(choice);
  else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", onKey);
document.addEventListener("answers", drawBar);
byId("undo").addEventListener("click", takeBack);
byId("guide").addEventListener("click", () => show("guide"));
byId("download").addEventListener("click", handOut);
window.addEventListener("beforeunload", (event) => {
  if (!keeps && !handedOut) event.preventDefault();
});

restore();
show("start");
document.documentElement.dataset.ready = "";
