"""What grows: cost and memory with the number of events, start and memory with the size of the configuration."""
import os
import re
import statistics
import subprocess
import time

from .daemon import Daemon
from .machine import PIPELINES, Fault, Run, remove, say
from .workloads import ALL


def events(bench, sizes, names):
    """CPU nanoseconds per event and the peak of memory, from few events to many.

    The events come through a pipe as they are generated, so there can be any number of them."""
    cores = bench.cores[-1:]
    say("\ngrowth with the number of events from a pipe, one core: CPU ns an event without the start; peak MB")
    say(f"{'workload':<19}" + "".join(f"{f'10^{len(str(size)) - 1}':>20}" for size in sizes))
    figures = {}
    for workload in [one for one in ALL if one.name in names and one.readings == 1]:
        cells, figures[workload.name] = [], []
        path = bench.file("growth.yaml")
        with open(os.path.join(PIPELINES, workload.name + ".yaml")) as original, open(path, "w") as piped:
            text, count = re.subn(r'file: \{ path: "\$\{BENCH_INPUT\}", ', "stdin: { ", original.read())
            if count != 1:
                raise Fault(f"{workload.name} does not read one file")
            piped.write(text)

        def run(size):
            with subprocess.Popen([bench.program("generate"), workload.input, str(size)],
                                  stdout=subprocess.PIPE) as generator:
                return Run(bench, [bench.rxd, "--quiet", path], cores, {"BENCH_OUTPUT": "/dev/null"},
                           input=generator.stdout)

        start = statistics.median(run(0).cpu for _ in range(5))
        for size in sizes:
            runs = [run(size) for _ in range(3 if size <= 1_000_000 else 1)]
            each = (min(one.cpu for one in runs) - start) / size * 1e9
            peak = max(one.peak for one in runs)
            figures[workload.name].append({"events": size, "nanoseconds": each, "peak": peak})
            cells.append(f"{f'{each:.0f} ns, {peak / 1e6:.1f} MB':>20}")
        say(f"{workload.name:<19}" + "".join(cells))
        remove(path)
    return figures


def many_pipelines(bench, count=1000, seconds=3):
    """Many pipelines in one process: time to start, memory and idle CPU."""
    directory = bench.file("many")
    os.makedirs(directory, exist_ok=True)
    files = []
    for i in range(count):
        files.append(os.path.join(directory, f"p{i}.yaml"))
        with open(files[-1], "w") as file:
            file.write(f"""name: p{i}
sources:
  ticks:
    interval: {{ every: 1h }}
sinks:
  out:
    from: ticks
    chain:
      - filter: event.tick % 2 == 0
      - map: {{ n: event.tick, pipeline: "'p{i}'" }}
    file: {{ path: "{directory}/out", encode: ndjson }}
""")
    base = settle(bench, files[:1], seconds=2)
    many = settle(bench, files, seconds)
    each = (many["resident"] - base["resident"]) / (count - 1)
    say(f"\n{count} pipelines: started after {many['start']:.2f} s, {100 * many['cpu']:.2f}% of a core and"
        f" {many['wakeups']} wake-ups in {seconds} s idle, {each / 1000:.0f} kB each, {many['resident'] / 1e6:.0f} MB in"
        f" all, {many['threads']} threads, {many['files']} open files")
    say("               " + "; ".join(
        f"{what} at most {bar}: {'met' if value <= bar else 'missed'}" for what, value, bar in (
            ("start in s", many["start"], 2), ("% of a core", 100 * many["cpu"], 1), ("kB each", each / 1000, 100))))
    return {"count": count, "each": each, **many}


def settle(bench, files, seconds):
    """Starts the pipelines, waits until they are idle, and measures."""
    begin = time.monotonic()
    with Daemon(bench, *files) as daemon:
        last, calm, started = -1.0, 0, None
        while calm < 5:
            time.sleep(0.05)
            if daemon.child.poll() is not None:
                raise Fault(f"rxd ended: {daemon.child.stderr.read().decode(errors='replace')[:1000]}")
            cpu = daemon.cpu
            if cpu - last < 0.002:
                calm += 1
                started = started or time.monotonic() - begin
            else:
                calm, started = 0, None
            last = cpu
            if time.monotonic() - begin > 120:
                raise Fault(f"{len(files)} pipelines do not come to rest within two minutes")
        share, wakeups = daemon.over(seconds)
        pid = daemon.child.pid
        return {"start": started, "cpu": share, "wakeups": wakeups, "resident": daemon.resident,
                "threads": len(os.listdir(f"/proc/{pid}/task")), "files": len(os.listdir(f"/proc/{pid}/fd"))}


def many_operators(bench, count=2000):
    """One pipeline with many operators: the time to compile it, beyond that of a pipeline with one."""
    path, output, data = bench.file("deep.yaml"), bench.file("deep.out"), bench.file("one.ndjson")
    with open(data, "w") as file:
        file.write("1\n")

    def cost(steps):
        with open(path, "w") as file:
            file.write(f"name: deep\nsources:\n  numbers:\n    file: {{ path: \"{data}\", decode: ndjson }}\nsinks:\n"
                       "  out:\n    from: numbers\n    chain:\n" + "      - map: event + 1\n" * steps
                       + f"    file: {{ path: \"{output}\", encode: ndjson }}\n")
        remove(output)
        runs = [Run(bench, [bench.rxd, "--quiet", path], bench.cores) for _ in range(5)]
        with open(output) as file:
            if file.readline() != f"{steps + 1}\n":
                raise Fault(f"{steps} steps gave another sum")
        return min(run.wall for run in runs)

    try:
        few, many = cost(1), cost(count)
    except Fault as fault:
        say(f"\n{count} operators in one chain: refused, {str(fault).splitlines()[0]}")
        return {"count": count, "seconds": None}
    say(f"\n{count} operators in one chain: {1000 * (many - few):.0f} ms beyond a chain of one ({1000 * few:.0f} ms)"
        f"\n               ms at most 100: {'met' if many - few <= 0.1 else 'missed'}")
    remove(path, output, data)
    return {"count": count, "seconds": many - few}


def fan_out(bench, branches=100, events=100_000):
    """The cost of one more branch, compared with the cost of its work alone."""
    data, path, output = bench.generate("ints", events), bench.file("fan.yaml"), bench.file("fan.out")
    cores = bench.cores[-1:]

    def cost(count):
        with open(path, "w") as file:
            file.write(f"name: fan\nsources:\n  numbers:\n    file: {{ path: \"{data}\", decode: ndjson }}\nsinks:\n")
            for i in range(count):
                file.write(f"  s{i}:\n    from: numbers\n    chain:\n      - filter: event > {i + 2}\n"
                           f"    file: {{ path: \"{output}\", encode: ndjson }}\n")
        return min(Run(bench, [bench.rxd, "--quiet", path], cores).cpu for _ in range(5))

    figures = {count: cost(count) for count in (1, 10, branches)}
    low = (figures[10] - figures[1]) / 9 / events * 1e9
    high = (figures[branches] - figures[10]) / (branches - 10) / events * 1e9
    say(f"\nfan-out: a further branch of one filter that drops everything costs {low:.0f} ns an event from 1 to 10"
        f" branches and {high:.0f} ns from 10 to {branches}")
    remove(path, output)
    return {"low": low, "high": high}


def configuration(bench):
    return {"pipelines": many_pipelines(bench), "operators": many_operators(bench), "branches": fan_out(bench)}
