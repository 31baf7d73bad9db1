"""Two builds of rxd, alternating: the same pipelines, the same input, the same cores."""
import dataclasses
import statistics
import subprocess
import time

from .machine import Run, Surroundings, remove, say
from .pairs import Pairs, spend, wider_than
from .throughput import by_the_clock, left_out, percent


class Duel:
    """One workload on some cores, run by two builds."""

    def __init__(self, bench, other, environment, workload, events, cores):
        self.workload, self.cores = workload, len(cores)
        self.count = workload.count(events)
        data = bench.generate(workload.input, self.count)

        def runner(rxd, environment, output):
            def run():
                remove(output)
                return Run(bench, bench.pipeline(workload.name, rxd), cores,
                           {**environment, "BENCH_INPUT": data, "BENCH_OUTPUT": output})
            return run

        outputs = [bench.file(f"{workload.name}.{who}") for who in ("A", "B")]
        builds = [(bench.rxd, {}), (other, environment)]
        programs = [runner(*build, output) for build, output in zip(builds, outputs)]
        for program in programs:  # Not counted: warms both up.
            program()
        self.writes_the_same = subprocess.run(["cmp", "-s", *outputs]).returncode == 0
        remove(*outputs)
        # Both write to the same file, which is removed before each run.
        self.pairs = Pairs(*(runner(*build, bench.file(workload.name + ".out")) for build in builds), **by_the_clock(cores))

    def seconds(self, by):
        """((minimum, median) of A, (minimum, median) of B)."""
        return tuple((min(values), statistics.median(values)) for values in (
            [getattr(run, by) for run in runs] for runs in self.pairs.runs))

    def figures(self):
        return {
            "workload": self.workload.name, "cores": self.cores, "events": self.count, "rounds": self.pairs.rounds,
            "writesTheSame": self.writes_the_same,
            "shares": {by: dataclasses.asdict(self.pairs.share(by)) for by in ("wall", "cpu")},
            **{f"{who}{key.capitalize()}": [getattr(run, key) for run in runs]
               for who, runs in zip("AB", self.pairs.runs) for key in ("wall", "cpu", "peak")}}


GROUP = f"{'least A':>9}{'B':>8}{'median A':>10}{'B':>8}{'A as fast as B':>18}"


FOOT = """times with the start of the process; A as fast as B: the median of B's time by A's of all rounds, each formed
of two neighbouring runs, and in brackets the interval of 95 % in which it lies, by order statistics; where that
holds 100, no difference was found; one in twenty misses it by chance"""


def line(duel):
    text = f"{duel.workload.name:<19}{duel.count:>10,}{duel.pairs.told:>7}"
    for by in ("cpu", "wall"):
        (least, median), (other_least, other_median) = duel.seconds(by)
        text += (f"{least:>9.3f}{other_least:>8.3f}{median:>10.3f}{other_median:>8.3f}"
                 f"{percent(duel.pairs.share(by)):>18}")
    return text.rstrip() + ("" if duel.writes_the_same else "  other output")


def table(bench, other, environment, workloads, events, cores, spread, fewest, seconds):
    """Prints and returns the rounds of A, `bench.rxd`, and B, `other` in that environment."""
    word = "one core" if len(cores) == 1 else f"{len(cores)} cores"
    say(f"\n{word}, {events:,} events, fewer where less says as much, A and B in turn\n"
        f"  A = {bench.rxd}\n  B = {' '.join([f'{name}={value}' for name, value in environment.items()] + [other])}")
    until, surroundings = time.monotonic() + seconds, Surroundings()
    duels = [Duel(bench, other, environment, workload, events, cores) for workload in workloads]
    spend([duel.pairs for duel in duels], until, wider_than(spread, "cpu" if len(cores) == 1 else "wall"), fewest)
    width = len(GROUP)
    say(f"{'':<36}{'CPU seconds':>{width}}{'seconds by the clock':>{width}}")
    say(f"{'workload':<19}{'events':>10}{'rounds':>7}{GROUP}{GROUP}")
    for duel in duels:
        say(line(duel))
    say(FOOT)
    pairs = [duel.pairs for duel in duels]
    if len(cores) > 1:
        say(left_out(pairs))
    say(surroundings.told(len(cores) == 1 or any(one.is_disturbed for one in pairs)))
    return [duel.figures() for duel in duels]
