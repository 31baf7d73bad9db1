// The events that have been seen: a bounded number of them, the oldest go first.

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
  }

  /** Adds an event; returns those that had to go. */
  add(event) {
    this.serial += 1;
    event.serial = this.serial;
    this.events.push(event);
    this.bytes += event.raw.length;
    const gone = [];
    while (this.length > mostEvents || this.bytes > mostBytes) {
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
    return this.events.length - this.start;
  }

  get oldest() {
    return this.length ? this.events[this.start] : null;
  }

  /** The events between two times, in the order in which they came. */
  between(from, to) {
    return this.events.slice(this.start).filter((event) => event.at >= from && event.at <= to);
  }
}
