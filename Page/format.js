// Numbers for people, as `rxd top` writes them.

/** `0.3`, `12`, `4.2k`, `1.3M`. */
export function rate(value) {
  if (value < 0.05) return "0";
  if (value < 9999.5) return short(value, "");
  if (value < 9999500) return short(value / 1e3, "k");
  return short(value / 1e6, "M");
}

function short(value, unit) {
  const tenths = Math.round(value * 10);
  return value < 10 && tenths % 10 !== 0 ? `${(tenths / 10).toFixed(1)}${unit}` : `${Math.round(value)}${unit}`;
}

// Made once: `toLocaleString` makes another one for each number.
const whole = new Intl.NumberFormat("en-US");

/** `4,210`. */
export function count(value) {
  const rounded = Math.round(value);
  return Math.abs(rounded) < 1000 ? String(rounded) : whole.format(rounded);
}

/** `1 event`, `4,210 events`: a count with the word for one of them. */
export const number = (value, one, many = `${one}s`) => `${count(value)} ${Math.round(value) === 1 ? one : many}`;

/** `12 B`, `4.2 KiB`. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Nanoseconds as `820 µs`, `12 ms`, `3.4 s`, `12 min`. */
export function span(nanoseconds) {
  const seconds = nanoseconds / 1e9;
  const size = Math.abs(seconds);
  if (size < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (size < 1) return `${Math.round(seconds * 1e3)} ms`;
  if (size < 120) return `${seconds.toFixed(size < 10 ? 1 : 0)} s`;
  if (size < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export const percent = (share) => `${Math.round(share * 100)} %`;

/** The time of day with milliseconds, of a text such as 2026-11-23T09:23:48.763Z. */
export function timeOfDay(text) {
  const time = new Date(text);
  const pad = (number, size) => String(number).padStart(size, "0");
  return `${pad(time.getHours(), 2)}:${pad(time.getMinutes(), 2)}:${pad(time.getSeconds(), 2)}.${pad(time.getMilliseconds(), 3)}`;
}
