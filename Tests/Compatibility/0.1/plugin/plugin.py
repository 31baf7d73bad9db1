#!/usr/bin/env python3
"""A plugin of contract 1 that speaks the line protocol itself: a source with positions, an operator with a state, a sink."""
import json
import sys

SPEC = {
    "plugin": "old-lines", "version": "1.0.0", "summary": "Components of contract 1.", "contract": 1,
    "components": [
        {"kind": "source", "name": "oldCount", "summary": "Counts.", "recovery": "position",
         "parameters": [{"name": "to", "type": "integer", "primary": True, "required": True, "help": "The last number."}]},
        {"kind": "operator", "name": "oldSum", "summary": "Adds up.", "state": {"version": 1}, "memory": "The sum.",
         "parameters": [{"name": "value", "type": "expression", "primary": True, "required": True, "help": "What is added."}]},
        {"kind": "sink", "name": "oldLines", "summary": "Writes lines.", "confirmation": "system",
         "parameters": [{"name": "path", "type": "text", "primary": True, "required": True, "help": "The file."}]},
    ],
}
instances = {}
# What `to` of a frame that is about an instance, and has an id, does with it.
credit = {}


def send(frame):
    print(json.dumps(frame, separators=(",", ":")), flush=True)


def count(number):
    one = instances[number]
    while one["next"] <= one["to"] and credit.get(number, 0) > 0:
        credit[number] -= 1
        send({"from": number, "events": [{"n": one["next"]}], "position": one["next"]})
        one["next"] += 1
    if one["next"] > one["to"] and not one["done"]:
        one["done"] = True
        send({"from": number, "complete": True})


for line in sys.stdin:
    frame = json.loads(line)
    if "hello" in frame:
        assert frame["hello"] == 1
        send({"spec": SPEC})
    elif "open" in frame:
        parameters = frame["parameters"]
        instances[frame["open"]] = {
            "kind": frame["kind"], "sum": frame.get("state", 0), "path": parameters.get("path"), "to": parameters.get("to"),
            "next": frame.get("position", 0) + 1 if "position" in frame else 1, "done": False}
        send({"opened": frame["open"]})
    elif "ping" in frame:
        send({"pong": frame["ping"]})
    elif "close" in frame or "flush" in frame:
        pass
    elif "credit" in frame:
        credit[frame["to"]] = credit.get(frame["to"], 0) + frame["credit"]
        count(frame["to"])
    elif "acknowledged" in frame or "failed" in frame:
        pass
    elif "stop" in frame:
        if not instances[frame["to"]]["done"]:
            instances[frame["to"]]["done"] = True
            send({"from": frame["to"], "complete": True})
    elif "id" in frame:
        one = instances[frame["to"]]
        if "save" in frame:
            send({"id": frame["id"], "state": one["sum"]})
        elif "event" not in frame:
            send({"id": frame["id"]})
        elif one["kind"] == "operator":
            one["sum"] += frame["with"]["value"]
            send({"id": frame["id"], "events": [{"sum": one["sum"]}]})
        else:
            with open(one["path"], "a") as file:
                file.write(json.dumps(frame["event"]) + "\n")
            send({"id": frame["id"]})
