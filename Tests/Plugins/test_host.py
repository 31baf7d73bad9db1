"""Checks that the host of these tests handles programs that die as rxd does."""
import unittest

from contract import Case, Supervised
from fixtures import bare
from host import Ended, Host


def case(code):
    return Case(bare(code), "operator", "bare", timeout=2.0)


class Recovery(unittest.TestCase):
    """Programs that die; the culprit is found even if answers are written late."""

    def test_the_culprit_is_quarantined_alone(self):
        code = """
def answer(frame):
    if frame.get("event") == "poison": os._exit(1)
    write({"id": frame["id"], "events": [frame["event"]]})
"""
        events = [*range(20), "poison", *range(20, 30), "last"]
        supervised = Supervised(case(code), credit=8)
        outcomes = supervised.run(events)
        self.assertEqual(supervised.quarantined, [20])
        self.assertEqual([outcome[0] for outcome in outcomes if outcome], [[e] for e in events if e != "poison"])
        self.assertEqual(supervised.ends, 3)

    def test_answers_that_were_not_written_cost_no_other_event(self):
        code = """
import select
waiting = []
def answer(frame):
    if frame.get("event") == "poison": os._exit(1)
    waiting.append({"id": frame["id"], "events": [frame["event"]]})
    # As programs do that read many lines at once: written when nothing more is there.
    if len(waiting) < 8 and select.select([0], [], [], 0.01)[0]: return
    for one in waiting: print(json.dumps(one))
    sys.stdout.flush()
    waiting.clear()
"""
        events = [*range(6), "poison", *range(6, 9)]
        supervised = Supervised(case(code), credit=8)
        # Python's buffer of stdin would hide lines from select.
        supervised.case.command = [*supervised.case.command[:-1],
                                   supervised.case.command[-1].replace("in sys.stdin:", "in open(0, 'rb', 0):")]
        outcomes = supervised.run(events)
        self.assertEqual(supervised.quarantined, [6])
        self.assertEqual([outcome[0] for outcome in outcomes if outcome], [[e] for e in events if e != "poison"])

    def test_a_death_by_itself_costs_nothing(self):
        code = "n = 0\ndef answer(frame):\n    global n\n    n += 1\n    if n == 7: os._exit(0)\n" \
               "    write({'id': frame['id'], 'events': [frame['event']]})"
        supervised = Supervised(case(code), credit=4)
        outcomes = supervised.run(list(range(20)))
        self.assertEqual([outcome[0] for outcome in outcomes], [[number] for number in range(20)])
        self.assertEqual(supervised.quarantined, [])

    def test_the_end_is_told_apart(self):
        with Host(bare("def answer(frame): os._exit(0)")) as host:
            with self.assertRaises(Ended):
                host.ask(host.open("operator", "bare"), event=1)


if __name__ == "__main__":
    unittest.main()
