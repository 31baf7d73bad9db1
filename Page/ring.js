// The events that have been seen: a bounded number of them, the oldest go first. What was there when a pause began stays until its end.

export const mostEvents = 10000;
export const mostBytes = 16 << 20;

export class Ring {
  constructor() {
    this.events = [];
    this.start = 0;
    this.bytes = 0;
    /** Events that were not sent, because they were too many or came too fast. */
    this.missed = 0;
    this.serial = 0;
    /** The events of before a pause, which nothing pushes out; null: there is no pause. */
    this.held = null;
  }

  /** A pause begins. */
  hold() {
    if (this.held) return;
    this.held = this.events.slice(this.start);
    this.events = [];
    this.start = 0;
    this.bytes = 0;
  }

  /** The pause is over; returns the events that had to go. */
  release() {
    if (!this.held) return [];
    const held = this.held;
    this.held = null;
    this.events = held.concat(this.events.slice(this.start));
    this.start = 0;
    this.bytes += held.reduce((sum, event) => sum + event.raw.length, 0);
    return this.trim();
  }

  /** Adds an event; returns those that had to go. */
  add(event) {
    this.serial += 1;
    event.serial = this.serial;
    this.events.push(event);
    this.bytes += event.raw.length;
    return this.trim();
  }

  trim() {
    const gone = [];
    while (this.events.length - this.start > mostEvents || this.bytes > mostBytes) {
      const oldest = this.events[this.start];
      this.start += 1;
      this.bytes -= oldest.raw.length;
      gone.push(oldest);
    }
    if (this.start > 2048) {
      this.events = this.events.slice(this.start);
      this.start = 0;
    }
    return gone;
  }

  get length() {
    return (this.held?.length ?? 0) + this.events.length - this.start;
  }

  get oldest() {
    return this.held?.[0] ?? this.events[this.start] ?? null;
  }

  /** The events between two times, in the order in which they came. */
  between(from, to) {
    return [...(this.held ?? []), ...this.events.slice(this.start)].filter((event) => event.at >= from && event.at <= to);
  }
}
