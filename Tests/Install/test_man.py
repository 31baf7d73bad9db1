"""The man pages: there is one for each verb, and two formatters take them without a warning."""
import json
import os
import re
import subprocess
import unittest

import staged


class ManTests(unittest.TestCase):
    def pages(self):
        found = sorted((staged.stage() / "usr/share/man").rglob("*.[157]"))
        self.assertGreater(len(found), 20)
        return found

    def test_every_verb_has_one(self):
        verbs = [one["commandName"] for one in json.loads(staged.run(staged.PROGRAM, "--experimental-dump-help"))["command"]["subcommands"]]
        self.assertIn("run", verbs)
        names = {page.name for page in self.pages()}
        for verb in verbs:
            if verb != "help":
                self.assertIn(f"rxd-{verb}.1", names)

    def test_they_have_what_the_help_has(self):
        text = staged.run("man", "-l", staged.stage() / "usr/share/man/man1/rxd-run.1", env=self.environment())
        for word in set(re.findall(r"(?<!\S)--[a-z-]+", staged.run(staged.PROGRAM, "run", "--help"))) - {"--help", "--version"}:
            self.assertIn(word, text)
        text = staged.run("man", "-l", staged.stage() / "usr/share/man/man5/rxd.yaml.5", env=self.environment())
        for word in ["throttle", "journald", "combineLatest", "whenLate"]:
            self.assertIn(word, text)

    def environment(self):
        return {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MAN_KEEP_FORMATTING": "", "PAGER": "cat", "MANPAGER": "cat"}

    @unittest.skipUnless(staged.has("mandoc"), "needs mandoc")
    def test_mandoc_has_no_warning(self):
        done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *self.pages()], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    @unittest.skipUnless(staged.has("man") and staged.has("groff"), "needs man-db and groff")
    def test_man_has_no_warning(self):
        for page in self.pages():
            done = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], capture_output=True, text=True, check=False,
                env={**self.environment(), "MANWIDTH": "80"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), page.name)

    def test_they_have_a_date(self):
        for page in self.pages():
            self.assertRegex(page.read_text(), r'\n\.TH \S+ [157] "\d{4}-\d\d-\d\d" "rxd ')


if __name__ == "__main__":
    unittest.main()
