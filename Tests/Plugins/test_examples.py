"""The examples under Plugins/examples: their own tests, every guarantee of the contract, and their documented behaviour."""
import json
import os
import random
import re
import sqlite3
import subprocess
import tempfile
import unittest

import bench
import fixtures
from host import Host
from contract import Case, Directory, Supervised, keeps_the_contract

CSV = "code,name\nFR,France\nPE,Peru\n"
EXAMPLES = [("enrich.py", 4), ("rate.py", 4), ("spool.py", 3), ("lines.py", 3), ("table.py", 3)]


class OfPython(unittest.TestCase):
    def test_their_own_tests_pass(self):
        running = [(name, count, subprocess.Popen(
            [*fixtures.python_example(name), "--test"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            for name, count in EXAMPLES]
        for name, count, process in running:
            output = process.communicate(timeout=60)[0]
            with self.subTest(name):
                self.assertEqual((process.returncode, output.splitlines()[-1]), (0, f"{count} passed"), output)

    def check(self, file, yaml, events=None, files=None):
        with Directory(files) as directory:
            return keeps_the_contract(self, fixtures.python_example(file), yaml, events=events, files=directory)

    def test_enrich(self):
        self.check("enrich.py", "lookup: { key: event.a, table: c.csv }", [{"a": "FR"}, {"a": "XX"}, {"a": None}, 5], {"c.csv": CSV})

    def test_enrich_reads_a_changed_table_again(self):
        with Directory({"c.csv": CSV}) as directory, Host(fixtures.python_example("enrich.py"), cwd=directory) as host:
            self.assertEqual(host.open("operator", "lookup", {"table": "none.csv"}).error, "none.csv: No such file or directory")
            one = host.open("operator", "lookup", {"table": "c.csv", "as": "land"})
            self.assertEqual(host.ask(one, event={}, **{"with": {"key": "DE"}}).events, [{"land": None}])
            with open(os.path.join(directory, "c.csv"), "a", encoding="utf-8") as file:
                file.write("DE,Germany\n")
            self.assertEqual(host.ask(one, event={}, **{"with": {"key": "DE"}}).events, [{"land": {"name": "Germany"}}])
            host.end()
            self.assertEqual(host.counters, {"notFound": 1})

    def test_rate(self):
        found = self.check("rate.py", "rate: { key: event.p }", [{"p": "a"}, {"p": "b"}, {"p": "a"}, {"p": "c"}])
        self.assertIn("ok      state", found)

    def test_lines(self):
        found = self.check("lines.py", "lines: { path: a.txt }", None, {"a.txt": "one\ntwo\n\nfour\nhalf"})
        self.assertIn("ok      position", found)

    def test_spool(self):
        files = {f"{n}.json": str(n) for n in range(20)}
        self.assertIn("ok      tokens", self.check("spool.py", "spool: { directory: . }", None, files))
        with Directory(files) as directory, Host(fixtures.python_example("spool.py"), cwd=directory) as host:
            source = host.open("source", "spool", {"directory": ".", "every": 10**7})
            host.give_credit(source, 10)
            host.wait(lambda: len(source.events) == 10, 5, "no events")
            tokens = [token for _, token, _ in source.events]
            host.acknowledge(source, tokens[:4])
            host.fail(source, tokens[4:5])
            host.wait(lambda: len(os.listdir(directory)) == 16, 5, "files are not removed")
            host.kill()
            left = os.listdir(directory)
            self.assertEqual(sum(name.endswith(".failed") for name in left), 1)
            self.assertEqual(len(left), 16)

    def test_table(self):
        with Directory() as directory:
            command = fixtures.python_example("table.py")
            self.check("table.py", "table: { database: t.sqlite, name: t, key: event.id }", [{"id": str(n % 7)} for n in range(50)])
            with Host(command, cwd=directory) as host:
                sink = host.open("sink", "table", {"database": "t.sqlite", "name": "t"})
                for number in range(7):
                    host.ask(sink, event={}, **{"with": {"key": str(number)}})
                blocker = sqlite3.connect(os.path.join(directory, "t.sqlite"), isolation_level=None)
                blocker.execute("BEGIN EXCLUSIVE")
                answers = [host.input(sink, event={"n": n}, **{"with": {"key": "x"}}) for n in range(3)]
                host.send({"flush": sink.number})
                host.settle()
                self.assertEqual([answer.retry for answer in answers], ["database is locked"] * 3)
                blocker.execute("ROLLBACK")
                host.again(sink, answers)
                host.ask(sink, event={}, **{"with": {"key": None}})
                host.ask(sink, complete=True)
                host.end()
            rows = dict(blocker.execute("SELECT key, event FROM t"))
            blocker.close()
            self.assertEqual(rows["x"], '{"n": 2}')
            self.assertEqual(len(rows), 8)


class OfShell(unittest.TestCase):
    def test_upper(self):
        command = [os.path.join(fixtures.EXAMPLES, "shell", "upper.sh")]
        events = [{"a": "x"}, {"a": 5}, {"b": 1}, None, [], {"a": "ä\n\"}", "c": [1.5]}]
        keeps_the_contract(self, command, "upper: a", events=events)
        with Host(command) as host:
            one = host.open("operator", "upper", {"field": "a"})
            answers = [host.ask(one, event=event) for event in events]
            self.assertEqual([answer.events for answer in answers], [[{"a": "X"}], [], [], [], [], [{"a": "ä\n\"}", "c": [1.5]}]])
            self.assertIn("must be a string", answers[1].error)
            host.end()
        with open(command[0], encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 10)

    def test_keep(self):
        script = os.path.join(fixtures.EXAMPLES, "shell", "keep.sh")
        events = [{"a": "x \\ \"} %s $x"}, "text, with }", 5, None, {"id": 1, "event": {"x": 2}}]
        with Directory() as directory:
            path = os.path.join(directory, "kept")
            keeps_the_contract(self, [script, "kept"], events=events)
            self.assertIn("ok      retry", keeps_the_contract(self, [script, "/"], events=events))
            with Host([script, path]) as host:
                sink = host.open("sink", "keep")
                for event in events:
                    host.ask(sink, event=event)
                host.end()
            with open(path, encoding="utf-8") as file:
                self.assertEqual([json.loads(line) for line in file], events)
            with Host([script, directory]) as host:
                self.assertIn("cannot be written", host.ask(host.open("sink", "keep"), event=1).retry)


class OfC(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = cls.enterClassContext(tempfile.TemporaryDirectory())
        flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
        source = os.path.join(fixtures.EXAMPLES, "c", "mask.c")
        for name, more in (("mask", []), ("checked", ["-fsanitize=undefined", "-fno-sanitize-recover"])):
            subprocess.run(["cc", *flags, *more, "-o", os.path.join(cls.directory, name), source], check=True)

    def program(self, name):
        return [os.path.join(self.directory, name)]

    def test_every_promise(self):
        keeps_the_contract(self, self.program("checked"), "mask: 5")

    def test_it_masks_as_a_regular_expression_does(self):
        rows = random.Random(7)

        def text():
            return "".join(rows.choice(["1", "23", "4567", "89012345", "a", " ", "\\", "\"", "\n", "ä", "\u0001", "\U0001f600"])
                           for _ in range(rows.randrange(12)))

        def value(depth):
            kind = rows.randrange(8 if depth else 4)
            if kind < 3:
                return text()
            if kind == 3:
                return rows.choice([None, True, 12345678901234, 1.5])
            if kind < 6:
                return {text(): value(depth - 1) for _ in range(rows.randrange(4))}
            return [value(depth - 1) for _ in range(rows.randrange(4))]

        def masked(event):
            if isinstance(event, str):
                return re.sub(r"[0-9]{9,}", lambda found: "*" * (len(found[0]) - 4) + found[0][-4:], event)
            if isinstance(event, dict):
                return {name: masked(its) for name, its in event.items()}
            return [masked(element) for element in event] if isinstance(event, list) else event

        events = [value(4) for _ in range(3000)]
        with Host(self.program("checked")) as host:
            one = host.open("operator", "mask", {"digits": 9})
            answers = [host.input(one, event=event) for event in events]
            host.settle()
            for event, answer in zip(events, answers):
                self.assertEqual(answer.events, [masked(event)])
            host.end()

    def test_a_kill_costs_nothing(self):
        supervised = Supervised(Case(self.program("mask"), "operator", "mask", {"digits": 5}), credit=64)
        self.assertEqual([outcome[0] for outcome in supervised.run(list(range(300)))], [[n] for n in range(300)])

    def test_200_000_events_a_second_of_one_core(self):
        figures = bench.operator(self.program("mask"), "operator", "mask", {"digits": 12}, count=100_000)
        self.assertGreater(figures.per_core, 200_000, str(figures))


if __name__ == "__main__":
    unittest.main()
