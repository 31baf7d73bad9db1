// Which of many elements are in view.

/** So few are all shown at once. */
const few = 100;
/** The others are shown by turns: each at one of so many refreshes, within two seconds where one comes every 250 ms. */
const turns = 8;

/** Elements of a place that scrolls: what is shown of those in view is of now, of the others of a moment ago. */
export class InView {
  constructor(place) {
    this.seen = new Set();
    this.size = 0;
    this.turn = 0;
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.seen.add(target);
        else this.seen.delete(target);
      }
    }, { root: place, rootMargin: "100px" });
  }

  watch(element) {
    this.observer.observe(element);
    this.size += 1;
  }

  forget(element) {
    this.observer.unobserve(element);
    this.seen.delete(element);
    this.size -= 1;
  }

  clear() {
    this.observer.disconnect();
    this.seen.clear();
    this.size = 0;
  }

  /** Begins a refresh. */
  begin() {
    this.turn = (this.turn + 1) % turns;
  }

  /** Whether the element is shown at this refresh; `index` is its place among all. */
  isDue(element, index) {
    return this.size <= few || index % turns === this.turn || this.seen.has(element);
  }
}
