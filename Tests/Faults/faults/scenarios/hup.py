"""A thousand SIGHUPs in ten seconds, with edits and broken files: the last file runs, nothing is lost."""
import json
import os
import random
import signal
import time

from ..oracle import Judge
from ..process import wait_until
from ..report import Report
from ..world import World

#: name: (source, whether the sink is dead meanwhile)
CASES = {"file-http": ("file", False), "server-http": ("http", False), "dead-sink": ("file", True)}

SOURCES = {"file": '{file: {path: "${IN}", follow: true, decode: json}}',
           "http": '{httpServer: {address: "127.0.0.1:${PORT}", decode: ndjson}}'}
# One flow mapping: cut anywhere, it is not YAML. The file of versions shows which one runs, with a dead sink too.
FORM = """{name: hup, sources: {in: %(source)s, tick: {interval: 20ms}},
 sinks: {version: {from: tick, chain: [{map: %(serial)d}], file: {path: "${OUT}", mode: replace}},
  out: {from: in, chain: [{map: {v: %(serial)d, e: event}}],
   http: {url: "${URL}", encode: ndjson, batch: {count: 500, every: 20ms}, retry: {delay: 10ms, maxDelay: 200ms}}}}}
"""


class Versions(Judge):
    """Of outputs `{"v": version, "e": event}`."""

    def __init__(self):
        super().__init__()
        self.versions = {}

    def _line(self, text):
        try:
            value = json.loads(text)
            event, version = value["e"], value["v"]
            self.versions[(event["src"].encode(), event["n"])] = version
        except (ValueError, KeyError, TypeError, AttributeError):
            self._damage(text)
            return
        self._value(event, text)


def run(options):
    """Edits the file and sends SIGHUP, by the clock."""
    for case, (source, dead) in CASES.items():
        if not options.wants(case):
            continue
        count = options.rounds or (100 if options.quick else 1_000)
        report = Report(f"hup/{case}", options.seed)
        generator = random.Random(f"{options.seed}/{case}")
        judge = Versions()
        with World(case, source, "http", options.seed, 5_000, judge=judge, keep=options.keep) as world:
            path = world.directory / "hup.yaml"
            serial = 1
            write(path, text(source, serial))
            world.start(path)
            report.require("starts", world.rxd.ready() is not None)
            world.feed()
            descriptors, threads = open_things(world)
            if dead:
                world.server.down()
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
            world.rxd.signal(signal.SIGHUP)
            signalled = time.monotonic()
            report.figure("signals", i + 2)
            report.figure("broken files", broken)
            report.figure("seconds", round(signalled - begin, 1))
            world.stop_feeds()
            runs = wait_until(lambda: version(world.out) == serial, 5)
            report.most("the last file runs, after s", time.monotonic() - signalled if runs else None, 5)
            if dead:
                world.server.up()
            drained = world.drain()
            report.most("fresh event, in s", world.fresh() if drained else None, 5)
            feed = world.feeds[0]
            report.require("fresh events pass the last file", judge.versions.get((feed.name, feed.n)) == serial)
            more = [b - a for a, b in zip((descriptors, threads), open_things(world))]
            report.most("more descriptors", more[0], 8)
            report.most("more threads", more[1], 4)
            report.require("exit status 0", world.rxd.stop() == 0)
            report.verdict(world.judged(), None)
            report.notes += world.tail(8)
        yield report.end()


def open_things(world):
    """The numbers of descriptors and of threads."""
    try:
        return tuple(len(os.listdir(f"/proc/{world.rxd.pid}/{kind}")) for kind in ("fd", "task"))
    except OSError:
        return 0, 0


def text(source, serial):
    return FORM % {"source": SOURCES[source], "serial": serial}


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
    """One of the ways a file changes; whether it is broken afterwards."""
    way = generator.randrange(6)
    if way == 0:
        write(path, text.replace("from: in", "from: nowhere"))
    elif way == 1:
        with open(path, "w") as file:
            file.write(text[:generator.randrange(10, len(text) - 2)])
    elif way == 2:
        pass  # As it is.
    elif way == 3:
        with open(path, "w") as file:
            cut = generator.randrange(len(text))
            file.write(text[:cut])
            file.flush()
            file.write(text[cut:])
    else:
        write(path, text)
    return way in (0, 1)
