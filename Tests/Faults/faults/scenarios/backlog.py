"""Starts with a large backlog, after a kill and after a stop: ready soon."""
import time

from ..report import Report
from ..world import World
from .deadsink import size

CASES = ["killed", "stopped"]
MIB = 1 << 20


def run(options):
    """Fills the store while the sink is down, then restarts."""
    for case in CASES:
        if not options.wants(case):
            continue
        report = Report(f"backlog/{case}", options.seed)
        wanted, limit = (24 * MIB, 20) if options.quick else (1_024 * MIB, 300)
        with World("overload", "http", "http", options.seed, 400_000, batch=1_000, pad=b"x" * 180,
                   keep=options.keep) as world:
            world.start()
            report.require("starts", world.rxd.ready() is not None)
            world.server.down()
            world.feed()
            end = time.monotonic() + limit
            before = 0
            while size(world.state) < wanted and time.monotonic() < end and world.rxd.alive:
                world.rxd.run_for(0.5)
                if size(world.state) == before and before > wanted // 4:
                    break  # The store has reached its limit.
                before = size(world.state)
            world.stop_feeds()
            report.figure("state MiB", round(size(world.state) / MIB))
            report.figure("events", world.judge.promises())
            report.least("backlog", world.judge.promises(), 1_000)
            if case == "killed":
                world.rxd.kill()
            else:
                begin = time.monotonic()
                report.require("exit status 0", world.rxd.stop() == 0)
                report.figure("stop in s", time.monotonic() - begin)
            world.start()
            ready = world.rxd.ready(60)
            report.most("ready in s", ready, 0.3 if not options.quick else 0.5)
            backlog = world.judge.promises()
            world.server.up()
            begin = time.monotonic()
            report.require("drained", world.drain(300))
            report.figure("drained per s", int(backlog / (time.monotonic() - begin)))
            report.most("resident MiB", round(world.rxd.resident() / MIB, 1), 128)
            world.rxd.stop()
            report.verdict(world.judged(), 4_000 if case == "killed" else 0)
            report.notes += world.tail(6)
        yield report.end()
