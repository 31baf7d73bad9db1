"""Checks docs/plugins.md: writes its files, runs its commands, and compares their output.

A block after a line "`NAME`:" is a file. In `console` blocks a line with `$ ` is a command, followed by its output. Commands of rxd need RXD, the
path of a build; without it they are skipped.
"""
import os
import re
import shutil
import subprocess
import unittest

import fixtures
from host import Host
from contract import Directory, keeps_the_contract

PAGE = os.path.join(fixtures.ROOT, "docs", "plugins.md")
BLOCK = re.compile(r"^(?:`([\w.]+)`:\n\n)?```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks():
    with open(PAGE, encoding="utf-8") as file:
        return [match.groups() for match in BLOCK.finditer(file.read())]


class Page(unittest.TestCase):
    def test_commands_print_what_is_shown(self):
        rxd = os.environ.get("RXD")
        ran = 0
        with Directory() as directory:
            shutil.copy(os.path.join(fixtures.SDK, "rxd_plugin.py"), directory)
            shutil.copy(os.path.join(fixtures.EXAMPLES, "python", "rate.py"), directory)
            os.symlink(os.path.join(fixtures.ROOT, "Tests"), os.path.join(directory, "Tests"))
            os.mkdir(os.path.join(directory, "bin"))
            if rxd:
                os.symlink(os.path.abspath(rxd), os.path.join(directory, "bin", "rxd"))
            environment = {**os.environ, "PATH": os.path.join(directory, "bin") + ":" + os.environ["PATH"],
                           "XDG_CACHE_HOME": os.path.join(directory, "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
            for name, language, content in blocks():
                if name:
                    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                        file.write(content)
                if language != "console":
                    continue
                for shown in re.split(r"^\$ ", content, flags=re.M)[1:]:
                    command, _, expected = shown.partition("\n")
                    if re.search(r"(^|\| )rxd ", command) and not rxd:
                        continue
                    result = subprocess.run(["bash", "-c", command], cwd=directory, env=environment, text=True,
                                            capture_output=True, timeout=60)
                    with self.subTest(command):
                        self.assertEqual(result.stdout, expected, result.stderr)
                    ran += 1
        self.assertGreaterEqual(ran, 4)

    def test_shell_is_the_example(self):
        shown = {name: content for name, _, content in blocks() if name}
        with open(os.path.join(fixtures.EXAMPLES, "shell", "upper.sh"), encoding="utf-8") as file:
            self.assertEqual(shown["upper.sh"], file.read())

    def snippet(self, name):
        """The Python block that declares the component, as a program."""
        found = [content for _, language, content in blocks() if language == "python" and re.search(rf"(def|class) {name}\b", content)]
        self.assertEqual(len(found), 1, name)
        return fixtures.with_sdk("import json, sqlite3\n" + found[0])

    def test_python_snippets_keep_the_contract(self):
        keeps_the_contract(self, self.snippet("words"), "words: a", events=[{"a": "x y"}, {}])
        keeps_the_contract(self, self.snippet("Rate"), "rate: { every: 1s, key: event.k }", events=[{"k": "a"}, {"k": "b"}])
        keeps_the_contract(self, self.snippet("numbers"), "numbers: 3")
        with Host(self.snippet("Table")) as host:
            self.assertEqual(host.spec["components"][0]["confirmation"], "disk")

    def test_links_lead_somewhere(self):
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", page, re.M)}
        for target in re.findall(r"\]\(([^)]+)\)", page):
            path, _, anchor = target.partition("#")
            with self.subTest(target):
                if not path:
                    self.assertIn(anchor, anchors)
                else:
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(PAGE), path)))


if __name__ == "__main__":
    unittest.main()
