"""SIGTERM at random instants under load: a clean end within the limit, nothing lost, nothing repeated."""
import random
import signal
import time

from ..oracle import Verdict
from ..report import Report, percentile
from ..world import World

CASES = {
    "file-file": ("file", "file"),
    "file-http": ("file", "http"),
    "stdin-file": ("stdin", "file"),
    "server-http": ("http", "http"),
    "server-delay-file": ("http", "file"),
    "server-window-http": ("http", "http"),
    "dead-sink": ("http", "http"),
}
SERIES = 25
#: The limit for a stop in seconds; as the sinks are up, it needs a fraction of this.
LIMIT = 20


def run(options):
    """Stops and starts rxd again and again while events come."""
    rounds = options.rounds or (4 if options.quick else 170)
    for case, (source, sink) in CASES.items():
        if not options.wants(case):
            continue
        report = Report(f"term/{case}", options.seed)
        totals, hits, early, wrong, stops, fresh, done = Verdict(), 0, 0, 0, [], [], 0
        while done < rounds:
            count = min(SERIES, rounds - done)
            generator = random.Random(f"{options.seed}/{case}/{done}")
            with World(case, source, sink, options.seed + done, options.rate, keep=options.keep) as world:
                world.start()
                if case == "dead-sink":
                    world.server.down()
                world.feed()
                for _ in range(count):
                    # One stop in ten comes during the start.
                    if generator.random() < 0.9:
                        world.rxd.ready()
                    world.rxd.run_for(generator.uniform(0, 0.4))
                    hits += world.rxd.alive
                    before = time.monotonic()
                    age = before - world.rxd.started
                    world.rxd.signal(signal.SIGTERM)
                    code = world.rxd.wait(LIMIT)
                    stops.append(time.monotonic() - before)
                    if code == -signal.SIGTERM and age < 0.1:
                        early += 1  # The program had not started, so nothing could catch the signal.
                    elif code != 0:
                        wrong += 1
                        report.note(f"exit status {code} after a signal at {age:.3f} s")
                        report.notes += world.tail(3)
                        if code is None:
                            world.rxd.kill()
                    world.start()
                world.rxd.ready()
                world.stop_feeds()
                if world.server:
                    world.server.up()
                drained = world.drain()
                fresh_time = world.fresh() if drained else None
                fresh.append(fresh_time if fresh_time is not None else 99)
                wrong += world.rxd.stop(LIMIT) != 0
                verdict = world.judged()
                totals.add(verdict)
                if not drained or verdict.lost:
                    report.notes += world.tail()
            done += count
        report.figure("stops", done)
        report.figure("before it began", early)
        report.least("hit", hits, done * 9 // 10)
        report.most("exit status not 0", wrong, 0)
        report.verdict(totals, 0)
        report.most("stop, p99 in s", percentile(stops, 0.99), LIMIT)
        report.most("fresh event, in s", max(fresh, default=99), 5)
        yield report.end()
