// Marble lanes of one step: what came over each of its edges, on one axis of time. Dots are events, their colour is what the step did with them; bars
// are times in which the step kept something; ticks right of "now" are timers that are due.

import { draw, make, say } from "./dom.js";
import { count, number, span, timeOfDay } from "./format.js";
import { Ring } from "./ring.js";

const height = 50;
const middle = 33;
/** Where "now" stands, as a part of the width. */
const present = 0.8;
/** More dots than this in one lane at one time would only be a blur: every nth is drawn then, all over the view, but all that did not pass. */
const mostDots = 500;
const ordinary = ["passed", "kept"];

const roles = {
  source: "from the source", input: "comes in", inner: "from its inner signal", output: "goes out", signal: "the signal",
};
export const verdicts = {
  passed: "went on", kept: "is kept, or part of what comes out", dropped: "was dropped, as intended", superseded: "was replaced by a newer one",
  undecided: "was dropped, because an expression failed", rejected: "went to the errors output", failed: "ended the signal with an error",
};

export class Lanes {
  /** `clock`: the time of the process in nanoseconds; `step`: what is known of the step; `point`: called with an event under the pointer, or null. */
  constructor(place, lanes, clock, step, point) {
    this.clock = clock;
    this.step = step;
    this.point = point;
    this.ring = new Ring();
    this.seconds = place.clientWidth < 500 ? 6 : 10;
    /** The time at the right end of the events, if that stands still; null: now. */
    this.until = null;
    this.holds = [];
    /** Times in which more came than is shown. */
    this.gaps = [];
    this.lanes = new Map();
    this.opened = clock();
    this.axis = draw("svg", { class: "axis", height: 18, "aria-hidden": "true" });
    const rows = lanes.map((lane) => this.lane(lane));
    place.replaceChildren(...rows, make("div", { class: "lane axis-row" }, make("div", { class: "lane-name" }), this.axis));
    this.base = this.opened;
    this.resize = new ResizeObserver(() => this.render());
    this.resize.observe(place);
    this.frame = null;
    this.last = 0;
    this.animate();
  }

  close() {
    this.resize.disconnect();
    cancelAnimationFrame(this.frame);
  }

  lane({ from, to, role }) {
    const key = `${from}>${to}`;
    const moving = draw("g", { class: "moving" });
    const bars = draw("g", { class: "bars" });
    const dots = draw("g", { class: "dots" });
    const timers = draw("g", { class: "timers" });
    const line = draw("line", { class: "track", x1: 0, y1: middle, y2: middle });
    const now = draw("line", { class: "now", y1: 0, y2: height });
    moving.append(bars, dots, timers);
    const svg = draw("svg", { height, role: "img", "aria-label": `events from ${from} to ${to}` }, line, now, moving);
    const tally = make("span", { class: "tally" });
    const name = make("div", { class: "lane-name" },
      make("b", { title: `${from} → ${to}` }, `${short(from)} → ${short(to)}`), make("i", {}, roles[role] ?? ""), tally);
    this.lanes.set(key, { key, from, to, role, svg, moving, bars, dots, timers, line, now, tally, events: [], held: 0, every: 1, came: 0, counts: {}, lastX: -99, labelEnd: -1e9 });
    return make("div", { class: "lane", "data-lane": key, "data-role": role }, name, svg);
  }

  // What comes.

  /** Takes a line of the tap: the object and its text. */
  take(line, raw) {
    if (line.missed) {
      this.ring.missed += line.missed;
      this.gapFrom = this.newest;
      return;
    }
    if (line.edges) return this.mark(line);
    const lane = this.lanes.get(`${line.from}>${line.to}`);
    if (!lane || line.nanoseconds === undefined) return;
    if (line.since !== undefined) return this.change(lane, line);
    this.passGap(line.nanoseconds);
    const event = {
      at: line.nanoseconds, lane: lane.key, raw, time: line.time, cut: line.cut, bytes: line.bytes,
      verdict: line.end ? line.end : line.verdict, value: line.end ? line.message ?? null : line.event, isEnd: line.end !== undefined,
    };
    this.forget(this.ring.add(event));
    lane.events.push(event);
    const kind = lane.role === "input" || event.isEnd ? event.verdict : "passed";
    lane.counts[kind] = (lane.counts[kind] ?? 0) + 1;
    this.hold(lane, event);
    if (this.until !== null) return;
    lane.came += 1;
    if (lane.came % lane.every === 0 || !ordinary.includes(event.verdict)) this.dot(lane, event);
    if (lane.dots.childElementCount > mostDots * 1.5) this.renderLane(lane);
  }

  /** Events had to go: of each lane the oldest, in a pause the oldest of those that came in it. */
  forget(gone) {
    for (const event of gone) {
      const lane = this.lanes.get(event.lane);
      lane.events.splice(lane.held, 1);
      lane.dots.querySelector(`[data-serial="${event.serial}"]`)?.remove();
    }
  }

  /** An event comes: if others were left out before it, the time since the one before them has a mark. */
  passGap(at) {
    const from = this.gapFrom;
    this.gapFrom = undefined;
    this.newest = at;
    if (from === undefined) return;
    const last = this.gaps.at(-1);
    if (last && from - last.to < 1e8) last.to = at;
    else this.gaps.push({ from, to: at });
    if (this.gaps.length > 400) this.gaps.splice(0, 200);
  }

  /** What the step has done since with an event that it kept. */
  change(lane, line) {
    const value = JSON.stringify(line.event);
    const event = lane.events.findLast((event) => event.at === line.since && event.verdict === "kept" && JSON.stringify(event.value) === value);
    if (!event) return;
    event.verdict = line.verdict;
    const open = this.openHold;
    if (open) open.count = Math.max(1, open.count - 1);
    if (lane.role !== "input") return;
    lane.counts.kept -= 1;
    if (lane.counts.kept === 0) delete lane.counts.kept;
    lane.counts[line.verdict] = (lane.counts[line.verdict] ?? 0) + 1;
    const dot = lane.dots.querySelector(`[data-serial="${event.serial}"] circle`);
    dot?.setAttribute("class", `v-${line.verdict}`);
    dot?.setAttribute("data-verdict", line.verdict);
  }

  /** The tap is attached: at first, to a new version, or after a pause of the page. */
  mark(line) {
    if (this.attached) {
      // What came meanwhile is not known: a test can only begin here.
      this.opened = this.clock();
      this.holds = this.holds.filter((hold) => hold.to !== null);
      this.reloadedAt = this.opened;
      this.render();
    }
    this.attached = line.edges;
  }

  get openHold() {
    const last = this.holds.at(-1);
    return last?.to === null ? last : null;
  }

  /** Times in which the step keeps something: they begin with an event that it keeps. Where it kept but one, they end with the next that it
   * sends; else when it says that it keeps nothing any more (`settle`). */
  hold(lane, event) {
    const open = this.openHold;
    if (lane.role === "input" && event.verdict === "kept") {
      if (open) {
        open.count += 1;
        open.newest = event.at;
      } else if (event.at !== this.sentAt) {
        // What became part of an event that went out at once is not held.
        this.begin({ from: event.at, to: null, count: 1, newest: event.at, sent: null });
      }
    } else if (lane.role === "output") {
      this.sentAt = event.at;
      if (!open) return;
      open.sent = event.at;
      if (open.count > 1) return;
      open.to = event.at;
      this.drawHolds();
    }
  }

  begin(hold) {
    this.holds.push(hold);
    if (this.holds.length > 2000) this.holds.splice(0, 1000);
    this.drawHolds();
  }

  /** At the time `at` of the process the step held so many events. */
  settle(held, at) {
    const open = this.openHold;
    if (open && held === 0 && at >= open.newest) {
      open.to = open.sent !== null && open.sent >= open.newest ? open.sent : at;
      this.drawHolds();
    } else if (!open && held > 0) {
      const last = this.holds.at(-1);
      // It sent something and kept the rest.
      if (last && at > last.to && at - last.to < 2e9) Object.assign(last, { to: null, count: held + 1, sent: last.to });
      else if (!last || at > last.to) this.begin({ from: at, to: null, count: held + 1, newest: at, sent: null });
      this.drawHolds();
    }
  }

  // The picture.

  get right() {
    return this.until ?? this.clock();
  }

  get oldest() {
    return this.ring.oldest?.at ?? this.right;
  }

  x(at) {
    return ((at - this.base) / 1e9) * this.scale;
  }

  /** Draws everything that is in view anew. */
  render() {
    const first = [...this.lanes.values()][0];
    if (!first) return;
    this.width = first.svg.clientWidth || 600;
    this.scale = (this.width * present) / this.seconds;
    this.base = this.right;
    for (const lane of this.lanes.values()) {
      lane.line.setAttribute("x2", this.width);
      for (const end of ["x1", "x2"]) lane.now.setAttribute(end, this.width * present);
      this.renderLane(lane);
    }
    this.drawHolds();
    this.move();
  }

  /** Draws the dots that are in view anew. */
  renderLane(lane) {
    const from = this.right - this.seconds * 1e9;
    lane.dots.replaceChildren();
    lane.lastX = -1e9;
    lane.labelEnd = -1e9;
    const seen = lane.events.filter((event) => event.at >= from && event.at <= this.right);
    lane.every = Math.max(1, Math.ceil(seen.length / mostDots));
    lane.came = 0;
    seen.forEach((event, index) => {
      if (index % lane.every === 0 || !ordinary.includes(event.verdict)) this.dot(lane, event);
    });
  }

  dot(lane, event) {
    if (!this.scale) return;
    const x = this.x(event.at);
    const group = draw("g", { class: "marble", "data-serial": event.serial, transform: `translate(${x.toFixed(1)},${middle})` });
    if (event.isEnd) {
      group.append(event.verdict === "complete"
        ? draw("line", { class: "complete", y1: -11, y2: 11 })
        : draw("path", { class: "error", d: "M-6-6L6 6M-6 6L6-6" }));
    } else {
      // Events at nearly one time stand above each other.
      lane.level = x - lane.lastX < 7 ? ((lane.level ?? 0) + 1) % 3 : 0;
      lane.lastX = x;
      const verdict = lane.role === "input" ? event.verdict : "passed";
      group.append(draw("circle", {
        class: `v-${verdict}`, "data-verdict": verdict, r: 5, cy: [0, -7, 7][lane.level],
      }));
      if (verdict === "rejected" || verdict === "failed") group.append(draw("path", { class: "cross", d: "M-3-3L3 3M-3 3L3-3" }));
      const text = brief(event.value);
      const half = text.length * 3.1;
      if (text && x - half > lane.labelEnd) {
        group.append(draw("text", { y: -18 }, text));
        lane.labelEnd = x + half + 4;
      }
    }
    group.addEventListener("pointerenter", () => this.point(event));
    group.addEventListener("click", () => this.point(event, true));
    lane.dots.append(group);
  }

  drawHolds() {
    if (!this.scale) return;
    const output = [...this.lanes.values()].find((lane) => lane.role === "output") ?? [...this.lanes.values()].find((lane) => lane.role === "input");
    if (!output) return;
    const from = this.right - this.seconds * 1e9;
    output.bars.replaceChildren(...this.holds.filter((hold) => hold.to === null || hold.to >= from).slice(-400).map((hold) => {
      const bar = draw("rect", { y: middle - 4, height: 8, rx: 4, x: this.x(hold.from).toFixed(1), width: 0 });
      hold.bar = bar;
      bar.setAttribute("width", Math.max(1, this.x(hold.to ?? this.right) - this.x(hold.from)).toFixed(1));
      return bar;
    }));
  }

  /** The timers of the step that are due, and those that were a moment ago. */
  drawTimers() {
    const lanes = [...this.lanes.values()];
    const lane = lanes.find(({ role }) => role === "output") ?? lanes.find(({ role }) => role === "input");
    if (!lane || !this.scale) return;
    const { now, seenAt } = this.step();
    const due = now?.timers ? now.timers_due ?? [now.next_timer_nanoseconds] : [];
    const shown = this.until === null ? due.map((left) => seenAt + left).filter((at) => at > this.clock() - 2e8) : [];
    lane.timers.replaceChildren(...shown.map((at) => {
      const group = draw("g", { class: "timer", transform: `translate(${this.x(at).toFixed(1)},0)` }, draw("line", { y1: 6, y2: height - 6 }));
      group.append(draw("title", {}, `a timer, due in ${span(at - this.clock())}`));
      return group;
    }));
  }

  move() {
    const shift = this.width * present - ((this.right - this.base) / 1e9) * this.scale;
    for (const lane of this.lanes.values()) lane.moving.setAttribute("transform", `translate(${shift.toFixed(1)},0)`);
    const open = this.holds.at(-1);
    if (open?.to === null && open.bar) {
      open.bar.setAttribute("width", Math.max(1, this.x(this.right) - this.x(open.from)).toFixed(1));
    }
  }

  animate() {
    this.frame = requestAnimationFrame((time) => {
      this.animate();
      // Twenty pictures a second are as smooth as this needs.
      if (time - this.last < 48) return;
      this.last = time;
      if (!this.scale) return this.render();
      if (this.until === null) {
        if (this.right - this.base > this.seconds * 3e9) this.render();
        this.move();
      }
      this.drawAxis();
      this.drawTimers();
      this.tallies();
    });
  }

  drawAxis() {
    const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120];
    const step = steps.find((size) => size * this.scale > 60) ?? 300;
    const marks = [];
    for (let second = -Math.floor(this.seconds / step) * step; second <= (this.seconds * (1 - present)) / present + 1e-9; second += step) {
      const x = this.width * present + second * this.scale;
      if (x < 10 || x > this.width - 10) continue;
      const text = Math.abs(second) < 1e-9 ? (this.until === null ? "now" : "here") : `${second > 0 ? "+" : "−"}${Math.abs(Number(second.toFixed(1)))} s`;
      marks.push(draw("text", { x: x.toFixed(0), y: 13, "text-anchor": "middle" }, text));
    }
    if (this.reloadedAt && this.reloadedAt > this.right - this.seconds * 1e9) {
      const x = this.width * present + ((this.reloadedAt - this.right) / 1e9) * this.scale;
      marks.push(draw("text", { x: x.toFixed(0), y: 13, class: "reload", "text-anchor": "middle" }, "anew"));
    }
    const place = (at) => this.width * present + ((at - this.right) / 1e9) * this.scale;
    for (const { from, to } of this.gaps) {
      if (to < this.right - this.seconds * 1e9 || from > this.right) continue;
      const x = Math.max(0, place(from));
      marks.push(draw("rect", { class: "gap-mark", x: x.toFixed(1), y: 0, height: 3, width: Math.max(1, place(Math.min(to, this.right)) - x).toFixed(1) },
        draw("title", {}, "More came here than is shown.")));
    }
    this.axis.replaceChildren(...marks);
  }

  tallies() {
    for (const lane of this.lanes.values()) {
      const words = { complete: lane.counts.complete === 1 ? "end" : "ends", error: "with an error" };
      const parts = Object.entries(lane.counts).map(([kind, number]) =>
        (lane.role === "input" || words[kind] ? `${count(number)} ${words[kind] ?? kind}` : count(number)));
      say(lane.tally, parts.join(", ") || "nothing yet");
    }
  }

  // Time.

  /** Shows the time up to `until`; null: now. What is in view when a pause begins stays until its end. */
  stand(until) {
    if (until !== null && this.until === null) {
      this.ring.hold();
      for (const lane of this.lanes.values()) lane.held = lane.events.length;
    } else if (until === null && this.until !== null) {
      for (const lane of this.lanes.values()) lane.held = 0;
      this.forget(this.ring.release());
    }
    this.until = until;
    this.render();
  }

  pause(isPaused) {
    this.stand(isPaused ? this.clock() : null);
  }

  /** Shows a time that has passed; `share` is 0 for the oldest event, 1 for now. */
  scrub(share) {
    this.stand(share >= 1 ? null : this.oldest + (this.clock() - this.oldest) * share);
  }

  /** Goes to the event before or behind the time in view. */
  leap(direction) {
    const here = this.right;
    const times = this.ring.between(-Infinity, Infinity).map((event) => event.at);
    const next = direction < 0 ? times.filter((at) => at < here - 1e6).at(-1) : times.find((at) => at > here + 1e6);
    this.stand(next ?? (direction < 0 ? here : null));
  }

  zoom(factor) {
    this.seconds = Math.max(1, Math.min(300, this.seconds * factor));
    this.render();
  }
}

/** The last part of a step's name, which says what it does. */
const short = (name) => name.split("/").at(-1);

/** A value in a few letters; of an object its first values. */
function brief(value) {
  const parts = value !== null && typeof value === "object" ? Object.values(value).filter((part) => typeof part !== "object") : null;
  const text = typeof value === "string" ? value : parts ? parts.join(" ") : JSON.stringify(value) ?? "";
  return text.length > 14 ? `${text.slice(0, 13)}…` : text;
}

/** An event in words and in full, as far as it was sent. */
export function describe(event, lane) {
  const text = typeof event.value === "string" && (event.cut || event.isEnd) ? event.value : JSON.stringify(event.value, null, 2);
  const fate = event.isEnd
    ? event.verdict === "complete" ? "the signal completed" : "the signal ended with an error"
    : lane?.role === "input" ? verdicts[event.verdict] ?? event.verdict : `then: ${event.verdict}`;
  return { when: timeOfDay(event.time), fate, text: text ?? "", note: event.cut ? `cut: the event has ${number(event.bytes, "byte")}` : "" };
}
