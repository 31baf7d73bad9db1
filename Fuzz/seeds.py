#!/usr/bin/env python3
"""Writes the seed corpus: one file per input, under DIRECTORY/TARGET.

Expressions come from the conformance vectors beside the repository, if present, and from the tests; pipeline files from pipelines/ and the
malformed files of the tests; the input of decoders from pipelines/data.
"""
import hashlib
import json
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
EVENTS = [
    "{}", "null", "[1, [2], {\"a\": 3}]", '{"a": 1, "b": null, "k": {"a": [1, "x", 2.5]}}',
    '{"a": {"b": {"a": "\\ud83d\\u0000\\n"}}, "b": [[], {}], "k": -0, "big": 18446744073709551615}',
]


# At least as many as there are ways to decode in InputTargets.swift.
DECODERS = 40
# WebSocket frames: a text, a fragmented one with a ping between its parts, a masked one, a close.
FRAMES = [
    b"\x81\x05hello", b"\x01\x03\xe2\x82\xac\x89\x02hi\x80\x01!", b"\x82\x83\x01\x02\x03\x04abc\x8a\x80\x01\x02\x03\x04",
    b"\x88\x05\x03\xe8bye", b"\x81\x7e\x00\x80" + b"x" * 128, b"\x81\xfe\x00\x7e\x00\x00\x00\x00" + b"y" * 126,
]


def put(directory, target, content):
    if len(content) > 4096:
        return
    folder = os.path.join(directory, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, hashlib.sha1(content).hexdigest()), "wb") as file:
        file.write(content)


def expressions():
    vectors = os.path.join(ROOT, os.pardir, "shared", "conformance", "cel", "vectors.json")
    if os.path.exists(vectors):
        with open(vectors) as file:
            for vector in json.load(file):
                if vector.get("applies"):
                    yield vector["expr"]
    tests = os.path.join(ROOT, "Tests", "PipelineCoreTests", "Expressions")
    for name in sorted(os.listdir(tests)):
        with open(os.path.join(tests, name)) as file:
            for text in re.findall(r'\("((?:[^"\\]|\\.)*)"', file.read()):
                yield text.replace('\\"', '"').replace("\\\\", "\\")
    functions = os.path.join(ROOT, "Sources", "PipelineCore", "Expressions", "Functions")
    for name in sorted(os.listdir(functions)):
        with open(os.path.join(functions, name)) as file:
            for call, result in re.findall(r'\("((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"\)', file.read()):
                yield call.replace('\\"', '"').replace("\\\\", "\\")


def files(folder):
    for place, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in sorted(names):
            with open(os.path.join(place, name), "rb") as file:
                yield name, file.read()


def main():
    directory = sys.argv[1]
    for number, text in enumerate(expressions()):
        content = text.encode("utf-8", "surrogatepass")
        put(directory, "parser", content)
        put(directory, "checker", content)
        put(directory, "evaluator", content + b"\0" + EVENTS[number % len(EVENTS)].encode())
    for folder in ("pipelines", "Tests/Malformed", "Tests/Golden"):
        for name, content in files(folder):
            if name.endswith(".yaml"):
                put(directory, "yaml", content)
    lines = [b"a\n\tb\n c\nd;\ne\nx\ny\n", b'{"a": [1,\n{"b": "}"}]} [2]tru null\n{"c":\n\x1e"d"', "ab\n\u00e9\U0001f600\r\nc".encode("utf-16")]
    lines += [b"a,b\n1,\"x\ny\"\n", b"level=info msg=\"a b\" n=1\n", b'{"a":1}\n[2]\n\n"x"\n', b"\xef\xbb\xbfx\r\ny\xff\n"]
    for name, content in files("pipelines/data"):
        lines += [b"".join(content.splitlines(keepends=True)[:3])]
    for content in lines + [event.encode() for event in EVENTS]:
        for choice in range(DECODERS):
            put(directory, "decoders", bytes([choice]) + content)
    for content in FRAMES:
        for choice in range(4):
            put(directory, "frames", bytes([choice]) + content)


main()
