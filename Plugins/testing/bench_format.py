"""Measures a plugin for a binary format: next to a plain loop of its library, and as part of rxd's pipelines.

    python3 bench_format.py FORMAT PLUGIN PROGRAM   (FORMAT: msgpack, cbor; PROGRAM: made from tests/bench.c)
"""
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

COUNT, RUNS = 60_000, 5


def reading(rng, index):
    return {"device": f"sensor-{rng.randint(0, 999)}", "sequence": index, "time": 1_764_400_000 + index, "celsius": round(rng.uniform(-20, 90), 2),
            "ok": rng.random() < 0.9, "tags": ["floor-2", "north"], "position": {"x": rng.uniform(0, 100), "y": rng.uniform(0, 100)}, "note": None}


def run(rxd, directory, text):
    path = os.path.join(directory, "pipeline.yaml")
    with open(path, "w") as file:
        file.write(text)
    start = time.monotonic()
    subprocess.run([rxd, "run", path, "--state-dir", os.path.join(directory, "state")], cwd=directory, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return time.monotonic() - start


def main():
    name, plugin, program = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
    module = importlib.import_module({"msgpack": "msgpack", "cbor": "cbor2"}[name])
    dumps = module.packb if name == "msgpack" else module.dumps
    rng = random.Random(1)
    events = [reading(rng, index) for index in range(COUNT)]
    with tempfile.TemporaryDirectory() as directory:
        data = os.path.join(directory, "events")
        with open(data, "wb") as file:
            file.writelines(map(dumps, events))
        with open(data + ".json", "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        subprocess.run([program, plugin, data], check=True)
        rxd = os.environ.get("RXD")
        if not rxd:
            print("set RXD to the program for figures of whole pipelines")
            return
        head = f"plugins: {{ {name}: {plugin} }}\n"
        open(data + ".none", "w").close()
        cases = {
            "start": f"sources: {{ in: {{ file: {{ path: events.none, decode: {name} }} }} }}\nsinks: {{ out: {{ from: in, discard: {{}} }} }}\n",
            "decode": f"sources: {{ in: {{ file: {{ path: events, decode: {name} }} }} }}\nsinks: {{ out: {{ from: in, discard: {{}} }} }}\n",
            "encode": f"sources: {{ in: {{ file: {{ path: events.json, decode: json }} }} }}\nsinks: {{ out: {{ from: in, file: {{ path: out, encode: {name} }} }} }}\n"}
        times = {case: [] for case in cases}
        for _ in range(RUNS):
            for case, text in cases.items():
                if os.path.exists(os.path.join(directory, "out")):
                    os.remove(os.path.join(directory, "out"))
                times[case].append(run(rxd, directory, head + text))
        start = statistics.median(times.pop("start"))
        for case, found in times.items():
            rates = sorted(COUNT / max(seconds - start, 1e-9) for seconds in found)
            print(f"rxd, {case:<6} {rates[RUNS // 2] / 1e3:6.0f} thousand events a second ({rates[0] / 1e3:.0f} to {rates[-1] / 1e3:.0f})")


main()
