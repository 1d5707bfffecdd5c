// Text that others wrote goes into the page as text only, and nothing in it is invisible.

/** Control and formatting characters (bidi marks, escape codes, zero-width spaces), and characters of private use. */
const INVISIBLE = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]/gu;

/** Return a node that shows `text`; an invisible character is shown as its code point. */
function shown(text) {
  const holder = document.createDocumentFragment();
  let from = 0;
  text = text.replaceAll("\r\n", "\n");
  for (const found of text.matchAll(INVISIBLE)) {
    holder.append(text.slice(from, found.index));
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    holder.append(make("span", { class: "invisible", title: "an invisible character" }, `U+${code}`));
    from = found.index + found[0].length;
  }
  holder.append(text.slice(from));
  return holder;
}

/** The text that a part of an address stands for: the part itself, if it is not encoded. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A model's name without how all begin. */
function shortOf(model) {
  const { common } = document.getElementById("main").dataset;
  return common && model.startsWith(common) ? model.slice(common.length) : model;
}

/** A model's name: in a direction of its own, and breakable at its slashes and dashes. */
function nameOf(model) {
  const element = make("bdi", { class: "name" });
  for (const part of shortOf(model).split(/(?<=[/_.:-])/)) element.append(shown(part), make("wbr"));
  element.lastChild?.remove();
  return element;
}

/** Show some nodes beside the pointer; none hides the target. */
function placeTip(event, nodes) {
  const tip = document.getElementById("tip");
  tip.hidden = nodes.length === 0;
  if (tip.hidden) return;
  tip.replaceChildren(...nodes);
  const { clientWidth, clientHeight } = document.documentElement;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, clientWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, clientHeight - box.height - 8))}px`;
}

/** A sign that a part of a table or figure is hidden at the right; it is above, as the foot may be far below. */
function cutSign(scroller, text) {
  const cut = make("span", { class: "cut", hidden: "" }, text);
  const seen = () => (cut.hidden = scroller.scrollLeft + scroller.clientWidth > scroller.scrollWidth - 2);
  new ResizeObserver(seen).observe(scroller);
  scroller.addEventListener("scroll", seen, { passive: true });
  return cut;
}
