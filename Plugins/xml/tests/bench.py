"""Measures a pipeline that decodes a document beside a plain loop of Python's ElementTree, which stands on expat. RXD names the program."""
import os
import random
import statistics
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree

COUNT, RUNS = 100_000, 5
PLUGIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "xml.so")
rng = random.Random(1)
document = "<orders>" + "".join(f'<order id="{index}"><customer>c{rng.randint(1, 999)}</customer><item sku="a{rng.randint(1, 99)}">pen &amp; ink</item>'
                                f"<total>{rng.randint(1, 9999)}</total></order>\n" for index in range(COUNT)) + "</orders>"

with tempfile.TemporaryDirectory() as directory:
    for name, content in [("in", document), ("none", "<orders/>")]:
        with open(os.path.join(directory, name), "w") as file:
            file.write(content)
    times = {"rxd": [], "none": [], "etree": []}
    for _ in range(RUNS):
        for name, path in [("rxd", "in"), ("none", "none")]:
            with open(os.path.join(directory, "pipeline.yaml"), "w") as file:
                file.write(f"plugins: {{ xml: {PLUGIN} }}\nsources: {{ in: {{ file: {{ path: {directory}/{path}, decode: {{ xml: orders/order }} }} }} }}\nsinks: {{ out: {{ from: in, discard: {{}} }} }}\n")
            start = time.monotonic()
            subprocess.run([os.environ["RXD"], "run", os.path.join(directory, "pipeline.yaml")], check=True, stdin=subprocess.DEVNULL, capture_output=True)
            times[name].append(time.monotonic() - start)
        start = time.monotonic()
        with open(os.path.join(directory, "in"), "rb") as file:
            assert sum(1 for _, element in ElementTree.iterparse(file) if element.tag == "order") == COUNT
        times["etree"].append(time.monotonic() - start)
    start = statistics.median(times.pop("none"))
    for name, found in times.items():
        rates = sorted(COUNT / (seconds - (start if name == "rxd" else 0)) / 1e3 for seconds in found)
        print(f"{name:<6} {rates[RUNS // 2]:6.0f} thousand elements a second ({rates[0]:.0f} to {rates[-1]:.0f})")
