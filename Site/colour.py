"""Colours code when the site is built: HTML with a class for each kind of word, and nothing left for the reader's browser.

Which values of a pipeline file are expressions is taken from the JSON schema, so a parameter that becomes one is coloured without a change here.
"""
import html
import json
import re

import yaml

# Of expressions: a string, a number, a name that is called, another name, an operator.
EXPRESSION = re.compile(
    r"""(?P<string>[rRbB]{0,2}'(?:[^'\\\n]|\\.)*'|[rRbB]{0,2}"(?:[^"\\\n]|\\.)*")
    |(?P<number>\b\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?u?\b)
    |(?P<word>\b(?:true|false|null|in)\b)
    |(?P<call>\b[A-Za-z_]\w*(?=\())
    |(?P<name>\b[A-Za-z_]\w*)
    |(?P<mark>[-+*/%<>=!&|?:.,()\[\]{}]+)""",
    re.VERBOSE)
# Within texts of any kind.
PARTS = re.compile(r"(?P<template>\{\{.*?\}\})|(?P<variable>\$?\$[{(][^})\n]*[})])", re.DOTALL)
NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(?:[a-zA-Z]{1,3}(?:\d+[a-zA-Z]{1,2})*)?")
WORDS = {"true", "false", "null", "yes", "no", "~"}
COMMENT = re.compile(r"(?:^|(?<=[ \t]))#[^\n]*", re.MULTILINE)
MARKS = re.compile(r"[-\[\]{},:?>|]+|[&*!][\w!.-]+")


def span(kind, text):
    return f'<span class="{kind}">{html.escape(text, quote=False)}</span>' if kind and text else html.escape(text, quote=False)


def expression(text):
    """Pairs of a class and a text; together the whole text."""
    at = 0
    for found in EXPRESSION.finditer(text):
        if found.start() > at:
            yield None, text[at:found.start()]
        yield {"string": "s", "number": "n", "word": "w", "call": "f", "name": "e", "mark": "o"}[found.lastgroup], found.group()
        at = found.end()
    if at < len(text):
        yield None, text[at:]


def value(text, kind):
    """A text with the templates and variables in it."""
    at = 0
    for found in PARTS.finditer(text):
        if found.start() > at:
            yield kind, text[at:found.start()]
        if found.lastgroup == "variable":
            yield "v", found.group()
        else:
            yield "o", "{{"
            yield from expression(found.group()[2:-2])
            yield "o", "}}"
        at = found.end()
    if at < len(text):
        yield kind, text[at:]


class Schema:
    """Where a pipeline file has expressions."""

    ROOTS = ("step", "signal", "source", "sink", "table", "command")

    def __init__(self, path):
        self.top = json.loads(path.read_text())
        self.definitions = self.top["$defs"]
        # The schema allows whatever YAML has there.
        self.top["properties"]["functions"]["additionalProperties"]["properties"]["value"] = {"$ref": "#/$defs/expression"}
        self.known = {}

    def choices(self, schema):
        """The schemas that a value may have, without references and alternatives; the name of a definition counts as one."""
        key = id(schema)
        if key not in self.known:
            found, seen, todo = [], set(), [schema]
            while todo:
                one = todo.pop()
                if not isinstance(one, dict):
                    continue
                if "$ref" in one:
                    name = one["$ref"].removeprefix("#/$defs/")
                    if name not in seen:
                        seen.add(name)
                        found.append(name)
                        todo.append(self.definitions[name])
                for member in ("anyOf", "oneOf", "allOf"):
                    todo += one.get(member, [])
                if "properties" in one or "additionalProperties" in one or "items" in one:
                    found.append(one)
            # The schema is kept, because its identity is the key.
            self.known[key] = (schema, found)
        return self.known[key][1]

    def member(self, schemas, name):
        """The schemas of a member of a mapping."""
        found = []
        for schema in schemas:
            for one in self.choices(schema):
                if not isinstance(one, dict):
                    continue
                properties = one.get("properties", {})
                if name in properties:
                    found.append(properties[name])
                elif isinstance(one.get("additionalProperties"), dict):
                    found.append(one["additionalProperties"])
        return found

    def item(self, schemas):
        return [one["items"] for schema in schemas for one in self.choices(schema) if isinstance(one, dict) and "items" in one]

    def is_expression(self, schemas):
        return any(one in ("expression", "mapping") for schema in schemas for one in self.choices(schema))

    def roots(self, node):
        """What a piece of a file may be, by its first keys: pages show files, signals, steps and lists of steps."""
        if isinstance(node, yaml.SequenceNode):
            return [{"items": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in self.ROOTS]}}]
        if isinstance(node, yaml.MappingNode):
            names = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
            if names & {"sources", "signals", "sinks", "tables", "commands", "tests", "functions", "templates"}:
                return [self.top]
            wanted = [{"$ref": f"#/$defs/{name}"} for name in self.ROOTS]
            fitting = [one for one in wanted if all(self.member([one], name) for name in names)]
            return fitting or [one for one in wanted if any(self.member([one], name) for name in names)]
        return []


class Colours:
    def __init__(self, schema):
        self.schema = Schema(schema)

    def html(self, text, language):
        """The code as HTML; an unknown language has no colours."""
        return "".join(span(kind, part) for kind, part in self.parts(text, language))

    def parts(self, text, language):
        if language in ("yaml", "yml"):
            return self.pipeline(text)
        if language == "console":
            return self.console(text)
        if language in ("cel", "expression"):
            return expression(text)
        if language in LANGUAGES:
            return other(text, language)
        return [(None, text)]

    def pipeline(self, text):
        spans = []
        try:
            for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
                self.collect(text, node, self.schema.roots(node), False, spans, set())
        except (yaml.YAMLError, RecursionError, ValueError):
            # Pages show files with errors, too.
            yield from self.by_lines(text)
            return
        spans.sort()
        at = 0
        for start, end, kind in spans:
            if start < at:
                continue
            yield from self.between(text[at:start])
            part = text[start:end]
            if kind == "expression":
                yield from self.quoted(part)
            elif kind == "k":
                yield "k", part
            else:
                yield from self.scalar(part)
            at = end
        yield from self.between(text[at:])

    def collect(self, text, node, schemas, within, spans, seen):
        """Notes the keys and values of a node. Below an expression everything is one."""
        if node is None or id(node) in seen:
            return
        seen.add(id(node))
        within = within or self.schema.is_expression(schemas)
        if isinstance(node, yaml.MappingNode):
            for key, below in node.value:
                if isinstance(key, yaml.ScalarNode):
                    spans.append((key.start_mark.index, key.end_mark.index, "k"))
                    member = self.schema.member(schemas, key.value)
                else:
                    self.collect(text, key, [], False, spans, seen)
                    member = []
                self.collect(text, below, member, within and not self.has_own(schemas, key), spans, seen)
        elif isinstance(node, yaml.SequenceNode):
            for below in node.value:
                self.collect(text, below, self.schema.item(schemas), within, spans, seen)
        else:
            start, end = node.start_mark.index, node.end_mark.index
            if end > start:
                spans.append((start, end, "expression" if within else "value"))

    def has_own(self, schemas, key):
        """Whether a parameter of that name is known, as `where` of `filter: { where: ... }`."""
        return isinstance(key, yaml.ScalarNode) and any(
            key.value in one.get("properties", {}) for schema in schemas for one in self.schema.choices(schema) if isinstance(one, dict))

    def scalar(self, part):
        if part[:1] in "'\"":
            yield from value(part, "s")
        elif part[:1] in "|>":
            head, line, rest = part.partition("\n")
            yield "o", head
            yield from value(line + rest, "s")
        elif part in WORDS:
            yield "w", part
        elif NUMBER.fullmatch(part):
            yield "n", part
        else:
            yield from value(part, None)

    def quoted(self, part):
        """An expression as YAML has it: bare, in quotes, or as a block."""
        if len(part) > 1 and part[0] in "'\"" and part[-1] == part[0]:
            yield "o", part[0]
            yield from self.filled(part[1:-1])
            yield "o", part[0]
        elif part[:1] in "|>":
            head, line, rest = part.partition("\n")
            yield "o", head
            yield from self.filled(line + rest)
        else:
            yield from self.filled(part)

    def filled(self, text):
        at = 0
        for found in PARTS.finditer(text):
            if found.lastgroup == "variable":
                yield from expression(text[at:found.start()])
                yield "v", found.group()
                at = found.end()
        yield from expression(text[at:])

    def between(self, text):
        """What stands between keys and values."""
        at = 0
        for found in COMMENT.finditer(text):
            yield from self.marks(text[at:found.start()])
            yield "c", found.group()
            at = found.end()
        yield from self.marks(text[at:])

    def marks(self, text):
        at = 0
        for found in MARKS.finditer(text):
            yield None, text[at:found.start()]
            yield "o", found.group()
            at = found.end()
        yield None, text[at:]

    LINE = re.compile(r"^(?P<lead>\s*(?:- )*)(?P<key>[\w.$-]+)(?P<colon>:)(?=\s|$)")

    def by_lines(self, text):
        for line in text.splitlines(keepends=True):
            found = self.LINE.match(line)
            if found:
                yield from self.marks(found["lead"])
                yield "k", found["key"]
                yield "o", ":"
                line = line[found.end():]
            comment = COMMENT.search(line)
            yield from value(line[:comment.start()] if comment else line, None)
            if comment:
                yield "c", comment.group()
                yield None, line[comment.end():]

    SEVERITY = re.compile(r"(error|warning|note)(\[RX\d+\])?(?=:)")

    def console(self, text):
        """A session: what is typed stands out, and so do reports."""
        for line in text.splitlines(keepends=True):
            found = self.SEVERITY.match(line)
            if line.startswith("$ "):
                yield "prompt", "$ "
                yield "typed", line[2:]
            elif found:
                yield {"error": "bad", "warning": "warn", "note": "c"}[found[1]], found.group()
                yield "typed", line[found.end():]
            elif re.match(r"\s*\|\s+\^+\s*$", line):
                bar, caret = line.split("|", 1)
                yield "o", bar + "|"
                yield "bad", caret
            elif re.match(r"\s*= (help|fix): ", line):
                yield "c", line
            else:
                yield None, line


LANGUAGES = {
    "json": ("", ""),
    "sh": ("#", "if then else elif fi for in do done while case esac function exec exit set export cd echo sudo"),
    "ini": ("#", ""),
    "toml": ("#", "true false"),
    "python": ("#", "and as async await class def elif else except False finally for from if import in is lambda None not or pass raise return True try "
               "while with yield"),
    "swift": ("//", "as break case catch class defer do else enum extension false for func guard if import in init internal is let nil override package "
              "private protocol public return self static struct super switch throw throws true try var where while final some any async await"),
    "c": ("//", "break case char const continue default do double else enum extern float for goto if int long return short signed sizeof static struct "
          "switch typedef union unsigned void while bool true false size_t uint8_t uint32_t uint64_t int64_t"),
    "js": ("//", "async await break case catch class const continue default else export false for from function if import in let new null of return this "
           "throw true try typeof var while yield"),
    "rust": ("//", "as break const crate else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct trait "
             "true type unsafe use where while"),
    "csv": ("", ""),
}


def other(text, language):
    comment, words = LANGUAGES[language]
    words = set(words.split())
    rules = [r"(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')", r"(?P<number>\b\d[\d_]*(?:\.\d+)?\b)", r"(?P<name>[A-Za-z_]\w*)"]
    if comment == "#":
        rules.insert(0, r"(?P<comment>(?:(?<=\s)|^)\#[^\n]*)")
    elif comment:
        rules.insert(0, r"(?P<comment>//[^\n]*|/\*.*?\*/)")
    if language == "python":
        rules.insert(0, r'(?P<long>"""(?:.*?)""")')
    at = 0
    for found in re.finditer("|".join(rules), text, re.DOTALL | re.MULTILINE):
        yield None, text[at:found.start()]
        kind = found.lastgroup
        if kind == "name":
            yield ("w" if found.group() in words else None), found.group()
        elif kind == "string" and language == "json" and re.match(r"\s*:", text[found.end():]):
            yield "k", found.group()
        else:
            yield {"string": "s", "long": "s", "number": "n", "comment": "c"}[kind], found.group()
        at = found.end()
    yield None, text[at:]
