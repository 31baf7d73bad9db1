"""The cost of viewers: CPU per event of a busy pipeline without a viewer, with the live page open, and with the lanes
of a step open in it; the same with a browser that stays open for ten minutes."""
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse

from .daemon import Daemon
from .living import free_port, pipeline, verdict, wait_for_port
from .machine import PIPELINES, Fault, remove, say


class Reader:
    """Requests an endless answer from the control socket, and reads it."""

    def __init__(self, path, target):
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(path)
        self.connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.head = self.connection.recv(4096)
        if not self.head.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"{target}: {self.head[:200]!r}")
        self.bytes = 0
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while block := self.connection.recv(1 << 16):
            self.bytes += len(block)

    def close(self):
        self.connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.connection.close()


FEED = "/ui/feed?" + urllib.parse.urlencode({"pipeline": "looked", "step": "summary/map"})
TAP = "/tap?" + urllib.parse.urlencode([("pipeline", "looked"), ("edge", "events"), ("edge", "* -> summary/map"), ("edge", "summary")])
WAYS = {"nobody looks": [], "the page is open": [FEED], "and the lanes of a step": [FEED, TAP]}


def looking(bench, rounds=5, seconds=4):
    """Rounds of all modes, alternating, in one process; prints CPU per event, and its ratio to that of no viewer."""
    data, output, port = bench.generate("events", 200_000), bench.file("looked.out"), free_port()
    open(output, "w").close()
    control = os.path.join(bench.data, "c.sock")
    found = {way: [] for way in WAYS}
    sent = {way: 0 for way in WAYS}
    environment = {"BENCH_PORT": str(port), "BENCH_OUTPUT": output, "RXD_CONTROL_SOCKET": control}
    with Daemon(bench, pipeline("looked"), environment=environment) as daemon:
        wait_for_port(port, daemon)
        for number in range(rounds + 1):
            for way, targets in WAYS.items():
                with contextlib.ExitStack() as stack:
                    readers = [stack.enter_context(contextlib.closing(Reader(control, target))) for target in targets]
                    cpu = daemon.cpu
                    done = subprocess.run(
                        [bench.program("post"), str(port), data, "1000", "2", str(seconds), output],
                        capture_output=True, text=True, check=True)
                    events = json.loads(done.stdout)["events"]
                    # The first round only warms up.
                    if number > 0:
                        found[way].append((daemon.cpu - cpu) / events * 1e9)
                        sent[way] += sum(reader.bytes for reader in readers)
                with open(output, "r+") as file:
                    file.truncate(0)
    remove(output)
    for way, costs in found.items():
        ratios = sorted(cost / quiet for cost, quiet in zip(costs, found["nobody looks"]))
        say(f"looking        {way:<26}{statistics.median(costs):>7.0f} ns of CPU an event ({min(costs):.0f}-{max(costs):.0f}),"
            f" {statistics.median(ratios):.3f} of nobody ({ratios[0]:.3f}-{ratios[-1]:.3f}); {sent[way] / rounds / seconds / 1000:.0f} kB/s")
        if way == "the page is open":
            open_page = statistics.median(ratios)
    say(f"{'':<15}with the page open, {verdict([('of the CPU of nobody', open_page, 1.02, True)])}")
    return found


def browsing(bench, blocks=20, seconds=30):
    """The live page in Chromium for ten minutes under full load, with two minutes without a viewer before and after.

    The browser runs on this machine, where it takes time from rxd and the feed, so only the CPU of rxd per event counts.
    It gets the remaining time, unlike on a machine of its own.
    """
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        say("browsing       needs chromium and chromium-driver")
        return {}
    sys.path.insert(0, os.path.join(PIPELINES, "..", "..", "Tests", "Page"))
    from browser import Browser
    data, output, port = bench.generate("events", 200_000), bench.file("looked.out"), free_port()
    control = os.path.join(bench.data, "c.sock")
    environment = {"BENCH_PORT": str(port), "BENCH_OUTPUT": output, "RXD_CONTROL_SOCKET": control,
                   "RXD_UI_LISTEN": f"127.0.0.1:{free_port()}"}
    found = {"nobody": [], "browser": []}
    open(output, "w").close()
    with Daemon(bench, pipeline("looked"), environment=environment) as daemon:
        wait_for_port(port, daemon)

        def block():
            cpu = daemon.cpu
            done = subprocess.run([bench.program("post"), str(port), data, "1000", "2", str(seconds), output],
                                  capture_output=True, text=True, check=True)
            with open(output, "r+") as file:
                file.truncate(0)
            return (daemon.cpu - cpu) / json.loads(done.stdout)["events"] * 1e9

        block()
        found["nobody"] += [block() for _ in range(4)]
        resident = daemon.resident
        address = subprocess.run([bench.rxd, "ui", "--socket", control], capture_output=True, text=True, check=True).stdout.strip()
        with Browser() as browser:
            browser.open(address)
            browser.wait("return document.querySelector('#state').dataset.kind", until=lambda kind: kind == "live")
            found["browser"] += [block() for _ in range(blocks)]
            state = browser.run("return document.querySelector('#state').dataset.kind")
            noise = browser.errors()
        grown = daemon.resident - resident
        found["nobody"] += [block() for _ in range(4)]
    remove(output)
    if state != "live" or noise:
        raise Fault(f"browsing: after {blocks * seconds} s the page is {state!r}: {noise[:5]}")
    nobody, browser = (statistics.median(found[way]) for way in ("nobody", "browser"))
    say(f"browsing       {blocks * seconds} s in Chromium: {browser:.0f} ns of CPU an event ({min(found['browser']):.0f}-{max(found['browser']):.0f}), nobody"
        f" {nobody:.0f} ({min(found['nobody']):.0f}-{max(found['nobody']):.0f}): {browser / nobody:.3f}; {grown / 1e6:+.1f} MB\n               "
        + verdict([("of the CPU of nobody", browser / nobody, 1.02, True)]))
    return found


#: The limit for the median time between two refreshes of a page with 1,000 steps, in milliseconds. Two quiet cores that
#also run the browser take 320.
LIMIT_OF_REFRESH = 500


def refreshing(bench, seconds=12):
    """How often the live page in Chromium refreshes the counts of 1,000 steps, on the cores of rxd."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        say("refreshing     needs chromium and chromium-driver")
        return {}
    sys.path.insert(0, os.path.join(PIPELINES, "..", "..", "Tests", "Page"))
    from browser import Browser
    from steps import NOTE_REFRESHES, many
    source, text, control, port = bench.file("many.in"), bench.file("many.yaml"), os.path.join(bench.data, "c.sock"), free_port()
    open(source, "w").close()
    with open(text, "w") as file:
        file.write(many(1000).replace("INPUT", source))
    environment = {"RXD_CONTROL_SOCKET": control, "RXD_UI_LISTEN": f"127.0.0.1:{port}"}
    with Daemon(bench, text, environment=environment) as daemon:
        wait_for_port(port, daemon)
        address = subprocess.run([bench.rxd, "ui", "--socket", control], capture_output=True, text=True, check=True).stdout.strip()
        with Browser() as browser:
            browser.open(address)
            browser.wait("return document.querySelectorAll('tbody tr').length", until=lambda count: count >= 900)
            browser.run(NOTE_REFRESHES)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                with open(source, "a") as file:
                    file.write("abc\n")
                time.sleep(0.05)
            times = [at for at, _ in browser.run("return window.seen")]
    remove(source, text)
    pauses = [after - before for before, after in zip(times, times[1:])]
    if len(pauses) < 3:
        raise Fault(f"refreshing: {len(times)} refreshes in {seconds} s")
    median = statistics.median(pauses)
    say(f"refreshing     1,000 steps every {median:.0f} ms (median), {max(pauses):.0f} ms at most; "
        + verdict([("ms", median, LIMIT_OF_REFRESH, True)]))
    return {"pauses": pauses}


ALL = {"looking": looking}
#: Run only if they are named.
LONG = {"browsing": browsing, "refreshing": refreshing}
