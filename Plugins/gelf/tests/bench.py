"""Measures a pipeline that decodes messages beside a plain loop of Python's json, zlib and datetime. RXD names the program."""
import datetime
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
import zlib

COUNT, RUNS = 200_000, 5
HERE = os.path.dirname(os.path.abspath(__file__))
PLUGIN = os.path.join(os.path.dirname(HERE), "gelf.so")
rng = random.Random(1)
messages = [json.dumps({"version": "1.1", "host": f"web{rng.randint(1, 99)}", "short_message": f"request {index} took {rng.randint(1, 900)} ms", "level": rng.randint(0, 7),
                        "timestamp": 1764400000 + index / 1000, "_path": f"/item/{rng.randint(1, 9999)}", "_status": 200}) for index in range(COUNT)]


def python(data):
    count = 0
    for document in zlib.decompress(data).split(b"\0"):
        event = json.loads(document)
        event["timestamp"] = datetime.datetime.fromtimestamp(event["timestamp"], datetime.timezone.utc)
        count += 1
    assert count == COUNT


def run(directory, path, decode):
    with open(os.path.join(directory, "pipeline.yaml"), "w") as file:
        file.write(f"plugins: {{ gelf: {PLUGIN} }}\nsources: {{ in: {{ file: {{ path: {path}, decode: {decode} }} }} }}\nsinks: {{ out: {{ from: in, discard: {{}} }} }}\n")
    start = time.monotonic()
    subprocess.run([os.environ["RXD"], "run", os.path.join(directory, "pipeline.yaml")], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return time.monotonic() - start


with tempfile.TemporaryDirectory() as directory:
    data = {"gelf": zlib.compress("\0".join(messages).encode()), "json": "\n".join(messages).encode(), "none": b""}
    for name, content in data.items():
        with open(os.path.join(directory, name), "wb") as file:
            file.write(content)
    times = {"python": [], "gelf": [], "json": [], "none": []}
    for _ in range(RUNS):
        start = time.monotonic()
        python(data["gelf"])
        times["python"].append(time.monotonic() - start)
        times["gelf"].append(run(directory, os.path.join(directory, "gelf"), "{ gelf: { limit: 1GiB } }"))
        times["json"].append(run(directory, os.path.join(directory, "json"), "json"))
        times["none"].append(run(directory, os.path.join(directory, "none"), "gelf"))
    start = statistics.median(times.pop("none"))
    for name, found in times.items():
        rates = sorted(COUNT / (seconds - (start if name != "python" else 0)) / 1e3 for seconds in found)
        print(f"{name:<7} {rates[RUNS // 2]:6.0f} thousand messages a second ({rates[0]:.0f} to {rates[-1]:.0f})")
