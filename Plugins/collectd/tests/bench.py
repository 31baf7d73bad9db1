"""Measures the plugin beside a plain loop of libcollectdclient over packets as collectd makes them; RXD names the program."""
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from test_collectd import HOST, INTERVAL_HIGH, PLUGIN, PLUGIN_INSTANCE, PLUGIN_NAME, RXD, TIME_HIGH, TYPE, TYPE_INSTANCE, high, number, text, values  # noqa: E402

LISTS, RUNS = 150_000, 5
rng = random.Random(1)


def packets():
    """Packets of up to 1452 bytes, each beginning with its host: what a machine with 16 processors and some disks sends."""
    packet, made = b"", []
    for index in range(LISTS):
        if index % 3 == 0:
            lists = text(PLUGIN_NAME, "cpu") + text(PLUGIN_INSTANCE, str(index % 16)) + text(TYPE, "cpu") + text(TYPE_INSTANCE, rng.choice(["idle", "user", "wait"])) + values(("derive", rng.randint(0, 2**40)))
        elif index % 3 == 1:
            lists = text(PLUGIN_NAME, "interface") + text(PLUGIN_INSTANCE, "eth0") + text(TYPE, "if_octets") + text(TYPE_INSTANCE, "") + values(("derive", rng.randint(0, 2**40)), ("derive", rng.randint(0, 2**40)))
        else:
            lists = text(PLUGIN_NAME, "load") + text(PLUGIN_INSTANCE, "") + text(TYPE, "load") + values(*[("gauge", rng.uniform(0, 9))] * 3)
        head = number(TIME_HIGH, high(1764400000_000000000 + index * 1000)) + number(INTERVAL_HIGH, high(10_000000000))
        if len(packet) + len(head + lists) > 1452:
            made.append(packet)
            packet = b""
        packet += (text(HOST, f"web{rng.randint(1, 99)}.example.org") if not packet else b"") + head + lists
    return made + [packet]


def run(directory, name):
    path = os.path.join(directory, "pipeline.yaml")
    with open(path, "w") as file:
        file.write(f"plugins: {{ collectd: {PLUGIN} }}\nsources: {{ in: {{ file: {{ path: {directory}/{name}, decode: collectd }} }} }}\nsinks: {{ out: {{ from: in, discard: {{}} }} }}\n")
    start = time.monotonic()
    subprocess.run([RXD, "run", path, "--state-dir", os.path.join(directory, "state")], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return time.monotonic() - start


with tempfile.TemporaryDirectory() as directory:
    with open(os.path.join(directory, "packets"), "wb") as file:
        file.write(b"".join(packets()))
    open(os.path.join(directory, "none"), "w").close()
    subprocess.run([os.path.join(HERE, "..", "build", "bench"), PLUGIN, os.path.join(directory, "packets")], check=True)
    if RXD:
        times = {name: [run(directory, name) for _ in range(RUNS)] for name in ["none", "packets"]}
        start = statistics.median(times["none"])
        rates = sorted(LISTS / (seconds - start) / 1e3 for seconds in times["packets"])
        print(f"rxd, from a file: {rates[RUNS // 2]:.0f} thousand lists of values a second ({rates[0]:.0f} to {rates[-1]:.0f})")
