"""Which pages the site has, in which order, and where the links of a page lead."""
import os
import pathlib
import re
import subprocess
import tomllib


class Mistake(Exception):
    """A page that the site cannot show as its author meant it."""


class Page:
    """A page of Markdown, or a file that a page links to."""

    def __init__(self, path, address):
        self.path = path
        self.address = address
        self.title = path
        # In lists of pages.
        self.short = path
        self.part = None
        self.group = None
        # Headings below the title: level, anchor, text.
        self.headings = []
        self.anchors = set()
        self.body = ""
        # For the search: anchor, heading, text.
        self.sections = []
        self.before = self.after = None

    def to(self, other):
        """The address of another page or file, from this one."""
        return relative(other.address if isinstance(other, Page) else other, self.address)


class Part:
    def __init__(self, title, weight):
        self.title = title
        self.weight = weight
        # Pages, and groups: a title, the pages, and the page that lists them below a heading of that title.
        self.entries = []

    def pages(self):
        for entry in self.entries:
            if isinstance(entry, Page):
                yield entry
            else:
                yield from entry[1]


def relative(target, page):
    return os.path.relpath(target or ".", os.path.dirname(page) or ".")


def address(path):
    """Where a page of Markdown is in the site: a folder's README is its index."""
    folder, name = os.path.split(path)
    return os.path.join(folder, "index.html" if name == "README.md" else name.removesuffix(".md") + ".html")


class Pages:
    def __init__(self, root, navigation):
        self.root = root
        self.files = set(tracked(root))
        self.parts = []
        # Pages of Markdown by path; files that pages link to, and folders that are listed, by path.
        self.by_path = {}
        self.shown = {}
        self.copied = set()
        for path in sorted(self.files):
            if is_page(path):
                self.by_path[path] = Page(path, address(path))
        for page in self.by_path.values():
            page.title = self.heading(page.path)
            page.short = re.sub(r": .*", "", page.title)
        self.order(navigation)

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def heading(self, path):
        found = re.search(r"^# (.+)$", self.text(path), re.MULTILINE)
        if not found:
            raise Mistake(f"{path}: there is no title")
        return re.sub(r"[`*]|\]\([^)]*\)|\[", "", found[1]).strip()

    def order(self, navigation):
        """The parts of the navigation. Every page is in it once."""
        parts = tomllib.loads(navigation.read_text())["part"]
        # A pattern leaves out what is named elsewhere.
        named = {line.partition("|")[0].strip() for entry in parts for line in entry["pages"]}
        given = set()

        def take(part, path, title=None):
            page = self.by_path.get(path)
            if page is None:
                raise Mistake(f"{navigation.name}: there is no page {path}")
            if path in given:
                raise Mistake(f"{navigation.name}: {path} is there twice")
            given.add(path)
            page.part = part
            if title:
                page.short = title
            return page

        for entry in parts:
            part = Part(entry["title"], entry.get("weight", 1.0))
            self.parts.append(part)
            for line in entry["pages"]:
                path, _, title = (word.strip() for word in line.partition("|"))
                if path.endswith("/*"):
                    # A page that lists others: they follow in its order, in groups by its headings.
                    index = path.removesuffix("/*") + "/README.md"
                    for group, paths in self.listed(index, given):
                        pages = [take(part, below) for below in paths]
                        for page in pages:
                            page.group = group
                        part.entries.append((group, pages, self.by_path[index]))
                elif "*" in path:
                    pages = sorted(name for name in self.by_path if pathlib.PurePath(name).match(path) and name not in named)
                    if not pages:
                        raise Mistake(f"{navigation.name}: no page is like {path}")
                    part.entries += [take(part, name) for name in pages]
                else:
                    part.entries.append(take(part, path, title or None))
        lost = sorted(set(self.by_path) - given)
        if lost:
            raise Mistake(f"{navigation.name} does not name {', '.join(lost)}")
        pages = [page for part in self.parts for page in part.pages()]
        for page, after in zip(pages, pages[1:]):
            page.after, after.before = after, page

    def listed(self, index, given):
        groups = []
        for line in self.text(index).splitlines():
            if line.startswith("## "):
                groups.append((line[3:].strip(), []))
            for target in re.findall(r"\]\(([^)#]+)", line):
                path = os.path.normpath(os.path.join(os.path.dirname(index), target))
                if groups and path in self.by_path and path not in given and all(path not in paths for _, paths in groups):
                    groups[-1][1].append(path)
        return [group for group in groups if group[1]]

    def goal(self, page, link):
        """What a link of a page leads to: an address and an anchor. It becomes part of the site."""
        path, mark, anchor = link.partition("#")
        if not path:
            return page, anchor
        path = os.path.normpath(os.path.join(os.path.dirname(page.path), path))
        if path in self.by_path:
            return self.by_path[path], anchor
        if f"{path}/README.md" in self.by_path:
            return self.by_path[f"{path}/README.md"], anchor
        if path in self.files:
            return self.show(path), anchor
        if any(name.startswith(path + "/") for name in self.files):
            return self.show_folder(path), anchor
        raise Mistake(f"{page.path}: the link {link} leads nowhere")

    def show(self, path):
        """A file as a page, or as it is if it is a picture, large, or no text."""
        if path not in self.shown:
            file = self.root / path
            self.copied.add(path)
            if file.suffix in (".png", ".svg", ".jpg") or file.stat().st_size > 200_000 or not is_text(file):
                return path
            page = self.shown[path] = Page(path, path + ".html")
            page.title, page.short = path, file.name
        return self.shown[path]

    def show_folder(self, path):
        if path not in self.shown:
            page = self.shown[path] = Page(path, f"{path}/index.html")
            page.title, page.short = path + "/", path
        return self.shown[path]


def is_page(path):
    folder = path.split("/")[0]
    return path.endswith(".md") and (folder in ("docs", "Plugins", "pipelines") or "/" not in path)


def is_text(file):
    try:
        return "\0" not in file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False


def tracked(root):
    """The files of the checkout, without what builds have left there."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True)
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
        return [name for name in names if name and not any(part.startswith(".") for part in name.split("/")) and (root / name).is_file()]
    found = []
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".") and name not in ("build", "__pycache__")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if not name.startswith(".")]
    return found
