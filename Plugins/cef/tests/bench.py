"""Measures a pipeline that decodes lines of CEF beside a plain loop of Python's re, and of pycef if it is there. RXD names the program."""
import os
import random
import re
import statistics
import subprocess
import tempfile
import time

try:
    import pycef
except ImportError:
    pycef = None

COUNT, RUNS = 100_000, 5
PLUGIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cef.so")
rng = random.Random(1)
lines = [f"CEF:0|Acme|Firewall|1.2|{rng.randint(1, 500)}|connection \\| blocked|{rng.randint(0, 10)}|src=10.0.{rng.randint(0, 255)}.1 spt={rng.randint(1, 65535)} "
         f"dst=192.0.2.{rng.randint(0, 255)} dpt=443 act=blocked request=http://a.example/{rng.randint(1, 9999)}?b\\=c msg=no rule matched" for _ in range(COUNT)]


def plain(line):
    version, *fields, extension = re.split(r"(?<!\\)\|", line.removeprefix("CEF:"), maxsplit=7)
    fields = [re.sub(r"\\([|\\])", r"\1", field) for field in fields]
    return fields, {key: value.replace("\\=", "=").replace("\\\\", "\\") for key, value in re.findall(r"(\w+)=((?:\\.|[^=\\])*?)(?=\s+\w+=|$)", extension)}


def run(directory, decode, name):
    with open(os.path.join(directory, "pipeline.yaml"), "w") as file:
        file.write(f"plugins: {{ cef: {PLUGIN} }}\nsources: {{ in: {{ file: {{ path: {directory}/{name}, decode: {decode} }} }} }}\n"
                   "sinks: { out: { from: in, chain: [ { filter: 'event.severity >= 0' } ], discard: {} } }\n")
    start = time.monotonic()
    subprocess.run([os.environ["RXD"], "run", os.path.join(directory, "pipeline.yaml")], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return time.monotonic() - start


with tempfile.TemporaryDirectory() as directory:
    with open(os.path.join(directory, "in"), "w") as file:
        file.writelines(line + "\n" for line in lines)
    open(os.path.join(directory, "none"), "w").close()
    times = {"none": [], "rxd": [], "re": [], "pycef": []}
    for _ in range(RUNS):
        times["none"].append(run(directory, "cef", "none"))
        times["rxd"].append(run(directory, "cef", "in"))
        for name, parse in [("re", plain), ("pycef", pycef.parse if pycef else None)]:
            start = time.monotonic()
            for line in lines if parse else []:
                parse(line)
            times[name].append(time.monotonic() - start)
    start = statistics.median(times.pop("none"))
    for name, found in times.items():
        if name == "pycef" and not pycef:
            continue
        rates = sorted(COUNT / (seconds - (start if name == "rxd" else 0)) / 1e3 for seconds in found)
        print(f"{name:<6} {rates[RUNS // 2]:6.0f} thousand lines a second ({rates[0]:.0f} to {rates[-1]:.0f})")
