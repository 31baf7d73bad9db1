"""Tests of the plugin against Python's msgpack module; in rxd if RXD names it."""
import base64
import json
import os
import struct
import subprocess
import sys
import unittest

import msgpack

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from format_test import DEPTH, FormatTest, nested  # noqa: E402
from plugin_test import RXD  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "msgpack.so"))
LEAST, MOST = -(2**63), 2**63 - 1


class MsgpackTest(FormatTest):
    plugin, format = PLUGIN, "msgpack"
    sequences = [bytes.fromhex("01c0a0")]
    peculiar = sequences + [
        bytes.fromhex("d6ff5e0be100"), bytes.fromhex("d7ff773594005e0be100"), bytes.fromhex("c70cff3b9ac9fffffffffe00000000"),
        bytes.fromhex("81a178c70305010203"), bytes.fromhex("8301a161c2a162cf8000000000000000a163")]

    def dumps(self, value):
        return msgpack.packb(value)

    def loads(self, data):
        return msgpack.unpackb(data, strict_map_key=False)

    def load_all(self, data):
        unpacker = msgpack.Unpacker(raw=False)
        unpacker.feed(data)
        return list(unpacker)

    def leaf(self, rng):
        choice = rng.random()
        if choice < 0.3:
            return msgpack.ExtType(rng.randint(0, 127), rng.randbytes(rng.choice([0, 1, 2, 3, 4, 8, 16, 17, 300])))
        seconds = rng.choice([0, 1, 2**32 - 1, 2**32, 2**33, -1, rng.randint(-9_223_372_036, 9_223_372_035)])
        return msgpack.Timestamp(seconds, rng.choice([0, 1, 999_999_999, rng.randrange(10**9)]))

    def as_event(self, value):
        if isinstance(value, msgpack.ExtType):
            return {"ext": value.code, "data": value.data}
        if isinstance(value, msgpack.Timestamp):
            return {"$timestamp": value.to_unix_nano()}
        if isinstance(value, dict):
            return {name: self.as_event(member) for name, member in value.items()}
        return [self.as_event(element) for element in value] if isinstance(value, list) else value


class OtherSideTests(MsgpackTest):
    def test_values_at_random_in_both_directions(self):
        self.compare()

    def test_the_shortest_forms_are_written(self):
        for value in self.values(1000):
            event = self.as_event(value)
            if b"ext" not in msgpack.packb(value):
                plain = self.loads(msgpack.packb(value))
                if event == plain:  # without times and extensions
                    self.assertEqual(self.encoded(event), msgpack.packb(plain))


class TypeTests(MsgpackTest):
    def test_every_width_of_whole_numbers(self):
        for form, number in [("cc", 255), ("cd", 65535), ("ce", 2**32 - 1), ("cf", 2**64 - 1)]:
            size = (number.bit_length() + 7) // 8
            self.assertEqual(self.decoded(bytes.fromhex(form) + number.to_bytes(size, "big")), [number])
            self.assertEqual(self.decoded(bytes.fromhex(form) + bytes(size)), [0])
        for form, size in [("d0", 1), ("d1", 2), ("d2", 4), ("d3", 8)]:
            least = -(2 ** (8 * size - 1))
            self.assertEqual(self.decoded(bytes.fromhex(form) + least.to_bytes(size, "big", signed=True)), [least])
        for number in [LEAST, LEAST + 1, -129, -128, -33, -32, -1, 0, 127, 128, MOST, MOST + 1, 2**64 - 1]:
            self.assertEqual(self.encoded(number), msgpack.packb(number))

    def test_single_numbers_become_double_ones(self):
        self.assertEqual(self.decoded(b"\xca" + struct.pack(">f", 0.1)), [struct.unpack(">f", struct.pack(">f", 0.1))[0]])

    def test_times_of_every_width(self):
        self.assertEqual(self.decoded(bytes.fromhex("d6ffffffffff")), [{"$timestamp": (2**32 - 1) * 10**9}])
        self.assertEqual(self.decoded(b"\xd7\xff" + (999_999_999 << 34 | 2**33).to_bytes(8, "big")), [{"$timestamp": 2**33 * 10**9 + 999_999_999}])
        for seconds, rest in [(-1, 5), (9_223_372_036, 854_775_807), (-9_223_372_037, 145_224_192)]:
            data = b"\xc7\x0c\xff" + struct.pack(">Iq", rest, seconds)
            self.assertEqual(self.decoded(data), [{"$timestamp": seconds * 10**9 + rest}])
        for time in [0, 1, -1, 2**32 * 10**9, 2**33 * 10**9 + 1, LEAST, MOST, -10**9]:
            data = self.encoded({"$timestamp": time})
            self.assertEqual(msgpack.unpackb(data).to_unix_nano(), time)
            self.assertEqual(len(data), 6 if time == 0 else 10 if time > 0 else 15)

    def test_times_that_are_none(self):
        self.assertEqual(self.refused(b"\xc7\x0c\xff" + struct.pack(">Iq", 854_775_808, 9_223_372_036)),
                         "the time at byte 3 is not between 1677-09-21 and 2262-04-11")
        self.assertIn("is not between", self.refused(b"\xc7\x0c\xff" + struct.pack(">Iq", 145_224_191, -9_223_372_037)))
        self.assertIn("is not between", self.refused(b"\xc7\x0c\xff" + struct.pack(">Iq", 0, LEAST)))
        self.assertIn("1000000000 nanoseconds", self.refused(b"\xc7\x0c\xff" + struct.pack(">Iq", 10**9, 0)))
        self.assertEqual(self.refused(b"\xd4\xff\x00"), "the time at byte 2 has 1 bytes; a time has 4, 8 or 12")
        self.assertIn("has 0 bytes", self.refused(b"\xc7\x00\xff"))

    def test_extensions(self):
        self.assertEqual(self.decoded(b"\xc7\x03\x80abc"), [{"ext": -128, "data": b"abc"}])
        self.assertEqual(self.decoded(b"\xc7\x00\x05"), [{"ext": 5, "data": b""}])

    def test_durations_are_written_as_texts(self):
        self.assertEqual(self.decoded(self.encoded([{"$duration": 5}])), [["5"]])  # as the test host writes them

    def test_keys(self):
        self.assertEqual(self.decoded(msgpack.packb({-5: 1, 2**64 - 1: 2, True: 3, "": 4})), [{"-5": 1, "18446744073709551615": 2, "true": 3, "": 4}])
        for key, what in [(None, "null"), (1.5, "a number with a fraction"), (b"x", "bytes"), ((1,), "a list"),
                          (msgpack.Timestamp(1), "a time"), (msgpack.ExtType(5, b""), "a map or an extension")]:
            data = msgpack.packb(["x", {"a": 1, key: 2}])
            self.assertEqual(self.refused(data), f"the member of a map that ends at byte {len(data) - 1} has a key that is {what}; "
                                                 "keys are texts, whole numbers or booleans")

    def test_repeated_keys(self):
        self.assertEqual(self.refused(bytes.fromhex("9282a16101a16102c0")), "a map has the key 'a' twice, again at byte 6")
        self.assertEqual(self.refused(bytes.fromhex("8201c0a131c0")), "a map has the key '1' twice, again at byte 4")
        self.assertEqual(self.refused(bytes.fromhex("9282c2c0c2c001")), "the map that ends at byte 5 has the key 'false' twice")
        many = {f"key {i}": i for i in range(1000)}
        data = b"\xde" + struct.pack(">H", 1001) + msgpack.packb(many)[3:] + msgpack.packb("key 500") + b"\x01"
        self.assertIn(f"'key 500' twice, again at byte {len(data) - 8}", self.refused(data))
        self.assertEqual(self.decoded(msgpack.packb(many)), [many])

    def test_strings_that_are_not_utf8(self):
        lenient = self.opened("decoder", "msgpack", strings="bytes")
        for bad in [b"\xff", b"ab\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]:
            data = b"\x91" + bytes([0xa0 + len(bad)]) + bad
            self.assertEqual(self.refused(data), "the string at byte 2 is not UTF-8")
            self.assertEqual(self.decoded(data, lenient), [[bad]])
            self.assertIn("a key that is bytes", self.refused(b"\x81" + data[1:] + b"\x01", lenient))
        self.assertEqual(self.decoded(b"\xa2\xc3\xa4", lenient), ["ä"])

    def test_events_that_cannot_be_written(self):
        deep = nested(1, DEPTH)
        self.assertEqual(self.decoded(self.encoded(deep)), [deep])
        answer = self.encoder.row_typed([deep])
        self.assertEqual((answer["status"], answer["error"]), (host.FAILED, "the event is nested more deeply than 128 levels"))


class FunctionTests(MsgpackTest):
    def test_exactly_one_value_is_decoded(self):
        decode = self.opened("function", "decode")
        self.assertEqual(self.decoded(bytes.fromhex("81a16105"), decode), {"a": 5})
        self.assertEqual(self.refused(bytes.fromhex("81a1610500"), decode), "the value ends before byte 4, and 1 more bytes follow")
        self.assertEqual(self.refused(b"", decode), "there are no bytes, and so no value")
        self.assertEqual(decode.row(None, "text")["error"], "the argument of msgpack.decode is not bytes")

    def test_encode_is_the_encoder(self):
        encode = self.opened("function", "encode")
        for value in self.values(100):
            event = self.as_event(value)
            self.assertEqual(encode.row_typed(None, event)["event"], self.encoded(event))


class HostileTests(MsgpackTest):
    def test_every_truncation(self):
        self.truncate()

    def test_every_damaged_byte(self):
        self.damage()

    def test_bytes_at_random(self):
        self.fuzz()

    def test_deep_nesting(self):
        self.assertEqual(self.decoded(msgpack.packb(nested(1, DEPTH))), [nested(1, DEPTH)])
        for byte in [b"\x91", b"\x81\xa0"]:
            for count in [DEPTH + 1, 1000, 1_000_000]:
                self.assertEqual(self.refused(byte * count), f"the list or map at byte {DEPTH * len(byte)} is nested more deeply than 128 levels")

    def test_claimed_lengths(self):
        huge = b"\xff\xff\xff\xff"
        ends = [b"\xdd" + huge, b"\xdf" + huge, b"\xdb" + huge, b"\xc6" + huge, b"\xc9" + huge + b"\x05", b"\xc9" + huge, b"\xc9\xff\xff\xff\xfe\x05",
                b"\xdc\xff\xff", b"\xde\xff\xff", b"\xda\xff\xff", b"\xc5\xff\xff", b"\xc8\xff\xff\x05"]
        self.claim([before + end + after for end in ends for before in [b"", b"\x92\x01", b"\x81\xa1a", (b"\xdd" + huge) * 100]
                    for after in [b"", b"\x01" * 10]])

    def test_many_small_values(self):
        self.assertEqual(self.decoded(b"\xc0" * 100_000), [None] * 100_000)
        self.assertEqual(self.decoded(b""), [])

    def test_the_byte_that_begins_nothing(self):
        self.assertEqual(self.refused(b"\x92\x01\xc1"), "byte 2 is 0xc1, with which no value begins")


@unittest.skipUnless(RXD, "set RXD to the program")
class InRxdTests(MsgpackTest):
    def test_events_through_files(self):
        self.through_rxd()

    def test_requests_have_the_media_type(self):
        self.check_media_type("application/vnd.msgpack")

    def test_what_is_refused_goes_to_the_errors_output(self):
        with open(self.path("in"), "wb") as file:
            file.write(msgpack.packb({"a": 1}) + b"\xc1")
        errors, = self.run_rxd("""
plugins: { msgpack: PLUGIN }
sources: { in: { file: { path: in, decode: msgpack } } }
sinks:
  out: { from: in, stdout: { encode: ndjson } }
  errors: { from: in.errors, file: { path: errors, encode: ndjson } }
""", "errors")
        self.assertEqual(json.loads(errors)["error"], "byte 4 is 0xc1, with which no value begins")

    def test_functions_and_times(self):
        with open(self.path("in"), "w") as file:
            file.write('"gaFhkgHA"\n"gQE="\n')
        lines, = self.run_rxd("""
plugins: { msgpack: PLUGIN }
sources: { in: { file: { path: in, decode: json } } }
sinks:
  out:
    from: in
    chain:
      - map: |-
          {"decoded": msgpack.decode(base64.decode(event)),
           "early": msgpack.encode(timestamp("0001-01-01T00:00:00Z")), "late": msgpack.encode(timestamp("9999-12-31T23:59:59.999999999Z")),
           "again": msgpack.decode(msgpack.encode({"t": timestamp("2026-11-29T12:00:00.5Z"), "d": duration("1.5s"), "b": b"\\xff", "u": 18446744073709551615u}))}
    file: { path: lines, encode: ndjson }
""", "lines")
        first = json.loads(lines.splitlines()[0])
        self.assertEqual(first["decoded"], {"a": [1, None]})
        for name, seconds, rest in [("early", -62_135_596_800, 0), ("late", 253_402_300_799, 999_999_999)]:
            time = msgpack.unpackb(base64.b64decode(first[name]))
            self.assertEqual((time.seconds, time.nanoseconds), (seconds, rest))
        self.assertEqual(first["again"], {"t": "2026-11-29T12:00:00.5Z", "d": "1.5s", "b": "/w==", "u": 2**64 - 1})

    def test_keys_become_the_texts_that_json_has(self):
        with open(self.path("in"), "w") as file:
            file.write("1\n")
        self.run_rxd("""
plugins: { msgpack: PLUGIN }
sources: { in: { file: { path: in, decode: json } } }
sinks:
  out: { from: in, chain: [ { map: '{5: "a", true: "b", "c": 18446744073709551615u}' } ], file: { path: out, encode: msgpack } }
""")
        with open(self.path("out"), "rb") as file:
            data = file.read()
        self.assertEqual(msgpack.unpackb(data), {"5": "a", "true": "b", "c": 2**64 - 1})

    def test_the_example(self):
        run = subprocess.run([RXD, "test", os.path.join(ROOT, "pipelines", "devices.yaml")], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
