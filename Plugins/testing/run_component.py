"""Runs one component of a native plugin without rxd, until it ends or gets SIGTERM:

    run_component.py PLUGIN.so source NAME PARAMETERS [MILLISECONDS | "fail N"]
    run_component.py PLUGIN.so sink NAME PARAMETERS < EVENTS

A source's events go to standard output, one per line; with NAMES in the environment, each as {"name", "event"}. They are
delivered in rounds, each with all waiting events: a round takes MILLISECONDS, or each Nth fails. A sink receives the events of
standard input, at most 1024 at once. The component's log, counts and gauges go to standard error. A sink that gets SIGTERM is
told that nothing waits for its results. Status: 0, 1: it has failed, 78: the parameters are refused."""

import json
import os
import signal
import sys
import threading
import time
from typing import Any

import host

CREDIT = int(os.environ.get("CREDIT", "4096"))  # the maximum of undelivered events of a source
NAMES = "NAMES" in os.environ
MOST = 1024


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tell_log(instance: host.Instance) -> None:
    for line in instance.log():
        level, _, message = line.partition(" ")
        say(f"{level}: {message}")


def failed(end: dict[str, Any]) -> int:
    if end["status"] != host.FAILED:
        return 0
    say(f"failed at '{end['at']}': {end['error']}")
    return 1


def written(item: dict[str, Any]) -> Any:
    if "event" not in item:
        return {"rejected": item["rejected"], "reason": item["error"]}
    return {"name": item.get("name"), "event": item["event"]} if NAMES else item["event"]


def run_source(instance: host.Instance, more: str) -> int:
    fail_each = int(more[5:]) if more.startswith("fail ") else 0
    pause = 0 if fail_each or not more else int(more) / 1000
    signal.signal(signal.SIGTERM, lambda *_: instance.begin_stop())
    instance.start(CREDIT)
    rounds = 0
    while True:
        is_over = instance.has_ended  # before the last check: nothing arrives after it
        batch = instance.take(0 if is_over else 0.02)
        tell_log(instance)
        if batch is None:
            if is_over:
                break
            continue
        events = batch[0]
        while (batch := instance.take(0)) is not None:
            events += batch[0]
        rounds += 1
        fails = fail_each > 0 and rounds % fail_each == 0
        if pause:
            time.sleep(pause)
        if not fails:
            sys.stdout.write("".join(json.dumps(written(item)) + "\n" for item in events))
            sys.stdout.flush()
        for item in events:
            if item["token"] != 0:
                instance.acknowledge(item["token"], fails)
        instance.credit(len(events))
    tell_log(instance)
    return failed(instance.join())


def evaluate(kind: str, template: Any, event: Any) -> Any:
    """The result of a template that contains `event` or members of it, or of an expression that is one of these."""
    if not isinstance(template, str):
        return host.ABSENT
    if kind == "expression":
        return event if template == "event" else event.get(template.removeprefix("event."), host.ABSENT)
    parts = template.split("{{ event")
    text = parts[0]
    for part in parts[1:]:
        path, _, rest = part.partition(" }}")
        value = event
        if path:
            value = event.get(path[1:]) if isinstance(event, dict) else None
        text += (value if isinstance(value, str) else json.dumps(value)) + rest
    return text


def close_at_signal(instance: host.Instance) -> threading.Event:
    """SIGTERM, which all threads block, must be noticed while the main thread is in the plugin."""
    closing = threading.Event()

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        closing.set()
        instance.begin_closing()

    threading.Thread(target=wait, daemon=True).start()
    return closing


def run_sink(instance: host.Instance, templates: list[tuple[str, Any]]) -> int:
    closing = close_at_signal(instance)
    waiting: list[Any] = []
    delivered = refused = 0
    is_over = is_failing = False
    pause = 0.5
    end: dict[str, Any] = {"status": host.OK}
    while True:
        while len(waiting) < MOST and not is_over:
            line = sys.stdin.readline()
            is_over = not line
            if line:
                waiting.append(json.loads(line))
        if not waiting or closing.is_set():
            break
        end = instance.write(*waiting, arguments=[[evaluate(*template, event) for template in templates] for event in waiting])
        tell_log(instance)
        for message in end["refused"].values():
            say(f"refused: {message}")
        status = end["status"]
        if status == host.FAILED:
            break
        if status == host.RETRY and not is_failing:
            say(f"warning: {end['error']}; trying again")
        if status == host.OK and is_failing:
            say("info: works again")
        is_failing = status == host.RETRY
        settled = len(waiting) if status == host.OK else end["delivered"]
        single = set(end["deliveredAt"])
        left = [event for index, event in enumerate(waiting)
                if index >= settled and index not in single and str(index) not in end["refused"]]
        refused += len(end["refused"])
        delivered += len(waiting) - len(left) - len(end["refused"])
        waiting = left
        if is_failing:
            closing.wait(pause)
            pause = min(2 * pause, 30)
        else:
            pause = 0.5
    say(f"delivered {delivered}, refused {refused}")
    return failed(end)


def main() -> int:
    if len(sys.argv) < 5 or sys.argv[2] not in ("source", "sink"):
        say(__doc__ or "")
        return 64
    path, kind, name, given = sys.argv[1:5]
    if kind == "sink":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before a plugin starts threads
    plugin = host.Plugin(path)
    parameters = json.loads(given)
    templates = [(its["type"], parameters.pop(its["name"], its.get("default")))
                 for its in plugin.component(kind, name).get("parameters", []) if its["type"] in ("expression", "template")]
    try:
        instance = plugin.open(kind, name, **parameters)
    except host.Refused as refusal:
        say(f"refused at '{refusal.at}': {refusal}")
        return 78
    with instance:
        return run_source(instance, sys.argv[5] if len(sys.argv) > 5 else "") if kind == "source" else run_sink(instance, templates)


if __name__ == "__main__":
    sys.exit(main())
