"""Full, read-only and shared state directories."""
import os
import shutil

from ..process import Rxd, mount, undo, wait_until
from ..report import Report
from ..world import World, pipeline

CASES = ["state", "sink", "unwritable", "read-only", "second"]
MIB = 1 << 20


def run(options):
    """Takes the disk away, and gives it back."""
    for case, body in (("state", state), ("sink", sink), ("unwritable", unwritable), ("read-only", read_only),
                       ("second", second)):
        if options.wants(case):
            report = Report(f"full/{case}", options.seed)
            body(options, report)
            yield report.end()


def tmpfs(report, world, name, size):
    """Mounts a small file system; returns its path and the action that unmounts it, or None."""
    path = world.directory / name
    os.makedirs(path, 0o700, exist_ok=True)
    try:
        return path, mount("-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", path)
    except OSError as error:
        report.skip(f"needs to mount a tmpfs ({error})")
        return None, None


def state(options, report):
    """The state directory fills while the sink is down: no exit, no acknowledgement without room; then all resumes."""
    with World("overload", "http", "http", options.seed, options.rate, pad=b"x" * 180, keep=options.keep) as world:
        path, unmount = tmpfs(report, world, "small", 8 * MIB)
        if not path:
            return
        try:
            world.state = path
            world.start()
            report.require("starts", world.rxd.ready() is not None)
            world.server.down()
            world.feed()
            # Filled from outside first, then by waiting events.
            filler = os.path.join(path, "filler")
            for round_ in range(2 if options.quick else 6):
                full = fill(filler, path, room=0 if round_ % 2 else MIB // 2)
                report.require("fills", full)
                before = world.judge.promises()
                world.rxd.run_for(1.5)
                report.figure("acknowledged while full", world.judge.promises() - before)
                os.unlink(filler)
                world.server.up()
                passed = wait_until(lambda: world.judge.promises() > before, 10)
                report.require("goes on with room", passed)
                if round_ + 1 < (2 if options.quick else 6):
                    world.server.down()
            report.require("still runs", world.rxd.alive)
            world.stop_feeds()
            report.figure("answers", dict(sum_statuses(world.feeds)))
            drained = world.drain()
            report.require("drained", drained)
            report.most("fresh event, in s", world.fresh() if drained else None, 5)
            code = world.rxd.stop()
            report.require("exit status 0", code == 0, code)
            report.verdict(world.judged(), 2_000)
            report.notes += world.tail()
        finally:
            if world.rxd and world.rxd.handle is not None:
                world.rxd.kill()
            undo(unmount)
    unique(report)


def sink(options, report):
    """The disk of a `file` sink fills and is freed: the sink waits, no line is torn, nothing is lost."""
    with World("server-delay-file", "http", "file", options.seed, 5_000, keep=options.keep) as world:
        path, unmount = tmpfs(report, world, "small", 64 * MIB)
        if not path:
            return
        try:
            world.out = os.path.join(path, "out.ndjson")
            world.environment["OUT"] = world.out
            filler = os.path.join(path, "filler")
            world.start()
            report.require("starts", world.rxd.ready() is not None)
            world.feed()
            report.require("fills", fill(filler, path, room=0))
            world.rxd.run_for(2)
            report.require("still runs", world.rxd.alive)
            world.stop_feeds()
            os.unlink(filler)
            drained = world.drain()
            report.require("drained", drained)
            report.most("fresh event, in s", world.fresh() if drained else None, 5)
            code = world.rxd.stop()
            report.require("exit status 0", code == 0, code)
            report.verdict(world.judged(), 0)
            report.notes += world.tail()
        finally:
            if world.rxd and world.rxd.handle is not None:
                world.rxd.kill()
            undo(unmount)


def unwritable(options, report):
    """A state directory without write permission is refused, by name and reason, before any source opens."""
    if os.geteuid() != 0:
        return report.skip("needs root, to become another user")
    nobody = 65_534
    with World("server-http", "http", "http", options.seed) as world:
        os.chmod(world.directory.path, 0o755)
        program = world.directory / "rxd"
        shutil.copyfile(Rxd.program, program)
        os.chmod(program, 0o755)
        os.chown(world.state, nobody, nobody)
        os.chmod(world.state, 0o500)
        file = world.directory / "pipeline.yaml"
        shutil.copyfile(pipeline("server-http"), file)
        for name in (file, world.log):
            open(name, "a").close()
            os.chmod(name, 0o666)
        original, Rxd.program = Rxd.program, program
        try:
            refused(report, world, world.start(file, user=nobody), 74)
        finally:
            Rxd.program = original


def read_only(options, report):
    """A state directory on a read-only file system is refused."""
    with World("server-http", "http", "http", options.seed) as world:
        path, unmount = tmpfs(report, world, "small", MIB)
        if not path:
            return
        try:
            mount("-o", "remount,ro", path)
            world.state = path
            refused(report, world, world.start(), 74)
        finally:
            undo(unmount)


def second(options, report):
    """A second process with the same state directory exits with 75, the first continues; a kill frees the directory."""
    with World("server-http", "http", "http", options.seed, 5_000) as world:
        first = world.start()
        report.require("starts", first.ready() is not None)
        world.feed()
        refused(report, world, Rxd(pipeline("file-http"), world.state, world.directory.path, world.environment,
                                   log=world.directory / "second").start(), 75)
        report.require("the first goes on", first.alive and (world.stop_feeds() or world.fresh() is not None))
        first.kill()
        world.start()
        report.require("starts after a kill", world.rxd.ready() is not None)
        report.most("fresh event, in s", world.fresh(), 5)
        report.require("exit status 0", world.rxd.stop() == 0)
        report.verdict(world.judged(), 2_000)


def refused(report, world, rxd, status):
    """Checks that the process ends soon, with this status and a line that names the directory."""
    code = rxd.wait(5)
    if code is None:
        rxd.kill()
    report.require(f"exit status {status}", code == status, code)
    text = rxd.log()
    report.require("the message names the directory", os.path.basename(world.state) in text)
    report.require("no source opened", "listening" not in text)
    report.notes += text.splitlines()[-3:]


def fill(path, directory, room):
    """Leaves only `room` bytes on the file system."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_frsize
                if free <= room:
                    return True
                file.write(bytes(min(65_536, free - room)))
        except OSError:
            return True


def sum_statuses(feeds):
    totals = {}
    for feed in feeds:
        for status, count in feed.statuses.items():
            totals[status] = totals.get(status, 0) + count
    return sorted(totals.items())


def unique(report):
    """Reports each check once, as failed if it failed at any time."""
    seen = {}
    for check in report.checks:
        key = check.name
        if key not in seen or not check.holds:
            seen[key] = check
    report.checks = list(seen.values())
