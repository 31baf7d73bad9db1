// "Save as a test": rxd writes a `tests:` block of what was seen and tries it out; here it is shown, to be copied or kept as a file.

import { make } from "./dom.js";
import { ask } from "./net.js";
import { number } from "./format.js";

/** Shows the dialog for what a drawer has seen. */
export async function saveAsTest(dialog, drawer) {
  const { lanes, step, pipeline } = drawer;
  const isPaused = lanes.until !== null;
  const end = Math.round(lanes.right);
  // Of a pause, what is in view; else everything since the lanes were opened, or since the last reload.
  const from = isPaused ? end - lanes.seconds * 1e9 : lanes.opened - 1e9;
  const events = lanes.ring.between(Math.max(from, lanes.opened - 1e9), end);
  const name = make("input", { value: `${step.owner} as seen ${new Date().toLocaleString("sv").slice(0, 16)}`, "aria-label": "Name of the test" });
  const answer = make("div", { class: "answer" });
  const write = async () => {
    answer.replaceChildren(make("p", { class: "quiet" }, "rxd tries it out …"));
    const head = JSON.stringify({ step: step.id, end, name: name.value });
    try {
      const test = await ask("ui/test", { pipeline }, [head, ...events.map((event) => event.raw)].join("\n"));
      show(answer, test, name.value);
    } catch (error) {
      answer.replaceChildren(make("p", { class: "bad" }, `No test: ${error.message}.`));
    }
  };
  dialog.replaceChildren(
    make("form", { method: "dialog" },
      make("h2", {}, "Save as a test"),
      make("p", {}, `${number(events.length, "event")} ${isPaused ? "in view" : "since the step was opened"}: what the sources sent is the input, what came of "${step.owner}" is expected.`),
      lanes.ring.missed ? make("p", { class: "bad" }, `${number(lanes.ring.missed, "event")} ${lanes.ring.missed === 1 ? "was" : "were"} not seen, so the test may not pass.`) : null,
      make("p", { class: "line" }, name, make("button", { type: "button", class: "main", click: write }, "Write")),
      answer,
      make("p", { class: "line end" }, make("button", { value: "close" }, "Close"))));
  dialog.showModal();
  await write();
}

function show(place, test, name) {
  const verdict = test.passes
    ? make("p", { class: "good" }, "It passes under rxd test.")
    : make("div", { class: "bad" }, make("p", {}, "It does not pass as it stands:"), make("pre", {}, test.problem));
  const copied = make("span", { class: "quiet" });
  const copy = async () => {
    await navigator.clipboard.writeText(test.text);
    copied.textContent = "copied";
  };
  const link = make("a", { class: "button", download: `${name.replace(/[^\w-]+/g, "-")}.yaml`, href: URL.createObjectURL(new Blob([test.text], { type: "application/yaml" })) }, "Keep as a file");
  place.replaceChildren(verdict, make("pre", { class: "yaml" }, test.text),
    make("p", { class: "line" }, make("button", { type: "button", click: copy }, "Copy"), link, copied));
}
