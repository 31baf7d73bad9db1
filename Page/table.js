// The steps as a table: the same numbers as `rxd top`, for those who read rather than look, and for narrow windows.

import { condition, droppedRate, errorRate, held } from "./model.js";
import { make, say } from "./dom.js";
import { count, percent, rate } from "./format.js";
import { InView } from "./inview.js";

const columns = [
  ["in/s", (step) => rate((step.rates.in ?? 0))],
  ["out/s", (step) => rate(step.rates.out ?? 0)],
  ["drop/s", (step) => rate(droppedRate(step))],
  ["err/s", (step) => rate(errorRate(step))],
  ["held", (step) => count(held(step))],
  ["busy", (step) => ((step.rates.nanoseconds ?? 0) < 5e6 ? "–" : percent(step.rates.nanoseconds / 1e9))],
  ["in", (step) => count(step.now.in ?? 0)],
  ["out", (step) => count(step.now.out ?? 0)],
];

export class Table {
  constructor(place, open) {
    this.place = place;
    this.open = open;
    this.rows = new Map();
    this.inView = new InView(place);
    /** The pipeline whose counts are shown. */
    this.shown = null;
    this.text = "";
    this.body = make("tbody");
    place.replaceChildren(
      make("table", {},
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "step"), ...columns.map(([name]) => make("th", { scope: "col" }, name)))),
        this.body));
  }

  /** Shows the counts of a pipeline. `all`: also of rows that are not in view. */
  show(pipeline, all = false) {
    this.inView.begin();
    // Another pipeline may have steps of the same names.
    const isWhole = all || this.shown !== pipeline;
    this.shown = pipeline;
    for (const [name, row] of this.rows) {
      if (pipeline.steps.has(name)) continue;
      this.inView.forget(row.element);
      row.element.remove();
      this.rows.delete(name);
    }
    const steps = [...pipeline.steps.values()].sort((a, b) => (a.now.index ?? 0) - (b.now.index ?? 0));
    for (const [index, step] of steps.entries()) {
      let row = this.rows.get(step.id);
      const isNew = !row;
      if (isNew) {
        row = this.row(step);
        this.rows.set(step.id, row);
        this.inView.watch(row.element);
      }
      if (this.body.children[index] !== row.element) this.body.insertBefore(row.element, this.body.children[index] ?? null);
      if (!isWhole && !isNew && !this.inView.isDue(row.element, index)) continue;
      for (const [column, cell] of row.cells.entries()) say(cell, columns[column][1](step));
      const state = condition(step) || (errorRate(step) > 0.05 ? "failing" : "");
      if (row.element.dataset.state !== state) row.element.dataset.state = state;
    }
  }

  row(step) {
    const cells = columns.map(() => make("td"));
    const button = make("button", { type: "button", class: "link", click: () => this.open(step.id) }, step.id);
    const element = make("tr", { "data-row": step.id }, make("th", { scope: "row" }, button), ...cells);
    element.hidden = !step.id.includes(this.text);
    return { element, cells };
  }

  select(name) {
    for (const [step, row] of this.rows) row.element.classList.toggle("selected", step === name);
  }

  find(text) {
    this.text = text;
    for (const [step, row] of this.rows) row.element.hidden = !step.includes(text);
  }
}
