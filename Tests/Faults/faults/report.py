"""What a test reports."""
import dataclasses
import time


@dataclasses.dataclass
class Check:
    """A figure, and whether it meets its limit."""
    name: str
    value: object
    bound: str
    holds: bool


class Report:
    """The report of one case: figures, checks, and notes that help to find the cause of a failure."""

    def __init__(self, case, seed):
        self.case = case
        self.seed = seed
        self.checks = []
        self.figures = {}
        self.notes = []
        self.skipped = None
        self.begun = time.monotonic()
        self.seconds = 0

    def figure(self, name, value):
        self.figures[name] = value

    def note(self, text):
        if len(self.notes) < 30:
            self.notes.append(text)

    def most(self, name, value, bound):
        self.checks.append(Check(name, value, f"at most {bound}", value is not None and value <= bound))

    def least(self, name, value, bound):
        self.checks.append(Check(name, value, f"at least {bound}", value is not None and value >= bound))

    def require(self, name, holds, value=None):
        self.checks.append(Check(name, "yes" if holds else "no" if value is None else value, "required", bool(holds)))

    def skip(self, why):
        self.skipped = why

    def verdict(self, verdict, repeated=None, reordered=0):
        """Adds the oracle's counts; lost, invented and damaged must be 0."""
        self.figure("owed", verdict.owed)
        self.most("lost", verdict.lost, 0)
        self.most("invented", verdict.invented, 0)
        self.most("damaged", verdict.damaged, 0)
        if repeated is None:
            self.figure("repeated", verdict.repeated)
        else:
            self.most("repeated", verdict.repeated, repeated)
        self.figure("longest run", verdict.longest)
        if reordered is None:
            self.figure("reordered", verdict.reordered)
        else:
            self.most("reordered", verdict.reordered, reordered)
        for one in verdict.examples[:4]:
            self.note(one)

    def end(self):
        self.seconds = time.monotonic() - self.begun
        return self

    @property
    def passed(self):
        return all(check.holds for check in self.checks)

    def text(self):
        if self.skipped:
            return f"SKIP  {self.case}: {self.skipped}"
        head = f"{'ok   ' if self.passed else 'FAIL '} {self.case}"
        figures = [f"{name} {shown(value)}" for name, value in self.figures.items()]
        figures += [f"{check.name} {shown(check.value)}" + ("" if check.holds else f" ({check.bound})")
                    for check in self.checks]
        lines = [f"{head}: {', '.join(figures)}; {self.seconds:.0f} s, seed {self.seed}"]
        if not self.passed:
            lines += [f"      {note}" for note in self.notes]
        return "\n".join(lines)

    def json(self):
        return {"case": self.case, "seed": self.seed, "passed": self.passed, "skipped": self.skipped,
                "seconds": round(self.seconds, 1), "figures": self.figures, "notes": self.notes,
                "checks": [dataclasses.asdict(check) for check in self.checks]}


def shown(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def percentile(values, share):
    """The percentile of a list of numbers; None if the list is empty."""
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else None
