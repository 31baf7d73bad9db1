"""More keys than memory has room for: `distinct`, with all keys in memory and with most of them on the disk."""
import os
import shutil
import statistics
import subprocess
import tempfile

from .machine import Fault, PIPELINES, Run, Surroundings, remove, say

#: One event in so many has a key that has come before, at random among all of them.
REPEATED = 4
ROUNDS = 3

#: Writes the events: of `n`, each `r`th has the key of an earlier one at random, and all others have new keys in no order.
GENERATE = """BEGIN {
  x = 12345
  for (i = 0; i < n; i++) {
    x = (x * 16807) % 2147483647
    k = i
    if (i % r == r - 1) { k = int(i * (x / 2147483647)); if (k % r == r - 1) k-- }
    printf "{\\"k\\":%d}\\n", k * 7919 % 1000000007
  }
}"""


def events(bench, count):
    """A file with `count` events, three quarters of which have a new key."""
    path = os.path.join(bench.programs, f"spilled-{count}.ndjson")
    if not os.path.exists(path):
        with open(path + ".new", "wb") as file:
            subprocess.run(["awk", "-v", f"n={count}", "-v", f"r={REPEATED}", GENERATE], stdout=file, check=True)
        os.rename(path + ".new", path)
    return path


def table(bench, count, memories, rounds):
    data = events(bench, count)
    surroundings = Surroundings()
    # A file system in memory has no sync.
    directory = tempfile.mkdtemp(prefix="spilled-", dir=bench.programs)
    output, state = os.path.join(directory, "out"), os.path.join(directory, "state")
    runs = {memory: [] for memory in memories}
    sizes, lines = set(), 0
    try:
        for _ in range(rounds):
            for memory in memories:
                remove(output)
                shutil.rmtree(state, ignore_errors=True)
                os.mkdir(state)
                os.sync()  # Writes what the previous run has left to the kernel.
                runs[memory].append(Run(
                    bench, [bench.rxd, "--quiet", "--state-dir", state, os.path.join(PIPELINES, "w25-spilled.yaml")],
                    bench.cores, {"BENCH_INPUT": data, "BENCH_OUTPUT": output, "BENCH_MEMORY": memory}))
                sizes.add(os.path.getsize(output))
                if len(sizes) > 1:
                    raise Fault("w25-spilled: the outputs differ")
        with open(output, "rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    finally:
        shutil.rmtree(directory)
    say(f"\nw25-spilled, {count:,} events with {lines:,} keys, light, a disk, {rounds} rounds in turn; medians and ranges")
    say(f"{'memory':<12}{'seconds':>24}{'CPU seconds':>24}{'MB':>7}   time beside the first")
    for memory, several in runs.items():
        walls, cpus = [run.wall for run in several], [run.cpu for run in several]
        beside = [own.wall / first.wall for own, first in zip(several, runs[memories[0]])]
        peak = statistics.median(run.peak for run in several)
        say(f"{memory:<12}" + "".join(
            f"{f'{statistics.median(one):.2f} ({min(one):.2f}-{max(one):.2f})':>24}" for one in (walls, cpus))
            + f"{peak / 1e6:>7.0f}   {statistics.median(beside):.2f} ({min(beside):.2f}-{max(beside):.2f})")
    say(surroundings)
    return runs


def some(bench):
    """W25: four million events with three million keys."""
    return table(bench, 4_000_000, ("1024GiB", "128MiB", "32MiB"), ROUNDS)


def many(bench):
    """The same with a hundred million keys in 512 MiB, which takes long and 10 GB of disk."""
    return table(bench, 134_000_000, ("400MiB",), 1)


ALL = {"w25-spilled": some, "w25-spilled-large": many}
