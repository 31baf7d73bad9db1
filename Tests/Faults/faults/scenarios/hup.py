"""A thousand SIGHUPs in ten seconds, with edits and broken files: the last file runs in the end, nothing is lost."""
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

from ..feeds import HTTPFeed
from ..oracle import Judge
from ..process import wait_until
from ..report import Report
from ..world import World

#: name: (sources, whether the sink is dead meanwhile)
STORMS = {"file-http": ("file", False), "server-http": ("http", False), "both-http": ("file http", False),
         "dead-sink": ("file", True)}
#: name: (source, sink)
PAUSES = {"pause-file": ("file", "file"), "pause-file-http": ("file", "http"), "pause-server": ("http", "file"),
          "pause-refused": ("file", "file")}
CASES = [*PAUSES, *STORMS]
MIB = 1 << 20

SOURCES = {"file": '{file: {path: "${IN}", follow: true, decode: json}}',
           "http": '{httpServer: {address: "127.0.0.1:${PORT}", decode: ndjson}}'}
# One flow mapping, which is not YAML if it is cut. The file of versions shows which one runs, even if the sink is down.
FORM = """{name: hup, sources: {%(sources)s, tick: {interval: 20ms}}, signals: {in: {merge: [%(names)s]}},
 sinks: {version: {from: tick, chain: [{map: %(serial)d}], file: {path: "${OUT}", mode: replace}},
  out: {from: in, chain: [{map: {v: %(serial)d, e: event}}],
   http: {url: "${URL}", encode: ndjson, batch: {count: 500, every: 20ms}, retry: {delay: 10ms, maxDelay: 200ms}}}}}
"""


class Versions(Judge):
    """Judges outputs `{"v": version, "e": event}`."""

    def __init__(self):
        super().__init__()
        self.versions = {}
        self.newest = 0
        self.backwards = 0

    def _line(self, text):
        try:
            value = json.loads(text)
            event, version = value["e"], value["v"]
            key = (event["src"].encode(), event["n"])
            if key not in self.versions:
                self.backwards += version < self.newest
                self.newest = max(self.newest, version)
            self.versions[key] = version
        except (ValueError, KeyError, TypeError, AttributeError):
            self._damage(text)
            return
        self._value(event, text)


def run(options):
    """Edits the file and sends SIGHUP, by the clock."""
    for case in PAUSES:
        if options.wants(case):
            yield pause(options, case)
    for case, (source, dead) in STORMS.items():
        if not options.wants(case):
            continue
        count = options.rounds or (100 if options.quick else 1_000)
        report = Report(f"hup/{case}", options.seed)
        generator = random.Random(f"{options.seed}/{case}")
        judge = Versions()
        with World(case, source.split()[0], "http", options.seed, 5_000, judge=judge, keep=options.keep) as world:
            if source == "file http":
                world.feeds.append(HTTPFeed(judge, "posts", world.port, 2_500))
            path = world.directory / "hup.yaml"
            serial = 1
            write(path, text(source, serial))
            world.start(path)
            report.require("starts", world.rxd.ready() is not None)
            world.feed()
            # The first reload and the first request open resources that then stay in use.
            serial += 1
            write(path, text(source, serial))
            verdict, first = reload(world)
            report.require("the first reload", verdict.get("result") == "reloaded", verdict.get("summary"))
            world.rxd.run_for(1)
            before = resources(world)
            if dead:
                world.server.down()
                world.rxd.run_for(0.5)
            begin = time.monotonic()
            broken = 0
            for i in range(count):
                serial += 1
                broken += edit(path, text(source, serial), generator)
                world.rxd.signal(signal.SIGHUP)
                rest = begin + (i + 1) * 0.01 - time.monotonic()
                if rest > 0:
                    world.rxd.run_for(rest)
                if not world.rxd.alive:
                    break
            serial += 1
            write(path, text(source, serial))
            signalled = time.monotonic()
            verdict, took = reload(world)
            report.figure("signals", i + 1)
            report.figure("broken files", broken)
            report.figure("seconds", round(signalled - begin, 1))
            report.figure("first reload, in s", first)
            report.most("last reload, in s", took if verdict.get("result") == "reloaded" else None, 5)
            pipelines = verdict.get("pipelines") or [{}]
            # An earlier signal may already have read the last edit, which then changes nothing.
            report.require("state goes on", pipelines[0].get("result") == "unchanged"
                           or any(name.endswith("/file") or "httpServer" in name or name.startswith("tick")
                                  for name in pipelines[0].get("kept", [])), pipelines[0])
            runs = wait_until(lambda: version(world.out) == serial, 5)
            report.most("the last file runs, after s", time.monotonic() - signalled if runs else None, 5)
            world.stop_feeds()
            if dead:
                world.server.up()
            drained = world.drain()
            report.most("fresh event, in s", world.fresh() if drained else None, 5)
            feed = world.feeds[0]
            report.require("fresh events pass the last file", judge.versions.get((feed.name, feed.n)) == serial)
            # Connections of the feeds and of the sink come and go.
            more = [b - a for a, b in zip(before, resources(world))]
            report.most("more descriptors", more[0], 8)
            report.most("more threads", more[1], 2)
            report.most("more MiB", round(more[2] / MIB, 1), 24)
            report.require("exit status 0", world.rxd.stop() == 0)
            report.verdict(world.judged(), None)
            # If two versions ran at the same time, their events would alternate.
            report.most("events of an older version behind a newer", judge.backwards, 0)
            report.notes += world.tail(8)
        yield report.end()


def pause(options, case):
    """The longest time without an event around each of many reloads, at ten events each 5 ms."""
    source, sink = PAUSES[case]
    count = options.rounds or (10 if options.quick else 50)
    report = Report(f"hup/{case}", options.seed)
    judge = Arrivals()
    out = ('http: {url: "${URL}", encode: ndjson, batch: {count: 100, every: 1ms}}' if sink == "http"
           else 'file: {path: "${OUT}"}')
    # Another process holds the address that the new version needs.
    taken = socket.create_server(("127.0.0.1", 0))
    wanted = "refused" if case == "pause-refused" else "reloaded"
    form = (f"{{name: pause, sources: {{in: {SOURCES[source]}%s}}, sinks: {{out: {{from: in, chain: "
            f"[{{filter: 'event.n != %d'}}], {out}}}%s}}}}\n")

    def version(number):
        if number < 0 or wanted == "reloaded":
            return form % ("", number, "")
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        return form % (f', more: {{httpServer: {{address: "{address}"}}}}', -number, ", none: {from: more, discard: {}}")

    with World(case, source, sink, options.seed, 2_000, feeds=1, judge=judge, keep=options.keep) as world:
        path = world.directory / "pause.yaml"
        write(path, version(-1))
        world.start(path)
        report.require("starts", world.rxd.ready() is not None)
        if sink == "file":
            judge.watch(world.out)
        world.feed()
        world.rxd.run_for(1)
        times, usual, results = [], [], 0
        for i in range(count):
            begin = time.monotonic()
            world.rxd.run_for(0.2)
            usual.append(judge.longest(begin, time.monotonic()))
            write(path, version(i + 1 if wanted == "refused" else -2 - i))
            begin = time.monotonic()
            verdict, _ = reload(world)
            world.rxd.run_for(0.05)
            results += verdict.get("result") == ("failed" if wanted == "refused" else "reloaded")
            times.append(judge.longest(begin, time.monotonic()))
        world.stop_feeds()
        world.drain()
        judge.stop()
        taken.close()
        report.least(wanted, results, count)
        report.require("exit status 0", world.rxd.stop() == 0)
        report.verdict(world.judged(), None)
        for name, values in (("pause", times), ("without reload", usual)):
            values.sort()
            report.figure(f"{name}, median ms", round(values[len(values) // 2] * 1000, 1))
            report.figure(f"{name}, longest ms", round(values[-1] * 1000, 1))
    return report.end()


class Arrivals(Judge):
    """Notes when output arrives."""

    def __init__(self):
        super().__init__()
        self.times = []
        self.watching = None
        self.done = threading.Event()

    def deliver(self, *arguments, **options):
        if self.watching is None:
            self.times.append(time.monotonic())
        return super().deliver(*arguments, **options)

    def watch(self, path):
        """Watches the size of a file from now on."""
        self.watching = threading.Thread(target=self._look, args=(path,), daemon=True)
        self.watching.start()

    def _look(self, path):
        size = 0
        while not self.done.wait(0.0005):
            try:
                now = os.stat(path).st_size
            except FileNotFoundError:
                continue
            if now != size:
                self.times.append(time.monotonic())
                size = now

    def stop(self):
        self.done.set()

    def longest(self, begin, end):
        """The longest time between two arrivals, in seconds."""
        times = [begin, *(at for at in list(self.times) if begin <= at <= end), end]
        return max(b - a for a, b in zip(times, times[1:]))


def reload(world):
    """Runs `rxd reload --wait`; returns its verdict, and how long it took in seconds."""
    begin = time.monotonic()
    done = subprocess.run(
        [world.rxd.program, "reload", "--wait", "--format", "json", "--timeout", "20", "--state-dir", world.state],
        capture_output=True, text=True)
    took = time.monotonic() - begin
    try:
        return json.loads(done.stdout), took
    except ValueError:
        return {"result": done.returncode, "summary": done.stderr}, took


def resources(world):
    """The numbers of descriptors and of threads, and the resident bytes."""
    return (*open_things(world), world.rxd.resident())


def open_things(world):
    """The numbers of descriptors and of threads."""
    try:
        return tuple(len(os.listdir(f"/proc/{world.rxd.pid}/{kind}")) for kind in ("fd", "task"))
    except OSError:
        return 0, 0


def text(source, serial):
    sources = source.split()
    return FORM % {"sources": ", ".join(f"{name}_in: {SOURCES[name]}" for name in sources),
                   "names": ", ".join(f"{name}_in" for name in sources), "serial": serial}


def version(path):
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def write(path, text):
    """Replaces the file in one step."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def edit(path, text, generator):
    """Changes the file in one of several ways; returns whether it is broken afterwards."""
    way = generator.randrange(6)
    if way == 0:
        write(path, text.replace("from: in", "from: nowhere"))
    elif way == 1:
        with open(path, "w") as file:
            file.write(text[:generator.randrange(10, len(text) - 2)])
    elif way == 2:
        pass  # Leaves the file unchanged.
    elif way == 3:
        with open(path, "w") as file:
            cut = generator.randrange(len(text))
            file.write(text[:cut])
            file.flush()
            file.write(text[cut:])
    else:
        write(path, text)
    return way in (0, 1)
