"""Makes HTML of Markdown: markdown-it-py reads it, and here are anchors, links, pictures and coloured code."""
import html
import os
import re
import struct

from markdown_it import MarkdownIt

from pages import Mistake, Page

KINDS = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "sh", ".py": "python", ".swift": "swift", ".c": "c", ".h": "c", ".rs": "rust", ".toml": "toml"}


def anchor(title, taken):
    """The anchor that GitHub gives a heading: small letters, hyphens for spaces, no other punctuation, a number where there is one like it."""
    name = "".join(c for c in title.strip().lower() if c.isalnum() or c in "_- ").replace(" ", "-")
    number, result = 0, name
    while result in taken:
        number += 1
        result = f"{name}-{number}"
    taken.add(result)
    return result


def size_of(path):
    """The width and height of a picture, as it says."""
    data = path.read_bytes()
    if data.startswith(b"\x89PNG"):
        return struct.unpack(">II", data[16:24])
    found = re.search(rb'<svg[^>]*\bwidth="(\d+)"[^>]*\bheight="(\d+)"', data)
    if not found:
        raise Mistake(f"{path}: the size of the picture is unknown")
    return int(found[1]), int(found[2])


class Renderer:
    def __init__(self, pages, colours):
        self.pages = pages
        self.colours = colours
        self.markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        rules = self.markdown.renderer.rules
        for name in ("heading_open", "heading_close", "fence", "code_block", "link_open", "image", "table_open", "table_close", "html_block", "html_inline"):
            self.markdown.add_render_rule(name, getattr(type(self), name))
        self.default = rules

    def page(self, page):
        tokens = self.markdown.parse(self.pages.text(page.path))
        self.prepare(page, tokens)
        page.body = self.markdown.renderer.render(tokens, self.markdown.options, {"renderer": self, "page": page})
        self.note(page, tokens)

    def prepare(self, page, tokens):
        """Anchors come before links, because a link may lead to a heading further down."""
        page.anchors, page.headings = set(), []
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                title = plain(tokens[at + 1])
                name = anchor(title, page.anchors)
                token.attrSet("id", name)
                level = int(token.tag[1])
                if level > 1:
                    page.headings.append((level, name, title))

    def links(self, page, tokens):
        """Makes sure that all targets are part of the site."""
        for token in tokens:
            for child in token.children or []:
                if child.type == "link_open":
                    target = child.attrGet("href")
                    if not is_outside(target):
                        self.pages.goal(page, target)

    def note(self, page, tokens):
        """The text of the page for the search, by its headings."""
        section = ["", page.title, []]
        sections = [section]
        row = None
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                if token.tag != "h1":
                    section = [token.attrGet("id"), plain(tokens[at + 1]), []]
                    sections.append(section)
            elif token.type == "inline" and tokens[at - 1].type != "heading_open":
                (section[2] if row is None else row).append(plain(token))
            elif token.type in ("fence", "code_block"):
                section[2].append(token.content)
            elif token.type == "tr_open":
                row = []
            elif token.type == "tr_close":
                section[2].append(tuple(row))
                row = None
        page.sections = sections

    def file(self, page):
        """A file of the sources as a page, or the list of a folder."""
        path = self.pages.root / page.path
        head = f"<h1><code>{html.escape(page.title)}</code></h1>\n"
        if path.is_dir():
            names = sorted(name for name in self.pages.files if name.startswith(page.path + "/"))
            lines = []
            for name in names:
                goal = self.pages.by_path.get(name) or self.pages.show(name)
                lines.append(f'<li><a href="{html.escape(page.to(goal))}"><code>{html.escape(name[len(page.path) + 1:])}</code></a></li>')
            page.body = head + "<p>The files of this folder of the sources.</p>\n<ul>\n" + "\n".join(lines) + "\n</ul>\n"
            page.sections = []
            return
        text = path.read_text(encoding="utf-8")
        page.body = (head + f'<p>A file of the sources: <a href="{html.escape(os.path.basename(page.path))}">as it is</a>.</p>\n'
                     + block(self.colours.html(text, KINDS.get(path.suffix, ""))))
        page.sections = [["", page.title, [text]]] if path.suffix == ".yaml" else []

    # What follows is called by markdown-it with its renderer as `self`.

    def heading_open(self, tokens, at, options, env):
        return f'<{tokens[at].tag} id="{html.escape(tokens[at].attrGet("id"))}">'

    def heading_close(self, tokens, at, options, env):
        tag = tokens[at].tag
        if tag == "h1":
            return "</h1>\n"
        name = tokens[at - 2].attrGet("id")
        return f' <a class="here" href="#{html.escape(name)}" aria-label="Link to this section">#</a></{tag}>\n'

    def fence(self, tokens, at, options, env):
        language = tokens[at].info.strip().split(" ")[0]
        return block(env["renderer"].colours.html(tokens[at].content, language))

    def code_block(self, tokens, at, options, env):
        return block(html.escape(tokens[at].content, quote=False))

    def link_open(self, tokens, at, options, env):
        target = tokens[at].attrGet("href")
        page, pages = env["page"], env["renderer"].pages
        if is_outside(target):
            return f'<a class="outside" rel="noreferrer" href="{html.escape(target)}">'
        goal, name = pages.goal(page, target)
        if name and isinstance(goal, Page) and goal.path in pages.by_path and name not in goal.anchors:
            raise Mistake(f"{page.path}: the link {target} leads to a heading that is not there")
        if goal is page and name:
            return f'<a href="#{html.escape(name)}">'
        return f'<a href="{html.escape(page.to(goal) + ("#" + name if name else ""))}">'

    def image(self, tokens, at, options, env):
        token = tokens[at]
        page, pages = env["page"], env["renderer"].pages
        path = os.path.normpath(os.path.join(os.path.dirname(page.path), token.attrGet("src")))
        if path not in pages.files:
            raise Mistake(f"{page.path}: there is no picture {token.attrGet('src')}")
        pages.copied.add(path)
        width, height = size_of(pages.root / path)
        source = html.escape(page.to(path))
        text = html.escape(token.content.replace("\\", ""))
        image = f'<img src="{source}" alt="{text}" width="{width}" height="{height}">'
        dark = re.sub(r"(\.\w+)$", r".dark\1", path)
        if dark in pages.files:
            pages.copied.add(dark)
            image = f'<picture><source media="(prefers-color-scheme: dark)" srcset="{html.escape(page.to(dark))}">{image}</picture>'
        # A large drawing is scrolled within its frame on a narrow screen, and opens by itself.
        if width > 700 and path.endswith(".svg"):
            return f'<span class="wide drawing" tabindex="0" role="group" aria-label="Drawing"><a href="{source}">{image}</a></span>'
        return f'<a href="{source}">{image}</a>' if width > 700 else image

    def table_open(self, tokens, at, options, env):
        return '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>\n'

    def table_close(self, tokens, at, options, env):
        return "</table></div>\n"

    def html_block(self, tokens, at, options, env):
        if not re.fullmatch(r"\s*(<!--.*?-->\s*)+", tokens[at].content, re.DOTALL):
            raise Mistake(f"{env['page'].path}: HTML: {tokens[at].content.strip()[:60]}")
        return ""

    def html_inline(self, tokens, at, options, env):
        text = tokens[at].content
        if text.startswith("<!--"):
            return ""
        # `(?P<name>...)` outside of code is meant as text, which GitHub would leave out.
        if re.fullmatch(r"<name>", text):
            return html.escape(text)
        raise Mistake(f"{env['page'].path}: HTML: {text}")


def block(code):
    return f'<pre tabindex="0"><code>{code}</code></pre>\n'


def is_outside(target):
    return re.match(r"[a-z]+:", target) is not None


def plain(token):
    """The text of a heading, a paragraph or a cell."""
    text = []
    for child in token.children or []:
        if child.type in ("text", "code_inline"):
            text.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            text.append(" ")
    return "".join(text)
