"""What `Site/build` makes of pages, without a browser: mistakes that it refuses, anchors, colours, the same bytes twice."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Debian's own Python has Debian's packages.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def tracked():
    return subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True).stdout.decode().split("\0")[:-1]


def inside(code, *arguments):
    """What a piece of Python prints that can import the modules of the site."""
    done = subprocess.run([PYTHON, "-B", "-c", code, *arguments], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "Site")), check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def has_markdown():
    return subprocess.run([PYTHON, "-c", "import markdown_it, yaml"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(has_markdown(), "needs python3-markdown-it: scripts/install-packages --site")
class BuildTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="rxd-site-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def checkout(self):
        """A copy of the files that the site is made of, without a repository around it."""
        copy = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for name in tracked():
            if name.endswith(".md") or name.split("/")[0] in ("docs", "pipelines", "Plugins", "Site", "Sources", "Tests"):
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, copy / name)
        return copy

    def build(self, root, out, **environment):
        return subprocess.run([PYTHON, "-B", ROOT / "Site/build", "--root", root, "--out", out], capture_output=True, text=True,
                              env=dict(os.environ, **environment), check=False)

    @staticmethod
    def files(folder):
        return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o777) for path in folder.rglob("*") if path.is_file()}

    def test_two_builds_have_the_same_bytes(self):
        one, two = self.folder / "one", self.folder / "elsewhere/two"
        two.parent.mkdir()
        done = self.build(ROOT, one, PYTHONHASHSEED="1", TZ="UTC", LC_ALL="C.UTF-8")
        self.assertEqual(done.returncode, 0, done.stderr)
        mask = os.umask(0o077)
        try:
            done = self.build(self.checkout(), two, PYTHONHASHSEED="2", TZ="Asia/Tokyo", LC_ALL="C")
        finally:
            os.umask(mask)
        self.assertEqual(done.returncode, 0, done.stderr)
        one, two = self.files(one), self.files(two)
        self.assertEqual(sorted(one), sorted(two))
        self.assertEqual([name for name in one if one[name] != two[name]], [])
        self.assertGreater(len(one), 600)
        self.assertEqual([name for name, (data, _) in one.items() if str(ROOT).encode() in data], [])

    def test_mistakes_are_refused(self):
        # One mistake in each page, and all are reported at once.
        mistakes = {
            "docs/threads.md": ("\n[x](nothing.md)\n", "docs/threads.md: the link nothing.md leads nowhere"),
            "docs/tables.md": ("\n[x](state.md#nothing)\n", "docs/tables.md: the link state.md#nothing leads to a heading that is not there"),
            "docs/state.md": ("\n[x](#nothing)\n", "docs/state.md: the link #nothing leads to a heading that is not there"),
            "docs/reference/sinks/tcp.md": ("\n![x](images/nothing.png)\n", "docs/reference/sinks/tcp.md: there is no picture images/nothing.png"),
            "docs/ui.md": ("\n<details>x</details>\n", "docs/ui.md: HTML: <details>"),
            "Plugins/kafka/README.md": ("\nx <img src='http://127.0.0.1/'> y\n", "Plugins/kafka/README.md: HTML: <img"),
        }
        root, out = self.checkout(), self.folder / "refused"
        for page, (text, _) in mistakes.items():
            with (root / page).open("a") as file:
                file.write(text)
        done = self.build(root, out)
        self.assertEqual(done.returncode, 1, done.stdout)
        for _, message in mistakes.values():
            self.assertIn(message, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), len(mistakes), done.stderr)
        (root / "docs/new.md").write_text("# New\n")
        done = self.build(root, out)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("navigation.toml does not name docs/new.md", done.stderr)
        self.assertFalse(out.exists())

    def test_a_folder_that_is_no_site_is_left_alone(self):
        out = self.folder / "mine"
        out.mkdir()
        (out / "letter.txt").write_text("dear")
        self.assertEqual(self.build(ROOT, out).returncode, 1)
        self.assertEqual((out / "letter.txt").read_text(), "dear")


@unittest.skipUnless(has_markdown(), "needs python3-markdown-it: scripts/install-packages --site")
class TextTests(unittest.TestCase):
    def test_anchors_are_those_of_github(self):
        # Each as github.com shows it for a heading of that text.
        wanted = {
            "Parameters": "parameters", "I want to ...": "i-want-to-", "Stop early: --limit, --once": "stop-early---limit---once",
            "Ask where an event went: rxd why": "ask-where-an-event-went-rxd-why", "C++ & C#": "c--c", "snake_case": "snake_case",
            "Größe in µs": "größe-in-µs", "1. A log": "1-a-log", "a.b(c)": "abc",
        }
        code = "import sys; from render import anchor; taken = set(); print('\\n'.join(anchor(title, taken) for title in sys.argv[1:]))"
        self.assertEqual(inside(code, *wanted).split("\n")[:-1], list(wanted.values()))
        self.assertEqual(inside(code, "Twice", "Twice", "Twice 1", "Twice").split(), ["twice", "twice-1", "twice-1-1", "twice-2"])

    COLOURS = "import sys, pathlib; from colour import Colours; c = Colours(pathlib.Path(sys.argv[1])); " \
        "print('\\n'.join(f'{kind} {text}' for kind, text in c.parts(sys.stdin.read(), sys.argv[2]) if kind and kind not in 'ok'))"

    def coloured(self, text, language="yaml"):
        done = subprocess.run([PYTHON, "-B", "-c", self.COLOURS, ROOT / "docs/reference/pipeline.schema.json", language], input=text, capture_output=True,
                              text=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "Site")), check=True)
        return [line for line in done.stdout.split("\n") if line]

    def test_values_that_are_expressions_are_coloured_as_such(self):
        self.assertEqual(self.coloured("filter: size(event) >= 3\n"), ["f size", "e event", "n 3"])
        self.assertEqual(self.coloured("stdin: { decode: size }\n"), [])
        self.assertEqual(self.coloured("map: { a: \"'x' + event.b\" } # why\n"), ["s 'x'", "e event", "e b", "c # why"])
        self.assertEqual(self.coloured("throttle: { quiet: 5ms, when: event < 5 }\n"), ["n 5ms", "e event", "n 5"])
        self.assertEqual(self.coloured("http: { url: \"http://${HOST:-h}/{{ event.id }}\" }\n"),
                         ['s "http://', "v ${HOST:-h}", "s /", "e event", "e id", 's "'])
        self.assertEqual(self.coloured("functions: { net: { parameters: { x: double }, value: x / 1.19 } }\n"), ["e x", "n 1.19"])
        self.assertEqual(self.coloured("$ rxd check a.yaml\nerror[RX224]: there is no decoder\n", "console"),
                         ["prompt $ ", "typed rxd check a.yaml", "bad error[RX224]", "typed : there is no decoder"])

    def test_colours_change_no_character(self):
        code = """if True:
            import pathlib, re, sys
            from colour import Colours
            root = pathlib.Path(sys.argv[1]); colours = Colours(root / "docs/reference/pipeline.schema.json"); count = 0
            for path in [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("Plugins/**/README.md")]:
                for language, text in re.findall(r"^ *```(\\w*)\\n(.*?)^ *```$", path.read_text(), re.S | re.M):
                    count += 1
                    if "".join(part for _, part in colours.parts(text, language)) != text: print(path, text[:60])
            for path in root.glob("pipelines/**/*.yaml"):
                count += 1
                if "".join(part for _, part in colours.parts(path.read_text(), "yaml")) != path.read_text(): print(path)
            print(count)"""
        *wrong, count = inside(code, str(ROOT)).split("\n")[:-1]
        self.assertEqual(wrong, [])
        self.assertGreater(int(count), 700)

    @unittest.skipUnless(shutil.which("cmark-gfm"), "needs cmark-gfm")
    def test_pages_are_what_github_shows(self):
        """markdown-it and cmark-gfm, which GitHub uses, find the same elements and texts in every page."""
        code = """if True:
            import re, subprocess, sys
            from html.parser import HTMLParser
            from markdown_it import MarkdownIt
            markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
            class Parts(HTMLParser):
                def __init__(self):
                    super().__init__()
                    self.parts = []
                def handle_starttag(self, tag, attributes):
                    if tag not in ("thead", "tbody"): self.parts.append((tag, [one for one in attributes if one[0] in ("href", "src", "alt")]))
                def handle_endtag(self, tag):
                    if tag not in ("thead", "tbody"): self.parts.append("/" + tag)
                def handle_data(self, text):
                    text = re.sub(r"\\s+", " ", text)
                    if not text.strip(): return
                    if self.parts and isinstance(self.parts[-1], list): self.parts[-1][0] += text
                    else: self.parts.append([text])
            def parts(html):
                parser = Parts(); parser.feed(html)
                return [[one[0].strip()] if isinstance(one, list) else one for one in parser.parts]
            for path in sys.argv[1:]:
                text = open(path).read()
                other = subprocess.run(["cmark-gfm", "-e", "table", "-e", "strikethrough", "--unsafe"], input=text, capture_output=True, text=True, check=True).stdout
                if parts(markdown.render(text)) != parts(other): print(path)"""
        pages = [str(ROOT / name) for name in tracked() if name.endswith(".md") and (ROOT / name).is_file()]
        self.assertGreater(len(pages), 300)
        self.assertEqual(inside(code, *pages), "")


if __name__ == "__main__":
    unittest.main()
