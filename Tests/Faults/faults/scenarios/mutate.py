"""Mutated copies of a state directory: opened and drained without a crash, a hang or a silent loss."""
import os
import random
import shutil
import time

from ..oracle import Judge
from ..process import Directory, wait_until
from ..report import Report, percentile
from ..world import World

CASES = ["killed", "stopped"]
#: The size of a page of the store in bytes.
PAGE = 4_096


def run(options):
    """Makes a store with waiting events, and starts rxd with damaged copies of it."""
    for case in CASES:
        if options.wants(case):
            yield mutate(options, case, options.rounds or (12 if options.quick else 5_000))


def mutate(options, case, rounds):
    report = Report(f"mutate/{case}", options.seed)
    generator = random.Random(f"{options.seed}/{case}")
    counts = dict.fromkeys(
        ("crashed", "hung", "damaged", "invented", "silent loss", "refused", "whole", "cut off"), 0)
    kinds, times = {}, []
    with World("server-delay-http", "http", "http", options.seed, 4_000, keep=options.keep) as world:
        world.start()
        report.require("starts", world.rxd.ready() is not None)
        world.server.down()
        world.feed()
        filled = wait_until(lambda: world.judge.promises() >= 2_000, 10)
        world.stop_feeds()
        report.require("has a backlog", filled and world.judge.promises() >= 2_000)
        world.rxd.kill() if case == "killed" else world.rxd.stop()
        owed = {name: (source.sent, list(source.owed)) for name, source in world.judge.sources.items()}
        base = world.state
        files = [os.path.relpath(os.path.join(path, name), base) for path, _, names in os.walk(base) for name in names]
        files = [name for name in files if os.path.getsize(os.path.join(base, name))]
        report.figure("files", len(files))
        report.figure("bytes", sum(os.path.getsize(os.path.join(base, name)) for name in files))
        if not files:
            report.require("the state directory has a store", False)
            return report.end()
        # The whole store first: everything is delivered.
        world.server.up()
        for i in range(rounds + 1):
            copy = Directory()
            world.state = copy / "state"
            shutil.copytree(base, world.state, ignore=shutil.ignore_patterns("*.sock"))
            kind = change(world.state, files, generator) if i else "nothing"
            kinds[kind] = kinds.get(kind, 0) + 1
            judge = world.judge = world.server.judge = Judge()
            for name, (sent, spans) in owed.items():
                judge.sources[name] = source = judge.source(name)
                source.sent, source.owed = sent, [list(span) for span in spans]
            for feed in world.feeds:
                feed.judge = judge
                feed.disconnect()
            feed = world.feeds[0]
            outcome = one(world, judge, feed, times)
            owed[feed.name] = (feed.n, owed[feed.name][1])
            verdict = judge.verdict()
            text = world.rxd.log()
            loud = " warning " in text or " error " in text or "error" in text
            if outcome == "crashed" or outcome == "hung":
                counts[outcome] += 1
            elif verdict.damaged or verdict.invented:
                counts["damaged"] += verdict.damaged
                counts["invented"] += verdict.invented
            elif verdict.lost and not loud:
                counts["cut off" if ends_early(kind) else "silent loss"] += 1
            elif outcome == "refused":
                counts["refused"] += 1
            elif not verdict.lost:
                counts["whole"] += 1
            bad = outcome in ("crashed", "hung") or verdict.damaged or verdict.invented or \
                verdict.lost and not loud and not ends_early(kind)
            if bad or not i and (verdict.lost or outcome != "ran"):
                report.note(f"copy {i} ({kind}): {outcome} {world.rxd.child.returncode}, {verdict}")
                report.notes += text.splitlines()[-4:]
            if not i:
                report.require("the whole store is drained", outcome == "ran" and not verdict.lost)
                if verdict.lost:
                    copy.remove()
                    break
            copy.remove()
    report.figure("copies", sum(kinds.values()))
    report.figure("refused with a message", counts["refused"])
    report.figure("drained whole", counts["whole"])
    report.figure("without the end of the log, or without the file", counts["cut off"])
    for name in ("crashed", "hung", "damaged", "invented", "silent loss"):
        report.most(name, counts[name], 0)
    report.figure("p99 in s", round(percentile(times, 0.99) or 0, 2))
    return report.end()


def ends_early(kind):
    """Whether nothing can notice the damage: a truncated log (as after a power cut), a missing store (as if new)."""
    action, _, name = kind.partition(" of ")
    return action == "missing" or action == "cut" and name.endswith("-wal")


def one(world, judge, feed, times):
    """Starts rxd and lets it drain; returns whether it ran, refused, hung or crashed."""
    world.start()
    begin = time.monotonic()
    ready = world.rxd.ready(10)
    outcome = "ran"
    if ready is None:
        code = world.rxd.wait(0.5)
        if code is None:
            # Running but not ready: a pipeline that waits for its store logs that.
            outcome = "refused" if " error " in world.rxd.log() or " warning " in world.rxd.log() else "hung"
    else:
        with judge.changed:
            judge.changed.wait_for(lambda: not any(True for s in judge.sources.values() for _ in s.missing()) or not
                                   world.rxd.alive, 0.5)
        arrived = world.fresh(3) is not None
        if not arrived and world.rxd.alive:
            text = world.rxd.log()
            outcome = "refused" if " error " in text or " warning " in text else "hung"
    code = world.rxd.stop(10) if world.rxd.handle is not None else world.rxd.child.returncode
    times.append(time.monotonic() - begin)
    if code is None:
        return "hung"
    if code < 0:
        return "crashed"
    if code != 0 and outcome == "ran":
        return "refused"
    return outcome


def change(directory, files, generator):
    """Damages one of the files; returns what was done."""
    # The store's files are the largest; small files are chosen often enough, too.
    weights = [max(os.path.getsize(os.path.join(directory, name)), PAGE) for name in files]
    name = generator.choices(files, weights)[0]
    path = os.path.join(directory, name)
    kind = generator.choice(["bit", "bits", "bytes", "cut", "zero page", "random page", "swap", "longer", "head",
                             "missing", "page copied"])
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size = len(data)
    pages = size // PAGE
    if kind == "bit":
        data[generator.randrange(size)] ^= 1 << generator.randrange(8)
    elif kind == "bits":
        for _ in range(generator.randrange(2, 64)):
            data[generator.randrange(size)] ^= 1 << generator.randrange(8)
    elif kind == "bytes":
        at = generator.randrange(size)
        data[at:at + 64] = generator.randbytes(len(data[at:at + 64]))
    elif kind == "cut":
        del data[generator.randrange(size):]
    elif kind == "zero page" and pages:
        at = generator.randrange(pages) * PAGE
        data[at:at + PAGE] = bytes(PAGE)
    elif kind == "random page" and pages:
        at = generator.randrange(pages) * PAGE
        data[at:at + PAGE] = generator.randbytes(PAGE)
    elif kind == "swap" and pages > 1:
        a, b = (one * PAGE for one in generator.sample(range(pages), 2))
        data[a:a + PAGE], data[b:b + PAGE] = data[b:b + PAGE], data[a:a + PAGE]
    elif kind == "longer":
        data += generator.randbytes(generator.randrange(1, 3 * PAGE))
    elif kind == "head":
        at = generator.randrange(min(size, 100))
        data[at] = generator.randrange(256)
    elif kind == "missing":
        os.unlink(path)
        return f"{kind} of {os.path.basename(name)}"
    elif kind == "page copied" and pages > 1:
        a, b = (one * PAGE for one in generator.sample(range(pages), 2))
        data[a:a + PAGE] = data[b:b + PAGE]
    else:
        kind = "cut"
        del data[generator.randrange(size):]
    with open(path, "wb") as file:
        file.write(data)
    return f"{kind} of {os.path.basename(name)}"
