// The views: the start, the guide, an item, the end.

const main = byId("main");
let active = 0;

function button(text, act, attributes = {}) {
  const element = make("button", { type: "button", ...attributes }, text);
  element.addEventListener("click", act);
  return element;
}

/** A key as on a keyboard. */
function cap(key) {
  return make("kbd", {}, key);
}

function byId(id) {
  return document.getElementById(id);
}

function plural(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

function show(view, item = place.item) {
  place = { view, item };
  if (view === "item") {
    active = Math.max(fieldsOf(ITEMS[item]).findIndex(({ field }) => !(field in answers.get(ITEMS[item].code))), 0);
    keep();
  }
  draw();
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

function draw() {
  main.className = place.view;
  main.replaceChildren(...{ start: drawStart, guide: drawGuide, item: drawItem, end: drawEnd }[place.view]());
  drawBar();
}

function drawBar() {
  const atStart = place.view === "start";
  const done = COUNTED.filter(isComplete).length;
  const percent = (done / COUNTED.length) * 100;
  byId("fill").style.width = `${percent}%`;
  byId("track").setAttribute("aria-valuenow", Math.round(percent));
  byId("count").textContent = `${done.toLocaleString("en")} of ${COUNTED.length.toLocaleString("en")}`;
  byId("undo").disabled = undone.length === 0;
  for (const id of ["progress", "download", "undo", "guide"]) byId(id).hidden = atStart;
  byId("saved").textContent = atStart ? "" : keeps ? "Kept in this browser" : "Not kept: download before you close";
  byId("saved").classList.toggle("lost", !keeps);
}

// The start --------------------------------------------------------------------------------------------------------------

function drawStart() {
  const begun = ITEMS.some(isBegun);
  const begin = button(begun ? "Go on" : "I have read this: begin", () => (begun ? goOn() : show("guide")), { class: "primary", id: "begin" });
  const picked = make("input", { type: "file", accept: ".json,application/json", id: "saved-file" });
  picked.addEventListener("change", () => openSaved(picked));
  return [
    make("p", { class: "eyebrow" }, DATA.dataset),
    make("h1", {}, GUIDE.title),
    make("section", { class: "warning", "aria-labelledby": "before" }, make("h2", { id: "before" }, "Before you start"), make("p", {}, GUIDE.warning)),
    make("p", {}, `There are ${plural(COUNTED.length, GUIDE.unit, `${GUIDE.unit}s`)}, after ${plural(PRACTICE.length, "practice item", "practice items")}. `,
      keeps
        ? "Your answers are kept in this browser as you go. When you are done, or want to stop, download them and send the file back."
        : "This browser keeps nothing between visits (a private window, perhaps). Download your answers before you close the page; you can open the file here again."),
    make("p", { class: "quiet" }, "Nothing is loaded and nothing is sent: the page works without a network."),
    make("p", { class: "actions" }, begin, begun ? button("Read the guide again", () => show("guide")) : ""),
    make("p", { class: "open" }, make("label", { for: "saved-file" }, "Go on from a file that you downloaded: "), picked),
  ];
}

async function openSaved(picked) {
  const [file] = picked.files;
  if (!file) return;
  let problem;
  try {
    problem = takeIn(JSON.parse(await file.text()));
  } catch {
    problem = "That is not a file that this page saved.";
  }
  if (problem) {
    say(problem);
    picked.closest("p").append(make("strong", { class: "problem" }, problem));
    return;
  }
  changed();
  goOn();
}

/** Show the next item that is not complete; an annotator who has begun the items is done with practice. */
function goOn() {
  const next = (COUNTED.some(isBegun) ? COUNTED : ITEMS).find((item) => !isComplete(item));
  if (next) show("item", ITEMS.indexOf(next));
  else show("end");
}

// The guide --------------------------------------------------------------------------------------------------------------

function drawGuide() {
  const back = ITEMS.some(isBegun);
  const go = button(back ? "Back to the items" : "Start with the practice items", () => show("item", place.item), { class: "primary", id: "go" });
  return [
    make("h1", {}, GUIDE.title),
    ...GUIDE.intro.map((text) => make("p", { class: "lede" }, text)),
    make("h2", {}, "Questions and answers"),
    make("dl", { class: "scales" }, ...GUIDE.questions.map(scaleOf)),
    make("h2", {}, "Rules"),
    make("ul", { class: "rules" }, ...GUIDE.rules.map((rule) => make("li", {}, rule))),
    ...DATA.lists.map(listOf),
    make("h2", {}, "Worked examples"),
    ...GUIDE.examples.map(exampleOf),
    make("h2", {}, "Keys"),
    keyList(),
    make("p", { class: "actions" }, go),
  ];
}

const unfolded = new Set();

/** All labels of one kind, folded; it stays open from item to item. */
function listOf({ heading, labels }) {
  const entries = labels.map(([name, definition]) => make("div", {}, make("dt", { dir: "auto" }, name), make("dd", { dir: "auto" }, definition)));
  const summary = make("summary", {}, heading);
  const list = make("details", { class: "labels" }, summary, make("dl", {}, ...entries));
  list.open = unfolded.has(heading);
  summary.addEventListener("click", () => unfolded[list.open ? "delete" : "add"](heading)); // it is toggled afterwards
  return list;
}

function scaleOf(question) {
  const choices = question.choices.map((choice) =>
    make("li", {}, cap(choice.key), make("span", { class: "value" }, choice.label === choice.key ? "" : choice.label), make("span", {}, choice.meaning)),
  );
  return make("div", {}, make("dt", {}, question.text), make("dd", {}, make("ul", { class: choices.length && question.choices[0].meaning ? "tall" : "flat" }, ...choices)));
}

function exampleOf(example) {
  return make("article", { class: "example" },
    make("h3", {}, example.title),
    ...DATA.slots.map((slot, at) => textCard(slot.label, example.texts[at], false, "h4")),
    make("dl", { class: "expected" }, ...expectedOf(example)),
    make("p", { class: "why" }, example.why),
  );
}

function expectedOf(example, given = null) {
  return FIELDS.filter(({ field }) => field in example.answers).map(({ field, question, slot }) => {
    const asked = QUESTIONS.get(question);
    const wanted = example.answers[field];
    const label = (value) => asked.choices.find((choice) => choice.value === String(value)).label;
    const accepted = given && wanted.includes(String(given[field]));
    const name = slot.startsWith("Prompt ") ? `${slot}: ${asked.heading.toLowerCase()}` : asked.heading;
    const mine = given && !accepted ? make("span", { class: "mine" }, ` (yours: ${label(given[field])})`) : "";
    return make("div", { class: given ? (accepted ? "accepted" : "other") : null }, make("dt", {}, name), make("dd", {}, wanted.map(label).join(" or "), mine));
  });
}

function keyList() {
  const lines = [
    [["1", "2", "y", "n", "…"], "give the answer that carries the key; the next question follows by itself"],
    [["↑", "↓"], "the question before, the next question"],
    [["←", "→"], "the item before, the next item; Enter goes on as well"],
    [["Backspace"], "take the answer away"],
    [["z"], "undo"],
    [["c"], "write a note; Esc leaves it"],
    [["."], "the next item that is not complete"],
    [["?"], "this guide"],
  ];
  return make("dl", { class: "keys" }, ...lines.map(([keys, text]) => make("div", {}, make("dt", {}, ...keys.map(cap)), make("dd", {}, text))));
}

// An item ----------------------------------------------------------------------------------------------------------------

function textCard(label, text, lit = false, level = "h2") {
  return make("section", { class: lit ? "text lit" : "text", "data-slot": label }, make(level, {}, label), make("div", { class: "words", dir: "auto" }, text));
}

function drawItem() {
  const item = ITEMS[place.item];
  const fields = fieldsOf(item);
  const lit = fields[active].slot;
  const of = (item.practice ? PRACTICE : COUNTED).length;
  const heading = item.practice ? `Practice item ${item.number} of ${of}` : `Item ${item.number} of ${of}`;
  const questions = fields.map((ask, at) => questionOf(item, ask, at));
  return [
    make("div", { class: "reading" },
      make("h1", { class: "item-title" }, heading, item.practice ? "" : make("code", {}, item.code)),
      ...DATA.slots.map((slot, at) => item.texts[at] && textCard(slot.label, item.texts[at], DATA.slots.length > 2 && slot.label === lit)),
      ...DATA.lists.map(listOf),
      item.practice && isComplete(item) ? revealOf(item) : "",
    ),
    make("aside", { class: "panel", "aria-label": "Your answers" },
      ...questions,
      noteOf(item),
      make("nav", { class: "steps", "aria-label": "Items" },
        button("← Back", () => step(-1), { id: "back", disabled: place.item === 0 }),
        button(place.item === ITEMS.length - 1 ? "Finish" : "Next →", () => step(1), { id: "next", class: isComplete(item) ? "primary" : null }),
      ),
    ),
  ];
}

function questionOf(item, { field, question, slot }, at) {
  const asked = QUESTIONS.get(question);
  const given = answers.get(item.code)[field];
  const own = item.questions?.[field];
  const scale = asked.choices.some((choice) => /^\d/.test(choice.value));
  const about = slot.startsWith("Prompt ");
  const shape = scale ? "scale" : about || own ? "row" : "short";
  const choices = asked.choices.map((choice) => {
    const graded = /^\d/.test(choice.value);
    const element = make("button",
      {
        type: "button", class: "choice", "data-field": field, "data-value": choice.value,
        "aria-pressed": given === valueOf(choice) ? "true" : "false", title: graded ? null : choice.meaning || null,
      },
      cap(choice.key), make("span", {}, graded ? choice.meaning : choice.label));
    element.addEventListener("click", () => {
      active = at;
      answer(choice);
    });
    return element;
  });
  const state = `${at === active ? " active" : ""}${given === undefined ? "" : " given"}`;
  const shown = own && make("span", { class: "words", dir: "auto" }, own);
  const legend = make("p", { class: "legend", id: `ask-${field}` }, shown ?? (about ? `${slot}: what does its writer want?` : asked.text));
  return make("div", { class: `question ${shape}${state}`, role: "group", "aria-labelledby": `ask-${field}` },
    legend, make("div", { class: "choices" }, ...choices));
}

function noteOf(item) {
  const area = make("textarea", { id: "note", rows: "2", maxlength: "5000", placeholder: "Anything we should know (optional)" });
  area.value = notes.get(item.code);
  area.addEventListener("input", () => setNote(item.code, area.value));
  return make("p", { class: "note" }, make("label", { for: "note" }, "Note ", cap("c")), area);
}

function revealOf(item) {
  return make("section", { class: "reveal" }, make("h3", {}, "Our answers"),
    make("dl", { class: "expected" }, ...expectedOf(item.practice, answers.get(item.code))), make("p", { class: "why" }, item.practice.why));
}

// The end ----------------------------------------------------------------------------------------------------------------

function drawEnd() {
  const left = COUNTED.filter((item) => !isComplete(item));
  const links = left.slice(0, 60).map((item) => make("li", {}, button(String(item.number), () => show("item", ITEMS.indexOf(item)), { title: isBegun(item) ? "begun" : "not begun" })));
  return [
    make("h1", {}, left.length ? "Nearly there" : "Done. Thank you."),
    make("p", { class: "lede" }, left.length
      ? `${plural(left.length, "item is", "items are")} not complete. You can send the answers that you have; an empty one counts as not answered.`
      : "Every item is answered. Download your answers, and send the file back."),
    left.length ? make("ul", { class: "left" }, ...links) : "",
    left.length > 60 ? make("p", { class: "quiet" }, `and ${left.length - 60} more`) : "",
    make("p", { class: "actions" }, button("Download your answers", handOut, { class: "primary", id: "finish" }), button("Back to the items", () => show("item", place.item))),
  ];
}
