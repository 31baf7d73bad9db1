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
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byID = (id) => document.getElementById(id);

/** Sets a text only if it is another one, so that the browser lays out nothing anew. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
