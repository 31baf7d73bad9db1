"""What may not get worse: `thresholds.json` beside `run`, checked by `make bench-check`."""
import json
import os

from .machine import HERE, say

PATH = os.path.join(HERE, "thresholds.json")


def read():
    with open(PATH) as file:
        return json.load(file)


def check(report):
    """Prints what is worse than it may be; whether nothing is."""
    bounds = read()
    worse = []

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
        bound, tolerance = bounds["shares"].get(name), bounds["tolerance"]["share"]
        if bound is not None and share < bound * (1 - tolerance):
            worse.append(f"{name}: {share:.0f}% of the reference, recorded {bound:.0f}%, tolerance"
                         f" {100 * tolerance:.0f}%")
    for name, count in report.get("allocations", {}).items():
        bound = bounds["allocations"].get(name)
        if bound is not None and count > bound + bounds["tolerance"]["allocations"]:
            worse.append(f"{name}: {count:.3f} allocations per event, recorded {bound:.2f}")
    for line in worse:
        say(f"worse: {line}")
    if worse:
        say("If the change is meant, record new thresholds with `Benchmarks/run RXD --record` and say why in the"
            " commit.")
    else:
        say("nothing is worse than its threshold")
    return not worse


def record(report):
    """Writes what was measured as the new thresholds."""
    bounds = read() if os.path.exists(PATH) else {
        "countedBy": "", "tolerance": {"instructions": 0.05, "share": 0.25, "allocations": 0.05},
        "instructions": {}, "shares": {}, "allocations": {}}
    if "instructions" in report:
        bounds["countedBy"] = report["instructions"]["by"]
        for name, figures in report["instructions"]["workloads"].items():
            bounds["instructions"][name] = round(figures["rxd"])
    for name, share in report.get("shares", {}).items():
        bounds["shares"][name] = round(share)
    for name, count in report.get("allocations", {}).items():
        bounds["allocations"][name] = round(count, 2)
    with open(PATH, "w") as file:
        json.dump(bounds, file, indent=2)
        file.write("\n")
    say(f"recorded in {os.path.relpath(PATH)}")
