"""Thresholds for regressions: `thresholds.json` next to `run`, checked by `make bench-check`."""
import json
import os

from .machine import HERE, say

PATH = os.path.join(HERE, "thresholds.json")


def read():
    with open(PATH) as file:
        return json.load(file)


def least_share(name, bounds=None):
    """The lower bound for the workload's percentage of the reference, None if none is recorded."""
    bounds = bounds or read()
    recorded = bounds["shares"].get(name)
    return None if recorded is None else recorded * (1 - bounds["tolerance"]["share"])


# The results of a check, which are exit statuses of `run`.
FINE, WORSE, UNDECIDED = 0, 1, 75


def check(report, bounds=None):
    """Prints what is or may be worse than allowed; returns FINE, WORSE or UNDECIDED.

    `report["shares"]` has estimates: a share is worse if its whole interval is below the threshold, and fine
    if none of it is. In between, the machine was too busy to tell, which neither fails a build nor passes it.
    """
    bounds = bounds or read()
    worse, undecided = [], []

    counted = report.get("instructions")
    if counted and counted["by"] == bounds["countedBy"]:
        for name, figures in counted["workloads"].items():
            if name in bounds["instructions"]:
                count, bound = figures["rxd"], bounds["instructions"][name]
                tolerance = bounds["tolerance"]["instructions"]
                if count > bound * (1 + tolerance):
                    worse.append(f"{name}: {count:.0f} instructions per event, recorded {bound}, tolerance"
                                 f" {100 * tolerance:.0f}%")
    elif counted:
        say(f"instructions were counted by {counted['by']}, the thresholds by {bounds['countedBy']}: not compared")
    for name, share in report.get("shares", {}).items():
        least = least_share(name, bounds)
        if least is not None and not share.at_least(least):
            (worse if share.at_least(least) is False else undecided).append(
                f"{name}: {share.median:.0f}% of the reference ({share.low:.0f}-{share.high:.0f}), recorded"
                f" {bounds['shares'][name]}%, at least {least:.0f}% allowed")
    for name, count in report.get("allocations", {}).items():
        bound = bounds["allocations"].get(name)
        if bound is not None and count > bound + bounds["tolerance"]["allocations"]:
            worse.append(f"{name}: {count:.3f} allocations per event, recorded {bound:.2f}")
    for line in worse:
        say(f"worse: {line}")
    for line in undecided:
        say(f"not decided: {line}; measure again on a quieter machine, or for longer with `--seconds`")
    if worse:
        say("If the change is meant, record new thresholds with `Benchmarks/run RXD --record` and say why in the"
            " commit.")
        return WORSE
    if undecided:
        return UNDECIDED
    say("nothing is worse than its threshold")
    return FINE


def record(report, spread):
    """Writes the measured values as the new thresholds, except shares whose interval is wider than `spread`."""
    bounds = read() if os.path.exists(PATH) else {
        "countedBy": "", "tolerance": {"instructions": 0.05, "share": 0.15, "allocations": 0.05},
        "instructions": {}, "shares": {}, "allocations": {}}
    if "instructions" in report:
        bounds["countedBy"] = report["instructions"]["by"]
        for name, figures in report["instructions"]["workloads"].items():
            bounds["instructions"][name] = round(figures["rxd"])
    for name, share in report.get("shares", {}).items():
        if share.spread > spread:
            say(f"not recorded: {name} has {share.low:.0f} to {share.high:.0f}% of the reference, which is wider than"
                f" {100 * spread:.0f}%; measure again on a quieter machine")
            continue
        bounds["shares"][name] = round(share.median)
    for name, count in report.get("allocations", {}).items():
        bounds["allocations"][name] = round(count, 2)
    with open(PATH, "w") as file:
        json.dump(bounds, file, indent=2)
        file.write("\n")
    say(f"recorded in {os.path.relpath(PATH)}")
