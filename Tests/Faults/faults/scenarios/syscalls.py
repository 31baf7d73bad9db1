"""SIGKILL and every error in every file system call on the state directory: start, recovery, commit and stop."""
import collections
import os
import random
import re
import shutil
import signal

from ..oracle import Judge
from ..process import Directory, wait_until
from ..report import Report
from ..world import World

CASES = ["kill", "EIO", "ENOSPC", "EINTR"]
CALLS = ("openat", "pread64", "read", "pwrite64", "write", "fdatasync", "fsync", "ftruncate", "fallocate", "rename",
         "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "lseek", "newfstatat", "fstat", "fcntl",
         "flock")
ACTIONS = {"kill": "signal=KILL", "EIO": "error=EIO", "ENOSPC": "error=ENOSPC", "EINTR": "error=EINTR"}
#: The calls in which each error can occur.
WRITES = {"pwrite64", "write", "fdatasync", "fsync", "ftruncate", "fallocate", "rename", "renameat", "renameat2",
          "openat", "mkdir", "mkdirat"}
BLOCKING = {"pread64", "read", "pwrite64", "write", "openat", "fdatasync", "fsync", "ftruncate", "fallocate"}


def sensible(action, call):
    if action == "EIO":
        # Local file systems do not report EIO for locks, or for data that is known without the disk.
        return call not in ("fcntl", "flock", "lseek", "fstat", "newfstatat")
    if action == "ENOSPC":
        return call in WRITES
    if action == "EINTR":
        return call in BLOCKING
    return True


def run(options):
    """Learns the calls in an undisturbed run, then repeats it with one fault each."""
    strace = shutil.which("strace")
    reports = {case: Report(f"syscalls/{case}", options.seed) for case in CASES if options.wants(case)}
    if not strace:
        for report in reports.values():
            report.skip("needs strace")
            yield report
        return
    sweep = Sweep(options, strace)
    try:
        problem = sweep.prepare()
        for case, report in reports.items():
            if problem:
                report.require(problem, False)
            else:
                sweep.run(case, report)
            yield report.end()
    finally:
        sweep.close()


class Sweep:
    def __init__(self, options, strace):
        self.options = options
        self.strace = strace
        self.world = World("server-delay-http", "http", "http", options.seed, 4_000, feeds=1, keep=options.keep)
        self.base = self.world.state

    def close(self):
        self.world.close()

    def prepare(self):
        """Makes a store with a backlog, and counts the calls; returns a problem, or None."""
        world = self.world
        world.start()
        if world.rxd.ready() is None:
            return "starts"
        world.server.down()
        feed = world.feeds[0]
        for _ in range(10):
            feed.timeout = 1
            feed.post(20)
        world.rxd.kill()
        if not feed.acknowledged:
            return "acknowledges with a dead sink"
        self.owed = list(world.judge.source(feed.name).owed)
        self.sent = feed.n
        outcome = self.one([], "-e", "trace=" + ",".join(CALLS))
        if outcome.code != 0 or outcome.verdict.lost:
            return f"an undisturbed run ends well ({outcome.code}, {outcome.verdict})"
        # Counted per thread, as strace does.
        counts = collections.Counter(re.findall(r"^(\d+) +(\w+)\(", outcome.trace, re.M))
        self.counts = {}
        for (_, call), count in counts.items():
            if call in CALLS:
                self.counts[call] = max(self.counts.get(call, 0), count)
        return None if self.counts else "calls at the state directory"

    def one(self, injection, *more):
        """With `injection`: start from the base, three posts, a stop. Then a start without it; returns the verdict."""
        world, outcome = self.world, Outcome()
        directory = Directory()
        world.state = directory / "state"
        trace = directory / "trace"
        shutil.copytree(self.base, world.state, ignore=shutil.ignore_patterns("*.sock"))
        judge = world.judge = world.server.judge = Judge()
        feed = world.feeds[0]
        feed.judge, feed.n, feed.timeout = judge, self.sent, 3
        feed.disconnect()
        source = judge.source(feed.name)
        source.sent, source.owed = self.sent, [list(one) for one in self.owed]
        world.server.up()
        paths = [world.state]
        for path, directories, names in os.walk(world.state):
            paths += [os.path.join(path, name) for name in directories + names]
        # Also the files that SQLite creates only later.
        paths += [path + end for path in paths for end in ("-wal", "-journal", "-shm")
                  if os.path.isfile(path) and not path.endswith(("-wal", "-journal", "-shm"))]
        selected = [word for path in dict.fromkeys(paths) for word in ("-P", path)]
        before = [self.strace, "-D", "-qq", "-f", "-o", trace, *selected, *more, *injection]
        world.start(before=before)
        if world.rxd.ready(10) is not None:
            for _ in range(3):
                if world.rxd.alive:
                    feed.post(20)
        elif world.rxd.child.returncode is None and world.rxd.wait(0.5) is None:
            outcome.unready = True
        if world.rxd.handle is not None:
            world.rxd.signal(signal.SIGTERM)
            outcome.code = world.rxd.wait(15)
        else:
            outcome.code = world.rxd.child.returncode
        if outcome.code is None:
            world.rxd.kill()
        outcome.log = world.rxd.log()
        wait_until(lambda: os.path.exists(trace), 1)
        with open(trace, errors="replace") as file:
            outcome.trace = file.read()
        feed.disconnect()
        world.start()
        outcome.ready = world.rxd.ready(10)
        outcome.fresh = world.fresh(10) if outcome.ready is not None else None
        outcome.end = world.rxd.stop(15) if world.rxd.handle is not None else world.rxd.child.returncode
        outcome.verdict = judge.verdict()
        if outcome.ready is None or outcome.fresh is None or outcome.verdict.lost:
            outcome.log += "\n" + world.rxd.log()
        directory.remove()
        return outcome

    def run(self, case, report):
        points = [(call, n) for call, count in sorted(self.counts.items()) for n in range(1, count + 1)
                  if sensible(case, call)]
        report.figure("points", len(points))
        most = self.options.rounds or (5 if self.options.quick else len(points))
        if most < len(points):
            # Counts vary from run to run, so later calls may not be reached.
            points = [(call, n) for call, n in points if n <= self.counts[call] // 2 + 1]
            points = sorted(random.Random(f"{self.options.seed}/{case}").sample(points, min(most, len(points))))
        hits, crashed, hung, lost, damaged, stuck, exits = 0, 0, 0, 0, 0, 0, collections.Counter()
        for call, n in points:
            outcome = self.one(["-e", f"inject={call}:{ACTIONS[case]}:when={n}"], "-e", f"trace={call}")
            killed = outcome.code == -signal.SIGKILL and case == "kill"
            hits += killed or "(INJECTED)" in outcome.trace
            crash = outcome.code is not None and outcome.code < 0 and not killed
            crashed += crash
            hung += outcome.code is None or outcome.unready
            stuck += outcome.ready is None or outcome.fresh is None or outcome.end != 0
            lost += outcome.verdict.lost
            damaged += outcome.verdict.damaged + outcome.verdict.invented
            if outcome.code is not None and outcome.code > 0:
                exits[outcome.code] += 1
                if case == "EINTR":
                    report.note(f"{call} {n}: exit {outcome.code}: {' '.join(outcome.log.splitlines()[-1:])}")
            if crash or outcome.code is None or outcome.unready or outcome.ready is None or outcome.fresh is None \
                    or outcome.verdict.lost or outcome.end != 0:
                report.note(f"{call} {n}: exit {outcome.code}, then ready {outcome.ready}, fresh {outcome.fresh}, exit "
                            f"{outcome.end}, {outcome.verdict}")
                report.notes += outcome.log.splitlines()[-3:]
        report.figure("runs", len(points))
        report.least("hit", hits, len(points) // 2)
        report.most("crashed", crashed, 0)
        report.most("hung", hung, 0)
        report.most("lost", lost, 0)
        report.most("damaged or invented", damaged, 0)
        report.most("not usable afterwards", stuck, 0)
        if case == "EINTR":
            # EINTR is not a failure: the call is repeated.
            report.most("ended by it", sum(exits.values()), 0)
        elif exits:
            report.figure("exit statuses", dict(exits))


class Outcome:
    """The verdict on one run."""
    code = ready = fresh = end = verdict = None
    unready = False
    log = trace = ""
