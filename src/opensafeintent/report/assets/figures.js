// Figures: drawn by Vega when they come into view, without generated code, so that the page's policy can forbid it.

const drawn = new Map();

/** Show a figure's tooltip as text, beside the pointer. */
function showTip(_handler, event, _item, value) {
  const lines = value === null || value === undefined || value === "" ? [] : typeof value === "object" ? Object.entries(value) : [["", value]];
  const line = ([label, text]) => make("div", {}, label && make("span", { class: "label" }, shown(`${label} `)), shown(String(text)));
  placeTip(event, lines.map(line));
}

async function drawFigure(figure, spec, config) {
  if (drawn.has(figure.id)) return;
  const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: showTip, hover: false, config };
  drawn.set(figure.id, window.vegaEmbed(figure.querySelector(".canvas"), spec, options));
  const { view } = await drawn.get(figure.id);
  const svg = figure.querySelector("svg");
  svg.setAttribute("role", "img");
  for (const inner of svg.querySelectorAll("[role], [aria-label]")) { // one image, whose numbers are in a table
    for (const name of ["role", "aria-label", "aria-roledescription"]) inner.removeAttribute(name);
  }
  svg.setAttribute("aria-label", figure.querySelector(".label-title").textContent);
  figure.prepend(cutSign(figure.querySelector(".canvas"), "More to the right →"));
  const save = figure.querySelector("button.svg");
  save.hidden = false;
  save.addEventListener("click", async () => download(`${figure.dataset.name}.svg`, await view.toSVG(), "image/svg+xml"));
}

/** Draw those of some figures that are in no folded section; content above a target must not grow later. */
let drawVisible = async () => {};

function buildFigures() {
  const { theme, figures: specs } = carried("data-figures");
  const figures = Object.keys(specs).map((key) => document.getElementById(key));
  const draw = (figure) => drawFigure(figure, specs[figure.id], theme).catch((problem) => console.error(figure.id, problem));
  const watcher = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "600px" },
  );
  figures.forEach((figure) => watcher.observe(figure));
  drawVisible = () => Promise.all(figures.filter((figure) => figure.checkVisibility()).map(draw));
  window.addEventListener("beforeprint", () => figures.forEach(draw));
  const rest = [...figures];
  const whenIdle = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
  const next = () => rest.length && draw(rest.shift()).finally(() => whenIdle(next));
  whenIdle(next); // all of them in the end, so that printing finds them drawn
}
