"""Steps of the wall clock while timers are pending, and while rxd is down."""
import json
import os
import shutil
import subprocess
import time

from ..oracle import Judge
from ..report import Report
from ..world import HERE, World

CASES = ["steps", "down"]
HOUR, DAY = 3_600, 86_400
STEPS = [HOUR, -HOUR, DAY, -DAY, 3_650 * DAY, -3_650 * DAY]
#: By kind of timer: milliseconds between its outputs, with a tick each 100 ms. The throttle holds its first event
#: for 400 ms, and the next one comes 100 ms later.
PACE = {"interval": 100, "delay": 100, "window": 300, "sample": 200, "throttle": 500}


class Kinds(Judge):
    """When each kind of timer fired."""

    def __init__(self):
        super().__init__()
        self.times = {}

    def _line(self, text):
        value = json.loads(text)
        if "kind" in value:
            self.times.setdefault(value["kind"], []).append(time.monotonic())
        else:
            self._value(value, text)


def run(options):
    """Preloads a clock that can be stepped."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        report = Report("clock", options.seed)
        report.skip("needs a C compiler")
        yield report
        return
    if options.wants("steps"):
        yield steps(options, compiler)
    if options.wants("down"):
        yield down(options, compiler)


def stepped(world, compiler):
    """The environment that preloads the clock which `step` steps."""
    library = world.directory / "step.so"
    source = os.path.join(HERE, "preload", "step.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    step(world, 0)
    return {"LD_PRELOAD": library, "STEP_FILE": world.directory / "step"}


def step(world, seconds):
    path = world.directory / "step"
    with open(path + ".new", "w") as file:
        file.write(str(seconds))
    os.rename(path + ".new", path)


def steps(options, compiler):
    """All timers keep their intervals through the steps."""
    report = Report("clock/steps", options.seed)
    pause = 0.6 if options.quick else 2.0
    with World("clock", "http", "http", options.seed, judge=Kinds()) as world:
        world.start(environment=stepped(world, compiler))
        report.require("starts", world.rxd.ready() is not None)
        begin = time.monotonic()
        world.rxd.run_for(1.0)
        for seconds in STEPS * (1 if options.quick else 4):
            step(world, seconds)
            world.rxd.run_for(pause)
        report.require("still runs", world.rxd.alive)
        took = time.monotonic() - begin
        report.require("exit status 0", world.rxd.stop() == 0)
        report.figure("steps", len(STEPS) * (1 if options.quick else 4))
        for kind, pace in PACE.items():
            times = world.judge.times.get(kind, [])
            gaps = [1_000 * (b - a) for a, b in zip(times, times[1:-1])]
            # A busy machine delays single events; a timer that follows the wall clock is off by an hour, and one that
            # drifts is off on average.
            average = sum(gaps) / len(gaps) if gaps else 0
            report.most(f"{kind}: mean error in ms", round(abs(average - pace), 1), 5 if len(gaps) > 10 else 20)
            report.most(f"{kind}: longest gap in ms", round(max(gaps, default=9e9)), pace + 250)
            report.least(f"{kind}: fired", len(times), int(took * 1_000 / pace * 0.8) - 4)
        report.notes += world.tail(6)
    return report.end()


def down(options, compiler):
    """A timer that is pending when rxd is killed fires after its remaining time, whatever the clock did meanwhile."""
    report = Report("clock/down", options.seed)
    worst = []
    for seconds in ([-HOUR, DAY] if options.quick else STEPS):
        with World("clock", "http", "http", options.seed, judge=Kinds(), feeds=1) as world:
            environment = stepped(world, compiler)
            world.start(environment=environment)
            report.require("starts", world.rxd.ready() is not None)
            feed = world.feeds[0]
            report.require("acknowledged", feed.post(1) == 200)
            report.require("killed", world.rxd.kill())
            step(world, seconds)
            world.start(environment=environment)
            world.rxd.ready()
            begin = time.monotonic()
            arrived = world.judge.wait(feed.name, feed.n, 5)
            worst.append(time.monotonic() - begin if arrived else 99)
            report.require("exit status 0", world.rxd.stop() == 0)
            report.most("lost", world.judge.verdict().lost, 0)
            report.notes += world.tail(3)
    report.checks = list({(check.name, str(check.value)): check for check in report.checks}.values())
    report.figure("steps while down", len(worst))
    report.most("the held event came after s", max(worst), 2.5)
    return report.end()
