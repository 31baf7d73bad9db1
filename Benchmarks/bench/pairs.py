"""Two programs that alternate: how fast one is relative to the other, and how far that can be trusted."""
import math
import statistics
import time
from dataclasses import dataclass

# With fewer rounds there is no interval of 95 %.
FEWEST = 6
# Limits a workload that never settles, so that it does not take all the time.
MOST = 60
# A round does not count if the host of a virtual machine took more of it than this: a share of its time, and seconds
# that may be due to rounding.
STOLEN, ROUNDING = 0.02, 0.01


def interval(values):
    """The two values between which the median of the distribution lies in 19 of 20 cases.

    By order statistics: of n independent values of one distribution, whichever it is, fewer than k lie
    on one side of its median as often as fewer than k of n coins fall on one side. Raises ValueError for fewer values
    than six.
    """
    ordered, count = sorted(values), len(values)
    left_out, combinations = 0, 0
    while left_out <= count // 2 and 2 * 20 * (combinations + math.comb(count, left_out)) <= 2 ** count:
        combinations += math.comb(count, left_out)
        left_out += 1
    if left_out == 0:
        raise ValueError(f"{count} values have no interval of 95 %")
    return ordered[left_out - 1], ordered[count - left_out]


@dataclass(frozen=True)
class Estimate:
    """A median and the limits of its confidence interval."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values):
        return Estimate(statistics.median(values), *interval(values))

    @property
    def spread(self):
        """The width of the interval as a fraction of the median."""
        return (self.high - self.low) / self.median if self.median else math.inf

    def at_least(self, bar):
        """Whether the median is at least `bar`; None if the interval does not tell."""
        return True if self.low >= bar else False if self.high < bar else None

    def at_most(self, bar):
        """Whether the median is at most `bar`; None if the interval does not tell."""
        return True if self.high <= bar else False if self.low > bar else None


def verdict(holds):
    """The word for a result of `at_least` or `at_most`."""
    return {True: "met", False: "missed", None: "open"}[holds]


class Rounds:
    """The results of rounds.

    `stolen` returns the seconds that the host has taken from this machine so far. A round from which it took some is
    kept separately, in `disturbed`: whether that happens does not depend on what is measured.
    """

    def __init__(self, stolen=lambda: 0.0):
        self.stolen = stolen
        self.made = []
        # (the share of its time that was taken, its result) of each disturbed round.
        self.disturbed = []
        # Whether disturbed rounds are among those that count.
        self.is_disturbed = False
        # The time spent on rounds so far.
        self.seconds = 0.0

    @property
    def rounds(self):
        return len(self.made)

    @property
    def tries(self):
        return self.rounds + len(self.disturbed)

    def add(self, make, clock=time.monotonic):
        """Runs one more round, whose result is that of `make`."""
        start, before = clock(), self.stolen()
        made = make()
        seconds, stolen = clock() - start, self.stolen() - before
        self.seconds += seconds
        if stolen > STOLEN * seconds + ROUNDING:
            self.disturbed.append((stolen / seconds, made))
        else:
            self.made.append(made)

    def settle_for(self, fewest):
        """Counts the least disturbed rounds, too, until there are `fewest` and at least half of those that were run."""
        self.disturbed.sort(key=lambda one: one[0])
        while self.rounds < max(fewest, self.tries // 2) and self.disturbed:
            self.made.append(self.disturbed.pop(0)[1])
            self.is_disturbed = True

    @property
    def told(self):
        """The number of rounds, with `~` if some of them were disturbed."""
        return f"{self.rounds}{'~' if self.is_disturbed else ''}"


class Pairs(Rounds):
    """Rounds of two programs, one after the other, so that a busy minute affects both alike.

    `ours` and `theirs` run their program once and return a value with `wall` and `cpu` in seconds. Which one begins
    changes from round to round.
    """

    def __init__(self, ours, theirs, stolen=lambda: 0.0):
        super().__init__(stolen)
        self.programs = ours, theirs

    @property
    def ours(self):
        return [ours for ours, _ in self.made]

    @property
    def theirs(self):
        return [theirs for _, theirs in self.made]

    @property
    def runs(self):
        return self.ours, self.theirs

    def run(self, clock=time.monotonic):
        """Runs one more round."""
        def both():
            made = [None, None]
            for which in ((0, 1), (1, 0))[self.tries % 2]:
                made[which] = self.programs[which]()
            return tuple(made)
        self.add(both, clock)

    def shares(self, by):
        """Their time as a percentage of ours in each round: 100 if both took the same, more if ours took less.

        `by` is "wall", the clock, or "cpu".
        """
        return [100 * getattr(theirs, by) / getattr(ours, by) for ours, theirs in self.made]

    def share(self, by):
        return Estimate.of(self.shares(by))


def spend(pairs, until, unsettled, fewest=FEWEST, clock=time.monotonic):
    """Runs `fewest` rounds of each pair, alternating; then, until the clock shows `until`, rounds of those that are
    `unsettled`, where one more second narrows the interval most; first of those with too many disturbed rounds.

    `unsettled` takes a pair and returns the estimate that should be narrower, or None.
    """
    fewest = max(fewest, FEWEST)
    for _ in range(fewest):
        for one in pairs:
            one.run(clock)
    while True:
        left = until - clock()
        open_ones = []
        for one in pairs:
            if one.tries >= MOST or one.seconds / one.tries > left:
                continue
            if one.rounds < fewest:
                open_ones.append((math.inf, -one.tries, one))
            elif (estimate := unsettled(one)) is not None:
                # The interval narrows with the square root of the number of rounds: one more round of n narrows it by
                # half of 1/n.
                open_ones.append((estimate.spread / one.seconds, 0, one))
        if not open_ones:
            break
        max(open_ones, key=lambda found: found[:2])[2].run(clock)
    for one in pairs:
        one.settle_for(fewest)


def wider_than(spread, by):
    """For `spend`: shares, by the clock or by CPU, are unsettled while their interval is wider than `spread`."""
    def unsettled(pairs):
        estimate = pairs.share(by)
        return estimate if estimate.spread > spread else None
    return unsettled
