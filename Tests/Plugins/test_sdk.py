"""The Python SDK: the guarantees that its page gives to authors, and that it keeps the contract whatever user code does."""
import json
import os
import shutil
import unittest

import bench
import fixtures
from fixtures import with_sdk
from host import Ended, Host, Violation
from contract import Case, Supervised, keeps_the_contract

MIXED = '''
@plugin.operator
def mixed(event, field: str = text("A field.", primary=True, default="a"), max_length: int = integer("A limit.", default=3)):
    """Does many things."""
    kind = event.get("do") if isinstance(event, dict) else None
    if kind == "print":
        print("to the log"); print("x" * 100_000); os.system("echo from a child; cat")
    if kind == "raise": return event["missing"]
    if kind == "reject": raise Reject("not this one")
    if kind == "nothing": return None
    if kind == "many":
        def each():
            yield 1
            yield None
            yield [2]
        return each()
    if kind == "half":
        def each():
            yield 1
            raise Reject("too late")
        return each()
    if kind == "nan": return float("nan")
    if kind == "object": return object()
    if kind == "surrogate": return "a\\ud800b"
    if kind == "huge": return "x" * (17 << 20)
    if kind == "recursion":
        event["event"] = event
        return event
    if kind == "exit": sys.exit(3)
    if kind == "die": os._exit(4)
    if kind == "bytes":
        import datetime
        return [b"abc", datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), (1, 2)]
    if kind == "parameters": return [field, max_length]
    return event
'''

STATEFUL = '''
@plugin.operator(state_version=2, clock=True, memory="A sum.")
class Sum(Operator):
    """Adds numbers."""
    key = expression("A key.")
    label = template("A label.", default="x")
    every = duration("A period.", default="1s")
    limit = size("A size.", default="1KiB")
    steps = list_of("duration", "Steps.", default=["1s", "2s"])
    def open(self):
        if self.limit == 13: raise BadParameter("13 brings bad luck", at="limit")
        if self.limit == 14: raise RuntimeError("oops")
        self.sum = 0
    def process(self, event):
        self.set_timer("tick", self.every)
        if event == "cancel": self.cancel_timer("tick")
        if event == "bad": raise ValueError("bad")
        if event == "save fails": self.sum = object(); return None
        self.sum += event if isinstance(event, int) else 0
        return {"key": self.key, "label": self.label, "sum": self.sum, "now": self.now, "steps": self.steps}
    def timer(self, name): yield {"timer": name, "sum": self.sum}
    def complete(self): return self.sum
    def save(self): return self.sum
    def restore(self, state, version): self.sum = state + 1000 * version
'''

SINKS = '''
import logging
@plugin.sink
def one(event, where: str = expression("Where.", default="event")):
    """Takes one at a time."""
    if event == "gone": raise ConnectionError("the line is cut")
    if event == "bad": raise Reject("never")
    if event == "bug": return event.missing
    logging.getLogger("test").info("wrote %s to %s", event, where)
    count("written", 2)
@plugin.sink(confirmation="disk")
class Batch(Sink):
    """Takes batches."""
    key = expression("A key.")
    batch_size = 4
    def open(self): self.gone = True
    def write_batch(self, records):
        log("info", json_of(records))
        for r in records:
            if r.event == "bad": r.refuse("never")
            if r.event == "gone" and self.gone:
                self.gone = False
                raise Retry("later", delivered=records.index(r))
            if r.event == "bug": raise KeyError("x")
    def complete(self): log("info", "complete")
def json_of(records):
    import json
    return json.dumps([[r.event, r.arguments] for r in records])
'''

SOURCES = '''
@plugin.source
def numbers(to: int = integer("The last.", primary=True, default=3)):
    """Sends numbers."""
    for n in range(to): yield n
@plugin.source
def odd():
    """Sends what cannot be sent."""
    yield 1
    try: yield object()
    except TypeError: yield "caught"
    yield "x" * (17 << 20)
@plugin.source
def stuck():
    """Never looks."""
    yield 1
    time.sleep(60)
@plugin.source(recovery="sender")
class Tokens(Source):
    """Sends with tokens."""
    def run(self):
        try:
            for n in range(1000): yield Item(n, token=n + 1)
        finally:
            log("info", "closed")
    def acknowledged(self, tokens): count("acknowledged", len(tokens))
    def failed(self, tokens, reason): log("info", f"failed {tokens} {reason}")
@plugin.source(names=True)
def named(to: int = integer("The end.", primary=True, default=3)):
    """Names its events."""
    gauge("left", 1e9)
    gauge("gone", 1, of="x")
    gauge("gone", None, of="x")
    for n in range(to):
        gauge("left", to - n, of="n")
        yield Item(n, token=n + 1 if n == 1 else None, name=None if n == 2 else f"n/{n}")
    gauge("left", float("nan"))
@plugin.source
class Waits(Source):
    """Waits for a file."""
    def open(self):
        self.read, self.write = os.pipe()
    def run(self):
        yield self.wait(0.01, self.read)
        os.write(self.write, b"x")
        yield len(self.wait(5, self.read))
        while not self.is_stopping: self.wait(60)
'''


class Operators(unittest.TestCase):
    def setUp(self):
        self.host = Host(with_sdk(MIXED + STATEFUL))
        self.addCleanup(self.host.kill)

    def ask(self, kind):
        if not hasattr(self, "mixed"):
            self.mixed = self.host.open("operator", "mixed", {"field": "b", "maxLength": 3})
        return self.host.ask(self.mixed, event={"do": kind})

    def test_results(self):
        self.assertEqual(self.ask("all").events, [{"do": "all"}])
        self.assertEqual(self.ask("nothing").events, [])
        self.assertEqual(self.ask("many").events, [1, None, [2]])
        self.assertEqual(self.ask("parameters").events, [["b", 3]])
        self.assertEqual(self.ask("bytes").events, [["YWJj", "2026-01-01T00:00:00+00:00", [1, 2]]])
        self.assertEqual(self.ask("surrogate").events, ["a\ufffdb"])

    def test_failures_of_user_code_are_answers(self):
        self.assertEqual(self.ask("raise").error, "KeyError: 'missing'")
        self.assertIn("KeyError: 'missing' (<string>:", self.host.log[0][1])
        self.assertEqual(self.ask("reject").error, "not this one")
        self.assertEqual((self.ask("half").error, self.ask("half").events), ("too late", []))
        self.assertIn("not JSON compliant", self.ask("nan").error)
        self.assertIn("of type object", self.ask("object").error)
        self.assertIn("at most 16 MiB", self.ask("huge").error)
        self.assertIsNotNone(self.ask("recursion").error)
        self.assertEqual(self.ask("all").events, [{"do": "all"}])
        for _ in range(9):
            self.ask("raise")
        self.assertEqual(sum("'missing'" in message for _, message in self.host.log), 5)

    def test_what_is_printed_goes_to_the_log_and_children_read_nothing(self):
        self.assertEqual(self.ask("print").events, [{"do": "print"}])
        self.host.ping()
        self.host.settle()
        self.assertIn("to the log\n" + "x" * 100_000 + "\nfrom a child\n", self.host.said())

    def test_exit_ends_the_process(self):
        with self.assertRaisesRegex(Ended, "status 3"):
            self.ask("exit")

    def test_state_timers_and_parameters(self):
        host = self.host
        parameters = {"every": 300_000_000, "limit": 1024, "steps": [10**9, 15 * 10**8]}
        one = host.open("operator", "sum", parameters)
        answer = host.ask(one, event=5, **{"with": {"key": "k", "label": "l"}}, now=1_500_000_000)
        self.assertEqual(answer.events, [{"key": "k", "label": "l", "sum": 5, "now": 1.5, "steps": [1.0, 1.5]}])
        self.assertEqual(answer.timers, {"tick": 300_000_000})
        answer = host.ask(one, event="bad")
        self.assertEqual((answer.error, answer.timers), ("ValueError: bad", {"tick": 300_000_000}))
        self.assertEqual(host.ask(one, event="cancel").timers, {"tick": None})
        self.assertEqual(host.ask(one, timer="tick").events, [{"timer": "tick", "sum": 5}])
        self.assertEqual(host.ask(one, save=True).state, 5)
        host.ask(one, event="save fails")
        self.assertIn("of type object", host.ask(one, save=True).error)
        two = host.open("operator", "sum", parameters, state=5, stateVersion=1)
        self.assertEqual(host.ask(two, complete=True).events, [1005])
        host.end()

    def test_refused_openings(self):
        host = self.host
        self.assertEqual(host.open("operator", "sum", {"limit": 13}).error, "13 brings bad luck")
        self.assertEqual(host.open("operator", "sum", {"limit": 14}).error, "RuntimeError: oops")
        self.assertIn("version 3", host.open("operator", "sum", {}, state=1, stateVersion=3).error)
        self.assertIsNone(host.open("operator", "sum", {"limit": 1}).error)

    def test_spec(self):
        mixed, total = self.host.spec["components"]
        self.assertEqual([parameter["name"] for parameter in mixed["parameters"]], ["field", "maxLength"])
        self.assertEqual(mixed["parameters"][1], {"name": "maxLength", "type": "integer", "default": 3, "help": "A limit."})
        self.assertEqual((total["state"], total["timers"], total["clock"]), ({"version": 2}, True, True))
        self.assertEqual(total["parameters"][4]["of"], "duration")

    def test_two_processes_and_every_check(self):
        command = with_sdk(MIXED + STATEFUL.replace("self.sum = state + 1000 * version", "self.sum = state"))
        keeps_the_contract(self, command, "mixed: {}", component="mixed")
        found = keeps_the_contract(
            self, command, "sum: { every: 1s, key: 'string(event)' }", component="sum", events=[1, 2, "bad", 3, "cancel"])
        self.assertIn("all ", found.split("ok      state")[1].splitlines()[0])

    def test_an_event_that_kills_is_found_and_the_others_pass(self):
        supervised = Supervised(Case(with_sdk(MIXED), "operator", "mixed"), credit=16)
        events = [*range(30), {"do": "die"}, *range(30, 60)]
        outcomes = supervised.run(events)
        self.assertEqual(supervised.quarantined, [30])
        self.assertEqual([outcome[0] for outcome in outcomes if outcome], [[n] for n in range(60)])

    def test_a_frame_of_many_pieces(self):
        mixed = self.host.open("operator", "mixed", {})
        event = {"a": "ä" * (7 << 20)}
        self.assertEqual(self.host.ask(mixed, event=event).events, [event])


class Sinks(unittest.TestCase):
    def setUp(self):
        self.host = Host(with_sdk(SINKS))
        self.addCleanup(self.host.kill)

    def test_one_at_a_time(self):
        host, one = self.host, self.host.open("sink", "one")
        answers = [host.input(one, event=event, **{"with": {"where": "here"}}) for event in ("a", "bad", "bug", "b", "gone", "c")]
        host.settle()
        self.assertEqual([(answer.error, answer.retry) for answer in answers],
                         [(None, None), ("never", None), ("AttributeError: 'str' object has no attribute 'missing'", None),
                          (None, None), (None, "the line is cut"), (None, "the line is cut")])
        host.input(one, event="a late one that is on its way")
        host.unanswered.clear()
        again = host.again(one, [answers[5]])
        host.settle()
        self.assertTrue(again[0].is_taken)
        host.ask(one, complete=True)
        host.end()
        self.assertEqual([message for _, message in host.log if "wrote" in message],
                         ["wrote a to here", "wrote b to here", "wrote c to here"])
        self.assertEqual(host.counters, {"written": 6})

    def batches(self):
        return [[event for event, _ in json.loads(message)] for _, message in self.host.log if message[0] == "["]

    def test_batches(self):
        host, batch = self.host, self.host.open("sink", "batch")
        answers = [host.input(batch, event=event, **{"with": {"key": event}}) for event in "abcdef"]
        host.wait(lambda: answers[3].is_taken, 5, "a full batch is not written")
        host.rest_for(0.05)
        self.assertFalse(answers[4].is_taken, "written without flush")
        host.send({"flush": batch.number})
        host.settle()
        self.assertEqual(self.batches(), [["a", "b", "c", "d"], ["e", "f"]])
        self.assertIn('["a", {"key": "a"}]', host.log[0][1])
        answers = [host.input(batch, event=event) for event in ("g", "bad", "h", "gone", "i")]
        host.send({"flush": batch.number})
        host.settle()
        self.assertEqual([answer.error for answer in answers[:3]], [None, "never", None])
        self.assertEqual([answer.retry for answer in answers[3:]], ["later", "later"])
        again = host.again(batch, answers[3:])
        bug = host.input(batch, event="bug")
        complete = host.input(batch, complete=True)
        host.settle()
        # The records of a failed batch are passed again one at a time, and only the one at fault is refused.
        self.assertEqual(self.batches()[-4:], [["gone", "i", "bug"], ["gone"], ["i"], ["bug"]])
        self.assertEqual([answer.error for answer in again], [None, None])
        self.assertEqual(bug.error, "KeyError: 'x'")
        self.assertTrue(complete.is_taken)
        self.assertEqual(host.log[-1], ("info", "complete"))
        host.end()

    def test_what_is_not_answered_is_not_written_at_a_close(self):
        host, batch = self.host, self.host.open("sink", "batch")
        host.input(batch, event="a")
        host.unanswered.clear()
        host.close(batch)
        host.end()
        self.assertEqual(self.batches(), [])

    def test_every_check(self):
        keeps_the_contract(self, with_sdk(SINKS), "one: {}", "batch: {}")


class Sources(unittest.TestCase):
    def setUp(self):
        self.host = Host(with_sdk(SOURCES))
        self.addCleanup(self.host.kill)

    def collected(self, source, count=None):
        self.host.wait(lambda: source.end is not None or count is not None and len(source.events) >= count, 5, "too few events")
        return [event for event, _, _ in source.events]

    def test_completion_and_credit(self):
        source = self.host.open("source", "numbers", {"to": 5})
        self.host.give_credit(source, 2)
        self.assertEqual(self.collected(source, 2), [0, 1])
        self.host.rest_for(0.05)
        self.host.give_credit(source, 10)
        self.assertEqual(self.collected(source), [0, 1, 2, 3, 4])
        self.assertIn("complete", source.end)
        self.host.end()

    def test_names_and_gauges(self):
        source = self.host.open("source", "named", {"to": 4})
        self.host.give_credit(source, 10)
        self.collected(source, 4)
        self.host.acknowledge(source, [2])
        self.assertEqual(self.collected(source), [0, 1, 2, 3])
        self.assertEqual(source.names, ["n/0", "n/1", None, "n/3"])
        self.assertEqual(self.host.gauges, {("left", "n"): 1})
        self.assertEqual([c.get("names") for c in self.host.spec["components"] if c["name"] == "named"], [True])

    def test_what_cannot_be_sent(self):
        source = self.host.open("source", "odd")
        self.host.give_credit(source, 10)
        self.assertEqual(self.collected(source), [1, "caught"])
        self.assertIn("at most 16 MiB", source.end["error"])

    def test_a_blocked_source_is_stopped(self):
        source = self.host.open("source", "stuck")
        self.host.give_credit(source, 10)
        self.collected(source, 1)
        self.host.ping()
        self.host.settle()
        self.host.stop(source)
        self.collected(source)
        self.host.end()

    def test_tokens(self):
        host, source = self.host, self.host.open("source", "tokens")
        host.give_credit(source, 3)
        self.assertEqual(self.collected(source, 3), [0, 1, 2])
        host.acknowledge(source, [1, 2])
        host.fail(source, [3], "no way")
        host.give_credit(source, 2)
        self.collected(source, 5)
        host.stop(source)
        host.rest_for(0.05)
        self.assertIsNone(source.end)
        self.assertNotIn(("info", "closed"), host.log)
        host.acknowledge(source, [4, 5])
        self.collected(source)
        host.end()
        self.assertEqual(host.log, [("info", "failed [3] no way"), ("info", "closed")])
        self.assertEqual(host.counters, {"acknowledged": 4})

    def test_waiting_for_files(self):
        source = self.host.open("source", "waits")
        self.host.give_credit(source, 10)
        self.assertEqual(self.collected(source, 2), [[], 1])
        self.host.stop(source)
        self.collected(source)
        self.host.end()

    def test_every_check(self):
        found = keeps_the_contract(self, with_sdk(SOURCES), "numbers: { to: 100 }", "tokens: {}")
        self.assertIn("ok      tokens", found)


class CommandLine(unittest.TestCase):
    ONE = '''
@plugin.operator(examples=[Example("a", {"by": 2}, [1, %s], [2, 4])])
def times(event, by: int = integer("A factor.", primary=True, default=1)):
    """Multiplies."""
    return event * by
'''

    def test_examples_pass_and_fail(self):
        script = self.enterContext(fixtures.script(fixtures.WITH_SDK % self.ONE % "2"))
        result = fixtures.run([*fixtures.PYTHON, script, "--test"])
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertIn("ok    times: a\n", result.stdout)
        self.assertIn("3 passed", result.stdout)
        script = self.enterContext(fixtures.script(fixtures.WITH_SDK % self.ONE % "3"))
        result = fixtures.run([*fixtures.PYTHON, script, "--test"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAIL  times: a\n      expected: 2  4\n      got: 2  6\n", result.stdout)

    def test_spec(self):
        script = self.enterContext(fixtures.script(fixtures.WITH_SDK % self.ONE % "2"))
        spec = json.loads(fixtures.run([*fixtures.PYTHON, script, "--spec"]).stdout)
        self.assertEqual(spec["components"][0]["examples"], [{"title": "a", "yaml": "times: 2"}])

    def test_a_state_that_is_lost_fails(self):
        code = STATEFUL.replace("return self.sum\n    def restore", "return 0\n    def restore").replace(
            'memory="A sum."', 'memory="A sum.", examples=[Example("s", {"key": "event"}, [1, Pause(2)], '
            '[{"key": 1, "label": "x", "sum": 1, "now": 1767225600.0, "steps": [1.0, 2.0]}, '
            '{"timer": "tick", "sum": 1}, 1])]').replace("label = template(\"A label.\", default=\"x\")", "label = 'x'")
        script = self.enterContext(fixtures.script(fixtures.WITH_SDK % code))
        result = fixtures.run([*fixtures.PYTHON, script, "--test"])
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("with the state saved and restored before input 1", result.stdout)

    def test_mistakes_of_declarations_are_said_at_once(self):
        for code, message in [
                ('def Bad_name_(e):\n    """x."""', None),
                ('def x(e):\n    """No full stop"""', "full stop"),
                ('def x(e, a=text("x")):\n    """X."""', "full stop"),
                ('def x(e, a=text("X.", default="a", required=True)):\n    """X."""', "no default"),
                ('class X:\n    """X."""', "must be a subclass of Operator")]:
            result = fixtures.run(with_sdk("@plugin.operator\n" + code + "\n    pass"), input="")
            self.assertEqual(result.returncode != 0, message is not None, code + result.stderr)
            self.assertIn(message or "", result.stderr)


class Types(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mypy"), "needs mypy")
    def test_strict(self):
        result = fixtures.run(["mypy", "--strict", os.path.join(fixtures.SDK, "rxd_plugin.py")], cwd=fixtures.SDK)
        self.assertEqual(result.returncode, 0, result.stdout)


class Speed(unittest.TestCase):
    """Figures for one core, from the CPU time of the process, so a busy machine does not matter."""

    def test_python_passes_50_000_events_a_second(self):
        figures = bench.operator(with_sdk(MIXED), "operator", "mixed", {"field": "a"}, count=40_000)
        self.assertGreater(figures.per_core, 50_000, str(figures))


if __name__ == "__main__":
    unittest.main()
