"""Shared by the tests of the plugins for binary formats: random values, another implementation as reference, hostile input, and
pipelines in rxd."""
import http.server
import json
import math
import os
import random
import resource
import subprocess
import threading
import time

import host
from plugin_test import RXD, PluginTest

COUNT = int(os.environ.get("COUNT", "3000"))
SEED = int(os.environ.get("SEED", "20261129"))
# Seconds at most for the loop over random bytes.
FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
DEPTH = 128  # DEPTH_LIMIT of format_util.h
LETTERS = "abcXYZ 09_.\"\\\n\t\0äöß€漢字😀"


def whole_number(rng):
    """Mostly a number near the limits of a width, otherwise any."""
    edge = rng.choice([0, 2**5, 2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**63, 2**64])
    number = rng.choice([edge, -edge]) + rng.randint(-2, 2) if rng.random() < 0.7 else rng.randint(-2**63, 2**64 - 1)
    return max(-2**63, min(2**64 - 1, number))


def text(rng, most=None):
    count = rng.choice([0, 1, 3, 23, 24, 31, 32, 40, 255, 256, 300]) if most is None else rng.randint(0, most)
    return "".join(rng.choice(LETTERS) for _ in range(count))


def number(rng):
    choice = rng.random()
    if choice < 0.1:
        return rng.choice([math.inf, -math.inf, math.nan, -0.0, 0.0, 5e-324, 1.7976931348623157e308])
    return rng.uniform(-1e6, 1e6) if choice < 0.6 else math.ldexp(rng.random(), rng.randint(-1000, 1000))


def value(rng, leaf, depth=0):
    """A random value. `leaf`: creates the format's additional values."""
    choice = rng.random()
    if depth < 4 and choice < 0.12:
        return [value(rng, leaf, depth + 1) for _ in range(rng.choice([0, 1, 2, 15, 16, 17, 40]) if depth < 2 else rng.randint(0, 3))]
    if depth < 4 and choice < (0.3 if depth else 0.6):
        count = rng.choice([0, 1, 2, 5, 15, 16, 40]) if depth < 2 else rng.randint(0, 4)
        return {text(rng, 12): value(rng, leaf, depth + 1) for _ in range(count)}
    return rng.choice([lambda: None, lambda: True, lambda: False, lambda: whole_number(rng), lambda: whole_number(rng),
                       lambda: number(rng), lambda: text(rng), lambda: rng.randbytes(rng.choice([0, 1, 31, 255, 256, 300])),
                       lambda: leaf(rng)])()


def same(left, right):
    """Equality that distinguishes kinds of numbers; NaN equals itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (left == right and math.copysign(1, left) == math.copysign(1, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def nested(value, levels):
    for _ in range(levels):
        value = [value]
    return value


class FormatTest(PluginTest):
    """`plugin`, `format`: the path of the library, and the name of its components and of the plugin. `dumps`, `loads`: the
    reference implementation. `leaf`: creates a value of further kinds."""

    def setUp(self):
        super().setUp()
        self.rng = random.Random(SEED)
        self.library = host.Plugin(self.plugin)
        self.decoder, self.encoder = self.opened("decoder", self.format), self.opened("encoder", self.format)

    def opened(self, kind, name, **parameters):
        instance = self.library.open(kind, name, **parameters)
        self.addCleanup(instance.close)
        return instance

    def decoded(self, data, instance=None):
        answer = (instance or self.decoder).row_of_bytes(data)
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {data[:200].hex()}")
        return answer["event"]

    def refused(self, data, instance=None):
        answer = (instance or self.decoder).row_of_bytes(data)
        self.assertEqual(answer["status"], host.FAILED, f"{data[:200].hex()} is {str(answer['event'])[:200]}")
        self.assertTrue(answer["error"])
        return answer["error"]

    def encoded(self, event):
        answer = self.encoder.row_typed(event)
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {str(event)[:200]}")
        return answer["event"]

    def values(self, count=COUNT):
        for _ in range(count):
            yield value(self.rng, self.leaf)

    # Against the reference implementation.

    def compare(self):
        """The plugin reads the output of the reference; the reference and the plugin read the output of the plugin."""
        for given in self.values():
            theirs = self.dumps(given)
            expected = self.as_event(given)
            found = self.decoded(theirs)
            self.assertEqual(len(found), 1)
            self.assertTrue(same(found[0], expected), f"{theirs.hex()}:\n{found[0]}\n{expected}")
            ours = self.encoded(expected)
            self.assertTrue(same(self.as_event(self.loads(ours)), self.as_event(self.loads(theirs))), f"{ours.hex()}\n{theirs.hex()}")
            self.assertTrue(same(self.decoded(ours), [expected]), ours.hex())

    # Hostile input.

    def samples(self):
        """Some inputs with all kinds of values, none long."""
        found = [self.dumps(given) for given in self.values(400)]
        return [data for data in found if 20 < len(data) < 64][:4] + self.peculiar

    def check_answer(self, data):
        """There is an answer to any input; decoded values can be encoded and decoded again."""
        answer = self.decoder.row_of_bytes(data)
        if answer["status"] != host.OK:
            self.assertEqual(answer["status"], host.FAILED)
            self.assertTrue(answer["error"], data.hex())
            return 0
        for event in answer["event"]:
            self.assertTrue(same(self.decoded(self.encoded(event)), [event]), data.hex())
        return 1

    def truncate(self):
        for data in self.samples():
            self.decoded(data)
            for end in range(1, len(data)):
                # A sequence of values may end earlier.
                if self.decoder.row_of_bytes(data[:end])["status"] == host.OK:
                    self.assertIn(data, self.sequences)
                    continue
                self.assertIn(f"byte {end}", self.refused(data[:end]))
            self.assertTrue(same(self.decoded(data + data), self.decoded(data) * 2))

    def damage(self):
        checked = accepted = 0
        for data in self.samples():
            for at in range(len(data)):
                for byte in range(256):
                    accepted += self.check_answer(data[:at] + bytes([byte]) + data[at + 1:])
                    checked += 1
        print(f"\n    {checked} inputs with a damaged byte, {accepted} of them read", flush=True)

    def fuzz(self):
        checked = accepted = 0
        end = time.monotonic() + FUZZ_SECONDS
        samples = self.samples()
        while checked < 50_000 and time.monotonic() < end:
            if self.rng.random() < 0.3:
                data = self.rng.randbytes(self.rng.randint(0, 60))
            else:
                data = bytearray(self.rng.choice(samples))
                for _ in range(self.rng.randint(1, 6)):
                    at = self.rng.randrange(len(data) + 1)
                    data[at:at + self.rng.randint(0, 3)] = self.rng.randbytes(self.rng.randint(0, 3))
            accepted += self.check_answer(bytes(data))
            checked += 1
        print(f"\n    {checked} inputs at random, {accepted} of them read", flush=True)

    def claim(self, inputs):
        """Neither time nor memory depends on the lengths that the inputs declare."""
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        for data in inputs:
            self.refused(data)
        self.assertLess(time.monotonic() - start, 5)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 100_000, "KiB")

    # In rxd.

    def run_rxd(self, text, *files, status=0):
        """Runs a pipeline whose sources end; returns the contents of the files that it writes in its directory."""
        if not RXD:
            self.skipTest("set RXD to the program")
        path = self.path("pipeline.yaml")
        with open(path, "w") as file:
            file.write(text.replace("PLUGIN", self.plugin))
        run = subprocess.run([RXD, "run", path, "--state-dir", self.path("state")], cwd=self.directory, capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(run.returncode, status, run.stderr)
        found = []
        for name in files:
            with open(self.path(name), "rb") as file:
                found.append(file.read())
        return found

    def through_rxd(self):
        """Events of a JSON file, encoded, read by the reference, and decoded by another pipeline."""
        def plain(given):
            if isinstance(given, dict):
                return {name: plain(member) for name, member in given.items()}
            if isinstance(given, list):
                return [plain(element) for element in given]
            if isinstance(given, int):
                return given if -2**63 <= given < 2**64 else "other"
            return given if isinstance(given, (str, type(None))) or isinstance(given, float) and math.isfinite(given) else "other"

        events = [plain(given) for given in self.values(400)]
        events.append({"list": list(range(5000)), "object": {f"n{i}": i for i in range(2000)}})
        with open(self.path("events.json"), "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        encoded, = self.run_rxd(f"""
plugins: {{ {self.format}: PLUGIN }}
sources: {{ in: {{ file: {{ path: events.json, decode: json }} }} }}
sinks: {{ out: {{ from: in, file: {{ path: encoded, encode: {self.format} }} }} }}
""", "encoded")
        theirs = self.load_all(encoded)
        self.assertEqual(len(theirs), len(events))
        for found, expected in zip(theirs, events):
            self.assertTrue(same(found, expected), f"{str(found)[:1000]}\n{str(expected)[:1000]}")
        lines, = self.run_rxd(f"""
plugins: {{ {self.format}: PLUGIN }}
sources: {{ in: {{ file: {{ path: encoded, decode: {self.format} }} }} }}
sinks: {{ out: {{ from: in, file: {{ path: lines, encode: ndjson }} }} }}
""", "lines")
        found = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual(len(found), len(events))
        for one, expected in zip(found, events):
            self.assertEqual(one, expected)

    def check_media_type(self, expected):
        """The `Content-Type` and the body of a request with an event."""
        received = []

        class Server(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                received.append((self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with open(self.path("in"), "w") as file:
            file.write('{"a": 1}\n')
        self.run_rxd(f"""
plugins: {{ {self.format}: PLUGIN }}
sources: {{ in: {{ file: {{ path: in, decode: json }} }} }}
sinks: {{ out: {{ from: in, http: {{ url: "http://127.0.0.1:{server.server_port}/", encode: {self.format} }} }} }}
""")
        self.assertEqual(received, [(expected, self.dumps({"a": 1}))])
