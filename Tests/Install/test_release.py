"""`scripts/release-check` in a small repository, where each item is first done and then not; and `scripts/logged`."""
import os
import pathlib
import subprocess
import unittest

import staged

CHECK = staged.ROOT / "scripts/release-check"
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2026-11-29\n\n### Added\n\n- Something.\n"
FILES = {
    "Sources/rxd/Surroundings/Version.swift": 'enum Version {\n  static let number = "1.2.0"\n}\n', "Page/page.css": "",
    "CHANGELOG.md": CHANGELOG, "docs/install.md": "tar -xf rxd-1.2.0-linux-x86_64.tar.gz\n", "SECURITY.md": "Report it.\n",
    "packaging/debian/control.in": "Maintainer: A <a@example.org>\n", "packaging/debian/copyright": "", ".gitignore": ".build/\n",
    "Tests/Compatibility/1.2/grammar.txt": "a\n", "Tests/Compatibility/1.1/grammar.txt": "a\n",
}
LOGS = ("test", "test-site", "test-deb", "faults", "fuzz", "bench-check")


class ReleaseTests(unittest.TestCase):
    def setUp(self):
        self.root = staged.scratch()
        for name, text in FILES.items():
            self.write(name, text)
        self.rxd = self.root / ".build/release/rxd"
        self.write(".build/release/rxd", "#!/bin/sh\necho rxd 1.2.0\n")
        self.rxd.chmod(0o755)
        self.git("init", "-q", "-b", "main")
        self.commit()
        self.git("tag", "v1.1.0")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words):
        return subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@example.org", *words], check=True, capture_output=True, text=True).stdout

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def check(self, *items, version="1.2.0"):
        return subprocess.run([CHECK, version, "--root", self.root, "--only", *items], capture_output=True, text=True, check=False)

    def done(self, *items):
        found = self.check(*items)
        self.assertEqual((found.returncode, found.stderr), (0, ""), found.stdout)
        self.assertEqual(found.stdout.count("ok    "), len(items))
        self.assertIn("ready for 1.2.0", found.stdout)

    def open(self, item, what, do):
        found = self.check(item)
        self.assertEqual((found.returncode, found.stderr), (1, ""), found.stdout)
        self.assertIn(f"open  {item}: ", found.stdout)
        self.assertIn(what, found.stdout)
        self.assertIn(f"do: {do}", found.stdout)

    def test_what_is_done(self):
        self.done("tree", "number", "program", "changelog", "tag", "numbers", "addresses", "recorded")

    def test_a_changed_file(self):
        self.write("SECURITY.md", "Report it!\n")
        self.open("tree", "1 files differ: SECURITY.md", "commit them")

    def test_a_file_that_is_not_in_the_repository(self):
        self.write("left.txt", "")
        self.open("tree", "left.txt", "commit them")

    def test_another_number(self):
        self.write(".build/release/rxd", "#!/bin/sh\necho rxd 1.1.9\n")
        self.open("number", "says 1.1.9", "make build")
        self.write("Sources/rxd/Surroundings/Version.swift", '  static let number = "1.3.0"\n')
        self.open("number", "Version.swift says 1.3.0", "write 1.2.0 there")

    def test_an_old_program(self):
        os.utime(self.rxd, (1, 1))
        self.open("program", "sources are newer", "make build")

    def test_the_changelog(self):
        for text, what in (
            (CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- More.\n"), "1 entries are under 'Unreleased'"),
            (CHANGELOG.replace("## Unreleased\n\n", ""), "the first section is not 'Unreleased'"),
            (CHANGELOG.replace(" - 2026-11-29", ""), "not the first with a day"),
            (CHANGELOG.replace("1.2.0", "1.1.0"), "the section of 1.2.0 is not the first"),
            (CHANGELOG.replace("- Something.\n", ""), "has no entry"),
        ):
            with self.subTest(what):
                self.write("CHANGELOG.md", text)
                self.open("changelog", what, "")

    def test_a_tag_that_others_have(self):
        self.git("tag", "v1.2.0")
        self.done("tag")
        self.write("SECURITY.md", "Report it!\n")
        self.commit()
        self.open("tag", "v1.2.0 is the commit", "take the next version")

    def test_numbers_and_addresses(self):
        self.write("docs/install.md", "tar -xf rxd-1.1.0-linux-x86_64.tar.gz\n")
        self.open("numbers", "docs/install.md names rxd-1.1.0-linux", "write 1.2.0 there")
        self.write("packaging/debian/control.in", "Maintainer: A <a@rxd.invalid>\n")
        self.open("addresses", "packaging/debian/control.in", "write the address")

    def test_recordings(self):
        self.write("Tests/Compatibility/1.1/grammar.txt", "b\n")
        self.commit()
        self.open("recorded", "Tests/Compatibility/1.1 is not what it was in v1.1.0", "git checkout v1.1.0")
        (self.root / "Tests/Compatibility/1.2/grammar.txt").unlink()
        self.open("recorded", "there is no Tests/Compatibility/1.2", "RXD=")

    def test_logs(self):
        head = self.git("rev-parse", "HEAD").strip()
        outcome = f"commit {head}\nchanged 0\nstatus 0\nstart x\nend x\n"
        for name in LOGS:
            self.write(f".build/logs/{name}.outcome", outcome)
        self.done("logs")
        for change, what in (((head, "0" * 40), "fuzz was run on 000000000"), (("changed 0", "changed 2"), "fuzz was run with files that differ"),
                             (("status 0", "status 2"), "fuzz ended with 2")):
            self.write(".build/logs/fuzz.outcome", outcome.replace(*change))
            self.open("logs", what, "scripts/logged fuzz make fuzz")
        (self.root / ".build/logs/fuzz.outcome").unlink()
        self.open("logs", "fuzz was not run", "scripts/logged fuzz make fuzz")

    def test_a_malformed_version(self):
        self.assertEqual(subprocess.run([CHECK, "1.2"], capture_output=True, check=False).returncode, 2)


class LoggedTests(unittest.TestCase):
    def test_the_outcome_is_that_of_the_command(self):
        root = staged.scratch()
        (root / "scripts").mkdir()
        (root / "scripts/logged").write_text((staged.ROOT / "scripts/logged").read_text())
        (root / "scripts/logged").chmod(0o755)
        (root / ".gitignore").write_text(".build/\n")
        git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        for script, status, changed in (("echo out; echo err >&2", 0, "0"), ("echo out; exit 3", 3, "0"), ("echo out; touch here", 0, "0"), ("echo out", 0, "1")):
            with self.subTest(script=script, status=status):
                done = subprocess.run([root / "scripts/logged", "tried", "sh", "-c", script], capture_output=True, text=True, cwd=root, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertTrue(done.stdout.startswith("out\n"), done.stdout)
                self.assertEqual((root / ".build/logs/tried.log").read_text(), done.stdout)
                outcome = dict(line.split(" ", 1) for line in (root / ".build/logs/tried.outcome").read_text().splitlines())
                self.assertEqual((outcome["status"], outcome["changed"]), (str(status), changed))
                self.assertRegex(outcome["commit"], "^[0-9a-f]{40}$")


class TemplateTests(unittest.TestCase):
    def test_forms_of_issues(self):
        """GitHub shows a form only if it is well-formed: https://docs.github.com/communities ("Syntax for issue forms")."""
        try:
            import yaml  # noqa: PLC0415
        except ModuleNotFoundError:
            self.skipTest("needs python3-yaml")
        forms = sorted((staged.ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
        self.assertGreater(len(forms), 2)
        for path in forms:
            form = yaml.safe_load(path.read_text())
            if path.name == "config.yml":
                continue
            with self.subTest(path.name):
                self.assertLessEqual({"name", "description", "body"}, set(form))
                fields = [one for one in form["body"] if one["type"] != "markdown"]
                self.assertTrue(fields)
                for one in fields:
                    self.assertIn(one["type"], ("input", "textarea", "dropdown", "checkboxes"))
                    self.assertTrue(one["attributes"]["label"])
                self.assertEqual(len({one["id"] for one in fields}), len(fields))


if __name__ == "__main__":
    unittest.main()
