// The page of a build: what a mark of a drawing says of itself, and the search among prompt-sets.

/** Show what a mark says of itself beside the pointer. */
function tellMarks() {
  for (const canvas of document.querySelectorAll(".canvas")) {
    canvas.addEventListener("pointermove", (event) => {
      const text = event.target.closest('[role="graphics-symbol"]')?.getAttribute("aria-label");
      placeTip(event, text ? [shown(text)] : []);
    });
    canvas.addEventListener("pointerleave", (event) => placeTip(event, []));
  }
}

/** Show only the prompt-sets that have all the words that are looked for. */
function searchSets() {
  const input = document.getElementById("find");
  if (!input) return;
  const sets = [...document.querySelectorAll("details.set")].map((element) => [element, `${element.id} ${element.textContent}`.toLowerCase()]);
  const found = document.getElementById("found");
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let number = 0;
    for (const [element, text] of sets) {
      element.hidden = !words.every((word) => text.includes(word));
      number += !element.hidden;
    }
    for (const domain of document.querySelectorAll(".domain")) domain.hidden = !domain.querySelector("details.set:not([hidden])");
    found.textContent = words.length ? `${number.toLocaleString("en")} of ${sets.length.toLocaleString("en")}` : "";
  });
}

tellMarks();
searchSets();
