"""What docs/compatibility.md promises, against what was recorded of earlier versions: RXD=PROGRAM python3 -m unittest discover -s Tests/Compatibility"""
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import recorded  # noqa: E402
from recorded import ROOT, Kept, KeptKeys, Receiver, run, wait  # noqa: E402


def lines(path):
    return set(path.read_text().splitlines())


def missing_grammar(before, now):
    """The recorded lines of the grammar that hold no longer."""
    paths = {line.split("  ")[0] for line in before}
    found = []
    for line in sorted(before - now):
        path, choice = line.split("  ", 1)
        if choice.startswith("must have "):
            continue
        # A value of any kind takes what a narrower one took; a whole number is a number.
        if f"{path}  any" in now or (choice == "integer" and f"{path}  number" in now):
            continue
        found.append(line)
    # What files may leave out today they may leave out for ever.
    return found + [line for line in sorted(now - before) if "  must have " in line and line.split("  ")[0] in paths]


def missing_shape(before, now, path=""):
    """The members of a recorded document that are not there, or of another kind."""
    if isinstance(before, dict):
        if not isinstance(now, dict):
            return [path]
        return [one for name, below in before.items() for one in missing_shape(below, now.get(name), f"{path}.{name}")]
    if isinstance(before, list):
        if not isinstance(now, list):
            return [path]
        return missing_shape(before[0], now[0], path + "[]") if before and now else []
    # Null is said of what there is not at the moment.
    return [] if before == now or before == "null" or (now == "null") else [f"{path}: {now}, not {before}"]


def missing_metrics(before, now):
    """Recorded metrics that are gone, of another type, or without a label."""
    # The buckets of a histogram have a label more than its sum and count.
    known = {}
    for name, kind, *labels in (line.split(" ") for line in now):
        known.setdefault((name, kind), set()).update(labels)
    found = []
    for line in sorted(before):
        name, kind, *labels = line.split(" ")
        if not set(labels) <= known.get((name, kind), set()) or (name, kind) not in known:
            found.append(line)
    return found


class RecordedTests(unittest.TestCase):
    def each(self):
        found = recorded.versions()
        self.assertTrue(found)
        for version in found:
            with self.subTest(version=version.name):
                yield version

    def test_keys_of_pipeline_files_stay(self):
        now = set(recorded.grammar())
        for version in self.each():
            self.assertEqual(missing_grammar(lines(version / "grammar.txt"), now), [])

    def test_verbs_and_options_stay(self):
        now = set(recorded.command_line())
        for version in self.each():
            self.assertEqual(sorted(lines(version / "command-line.txt") - now), [])

    def test_codes_keep_their_kind(self):
        now = set(recorded.codes())
        for version in self.each():
            self.assertEqual(sorted(lines(version / "codes.txt") - now), [])

    def test_functions_stay(self):
        now = set(recorded.functions())
        for version in self.each():
            self.assertEqual(sorted(lines(version / "functions.txt") - now), [])

    def test_documents_and_metrics_stay(self):
        answers, metrics = recorded.control()
        for version in self.each():
            before = json.loads((version / "control.json").read_text())
            for path in ("/status", "/stats", "POST /reload"):
                self.assertEqual(missing_shape(before[path], answers[path], path), [])
            # Programs look for these words.
            self.assertEqual(json.loads(answers["/ready"])["ready"], True)
            self.assertEqual(json.loads(answers["/health"])["status"], "ok")
            self.assertEqual(missing_metrics(lines(version / "metrics.txt"), set(metrics)), [])

    def test_recorded_pipelines_have_the_same_results(self):
        for version in self.each():
            files = sorted((version / "pipelines").rglob("*.yaml"))
            self.assertGreater(len(files), 20)
            done = run("test", *files)
            self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
            self.assertRegex(done.stdout, r"\d\d tests passed")


class StateTests(unittest.TestCase):
    """A newer version continues with what an older one has stored."""

    def test_recorded_state_continues(self):
        for version in recorded.versions():
            with self.subTest(version=version.name), Receiver() as receiver, Kept(version / "state/kept.yaml") as kept:
                (kept.folder / "state/pipelines").mkdir(parents=True)
                (kept.folder / "state").chmod(0o700)
                (kept.folder / "state/pipelines").chmod(0o700)
                shutil.copy(version / "state/kept.db", kept.folder / "state/pipelines")
                (kept.folder / "state/pipelines/kept.db").chmod(0o600)
                count = len(Kept.FIRST)
                shown = run("state", "show", "kept", "--state-dir", "state", folder=kept.folder)
                self.assertEqual(shown.returncode, 0, shown.stderr)
                # Two known keys and a new one.
                more = [{"id": 7, "n": 1000}, {"id": 8, "n": 1001}, {"id": 5000, "n": 1002}]
                kept.append(*more)
                kept.database([4])
                kept.start(receiver.port)
                # The file is read behind its position, and the scan goes on.
                self.assertEqual(kept.wait_for("counted", 3), [count + 1, count + 2, count + 3])
                self.assertEqual(kept.wait_for("once", 1), [5000])
                self.assertEqual(kept.wait_for("newest", 3), [{"id": 7, "replaces": True}, {"id": 8, "replaces": True}, {"id": 5000, "replaces": False}])
                # The first list begins with what was held.
                self.assertEqual(kept.wait_for("fives", 1), [[301, 302, 1000, 1001, 1002]])
                total = sum(event["n"] for event in Kept.FIRST)
                self.assertEqual(kept.wait_for("sums", 3)[0], {"n": count + 1, "total": total + 1000, "most": 1000})
                self.assertEqual(kept.wait_for("pairs", 3), [[302, 1000], [1000, 1001], [1001, 1002]])
                of_key = {key: sum(event["id"] % 3 == key for event in Kept.FIRST) for key in range(3)}
                self.assertEqual(kept.wait_for("grouped", 3), [{"key": 1, "n": of_key[1] + 1}, {"key": 2, "n": of_key[2] + 1}, {"key": 2, "n": of_key[2] + 2}])
                self.assertEqual(kept.wait_for("new", 1), [{"id": 4}])
                # What the sink had not delivered, in its order, and then what is new.
                wait(lambda: len(receiver.bodies) >= count + 3, "deliveries")
                self.assertEqual([int(body) for body in receiver.bodies], [event["n"] for event in Kept.FIRST + more])
                steps = {step["id"]: step for step in json.loads(kept.ask("/stats"))["pipelines"][0]["steps"]}
                self.assertEqual(steps["later/delay"]["timers"], 1)
                kept.stop()
                # Nothing came twice.
                for name, events in (("counted", 3), ("once", 1), ("fives", 1), ("new", 1), ("later", 0)):
                    self.assertEqual(len(kept.out(name)), events, name)

    def test_recorded_keys_on_the_disk_continue(self):
        for version in recorded.versions():
            if not (version / "keys").exists():
                continue
            with self.subTest(version=version.name), KeptKeys(version / "keys/kept.yaml") as kept:
                kept.unpack(version / "keys")
                kept.append(*kept.LATER)
                count = len(kept.FIRST)
                text = kept.FIRST[0]["text"]
                limited = (kept.folder / "kept.yaml").read_text()
                without = re.sub("^state:.*\n", "", limited, flags=re.MULTILINE)
                self.assertNotEqual(limited, without)
                # Of all steps a key that came first, so that it is on the disk where that has any, and a new one. Each start goes on with what the one
                # before has left, with the limit and without.
                for round, file in enumerate((limited, without, without, limited)):
                    (kept.folder / "kept.yaml").write_text(file)
                    known, new, n = 10 + 2 * round, 9990 + round, count + 1 + 2 * round
                    before = {name: len(kept.out(name)) for name in ("once", "newest", "top", "counted", "pairs")}
                    kept.append({"id": known, "n": n, "text": text}, {"id": new, "n": n, "text": text})
                    kept.start(0)
                    for name, wanted in (
                        ("once", [new]), ("newest", [{"id": known, "replaces": True}, {"id": new, "replaces": False}]),
                        ("top", [{"n": m, "retracts": m < n} for m in (3000 + known, n, new - 6000, n)]),
                        ("counted", [{"key": known, "n": 5}, {"key": new % 1000, "n": 5}]), ("pairs", [[known, n]]),
                    ):
                        self.assertEqual(kept.wait_for(name, before[name] + len(wanted))[before[name]:], wanted, f"{name}, start {round}")
                    kept.stop()
                    self.assertNotIn("RX5", (kept.folder / "log").read_text())
                    for name, length in (("once", 1), ("newest", 2), ("top", 4), ("counted", 2), ("pairs", 1)):
                        self.assertEqual(len(kept.out(name)), before[name] + length, f"{name}, start {round}")

    def test_a_newer_format_is_refused_and_left_alone(self):
        with Receiver() as receiver, Kept() as kept:
            store = kept.folder / "state/pipelines/kept.db"
            store.parent.mkdir(parents=True, mode=0o700)
            store.parent.parent.chmod(0o700)
            content = bytearray((recorded.versions()[0] / "state/kept.db").read_bytes())
            # `user_version`, in the head of a SQLite file.
            content[60:64] = (99).to_bytes(4, "big")
            store.write_bytes(content)
            store.chmod(0o600)
            kept.start(receiver.port)
            wait(lambda: kept.process.poll() is not None, "an end")
            self.assertNotEqual(kept.process.returncode, 0)
            self.assertIn("its format is 99", (kept.folder / "log").read_text())
            self.assertEqual(store.read_bytes(), content)


class PluginTests(unittest.TestCase):
    """Plugins of contract 1, compiled against the first header, run in every rxd that has this contract."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rxd-plugin-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def of(self, version):
        for path in (version / "plugin").iterdir():
            shutil.copy(path, self.folder)

    @unittest.skipUnless(shutil.which("gcc"), "needs gcc")
    def test_libraries_of_an_earlier_header_run(self):
        for version in recorded.versions():
            if not (version / "plugin/rxd_plugin.h").exists():
                continue
            self.of(version)
            spec = (self.folder / "spec.json").read_text()
            (self.folder / "spec.h").write_text("".join(json.dumps(line + "\n") + "\n" for line in spec.splitlines()))
            # The flags of the example's own Makefile; the header is the recorded one.
            subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", "-O1", "-fPIC", "-fvisibility=hidden", "-I.", "-shared", "-o", "example.so",
                            "example.c"], cwd=self.folder, check=True)
            for verb in (["plugin", "check"], ["check"]):
                checked = run(*verb, "tour.yaml", folder=self.folder, HOME=str(self.folder))
                self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            done = run("run", "tour.yaml", folder=self.folder, HOME=str(self.folder))
            self.assertEqual(done.returncode, 0, done.stderr)
            sums = [json.loads(line)["sum"] for line in (self.folder / "sums.ndjson").read_text().splitlines()]
            self.assertEqual(sums, [n * (n + 1) // 2 for n in range(1, 21)])
            tested = run("plugin", "test", "example.so", folder=self.folder, HOME=str(self.folder))
            self.assertEqual(tested.returncode, 0, tested.stdout[-3000:])

    def test_programs_that_speak_contract_1_run(self):
        for version in recorded.versions():
            if not (version / "plugin/plugin.py").exists():
                continue
            self.of(version)
            done = run("run", "lines.yaml", folder=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((self.folder / "lines.out").read_text().splitlines(), [f'{{"sum": {n}}}' for n in (1, 3, 6, 10, 15)])
            # Its state goes on over a restart.
            for given, wanted in (([1, 2], 2), ([3], 3)):
                with (self.folder / "lines.ndjson").open("a") as file:
                    file.write("".join(f'{{"n": {n}}}\n' for n in given))
                process = subprocess.Popen([recorded.RXD, "run", "--state-dir", "state", "kept.yaml"], cwd=self.folder, stderr=subprocess.DEVNULL)
                out = self.folder / "kept.out"
                try:
                    wait(lambda: out.exists() and len(out.read_text().splitlines()) >= wanted, f"{wanted} lines")
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait(recorded.LIMIT)
            self.assertEqual(out.read_text().splitlines(), ['{"sum": 1}', '{"sum": 3}', '{"sum": 6}'])


class StatusTests(unittest.TestCase):
    """Exit statuses: each by something that has it."""

    FINE = "sources: { a: { values: [1] } }\nsinks: { out: { from: a, stdout: {} } }\n"
    FAILS = "sources: { a: { error: no } }\nsinks: { out: { from: a, stdout: {} } }\n"

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rxd-status-"))
        self.addCleanup(shutil.rmtree, self.folder)
        for name, text in (("fine.yaml", self.FINE), ("fails.yaml", self.FAILS), ("wrong.yaml", "sources: { a: { vlaues: [1] } }\n"),
                           ("unformatted.yaml", self.FINE.replace(" }\n", "     }\n")),
                           ("tested.yaml", self.FINE + "tests: [ { name: t, expect: { out: [ { next: 2 } ] } } ]\n")):
            (self.folder / name).write_text(text)

    def test_statuses(self):
        for arguments, status in (
            (["run", "fine.yaml"], 0), (["check", "fine.yaml"], 0), (["version"], 0),
            (["run", "fails.yaml"], 1), (["test", "tested.yaml"], 1), (["fmt", "--check", "unformatted.yaml"], 1),
            (["run", "--nonsense"], 64), (["describe"], 64),
            (["run", "nothing.yaml"], 66), (["check", "nothing.yaml"], 66),
            (["top", "--socket", "nothing.sock"], 69), (["reload", "--socket", "nothing.sock"], 69),
            (["run", "--state-dir", "/proc/nothing", "fine.yaml"], 74),
            (["run", "wrong.yaml"], 78), (["check", "wrong.yaml"], 78), (["test", "wrong.yaml"], 78),
        ):
            with self.subTest(arguments=arguments):
                done = run(*arguments, folder=self.folder)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)

    def test_a_state_directory_in_use_is_75(self):
        (self.folder / "waits.yaml").write_text("sources: { a: { interval: 1h } }\nsinks: { out: { from: a, discard: {} } }\n")
        process = subprocess.Popen([recorded.RXD, "run", "--state-dir", "state", "--control-socket", "c.sock", "waits.yaml"], cwd=self.folder, stderr=subprocess.DEVNULL)
        try:
            wait(lambda: self.answers(self.folder / "c.sock"), "the control socket")
            self.assertEqual(run("run", "--state-dir", "state", "--control-socket", "none", "waits.yaml", folder=self.folder).returncode, 75)
        finally:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(recorded.LIMIT), 0)

    @staticmethod
    def answers(path):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
            except OSError:
                return False
        return True


class OwnTests(unittest.TestCase):
    """The comparisons above find what is missing, and the page names tests that exist."""

    def test_a_narrower_grammar_is_found(self):
        before = {"sinks.file.path  text", "sinks.file.encode  =\"json\"", "sinks.file.size  integer", "sinks.file  must have path", "sinks.file.form  boolean"}
        self.assertEqual(missing_grammar(before, before), [])
        wider = before - {"sinks.file.size  integer", "sinks.file  must have path"} | {"sinks.file.size  number", "sinks.tcp  must have address"}
        self.assertEqual(missing_grammar(before, wider), [])
        self.assertEqual(missing_grammar(before, before - {"sinks.file.encode  =\"json\""}), ["sinks.file.encode  =\"json\""])
        self.assertEqual(missing_grammar(before, before | {"sinks.file  must have form"}), ["sinks.file  must have form"])

    def test_other_documents_are_found(self):
        before = {"a": "number", "list": [{"b": "text"}], "failure": "null"}
        self.assertEqual(missing_shape(before, before | {"c": "text"}), [])
        self.assertEqual(missing_shape(before, {"list": [{"b": "text"}], "failure": {}}), [".a: None, not number"])
        self.assertEqual(missing_shape(before, before | {"list": [{"b": "number"}]}), [".list[].b: number, not text"])

    def test_other_metrics_are_found(self):
        before = {"rxd_a_total counter pipeline", "rxd_b gauge"}
        self.assertEqual(missing_metrics(before, {"rxd_a_total counter component pipeline", "rxd_b gauge"}), [])
        self.assertEqual(missing_metrics(before, {"rxd_a_total gauge pipeline", "rxd_b gauge"}), ["rxd_a_total counter pipeline"])
        self.assertEqual(missing_metrics(before, {"rxd_a_total counter", "rxd_b gauge"}), ["rxd_a_total counter pipeline"])

    def test_tests_that_the_page_names_exist(self):
        page = (ROOT / "docs/compatibility.md").read_text()
        names = re.findall(r"`(?:([\w/]+\.py|\w+Tests)(?:\.(\w+))?)`", page)
        self.assertGreater(len(names), 8)
        sources = {path.stem: path.read_text() for path in (ROOT / "Tests").rglob("*.swift")}
        for name, test in names:
            with self.subTest(name=name, test=test):
                if name.endswith(".py"):
                    self.assertTrue((ROOT / name).exists())
                else:
                    own = re.search(rf"class {name}\b.*?(?=\nclass |\Z)", pathlib.Path(__file__).read_text(), re.DOTALL)
                    text = own[0] if own else next((text for text in sources.values() if re.search(rf"(struct|class|enum) {name}\b", text)), None)
                    self.assertIsNotNone(text, name)
                    self.assertIn(test, text)


if __name__ == "__main__":
    unittest.main()
