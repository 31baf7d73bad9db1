"""State with many keys of which few change: the latency of events, and the duration of a stop, and of a start after that or after a crash."""
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from .machine import PIPELINES, Fault, Surroundings, say

#: Events per second, each with a random key, and for how many seconds.
RATE, SECONDS = 1000, 10
#: Between two writes.
STEP = 0.005
#: Answers count as immediate again when this many in a row have arrived within this time, in seconds.
SETTLED, AT_ONCE, PATIENCE = 20, 0.1, 120
ROUNDS = 3


def line(key):
    return b'{"k":%d}\n' % key


class Counting:
    """rxd with the pipeline, on its standard streams."""

    def __init__(self, bench, state):
        self.child = subprocess.Popen(
            [bench.rxd, "--quiet", "--state-dir", state, os.path.join(PIPELINES, "w23-keys.yaml")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, keys):
        self.child.stdin.write(b"".join(map(line, keys)))
        self.child.stdin.flush()

    def answer(self):
        text = self.child.stdout.readline()
        if not text:
            raise Fault("w23-keys: rxd has ended")
        return json.loads(text)

    def counts(self, keys):
        """Sends the keys; returns the last count of each key that is answered, up to the answer of the last one."""
        self.send(keys)
        found = {}
        while keys[-1] not in found:
            answer = self.answer()
            found[answer["k"]] = answer["n"]
        return found

    def resident(self):
        with open(f"/proc/{self.child.pid}/status") as file:
            return next(int(row.split()[1]) for row in file if row.startswith("VmRSS:")) * 1024

    def written(self):
        """The bytes that it has caused to be written to disks."""
        with open(f"/proc/{self.child.pid}/io") as file:
            return next(int(row.split()[1]) for row in file if row.startswith("write_bytes:"))

    def stop(self):
        """Returns its duration in seconds."""
        begin = time.monotonic()
        self.child.send_signal(signal.SIGTERM)
        if self.child.wait() != 0:
            raise Fault(f"w23-keys: a stop gave the status {self.child.returncode}")
        return time.monotonic() - begin

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass


def latencies(running, keys, random_keys):
    """Milliseconds from each event's write to its answer, sorted. Answers are matched to events by their order."""
    count = int(RATE * SECONDS)
    came = []

    def read():
        for _ in range(count):
            running.answer()
            came.append(time.monotonic())
    reader = threading.Thread(target=read)
    reader.start()
    sent = []
    each, due = int(RATE * STEP), time.monotonic()
    while len(sent) < count:
        running.send(random_keys.randrange(keys) for _ in range(each))
        sent += [time.monotonic()] * each
        due += STEP
        time.sleep(max(0, due - time.monotonic()))
    reader.join(timeout=60)
    if len(came) != count:
        raise Fault(f"w23-keys: {len(came)} of {count} answers came")
    return sorted(1000 * (answer - event) for event, answer in zip(sent, came))


def settle(running):
    """The seconds until answers are immediate: the events are committed, and moved from the store's log into its file."""
    begin, quick = time.monotonic(), 0
    while quick < SETTLED:
        sent = time.monotonic()
        running.counts([-2])
        if sent > begin + PATIENCE:
            raise Fault(f"w23-keys: after {PATIENCE} s answers do not come within {AT_ONCE} s")
        quick = quick + 1 if time.monotonic() - sent < AT_ONCE else 0
    return time.monotonic() - begin


def one(bench, keys, seed):
    # A file system in memory has no sync.
    state = tempfile.mkdtemp(prefix="keyed-", dir=bench.programs)
    running = Counting(bench, state)
    try:
        # With the three keys below 0 that are requested individually.
        most = keys - 3
        for first in range(0, most, 1000):
            running.send(range(first, min(most, first + 1000)))
        if running.counts([-2, -1, -1]) != {-1: 2}:
            raise Fault("w23-keys: a wrong count")
        settling = settle(running)
        found = latencies(running, most, random.Random(seed))
        resident = running.resident()
        running.kill()
        begin = time.monotonic()
        running = Counting(bench, state)
        # Answers that were not known to be delivered are repeated first, so the last one is of a new key.
        counted = running.counts([-1, -3, -3])
        start = time.monotonic() - begin
        if counted[-1] != 3:
            raise Fault(f"w23-keys: a key that had come twice has the count {counted[-1]} after a crash")
        again = settle(running)
        written = running.written()
        stopped = running.stop()
        begin = time.monotonic()
        running = Counting(bench, state)
        counted = running.counts([-1, -4, -4])
        restart = time.monotonic() - begin
        if counted[-1] != 4:
            raise Fault(f"w23-keys: a key that had come three times has the count {counted[-1]} after a stop")
    finally:
        running.kill()
        shutil.rmtree(state)
    return {"settling": settling, "median": found[len(found) // 2], "late": found[len(found) * 99 // 100],
            "longest": found[-1], "resident": resident, "start": start, "again": again, "written": written, "stop": stopped, "restart": restart}


def table(bench, keys):
    surroundings = Surroundings()
    rounds = [one(bench, keys, seed) for seed in range(ROUNDS)]
    say(f"\nw23-keys, {keys:,} keys, {RATE:,} events a second for {SECONDS} s, durable, a disk; medians and ranges of "
        f"{ROUNDS} rounds")
    for name, text, scale in (
            ("settling", f"s after all keys until answers come within {AT_ONCE} s", 1),
            ("median", "ms from an event to its answer, the median", 1), ("late", "ms, 99 % of the events", 1),
            ("longest", "ms, the longest", 1), ("start", "s from a start after a crash to the first answer", 1),
            ("again", f"s from then on until answers come within {AT_ONCE} s", 1),
            ("written", "MB written to the disk until then", 1e-6), ("stop", "s for a stop", 1),
            ("restart", "s from a start after a stop to the first answer", 1),
            ("resident", "MB of memory", 1e-6)):
        values = [scale * made[name] for made in rounds]
        say(f"{statistics.median(values):>10.1f} ({min(values):.1f}-{max(values):.1f}) {text}")
    say(surroundings)
    return rounds


def million(bench):
    """W23: a million keys."""
    return table(bench, 1_000_000)


def ten_million(bench):
    """The same with ten million keys, which take 4 GB of memory."""
    return table(bench, 10_000_000)


ALL = {"w23-keys": million, "w23-keys-large": ten_million}
