"""Tests of the arithmetic behind the tables: `python3 -m unittest discover Benchmarks/bench -t Benchmarks`."""
import contextlib
import io
import random
import unittest
from dataclasses import dataclass

from bench import pairs, thresholds
from bench.pairs import Estimate, Pairs


@dataclass
class Run:
    wall: float
    cpu: float


class IntervalTests(unittest.TestCase):
    def test_leaves_out_what_the_tables_of_the_sign_test_say(self):
        # From published tables of the two-sided sign test at 5 %: the number of values that may be left out at each
        # end.
        for count, left_out in ((6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5), (25, 7), (30, 9), (50, 17)):
            self.assertEqual(pairs.interval(range(count)), (left_out, count - 1 - left_out), count)

    def test_order_does_not_matter_and_few_values_are_refused(self):
        self.assertEqual(pairs.interval([5, 1, 4, 2, 6, 3]), (1, 6))
        for count in range(6):
            with self.assertRaises(ValueError):
                pairs.interval([1.0] * count)

    def test_holds_the_median_nineteen_times_of_twenty(self):
        # Skewed and with outliers, like runs on a busy machine; the median of the distribution is 1.
        chance, held = random.Random(1), 0
        for _ in range(2000):
            held += self.holds(1, [chance.lognormvariate(0, 0.3) for _ in range(12)])
        self.assertGreaterEqual(held / 2000, 0.95)

    def holds(self, median, values):
        low, high = pairs.interval(values)
        return low <= median <= high

    def test_stopping_when_it_is_narrow_costs_little(self):
        # Rounds are added until the interval is a tenth wide, after which it contains the median only slightly less
        # often.
        chance, held = random.Random(2), 0
        for _ in range(1000):
            values = [chance.lognormvariate(0, 0.1) for _ in range(pairs.FEWEST)]
            while Estimate.of(values).spread > 0.1 and len(values) < pairs.MOST:
                values.append(chance.lognormvariate(0, 0.1))
            held += self.holds(1, values)
        self.assertGreaterEqual(held / 1000, 0.9)


class EstimateTests(unittest.TestCase):
    def test_bars(self):
        estimate = Estimate(median=70, low=65, high=80)
        for bar, least, most in (
                (64, True, False), (65, True, None), (70, None, None), (80, None, True), (81, False, True)):
            self.assertIs(estimate.at_least(bar), least, bar)
            self.assertIs(estimate.at_most(bar), most, bar)
        self.assertEqual([pairs.verdict(estimate.at_least(bar)) for bar in (60, 70, 90)], ["met", "open", "missed"])
        self.assertAlmostEqual(estimate.spread, 15 / 70)


class PairsTests(unittest.TestCase):
    def test_shares_are_of_neighbouring_runs_and_turns_change(self):
        order, times = [], {"ours": iter([2, 4, 8]), "theirs": iter([1, 4, 2])}

        def program(who):
            def run():
                order.append(who)
                time = next(times[who])
                return Run(wall=time, cpu=2 * time if who == "ours" else time)
            return run

        clock = iter(range(100))
        both = Pairs(program("ours"), program("theirs"))
        for _ in range(3):
            both.run(lambda: next(clock))
        self.assertEqual(order, ["ours", "theirs", "theirs", "ours", "ours", "theirs"])
        self.assertEqual(both.shares("wall"), [50, 100, 25])
        self.assertEqual(both.shares("cpu"), [25, 50, 12.5])
        self.assertEqual((both.rounds, both.seconds), (3, 3))

    def test_a_slow_minute_of_the_machine_does_not_move_a_share(self):
        pace = iter([1, 1, 1, 1, 3, 3, 3, 3, 1, 1, 2, 2])
        both = Pairs(lambda: Run(wall=(p := next(pace)) * 4, cpu=p), lambda: Run(wall=(p := next(pace)) * 3, cpu=p))
        for _ in range(6):
            both.run()
        self.assertEqual(both.share("wall"), Estimate(75, 75, 75))


    def test_a_round_from_which_the_host_took_time_does_not_count(self):
        now, taken, steals = [0.0], [0.0], iter([0, 0.5, 0, 0.02])

        def ours():
            now[0] += 1
            taken[0] += next(steals)
            return Run(wall=len(both.disturbed) + 1, cpu=1)
        both = Pairs(ours, lambda: Run(wall=1, cpu=1), stolen=lambda: taken[0])
        for _ in range(4):
            both.run(lambda: now[0])
        self.assertEqual((both.rounds, both.tries, both.seconds), (3, 4, 4))
        self.assertEqual(both.shares("wall"), [100, 50, 50])
        both.settle_for(3)
        self.assertFalse(both.is_disturbed)
        both.settle_for(6)
        self.assertTrue(both.is_disturbed)
        self.assertEqual((both.shares("wall"), both.disturbed), ([100, 50, 50, 100], []))


class SpendTests(unittest.TestCase):
    def setUp(self):
        self.now, self.taken, self.order = 0.0, 0.0, []

    def workload(self, name, seconds, scatter):
        """Rounds that take `seconds` each and whose shares scatter that much."""
        chance = random.Random(name)

        def ours():
            self.now += seconds
            self.order.append(name)
            return Run(wall=chance.uniform(1 - scatter, 1 + scatter), cpu=1)
        return Pairs(ours, lambda: Run(wall=1, cpu=1))

    def spend(self, workloads, seconds, spread=0.1):
        pairs.spend(workloads, seconds, pairs.wider_than(spread, "wall"), clock=lambda: self.now)

    def test_rounds_go_where_shares_scatter(self):
        calm, wild = self.workload("calm", 1, 0.01), self.workload("wild", 1, 0.4)
        self.spend([calm, wild], 40)
        self.assertEqual(self.order[:4], ["calm", "wild", "calm", "wild"])
        self.assertEqual(calm.rounds, pairs.FEWEST)
        self.assertEqual(wild.rounds, 40 - pairs.FEWEST)
        self.assertLessEqual(self.now, 40)

    def test_the_cheaper_of_two_that_scatter_alike_gets_more(self):
        dear, cheap = self.workload("dear", 4, 0.3), self.workload("cheap", 1, 0.3)
        self.spend([dear, cheap], 90)
        self.assertGreater(cheap.rounds, dear.rounds)
        self.assertGreater(dear.rounds, pairs.FEWEST)

    def test_the_fewest_are_run_whatever_they_take_and_the_most_are_not_exceeded(self):
        late, wild = self.workload("late", 10, 0.5), self.workload("wild", 0.001, 0.9)
        self.spend([late], 5)
        self.assertEqual(late.rounds, pairs.FEWEST)
        self.spend([wild], 10_000, spread=0)
        self.assertEqual(wild.rounds, pairs.MOST)


    def test_rounds_that_do_not_count_are_made_up_for_while_there_is_time(self):
        chance = random.Random(7)

        def ours():
            self.now += 1
            self.taken += chance.choice([0, 0.3])
            return Run(wall=chance.uniform(0.9, 1.1), cpu=1)

        def pair():
            return Pairs(ours, lambda: Run(wall=1, cpu=1), stolen=lambda: self.taken)
        patient, hasty = pair(), pair()
        self.spend([patient], 30)
        self.assertGreaterEqual(patient.rounds, pairs.FEWEST)
        self.assertFalse(patient.is_disturbed)
        self.assertTrue(patient.disturbed)
        self.spend([hasty], self.now + 3)
        self.assertEqual((hasty.rounds, hasty.tries), (pairs.FEWEST, pairs.FEWEST))
        self.assertTrue(hasty.is_disturbed)


class ThresholdTests(unittest.TestCase):
    BOUNDS = {
        "countedBy": "valgrind", "tolerance": {"instructions": 0.05, "share": 0.2, "allocations": 0.05},
        "instructions": {"w": 1000}, "shares": {"w": 100}, "allocations": {"w": 0.01}}

    def check(self, report):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = thresholds.check(report, self.BOUNDS)
        return status, out.getvalue()

    def share(self, median, low, high):
        return self.check({"shares": {"w": Estimate(median, low, high)}})

    def test_a_share_is_worse_or_fine_only_with_all_of_its_interval(self):
        self.assertEqual(self.share(85, 80, 90)[0], thresholds.FINE)
        self.assertEqual(self.share(70, 60, 79)[0], thresholds.WORSE)
        # Medians that chance made good or bad, on a machine too busy to tell.
        for estimate in ((85, 70, 99), (75, 60, 90)):
            status, text = self.share(*estimate)
            self.assertEqual(status, thresholds.UNDECIDED)
            self.assertIn("not decided: w", text)

    def test_what_is_counted_is_compared_as_it_is(self):
        def counted(count, by="valgrind"):
            return self.check({"instructions": {"by": by, "workloads": {"w": {"rxd": count}}}})
        self.assertEqual([counted(count)[0] for count in (1050, 1051)], [thresholds.FINE, thresholds.WORSE])
        status, text = counted(2000, by="perf")
        self.assertEqual(status, thresholds.FINE)
        self.assertIn("not compared", text)
        self.assertEqual(self.check({"allocations": {"w": 0.05}})[0], thresholds.FINE)
        self.assertEqual(self.check({"allocations": {"w": 0.07}})[0], thresholds.WORSE)

    def test_worse_wins_over_undecided_and_the_unknown_is_fine(self):
        status, _ = self.check({"shares": {"w": Estimate(80, 70, 99)}, "allocations": {"w": 1}})
        self.assertEqual(status, thresholds.WORSE)
        self.assertEqual(self.check({"shares": {"new": Estimate(1, 1, 1)}})[0], thresholds.FINE)


if __name__ == "__main__":
    unittest.main()
