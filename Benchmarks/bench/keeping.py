"""The cost of losing nothing: the same pipelines with each guarantee, alternating, on a disk."""
import os
import shutil
import statistics
import tempfile

from .machine import Fault, PIPELINES, Run, Surroundings, remove, say
from .pairs import Estimate

ROUNDS = 8
PROMISES = ("bestEffort", "light", "durable")


def in_turn(bench, name, events):
    """Runs the pipeline with each guarantee; all must give the same output."""
    data = bench.generate("events", events)
    surroundings = Surroundings()
    # A file system in memory has no sync.
    directory = tempfile.mkdtemp(prefix="keeping-", dir=bench.programs)
    output, state = os.path.join(directory, "out"), os.path.join(directory, "state")
    runs = {promise: [] for promise in PROMISES}
    sizes = set()
    try:
        for _ in range(ROUNDS):
            for promise in PROMISES:
                remove(output)
                shutil.rmtree(state, ignore_errors=True)
                os.mkdir(state)
                os.sync()  # Writes what the previous run has left to the kernel.
                runs[promise].append(Run(
                    bench, [bench.rxd, "--quiet", "--state-dir", state, os.path.join(PIPELINES, name + ".yaml")],
                    bench.cores, {"BENCH_INPUT": data, "BENCH_OUTPUT": output, "BENCH_DELIVERY": promise}))
                sizes.add(os.path.getsize(output))
                if len(sizes) > 1:
                    raise Fault(f"{name}: the outputs differ")
    finally:
        shutil.rmtree(directory)
    say(f"\n{name}, {events:,} events, two cores, a disk, {ROUNDS} rounds in turn; medians and ranges")
    say(f"{'':<12}{'seconds':>20}{'CPU seconds':>20}{'MB':>6}   beside bestEffort, by the clock and by CPU")
    figures = {}
    for promise, several in runs.items():
        walls, cpus = [run.wall for run in several], [run.cpu for run in several]
        pairs = list(zip(several, runs["bestEffort"]))
        ratios = [Estimate.of([getattr(own, by) / getattr(least, by) for own, least in pairs]) for by in ("wall", "cpu")]
        peak = statistics.median(run.peak for run in several)
        figures[promise] = {"wall": walls, "cpu": cpus, "peak": peak, "ratios": ratios}
        say(f"{promise:<12}" + "".join(
            f"{f'{statistics.median(one):.2f} ({min(one):.2f}-{max(one):.2f})':>20}" for one in (walls, cpus))
            + f"{peak / 1e6:>6.0f}   "
            + ", ".join(f"{one.median:.2f} ({one.low:.2f}-{one.high:.2f})" for one in ratios))
    say(surroundings)
    return figures


def delivery(bench):
    """W20: events from file to file, changed on the way."""
    return in_turn(bench, "w20-delivery", 1_000_000)


def state(bench):
    """W21: a state with as many keys as there are events."""
    return in_turn(bench, "w21-state", 1_000_000)


ALL = {"w20-delivery": delivery, "w21-state": state}
