"""Tests of the plugin against pygelf and graypy, and of hostile input; in rxd if RXD names it."""
import gzip
import json
import logging
import os
import random
import resource
import struct
import subprocess
import sys
import time
import unittest
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from plugin_test import RXD, PluginTest, free_port, wait_for  # noqa: E402

try:
    import graypy
    import pygelf
except ImportError:
    graypy = pygelf = None

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "gelf.so"))
COUNT, SEED = int(os.environ.get("COUNT", "2000")), int(os.environ.get("SEED", "20261130"))
MESSAGE = {"version": "1.1", "host": "web1", "short_message": "disk full", "level": 3, "_volume": "/var"}


def plain(message=MESSAGE):
    return json.dumps(message).encode()


def chunks(data, size, identity=b"12345678"):
    pieces = [data[at:at + size] for at in range(0, len(data), size)]
    return [b"\x1e\x0f" + identity + bytes([index, len(pieces)]) + piece for index, piece in enumerate(pieces)]


def is_bound(kind, port):
    """Whether a socket of this machine has the port."""
    with open(f"/proc/net/{kind}") as file:
        return f":{port:04X} " in file.read()


class GelfTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.library = host.Plugin(PLUGIN)
        self.rng = random.Random(SEED)
        self.decoder, self.strict = self.opened("decoder", "gelf"), self.opened("decoder", "gelf", strict=True)

    def opened(self, kind, name, **parameters):
        instance = self.library.open(kind, name, **parameters)
        self.addCleanup(instance.close)
        return instance

    def decoded(self, data, instance=None):
        answer = (instance or self.decoder).row_of_bytes(data)
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {data[:200]!r}")
        return answer["event"]

    def refusal(self, data, instance=None):
        answer = (instance or self.decoder).row_of_bytes(data)
        self.assertEqual(answer["status"], host.FAILED, f"{data[:200]!r} is {str(answer['event'])[:200]}")
        return answer["error"]


class DecoderTests(GelfTest):
    def test_a_message_in_each_form(self):
        for data in [plain(), plain() + b"\0", gzip.compress(plain()), *(zlib.compress(plain(), level) for level in range(10))]:
            self.assertEqual(self.decoded(data), [MESSAGE])
            self.assertEqual(self.decoded(data, self.strict), [MESSAGE])
        for bits in range(9, 16):
            packer = zlib.compressobj(9, zlib.DEFLATED, bits)
            self.assertEqual(self.decoded(packer.compress(plain()) + packer.flush()), [MESSAGE])

    def test_several_messages_have_zero_bytes_between_them(self):
        self.assertEqual(self.decoded(b"\0".join([plain(), plain(), b"", plain()])), [MESSAGE] * 3)
        self.assertEqual(self.decoded(b""), [])
        self.assertEqual(self.decoded(b"\0\0"), [])
        self.assertEqual(self.refusal(plain() + b"\0{"), f"the message at byte {len(plain()) + 1} is not a JSON document")

    def test_times_are_exact(self):
        for text, nanoseconds in [("1385053862.3072", 1385053862_307200000), ("0", 0), ("-1.5", -1_500000000), ("-0.25", -250000000),
                                  ("1385053862", 1385053862_000000000), ('"1385053862.3072"', 1385053862_307200000), ("1.5e9", 1500000000_000000000),
                                  ('"9223372036.854775807"', 2**63 - 1)]:
            event, = self.decoded(b'{"host":"a","short_message":"b","timestamp":%s}' % text.encode())
            # The test host reads numbers as doubles.
            self.assertLess(abs(event["timestamp"]["$timestamp"] - nanoseconds), 1 if "e9" in text or '"' in text else 1000, text)
        for text in ["1e300", "9223372037", "-9223372037", "true", "[]", '"now"', '""', '"1."', '"1e5"']:
            self.assertIn("'timestamp' is", self.refusal(b'{"host":"a","short_message":"b","timestamp":%s}' % text.encode()))

    def test_rules_of_all_messages(self):
        for change, reason in [({"short_message": None}, "'short_message' is null, and must be a text"), ({"short_message": ""}, "'short_message' is empty"),
                               ({"short_message": 5}, "'short_message' is a whole number, and must be a text"), ({"host": []}, "'host' is a list, and must be a text"),
                               ({"level": "3"}, "'level' is a text, and must be a whole number")]:
            self.assertEqual(self.refusal(plain({**MESSAGE, **change})), reason)
        self.assertEqual(self.refusal(plain({"host": "a"})), "the message has no 'short_message'")
        self.assertEqual(self.refusal(b"[1]"), "the message at byte 0 is a list, and must be an object")
        self.assertEqual(self.refusal(b'{"host":"\xff"}'), "the message at byte 0 is not UTF-8")

    def test_rules_of_strict_messages(self):
        for change, reason in [({"version": "1.0"}, "'version' is not \"1.1\""), ({"version": 1.1}, "'version' is not \"1.1\""),
                               ({"volume": 1}, "'volume' is not a valid field name: write '_' followed by letters, digits, '_', '-' or '.'"),
                               ({"_a b": 1}, "'_a b' is not a valid field name: write '_' followed by letters, digits, '_', '-' or '.'"),
                               ({"_": 1}, "'_' is not a valid field name: write '_' followed by letters, digits, '_', '-' or '.'"),
                               ({"_id": 1}, "'_id' must not be a field"), ({"_a": True}, "'_a' is a boolean, and must be a text or a number"),
                               ({"_a": {}}, "'_a' is an object, and must be a text or a number"), ({"host": ""}, "'host' is empty"),
                               ({"level": 8}, "'level' is 8, and must be from 0 to 7"), ({"timestamp": "5"}, "'timestamp' is a text, and must be a number of seconds"),
                               ({"full_message": 5}, "'full_message' is a whole number, and must be a text")]:
            self.assertEqual(self.refusal(plain({**MESSAGE, **change}), self.strict), reason)
        self.assertEqual(self.refusal(plain({"version": "1.1", "short_message": "a"}), self.strict), "the message has no 'host'")
        for change in [{"_a.b-c_1": 1.5}, {"facility": "x", "line": 5, "file": "y"}]:
            self.assertEqual(self.decoded(plain({**MESSAGE, **change}), self.strict), [{**MESSAGE, **change}])

    def test_compressed_input_is_bounded(self):
        small = self.opened("decoder", "gelf", limit=1000)
        bomb = zlib.compress(b"\0" * 200_000_000, 9)
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        for _ in range(20):
            self.assertEqual(self.refusal(bomb, small), "the message has more than 1000 bytes uncompressed ('limit')")
            self.assertIn("more than 8388608 bytes uncompressed", self.refusal(gzip.compress(b"\0" * 20_000_000)))
        self.assertLess(time.monotonic() - start, 20)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 60_000, "KiB")
        self.assertEqual(self.refusal(b"x" * 1001, small), "the message has more than 1000 bytes ('limit')")
        exact = plain({**MESSAGE, "_a": ""})
        exact = plain({**MESSAGE, "_a": "x" * (1000 - len(exact))})
        self.assertEqual(len(self.decoded(zlib.compress(exact), small)), 1)

    def test_cut_and_damaged_compressed_input(self):
        for data in [gzip.compress(plain()), zlib.compress(plain())]:
            for end in range(2, len(data)):
                self.assertRegex(self.refusal(data[:end]), rf"^the compressed message is not complete: it ends at byte {end}$")
            for at in range(2, len(data)):
                answer = self.decoder.row_of_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1:])
                self.assertTrue(answer["status"] == host.OK and answer["event"] == [MESSAGE] or answer["error"], at)
            self.assertEqual(self.refusal(data + b"xy"), f"2 bytes follow the compressed message, from byte {len(data)} on")

    def test_a_chunk_is_for_the_step(self):
        self.assertIn("gelfDatagrams", self.refusal(chunks(plain(), 20)[0]))

    def test_random_input(self):
        samples = [plain(), gzip.compress(plain()), zlib.compress(plain()), plain() + b"\0" + plain()]
        checked = 0
        end = time.monotonic() + 2
        while time.monotonic() < end and checked < 30_000:
            data = bytearray(self.rng.choice(samples) if self.rng.random() < 0.8 else self.rng.randbytes(60))
            for _ in range(self.rng.randint(1, 5)):
                at = self.rng.randrange(len(data) + 1)
                data[at:at + self.rng.randint(0, 3)] = self.rng.randbytes(self.rng.randint(0, 3))
            answer = self.decoder.row_of_bytes(bytes(data))
            self.assertTrue(answer["status"] == host.OK or answer["error"])
            checked += 1
        self.assertGreater(checked, 100)


class EncoderTests(GelfTest):
    def encoded(self, event, **parameters):
        answer = self.opened("encoder", "gelf", **{"host": "me", **parameters}).row_typed(event)
        self.assertEqual(answer["status"], host.OK, answer["error"])
        return answer["event"]

    def test_members(self):
        for event, expected in [
                ("hello", {"short_message": "hello"}), ({"message": "a"}, {"short_message": "a"}),
                ({"message": "a", "short_message": "b"}, {"short_message": "b", "_message": "a"}),
                ({"message": "a", "id": 5}, {"short_message": "a", "__id": 5}), ({"message": "a", "_id": 5}, {"short_message": "a", "__id": 5}),
                ({"message": "a", "b c/ä": 1, "_d": None, "e": True, "f": [1, {"g": "h"}]},
                 {"short_message": "a", "_b_c__": 1, "_e": "true", "_f": '[1,{"g":"h"}]'}),
                ({"message": "a", "level": "WARN", "timestamp": {"$timestamp": 1385053862_307200000}}, {"short_message": "a", "level": 4, "timestamp": 1385053862.3072}),
                ({"message": "a", "timestamp": "2013-11-21T17:11:02.3072Z", "facility": "x"}, {"short_message": "a", "timestamp": 1385053862.3072, "_facility": "x"}),
                ({"message": "a", "timestamp": {"$timestamp": -250000000}, "x": float("inf")}, {"short_message": "a", "timestamp": -0.25, "_x": "Infinity"}),
                ({"message": "q\"\\\n\0ä", "host": "h", "version": "9", "full_message": "f"}, {"short_message": "q\"\\\n\0ä", "host": "h", "full_message": "f"})]:
            found = json.loads(self.encoded(event))
            self.assertEqual(found, {"version": "1.1", "host": "me", **expected})
            self.assertEqual(len(self.decoded(self.encoded(event).encode(), self.strict)), 1)

    def test_refused_events(self):
        encoder = self.opened("encoder", "gelf", host="me")
        for event, reason in [(5, "the event is a whole number, and must be an object or a text"), ({}, "the event has neither 'short_message' nor 'message'"),
                              ({"message": 5}, "'message' is a whole number, and must be a text"), ({"message": "a", "b": 1, "_b": 2}, "two members would be the field '_b'"),
                              ({"message": "a", "level": 8}, "'level' must be a number from 0 to 7 or the name of a level, such as \"warning\""),
                              ({"message": "a", "timestamp": "now"}, "'timestamp' must be a time, or a number of seconds"), ({"message": "a", "": 1}, "the event has a member without a name")]:
            answer = encoder.row_typed(event)
            self.assertEqual((answer["status"], answer["error"]), (host.FAILED, reason))
        with self.assertRaises(host.Refused) as refused:
            self.library.open("encoder", "gelf", host="")
        self.assertEqual((refused.exception.at, str(refused.exception)), ("host", "must not be empty"))

    def test_what_is_written_is_read_again(self):
        """What the encoder writes keeps the rules, and the decoder reads the same event from it."""
        letters = "abcXYZ 09_.\"\\\n\t\0äß€漢😀"
        for index in range(COUNT):
            event = {"version": "1.1", "host": "h" + str(index), "short_message": "m" + "".join(self.rng.choices(letters, k=self.rng.randint(0, 40)))}
            if self.rng.random() < 0.5:
                event["full_message"] = "f" + "".join(self.rng.choices(letters, k=self.rng.randint(0, 3000)))
            if self.rng.random() < 0.5:
                event["timestamp"] = {"$timestamp": self.rng.randint(-2**62, 2**62) // 10**9 * 10**9 + self.rng.choice([0, 500_000_000])}
            if self.rng.random() < 0.5:
                event["level"] = self.rng.randint(0, 7)
            for _ in range(self.rng.randint(0, 6)):
                event["_" + "".join(self.rng.choices("abcXYZ09_.-", k=self.rng.randint(2, 8)))] = self.rng.choice(
                    [self.rng.randint(-2**63, 2**64 - 1), self.rng.uniform(-1e9, 1e9), "".join(self.rng.choices(letters, k=5))])
            event.pop("_id", None)
            written = self.encoded(event, compress=self.rng.choice(["none", "zlib", "gzip"]))
            data = written if isinstance(written, bytes) else written.encode()
            self.assertEqual(self.decoded(data, self.strict), [event])


class ChunkTests(GelfTest):
    def joined(self, datagrams, step=None, senders=None, at=0):
        step = step or self.opened("operator", "gelfDatagrams")
        inputs = [{"event": datagram, "with": [host.ABSENT, senders[index] if senders else host.ABSENT]} for index, datagram in enumerate(datagrams)]
        return step.process(*json.loads(json.dumps(inputs, default=lambda value: {"$hex": value.hex()})), at=at)

    def events(self, answer):
        return [sent["event"] for sent in answer["sent"] if "event" in sent]

    def errors(self, answer):
        return [sent["error"] for sent in answer["sent"] if "error" in sent]

    def test_any_order_and_repeated_chunks(self):
        for data in [plain(), gzip.compress(plain()), zlib.compress(plain())]:
            for size in [1, 7, 50, 1000]:
                pieces = chunks(data, max(size, len(data) // 128 + 1))
                for _ in range(20):
                    mixed = pieces + self.rng.sample(pieces, len(pieces) // 3)
                    last = mixed.pop(0) if len(pieces) > 1 else None
                    self.rng.shuffle(mixed)
                    mixed = [piece for piece in mixed if piece != last] + ([last] if last else [])
                    answer = self.joined(mixed)
                    self.assertEqual(self.events(answer)[:1], [MESSAGE])
                    self.assertEqual(self.errors(answer), [])

    def test_messages_mix(self):
        """Many messages with one id of several senders, their chunks in any order."""
        pieces = [(chunk, f"10.0.0.{sender}") for sender in range(50) for chunk in chunks(plain({**MESSAGE, "_n": sender}), 9)]
        self.rng.shuffle(pieces)
        answer = self.joined([piece for piece, _ in pieces], senders=[sender for _, sender in pieces])
        self.assertEqual(sorted(event["_n"] for event in self.events(answer)), list(range(50)))

    def test_plain_datagrams_pass(self):
        self.assertEqual(self.events(self.joined([plain(), zlib.compress(plain())])), [MESSAGE] * 2)

    def test_damaged_chunks(self):
        for datagram, reason in [(b"\x1e\x0f", "the chunk has 2 bytes; its header alone has 12"), (b"\x1e\x0f12345678\x00\x00x", "byte 11: the message has 0 chunks, and must have 1 to 128"),
                                 (b"\x1e\x0f12345678\x00\x81x", "byte 11: the message has 129 chunks, and must have 1 to 128"),
                                 (b"\x1e\x0f12345678\x02\x02x", "byte 10: the chunk has the number 2, and the message 2 chunks"),
                                 (b"\x1e\x0f12345678\x00\x01x", "the message at byte 0 is not a JSON document"),
                                 (b"\x1e\x0f12345678\x00\x01\x1e\x0f12345678\x00\x01x", "the joined message is a chunk again"), (b"x", "the message at byte 0 is not a JSON document")]:
            answer = self.joined([datagram, plain()])
            self.assertEqual(self.errors(answer), [reason])
            self.assertEqual(self.events(answer), [MESSAGE])
        answer = self.joined([b"\x1e\x0f12345678\x00\x02x", b"\x1e\x0f12345678\x01\x03x"])
        self.assertEqual(self.errors(answer), ["byte 11: the chunk says 3 chunks, earlier ones of the message 2"])

    def test_bounds(self):
        step = self.opened("operator", "gelfDatagrams", maxMessages=10)
        first = [chunks(plain(), 20, struct.pack(">Q", index))[0] for index in range(30)]
        self.joined(first, step)
        rest = [chunk for index in range(30) for chunk in chunks(plain(), 20, struct.pack(">Q", index))[1:]]
        self.assertEqual(len(self.events(self.joined(rest[-10 * (len(rest) // 30):], step))), 10)
        self.assertEqual(sum(line == "count incomplete 1" for line in step.log()), 20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step = self.opened("operator", "gelfDatagrams", maxMessages=100000, maxBytes=1_000_000)
        for round in range(200):
            self.joined([b"\x1e\x0f" + struct.pack(">Q", round * 100 + index) + b"\x00\x80" + b"x" * 1400 for index in range(100)], step)
        log = step.log()
        self.assertEqual(sum("was dropped" in line for line in log), 1)
        self.assertGreater(sum(line == "count incomplete 1" for line in log), 19_000)
        if not os.environ.get("SANITIZE"):  # which keeps freed memory
            self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 50_000, "KiB")

    def test_messages_wait_for_a_time(self):
        step = self.opened("operator", "gelfDatagrams", wait="2s")
        pieces = chunks(plain(), 20)
        answer = self.joined(pieces[:-1], step)
        self.assertEqual(answer["timers"], {"0": 2 * 10**9})
        answer = step.process({"timer": "0"})
        self.assertEqual(answer["sent"], [])
        self.assertTrue(any("the others have not arrived in time" in line for line in step.log()))
        self.assertEqual(self.events(self.joined(pieces[-1:], step)), [])
        self.assertEqual(self.joined(pieces[:-1], step)["timers"], {"1": -1})

    def test_a_state_goes_on(self):
        pieces = chunks(plain(), 20)
        for cut in range(1, len(pieces)):
            step = self.opened("operator", "gelfDatagrams")
            self.joined(pieces[:cut], step)
            again = self.opened("operator", "gelfDatagrams", state=step.save())
            self.assertEqual(self.events(self.joined(pieces[cut:], again)), [MESSAGE])
        with self.assertRaises(host.Refused):
            self.library.open("operator", "gelfDatagrams", state=b"xyz")

    def test_what_is_cut_is_joined(self):
        for size, compress in [(64, "none"), (200, "gzip"), (1420, "zlib"), (8192, "none")]:
            step = self.opened("operator", "gelfChunks", host="me", size=size, compress=compress)
            events = [{"message": "m" * self.rng.randint(1, 3000), "n": index} for index in range(50)]
            answer = step.process(*({"event": event} for event in events))
            datagrams = [bytes.fromhex(sent["event"].removeprefix("hex:")) for sent in answer["sent"]]
            self.assertLessEqual(max(map(len, datagrams)), size)
            self.rng.shuffle(datagrams)
            self.assertEqual(sorted(event["_n"] for event in self.events(self.joined(datagrams))), list(range(50)))
        step = self.opened("operator", "gelfChunks", host="me", size=64, compress="none")
        answer = step.process({"event": {"message": "x" * 10_000}})
        self.assertIn("128 chunks of 64 hold 6656", answer["sent"][0]["error"])
        for size in [63, 65508]:
            with self.assertRaises(host.Refused) as refused:
                self.library.open("operator", "gelfChunks", host="me", size=size)
            self.assertEqual(refused.exception.at, "size")


@unittest.skipUnless(pygelf and graypy, "no pygelf or graypy (scripts/install-packages --tests)")
class OtherSideTests(GelfTest):
    """Messages of the clients that applications use, over the network, through a pipeline."""

    def receive(self, source, chain, send, count):
        port = free_port()
        run = self.pipeline(f"""
plugins: {{ gelf: PLUGIN }}
sources: {{ in: {source % port} }}
sinks: {{ out: {{ from: in, chain: [ {chain} ], stdout: {{ encode: ndjson }} }} }}
""", f"pipeline{len(self.processes)}")
        wait_for(lambda: is_bound("udp" if "udp" in source else "tcp", port), lambda: f"the port: {run.errors()}")
        send(port)
        wait_for(lambda: run.count() >= count, lambda: f"{count} messages, not {run.count()}: {run.errors()}", 20)
        self.assertEqual(run.end(), 0, run.errors())
        return run.lines()

    def send_by(self, make):
        def send(port):
            logger = logging.Logger("test")
            handler = make(port)
            logger.addHandler(handler)
            for index in range(100):
                logger.warning("number %d %s", index, "ä" * (index * 100), extra={"number": index, "where": "hier"})
                time.sleep(0.002)  # the system drops datagrams that come too fast
            handler.close()
        return send

    def check(self, source, chain, make, field="_number"):
        found = self.receive(source, chain, self.send_by(make), 100)
        self.assertEqual(sorted(event[field] for event in found), list(range(100)))
        for event in found:
            index = event[field]
            text = f"number {index} {'ä' * (index * 100)}"
            self.assertIn(text.rstrip(), (event["short_message"], event.get("full_message"), event["short_message"].rstrip()))
            self.assertEqual(event["level"], 4)
            self.assertRegex(event["timestamp"], r"^20\d\d-")
            self.assertEqual(event["_where"], "hier")

    udp, join = "{ udp: { address: %d, decode: bytes, receiveBuffer: 4MiB } }", "{ gelfDatagrams: { sender: meta.peer } }"

    def test_pygelf_over_udp(self):
        for compress in [True, False]:
            with self.subTest(compress=compress):
                self.check(self.udp, self.join, lambda port: pygelf.GelfUdpHandler("127.0.0.1", port, compress=compress, include_extra_fields=True, chunk_size=700))

    def test_pygelf_over_tcp(self):
        self.check("{ tcp: { address: %d, framing: nul, decode: gelf } }", "", lambda port: pygelf.GelfTcpHandler("127.0.0.1", port, include_extra_fields=True))

    def test_pygelf_over_http(self):
        self.check("{ httpServer: { address: %d, path: /gelf, decode: gelf } }", "", lambda port: pygelf.GelfHttpHandler("127.0.0.1", port, include_extra_fields=True, compress=False))

    def test_graypy_over_udp(self):
        self.check(self.udp, self.join, lambda port: graypy.GELFUDPHandler("127.0.0.1", port, gelf_chunker=graypy.handler.GELFWarningChunker(chunk_size=700)))

    def test_graypy_over_tcp(self):
        self.check("{ tcp: { address: %d, framing: nul, decode: gelf } }", "", lambda port: graypy.GELFTCPHandler("127.0.0.1", port))


class PipelineTests(GelfTest):
    def test_the_example(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        run = subprocess.run([RXD, "test", os.path.join(ROOT, "pipelines", "graylog.yaml")], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_over_the_network_and_back(self):
        """What one pipeline sends in chunks, or over TCP, another one receives."""
        if not RXD:
            self.skipTest("set RXD to the program")
        port = free_port()
        receiver = self.pipeline(f"""
plugins: {{ gelf: PLUGIN }}
sources:
  datagrams: {{ udp: {{ address: {port}, decode: bytes, receiveBuffer: 4MiB }} }}
  stream: {{ tcp: {{ address: {port}, framing: nul, decode: gelf }} }}
signals: {{ joined: {{ from: datagrams, chain: [ {{ gelfDatagrams: {{ sender: meta.peer }} }} ] }} }}
sinks: {{ out: {{ from: {{ merge: [ joined, stream ] }}, stdout: {{ encode: ndjson }} }} }}
""", "receiver")
        wait_for(lambda: is_bound("udp", port) and is_bound("tcp", port), "the ports")
        with open(self.path("in"), "w") as file:
            file.writelines(json.dumps({"message": "m" * (index * 50), "n": index}) + "\n" for index in range(1, 201))
        sender = self.pipeline(f"""
plugins: {{ gelf: PLUGIN }}
sources: {{ in: {{ file: {{ path: {self.path('in')}, decode: json }} }} }}
sinks:
  datagrams: {{ from: in, chain: [ {{ gelfChunks: {{ compress: none, size: 500B }} }} ], udp: {{ address: "127.0.0.1:{port}", encode: bytes }} }}
  stream: {{ from: in, tcp: {{ address: "127.0.0.1:{port}", framing: nul, encode: gelf }} }}
""", "sender")
        self.assertEqual(sender.process.wait(30), 0, sender.errors())
        wait_for(lambda: receiver.count() >= 400, lambda: f"400 messages, not {receiver.count()}: {receiver.errors()}", 20)
        self.assertEqual(receiver.end(), 0, receiver.errors())
        self.assertEqual(sorted(event["_n"] for event in receiver.lines()), sorted([*range(1, 201)] * 2))
        self.assertTrue(all(event["short_message"] == "m" * (event["_n"] * 50) for event in receiver.lines()))


if __name__ == "__main__":
    unittest.main()
