// The live page of rxd: puts the parts together, follows the feed, and listens to keys.

import { byID, make, put, say } from "./dom.js";
import { Drawer } from "./drawer.js";
import { timeOfDay } from "./format.js";
import { Graph } from "./graph.js";
import { Model } from "./model.js";
import { ask, asksForToken, feed, hasSession, join, Refusal } from "./net.js";
import { saveAsTest } from "./record.js";
import { Table } from "./table.js";

const model = new Model();
const graph = new Graph(byID("graph"), open);
const table = new Table(byID("table"), open);
const drawer = new Drawer(byID("drawer"), close, (drawer) => saveAsTest(byID("test"), drawer));
/** The pipeline that is shown. */
let shown = null;
/** What `GET /ui/graph` says of it. */
let picture = null;
let stop = null;
/** After so long a silence, in milliseconds, nothing that is shown counts as present: messages come at least every two seconds. */
const patience = 6000;
let heardAt = performance.now();

// Following.

/** Follows the feed forever and reconnects after an end. Requests nothing while the page is hidden. */
async function follow() {
  for (;;) {
    if (document.hidden) await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
    stop = new AbortController();
    isFresh = true;
    heardAt = performance.now();
    try {
      // Without a name: of all pipelines no more than their state.
      await feed({ pipeline: shown ?? wanted() ?? "" }, stop.signal, take);
      lose("rxd has ended");
    } catch (error) {
      if (error.name === "AbortError") continue;
      if (error instanceof Refusal && error.status === 401) await askForLink();
      else lose(error instanceof Refusal ? error.message : "rxd does not answer");
    }
    await new Promise((resume) => setTimeout(resume, 1000));
  }
}

/** The next message is the first of its feed, and has everything. */
let isFresh = true;

function take(message) {
  heardAt = performance.now();
  if (isFresh) model.clear();
  isFresh = false;
  document.body.classList.remove("stale");
  model.take(message);
  if (message.restart) return;
  const names = [...model.pipelines.keys()];
  if (!names.includes(shown)) {
    const name = shown ?? wanted();
    if (name && !names.includes(name)) {
      notice(`There is no pipeline '${name}'.`);
      asked = null;
    }
    return choose(names.includes(wanted()) ? wanted() : names[0]);
  }
  showPipelines(names);
  const pipeline = model.pipelines.get(shown);
  if (picture?.revision !== pipeline.now.revision && !loading) load();
  showSentences();
  graph.show(pipeline);
  table.show(pipeline);
  drawer.show(pipeline);
  const isRunning = pipeline.now.state === "running";
  const { failure } = pipeline.now;
  const isDown = ["failed", "restarting"].includes(pipeline.now.state);
  const cause = isDown && failure ? `: ${failure.reason}${failure.next_try ? `; the next try is at ${timeOfDay(failure.next_try)}` : ""}` : "";
  state(isRunning ? "live" : "down", `${pipeline.now.state ?? ""}${cause} · ${timeOfDay(model.at)}`);
}

/** Nothing is known of the process any more: what is shown is the past. */
function lose(why) {
  const since = model.at ? `; what is shown is of ${timeOfDay(model.at)}` : "";
  state("lost", `${why}${since}`);
  document.body.classList.add("stale");
  model.stop();
  const pipeline = model.pipelines.get(shown);
  if (!pipeline) return;
  graph.show(pipeline, true);
  table.show(pipeline, true);
  drawer.show(pipeline);
}

setInterval(() => {
  if (document.hidden || byID("access").open || document.body.classList.contains("stale")) return;
  if (performance.now() - heardAt > patience) lose("rxd does not answer");
}, 1000);

/** Says something for a while. */
function notice(text) {
  const place = byID("notice");
  say(place, text);
  place.hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => { place.hidden = true; }, 15000);
}

function state(kind, text) {
  const place = byID("state");
  place.dataset.kind = kind;
  say(place, text);
}

function showSentences() {
  const place = byID("sentences");
  const sentences = model.sentences.slice(0, 5);
  const key = ({ text, pipeline }) => `${pipeline} ${text}`;
  if ([...place.children].map((item) => item.dataset.text).join("\n") === sentences.map(key).join("\n")) return;
  put(place, ...sentences.map((sentence) => {
    // Names in backquotes lead to what they name, also in another pipeline.
    const parts = sentence.text.split("`").map((part, index) => {
      if (index % 2 === 0) return part;
      const go = part === sentence.step ? () => openIn(sentence.pipeline, part) : part === sentence.pipeline ? () => choose(part) : null;
      return go ? make("button", { type: "button", class: "link code", click: go }, part) : make("code", {}, part);
    });
    const other = sentence.pipeline && sentence.pipeline !== shown && !sentence.text.includes(`\`${sentence.pipeline}\``);
    return make("li", { "data-text": key(sentence) }, ...parts, other ? make("span", { class: "quiet" }, ` (${sentence.pipeline})`) : null);
  }));
}

function showPipelines(names) {
  const place = byID("pipelines");
  if ([...place.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    place.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  }
  if (place.value !== shown) place.value = shown;
}

// What is shown.

const wanted = () => new URLSearchParams(location.search).get("pipeline");

/** Shows another pipeline. */
function choose(name) {
  if (!name || name === shown) return;
  shown = name;
  picture = null;
  close();
  document.title = `${name} · rxd`;
  if (asked && asked.pipeline !== name) asked = null;
  const step = asked ? `&step=${encodeURIComponent(asked.step)}` : "";
  history.replaceState(null, "", `?pipeline=${encodeURIComponent(name)}${step}`);
  // The steps of another one are wanted.
  stop?.abort();
}

let loading = false;

/** The step that the address or a sentence asks for, with its pipeline, until it has been opened. */
let asked = ((query) => (query.get("step") ? { pipeline: query.get("pipeline"), step: query.get("step") } : null))(new URLSearchParams(location.search));

/** Loads the picture, at first and after each reload. */
async function load() {
  loading = true;
  try {
    const name = shown;
    const found = await ask("ui/graph", { pipeline: name });
    if (name !== shown) return;
    picture = found;
    graph.load(found.svg);
    graph.find(byID("filter").value);
    graph.select(drawer.step?.id);
    if (drawer.step) reopen();
    if (asked?.pipeline === name) {
      if (picture.steps.some(({ id }) => id === asked.step)) open(asked.step);
      else notice(`There is no step '${asked.step}' in ${name}.`);
    }
    asked = null;
  } catch (error) {
    state("lost", error.message);
  } finally {
    loading = false;
  }
}

/** The open step may be another one since the reload; its tap goes on if its edges are the same. */
function reopen() {
  const step = picture.steps.find(({ id }) => id === drawer.step.id);
  if (!step) return close();
  if (JSON.stringify(step.lanes) === JSON.stringify(drawer.step.lanes) && step.text === drawer.step.text) return;
  drawer.open(shown, step, model, picture.answers);
}

function open(id) {
  const step = picture?.steps.find((step) => step.id === id);
  if (!step || drawer.step?.id === id) return;
  remember(id);
  drawer.open(shown, step, model, picture.answers);
  graph.select(id);
  table.select(id);
  document.body.classList.add("open");
}

/** Opens a step of any pipeline. */
function openIn(pipeline, step) {
  if (pipeline === shown) return open(step);
  asked = { pipeline, step };
  choose(pipeline);
}

/** The address leads to the step again, for a bookmark or a reloaded page. */
function remember(step) {
  const query = new URLSearchParams({ pipeline: shown, ...(step ? { step } : {}) });
  history.replaceState(null, "", `?${query}`);
}

function close() {
  if (drawer.step) remember(null);
  drawer.close();
  graph.select(null);
  table.select(null);
  document.body.classList.remove("open");
}

// The person.

byID("pipelines").addEventListener("change", (event) => choose(event.target.value));
byID("filter").addEventListener("input", (event) => {
  graph.find(event.target.value);
  table.find(event.target.value);
});
byID("smaller").addEventListener("click", () => graph.zoom(0.8));
byID("larger").addEventListener("click", () => graph.zoom(1.25));
byID("fit").addEventListener("click", () => graph.refit());
byID("help-button").addEventListener("click", help);
document.addEventListener("visibilitychange", () => {
  // A page that nobody sees costs nothing.
  if (document.hidden) {
    stop?.abort();
    drawer.rest();
  } else {
    drawer.wake();
  }
});

const keys = [
  ["← →", "the step before, the step behind", null], ["↑ ↓", "the step above, the step below in the file", null],
  ["Escape", "close", null], ["Space", "pause the lanes, go on", null], [", .", "the event before, the event behind", null],
  ["s", "save as a test", null], ["/", "find a step", null], ["[ ]", "the pipeline before, the pipeline behind", null],
  ["+ - f", "larger, smaller, fit", null], ["?", "these keys", null],
];

function help() {
  byID("help").replaceChildren(make("form", { method: "dialog" }, make("h2", {}, "Keys"),
    make("dl", { class: "keys" }, ...keys.flatMap(([key, text]) => [make("dt", {}, key), make("dd", {}, text)])),
    make("p", { class: "line end" }, make("button", { value: "close" }, "Close"))));
  byID("help").showModal();
}

/** The step next to the open one: along an edge, through the names of signals, or in the order of the file. */
function beside(key) {
  const steps = picture?.steps ?? [];
  const index = steps.findIndex(({ id }) => id === drawer.step?.id);
  if (index < 0) return steps[0]?.id;
  if (key === "ArrowUp") return steps[index - 1]?.id;
  if (key === "ArrowDown") return steps[index + 1]?.id;
  const [here, there] = key === "ArrowRight" ? ["from", "to"] : ["to", "from"];
  const known = new Set(steps.map(({ id }) => id));
  let ends = [steps[index].id];
  for (let hops = 0; hops < 8 && ends.length; hops += 1) {
    ends = picture.edges.filter((edge) => ends.includes(edge[here])).map((edge) => edge[there]);
    const found = ends.find((id) => known.has(id));
    if (found) return found;
  }
  return undefined;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const { key } = event;
  const isStep = event.target.closest?.("[data-step]");
  if (key === "Enter" && isStep) open(isStep.dataset.step);
  else if (key.startsWith("Arrow")) {
    const next = beside(key);
    if (next) open(next);
  } else if (key === "Escape") close();
  else if (key === " " && drawer.lanes && !event.target.matches("button")) drawer.togglePause();
  else if (key === "," || key === ".") drawer.lanes?.leap(key === "," ? -1 : 1);
  else if (key === "s" && drawer.lanes) saveAsTest(byID("test"), drawer);
  else if (key === "/") byID("filter").focus();
  else if (key === "+" || key === "=") graph.zoom(1.25);
  else if (key === "-") graph.zoom(0.8);
  else if (key === "f") graph.refit();
  else if (key === "?") help();
  else if (key === "[" || key === "]") {
    const names = [...model.pipelines.keys()];
    choose(names[(names.indexOf(shown) + (key === "]" ? 1 : names.length - 1)) % names.length]);
  } else return;
  event.preventDefault();
});

/** Says how to get a session; returns when there is one, or somebody wants to try again. */
async function askForLink() {
  lose(hasSession() ? "the session of this browser has ended" : "this browser has no session");
  const dialog = byID("access");
  const field = make("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  dialog.replaceChildren(make("form", { method: "dialog" },
    make("h2", {}, hasSession() ? "The session of this browser has ended" : "This browser has no session"),
    make("p", {}, hasSession() ? "rxd has been started again, or this browser has, or many other browsers have opened the page since. " : "",
      "Run ", make("code", {}, "rxd ui"), " on the machine that rxd runs on, and open the address that it prints."),
    navigator.cookieEnabled ? null : make("p", {}, "This browser takes no cookies from this page, and a session needs one."),
    asksForToken ? make("p", {}, "Or enter the token of --ui-token-file:") : null,
    make("p", { class: "line" }, asksForToken ? field : null, make("button", { value: "go", class: "main" }, asksForToken ? "Open" : "Try again"))));
  if (!dialog.open) dialog.showModal();
  // Another tab may open the address.
  const told = new AbortController();
  await new Promise((resume) => {
    dialog.addEventListener("close", resume, { signal: told.signal });
    addEventListener("storage", resume, { signal: told.signal });
  });
  told.abort();
  if (dialog.open) dialog.close();
  if (field.value && !await join(field.value.trim()).catch(() => false)) notice("This is not the token of rxd.");
}

follow();
