"""Events per second of whole pipelines, compared with plain loops that do the same work."""
import dataclasses
import os
import statistics
import subprocess
import time

from .machine import Fault, Run, Surroundings, remove, say, stolen
from .pairs import Pairs, spend, verdict


def reference(bench, name, data, output):
    """The command, and the target of its standard output."""
    if name == "cat":
        return ["cat", data], output
    return [bench.program("probe"), name, data, output], "-"


def compare(bench, workload, data, cores):
    """Raises unless rxd and the probe write the same bytes."""
    ours, theirs, third = (bench.file(f"{workload.name}.{who}") for who in ("rxd", "same", "canonical"))
    remove(ours, theirs, third)
    Run(bench, bench.pipeline(workload.name), cores, {"BENCH_INPUT": data, "BENCH_OUTPUT": ours})
    Run(bench, *reference(bench, workload.same, data, theirs)[:1], cores)
    check(workload, ours, theirs)
    if workload.canonical:
        remove(theirs)
        Run(bench, [bench.program("probe"), "canonical", ours, third], cores)
        Run(bench, reference(bench, workload.reference, data, theirs)[0], cores)
        check(workload, third, theirs)
    remove(ours, theirs, third)


def check(workload, ours, theirs):
    if workload.writes_two:
        check(dataclasses.replace(workload, writes_two=False), ours + ".2", theirs + ".2")
    found = subprocess.run(["cmp", ours, theirs], capture_output=True, text=True)
    if found.returncode != 0:
        raise Fault(f"{workload.name}: the outputs differ, so nothing was timed: {found.stdout}{found.stderr}")


# The number of runs whose median is the start time.
STARTS = 7


class Start:
    """The median times of runs without input."""

    def __init__(self, runs):
        self.wall, self.cpu = (statistics.median(getattr(run, by) for run in runs) for by in ("wall", "cpu"))


def by_the_clock(cores):
    """For `Pairs`: steal time spoils measurements by the clock, on several cores, but not CPU time on one."""
    return {"stolen": stolen} if len(cores) > 1 else {}


class Row:
    """One workload on some cores: rxd and its reference, alternating."""

    def __init__(self, bench, workload, events, cores):
        self.workload, self.cores = workload, len(cores)
        self.count = workload.count(events)
        # All events on one core; with several cores, the first quarter suffices to show how threads share the work.
        compared = self.count if len(cores) == 1 else self.count // 4
        compare(bench, workload, bench.generate(workload.input, compared), cores)
        data, output = bench.generate(workload.input, self.count), bench.file(workload.name + ".out")
        self.size = os.path.getsize(data)
        empty = bench.generate(workload.input, 0)

        def ours(data):
            remove(output)
            run = Run(bench, bench.pipeline(workload.name), cores, {"BENCH_INPUT": data, "BENCH_OUTPUT": output})
            remove(output)
            return run

        def theirs(data):
            command, standard = reference(bench, workload.reference, data, output)
            remove(output)
            run = Run(bench, command, cores, output=standard)
            remove(output)
            return run

        # The times of the programs without events, which are not part of the comparison.
        self.starts = [Start([program(empty) for _ in range(STARTS)]) for program in (ours, theirs)]
        self.pairs = Pairs(*(
            (lambda program=program, start=start: program(data).without(start))
            for program, start in zip((ours, theirs), self.starts)), **by_the_clock(cores))

    @property
    def by(self):
        """The time from which the share is formed: on several cores, overlapping threads show only by the clock."""
        return "cpu" if self.cores == 1 else "wall"

    def rate(self, runs):
        """The median of events per second by the clock."""
        return statistics.median(self.count / run.wall for run in runs)

    def figures(self):
        return {
            "workload": self.workload.name, "cores": self.cores, "events": self.count, "bytes": self.size,
            "reference": self.workload.reference, "rounds": self.pairs.rounds,
            "starts": [vars(start) for start in self.starts],
            "shares": {by: dataclasses.asdict(self.pairs.share(by)) for by in ("wall", "cpu")},
            **{f"{who}{key.capitalize()}": [getattr(run, key) for run in runs]
               for who, runs in (("rxd", self.pairs.ours), ("reference", self.pairs.theirs))
               for key in ("wall", "cpu", "peak")}}


HEADER = (f"{'workload':<19}{'events':>10}{'M events/s':>11}{'MB/s':>7}{'CPU s':>7}{'peak MB':>9}"
          f"   {'compared with':<15}{'MB/s':>6}{'rounds':>8}{'by the clock':>17}{'by CPU':>17}{'bar':>7}")


def percent(estimate):
    return f"{estimate.median:.0f}% ({f'{estimate.low:.0f}-{estimate.high:.0f})':<8}"


def left_out(all_pairs):
    """The number of rounds that do not count, in words."""
    pairs = list(all_pairs)
    out = sum(len(one.disturbed) for one in pairs)
    text = f"{out} of {sum(one.tries for one in pairs)} rounds are left out: the host took more than 2% of their time"
    return text + ("; ~: too few were left, so some of those are in" if any(one.is_disturbed for one in pairs) else "")


def line(row):
    pairs, bar = row.pairs, row.workload.bar
    rate, other = row.rate(pairs.ours), row.rate(pairs.theirs)
    by_cpu = pairs.share("cpu")
    per_event = row.size / row.count / 1e6
    cpu = statistics.median(run.cpu for run in pairs.ours)
    peak = max(run.peak for run in pairs.ours) / 1e6
    name = "cat" if row.workload.reference == "cat" else "probe " + row.workload.reference
    return (f"{row.workload.name:<19}{row.count:>10,}{rate / 1e6:>11.2f}{rate * per_event:>7.0f}{cpu:>7.2f}{peak:>9.1f}"
            f"   {name:<15}{other * per_event:>6.0f}{pairs.told:>8}{percent(pairs.share('wall')):>17}{percent(by_cpu):>17}"
            + (f"{bar:>6}%  {verdict(by_cpu.at_least(bar))}" if bar and row.cores == 1 else "")).rstrip()


FOOT = """times and rates without the start of the process; shares: the median of all rounds, each formed of two
neighbouring runs, and in brackets the interval of 95 % in which it lies, by order statistics; a bar inside is open:
neither met nor missed"""


def table(bench, workloads, events, cores, unsettled, fewest, seconds):
    """`unsettled`: takes a row and returns the shares that should be narrower, see `spend`. `seconds`: for the whole
    table, unless `fewest` rounds of each take longer."""
    workloads = [one for one in workloads if len(cores) == 1 or not one.brief]
    if not workloads:
        return []
    word = "one core" if len(cores) == 1 else f"{len(cores)} cores"
    compared = "every output" if len(cores) == 1 else "the output of a quarter of them"
    say(f"\n{word}, {events:,} events, fewer where less says as much; {compared} compared byte for byte first")
    until, surroundings = time.monotonic() + seconds, Surroundings()
    rows = [Row(bench, workload, events, cores) for workload in workloads]
    row_of = {row.pairs: row for row in rows}
    spend(list(row_of), until, lambda pairs: unsettled(row_of[pairs]), fewest)
    say(HEADER)
    for row in rows:
        say(line(row))
    say(FOOT)
    if len(cores) > 1:
        say(left_out(row_of))
    start = statistics.median(row.starts[0].cpu for row in rows)
    say(f"the start takes rxd {1000 * start:.1f} ms of CPU; {surroundings.told(len(cores) == 1 or any(one.is_disturbed for one in row_of))}")
    return rows
