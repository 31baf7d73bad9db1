"""Calls each component without rxd; `RXD=path` also runs pipelines in rxd and checks the library against the contract."""

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
LIBRARY = HERE / os.environ.get("BUILD", "build") / "shout.so"
plugin = host.Plugin(LIBRARY)


def place(number):
    """A position of the source: the version of its format, and a number of letters."""
    number *= 2
    found = [1]
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


class Spec(unittest.TestCase):
    def test_the_declaration_makes_the_spec_of_the_contract(self):
        text = {"type": "object"}
        self.assertEqual(plugin.spec, {
            "plugin": "swift-shout", "version": "1.0.0", "contract": 1, "summary": "A component of each kind, in Swift.", "components": [
                {"kind": "operator", "name": "exampleShout", "form": "row", "summary": "Writes a text of the event in capitals.",
                 "details": "An event whose text is empty is dropped.",
                 "parameters": [
                     {"name": "field", "type": "text", "primary": True, "required": True, "help": "The member to change."},
                     {"name": "marks", "type": "integer", "default": 1, "minimum": 0, "maximum": 10,
                      "help": "How many exclamation marks follow."}],
                 "input": text, "output": text,
                 "examples": [{"title": "a headline", "yaml": "exampleShout: { field: title, marks: 3 }", "in": "a-b-c|", "out": "d---e|",
                               "values": {"a": "{title: quiet}", "b": "{title: ''}", "c": "{title: loud}", "d": "{title: 'QUIET!!!'}",
                                          "e": "{title: 'LOUD!!!'}"}}]},
                {"kind": "operator", "name": "exampleTally", "summary": "Counts events by a key and sends the counts after each period.",
                 "parameters": [
                     {"name": "key", "type": "expression", "result": "string", "primary": True, "required": True, "help": "What is counted by."},
                     {"name": "every", "type": "duration", "default": "1s", "minimum": "1ms", "help": "How long a period is."}],
                 "output": {"type": "object", "properties": {"key": {"type": "string"}, "count": {"type": "integer"}},
                            "required": ["key", "count"]},
                 "memory": "A number for each key of the period.", "state": {"version": 1}, "timers": True,
                 "examples": [
                     {"title": "the words of each period", "yaml": "exampleTally: { key: event, every: 5ms }", "in": "a-b-a------a-|",
                      "out": "-----(xy)-------(z|)", "values": {"x": "{key: a, count: 2}", "y": "{key: b, count: 1}", "z": "{key: a, count: 1}"}},
                     {"title": "words a minute", "yaml": "exampleTally: { key: event.word, every: 1m }"}],
                 "edges": {"completion": "Sends the counts, then completes."},
                 "useCases": [{"topic": "gathering", "text": "count the words of each minute",
                               "yaml": "exampleTally: { key: event.word, every: 1m }"}]},
                {"kind": "source", "name": "exampleLetters", "summary": "Sends the letters of a text.",
                 "parameters": [{"name": "of", "type": "text", "primary": True, "required": True, "help": "The text."}],
                 "output": {"type": "object", "properties": {"letter": {"type": "string"}}, "required": ["letter"]},
                 "recovery": "position",
                 "examples": [{"title": "five", "yaml": "exampleLetters: hello"}]},
                {"kind": "sink", "name": "exampleLines", "summary": "Appends a text of each event to a file.",
                 "parameters": [
                     {"name": "path", "type": "text", "primary": True, "required": True,
                      "help": "The file; it is made if it does not exist."},
                     {"name": "field", "type": "text", "default": "text", "help": "The member that is written."}],
                 "input": text, "confirmation": "disk",
                 "examples": [{"title": "a list of names", "yaml": "exampleLines: { path: names.txt, field: name }"}]},
                {"kind": "sink", "name": "exampleFiles", "summary": "Appends each event, as a line of JSON, to a file of a directory.",
                 "details": "While there is a file `NAME.lock`, events for the file `NAME` wait.",
                 "parameters": [
                     {"name": "directory", "type": "text", "primary": True, "required": True, "help": "The directory."},
                     {"name": "name", "type": "template", "required": True,
                      "help": "The name of the file; it is made if it does not exist."}],
                 "confirmation": "system",
                 "examples": [{"title": "a file for each customer",
                               "yaml": "exampleFiles: { directory: /srv/orders, name: '{{ event.customer }}' }"}]}]})


class Shout(unittest.TestCase):
    def test_writes_capitals_and_leaves_the_rest(self):
        with plugin.open("operator", "exampleShout", field="t", marks=2) as shout:
            self.assertEqual(shout.row({"n": 1.50, "t": "größe"})["event"], {"n": 1.5, "t": "GRÖSSE!!"})
            self.assertEqual(shout.row({"t": ""})["status"], host.DROP)
            answer = shout.row({"t": 5})
            self.assertEqual((answer["status"], answer["error"]), (host.FAILED, "no text 't'"))

    def test_an_empty_name_is_refused_at_its_place(self):
        with self.assertRaisesRegex(host.Refused, "must not be empty") as caught:
            plugin.open("operator", "exampleShout", field="")
        self.assertEqual(caught.exception.at, "field")


class Tally(unittest.TestCase):
    def test_every_cut_and_restore_gives_the_same(self):
        inputs = [{"event": 1, "with": ["a"]}, {"event": 2, "with": ["b"]}, {"event": 3, "with": [4]}, {"event": 5, "with": ["a"]},
                  {"timer": "1:0"}, {"event": 6, "with": ["c"]}, {"complete": True}]
        counts = [{"key": "a", "count": 2}, {"key": "b", "count": 1}, {"key": "c", "count": 1}]
        for cut in range(len(inputs) + 1):
            answers, state = [], None
            for part in (inputs[:cut], inputs[cut:]):
                with plugin.open("operator", "exampleTally", state=state, every="5ms") as tally:
                    answers += tally.process(*part)["sent"]
                    state = tally.save()
            self.assertEqual([a["event"] for a in answers if "event" in a], counts, f"cut after {cut}")
            self.assertEqual([a["error"] for a in answers if "error" in a], ["the key is not a text"])

    def test_the_first_event_of_a_period_sets_the_timer(self):
        with plugin.open("operator", "exampleTally", every="5ms") as tally:
            first = tally.process({"event": 1, "with": ["a"]}, {"event": 2, "with": ["a"]})
            self.assertEqual((first["sent"], first["timers"]), ([], {"1:0": 5_000_000}))
            self.assertEqual(tally.process({"event": 1, "with": ["a"]})["timers"], {})
            self.assertEqual(tally.log(), ["count keys 1"])


class Letters(unittest.TestCase):
    def test_goes_on_behind_each_position(self):
        text = "åbc" * 100
        with plugin.open("source", "exampleLetters", of=text) as letters:
            letters.start()
            self.assertEqual(letters.join()["status"], host.OK)
            batches = [letters.take(0) for _ in range(3)]
            self.assertIsNone(letters.take(0))
        self.assertEqual("".join(item["event"]["letter"] for events, _ in batches for item in events), text)
        self.assertEqual([position for _, position in batches], [place(100), place(200), place(300)])
        with plugin.open("source", "exampleLetters", of=text, position=place(299)) as letters:
            letters.start()
            self.assertEqual(letters.join()["status"], host.OK)
            self.assertEqual(letters.take(0), ([{"token": 0, "event": {"letter": "c"}}], place(300)))

    def test_a_combining_mark_stays_with_its_letter(self):
        with plugin.open("source", "exampleLetters", of="e\u0301a") as letters:
            letters.start()
            self.assertEqual(letters.join()["status"], host.OK)
            self.assertEqual([item["event"]["letter"] for item in letters.take(0)[0]], ["e\u0301", "a"])
        with plugin.open("source", "exampleLetters", of="\u0301a") as letters:
            letters.start()
            self.assertEqual(letters.join()["status"], host.OK)
            self.assertEqual([item["event"]["letter"] for item in letters.take(0)[0]], ["\u0301", "a"])

    def test_stops_while_it_has_no_credit(self):
        with plugin.open("source", "exampleLetters", of="x" * 1000) as letters:
            letters.start(credit=100)
            self.assertEqual(len(letters.take()[0]), 100)
            self.assertEqual(letters.stop()["status"], host.OK)


class Lines(unittest.TestCase):
    def test_appends_lines_and_refuses_events_without_the_text(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "lines"
            with plugin.open("sink", "exampleLines", path=str(path)) as lines:
                answer = lines.write({"text": "ä"}, {"n": 1}, {"text": "b"})
                self.assertEqual((answer["status"], answer["refused"]), (host.OK, {"1": "no text 'text'"}))
            self.assertEqual(path.read_text(), "ä\nb\n")

    def test_a_full_disk_asks_for_another_try(self):
        with plugin.open("sink", "exampleLines", path="/dev/full") as lines:
            answer = lines.write({"text": "a"})
            self.assertEqual((answer["status"], answer["error"]), (host.RETRY, "cannot write: No space left on device"))

    def test_a_file_that_cannot_be_opened_is_refused_at_its_place(self):
        with self.assertRaisesRegex(host.Refused, "cannot open the file: No such file or directory") as caught:
            plugin.open("sink", "exampleLines", path="/nowhere/lines")
        self.assertEqual(caught.exception.at, "path")


class Files(unittest.TestCase):
    def test_each_event_has_its_outcome(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in ("a.lock", "b"):
                Path(directory, name).mkdir()
            names = ["a", "b", "c", "d/e", "a", "c"]
            with plugin.open("sink", "exampleFiles", directory=directory) as files:
                answer = files.write(*range(6), arguments=[[name] for name in names])
                self.assertEqual((answer["status"], answer["error"]), (host.RETRY, f"'{directory}/a' is locked"))
                self.assertEqual(sorted(answer["deliveredAt"]), [2, 5])
                self.assertEqual(answer["delivered"], 0)
                self.assertEqual(answer["refused"], {
                    "1": f"cannot write '{directory}/b': Is a directory", "3": "'d/e' cannot be the name of a file"})
                Path(directory, "a.lock").rmdir()
                began = time.monotonic()
                answer = files.write(0, 4, arguments=[["a"], ["a"]])
                self.assertEqual((answer["status"], answer["refused"]), (host.OK, {}))
                self.assertGreater(time.monotonic() - began, 0.4, "it has waited for the rest of the pause")
            self.assertEqual((Path(directory, "a").read_text(), Path(directory, "c").read_text()), ("0\n4\n", "2\n5\n"))

    def test_a_directory_that_is_not_there_is_refused_at_its_place(self):
        with self.assertRaisesRegex(host.Refused, "cannot write to the directory: No such file or directory") as caught:
            plugin.open("sink", "exampleFiles", directory="/nowhere")
        self.assertEqual(caught.exception.at, "directory")


class Library(unittest.TestCase):
    def test_it_shares_no_runtime(self):
        """The library contains its own Swift runtime, and exports only the two names of the contract and its own functions."""
        needed = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("libswift", needed)
        names = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
        defined = [line.split()[-1] for line in names.splitlines()]
        self.assertIn("rxd_plugin_init", defined)
        self.assertEqual([name for name in defined if name.startswith("swift_")], [])


@unittest.skipUnless(RXD, "needs RXD, the path of rxd")
class InRxd(unittest.TestCase):
    def run_rxd(self, *arguments, **options):
        return subprocess.run([RXD, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)

    def test_it_keeps_the_contract(self):
        done = self.run_rxd("plugin", "test", LIBRARY, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for check in ("state", "threads", "position", "lifetimes", "memory"):
            self.assertIn(f'"check":"{check}"', done.stdout.replace('": "', '":"'))

    def test_the_tests_of_the_pipeline_pass(self):
        done = self.run_rxd("test", HERE / "pipelines/letters.yaml")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_pipeline_runs(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "pipeline.yaml").write_text(f"""
plugins: {{ shout: '{LIBRARY}' }}
sources: {{ words: {{ stdin: {{ decode: json }} }} }}
sinks:
  out: {{ from: words, chain: [ {{ exampleShout: text }} ], exampleLines: out.txt }}
""")
            events = "".join(json.dumps({"text": f"w{n}"}) + "\n" for n in range(5000))
            done = self.run_rxd("pipeline.yaml", cwd=directory, input=events)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(Path(directory, "out.txt").read_text().splitlines(), [f"W{n}!" for n in range(5000)])

    def test_only_what_is_asked_for_comes_again(self):
        """A locked file, a directory in place of a file, and a name that no file can have, between others that are delivered once."""
        with tempfile.TemporaryDirectory() as directory:
            for name in ("out", "out/a.lock", "out/b"):
                Path(directory, name).mkdir()
            Path(directory, "pipeline.yaml").write_text(f"""
plugins: {{ shout: '{LIBRARY}' }}
sources: {{ orders: {{ stdin: {{ decode: json }} }} }}
sinks:
  out: {{ from: orders, exampleFiles: {{ directory: out, name: '{{{{ event.to }}}}' }} }}
  bad: {{ from: out.errors, file: {{ path: bad.ndjson, encode: json }} }}
""")
            names = ["c", "a", "c", "b", "a", "c", "x/y"] * 40
            events = "".join(json.dumps({"to": name, "n": n}) + "\n" for n, name in enumerate(names))
            with subprocess.Popen([RXD, "pipeline.yaml"], cwd=directory, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as rxd:
                rxd.stdin.write(events)
                rxd.stdin.flush()
                deadline = time.monotonic() + 60
                while not Path(directory, "out/c").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
                time.sleep(1)
                Path(directory, "out/a.lock").rmdir()
                _, log = rxd.communicate(timeout=120)
            self.assertEqual(rxd.returncode, 0, log)
            self.assertIn("out/a' is locked; trying again", log)

            def numbers(name):
                return [json.loads(line)["n"] for line in Path(directory, "out", name).read_text().splitlines()]

            self.assertEqual(numbers("c"), [n for n, name in enumerate(names) if name == "c"])
            self.assertEqual(numbers("a"), [n for n, name in enumerate(names) if name == "a"])
            bad = [json.loads(line) for line in Path(directory, "bad.ndjson").read_text().splitlines()]
            self.assertEqual(sorted(one["event"]["n"] for one in bad), [n for n, name in enumerate(names) if name in ("b", "x/y")])


if __name__ == "__main__":
    unittest.main()
