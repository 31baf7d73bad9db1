"""Calls of malloc and related functions per event."""
import os
import re
import subprocess

from .machine import Fault, remove, say


def allocations(bench, workload):
    """Allocations per event beyond the first 100,000 events: the difference of two runs, since some are per block."""
    counts = []
    for events in (100_000, 200_000):
        data = bench.generate(workload.input, events)
        output = bench.file("allocations.out")
        done = subprocess.run(
            bench.pipeline(workload.name), stderr=subprocess.PIPE,
            env={**os.environ, "BENCH_INPUT": data, "BENCH_OUTPUT": output,
                 "LD_PRELOAD": bench.program("allocations.so")})
        remove(output)
        found = re.search(rb"allocations (\d+)", done.stderr)
        if done.returncode != 0 or not found:
            raise Fault(f"{workload.name}: {done.stderr.decode(errors='replace')[-500:]}")
        counts.append(int(found[1]))
    return (counts[1] - counts[0]) / 100_000


def table(bench, chosen):
    counts = {workload.name: allocations(bench, workload) for workload in chosen}
    say("\nallocations for each event: " + ", ".join(f"{name} {count:.3f}" for name, count in counts.items()))
    return counts
