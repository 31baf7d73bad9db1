"""The harness finds every breach of the contract: each has a small program that commits it, and a check that must fail."""
import unittest

from fixtures import bare
from host import Ended, Host, Violation
from suite import CHECKS, Case, Supervised

STATEFUL = """
COMPONENT.update(state={"version": 1}, timers=True)
counts = {}
def opened(frame):
    counts[KEY] = frame.get("state", 0)
    write({"opened": frame["open"]})
def answer(frame):
    if "save" in frame: return write({"id": frame["id"], "state": SAVED})
    frame["open"] = frame["to"]
    if "event" in frame: counts[KEY] += 1
    write({"id": frame["id"], "events": [counts[KEY]], "timers": {"t": 10}})
"""
GOOD = STATEFUL.replace("KEY", "frame['open']").replace("SAVED", "counts[frame['to']]")
FORGETFUL = STATEFUL.replace("KEY", "frame['open']").replace("SAVED", "0")
SHARED = STATEFUL.replace("KEY", "0").replace("SAVED", "counts[0]")


def case(code, **more):
    more.setdefault("inputs", [{"event": number} for number in range(5)])
    more.setdefault("timeout", 2.0)
    return Case(bare(code), more.pop("kind", "operator"), "bare", **more)


class HarnessFindsBreaches(unittest.TestCase):
    def finds(self, message, code, check="check_answers", **more):
        one = case(code, **more)
        functions = {function.__name__: function for function in CHECKS[one.kind]}
        with self.assertRaisesRegex(Violation, message):
            functions[check](one)

    def test_a_good_one_passes(self):
        for check in CHECKS["operator"]:
            check(case(""))
        for check in CHECKS["operator"]:
            check(case(GOOD, inputs=[{"event": 1}, 5, {"event": 2}, 20]))

    def test_answers(self):
        self.finds("out of order", "def answer(frame): write({'id': frame['id'] + 1})")
        self.finds("to nothing|out of order", "def answer(frame): write({'id': frame['id']}); write({'id': frame['id']})",
                   "check_crowd")
        self.finds("no answer within", "def answer(frame): pass", timeout=0.3)
        self.finds("no list", "def answer(frame): write({'id': frame['id'], 'events': 1})")
        self.finds("no text", "def answer(frame): write({'id': frame['id'], 'error': ['x']})")
        self.finds("events in an answer", "def answer(frame): write({'id': frame['id'], 'error': 'x', 'events': [1]})")
        self.finds("sets no timers", "def answer(frame): write({'id': frame['id'], 'timers': {'a': 1}})")
        self.finds("is set to 0.5", GOOD + "\ndef answer(frame): write({'id': frame['id'], 'timers': {'a': 0.5}})")
        self.finds("second run", "def answer(frame): write({'id': frame['id'], 'events': [os.getpid()]})")
        self.finds("'through'", "def answer(frame): write({'through': frame['id']})")

    def test_frames(self):
        self.finds("no frame", "def answer(frame): print('hello', flush=True)")
        self.finds("no frame", "def answer(frame): print('{\"id\":%d,\"events\":[NaN]}' % frame['id'], flush=True)")
        self.finds("no frame", "def answer(frame): print('[]', flush=True)")
        self.finds("no frame", "def answer(frame): sys.stdout.buffer.write(b'{\"log\":\"info\",\"message\":\"\\xff\"}\\n'); "
                   "sys.stdout.flush()")
        self.finds("unknown frame", "def answer(frame): write({'answer': 1})")
        self.finds("wrong frame", "def answer(frame): write({'id': frame['id'], 'timers': 1})")
        self.finds("wrong log", "def answer(frame): write({'log': 'loud', 'message': 'x'})")
        self.finds("wrong count", "def answer(frame): write({'count': 'a', 'by': 'x'})")
        self.finds("above 16 MiB", "def answer(frame): print('x' * (16 << 20))")
        self.finds("has ended with status 3", "def answer(frame): os._exit(3)")

    def test_start_and_end(self):
        self.finds("ended", "sys.exit(0)", "check_spec")
        self.finds("full stop", "COMPONENT['summary'] = 'x'", "check_spec")
        self.finds("different specs", "COMPONENT['details'] = str(os.getpid())", "check_spec")
        self.finds("status 1", "def end(): sys.exit(1)", "check_spec")
        self.finds("number 9", "def opened(frame): write({'opened': 9})", "check_open")
        self.finds("pong out of order", "def ping(frame): write({'pong': 0})", "check_open")
        host = Host(bare("def end(): time.sleep(60)"))
        with host, self.assertRaisesRegex(Violation, "runs on"):
            host.end(0.2)
        self.finds("refused: no", "def opened(frame): write({'opened': frame['open'], 'error': 'no'})", "check_open")

    def test_state(self):
        more = {"inputs": [{"event": 1}, 5, {"event": 2}, 20]}
        self.finds("restored", FORGETFUL, "check_cut", **more)
        self.finds("handed over again|killed", FORGETFUL, "check_kill", **more)
        self.finds("instance 1 of two", SHARED, "check_instances", **more)
        self.finds("no state in the answer", "COMPONENT['state'] = {'version': 1}", "check_cut")

    def test_sources(self):
        source = "COMPONENT.update(kind='source'%s)\ndef opened(frame):\n    write({'opened': frame['open']})\n    "
        self.finds("more than credit", source % "" + "write({'from': frame['open'], 'event': 1})", "check_credit", kind="source")
        self.finds("no 'complete'", source % "" + "pass", "check_credit", kind="source", timeout=0.2)
        ended = source % "" + "write({'from': 1, 'complete': True}); write({'from': 1, 'complete': True})"
        self.finds("behind the end", ended, "check_credit", kind="source")
        self.finds("no event has a position", source % ", recovery='position'" + "write({'from': 1, 'complete': True})",
                   "check_position", kind="source")

    def test_sinks(self):
        sink = "COMPONENT.update(kind='sink')\ndef answer(frame):\n    "
        self.finds("names no unanswered", sink + "write({'through': 99})", "check_sink", kind="sink")
        self.finds("events in an answer", sink + "write({'id': frame['id'], 'events': [1]})", "check_sink", kind="sink")
        for check in CHECKS["sink"]:
            check(case(sink + "write({'id': frame['id']})", kind="sink"))


class Recovery(unittest.TestCase):
    """What the host does with programs that die; the culprit is found although answers are written late."""

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
