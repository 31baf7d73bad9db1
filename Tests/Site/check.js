// What Tests/Site/run asks of a page. The last expression is the body of a function with `arguments`.

// Numbers of a colour: red, green, blue from 0 to 255, and how opaque it is.
const numbers = (colour) => {
  const found = colour.match(/[\d.]+/g).map(Number);
  return found.length < 4 ? [...found, 1] : found;
};
// What is seen of a colour in front of another.
const over = (front, back) => [0, 1, 2].map((i) => front[i] * front[3] + back[i] * (1 - front[3])).concat(1);
// Relative luminance and contrast, as WCAG 2.2 defines them.
const luminance = (colour) => {
  const [r, g, b] = colour.slice(0, 3).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
};
const ground = (element) => {
  const layers = [];
  for (let one = element; one; one = one.parentElement) {
    const colour = numbers(getComputedStyle(one).backgroundColor);
    layers.push(colour);
    if (colour[3] === 1) break;
  }
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
  return layers.reverse().reduce((back, front) => over(front, back), scheme);
};
const described = (element) =>
  `${element.tagName.toLowerCase()}${element.className && typeof element.className === "string" ? "." + element.className : ""}: ` +
  element.textContent.trim().slice(0, 40);

const checks = {
  // Where links lead, what can be linked to, which pictures are missing.
  links: () => ({
    links: [...document.querySelectorAll("a[href]")].map((link) => link.href),
    anchors: [...document.querySelectorAll("[id]")].map((element) => element.id),
    twice: [...document.querySelectorAll("[id]")].map((element) => element.id).filter((id, i, all) => all.indexOf(id) !== i),
    missing: [...document.images].filter((image) => !image.complete || !image.naturalWidth).map((image) => image.src),
    nameless: [...document.querySelectorAll("a[href], button, input, summary")].filter(
      (element) => !element.textContent.trim() && !element.getAttribute("aria-label") && !element.querySelector("img[alt]:not([alt=''])")).map(described),
    resources: performance.getEntriesByType("resource").map((entry) => entry.name),
  }),

  // What is wider than the screen, and what is cut off.
  width: (limit) => {
    // Not `innerWidth`: a telephone shows a page that is too wide smaller.
    const width = limit;
    const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
    const wide = [], cut = [];
    if (document.scrollingElement.scrollWidth > width) {
      for (const element of document.body.querySelectorAll("*")) {
        if (element.getBoundingClientRect().right > width + 1 && !element.parentElement.closest("pre, .wide")) wide.push(described(element));
      }
      if (!wide.length) wide.push("the page");
    }
    for (const element of document.querySelectorAll("main *")) {
      if (element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0 && getComputedStyle(element).overflowX !== "visible" && !scrolls(element)) {
        cut.push(described(element));
      }
    }
    return { wide, cut, width: document.scrollingElement.scrollWidth };
  },

  // Texts whose contrast with their ground is below AA of WCAG: 4.5, or 3 for large ones.
  contrast: () => {
    const known = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const of = (element, style, text) => {
      const size = parseFloat(style.fontSize), weight = Number(style.fontWeight);
      const back = ground(element);
      const front = over(numbers(style.color), back);
      const key = [front, back, size, weight].join();
      if (known.has(key)) return;
      const least = size >= 24 || (size >= 18.66 && weight >= 700) ? 3 : 4.5;
      const found = contrast(front, back);
      known.set(key, { found, least, text: `${described(element)} ${text}` });
    };
    const seen = new Set();
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.nodeValue.trim()) continue;
      // Siblings of one class look alike; those in a link, a heading or a marked place do not.
      const parent = element.parentElement;
      const place = element.className + element.tagName + parent?.tagName + parent?.className + parent?.parentElement?.tagName + parent?.parentElement?.className
        + element.getAttribute("aria-current") + element.getAttribute("aria-selected");
      if (seen.has(place)) continue;
      seen.add(place);
      of(element, getComputedStyle(element), "");
      of(element, { ...["fontSize", "fontWeight"].reduce((all, name) => ({ ...all, [name]: getComputedStyle(element)[name] }), {}),
        color: getComputedStyle(element, "::after").color }, "::after");
    }
    const field = document.getElementById("site-words");
    if (field) of(field, getComputedStyle(field, "::placeholder"), "::placeholder");
    return { count: known.size, low: [...known.values()].filter(({ found, least }) => found < least).map(({ found, text }) => `${found.toFixed(2)} ${text}`) };
  },
};
return checks[arguments[0]](arguments[1]);
