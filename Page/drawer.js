// One step in full: its lines of the file, its lanes, what it keeps, and the event under the pointer.

import { held } from "./model.js";
import { make, put, say } from "./dom.js";
import { facts } from "./facts.js";
import { number, span } from "./format.js";
import { size } from "./graph.js";
import { describe, Lanes, verdicts } from "./lanes.js";
import { tap } from "./net.js";
import { showWhy } from "./why.js";

export class Drawer {
  /** `close`: called when the person closes it; `save`: called with the drawer to save what was seen as a test. */
  constructor(place, close, save) {
    this.place = place;
    this.onClose = close;
    this.onSave = save;
    this.step = null;
  }

  /** Opens a step of a pipeline: what `GET /ui/graph` says of it. */
  open(pipeline, step, model, hasAnswers) {
    this.end();
    this.pipeline = pipeline;
    this.step = step;
    this.model = model;
    this.hasAnswers = hasAnswers;
    this.found = null;
    this.facts = make("dl", { class: "facts" });
    this.event = make("div", { class: "event", role: "status" });
    this.note = make("p", { class: "quiet note" });
    this.pauseButton = make("button", { type: "button", click: () => this.togglePause() }, "Pause");
    this.scrubber = make("input", { type: "range", min: "0", max: "1000", value: "1000", "aria-label": "Time", input: () => this.scrub() });
    const place = make("div", { class: "lanes" });
    this.place.replaceChildren(
      make("div", { class: "drawer-head" },
        make("h2", {}, step.id), make("span", { class: "kind" }, step.kind === step.type ? step.kind : `${step.type} (${step.kind})`),
        make("span", { class: "gap" }),
        make("button", { type: "button", "aria-label": "Close", title: "Close (Escape)", click: () => this.onClose() }, "✕")),
      make("div", { class: "file" }, make("span", { class: "quiet" }, step.at.split("/").at(-1)), make("pre", {}, step.text)),
      place,
      make("div", { class: "tools lane-tools" },
        this.pauseButton, this.scrubber,
        make("button", { type: "button", title: "Longer time", "aria-label": "Longer time", click: () => this.lanes.zoom(2) }, "−"),
        make("button", { type: "button", title: "Shorter time", "aria-label": "Shorter time", click: () => this.lanes.zoom(0.5) }, "+"),
        make("button", { type: "button", class: "main", id: "save-test", click: () => this.onSave(this) }, "Save as a test")),
      this.note,
      make("div", { class: "legend" }, ...Object.entries(verdicts).map(([verdict, text]) =>
        make("span", { title: text }, make("i", { class: `key v-${verdict}` }), verdict))),
      this.event,
      make("h3", {}, "What it keeps"),
      this.facts,
      this.why = make("div", { class: "answers" }));
    this.place.hidden = false;
    this.seenAt = model.nanoseconds;
    this.lanes = new Lanes(place, step.lanes, () => model.clock, () => ({ now: this.now?.now, seenAt: this.model.nanoseconds }),
      (event, isClick) => this.point(event, isClick));
    this.watch();
    const { lanes } = this;
    if (hasAnswers) showWhy(this.why, exact(pipeline), exact(step.id), () => this.lanes !== lanes);
  }

  /** Nobody sees the page: the tap ends, what has been seen stays. */
  rest() {
    this.isResting = true;
    this.stop?.abort();
  }

  wake() {
    if (!this.isResting) return;
    this.isResting = false;
    if (this.lanes) this.watch();
  }

  /** Opens the tap; goes on trying while the step is open. */
  async watch() {
    const lanes = this.lanes;
    while (this.lanes === lanes && lanes && !this.isResting) {
      this.stop = new AbortController();
      try {
        const query = [["pipeline", exact(this.pipeline)]];
        for (const lane of this.step.lanes) query.push(["edge", `${exact(lane.from)} -> ${exact(lane.to)}`]);
        await tap(query, this.stop.signal, (line, raw) => lanes.take(line, raw));
      } catch (error) {
        if (this.lanes !== lanes || this.isResting) return;
        if (error.name !== "AbortError") say(this.note, `No events: ${error.message}`);
      }
      if (this.lanes !== lanes) return;
      await new Promise((resume) => setTimeout(resume, 1000));
    }
  }

  /** Nobody looks: the tap ends. */
  end() {
    this.stop?.abort();
    this.lanes?.close();
    this.lanes = null;
  }

  close() {
    this.end();
    this.step = null;
    this.place.hidden = true;
    this.place.replaceChildren();
  }

  /** Shows the counts of the step. */
  show(pipeline) {
    if (!this.step) return;
    this.now = pipeline.steps.get(this.step.id);
    if (!this.now) return;
    if (this.lanes && this.seenAt !== this.model.nanoseconds) this.lanes.settle(held(this.now), this.model.nanoseconds);
    this.seenAt = this.model.nanoseconds;
    const rows = facts(this.now, this.sizes(pipeline));
    const names = rows.map(([name]) => name).join();
    if (names !== this.names || !this.facts.childElementCount) {
      this.names = names;
      this.facts.replaceChildren(...rows.flatMap(([name, text]) => [make("dt", {}, name), make("dd", { "data-fact": name }, text)]));
    } else {
      [...this.facts.querySelectorAll("dd")].forEach((cell, index) => say(cell, rows[index][1]));
    }
    this.showTime();
  }

  /** The bytes that pass the edges of the step. */
  sizes(pipeline) {
    const edges = this.step.lanes.map(({ from, to }) => pipeline.edges.get(`${from}>${to}`)).filter((edge) => edge?.now.bytes !== undefined);
    return edges.map((edge) => [`${edge.from.split("/").at(-1)} → ${edge.to.split("/").at(-1)}`, size(edge)]);
  }

  showTime() {
    const { lanes } = this;
    if (!lanes) return;
    const isPaused = lanes.until !== null;
    say(this.pauseButton, isPaused ? "Go on" : "Pause");
    const missed = lanes.ring.missed ? `${number(lanes.ring.missed, "event")} came too fast to be shown. ` : "";
    const length = lanes.ring.length;
    say(this.note, `${missed}${number(length, "event")} of the last ${span(lanes.clock() - lanes.oldest)}${isPaused ? `; the time shown ended ${span(lanes.clock() - lanes.until)} ago` : ""}.`);
    if (!isPaused && document.activeElement !== this.scrubber) this.scrubber.value = 1000;
  }

  point(event, isClick) {
    // A click holds the event, until the next click.
    if (!isClick && this.found?.isHeld) return;
    const lane = this.lanes.lanes.get(event.lane);
    const told = describe(event, lane);
    this.found = { event, isHeld: isClick };
    put(this.event,
      make("p", {}, make("b", {}, told.when), ` ${lane.from} → ${lane.to}: `, make("span", { class: `word v-${event.verdict}` }, told.fate)),
      make("pre", {}, told.text),
      told.note ? make("p", { class: "quiet" }, told.note) : null);
  }

  togglePause() {
    this.lanes.pause(this.lanes.until === null);
    if (this.lanes.until === null) this.scrubber.value = 1000;
    this.showTime();
  }

  scrub() {
    this.lanes.scrub(this.scrubber.value / 1000);
    this.showTime();
  }
}

/** A name in which nothing stands for any text. `?` stands for any one byte, a star too. */
const exact = (name) => name.replaceAll("*", "?");
