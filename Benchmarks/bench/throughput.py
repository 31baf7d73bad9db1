"""Events per second of whole pipelines beside plain loops that do the same work."""
import os
import statistics
import subprocess

from .machine import Fault, Run, remove, say


def reference(bench, name, data, output):
    """The command, and where its standard output goes."""
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
    found = subprocess.run(["cmp", ours, theirs], capture_output=True, text=True)
    if found.returncode != 0:
        raise Fault(f"{workload.name}: the outputs differ, so nothing was timed: {found.stdout}{found.stderr}")


class Row:
    """The runs of one workload on some cores."""

    def __init__(self, workload, count, size, cores):
        self.workload, self.count, self.size, self.cores = workload, count, size, cores
        self.rxd, self.reference = [], []

    def rate(self, runs):
        """Median of events per second by wall time."""
        return statistics.median(self.count / run.wall for run in runs)

    def shares(self, clock):
        """Percent of the reference, round by round."""
        return sorted(100 * getattr(r, clock) / getattr(o, clock) for o, r in zip(self.rxd, self.reference))

    def share(self, clock="cpu"):
        return statistics.median(self.shares(clock))

    def figures(self):
        return {
            "workload": self.workload.name, "cores": self.cores, "events": self.count, "bytes": self.size,
            "reference": self.workload.reference,
            **{f"{who}{key.capitalize()}": [getattr(run, key) for run in runs]
               for who, runs in (("rxd", self.rxd), ("reference", self.reference))
               for key in ("wall", "cpu", "peak")}}


def measure(bench, workload, events, rounds, cores):
    count = events * (4 if workload.input == "ints" else 1)
    data = bench.generate(workload.input, count)
    compare(bench, workload, data, cores)
    row = Row(workload, count, os.path.getsize(data), len(cores))
    output = bench.file(workload.name + ".out")
    command, standard = reference(bench, workload.reference, data, output)
    for _ in range(rounds):
        # One behind the other, so that a busy minute hits both alike.
        remove(output)
        row.rxd.append(Run(
            bench, bench.pipeline(workload.name), cores, {"BENCH_INPUT": data, "BENCH_OUTPUT": output}))
        remove(output)
        row.reference.append(Run(bench, command, cores, output=standard))
    remove(output)
    return row


HEADER = (f"{'workload':<19}{'M events/s':>11}{'MB/s':>7}{'CPU s':>7}{'peak MB':>9}   {'compared with':<15}{'MB/s':>6}"
          f"{'share':>8}{'by CPU':>8} {'':<9}{'bar':>6}")


def line(row):
    rate, other = row.rate(row.rxd), row.rate(row.reference)
    shares = row.shares("cpu")
    share = row.share()
    bar = row.workload.bar
    verdict = "" if not bar or row.cores > 1 else "met" if share >= bar else "missed"
    per_event = row.size / row.count / 1e6
    cpu = statistics.median(run.cpu for run in row.rxd)
    peak = max(run.peak for run in row.rxd) / 1e6
    name = "cat" if row.workload.reference == "cat" else "probe " + row.workload.reference
    return (f"{row.workload.name:<19}{rate / 1e6:>11.2f}{rate * per_event:>7.0f}{cpu:>7.2f}{peak:>9.1f}   {name:<15}"
            f"{other * per_event:>6.0f}{row.share('wall'):>7.0f}%{share:>7.0f}%"
            f" {f'({shares[0]:.0f}-{shares[-1]:.0f})':<9}"
            + (f"{bar:>5.0f}%  {verdict}" if verdict else ""))


def table(bench, workloads, events, rounds, cores):
    workloads = [one for one in workloads if len(cores) == 1 or not one.brief]
    if not workloads:
        return []
    word = "one core" if len(cores) == 1 else f"{len(cores)} cores"
    say(f"\n{word}, median of {rounds} rounds, {events:,} events; every output compared byte for byte first")
    say(HEADER)
    rows = []
    for workload in workloads:
        rows.append(measure(bench, workload, events, min(rounds, 3) if workload.brief else rounds, cores))
        say(line(rows[-1]))
    return rows
