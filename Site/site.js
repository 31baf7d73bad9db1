// The search, and the list of pages on a wide screen. Without this script every page can still be read and reached.
(() => {
  "use strict";
  const root = document.documentElement.dataset.root;
  const menu = document.querySelector(".menu");
  const wide = matchMedia("(min-width: 56.01rem)");
  const open = () => { menu.open = wide.matches; };
  wide.addEventListener("change", open);
  open();
  const here = menu.querySelector("[aria-current]");
  if (here && wide.matches) menu.scrollTop = here.offsetTop - menu.clientHeight / 3;

  const field = document.getElementById("site-words");
  const found = document.getElementById("site-found");
  document.getElementById("site-search").hidden = false;
  if (matchMedia("(hover: hover)").matches) field.placeholder = "Search ( / )";

  // The index is a script, because a page that is opened from a disk may not read other files. It is loaded when the search is first used.
  let index = null;
  let isLoading = false;
  window.rxdSearch = (data) => {
    index = data;
    for (const section of index.sections) section[4] = section[3].toLowerCase();
    show();
  };
  const load = () => {
    if (isLoading) return;
    isLoading = true;
    const script = document.createElement("script");
    script.src = root + "site/search-index.js";
    document.head.append(script);
  };

  const isLetter = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);

  // How well a text has a word: a whole word counts most, the start of one less, a part of one (a name such as bufferWithCount) least.
  const count = (text, word) => {
    let sum = 0;
    for (let at = text.indexOf(word), n = 0; at >= 0 && n < 50; at = text.indexOf(word, at + word.length), n++) {
      const starts = !isLetter(text[at - 1]);
      sum += starts ? (isLetter(text[at + word.length]) ? 0.6 : 1) : 0.15;
    }
    return sum;
  };

  // The best section of each page, best first. Every word must be in the section, its heading or the title of its page.
  const search = (query) => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const counts = index.sections.map((section) => words.map((word) => count(section[4], word)));
    const rarity = words.map((_, i) => Math.log(1 + index.sections.length / (1 + counts.filter((c) => c[i] > 0).length)));
    const best = new Map();
    index.sections.forEach((section, s) => {
      const [number, , heading] = section;
      const page = index.pages[number];
      const title = page[1].toLowerCase(), head = heading.toLowerCase();
      let sum = 0;
      for (let i = 0; i < words.length; i++) {
        const inText = counts[s][i];
        const inTitle = Math.min(1, count(title, words[i])), inHead = Math.min(1, count(head, words[i]));
        if (!inText && !inTitle && !inHead) return;
        const length = 1 + section[4].length / 1500;
        sum += rarity[i] * (inText / (inText + 1.2 * length) + 2.5 * inHead + 2 * inTitle + (title === words[i] || title.startsWith(words[i] + ":") ? 6 : 0));
      }
      // Words that stand beside each other.
      if (words.length > 1 && section[4].includes(words.join(" "))) sum *= 1.5;
      sum *= page[3];
      const known = best.get(number);
      if (!known || known.sum < sum) best.set(number, { sum, section, page });
    });
    return [...best.values()].sort((a, b) => b.sum - a.sum).slice(0, 20).map((one) => ({ ...one, words }));
  };

  // A text with the words marked.
  const marked = (text, words) => {
    const nodes = [];
    const small = text.toLowerCase();
    let at = 0;
    while (at < text.length) {
      let next = -1, length = 0;
      for (const word of words) {
        const place = small.indexOf(word, at);
        if (place >= 0 && (next < 0 || place < next)) { next = place; length = word.length; }
      }
      if (next < 0) break;
      const mark = document.createElement("mark");
      mark.textContent = text.slice(next, next + length);
      nodes.push(text.slice(at, next), mark);
      at = next + length;
    }
    nodes.push(text.slice(at));
    return nodes;
  };

  const piece = (section, words, title) => {
    // The page of that name begins with what it is about.
    if (!section[1] && words.includes(title.toLowerCase())) return section[3].slice(0, 160) + (section[3].length > 160 ? " ..." : "");
    const places = words.map((word) => section[4].indexOf(word)).filter((place) => place >= 0);
    const middle = places.length ? Math.min(...places) : 0;
    let start = Math.max(0, middle - 60);
    if (start > 0) start = section[3].indexOf(" ", start) + 1 || start;
    return (start > 0 ? "... " : "") + section[3].slice(start, start + 160) + (section[3].length > start + 160 ? " ..." : "");
  };

  let chosen = -1;
  const choose = (number) => {
    const links = found.querySelectorAll("a");
    if (!links.length) return;
    chosen = (number + links.length) % links.length;
    links.forEach((link, i) => link.setAttribute("aria-selected", String(i === chosen)));
    links[chosen].scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", links[chosen].id);
  };

  const close = () => {
    found.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };

  const show = () => {
    const query = field.value.trim();
    if (!query) { close(); found.replaceChildren(); return; }
    if (!index) return;
    chosen = -1;
    const results = search(query);
    found.replaceChildren(...results.map(({ section, page, words }, i) => {
      const link = document.createElement("a");
      link.id = "found-" + i;
      link.setAttribute("role", "option");
      link.setAttribute("aria-selected", "false");
      link.href = root + page[0] + (section[1] ? "#" + section[1] : "");
      const title = document.createElement("strong");
      title.append(...marked(page[1], words));
      const where = document.createElement("span");
      where.append(" ", page[2], section[1] ? " · " : "", ...(section[1] ? marked(section[2], words) : []));
      const text = document.createElement("span");
      text.className = "piece";
      text.append(...marked(piece(section, words, page[1]), words));
      link.append(title, where, text);
      return link;
    }));
    if (!results.length) {
      const nothing = document.createElement("p");
      nothing.textContent = `No page has all of: ${query}`;
      found.append(nothing);
    }
    found.hidden = false;
    found.scrollTop = 0;
    field.setAttribute("aria-expanded", "true");
    if (results.length) choose(0);
  };

  field.addEventListener("focus", load);
  field.addEventListener("input", () => { load(); show(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") found.querySelectorAll("a")[chosen]?.click();
    else if (event.key === "Escape") { field.value = ""; show(); return; }
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const inField = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.key !== "/" || inField || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#site-search")) close();
    else if (event.target === field) show();
  });
  found.addEventListener("click", (event) => { if (event.target.closest("a")) close(); });
})();
