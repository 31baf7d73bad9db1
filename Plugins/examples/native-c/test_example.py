"""Calls each component without rxd; `RXD=path` also runs pipelines in rxd."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "testing"))
import host  # noqa: E402

RXD = os.environ.get("RXD")
plugin = host.Plugin(HERE / os.environ.get("BUILD", "build") / "example.so")


def sent(answer):
    return [item.get("event", item.get("error")) for item in answer["sent"]]


class Shorten(unittest.TestCase):
    def test_cuts_characters_not_bytes(self):
        with plugin.open("operator", "exampleShorten", field="t", to=3) as shorten:
            self.assertEqual(shorten.row({"t": "äöüß", "n": 1})["event"], {"t": "äöü", "n": 1})
            self.assertEqual(shorten.row({"t": "äöü"})["event"], {"t": "äöü"})
            self.assertEqual(shorten.row({"t": ""})["event"], {"t": ""})

    def test_an_event_without_the_text_fails(self):
        with plugin.open("operator", "exampleShorten", field="t") as shorten:
            answer = shorten.row({"t": 5})
            self.assertEqual((answer["status"], answer["error"]), (host.FAILED, "no text 't'"))

    def test_an_empty_name_is_refused_at_its_place(self):
        with self.assertRaises(host.Refused) as caught:
            plugin.open("operator", "exampleShorten", field="")
        self.assertEqual(caught.exception.at, "field")


class RunningSum(unittest.TestCase):
    def test_every_cut_and_restore_gives_the_same(self):
        events = [{"n": n} for n in (1, 2, -5, 10)]
        for cut in range(len(events) + 1):
            with plugin.open("operator", "exampleRunningSum", field="n") as first:
                answers = sent(first.process_events(*events[:cut]))
                state = first.save()
            with plugin.open("operator", "exampleRunningSum", state=state, field="n") as second:
                answers += sent(second.process_events(*events[cut:]))
            self.assertEqual([answer["sum"] for answer in answers], [1, 3, -2, 8], f"cut after {cut}")

    def test_what_cannot_be_added_is_rejected_alone(self):
        with plugin.open("operator", "exampleRunningSum", field="n") as running:
            answers = sent(running.process_events({"n": 2**63 - 1}, {"n": 1}, {"n": "x"}, {"n": -1}))
            self.assertEqual(answers[1:3], ["the sum needs more than 64 bits", "no whole number 'n'"])
            self.assertEqual(answers[3]["sum"], 2**63 - 2)


class Take(unittest.TestCase):
    def test_ends_its_output_in_the_middle_of_a_batch(self):
        with plugin.open("operator", "exampleTake", count=2) as take:
            answer = take.process_events({"n": 1}, {"n": 2}, {"n": 3})
            self.assertEqual((sent(answer), answer["finished"]), ([{"n": 1}, {"n": 2}], 1))

    def test_the_rest_of_the_count_is_in_the_state(self):
        with plugin.open("operator", "exampleTake", count=3) as first:
            self.assertEqual(first.process_events({"n": 1}, {"n": 2})["finished"], -1)
            state = first.save()
        with plugin.open("operator", "exampleTake", state=state, count=3) as second:
            self.assertEqual(second.process_events({"n": 3})["finished"], 0)


class Debounce(unittest.TestCase):
    def test_the_last_event_leaves_when_the_timer_is_due(self):
        with plugin.open("operator", "exampleDebounce", quiet="5ms") as debounce:
            answer = debounce.process_events({"q": "a"}, {"q": "ab"})
            self.assertEqual((answer["sent"], answer["timers"]), ([], {"quiet": 5_000_000}))
            self.assertEqual(sent(debounce.process({"timer": "quiet"})), [{"q": "ab"}])
            self.assertEqual(sent(debounce.process({"timer": "quiet"}, {"complete": True})), [])

    def test_the_held_event_is_in_the_state_and_leaves_at_the_end(self):
        with plugin.open("operator", "exampleDebounce") as first:
            first.process_events({"q": "a", "at": {"$timestamp": 1500000000}})
            state = first.save()
        with plugin.open("operator", "exampleDebounce", state=state) as second:
            self.assertEqual(
                sent(second.process({"complete": True})), [{"q": "a", "at": "1970-01-01T00:00:01.500000000Z"}])


class Counter(unittest.TestCase):
    def numbers(self, counter):
        numbers, last = [], b""
        while (batch := counter.take(0.2)) is not None:
            numbers += [item["event"]["n"] for item in batch[0]]
            last = batch[1]
        return numbers, last

    def test_counts_waits_for_credit_and_goes_on_behind_its_position(self):
        with plugin.open("source", "exampleCounter", to=2500) as counter:
            counter.start(credit=1500)
            numbers, position = self.numbers(counter)
            self.assertEqual((numbers, position), (list(range(1, 1025)), b"1024"))
            self.assertEqual(counter.stop()["status"], host.OK)
        with plugin.open("source", "exampleCounter", position=position, to=2500) as counter:
            counter.start(credit=10_000)
            self.assertEqual(counter.join()["status"], host.OK)
            self.assertEqual(self.numbers(counter), (list(range(1025, 2501)), b"2500"))

    def test_stops_at_once_while_it_waits(self):
        with plugin.open("source", "exampleCounter", every="1h") as counter:
            counter.start()
            self.assertEqual(counter.take()[0][0]["event"], {"n": 1})
            self.assertEqual(counter.stop(2)["status"], host.OK)


class Log(unittest.TestCase):
    def test_appends_lines_and_refuses_events_without_the_member(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "log"
            path.write_text('{"id":0}\n{"torn')
            with plugin.open("sink", "exampleLog", path=str(path), field="id") as log:
                answer = log.write({"id": 1}, {"no": 2}, {"id": 3})
                self.assertEqual((answer["status"], answer["refused"]), (host.OK, {"1": "no member 'id'"}))
            self.assertEqual(path.read_text(), '{"id":0}\n{"torn\n{"id":1}\n{"id":3}\n')

    def test_a_file_that_cannot_be_opened_is_refused_at_its_place(self):
        with self.assertRaisesRegex(host.Refused, "cannot open the file: No such file or directory") as caught:
            plugin.open("sink", "exampleLog", path="/nowhere/log")
        self.assertEqual(caught.exception.at, "path")

    def test_a_full_disk_asks_for_another_try(self):
        with plugin.open("sink", "exampleLog", path="/dev/full") as log:
            answer = log.write({"id": 1})
            self.assertEqual(answer["status"], host.RETRY)
            self.assertIn("No space left on device", answer["error"])


PIPELINE = """
name: killed
plugins: {{ example: {library} }}
sources:
  numbers: {{ exampleCounter: {{ to: 20000 }} }}
sinks:
  log:
    from: numbers
    chain: [ {{ exampleRunningSum: n }} ]
    exampleLog: {{ path: out.ndjson, field: sum }}
"""

DEBOUNCE = """
name: debounce
plugins: {{ example: {library} }}
sources:
  keys: {{ stdin: {{ decode: json }} }}
sinks:
  out: {{ from: keys, chain: [ {{ exampleDebounce: 3ms }} ], stdout: {{ encode: json }} }}
tests:
  - name: in virtual time
    inputs: {{ keys: "1-2---3|" }}
    expect: {{ out: [ {{ at: 5ms, next: 2 }}, {{ at: 7ms, next: 3 }}, {{ complete: true }} ] }}
"""


@unittest.skipUnless(RXD, "needs RXD, the path of rxd")
class InRxd(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.torn = set()

    def write(self, text):
        library = HERE / os.environ.get("BUILD", "build") / "example.so"
        (self.directory / "pipeline.yaml").write_text(text.format(library=library))

    def run_rxd(self, *arguments):
        return subprocess.Popen([RXD, *arguments], cwd=self.directory, stdin=subprocess.DEVNULL)

    def lines(self):
        """The complete lines; a kill cuts one, which the next start terminates."""
        path = self.directory / "out.ndjson"
        lines = []
        for line in path.read_text().split("\n")[:-1] if path.exists() else []:
            try:
                lines.append(json.loads(line))
            except ValueError:
                self.torn.add(line)
        return lines

    def test_position_and_state_outlive_kills(self):
        self.write(PIPELINE)
        for least in (1, 6000, 12_000):
            process = self.run_rxd("--state-dir", "state", "pipeline.yaml")
            while len(self.lines()) < least and process.poll() is None:
                time.sleep(0.02)
            process.kill()
            process.wait()
        process = self.run_rxd("--state-dir", "state", "pipeline.yaml")
        self.assertEqual(process.wait(60), 0)
        lines = self.lines()
        self.assertLessEqual(len(self.torn), 3)
        # A line may be repeated after a kill, with the same sum; none is missing.
        self.assertEqual({line["n"] for line in lines}, set(range(1, 20_001)))
        self.assertEqual([line for line in lines if line["sum"] != line["n"] * (line["n"] + 1) // 2], [])

    def test_timers_run_on_virtual_time(self):
        self.write(DEBOUNCE)
        self.assertEqual(self.run_rxd("test", "pipeline.yaml").wait(30), 0)


if __name__ == "__main__":
    unittest.main()
