"""Tenfold overload while the sink is down: memory stays below 128 MiB, and all is delivered in order afterwards."""
import os
import time

from ..report import Report
from ..world import World

CASES = {"overload": "http", "overload-file": "file"}
MIB = 1 << 20


def run(options):
    """Sends as fast as rxd accepts events, while the sink refuses connections."""
    seconds = options.seconds or (4 if options.quick else 600)
    for case, source in CASES.items():
        if not options.wants(case):
            continue
        report = Report(f"deadsink/{case}", options.seed)
        # Ten times the rate of the other tests; a file is written at a rate that the disk can take.
        rate = options.rate * 10 if source == "http" else options.rate * 10 if options.quick else options.rate
        more = {"batch": 500, "pad": b"x" * 180} if source == "http" else {"pad": b"x" * 180}
        with World(case, source, "http", options.seed, rate, keep=options.keep, **more) as world:
            world.start()
            report.require("starts", world.rxd.ready() is not None)
            world.server.down()
            world.feed()
            samples = []
            begin = time.monotonic()
            step = max(0.1, seconds / 600)
            while (now := time.monotonic() - begin) < seconds and world.rxd.alive:
                samples.append((now, world.rxd.resident()))
                world.rxd.run_for(step)
            report.require("still runs", world.rxd.alive)
            offered = sum(feed.n for feed in world.feeds)
            report.figure("sent per s", int(offered / seconds))
            report.figure("state MiB", round(size(world.state) / MIB, 1))
            # The buffers fill first.
            middle = max(r for t, r in samples if t < seconds / 2)
            last = max(r for t, r in samples if t >= seconds / 2)
            report.most("resident MiB", round(max(middle, last) / MIB, 1), 128)
            report.most("growth in the second half, MiB", round((last - middle) / MIB, 1), 8)
            world.stop_feeds()
            backlog = world.judge.promises() - world.judge.delivered()
            report.figure("backlog", backlog)
            world.server.up()
            begin = time.monotonic()
            drained = world.drain(max(60, seconds))
            took = time.monotonic() - begin
            report.require("drained", drained)
            report.figure("drained per s", int(backlog / took))
            report.most("resident MiB while draining", round(world.rxd.resident() / MIB, 1), 128)
            report.most("fresh event, in s", world.fresh() if drained else None, 5)
            report.require("exit status 0", world.rxd.stop() == 0)
            report.verdict(world.judged(), 0)
            report.notes += world.tail(6)
        yield report.end()


def size(directory):
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(directory) for name in names)
