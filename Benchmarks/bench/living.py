"""Pipelines that wait for the outside: following, polling, waiting, receiving. Loopback only, each bounded."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

from . import pairs
from .daemon import Daemon, Watched
from .machine import PIPELINES, Fault, Run, remove, say, stolen
from .pairs import FEWEST, Estimate, Rounds
from .throughput import left_out


def pipeline(name):
    return os.path.join(PIPELINES, name + ".yaml")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_port(port, daemon):
    for _ in range(1000):
        if daemon.child.poll() is not None:
            raise Fault(f"rxd ended: {daemon.child.stderr.read().decode(errors='replace')}")
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise Fault(f"nothing listens on port {port}")


def verdict(bars):
    """`bars`: (what, the measured value, the limit, whether less is better); an estimate may leave the verdict open."""
    def met(value, bar, less):
        if isinstance(value, Estimate):
            return value.at_most(bar) if less else value.at_least(bar)
        return value <= bar if less else value >= bar
    return "; ".join(f"{what} at {'most' if less else 'least'} {bar}: {pairs.verdict(met(value, bar, less))}"
                     for what, value, bar, less in bars)


class Follower:
    """A program that follows a file and appends every second line to another."""

    def __init__(self, bench, name, command):
        """`command`: takes the two files, returns the command and its environment."""
        self.name, self.bench = name, bench
        label = name.replace(" ", "-")
        self.files = [bench.file(f"w6-{label}.{what}") for what in ("log", "out")]
        for path in self.files:
            open(path, "w").close()
        self.program = Watched(*command(*self.files))
        self.rounds = Rounds(stolen)

    def write(self, seconds, pace):
        done = subprocess.run(
            [self.bench.program("follow"), *self.files, str(pace), str(seconds)], capture_output=True, text=True)
        if done.returncode not in (0, 1) or not done.stdout:
            raise Fault(f"w6-follow: {done.stderr}")
        figures = json.loads(done.stdout)
        if done.returncode != 0:
            raise Fault(f"w6-follow, {self.name}: {figures['seen']} of {figures['expected']} lines came out")
        return figures

    def round(self, seconds, pace):
        def make():
            share, wakeups, figures = self.program.meanwhile(lambda: self.write(seconds, pace))
            return {**figures, "cpu": 100 * share, "wakeups": wakeups / figures["seconds"]}
        self.rounds.add(make)
        self.resident = self.program.resident

    def estimate(self, figure):
        return Estimate.of([one[figure] for one in self.rounds.made])


def follow(bench, other=None, environment=None, rounds=9, tries=16, seconds=1, pace=2000):
    """W6: a followed file, each line parsed, half of them written: the time from write to visible. Compared with a
    minimal program and, if given, with another rxd."""
    def by(rxd, environment=None):
        return lambda log, output: (
            bench.pipeline("w6-follow", rxd), {**(environment or {}), "BENCH_INPUT": log, "BENCH_OUTPUT": output})

    def floor(log, output):
        return [bench.program("floor"), log, output],

    followers = [Follower(bench, "rxd", by(bench.rxd))]
    if other:
        followers.append(Follower(bench, "other rxd", by(other, environment)))
    followers.append(Follower(bench, "floor", floor))
    with contextlib.ExitStack() as running:
        for follower in followers:
            running.enter_context(follower.program)
        time.sleep(0.5)
        for follower in followers:  # Not counted.
            follower.write(1, pace)
        for i in range(tries):
            # In alternating order; idle followers cost nothing.
            for follower in (followers, followers[::-1])[i % 2]:
                if follower.rounds.rounds < rounds:
                    follower.round(seconds, pace)
    for follower in followers:
        follower.rounds.settle_for(FEWEST)
    say(f"w6-follow      {pace} lines/s, rounds of {seconds} s in turn: the median of the rounds and, in"
        " brackets, the interval of 95 % in which it lies;\n"
        f"               {left_out(follower.rounds for follower in followers)}")
    report = {}
    for follower in followers:
        p50, p99, cpu, wakeups = (follower.estimate(figure) for figure in ("p50", "p99", "cpu", "wakeups"))
        say(f"  {follower.name:<16} p50 {p50.median:.2f} ms ({p50.low:.2f}-{p50.high:.2f}), p99 {p99.median:.2f} ms"
            f" ({p99.low:.2f}-{p99.high:.2f}), {cpu.median:.1f}% of a core ({cpu.low:.1f}-{cpu.high:.1f}),"
            f" {wakeups.median:.0f} wake-ups/s, {follower.resident / 1e6:.1f} MB, {follower.rounds.told} rounds")
        report[follower.name] = {"rounds": follower.rounds.made, "resident": follower.resident}
        remove(*follower.files)
    ours = followers[0]
    say("               " + verdict([("p99 in ms", ours.estimate("p99"), 1, True),
                                    ("% of a core", ours.estimate("cpu"), 3, True)]))
    return report


def poll(bench, seconds=5, count=200):
    """W7: many HTTP endpoints, each polled once a second."""
    path, output = bench.file("w7.yaml"), bench.file("w7.out")
    with subprocess.Popen(
            [bench.program("endpoints"), "0", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True) as server:
        port = int(server.stdout.readline())
        with open(path, "w") as file:
            file.write("name: w7-poll\nsources:\n")
            for i in range(count):
                address = f"127.0.{1 + i // 250}.{1 + i % 250}"
                file.write(f"  e{i}:\n    http: {{ url: \"http://{address}:{port}/status\", every: 1s }}\n")
            file.write("signals:\n  all:\n    merge: [" + ", ".join(f"e{i}" for i in range(count)) + "]\n")
            file.write("sinks:\n  out:\n    from: all\n    chain:\n      - filter: event.up\n"
                       f"    file: {{ path: \"{output}\", encode: ndjson }}\n")
        with Daemon(bench, path) as daemon:
            time.sleep(2)
            share, wakeups = daemon.over(seconds)
            resident = daemon.resident
        server.stdin.close()
        figures = json.loads(server.stdout.readline())
    with open(output) as file:
        events = sum(1 for _ in file)
    remove(path, output)
    if events < count * seconds:
        raise Fault(f"w7-poll: {events} events came out of {figures['answered']} answers: {daemon.noise[:500]}")
    share *= 100
    figures.update(cpu=share / 100, wakeups=wakeups / seconds, resident=resident, events=events)
    say(f"w7-poll        {count} endpoints each second for {seconds} s: {share:.1f}% of a core,"
        f" {wakeups / seconds:.0f} wake-ups/s, {resident / 1e6:.1f} MB, {figures['connections']} connections for"
        f" {figures['answered']} answers\n               "
        + verdict([("% of a core", share, 8, True), ("MB", resident / 1e6, 30, True)]))
    return figures


def wait(bench, seconds=5, rounds=20):
    """W8: the time from the start to the first event, then idle."""
    done = subprocess.run(
        [bench.program("first"), str(rounds), bench.rxd, "--quiet", pipeline("first-event")],
        capture_output=True, text=True, check=True)
    figures = {"firstEvent": json.loads(done.stdout)}
    first = figures["firstEvent"]["p50"]
    say(f"w8-start       first event after {first:.1f} ms (p90 {figures['firstEvent']['p90']:.1f}), {rounds} rounds"
        "\n               " + verdict([("ms", first, 10, True)]))
    followed = bench.file("followed.log")
    with open(followed, "w") as file:
        file.write("one line\n")
    for name in ("idle-followed-file", "idle-http-server"):
        environment = {"BENCH_INPUT": followed, "BENCH_PORT": str(free_port())}
        with Daemon(bench, pipeline(name), environment=environment) as daemon:
            time.sleep(2)
            share, wakeups = daemon.over(seconds)
            resident = daemon.resident
        figures[name] = {"cpu": share, "wakeups": wakeups, "resident": resident}
        say(f"w8-idle        {name}: {wakeups} wake-ups in {seconds} s, {100 * share:.2f}% of a core,"
            f" {resident / 1e6:.1f} MB\n               "
            + verdict([("wake-ups", wakeups, 0, True), ("MB", resident / 1e6, 15, True)]))
    remove(followed)
    return figures


def ingest(bench, seconds=4, lines=1000, connections=4):
    """W9: NDJSON over HTTP to a file."""
    data, output = bench.generate("events", 200_000), bench.file("w9.out")
    open(output, "w").close()
    port = free_port()
    with Daemon(bench, pipeline("w9-ingest"), environment={"BENCH_PORT": str(port), "BENCH_OUTPUT": output}) as daemon:
        wait_for_port(port, daemon)
        cpu = daemon.cpu
        done = subprocess.run(
            [bench.program("post"), str(port), data, str(lines), str(connections), str(seconds), output],
            capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout)
        figures["cpu"] = daemon.cpu - cpu
        figures["resident"] = daemon.resident
    with open(output, "rb") as file:
        written = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    remove(output)
    if written < figures["events"]:
        raise Fault(f"w9-ingest: {figures['events']} events were answered and {written} written")
    rate = figures["events"] / figures["seconds"]
    say(f"w9-ingest      {lines} lines a request, {connections} connections, {figures['seconds']:.1f} s:"
        f" {rate:,.0f} events/s, {figures['bytes'] / figures['seconds'] / 1e6:.0f} MB/s,"
        f" {figures['cpu'] / figures['seconds'] * 100:.0f}% of a core, {figures['resident'] / 1e6:.1f} MB,"
        f" a request p50 {figures['p50']:.1f} ms, p99 {figures['p99']:.1f} ms;"
        f" {figures['early']} of {figures['requests']} answers before the write, {figures['others']} refused"
        "\n               "
        + verdict([("events/s", rate, 400_000, False), ("answers before the write", figures["early"], 0, True)]))
    return figures


def ingest_peer(bench, seconds=4, lines=1000, connections=4, rounds=4):
    """W9 with a commit before each answer, alternating with Fluent Bit, which answers before it has written its events.

    FLUENT_BIT names its program, with the input `http` and the output `file`.
    """
    program = os.environ.get("FLUENT_BIT")
    if not program:
        raise Fault("w9-fluent-bit: FLUENT_BIT must name the program")
    # On a disk: in memory a commit costs nothing.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        return beside_peer(bench, program, folder, seconds, lines, connections, rounds)


def beside_peer(bench, program, folder, seconds, lines, connections, rounds):
    data, output, state = bench.generate("events", 200_000), os.path.join(folder, "out"), os.path.join(folder, "state")
    runs = {"rxd": [], "Fluent Bit": []}
    for _ in range(rounds):
        for name, found in runs.items():
            open(output, "w").close()
            port = free_port()
            environment = {"BENCH_PORT": str(port), "BENCH_OUTPUT": output}
            if name == "rxd":
                shutil.rmtree(state, ignore_errors=True)
                watched = Daemon(bench, "--state-dir", state, "--set", "delivery=durable", pipeline("w9-ingest"), environment=environment)
                media = "application/x-ndjson"
            else:
                watched = Watched([
                    program, "-q", "-f", "0.1", "-i", "http", "-p", "listen=127.0.0.1", "-p", f"port={port}", "-p", "buffer_max_size=64M",
                    "-p", "buffer_chunk_size=4M", "-o", "file", "-m", "*", "-p", f"path={os.path.dirname(output)}", "-p",
                    f"file={os.path.basename(output)}", "-p", "format=plain"])
                media = "application/json"
            with watched as daemon:
                wait_for_port(port, daemon)
                cpu = daemon.cpu
                done = subprocess.run(
                    [bench.program("post"), str(port), data, str(lines), str(connections), str(seconds), output, media],
                    capture_output=True, text=True, check=True)
                figures = json.loads(done.stdout)
                figures["cpu"] = daemon.cpu - cpu
            with open(output, "rb") as file:
                written = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
            if written < figures["events"]:
                raise Fault(f"w9-fluent-bit: {name} has answered {figures['events']} events and written {written}")
            figures["rate"] = figures["events"] / figures["seconds"]
            found.append(figures)
    for name, found in runs.items():
        rates = sorted(run["rate"] for run in found)
        middle = sorted(found, key=lambda run: run["rate"])[len(found) // 2]
        say(f"w9-fluent-bit  {name:<12}{middle['rate']:>9,.0f} events/s ({rates[0]:,.0f}-{rates[-1]:,.0f}),"
            f" {middle['cpu'] / middle['seconds'] * 100:.0f}% of a core, p50 {middle['p50']:.1f} ms, p99 {middle['p99']:.1f} ms")
    return runs


def requests(bench, seconds=3, connections=64, rounds=3):
    """W11: one event per request over kept connections, compared with a C server that only answers."""

    def ask(port):
        done = subprocess.run(
            [bench.program("kept"), str(port), str(connections), str(seconds)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    runs = {"rxd": [], "collect": []}
    for _ in range(rounds):
        output, port = bench.file("w12.out"), free_port()
        environment = {"BENCH_PORT": str(port), "BENCH_OUTPUT": output}
        with Daemon(bench, pipeline("w9-ingest"), environment=environment) as daemon:
            wait_for_port(port, daemon)
            cpu = daemon.cpu
            figures = ask(port)
            figures["cpu"], figures["resident"] = daemon.cpu - cpu, daemon.resident
        with open(output, "rb") as file:
            written = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        remove(output)
        if written != figures["requests"]:
            raise Fault(f"w11-requests: {figures['requests']} requests were answered and {written} events written")
        runs["rxd"].append(figures)
        with subprocess.Popen(
                [bench.program("collect")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            runs["collect"].append(ask(int(server.stdout.readline())))
            server.stdin.close()
            server.stdout.read()
    figures = {}
    for name, several in runs.items():
        figures[name] = sorted(several, key=lambda run: run["requests"] / run["seconds"])[rounds // 2]
        figures[name]["rate"] = figures[name]["requests"] / figures[name]["seconds"]
    own, other = figures["rxd"], figures["collect"]
    say(f"w11-requests   1 event a request, {connections} connections: {own['rate']:,.0f} requests/s,"
        f" {own['cpu'] / own['seconds'] * 100:.0f}% of a core, {own['resident'] / 1e6:.1f} MB,"
        f" a request p50 {own['p50']:.1f} ms, p99 {own['p99']:.1f} ms, {own['others']} refused;"
        f" a C server that only answers: {other['rate']:,.0f} requests/s, p99 {other['p99']:.1f} ms\n               "
        + verdict([("requests/s", own["rate"], 60_000, False)]))
    return figures


def counted_requests(bench, counter, seconds=5, connections=64):
    """Instructions per request of W11, without those of an idle server."""
    def run(seconds):
        output, port = bench.file("w11.counted"), free_port()
        command = counter.counted([counter.rxd, "--quiet", pipeline("w9-ingest")])
        requests = 0
        with Watched(command, {"BENCH_PORT": str(port), "BENCH_OUTPUT": output}) as server:
            wait_for_port(port, server)
            if seconds:
                done = subprocess.run([bench.program("kept"), str(port), str(connections), str(seconds)],
                                      capture_output=True, text=True, check=True)
                requests = json.loads(done.stdout)["requests"]
        remove(output)
        return counter.found(command, server.child.returncode, server.noise), requests

    (idle, _), (busy, requests) = run(0), run(seconds)
    return (busy - idle) / requests


# Events per request, events, concurrent requests, compression, the server's delay in milliseconds, rounds.
SENDING = (
    (1, 5_000, 1, "none", 0, 3),
    (1, 5_000, 8, "none", 0, 3),
    (100, 100_000, 1, "none", 0, 3),
    (100, 100_000, 8, "none", 0, 3),
    (1000, 300_000, 1, "none", 0, 3),
    (1000, 300_000, 8, "none", 0, 3),
    (1000, 100_000, 1, "gzip", 0, 1),
    (1000, 100_000, 8, "gzip", 0, 1),
    (100, 20_000, 1, "none", 5, 1),
    (100, 20_000, 8, "none", 5, 1),
)


def send(bench):
    """W10: NDJSON from a file, sent over HTTP in batches: one request after another, or several at once."""
    figures = {}
    for batch, events, concurrent, compress, delay, rounds in SENDING:
        data = bench.generate("events", events)
        runs, counted = [], None
        for _ in range(rounds):
            with subprocess.Popen(
                    [bench.program("collect"), str(delay)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    text=True) as server:
                environment = {
                    "BENCH_INPUT": data, "BENCH_PORT": server.stdout.readline().strip(), "BENCH_BATCH": str(batch),
                    "BENCH_CONCURRENT": str(concurrent), "BENCH_COMPRESS": compress}
                runs.append(Run(bench, bench.pipeline("w10-send"), bench.cores, environment))
                server.stdin.close()
                counted = json.loads(server.stdout.readline())
            if counted["lines"] != events or counted["bytes"] != os.path.getsize(data):
                raise Fault(f"w10-send: {counted['lines']} of {events} events came, {counted['bytes']} bytes")
        run = sorted(runs, key=lambda run: run.wall)[rounds // 2]
        peak = max(run.peak for run in runs)
        name = f"batch {batch}, {concurrent} at once" + (f", {compress}" if compress != "none" else "") + (
            f", {delay} ms" if delay else "")
        figures[name] = {"rate": events / run.wall, "cpu": run.cpu / run.wall, "peak": peak, **counted}
        remarks = [f"{counted['connections']} connection{'s' if counted['connections'] > 1 else ''}"]
        if compress != "none":
            remarks.append(f"{compress} {counted['bytes'] / counted['wire']:.1f} to 1")
        if delay:
            remarks.append(f"answers after {delay} ms")
        say(f"w10-send       {batch:>4} events a request, {concurrent} at once: {events / run.wall:>9,.0f} events/s,"
            f" {counted['bytes'] / run.wall / 1e6:.0f} MB/s, {counted['requests'] / run.wall:,.0f} requests/s,"
            f" {run.cpu / run.wall * 100:.0f}% of a core, {peak / 1e6:.1f} MB, {', '.join(remarks)}")
    return figures


def share(bench, seconds=10, neighbours=3):
    """W12: a clock that ticks every ten milliseconds next to pipelines that are always busy, on two cores."""
    data, output = bench.generate("events", 2_000_000), bench.file("w12.out")
    folder = bench.file("w12.d")
    os.makedirs(folder, exist_ok=True)
    with open(pipeline("w12-busy")) as file:
        busy = file.read()
    copies = []
    for i in range(neighbours):
        copies.append(os.path.join(folder, f"busy{i}.yaml"))
        with open(copies[-1], "w") as file:
            file.write(busy.replace("name: w12-busy", f"name: busy{i}"))
    with Daemon(bench, pipeline("w12-clock"), *copies,
                environment={"BENCH_INPUT": data, "BENCH_OUTPUT": output}) as daemon:
        os.sched_setaffinity(daemon.child.pid, bench.cores[-2:])
        time.sleep(1)
        cpu = daemon.over(seconds)[0]
        peak = daemon.resident
        time.sleep(0.2)
        with open(output) as file:
            ticks = [json.loads(line) for line in file.read().splitlines()]
        if daemon.child.poll() is not None:
            raise Fault("w12-share: the neighbours had too little to do")
    remove(output, *copies)
    os.rmdir(folder)
    times = [nanoseconds(tick["time"]) for tick in ticks[50:]]
    gaps = sorted((b - a) / 1e6 for a, b in zip(times, times[1:]))
    if len(gaps) < seconds * 25:
        raise Fault(f"w12-share: only {len(gaps)} ticks came in {seconds} s")
    p50, p99 = (gaps[int(len(gaps) * part)] for part in (0.5, 0.99))
    say(f"w12-share      interval: 10ms beside {neighbours} busy pipelines for {seconds} s, {len(gaps)} ticks:"
        f" p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {gaps[-1]:.1f} ms from one to the next,"
        f" {100 * cpu:.0f}% of a core, {peak / 1e6:.0f} MB\n               "
        + verdict([("p99 in ms", p99, 20, True)]))
    return {"ticks": len(gaps), "p50": p50, "p99": p99, "longest": gaps[-1], "cpu": cpu, "resident": peak}


def nanoseconds(timestamp):
    """The time of `2026-01-01T00:00:00.123456789Z` since the last midnight, without days: gaps are far shorter."""
    hours, minutes, rest = timestamp[11:-1].split(":")
    whole, _, fraction = rest.partition(".")
    return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 10**9 + int((fraction + "0" * 9)[:9])


ALL = {"w6-follow": follow, "w7-poll": poll, "w8-wait": wait, "w9-ingest": ingest, "w10-send": send,
       "w11-requests": requests, "w12-share": share}
#: Run only if they are named.
LONG = {"w9-fluent-bit": ingest_peer}
