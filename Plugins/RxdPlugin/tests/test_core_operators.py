"""Files of the core's operators are built as a plugin, with only their name changed, and their examples give the same results as in the
core."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent.parent / "Sources/PipelineCore/Operators"
RXD = os.environ.get("RXD")

# The file, its type, and its kind of catalogue entry.
OPERATORS = [
    ("Filter", "Filter", "row"), ("Not", "Not", "row"), ("Skip", "Skip", "row"), ("SkipWhile", "SkipWhile", "row"),
    ("DistinctUntilChanged", "DistinctUntilChanged", "row"), ("IgnoreValues", "IgnoreValues", "row"),
    ("Count", "CountEvents", "operator"), ("BufferWithCount", "BufferWithCount", "operator"),
    ("BufferWithTime", "BufferWithTime", "operator"), ("Throttle", "Throttle", "operator"),
    ("Take", "Take", "row"), ("TakeWhile", "TakeWhile", "row"),
]


@unittest.skipUnless(RXD, "needs RXD, the path of rxd")
class CoreOperators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = Path(tempfile.mkdtemp(prefix="rxd-core-operators-"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        sources = cls.directory / "Sources/CoreOperators"
        sources.mkdir(parents=True)
        manifest = (HERE / "core-operators/Package.swift").read_text().replace('"../.."', json.dumps(str(HERE.parent)))
        (cls.directory / "Package.swift").write_text(manifest)
        entries = []
        for file, type_name, form in OPERATORS:
            text = (CORE / f"{file}.swift").read_text()
            name = re.search(r"ComponentSpec<\w+>\(\s*\"(\w+)\"", text).group(1)
            # A plugin must not take the name of a built-in component.
            own = f"plugin{name[0].upper()}{name[1:]}"
            text = re.sub(rf"\"{name}(?=[\":])", f'"{own}', text)
            (sources / f"{file}.swift").write_text("import RxdPlugin\n" + text)
            entries.append(f"CatalogueEntry({form}: {type_name}.self)")
        (sources / "Plugin.swift").write_text(
            "import RxdPlugin\n\n@_cdecl(\"rxd_swift_plugin\")\npublic func plugin() -> UnsafeMutableRawPointer {\n  Plugin(\n"
            "    \"core-operators\", version: \"1.0.0\", summary: \"Operators of the core.\",\n    ["
            + ", ".join(entries) + "]\n  ).handle\n}\n")
        scratch = os.environ.get("SCRATCH", str(cls.directory / ".build"))
        flags = (HERE.parent / "flags.mk").read_text().split("FLAGS :=")[1].split()
        done = subprocess.run(["swift", "build", *flags, "--scratch-path", scratch, "--product", "core-operators"], cwd=cls.directory,
                              capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.library = cls.directory / "plugins/core-operators.so"
        cls.library.parent.mkdir()
        shutil.copy(Path(scratch) / "release/libcore-operators.so", cls.library)
        cls.library.chmod(0o755)

    def rxd(self, *arguments):
        return subprocess.run([RXD, *map(str, arguments)], capture_output=True, text=True, timeout=900,
                              env={**os.environ, "XDG_CACHE_HOME": str(self.directory / "cache")})

    def test_their_examples_come_out_the_same(self):
        """Marbles are the definition of an operator: `rxd plugin test` runs the marbles of the core's files."""
        done = self.rxd("plugin", "test", self.library, "--only", "examples", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = re.findall(r"\d+ examples?, (\d+) of them with marbles", done.stdout)
        self.assertEqual(len(found), len(OPERATORS), done.stdout)

    def test_a_state_may_be_cut_at_every_instant(self):
        done = self.rxd("plugin", "test", self.library, "--only", "state")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_completes_before_its_input_sends_nothing_more(self):
        done = self.rxd("plugin", "test", self.library, "--only", "finish")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"pluginTake, example 'two'\n +ok +finish.*behind input 2")
        self.assertRegex(done.stdout, r"pluginTakeWhile, example 'while small'\n +ok +finish")

    def test_the_spec_says_what_the_declaration_says(self):
        """The reference page of the plugin's throttle equals the core's, except for the name."""
        self.assertEqual(self.rxd("plugin", "check", self.library).returncode, 0)
        own = self.rxd("describe", "--plugin-dir", self.library.parent, "pluginThrottle").stdout
        core = self.rxd("describe", "throttle").stdout
        parameters = re.findall(r"^ +(quiet|when|maxWait|edge)\b.*$", core, re.M)
        self.assertEqual(parameters, ["quiet", "when", "maxWait", "edge"])
        for line in core.splitlines():
            if re.match(r" +(quiet|when|maxWait|edge)\b", line):
                self.assertIn(line, own)


if __name__ == "__main__":
    unittest.main()
