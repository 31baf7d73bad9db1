"""Measures a plugin for a binary format: next to a plain loop of its library, and as part of rxd's pipelines.

    python3 bench_format.py FORMAT PLUGIN PROGRAM   (FORMAT: msgpack, cbor; PROGRAM: made from tests/bench.c)

Other formats call `measure`.
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


def measure(name, plugin, program, dumps, parameters=""):
    """`dumps`: the bytes of an event. `parameters`: of the decoder and the encoder, in YAML."""
    plugin, program = os.path.abspath(plugin), os.path.abspath(program)
    component = f"{{ {name}: {parameters} }}" if parameters else name
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
        read = "file: {{ path: {0}, decode: {1} }}".format
        cases = {
            "start": f"sources: {{ in: {{ {read('events.none', component)} }} }}\nsinks: {{ out: {{ from: in, discard: {{}} }} }}\n",
            "decode": f"sources: {{ in: {{ {read('events', component)} }} }}\nsinks: {{ out: {{ from: in, discard: {{}} }} }}\n",
            "encode": f"sources: {{ in: {{ {read('events.json', 'json')} }} }}\nsinks: {{ out: {{ from: in, file: {{ path: out, encode: {component} }} }} }}\n"}
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


def main():
    name = sys.argv[1]
    module = importlib.import_module({"msgpack": "msgpack", "cbor": "cbor2"}[name])
    measure(name, sys.argv[2], sys.argv[3], module.packb if name == "msgpack" else module.dumps)


if __name__ == "__main__":
    main()
