// One step in full: its lines of the file, its lanes, what it keeps, and the event under the pointer.

import { condition, droppedRate, errorRate, held } from "./model.js";
import { make, put, say } from "./dom.js";
import { bytes, count, number, percent, rate, span, timeOfDay } from "./format.js";
import { size } from "./graph.js";
import { describe, Lanes, verdicts } from "./lanes.js";
import { tap } from "./net.js";
import { showWhy } from "./why.js";

const conditions = { blocked: "makes its sources wait", waiting: "waits for the pipeline", busy: "takes more than half a core", "": "keeps up" };

/** How far the event time of a step's events has come, and what holds it back. */
function watermark(now) {
  if (now.watermark_idle) return "idle, holds nothing up";
  const time = new Date((now.watermark ?? 0) / 1e6).toISOString();
  return now.watermark_held_by ? `${time}, held back by ${now.watermark_held_by}` : time;
}

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
    const { now, rates } = this.now;
    if (this.lanes && this.seenAt !== this.model.nanoseconds) this.lanes.settle(held(this.now), this.model.nanoseconds);
    this.seenAt = this.model.nanoseconds;
    const facts = [
      ["state", conditions[condition(this.now)], true],
      ["trouble", now.trouble ? `${now.trouble.reason} (since ${timeOfDay(now.trouble.since)})` : "", now.trouble],
      ["holds", number(held(this.now), "event"), held(this.now) > 0],
      ["remembers", number(now.keys ?? 0, "key"), now.keys !== undefined],
      ["keeps", bytes(now.kept_bytes ?? 0), now.kept_bytes !== undefined],
      ["event time", watermark(now), now.watermark !== undefined || now.watermark_idle],
      ["timers", `${count(now.timers ?? 0)}, the next due in ${span(Math.max(0, now.next_timer_nanoseconds ?? 0))}`, now.timers > 0],
      ["inner signals", count(now.inner ?? 0), now.inner > 0],
      ["queue", queue(now.queue), now.queue],
      ["outbox on disk", queue(now.outbox), now.outbox],
      ["retries", count(now.retries ?? 0), now.retries > 0],
      ["lookups", `${count(now.lookups ?? 0)}, ${count(now.misses ?? 0)} without a row`, now.lookups > 0],
      ["state, saved", bytes(now.state_bytes ?? 0), now.state_bytes],
      ["left to read", bytes(now.lag_bytes ?? 0), now.lag_bytes !== undefined],
      ["position", bytes(now.position ?? 0), now.position !== undefined],
      ["came", `${count(now.in ?? 0)} (${rate(rates.in ?? 0)}/s)`, true],
      ["restored", `${count(now.restored ?? 0)} of a saved state`, now.restored > 0],
      ["made", count(now.made ?? 0), now.made > 0],
      ["went on", `${count(now.out ?? 0)} (${rate(rates.out ?? 0)}/s)`, true],
      ["became part of others", count(now.kept ?? 0), now.kept > 0],
      ...this.sizes(pipeline),
      ["dropped", `${count((now.dropped ?? 0) + (now.superseded ?? 0) + (now.undecided ?? 0))} (${rate(droppedRate(this.now))}/s)`,
        (now.dropped ?? 0) + (now.superseded ?? 0) + (now.undecided ?? 0) > 0],
      ["failed", `${count((now.rejected ?? 0) + (now.failed ?? 0))} (${rate(errorRate(this.now))}/s)${now.dead_letters ? `, ${count(now.dead_letters)} that nothing reads` : ""}`, (now.rejected ?? 0) + (now.failed ?? 0) > 0],
      ["held at an end", count(now.held ?? 0), now.held > 0],
      ["time", `${percent((rates.nanoseconds ?? 0) / 1e9)} of a core`, now.nanoseconds !== undefined],
      ["made sources wait", span(now.paused_nanoseconds ?? 0), now.paused_nanoseconds > 0],
      ["waited", span(now.waited_nanoseconds ?? 0), now.waited_nanoseconds > 0],
    ].filter(([, , isShown]) => isShown);
    const names = facts.map(([name]) => name).join();
    if (names !== this.names || !this.facts.childElementCount) {
      this.names = names;
      this.facts.replaceChildren(...facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", { "data-fact": name }, text)]));
    } else {
      [...this.facts.querySelectorAll("dd")].forEach((cell, index) => say(cell, facts[index][1]));
    }
    this.showTime();
  }

  /** The bytes that pass the edges of the step. */
  sizes(pipeline) {
    const edges = this.step.lanes.map(({ from, to }) => pipeline.edges.get(`${from}>${to}`)).filter((edge) => edge?.now.bytes !== undefined);
    return edges.map((edge) => [`${edge.from.split("/").at(-1)} → ${edge.to.split("/").at(-1)}`, size(edge), true]);
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

const queue = (found) => (found
  ? `${number(found.events, "event")}, ${bytes(found.bytes)}${found.in_flight ? `, ${number(found.in_flight, "request")} under way` : ""}${found.oldest_nanoseconds ? `, the oldest for ${span(found.oldest_nanoseconds)}` : ""}`
  : "");

/** A name in which nothing stands for any text. `?` stands for any one byte, a star too. */
const exact = (name) => name.replaceAll("*", "?");
