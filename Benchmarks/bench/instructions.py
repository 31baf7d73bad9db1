"""Instructions per event, which a busy machine does not change: by perf where the processor's counters may be read,
else by valgrind."""
import concurrent.futures
import os
import re
import shutil
import subprocess

from .machine import HERE, Fault, remove, say
from .throughput import reference

# Two sizes of the input. Only the difference is used, so the start of a program does not count.
FEW, MANY = 4_000, 24_000
# rxd keeps events that do not pass, at a rate limited by time; this must not be part of the count.
KEEPS_NONE = {"RXD_WHY_MEMORY": "0B"}


class Counter:
    def __init__(self, bench):
        self.bench = bench
        probe = subprocess.run(
            ["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True
        ) if shutil.which("perf") else None
        self.by_perf = probe is not None and re.match(r"^\d+,", probe.stderr) is not None
        if not self.by_perf and not shutil.which("valgrind"):
            raise Fault("instructions cannot be counted: perf may not read the processor's counters, and valgrind "
                        "is not installed; install it with `apt-get install valgrind`")
        # valgrind 3.19 fails on the debug information of Swift 6.
        self.slow_clock = bench.program("slow-clock.so")
        if not self.by_perf:
            source = os.path.join(HERE, "load", "slow-clock.c")
            subprocess.run([os.environ.get("CC", "gcc"), "-O2", "-shared", "-fPIC", "-o", self.slow_clock, source], check=True)
        self.rxd = bench.program("rxd-without-debug-information")
        subprocess.run(["strip", "-g", "-o", self.rxd, bench.rxd], check=True)

    @property
    def name(self):
        return "perf" if self.by_perf else "valgrind"

    def counted(self, command):
        """The command that runs `command` and prints its number of instructions to standard error."""
        if self.by_perf:
            return ["perf", "stat", "-x,", "-e", "instructions:u", *command]
        return ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", *command]

    def found(self, command, code, noise):
        """The instructions of a counted run that has ended: those of the program, without the kernel's."""
        found = re.search(r"^(\d+)," if self.by_perf else r"I\s+refs:\s+([\d,]+)", noise, re.M)
        if code != 0 or not found:
            raise Fault(f"{command[0]} could not be counted: {noise[-500:]}")
        return int(found[1].replace(",", ""))

    def count(self, command, environment=None):
        # Under valgrind a program runs many times as long, so work that depends on the clock would be counted that many times.
        slowed = {} if self.by_perf else {"LD_PRELOAD": self.slow_clock}
        done = subprocess.run(
            self.counted(command), env={**os.environ, **KEEPS_NONE, **slowed, **(environment or {})},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return self.found(command, done.returncode, done.stderr)

    def of_events(self, program):
        """Instructions of rxd per event; `program` gives its arguments and environment for a number of events."""
        few, many = (self.count([self.rxd, "--quiet", *arguments], environment)
                     for arguments, environment in map(program, (FEW, MANY)))
        return (many - few) / (MANY - FEW)

    def per_event(self, workload):
        """(rxd, reference) instructions per event; the reference is None for `cat`."""
        scale = 4 if workload.input == "ints" else 1
        ours, theirs = [], []
        for events in (FEW, MANY):
            data = self.bench.generate(workload.input, events * scale)
            output = self.bench.file(f"{workload.name}-{events}.counted")
            ours.append(self.count(
                [self.rxd, *self.bench.pipeline(workload.name)[1:]],
                {"BENCH_INPUT": data, "BENCH_OUTPUT": output}))
            remove(output)
            if workload.reference != "cat":
                theirs.append(self.count(reference(self.bench, workload.reference, data, output)[0]))
                remove(output)
        events = (MANY - FEW) * scale
        return (ours[1] - ours[0]) / events, (theirs[1] - theirs[0]) / events if theirs else None


def table(bench, chosen, programs):
    """`programs`: by their names, what else is counted: it takes the bench and a `Counter`."""
    counter = Counter(bench)
    for workload in chosen:  # Generated first, because several threads would otherwise generate it at once.
        for events in (FEW, MANY):
            bench.generate(workload.input, events * (4 if workload.input == "ints" else 1))
    with concurrent.futures.ThreadPoolExecutor(len(bench.cores)) as pool:
        counts = list(pool.map(counter.per_event, chosen))
    say(f"\ninstructions for each event beyond the start, by {counter.name}")
    say(f"{'workload':<19}{'rxd':>9}{'probe':>9}{'share':>8}")
    figures = {}
    for workload, (ours, theirs) in zip(chosen, counts):
        say(f"{workload.name:<19}{ours:>9.0f}" + (f"{theirs:>9.0f}{100 * theirs / ours:>7.0f}%" if theirs else ""))
        figures[workload.name] = {"rxd": ours, "reference": theirs}
    for name, program in programs.items():
        figures[name] = {"rxd": program(bench, counter)}
        say(f"{name:<19}{figures[name]['rxd']:>9.0f}")
    return {"by": counter.name, "workloads": figures}
