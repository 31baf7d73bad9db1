// The picture of the pipeline: drawn by rxd as SVG, kept up to date here. The width of an edge is its rate, its colour what the step behind it is
// doing; a step shows what it holds.

import { condition, held } from "./model.js";
import { draw, make, say } from "./dom.js";
import { bytes, count, number, rate } from "./format.js";
import { InView } from "./inview.js";

const smallest = 0.1;
const largest = 3;
/** The smallest text of the picture, in pixels, at which it can be read. */
const legible = 8;

export class Graph {
  /** `open`: called with the name of a step that is clicked. */
  constructor(place, open) {
    this.place = place;
    this.open = open;
    this.scale = 1;
    /** How the picture follows the window: "read" (its texts can be read, the rest is scrolled), "all" (it is seen whole), or not. */
    this.fitting = "read";
    this.svg = null;
    this.edges = new Map();
    this.steps = new Map();
    this.inView = new InView(place);
    /** Nothing has been shown on it yet. */
    this.isNew = true;
    place.addEventListener("click", (event) => {
      const step = this.wasDragged ? null : event.target.closest("[data-step]");
      if (step) this.open(step.dataset.step);
    });
    this.dragging();
    new ResizeObserver(() => this.fitting && this.fit()).observe(place);
  }

  /** Shows another picture. */
  load(text) {
    this.edges.clear();
    this.steps.clear();
    this.svg = null;
    const parsed = text ? new DOMParser().parseFromString(text, "image/svg+xml").documentElement : null;
    if (!parsed || parsed.nodeName !== "svg") {
      this.place.replaceChildren(make("p", { class: "quiet" }, "There is no picture of this pipeline."));
      return;
    }
    this.svg = document.importNode(parsed, true);
    const box = this.svg.viewBox.baseVal;
    this.size = { width: box.width, height: box.height };
    for (const path of this.svg.querySelectorAll("path[data-edge]")) {
      const part = this.part(this.edges, path.dataset.edge);
      part.path = path;
      // A line is thin: what is around it counts as the line for the pointer.
      const around = path.cloneNode();
      for (const name of ["marker-end", "data-edge"]) around.removeAttribute(name);
      around.setAttribute("class", "around");
      part.title = draw("title", {});
      around.append(part.title);
      path.after(around);
    }
    for (const text of this.svg.querySelectorAll("text[data-edge]")) this.part(this.edges, text.dataset.edge).text = text;
    for (const group of this.svg.querySelectorAll("g[data-step]")) {
      this.part(this.steps, group.dataset.step).group = group;
      group.setAttribute("role", "button");
      group.setAttribute("aria-label", group.dataset.step);
    }
    for (const text of this.svg.querySelectorAll("text[data-step]")) this.part(this.steps, text.dataset.step).text = text;
    this.place.replaceChildren(this.svg);
    this.inView.clear();
    for (const { path } of this.edges.values()) if (path) this.inView.watch(path);
    for (const { group } of this.steps.values()) if (group) this.inView.watch(group);
    this.isNew = true;
    const sizes = [...this.svg.querySelectorAll("text")].map((text) => parseFloat(getComputedStyle(text).fontSize)).filter((size) => size > 0);
    this.smallestText = Math.min(...sizes, 16);
    this.fitting = "read";
    this.fit();
    this.begin();
  }

  /** Scrolls to where the events come from. */
  begin() {
    const first = this.svg.querySelector("g[data-step]")?.getBoundingClientRect();
    if (!first) return;
    const place = this.place.getBoundingClientRect();
    this.place.scrollLeft += first.left - place.left - 40;
    this.place.scrollTop += (first.top + first.bottom) / 2 - (place.top + place.bottom) / 2;
  }

  part(map, name) {
    if (!map.has(name)) map.set(name, {});
    return map.get(name);
  }

  /** Shows the counts of a pipeline. `all`: also of what is not in view. */
  show(pipeline, all = false) {
    this.inView.begin();
    const isWhole = all || this.isNew;
    this.isNew = false;
    let index = 0;
    for (const [name, part] of this.edges) {
      index += 1;
      if (!isWhole && part.path && !this.inView.isDue(part.path, index)) continue;
      const edge = pipeline.edges.get(name);
      const events = edge?.rates.events ?? 0;
      // One event a second is a hair, a million a rope.
      const width = events < 0.05 ? 1 : Math.min(8, 1.5 + 1.1 * Math.log10(1 + events));
      const thickness = `${width.toFixed(1)}px`;
      if (part.path && part.thickness !== thickness) part.path.style.strokeWidth = thickness;
      part.thickness = thickness;
      const to = name.slice(name.indexOf(">") + 1);
      const from = name.slice(0, name.indexOf(">"));
      const state = this.state(pipeline, from, to);
      if (part.path && part.state !== state) {
        part.path.classList.remove("busy", "waiting", "blocked");
        if (state) part.path.classList.add(state);
        part.state = state;
      }
      const isLive = events >= 0.05;
      if (part.path && part.isLive !== isLive) part.path.classList.toggle("live", isLive);
      part.isLive = isLive;
      if (part.title) say(part.title, told(name, edge));
      if (part.text) say(part.text, isLive ? `${rate(events)}/s` : edge?.now.events ? count(edge.now.events) : "");
    }
    for (const [name, part] of this.steps) {
      const step = pipeline.steps.get(name);
      index += 1;
      if (!step || !isWhole && part.group && !this.inView.isDue(part.group, index)) continue;
      const state = condition(step);
      if (part.group && part.state !== state) {
        part.group.classList.remove("busy", "waiting", "blocked");
        if (state) part.group.classList.add(state);
        part.state = state;
      }
      const holds = held(step);
      const due = step.now.timers ? `${count(step.now.timers)} due` : "";
      if (part.text) say(part.text, holds || due ? `${holds ? `${count(holds)} held` : ""} ${due}`.trim() : "");
    }
  }

  /** What colours an edge: the step that it leads to, if that holds it back, else the source that it leaves. */
  state(pipeline, from, to) {
    const behind = pipeline.steps.get(to);
    const source = pipeline.steps.get(from);
    if (behind && condition(behind)) return condition(behind);
    return source && condition(source) === "waiting" ? "waiting" : "";
  }

  select(name) {
    for (const [step, part] of this.steps) part.group?.classList.toggle("selected", step === name);
    const part = this.steps.get(name);
    part?.group?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Fades what does not match. */
  find(text) {
    for (const [name, part] of this.steps) part.group?.classList.toggle("faded", text !== "" && !name.includes(text));
  }

  // The view.

  fit() {
    if (!this.svg || !this.place.clientWidth) return;
    const style = getComputedStyle(this.place);
    const room = (side, other) => parseFloat(style[side]) + parseFloat(style[other]);
    const width = this.place.clientWidth - room("paddingLeft", "paddingRight");
    const height = this.place.clientHeight - room("paddingTop", "paddingBottom");
    const whole = Math.min(1.15, width / this.size.width, height / this.size.height);
    // Of a large picture a part is seen, so that its texts can be read.
    const readable = legible / this.smallestText;
    this.scale = Math.max(smallest, this.fitting === "all" ? whole : Math.max(whole, Math.min(readable, 1.15)));
    this.apply();
  }

  zoom(factor) {
    this.fitting = null;
    this.scale = Math.max(smallest, Math.min(largest, this.scale * factor));
    this.apply();
  }

  /** All of the picture in the window; once more: as large as can be read. */
  refit() {
    this.fitting = this.fitting === "all" ? "read" : "all";
    this.fit();
  }

  apply() {
    if (!this.svg) return;
    this.svg.setAttribute("width", Math.round(this.size.width * this.scale));
    this.svg.setAttribute("height", Math.round(this.size.height * this.scale));
  }

  dragging() {
    let start = null;
    const { place } = this;
    place.addEventListener("pointerdown", (event) => {
      this.wasDragged = false;
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      start = { x: event.clientX, y: event.clientY, left: place.scrollLeft, top: place.scrollTop };
    });
    window.addEventListener("pointermove", (event) => {
      if (!start) return;
      const [x, y] = [event.clientX - start.x, event.clientY - start.y];
      if (Math.abs(x) + Math.abs(y) > 5) this.wasDragged = true;
      if (this.wasDragged) place.scrollTo(start.left - x, start.top - y);
    });
    window.addEventListener("pointerup", () => {
      start = null;
    });
    place.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 0.9 : 1.1);
    }, { passive: false });
  }
}

/** What passes an edge, in words. */
function told(name, edge) {
  const ends = name.replace(">", " → ");
  if (!edge?.now.events) return `${ends}: no events yet`;
  return `${ends}: ${number(edge.now.events, "event")} (${rate(edge.rates.events ?? 0)}/s)${edge.now.bytes === undefined ? "" : `, ${size(edge)}`}`;
}

/** The bytes that pass an edge; a tilde stands before those that are estimated. */
export const size = (edge) =>
  `${edge.now.bytes_are_estimated ? "~" : ""}${bytes(edge.now.bytes)} (${bytes(edge.rates.bytes ?? 0)}/s)`;
