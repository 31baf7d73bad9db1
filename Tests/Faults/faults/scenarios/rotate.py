"""Rotations of a followed file: by rename, also with compression, with a SIGKILL in each; by copy and truncation."""
import random

from ..oracle import Verdict
from ..report import Report
from ..world import World

CASES = ["rename", "rename-kill", "gzip", "copytruncate"]
#: Events per second.
RATE = 50_000
#: Lines between rotations.
LINES = 2_500


def run(options):
    """Rotates a file that is written at a high rate."""
    if options.wants("rename"):
        yield rename(options, options.rounds or (60 if options.quick else 1_000))
    if options.wants("rename-kill"):
        yield rename_kill(options, options.rounds or (12 if options.quick else 1_000))
    if options.wants("gzip"):
        yield rename_kill(options, options.rounds or (12 if options.quick else 1_000), "gzip")
    if options.wants("copytruncate"):
        yield copytruncate(options, options.rounds or (6 if options.quick else 200))


def rename(options, rounds):
    """Rotations with rxd running all the time."""
    report = Report("rotate/rename", options.seed)
    with World("file-http", "file", "http", options.seed, RATE, rotate="rename", lines=LINES, old=100,
               keep=options.keep) as world:
        world.start()
        report.require("starts", world.rxd.ready() is not None)
        feed = world.feeds[0]
        world.feed()
        while feed.rotations < rounds and feed.wait_rotation(30):
            pass
        world.stop_feeds()
        report.least("rotations", feed.rotations, rounds)
        fresh = world.fresh() if world.drain() else None
        report.require("exit status 0", world.rxd.stop() == 0)
        report.verdict(world.judged(), 0)
        report.most("fresh event, in s", fresh, 5)
        report.notes += world.tail(4)
    return report.end()


def rename_kill(options, rounds, case="rename-kill"):
    """A SIGKILL at a random instant of the interval around each rotation.

    `gzip`: each rotated file is compressed at once by the real program, and every other life starts a rotation later.
    """
    report = Report(f"rotate/{case}", options.seed)
    totals, hits, rotations, done, fresh, compressed = Verdict(), 0, 0, 0, [], 0
    while done < rounds:
        count = min(25, rounds - done)
        generator = random.Random(f"{options.seed}/{case}/{done}")
        # The file is short, so that each life of 0.1 to 0.2 s has at least one rotation.
        with World("file-http", "file", "http", options.seed + done, 20_000, lines=1_000, old=1_000,
                   rotate="gzip" if case == "gzip" else "rename", keep=options.keep) as world:
            world.start()
            world.rxd.ready()
            world.feed()
            feed = world.feeds[0]
            for _ in range(count):
                world.rxd.ready()
                before = feed.rotations
                feed.wait_rotation(5)
                world.rxd.run_for(generator.uniform(0, 0.05))
                hits += world.rxd.kill()
                rotations += feed.rotations > before
                if case == "gzip" and generator.random() < 0.5:
                    feed.wait_rotation(5)
                world.start()
            world.rxd.ready()
            world.stop_feeds()
            drained = world.drain()
            took = world.fresh() if drained else None
            fresh.append(took if took is not None else 99)
            world.rxd.stop()
            compressed += world.logged("was compressed; its unread part is read from")
            verdict = world.judged()
            totals.add(verdict)
            if verdict.lost or not drained:
                report.notes += world.tail()
        done += count
    report.figure("kills", done)
    report.least("hit", min(hits, rotations), done * 9 // 10)
    if case == "gzip":
        report.least("compressed files read on", compressed, done // 4)
    # Some lives are shorter than the time between two checkpoints, so repeats have no limit.
    report.verdict(totals)
    report.most("fresh event, in s", max(fresh, default=99), 5)
    return report.end()


def copytruncate(options, rounds):
    """Lines written between the copy and the truncation are lost for every reader; nothing else may be."""
    report = Report("rotate/copytruncate", options.seed)
    with World("file-http", "file", "http", options.seed, 20_000, rotate="copytruncate", lines=8_000, old=1,
               keep=options.keep) as world:
        world.start()
        report.require("starts", world.rxd.ready() is not None)
        feed = world.feeds[0]
        world.feed()
        while feed.rotations < rounds and feed.wait_rotation(30):
            pass
        world.stop_feeds()
        report.least("rotations", feed.rotations, rounds)
        fresh = world.fresh() if world.drain() else None
        report.require("exit status 0", world.rxd.stop() == 0)
        verdict = world.judged()
        # The events that rxd had not read when the file was truncated.
        lost = [n for n in world.judge.source(feed.name).missing()]
        outside = [n for n in lost if not any(first <= n <= last for first, last in feed.windows)]
        report.figure("lost in the copier's window", len(lost) - len(outside))
        verdict.lost = len(outside)
        report.verdict(verdict, 0)
        if lost:
            report.require("a loss is logged", "truncat" in world.rxd.log())
        report.most("fresh event, in s", fresh, 5)
        report.notes += world.tail(4)
    return report.end()
