// Elements of the page. Texts that come from events and files go in as text, never as markup.

const svgSpace = "http://www.w3.org/2000/svg";

/** Makes an element. `attributes`: a function becomes a listener, true an empty attribute; null and false are left out. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgSpace, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false || value === undefined) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

/** What is there: the browser would write null and undefined as words. */
const present = (children) => children.filter((child) => child !== null && child !== undefined);

/** Puts these in the place of all children; null and undefined are left out. */
export const put = (place, ...children) => place.replaceChildren(...present(children));

export const byID = (id) => document.getElementById(id);

/** Sets a text only if it is another one, so that the browser lays out nothing anew. */
export function say(element, text) {
  const only = element.firstChild;
  if (only === null) {
    if (text !== "") element.textContent = text;
  } else if (only.nodeType === Node.TEXT_NODE && only === element.lastChild && text !== "") {
    if (only.data !== text) only.data = text;
  } else {
    element.textContent = text;
  }
}
