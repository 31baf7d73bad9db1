// What did not pass a step, and why: the answers of `rxd why`, the newest first.

import { make } from "./dom.js";
import { ask } from "./net.js";
import { timeOfDay } from "./format.js";

const most = 8;
const interval = 3000;

/** Keeps `place` up to date until `isOver` says so. */
export async function showWhy(place, pipeline, step, isOver) {
  let before = "";
  while (!isOver()) {
    try {
      if (document.hidden) continue;
      const found = await ask("why", { pipeline, step, limit: most });
      if (isOver()) return;
      const own = found.pipelines.flatMap(({ events }) => events);
      const text = JSON.stringify(own.map(({ number, nanoseconds }) => [number, nanoseconds]));
      // An open answer stays open while nothing new has come.
      if (text !== before) place.replaceChildren(...(own.length ? [make("h3", {}, "What did not pass"), ...own.map(answer)] : []));
      before = text;
    } catch {
      // The step may be gone, or the process has no answers.
      if (!before) return;
    } finally {
      await new Promise((resume) => setTimeout(resume, interval));
    }
  }
}

function answer(event) {
  const shown = typeof event.event === "string" ? event.event : JSON.stringify(event.event);
  const lines = (event.expressions ?? []).flatMap(({ text, result, failure, reads }) => [
    make("p", {}, make("code", {}, text), ` ${failure ? `failed: ${failure}` : `is ${JSON.stringify(result)}`}`),
    ...(reads ?? []).map(({ path, value }) => make("p", { class: "read" }, make("code", {}, path), ` is ${JSON.stringify(value)}`)),
  ]);
  const way = (event.way ?? []).map(({ step }) => step).join(" → ");
  return make("details", { class: "why" },
    make("summary", {},
      make("span", { class: "quiet" }, timeOfDay(event.time)), " ",
      make("b", { class: `word v-${event.verdict}` }, event.verdict), ` ${event.reason ?? ""} `, make("code", {}, cut(shown))),
    ...lines,
    event.message ? make("p", {}, event.message) : null,
    way ? make("p", { class: "quiet" }, `its way: ${way}`) : null,
    make("pre", {}, typeof event.event === "string" ? event.event : JSON.stringify(event.event, null, 2) ?? ""));
}

const cut = (text) => (text && text.length > 60 ? `${text.slice(0, 59)}…` : text ?? "");
