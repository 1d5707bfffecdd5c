// The first part of the scripts of every page.

/** Return an element. Attributes are set as they are; children that are texts become text nodes. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** The data that the page carries under an id. */
function carried(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

/** Offer `text` as a file. */
function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
