// What the drawer says of a step. Most figures have a row, which says them in words of its own; each of the others is shown as the table of figures
// names it, so that a new figure is seen without a change here.

import { condition, droppedRate, errorRate, held } from "./model.js";
import { bytes, count, number, percent, rate, span, timeOfDay } from "./format.js";

const conditions = { blocked: "makes its sources wait", waiting: "waits for the pipeline", busy: "takes more than half a core", "": "keeps up" };

/** How far the event time of a step's events has come, and what holds it back. */
function watermark(now) {
  if (now.watermark_idle) return "idle, holds nothing up";
  const time = new Date((now.watermark ?? 0) / 1e6).toISOString();
  return now.watermark_held_by ? `${time}, held back by ${now.watermark_held_by}` : time;
}

const waiting = (queue) => `${number(queue.events, "event")}, ${bytes(queue.bytes)}${queue.in_flight ? `, ${number(queue.in_flight, "request")} under way` : ""}${oldest(queue.oldest_nanoseconds)}`;
const oldest = (nanoseconds) => (nanoseconds ? `, the oldest for ${span(nanoseconds)}` : "");

// Each row: its name, the figures that it says, and its text; none if there is nothing to say.

const present = [
  ["state", "pauses_input waits", (step) => conditions[condition(step)]],
  ["trouble", "trouble", ({ now }) => now.trouble && `${now.trouble.reason} (since ${timeOfDay(now.trouble.since)})`],
  ["holds", "holding kept_events", (step) => held(step) > 0 && number(held(step), "event")],
  ["remembers", "keys", ({ now }) => now.keys !== undefined && number(now.keys, "key")],
  ["keeps", "kept_bytes", ({ now }) => now.kept_bytes !== undefined && bytes(now.kept_bytes)],
  ["event time", "watermark watermark_idle watermark_held_by", ({ now }) => (now.watermark !== undefined || now.watermark_idle) && watermark(now)],
  ["timers", "timers next_timer_nanoseconds timers_due", ({ now }) => now.timers > 0 && `${count(now.timers)}, the next due in ${span(Math.max(0, now.next_timer_nanoseconds ?? 0))}`],
  ["inner signals", "inner inner_in", ({ now }) => (now.inner > 0 || now.inner_in > 0) && `${count(now.inner ?? 0)} running, ${number(now.inner_in ?? 0, "event")} of theirs`],
  ["queue", "queue", ({ now }) => now.queue && waiting(now.queue)],
  ["outbox on disk", "outbox", ({ now }) => now.outbox && waiting(now.outbox)],
  ["lookups", "lookups misses", ({ now }) => now.lookups > 0 && `${count(now.lookups)}, ${count(now.misses ?? 0)} without a row`],
  ["state, saved", "state_bytes", ({ now }) => now.state_bytes && bytes(now.state_bytes)],
  ["left to read", "lag_bytes lag_nanoseconds", ({ now }) => now.lag_bytes !== undefined && `${bytes(now.lag_bytes)}${oldest(now.lag_nanoseconds)}`],
  ["position", "position", ({ now }) => now.position !== undefined && bytes(now.position)],
  ["came", "in", ({ now, rates }) => `${count(now.in ?? 0)} (${rate(rates.in ?? 0)}/s)`],
  ["restored", "restored", ({ now }) => now.restored > 0 && `${count(now.restored)} of a saved state`],
  ["made", "made", ({ now }) => now.made > 0 && count(now.made)],
  ["went on", "out", ({ now, rates }) => `${count(now.out ?? 0)} (${rate(rates.out ?? 0)}/s)`],
  ["became part of others", "kept", ({ now }) => now.kept > 0 && count(now.kept)],
];

const past = [
  ["dropped", "dropped superseded undecided", (step) => {
    const dropped = (step.now.dropped ?? 0) + (step.now.superseded ?? 0) + (step.now.undecided ?? 0);
    return dropped > 0 && `${count(dropped)} (${rate(droppedRate(step))}/s)`;
  }],
  ["failed", "rejected failed dead_letters", (step) => {
    const failed = (step.now.rejected ?? 0) + (step.now.failed ?? 0);
    return failed > 0 && `${count(failed)} (${rate(errorRate(step))}/s)${step.now.dead_letters ? `, ${count(step.now.dead_letters)} that nothing reads` : ""}`;
  }],
  ["held at an end", "held", ({ now }) => now.held > 0 && count(now.held)],
  // The samples are how the time is estimated.
  ["time", "nanoseconds timed_events", ({ now, rates }) => now.nanoseconds !== undefined && `${percent((rates.nanoseconds ?? 0) / 1e9)} of a core`],
  ["made sources wait", "paused_nanoseconds", ({ now }) => now.paused_nanoseconds > 0 && span(now.paused_nanoseconds)],
  ["waited", "waited_nanoseconds", ({ now }) => now.waited_nanoseconds > 0 && span(now.waited_nanoseconds)],
  ["latency", "latency", ({ now }) => now.latency?.count > 0 && `half within ${span(now.latency.p50_nanoseconds)}, 99 % within ${span(now.latency.p99_nanoseconds)}`],
];

/** What names a step, and no figure. */
const names = ["index", "step", "kind", "type", "at"];
const said = new Set([...names, ...[...present, ...past].flatMap(([, figures]) => figures.split(" "))]);

const say = (rows, step) => rows.map(([name, , text]) => [name, text(step)]).filter(([, text]) => text);

/** The text of a figure, in the unit that its name says; none for nothing, zero and no. */
function plain(name, value) {
  if (Array.isArray(value)) return "";
  if (typeof value === "object" && value !== null) {
    return Object.entries(value).map(([inner, part]) => [title(inner), plain(inner, part)]).filter(([, text]) => text).map((pair) => pair.join(" ")).join(", ");
  }
  if (!value) return "";
  if (typeof value !== "number") return value === true ? "yes" : String(value);
  if (name.endsWith("nanoseconds")) return span(value);
  return /(^|_)bytes$/.test(name) ? bytes(value) : count(value);
}

/** The name of a figure in words, without its unit. */
const title = (name) => name.replace(/_(nanoseconds|bytes)$/, "").replaceAll("_", " ");

/** The rows of a step, each a name and a text. `sizes`: rows of its edges, which stand in the middle. */
export function facts(step, sizes) {
  const others = Object.entries(step.now).filter(([name]) => !said.has(name)).map(([name, value]) => [title(name), plain(name, value)]);
  return [...say(present, step), ...sizes, ...say(past, step), ...others.filter(([, text]) => text)];
}
