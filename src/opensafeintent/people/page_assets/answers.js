// The answers: kept in this browser after every change, and handed out as a file.

const DATA = carried("data");
const GUIDE = DATA.guide;
const PRACTICE = GUIDE.calibration.map((example, at) => ({ code: `practice ${at + 1}`, number: at + 1, texts: example.texts, practice: example }));
const COUNTED = DATA.items.map((item, at) => ({ ...item, number: at + 1 }));
const ITEMS = [...PRACTICE, ...COUNTED];
const BY_CODE = new Map(ITEMS.map((item) => [item.code, item]));
const QUESTIONS = new Map(GUIDE.questions.map((question) => [question.name, question]));
const FIELDS = DATA.slots.flatMap((slot) => slot.asks.map((ask) => ({ ...ask, slot: slot.label })));
const STORE = `opensafeintent annotation ${DATA.study} ${DATA.annotator}`;
const MOST_UNDO = 500;

const answers = new Map(ITEMS.map((item) => [item.code, {}]));
const notes = new Map(ITEMS.map((item) => [item.code, ""]));
const undone = [];
let place = { view: "start", item: 0 };
let keeps = true;
let handedOut = true;

/** What is asked about an item: nothing about a prompt, a label or a question of its own that it has not. */
function fieldsOf(item) {
  return FIELDS.filter(({ field }) => !item.skipped?.includes(field) && (!item.practice || field in item.practice.answers));
}

function isComplete(item) {
  const given = answers.get(item.code);
  return fieldsOf(item).every(({ field }) => field in given);
}

function isBegun(item) {
  return Object.keys(answers.get(item.code)).length > 0;
}

function valueOf(choice) {
  return /^\d+$/.test(choice.value) ? Number(choice.value) : choice.value;
}

/** Set an answer, or take it away with `undefined`; a change can be undone. */
function setAnswer(code, field, value) {
  const given = answers.get(code);
  if (given[field] === value) return;
  remember({ code, field, before: given[field] });
  if (value === undefined) delete given[field];
  else given[field] = value;
  changed();
}

function setNote(code, text) {
  const last = undone.at(-1);
  if (!(last && last.note && last.code === code)) remember({ code, note: true, before: notes.get(code) });
  notes.set(code, text);
  changed();
}

function remember(step) {
  undone.push(step);
  if (undone.length > MOST_UNDO) undone.shift();
}

/** Take the last change back; return the step, or nothing if there is none. */
function undo() {
  const step = undone.pop();
  if (!step) return undefined;
  if (step.note) notes.set(step.code, step.before);
  else if (step.before === undefined) delete answers.get(step.code)[step.field];
  else answers.get(step.code)[step.field] = step.before;
  changed();
  return step;
}

function changed() {
  handedOut = false;
  keep();
  document.dispatchEvent(new Event("answers"));
}

/** The annotator's data on some items: ids, answers and notes, no texts. */
function asFile(some) {
  const items = some.map(({ code, words }) => {
    const item = { code, words, answers: answers.get(code) };
    return notes.get(code).trim() ? { ...item, note: notes.get(code) } : item;
  });
  return { form: DATA.form, study: DATA.study, annotator: DATA.annotator, items };
}

function keep() {
  try {
    localStorage.setItem(STORE, JSON.stringify({ ...asFile(ITEMS), place }));
    keeps = true;
  } catch {
    keeps = false;
  }
}

/** Take in kept or saved answers, without invalid ones; return why this is impossible, or nothing. */
function takeIn(file) {
  if (!file || typeof file !== "object" || file.form !== DATA.form || !Array.isArray(file.items)) {
    return "That is not a file that this page saved.";
  }
  if (file.study !== DATA.study || file.annotator !== DATA.annotator) {
    return `That file belongs to ${file.annotator} in study ${file.study}, and this page to ${DATA.annotator} in ${DATA.study}.`;
  }
  for (const saved of file.items) {
    if (!BY_CODE.has(saved.code)) continue;
    const given = {};
    for (const { field, question } of fieldsOf(BY_CODE.get(saved.code))) {
      const value = saved.answers?.[field];
      if (QUESTIONS.get(question).choices.some((choice) => valueOf(choice) === value)) given[field] = value;
    }
    answers.set(saved.code, given);
    notes.set(saved.code, typeof saved.note === "string" ? saved.note : "");
  }
  undone.length = 0;
  return undefined;
}

function restore() {
  let kept;
  try {
    kept = localStorage.getItem(STORE);
    localStorage.setItem(`${STORE} test`, "1");
    localStorage.removeItem(`${STORE} test`);
  } catch {
    keeps = false;
    return false;
  }
  try {
    const file = JSON.parse(kept);
    if (!file || takeIn(file)) return false;
    if (Number.isInteger(file.place?.item) && ITEMS[file.place.item]) place.item = file.place.item;
    return true;
  } catch {
    return false;
  }
}

function handOut() {
  download(`${DATA.file}.json`, `${JSON.stringify(asFile(COUNTED), null, 1)}\n`, "application/json");
  handedOut = true;
}
