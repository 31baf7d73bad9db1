"""The files written by `rxd plugin new --language swift` are built, checked and tested, as their README says."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
RXD = os.environ.get("RXD")


@unittest.skipUnless(RXD, "needs RXD, the path of rxd")
class NewPlugin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # In a directory that others cannot write to.
        cls.directory = tempfile.mkdtemp(prefix="rxd-swift-")
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.home = Path(cls.directory) / "add-text"
        cls.environment = {**os.environ, "XDG_CACHE_HOME": cls.directory + "/cache"}

    def run_in(self, directory, *arguments, text=None):
        return subprocess.run(list(map(str, arguments)), cwd=directory, env=self.environment, input=text, capture_output=True, text=True,
                              timeout=900)

    def good(self, *arguments, text=None):
        done = self.run_in(self.home, *arguments, text=text)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_the_new_plugin_is_built_and_keeps_the_contract(self):
        made = self.run_in(self.directory, RXD, "plugin", "new", "--language", "swift", "--package", HERE, "add-text")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.good("make", f"SCRATCH={os.environ.get('SCRATCH', '.build')}")
        # rxd knows nothing about it, and a check starts nothing.
        self.assertEqual(self.run_in(self.home, RXD, "check", "pipeline.yaml").returncode, 78)
        self.good(RXD, "plugin", "check", "pipeline.yaml")
        self.good(RXD, "check", "pipeline.yaml")
        self.good(RXD, "test", "pipeline.yaml")
        self.assertEqual(self.good(RXD, "pipeline.yaml", text='{"name":"Ada"}\n'), '{"name":"Ada","text":"hello"}\n')
        report = self.good(RXD, "plugin", "test", "./add-text.so")
        self.assertIn(" 0 failed", report)
        self.assertRegex(report, r"ok +threads")

    def test_the_example_of_the_readme_keeps_the_contract(self):
        made = self.run_in(self.directory, RXD, "plugin", "new", "--language", "swift", "--package", HERE, "shorten-text")
        self.assertEqual(made.returncode, 0, made.stderr)
        home = Path(self.directory) / "shorten-text"
        code = (HERE / "README.md").read_text().split("```swift\n")[1].split("```")[0]
        (home / "Sources/ShortenText/ShortenText.swift").write_text(code)
        built = self.run_in(home, "make", f"SCRATCH={os.environ.get('SCRATCH', '.build')}")
        self.assertEqual(built.returncode, 0, built.stdout + built.stderr)
        done = self.run_in(home, RXD, "plugin", "test", "./shorten-text.so")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 of them with marbles", done.stdout)

    def test_a_package_that_is_not_there_is_refused(self):
        done = self.run_in(self.directory, RXD, "plugin", "new", "--language", "swift", "--package", "/nowhere", "lost")
        self.assertEqual(done.returncode, 66, done.stderr)
        self.assertIn("'/nowhere' has no Package.swift", done.stderr)


if __name__ == "__main__":
    unittest.main()
