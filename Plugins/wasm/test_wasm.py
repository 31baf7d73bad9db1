"""Calls operators of modules without rxd; RXD=path also runs a pipeline in rxd."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The library and the modules are built once; BUILD is for the plugin.
BUILD = HERE / os.environ.get("BUILD", "build")
MADE = HERE / "build"
sys.path.insert(0, str(HERE.parent / "testing"))
import host  # noqa: E402

RXD = os.environ.get("RXD")
WASMTIME = MADE / "libwasmtime.so"


def setUpModule() -> None:
    for path in (MADE / "text.wasm", MADE / "bad.wasm"):
        if not path.exists():
            raise unittest.SkipTest("needs a clang that has WebAssembly")
    os.environ["RXD_WASMTIME"] = str(WASMTIME)


def copied(directory: str) -> str:
    """The plugin looks for its modules once, so each set of modules needs a separate library."""
    return shutil.copy(BUILD / "wasm.so", directory)


def loaded(*paths: Path) -> host.Plugin:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["RXD_WASM"] = ":".join(map(str, paths))
        try:
            return host.Plugin(copied(directory))
        finally:
            del os.environ["RXD_WASM"]


class Finding(unittest.TestCase):
    def refusal(self, *paths: Path) -> str:
        with self.assertRaises(host.Refused) as caught:
            loaded(*paths)
        return str(caught.exception)

    def test_one_module_keeps_its_name_and_gets_two_parameters(self):
        spec = loaded(MADE / "text.wasm").spec
        self.assertEqual((spec["plugin"], [c["name"] for c in spec["components"]]), ("wasm-text", ["exampleWords", "exampleDelta"]))
        for component in spec["components"]:
            self.assertEqual([p["name"] for p in component["parameters"]], ["field", "deadline", "memoryLimit"])

    def test_several_modules_are_one_plugin(self):
        spec = loaded(MADE / "text.wasm", MADE / "bad.wasm").spec
        self.assertEqual((spec["plugin"], len(spec["components"])), ("wasm", 4))
        self.assertEqual(len(loaded(MADE).spec["components"]), 4)

    def test_modules_that_are_files_are_named_for_the_digest(self):
        spec = loaded(MADE / "text.wasm", MADE / "bad.wasm").spec
        self.assertEqual(spec["uses"], [str(MADE / "text.wasm"), str(MADE / "bad.wasm")])
        with tempfile.TemporaryDirectory() as directory:
            odd = shutil.copy(MADE / "text.wasm", f'{directory}/a "b"\\c.wasm')
            self.assertEqual(loaded(Path(odd)).spec["uses"], [os.path.realpath(odd)])

    def test_a_bundle_needs_no_environment(self):
        with tempfile.TemporaryDirectory() as directory:
            bundle = f"{directory}/both.so"
            subprocess.run([HERE / "rxd-wasm-bundle", BUILD / "wasm.so", bundle, MADE / "text.wasm", MADE / "bad.wasm"], check=True)
            plugin = host.Plugin(bundle)
            self.assertEqual(len(plugin.spec["components"]), 4)
            self.assertNotIn("uses", plugin.spec)

    def test_what_is_wrong_is_said_with_the_path(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "x.wasm"
            self.assertIn("there is no module", self.refusal())
            self.assertEqual(self.refusal(path), f"{path}: there is no such file or directory")
            path.write_bytes(b"no module")
            self.assertIn("x.wasm: this is not a WebAssembly module", self.refusal(path))
            whole = (MADE / "text.wasm").read_bytes()
            path.write_bytes(b"\0asm\1\0\0\0")
            self.assertIn("x.wasm: the module has no section rxd_spec", self.refusal(path))
            path.chmod(0o666)
            self.assertIn("x.wasm: other users may write to it", self.refusal(path))
            path.chmod(0o644)
            # A zero byte anywhere in the spec: a reason, or a spec that rxd refuses; no endless loop.
            start = whole.index(b"rxd_spec") + 8
            for at in range(start, start + 1500, 60):
                path.write_bytes(whole[:at] + b"\0" + whole[at + 1:])
                try:
                    loaded(path)
                except (host.Refused, ValueError):
                    pass
            # A truncated module gives a reason, or a module whose spec was complete; no crash.
            for length in range(0, len(whole), 7):
                path.write_bytes(whole[:length])
                try:
                    loaded(path)
                except host.Refused as refusal:
                    self.assertIn("x.wasm", str(refusal))


@unittest.skipUnless(WASMTIME.exists(), "needs a wasmtime library: make wasmtime")
class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.plugin = loaded(MADE / "text.wasm", MADE / "bad.wasm")

    def bad(self, name, state=None, **parameters):
        return self.plugin.open("operator", name, state=state, **parameters)

    def test_a_row(self):
        with self.plugin.open("operator", "exampleWords", field="t") as words:
            self.assertEqual(words.row({"t": " two  words\n"})["event"], {"t": " two  words\n", "words": 2})
            self.assertEqual(words.row({"t": ""})["event"]["words"], 0)
            self.assertEqual(words.row({"x": 1})["error"], "the member is not a text")

    def test_a_refused_parameter(self):
        with self.assertRaisesRegex(host.Refused, "must have 1 to 200 bytes"):
            self.plugin.open("operator", "exampleWords", field="")

    def test_a_stream_every_cut_and_restore(self):
        events = [{"n": 1}, {"n": 4}, {"n": "x"}, {"n": 2.5}]
        for cut in range(len(events) + 1):
            sent, state = [], None
            for part in (events[:cut], events[cut:]):
                with self.plugin.open("operator", "exampleDelta", state=state, field="n") as delta:
                    sent += [item.get("event", item.get("error")) for item in delta.process_events(*part)["sent"]]
                    state = delta.save()
            self.assertEqual(sent, [{"n": 1}, {"n": 4, "delta": 3}, "the member is not a number", {"n": 2.5, "delta": -1.5}])

    def test_instances_share_nothing(self):
        with self.bad("exampleBadStream") as one, self.bad("exampleBadStream") as other:
            one.process_events({}, {})
            self.assertEqual(other.process_events({})["sent"][0]["event"], {"count": 1})

    def test_each_misdeed_of_a_row_fails_only_its_event(self):
        reasons = {"trap": "unreachable", "loop": "longer than its deadline of 50 ms", "deep": "out of bounds",
                   "wild": "an address is outside of the memory", "handle": "a value that there is not", "fail": "as asked"}
        with self.bad("exampleBadRow", deadline="50ms") as row:
            for what, reason in reasons.items():
                answer = row.row({"do": what})
                self.assertEqual(answer["status"], host.FAILED)
                self.assertIn(reason, answer["error"], what)
                self.assertEqual(row.row({"do": "count"})["status"], host.OK)
            self.assertEqual(row.row({"do": "json"})["event"], {"a": [1, 2.5]})

    def test_memory_is_limited(self):
        for limit in (1 << 20, 8 << 20):
            with self.bad("exampleBadRow", memoryLimit=limit) as row:
                pages = row.row({"do": "grow"})["event"]["pages"]
                self.assertTrue((limit >> 16) - 32 < pages < limit >> 16, pages)

    def test_a_deadline_ends_a_loop_in_time(self):
        with self.bad("exampleBadRow", deadline="100ms") as row:
            start = time.monotonic()
            row.row({"do": "loop"})
            self.assertTrue(0.1 <= time.monotonic() - start < 0.6)

    def test_a_trap_in_a_batch_rejects_only_its_event_and_keeps_the_state(self):
        with self.bad("exampleBadStream", deadline="50ms") as stream:
            self.assertEqual(stream.process_events({"do": "count"})["sent"][0]["event"]["count"], 1)
            answer = stream.process_events(*({"do": what} for what in ("count", "trap", "count", "loop", "count")))
            self.assertEqual((answer["status"], [item["index"] for item in answer["sent"]]), (host.OK, [0, 1, 2, 3, 4]))
            self.assertEqual([item.get("event", {}).get("count") for item in answer["sent"]], [2, None, 3, None, 4])
            self.assertIn("unreachable", answer["sent"][1]["error"])
            self.assertEqual(answer["timers"], {"later": 5_000_000})
            self.assertEqual(stream.process({"timer": "later"})["sent"][0]["event"], 4)
            self.assertEqual(stream.log(), ["count restarts 1"] * 3)

    def test_a_row_on_several_threads(self):
        with self.plugin.open("operator", "exampleWords", field="t") as words:
            wrong = []

            def work(count: int) -> None:
                for _ in range(300):
                    if words.row({"t": "w " * count})["event"]["words"] != count:
                        wrong.append(count)

            threads = [threading.Thread(target=work, args=(count,)) for count in range(1, 5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])


@unittest.skipUnless(RXD and WASMTIME.exists(), "needs RXD, the path of rxd, and a wasmtime library")
class InRxd(unittest.TestCase):
    def test_a_pipeline(self):
        events = [{"title": "one two", "bytes": n * n} for n in range(5)]
        done = subprocess.run([RXD, str(HERE / "pipelines/words.yaml")], capture_output=True, text=True,
                              input="".join(json.dumps(event) + "\n" for event in events))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line.get("delta") for line in lines], [None, 1, 3, 5, 7])
        self.assertEqual({line["words"] for line in lines}, {2})

    def test_the_tests_of_the_pipeline_pass(self):
        done = subprocess.run([RXD, "test", str(HERE / "pipelines/words.yaml")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
