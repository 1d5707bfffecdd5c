// The page as a whole: light and dark, and the order of drawing.

function chooseTheme() {
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  button.hidden = false;
  label();
}

/** Mark the section that is being read in the table of contents. */
function followReading() {
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) mark(links.get(entry.target.id));
    },
    { rootMargin: "-10% 0px -80% 0px" },
  );
  const mark = (link) => {
    links.forEach((other) => other.removeAttribute("aria-current"));
    link?.setAttribute("aria-current", "true");
  };
  links.forEach((_, id) => document.getElementById(id) && watcher.observe(document.getElementById(id)));
}

/** On a narrow screen the contents and the filters would fill it: they wait to be opened. */
function foldLong() {
  for (const [width, name] of [["62rem", ".contents details"], ["46rem", ".chooser"]]) {
    if (window.matchMedia(`(max-width: ${width})`).matches) document.querySelector(name).open = false;
  }
}

/** Bring an element into view: open the folds around and in it, and first draw the tables and figures that would move it. */
async function goTo(target) {
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  for (const fold of target.querySelectorAll(":scope > details.fold")) fold.open = true;
  await tablesBuilt;
  await drawVisible();
  target.scrollIntoView();
}

/** Links to sections, and an address that names one. */
function followLinks() {
  const named = () => document.getElementById(decoded(location.hash.slice(1)));
  const follow = () => location.hash && named() && goTo(named());
  window.addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#']");
    if (link && link.hash === location.hash) follow(); // no change of the address tells of a second click
  });
  const folds = document.querySelectorAll("details.fold");
  document.getElementById("unfold").addEventListener("click", () => folds.forEach((fold) => (fold.open = true)));
  window.addEventListener("beforeprint", () => folds.forEach((fold) => (fold.open = true)));
  follow();
}

chooseTheme();
foldLong();
const tablesBuilt = Promise.resolve().then(() => buildTables((state) => browser.matching(state).length > 0));
buildFigures();
followLinks();
const browser = new SetBrowser(document.getElementById("sets"), carried("data-sets"));
followReading();
tablesBuilt.then(() => (document.documentElement.dataset.ready = "true"));
