// Figures: drawn by Vega when they come into view, without generated code, so that the page's policy can forbid it.

const drawn = new Map();

/** Show a figure's tooltip as text, beside the pointer. */
function showTip(_handler, event, _item, value) {
  const tip = document.getElementById("tip");
  const lines = value === null || value === undefined || value === "" ? [] : typeof value === "object" ? Object.entries(value) : [["", value]];
  tip.hidden = lines.length === 0;
  if (tip.hidden) return;
  tip.replaceChildren(
    ...lines.map(([label, text]) => make("div", {}, label && make("span", { class: "label" }, shown(`${label} `)), shown(String(text)))),
  );
  const { clientWidth, clientHeight } = document.documentElement;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, clientWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, clientHeight - box.height - 8))}px`;
}

async function drawFigure(figure, spec, config) {
  if (drawn.has(figure.id)) return;
  const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: showTip, hover: false, config };
  drawn.set(figure.id, window.vegaEmbed(figure.querySelector(".canvas"), spec, options));
  const { view } = await drawn.get(figure.id);
  const svg = figure.querySelector("svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", figure.querySelector(".label-title").textContent);
  const save = figure.querySelector("button.svg");
  save.hidden = false;
  save.addEventListener("click", async () => download(`${figure.dataset.name}.svg`, await view.toSVG(), "image/svg+xml"));
}

function buildFigures() {
  const { theme, figures: specs } = carried("data-figures");
  const figures = Object.keys(specs).map((key) => document.getElementById(key));
  const draw = (figure) => drawFigure(figure, specs[figure.id], theme).catch((problem) => console.error(figure.id, problem));
  const watcher = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "600px" },
  );
  figures.forEach((figure) => watcher.observe(figure));
  window.addEventListener("beforeprint", () => figures.forEach(draw));
  const rest = [...figures];
  const whenIdle = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
  const next = () => rest.length && draw(rest.shift()).finally(() => whenIdle(next));
  whenIdle(next); // all of them in the end, so that printing finds them drawn
}
