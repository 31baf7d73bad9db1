"""The control: without a state directory, SIGKILL repeats and loses events, which the tests must notice."""
import random

from ..report import Report
from ..world import World

#: name: (source, sink, what must be seen)
CASES = {"file-file": ("file", "file", "repeated"), "server-delay-file": ("http", "file", "lost")}


def run(options):
    """Kills rxd without a state directory."""
    for case, (source, sink, seen) in CASES.items():
        if not options.wants(case):
            continue
        report = Report(f"control/{case}", options.seed)
        generator = random.Random(f"{options.seed}/{case}")
        with World(case, source, sink, options.seed, options.rate, keep=options.keep) as world:
            world.stateless = True
            world.start()
            world.rxd.ready()
            world.feed()
            for _ in range(3):
                world.rxd.run_for(generator.uniform(0.3, 0.5))
                world.rxd.kill()
                world.start()
            world.rxd.ready()
            world.stop_feeds()
            report.require("drained", world.drain())
            world.rxd.stop()
            verdict = world.judged()
            report.least(seen, getattr(verdict, seen), 1)
            report.most("invented", verdict.invented, 0)
        yield report.end()
