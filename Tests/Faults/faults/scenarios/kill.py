"""SIGKILL at random instants under load."""
import json
import random

from ..oracle import Judge, Source, Verdict, checksum
from ..report import Report, percentile
from ..world import World

#: name: (source, sink, most repeated events per kill). What came since the last checkpoint (about 0.1 s) is repeated, and
#: after a kill a file is read several times as fast as it is written.
CASES = {
    "file-file": ("file", "file", 0),
    "file-http": ("file", "http", 5_000),
    "diamond": ("file", "http", 5_000),
    "durable-file": ("file", "file", 0),
    "durable-http": ("file", "http", 2_000),
    "durable-diamond": ("file", "http", 2_000),
    "server-http": ("http", "http", 2_000),
    "server-delay-file": ("http", "file", 0),
    "light-server-file": ("http", "file", 2_000),
    "server-window-http": ("http", "http", 4_000),
    "flaky": ("http", "http", 4_000),
}
#: The answers of the web service in `flaky`.
ANSWERS = {"200": 80, "503": 5, "500": 5, "429": 3, "reset": 4, "partial": 2, "hang": 1}
#: The number of successive processes that are killed before everything is drained and judged.
SERIES = 50


def run(options):
    """Kills rxd again and again while events come, lets it drain, and judges what the sinks have."""
    rounds = options.rounds or (8 if options.quick else 1_000)
    for case, (source, sink, per_kill) in CASES.items():
        if not options.wants(case):
            continue
        report = Report(f"kill/{case}", options.seed)
        totals, hits, readies, fresh, unready, same_key = Verdict(), 0, [], [], 0, 0
        done = 0
        while done < rounds:
            count = min(SERIES, rounds - done)
            generator = random.Random(f"{options.seed}/{case}/{done}")
            judge = DiamondJudge() if case.endswith("diamond") else None
            with World(case, source, sink, options.seed + done, options.rate, keep=options.keep, judge=judge,
                       script=ANSWERS if case == "flaky" else "200") as world:
                world.start()
                if world.rxd.ready() is None:
                    report.require("starts", False)
                    report.notes += world.tail()
                    break
                world.feed()
                for _ in range(count):
                    # One kill in five comes during the start, so that recovery is killed, too.
                    ready = world.rxd.run_for(
                        generator.uniform(0, 0.08 if generator.random() < 0.2 else 0.5))
                    if ready is not None:
                        readies.append(ready)
                    if world.rxd.alive:
                        hits += world.rxd.kill()
                    else:
                        report.note(f"ended by itself with {world.rxd.wait(1)}")
                    world.start()
                ready = world.rxd.ready()
                unready += ready is None
                world.stop_feeds()
                if world.server:
                    world.server.up("200")
                drained = world.drain()
                time = world.fresh() if drained else None
                fresh.append(time if time is not None else 99)
                code = world.rxd.stop()
                if code != 0:
                    report.note(f"exit status {code} at the end")
                verdict = world.judged()
                totals.add(verdict)
                if not drained or verdict.lost or verdict.damaged:
                    report.notes += world.tail()
                if world.server:
                    same_key += world.server.same_key
            done += count
        report.figure("kills", done)
        report.least("hit", hits, done * 9 // 10)
        report.verdict(totals, per_kill * done)
        if sink == "http":
            report.figure("repeated with a known key", same_key)
        report.figure("repeated per kill", round(totals.repeated / max(hits, 1)))
        report.require("starts again", not unready)
        if readies:
            report.most("ready, p99 in s", percentile(readies, 0.99), 1.0)
        report.most("fresh event, in s", max(fresh, default=99), 5)
        yield report.end()


class DiamondJudge(Judge):
    """Judges outputs `{"k": count, "b": event, "c": event}`: `b` runs through all events from the first output on, and
    `k` counts the outputs without a gap."""

    def __init__(self):
        super().__init__()
        self.first = None

    def _line(self, text):
        try:
            value = json.loads(text)
            k, b, c = value["k"], value["b"], value["c"]
            good = all(checksum(e["src"].encode(), e["n"], e["pad"].encode()) == e["sum"] for e in (b, c))
        except (ValueError, KeyError, TypeError, AttributeError):
            good = False
        if not good:
            self._damage(text)
            return
        if c["n"] > b["n"] or c["n"] % 5000:
            self.source(b"impossible").take(1)
            return
        every = self.sources[b["src"].encode()]
        if self.first is None or b["n"] < self.first:
            # Killed before its first commit, rxd starts over, and the first `c`, which the clock causes, may come at an
            # earlier `b` than before.
            self.first = b["n"]
            every.highest = 0
        # There is an output for each `b`, and one more when `c` changes, so `b` alone does not show repeats.
        if not self.has(b["src"].encode(), b["n"]):
            every.take(b["n"])
        outputs = self.sources.setdefault(b"outputs", Source())
        outputs.sent = max(outputs.sent, k)
        outputs.take(k)

    def verdict(self, ignore_loss_before=None):
        with self.changed:
            outputs = self.sources.get(b"outputs")
            if outputs and outputs.sent:
                outputs.owed = [[1, outputs.sent]]
            if self.first is not None:
                for source in self.sources.values():
                    if source is not outputs:
                        source.owed = [[max(first, self.first), last] for first, last in source.owed
                                       if last >= self.first]
            return super().verdict(ignore_loss_before)
