// What is known of the process: the counts of its pipelines, steps and edges, and the rates that follow from them.

/** The time in seconds over which rates are smoothed. */
const smoothing = 1;
/** Counts whose rates are wanted, by the kind of the element. */
const counted = {
  step: ["in", "inner_in", "out", "dropped", "superseded", "undecided", "rejected", "failed", "nanoseconds", "paused_nanoseconds",
    "waited_nanoseconds", "bytes"],
  edge: ["events", "bytes"],
};

class Element {
  constructor(kind, names) {
    this.kind = kind;
    Object.assign(this, names);
    this.now = {};
    this.rates = {};
    this.before = {};
  }

  set(members) {
    for (const [name, value] of Object.entries(members)) {
      if (value === null) delete this.now[name];
      else this.now[name] = value;
    }
  }

  /** Goes on by so many seconds. */
  pass(seconds) {
    for (const name of counted[this.kind] ?? []) {
      const value = this.now[name] ?? 0;
      const more = Math.max(0, value - (this.before[name] ?? value));
      this.before[name] = value;
      if (seconds <= 0) continue;
      const weight = 1 - Math.exp(-seconds / smoothing);
      const rate = this.rates[name] ?? 0;
      this.rates[name] = more === 0 && rate < 0.01 ? 0 : rate + (more / seconds - rate) * weight;
    }
  }
}

export class Model {
  constructor() {
    this.clear();
  }

  clear() {
    this.pipelines = new Map();
    /** What to know first: texts, each with the pipeline and the step that it is about. */
    this.sentences = [];
    this.nanoseconds = 0;
    this.at = "";
    /** What the clock of the process is ahead of `performance.now()`, in nanoseconds. */
    this.offset = null;
    /** The time at which the clock stands still, because nothing is heard; null: it goes. */
    this.stoppedAt = null;
  }

  /** Nothing is heard of the process any more: nothing moves, as far as is known. */
  stop() {
    if (this.stoppedAt !== null) return;
    this.stoppedAt = this.clock;
    for (const pipeline of this.pipelines.values()) {
      for (const part of [...pipeline.steps.values(), ...pipeline.edges.values()]) part.rates = {};
    }
  }

  pipeline(name) {
    if (!this.pipelines.has(name)) this.pipelines.set(name, { name, now: {}, steps: new Map(), edges: new Map() });
    return this.pipelines.get(name);
  }

  /** Takes a message of the feed. */
  take(message) {
    if (message.restart) return this.clear();
    for (const change of message.changes ?? []) {
      const pipeline = this.pipeline(change.pipeline);
      if (change.id !== undefined) {
        if (!pipeline.steps.has(change.id)) pipeline.steps.set(change.id, new Element("step", { id: change.id }));
        pipeline.steps.get(change.id).set(change.set);
      } else if (change.from !== undefined) {
        const key = `${change.from}>${change.to}`;
        if (!pipeline.edges.has(key)) {
          pipeline.edges.set(key, new Element("edge", { from: change.from, to: change.to, output: change.output }));
        }
        pipeline.edges.get(key).set(change.set);
      } else {
        for (const [name, value] of Object.entries(change.set)) pipeline.now[name] = value;
      }
    }
    if (message.sentences) this.sentences = message.sentences;
    const seconds = this.nanoseconds ? (message.nanoseconds - this.nanoseconds) / 1e9 : 0;
    for (const pipeline of this.pipelines.values()) {
      for (const step of pipeline.steps.values()) step.pass(seconds);
      for (const edge of pipeline.edges.values()) edge.pass(seconds);
    }
    this.stoppedAt = null;
    this.nanoseconds = message.nanoseconds;
    this.at = message.at;
    this.follow(message.nanoseconds);
  }

  /** Sets the clock: messages come late, never early, so the earliest of them are believed. */
  follow(nanoseconds) {
    const ahead = nanoseconds - performance.now() * 1e6;
    if (this.offset === null || ahead > this.offset || this.offset - ahead > 2e9) this.offset = ahead;
    else this.offset += (ahead - this.offset) * 0.02;
  }

  /** The time of the process's clock now, in nanoseconds. */
  get clock() {
    if (this.stoppedAt !== null) return this.stoppedAt;
    return this.offset === null ? this.nanoseconds : performance.now() * 1e6 + this.offset;
  }
}

/** What a step is doing, for its colour: `blocked` makes its sources wait, `waiting` is made to wait, `busy` takes more than half a core. */
export function condition(step) {
  if (step.now.pauses_input || (step.rates.paused_nanoseconds ?? 0) > 1e8) return "blocked";
  if (step.now.waits && (step.rates.waited_nanoseconds ?? 0) > 1e8) return "waiting";
  return (step.rates.nanoseconds ?? 0) > 5e8 ? "busy" : "";
}

/** Events that a step holds, has in its windows and buffers, or has queued. */
export const held = (step) => Math.max(step.now.holding ?? 0, step.now.kept_events ?? 0, step.now.queue?.events ?? 0, step.now.outbox?.events ?? 0);

export const droppedRate = ({ rates }) => (rates.dropped ?? 0) + (rates.superseded ?? 0) + (rates.undecided ?? 0);
export const errorRate = ({ rates }) => (rates.rejected ?? 0) + (rates.failed ?? 0);
