"""Power cuts on a loop device: acknowledged data survives, and the store opens."""
import os
import random
import shutil
import subprocess

from ..oracle import Verdict
from ..process import Directory, at_end, mount, undo
from ..report import Report, percentile
from ..world import World

#: name: (source, sink)
CASES = {
    "server-http": ("http", "http"),
    "server-delay-http": ("http", "http"),
    "server-sync-file": ("http", "file"),
    "file-http": ("file", "http"),
    "file-sync-file": ("file", "file"),
}


class Disk:
    """An ext4 file system on a loop device with direct I/O: the image holds exactly what was written to the device."""

    def __init__(self, directory):
        self.image, self.cut_image = directory / "image", directory / "cut"
        self.path, self.cut_path = directory / "disk", directory / "afterwards"
        os.mkdir(self.path)
        os.mkdir(self.cut_path)
        _run("truncate", "-s", "96M", self.image)
        _run("mkfs.ext4", "-q", "-F", self.image)
        self.device = _run("losetup", "--direct-io=on", "-f", "--show", self.image).strip()
        self.detach = at_end(lambda: subprocess.run(["losetup", "-d", self.device], check=False, capture_output=True))
        self.unmount = mount(self.device, self.path)

    def cut(self):
        """Copies the device's current content, without a sync, and mounts the copy; returns the action that unmounts it."""
        _run("cp", "--sparse=always", self.image, self.cut_image)
        return mount("-o", "loop", self.cut_image, self.cut_path)

    def close(self):
        undo(self.unmount)
        undo(self.detach)


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def run(options):
    """Cuts the power under load; the judge keeps the acknowledgements outside the disk."""
    rounds = options.rounds or (3 if options.quick else 200)
    for case, (source, sink) in CASES.items():
        if options.wants(case):
            report = Report(f"powercut/{case}", options.seed)
            directory = Directory()
            try:
                disk = Disk(directory)
            except (OSError, FileNotFoundError) as error:
                report.skip(f"needs root and a loop device ({error})")
            else:
                try:
                    cuts(options, report, case, source, sink, disk, rounds)
                finally:
                    disk.close()
            directory.remove()
            yield report.end()


def cuts(options, report, case, source, sink, disk, rounds):
    totals, opened, hits, dropped, dead, times = Verdict(), 0, 0, 0, 0, []
    for i in range(rounds):
        generator = random.Random(f"{options.seed}/{case}/{i}")
        state = os.path.join(disk.path, "state")
        os.mkdir(state, 0o700)
        with World(case, source, sink, options.seed + i, options.rate, state=state, keep=options.keep) as world:
            if sink == "file":
                world.out = os.path.join(disk.path, "out.ndjson")
                world.environment["OUT"] = world.out
            # Everything that exists before the test is synced to the disk.
            _sync(disk.path)
            world.start()
            if world.rxd.ready() is None:
                report.note("did not start")
                report.notes += world.tail(3)
            world.feed()
            # In half of the cuts the sink is down, so nothing leaves the store.
            if world.server and generator.random() < 0.5:
                world.server.down()
                dead += 1
            # The control: a write that is never synced, which cuts must lose now and then.
            with open(os.path.join(disk.path, "control"), "wb", buffering=0) as control:
                control.write(b"x" * 10_000)
            world.rxd.run_for(generator.uniform(0.05, 0.7))
            hits += world.rxd.kill() and world.judge.promises() > 0
            unmount = disk.cut()
            try:
                for feed in world.feeds:
                    feed.stopped.set()
                for feed in world.feeds:
                    feed.stop()
                dropped += not _has(os.path.join(disk.cut_path, "control"), 10_000)
                if world.server:
                    world.server.up()
                else:
                    world.out = os.path.join(disk.cut_path, "out.ndjson")
                    world.environment["OUT"] = world.out
                world.state = os.path.join(disk.cut_path, "state")
                if not os.path.isdir(world.state):
                    report.note("the state directory is gone")
                    os.makedirs(world.state, 0o700, exist_ok=True)
                world.start()
                ready = world.rxd.ready()
                if ready is not None:
                    times.append(ready)
                drained = world.drain(20)
                opened += drained
                world.rxd.stop()
                verdict = world.judged()
                totals.add(verdict)
                if verdict.lost or not drained:
                    report.note(f"cut {i}, seed {options.seed}: {verdict}")
                    report.notes += world.tail(5)
            finally:
                if world.rxd.handle is not None:
                    world.rxd.kill()
                undo(unmount)
        shutil.rmtree(state)
        for name in ("out.ndjson", "control"):
            path = os.path.join(disk.path, name)
            if os.path.exists(path):
                os.unlink(path)
    report.figure("cuts", rounds)
    report.figure("with a dead sink", dead)
    report.figure("unsynced control writes dropped", dropped)
    report.least("hit", hits, rounds * 9 // 10)
    if rounds >= 3:
        report.least("drops unsynced writes", dropped, 1)
    report.least("store opens", opened, rounds)
    report.verdict(totals)
    if times:
        report.figure("ready, p99 in s", percentile(times, 0.99))


def _sync(path):
    """Syncs the whole file system of `path`."""
    _run("sync", "-f", path)


def _has(path, size):
    try:
        with open(path, "rb") as file:
            return file.read() == b"x" * size
    except OSError:
        return False
