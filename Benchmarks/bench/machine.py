"""The machine, the programs built for measuring, and one timed run of one program."""
import os
import platform
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PIPELINES = os.path.join(HERE, "pipelines")


class Fault(Exception):
    """A fault that makes the figures worthless."""


def describe():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"^model name\s*:\s*(.*)", file.read(), re.M)
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return (f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()},"
            f" {system}; load {os.getloadavg()[0]:.1f}")


def executable(rxd):
    if not os.path.isfile(rxd) or not os.access(rxd, os.X_OK):
        raise Fault(f"{rxd} cannot be run; build it with `make build`")
    return os.path.abspath(rxd)


class Bench:
    """The paths of programs and inputs, and the cores to use."""

    def __init__(self, rxd, directory=None):
        self.rxd = executable(rxd)
        self.programs = os.path.join(HERE, os.pardir, ".build", "bench")
        os.makedirs(self.programs, exist_ok=True)
        self.programs = os.path.realpath(self.programs)
        self.data = directory or self.roomy()
        os.makedirs(self.data, exist_ok=True)
        self.cores = sorted(os.sched_getaffinity(0))
        self.build()

    def roomy(self):
        """A directory in memory if there is room, so that no disk is measured."""
        memory = "/dev/shm"
        if os.path.isdir(memory) and shutil.disk_usage(memory).free > 4 << 30:
            return os.path.join(memory, f"rxd-bench-{os.getpid()}")
        return os.path.join(self.programs, f"data-{os.getpid()}")

    def program(self, name):
        return os.path.join(self.programs, name)

    def file(self, name):
        return os.path.join(self.data, name)

    def build(self):
        """Compiles programs that are older than their sources."""
        probe = [os.path.join("probe", name) for name in sorted(os.listdir(os.path.join(HERE, "probe")))]
        for name, sources, options in (
            ("generate", ["generate.cpp"], ["-std=c++17"]),
            ("probe", [name for name in probe if name.endswith(".cpp")], ["-std=c++17", "-lsimdjson"]),
            *[(name, [f"load/{name}.c"], ["-pthread"])
              for name in ("timed", "follow", "floor", "endpoints", "post", "kept", "first")],
            ("collect", ["load/collect.c"], ["-lz"]),
            ("allocations.so", ["load/allocations.c"], ["-shared", "-fPIC", "-fno-builtin"]),
        ):
            program = self.program(name)
            inputs = [os.path.join(HERE, source) for source in sources]
            looked = inputs + [os.path.join(HERE, name) for name in ("probe/probe.hpp", "load/clock.h")]
            if os.path.exists(program) and os.path.getmtime(program) >= max(map(os.path.getmtime, looked)):
                continue
            compiler = os.environ.get("CXX", "g++") if sources[0].endswith("pp") else os.environ.get("CC", "gcc")
            subprocess.run([compiler, "-O3", "-Wall", "-Wextra", *inputs, "-o", program, *options], check=True)

    def generate(self, kind, count):
        """The path of a file with `count` lines of `kind`, which is generated if it does not exist."""
        path = self.file(f"{kind}-{count}.ndjson")
        if not os.path.exists(path):
            with open(path + ".new", "wb") as out:
                subprocess.run([self.program("generate"), kind, str(count)], stdout=out, check=True)
            os.rename(path + ".new", path)
        with open(path, "rb") as file:  # Reads it into the page cache.
            while file.read(1 << 20):
                pass
        return path

    def pipeline(self, name, rxd=None):
        """The command that runs the pipeline, with `rxd` instead of the measured one if it is given."""
        return [rxd or self.rxd, "--quiet", os.path.join(PIPELINES, name + ".yaml")]

    def clear(self):
        shutil.rmtree(self.data, ignore_errors=True)


def stolen():
    """Steal time: seconds that this virtual machine's host has given to others although this machine had work."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class Surroundings:
    """The share of the cores that other programs, and a virtual machine's host, have taken since this was created."""

    def __init__(self):
        self.before = self.look()

    @staticmethod
    def look():
        """Seconds: by the clock; all cores at work; this program and its ended children; stolen."""
        with open("/proc/stat") as file:
            user, nice, system, _, _, interrupts, soft, stolen = (
                int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in file.readline().split()[1:9])
        return time.monotonic(), user + nice + system + interrupts + soft, sum(os.times()[:4]), stolen

    def taken(self):
        """(by other programs, by the host), as shares of one core."""
        clock, busy, own, stolen = (now - then for now, then in zip(self.look(), self.before))
        return max(0, busy - own) / clock, stolen / clock

    def told(self, host_counts=True):
        """The shares in words. `host_counts`: whether the host's share is part of the figures."""
        others, host = self.taken()
        text = f"meanwhile other programs took {100 * others:.0f}% of a core, the host {100 * host:.0f}%"
        return text + (": too much to rely on figures by the clock" if others + host * host_counts > 0.25 else "")

    def __str__(self):
        return self.told()


class Run:
    """One run of one program: wall seconds, CPU seconds, peak resident bytes."""

    def __init__(self, bench, command, cores, environment=None, output="-", input=None):
        figures = bench.file("figures")
        done = subprocess.run(
            [bench.program("timed"), figures, output, ",".join(map(str, cores)), *command],
            env={**os.environ, **(environment or {})}, stdin=input, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Fault(f"{command[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
        with open(figures) as file:
            wall, user, system, peak = file.read().split()
        self.wall = float(wall)
        self.cpu = float(user) + float(system)
        self.peak = int(peak)

    def without(self, start):
        """This run with the times of another subtracted."""
        self.wall -= start.wall
        self.cpu -= start.cpu
        return self


def remove(*paths):
    """Removes files, and the second outputs of workloads that write two."""
    for path in paths:
        for one in (path, path + ".2"):
            if os.path.exists(one):
                os.unlink(one)


def say(*words):
    print(*words, flush=True)


def complain(*words):
    print(*words, file=sys.stderr, flush=True)
