// The theme leaves out levels, names and keyboard access that screen readers and keyboards need.
const set = (selector, name, value) =>
  document.querySelectorAll(selector).forEach((one) => one.setAttribute(name, value));

addEventListener("DOMContentLoaded", () => {
  set(".caption[role=heading]", "aria-level", "2");
  set(".sidebar-drawer", "aria-label", "All pages");
  set(".toc-drawer", "aria-label", "This page");
  set("pre, .output, .table-wrapper, .equation", "tabindex", "0"); // each may scroll sideways
});
