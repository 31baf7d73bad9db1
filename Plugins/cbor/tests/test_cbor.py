"""Tests of the plugin against Python's cbor2 module; in rxd if RXD names it."""
import base64
import datetime
import io
import json
import math
import os
import struct
import subprocess
import sys
import unittest

import cbor2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from format_test import DEPTH, FormatTest, nested  # noqa: E402
from plugin_test import RXD  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "cbor.so"))
LEAST, MOST = -(2**63), 2**63 - 1
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def indefinite(rng, value):
    """CBOR of the value, with indefinite lengths at random positions."""
    if isinstance(value, list):
        parts = b"".join(indefinite(rng, element) for element in value)
        return b"\x9f" + parts + b"\xff" if rng.random() < 0.5 else cbor2.dumps([None] * len(value))[:-len(value) or None] + parts
    if isinstance(value, dict):
        parts = b"".join(indefinite(rng, part) for member in value.items() for part in member)
        return b"\xbf" + parts + b"\xff" if rng.random() < 0.5 else cbor2.dumps({n: None for n in range(min(len(value), 23))})[:1] + parts \
            if len(value) < 24 else b"\xb9" + struct.pack(">H", len(value)) + parts
    if isinstance(value, (str, bytes)) and rng.random() < 0.5:
        chunks, at = [], 0
        while at < len(value):
            count = rng.randint(0, 9)
            chunks.append(cbor2.dumps(value[at:at + count]))
            at += count
        return (b"\x7f" if isinstance(value, str) else b"\x5f") + b"".join(chunks) + b"\xff"
    return cbor2.dumps(value)


class CborTest(FormatTest):
    plugin, format = PLUGIN, "cbor"
    sequences = [bytes.fromhex("01f660")]
    peculiar = sequences + [
        bytes.fromhex("c11a5e0be100"), bytes.fromhex("c074323032302d30312d30315430303a30303a30305a"), bytes.fromhex("c1fb41d452d9e4000000"),
        bytes.fromhex("bf61787f616161626163ff0182c249010000000000000000c349010000000000000000ff"), bytes.fromhex("9f5f4101420203ffd86401f93e00fa3fc00000ff")]

    def dumps(self, value):
        return cbor2.dumps(value)

    def loads(self, data):
        return cbor2.loads(data)

    def load_all(self, data):
        stream, found = io.BytesIO(data), []
        while stream.tell() < len(data):
            found.append(cbor2.load(stream))
        return found

    def leaf(self, rng):
        choice = rng.random()
        if choice < 0.2:
            return cbor2.CBORTag(rng.choice([6, 9, 20, 47, 101, 1000, 2**32, 2**64 - 1]), rng.choice([1, "x", [1], None]))
        if choice < 0.4:
            return rng.choice([1, -1]) * rng.getrandbits(rng.choice([64, 65, 72, 128, 500]))
        if choice < 0.5:
            return cbor2.undefined
        return EPOCH + datetime.timedelta(seconds=rng.randint(-9_000_000_000, 9_000_000_000), microseconds=rng.choice([0, 1, 999_999]))

    def as_event(self, value):
        if isinstance(value, cbor2.CBORTag):
            return {"tag": value.tag, "value": self.as_event(value.value)}
        if isinstance(value, datetime.datetime):
            return {"$timestamp": (value - EPOCH) // datetime.timedelta(microseconds=1) * 1000}
        if value is cbor2.undefined:
            return None
        if isinstance(value, int) and not LEAST <= value < 2**64:
            return str(value)
        if isinstance(value, dict):
            return {name: self.as_event(member) for name, member in value.items()}
        return [self.as_event(element) for element in value] if isinstance(value, list) else value


class OtherSideTests(CborTest):
    def test_values_at_random_in_both_directions(self):
        self.compare()

    def test_lengths_that_end_with_a_break(self):
        for value in self.values(1000):
            data = indefinite(self.rng, value)
            expected = self.as_event(value)
            self.assertEqual(repr(self.decoded(data)[0]), repr(expected), data.hex())

    def test_the_shortest_forms_are_written(self):
        for value in self.values(1000):
            event = self.as_event(value)
            # Without times and tags; cbor2 shortens non-finite numbers.
            if event == value and not any(word in repr(event) for word in ("inf", "nan")):
                self.assertEqual(self.encoded(event), cbor2.dumps(event))


class TypeTests(CborTest):
    def test_the_examples_of_the_standard(self):
        """RFC 8949, appendix A."""
        for data, value in [
                ("1bffffffffffffffff", 2**64 - 1), ("c249010000000000000000", "18446744073709551616"), ("3bffffffffffffffff", "-18446744073709551616"),
                ("c349010000000000000000", "-18446744073709551617"), ("20", -1), ("3903e7", -1000), ("f90000", 0.0), ("f98000", -0.0), ("f93c00", 1.0),
                ("f93e00", 1.5), ("f97bff", 65504.0), ("fa47c35000", 100000.0), ("f90001", 5.960464477539063e-8), ("f90400", 0.00006103515625),
                ("f9c400", -4.0), ("f97c00", math.inf), ("f9fc00", -math.inf), ("f6", None), ("f7", None), ("f4", False), ("f5", True),
                ("d74401020304", bytes([1, 2, 3, 4])), ("d818456449455446", b"dIETF"), ("d82076687474703a2f2f7777772e6578616d706c652e636f6d", "http://www.example.com"),
                ("40", b""), ("60", ""), ("62225c", "\"\\"), ("62c3bc", "ü"), ("64f0908591", "\U00010151"), ("a201020304", {"1": 2, "3": 4}),
                ("5f42010243030405ff", bytes([1, 2, 3, 4, 5])), ("7f657374726561646d696e67ff", "streaming"), ("9fff", []),
                ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]), ("83018202039f0405ff", [1, [2, 3], [4, 5]]),
                ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}), ("826161bf61626163ff", ["a", {"b": "c"}]), ("d9d9f701", 1)]:
            found = self.decoded(bytes.fromhex(data))
            self.assertEqual((len(found), repr(found[0])), (1, repr(value)), data)
        for data, nanoseconds in [("c074323031332d30332d32315432303a30343a30305a", 1363896240 * 10**9), ("c11a514b67b0", 1363896240 * 10**9),
                                  ("c1fb41d452d9ec200000", 1363896240_500000000), ("c120", -10**9), ("c1f9b800", -500_000_000), ("c1c2411e", 30 * 10**9)]:
            self.assertEqual(self.decoded(bytes.fromhex(data)), [{"$timestamp": nanoseconds}], data)
        self.assertTrue(math.isnan(self.decoded(bytes.fromhex("f97e00"))[0]))

    def test_texts_of_times(self):
        for given, seconds, rest in [("1970-01-01T00:00:00Z", 0, 0), ("2000-02-29T12:00:00.000000001+02:30", 951_816_600, 1), ("1969-12-31T23:59:59.5-00:00", -1, 500_000_000),
                                     ("1677-09-21T00:12:43.145224192Z", -9_223_372_037, 145_224_192), ("2262-04-11T23:47:16.854775807z", 9_223_372_036, 854_775_807),
                                     ("1900-03-01t00:00:00.1234567891Z", -2_203_891_200, 123_456_789)]:
            self.assertEqual(self.decoded(b"\xc0" + cbor2.dumps(given)), [{"$timestamp": seconds * 10**9 + rest}], given)
        for bad in ["", "x", "1970-01-01", "1970-01-01T00:00:00", "1970-13-01T00:00:00Z", "1970-02-29T00:00:00Z", "1970-01-01T24:00:00Z", "1970-01-01T00:00:00.Z",
                    "1970-01-01T00:00:00Zx", "1970-01-01T00:00:00+2", "1970-01-01T00:60:00Z", "+970-01-01T00:00:00Z"]:
            self.assertEqual(self.refused(b"\x81\xc0" + cbor2.dumps(bad)), "the time at byte 1 is not a text of RFC 3339")
        for far in ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2262-04-11T23:47:16.854775808Z", "1677-09-21T00:12:43.145224191Z"]:
            self.assertEqual(self.refused(b"\xc0" + cbor2.dumps(far)), "the time at byte 0 is not between 1677-09-21 and 2262-04-11")

    def test_numbers_that_are_no_time(self):
        for data in ["c11bffffffffffffffff", "c1f97e00", "c1f97c00", "c1fb7fefffffffffffff", "c11b7fffffffffffffff", "c13b7fffffffffffffff", "c1c249010000000000000000"]:
            self.assertEqual(self.refused(bytes.fromhex(data)), "the time at byte 0 is not between 1677-09-21 and 2262-04-11")
        for data in ["c16161", "c1f6", "c180", "c1f5"]:
            self.assertEqual(self.refused(bytes.fromhex(data)), "the time at byte 0 is not a number")
        self.assertEqual(self.refused(bytes.fromhex("c001")), "the time at byte 0 is not a text of RFC 3339")

    def test_long_integers(self):
        for number in [2**1024 - 1, -2**1024, 2**64, -2**64 - 1, -2**63 - 1, 10**300]:
            self.assertEqual(self.decoded(cbor2.dumps(number)), [str(number)])
        for number in [0, 1, 2**63, 2**64 - 1, -1, LEAST]:
            for pad in [0, 5, 1000]:
                raw = number if number >= 0 else -1 - number
                content = bytes(pad) + raw.to_bytes(8, "big")
                self.assertEqual(self.decoded((b"\xc2" if number >= 0 else b"\xc3") + cbor2.dumps(content)), [number])
        self.assertEqual(self.decoded(bytes.fromhex("c240c340")), [0, -1])
        self.assertEqual(self.refused(b"\x81\xc2" + cbor2.dumps(b"\x01" * 129)), "the integer at byte 1 has 129 bytes; at most 128 are read")
        self.assertEqual(self.refused(bytes.fromhex("c201")), "the integer at byte 0 is not bytes")

    def test_times_are_written_as_texts(self):
        for time in [0, 1, -1, LEAST, MOST, 1_500_000_000_123_456_789]:
            data = self.encoded({"$timestamp": time})
            self.assertEqual(data[:1], b"\xc0")
            self.assertEqual(self.decoded(data), [{"$timestamp": time}])

    def test_keys(self):
        self.assertEqual(self.decoded(cbor2.dumps({-5: 1, 2**64 - 1: 2, True: 3, "": 4, 2**64: 5})),
                         [{"-5": 1, "18446744073709551615": 2, "true": 3, "": 4, "18446744073709551616": 5}])
        for key, what in [(None, "null, which is"), (1.5, "a number with a fraction, which is"), (b"x", "bytes, which is")]:
            data = cbor2.dumps(["x", {"a": 1, key: 2}])
            self.assertEqual(self.refused(data), f"a map has a key that is {what} at byte 7; keys are texts, whole numbers or booleans")
        self.assertIn("a key that is a list, whose last part is at byte 2", self.refused(bytes.fromhex("a1810102")))
        self.assertIn("a key that is a time", self.refused(bytes.fromhex("a1c10102")))
        self.assertIn("a key that is a map or has a tag", self.refused(bytes.fromhex("a1a001")))
        self.assertEqual(self.decoded(bytes.fromhex("a17f61616162ff01")), [{"ab": 1}])

    def test_repeated_keys(self):
        self.assertEqual(self.refused(bytes.fromhex("82a2616101616102f6")), "a map has the key 'a' twice, again at byte 6")
        self.assertEqual(self.refused(bytes.fromhex("bf01f66131f6ff")), "a map has the key '1' twice, again at byte 4")
        self.assertEqual(self.refused(bytes.fromhex("bf01f601f6ff")), "the map whose last part is at byte 5 has the key '1' twice")

    def test_texts_that_are_not_utf8(self):
        self.assertEqual(self.refused(bytes.fromhex("8161ff")), "the text at byte 1 is not UTF-8")
        # Each chunk must be UTF-8.
        self.assertEqual(self.refused(bytes.fromhex("7f61c361a4ff")), "the text at byte 1 is not UTF-8")

    def test_what_is_not_well_formed(self):
        """RFC 8949, appendix F, and invalid values."""
        for data in ["1c", "1d", "1e", "1f", "3c", "3f", "5c", "7d", "9e", "bc", "dc", "df", "fc", "fd", "fe"]:
            self.assertEqual(self.refused(bytes.fromhex(data)), f"byte 0 is 0x{data}, with which no value begins")
        for data, number in [("e0", 0), ("f0", 16), ("f3", 19), ("f800", 0), ("f81f", 31), ("f8ff", 255), ("f814", 20)]:
            self.assertEqual(self.refused(b"\x81" + bytes.fromhex(data)), f"the simple value {number} at byte 1 has no meaning here")
        for data, at in [("ff", 0), ("81ff", 1), ("8200ff", 2), ("a1ff", 1), ("a100ff", 2), ("bf00ff", 2), ("bf000000ff", 4), ("c1ff", 1), ("9f81ff", 2)]:
            self.assertEqual(self.refused(bytes.fromhex(data)), f"the break at byte {at} ends nothing")
        for data in ["5f00ff", "5f21ff", "5f6100ff", "5f80ff", "5fa0ff", "5fc000ff", "5fe0ff", "7f4100ff", "5f5f4100ffff", "7f7f6100ffff", "7ff6ff"]:
            self.assertRegex(self.refused(bytes.fromhex(data)), "the chunk at byte 1 is not of the same kind|the simple value 0")

    def test_events_that_cannot_be_written(self):
        deep = nested(1, DEPTH)
        self.assertEqual(self.decoded(self.encoded(deep)), [deep])
        answer = self.encoder.row_typed([deep])
        self.assertEqual((answer["status"], answer["error"]), (host.FAILED, "the event is nested more deeply than 128 levels"))


class FunctionTests(CborTest):
    def test_exactly_one_value_is_decoded(self):
        decode = self.opened("function", "decode")
        self.assertEqual(self.decoded(bytes.fromhex("a1616105"), decode), {"a": 5})
        self.assertEqual(self.refused(bytes.fromhex("a161610500"), decode), "the value ends before byte 4, and 1 more bytes follow")
        self.assertEqual(self.refused(b"", decode), "there are no bytes, and so no value")
        self.assertEqual(decode.row(None, "text")["error"], "the argument of cbor.decode is not bytes")

    def test_encode_is_the_encoder(self):
        encode = self.opened("function", "encode")
        for value in self.values(100):
            event = self.as_event(value)
            self.assertEqual(encode.row_typed(None, event)["event"], self.encoded(event))


class HostileTests(CborTest):
    def test_every_truncation(self):
        self.truncate()

    def test_every_damaged_byte(self):
        self.damage()

    def test_bytes_at_random(self):
        self.fuzz()

    def test_deep_nesting(self):
        self.assertEqual(self.decoded(cbor2.dumps(nested(1, DEPTH))), [nested(1, DEPTH)])
        for part in [b"\x81", b"\xa1\x60", b"\x9f", b"\xbf\x60", b"\xc6"]:
            for count in [DEPTH + 1, 1000, 1_000_000]:
                self.assertEqual(self.refused(part * count), f"the value at byte {DEPTH * len(part)} is nested more deeply than 128 levels")

    def test_claimed_lengths(self):
        ends = [bytes([major << 5 | width]) + b"\xff" * 2 ** (width - 24) for major in (2, 3, 4, 5) for width in (24, 25, 26, 27)]
        self.claim([before + end + after for end in ends for before in [b"", b"\x82\x01", b"\xa1\x61a", b"\x5f", b"\x7f", (b"\x9b" + b"\xff" * 8) * 100]
                    for after in [b"", b"\x01" * 10]])

    def test_many_small_values(self):
        self.assertEqual(self.decoded(b"\xf6" * 100_000), [None] * 100_000)
        self.assertEqual(self.decoded(b""), [])
        self.assertEqual(self.decoded(b"\x7f" + b"\x60" * 100_000 + b"\xff"), [""])


@unittest.skipUnless(RXD, "set RXD to the program")
class InRxdTests(CborTest):
    def test_events_through_files(self):
        self.through_rxd()

    def test_requests_have_the_media_type(self):
        self.check_media_type("application/cbor")

    def test_what_is_refused_goes_to_the_errors_output(self):
        with open(self.path("in"), "wb") as file:
            file.write(cbor2.dumps({"a": 1}) + b"\x1c")
        errors, = self.run_rxd("""
plugins: { cbor: PLUGIN }
sources: { in: { file: { path: in, decode: cbor } } }
sinks:
  out: { from: in, stdout: { encode: ndjson } }
  errors: { from: in.errors, file: { path: errors, encode: ndjson } }
""", "errors")
        self.assertEqual(json.loads(errors)["error"], "byte 4 is 0x1c, with which no value begins")

    def test_functions_and_times(self):
        with open(self.path("in"), "w") as file:
            file.write('"oWFhggH2"\n')
        lines, = self.run_rxd("""
plugins: { cbor: PLUGIN }
sources: { in: { file: { path: in, decode: json } } }
sinks:
  out:
    from: in
    chain:
      - map: |-
          {"decoded": cbor.decode(base64.decode(event)),
           "early": cbor.encode(timestamp("0001-01-01T00:00:00Z")), "late": cbor.encode(timestamp("9999-12-31T23:59:59.999999999Z")),
           "again": cbor.decode(cbor.encode({"t": timestamp("2026-11-29T12:00:00.5Z"), "d": duration("1.5s"), "b": b"\\xff", "u": 18446744073709551615u}))}
    file: { path: lines, encode: ndjson }
""", "lines")
        first = json.loads(lines.splitlines()[0])
        self.assertEqual(first["decoded"], {"a": [1, None]})
        for name, text in [("early", "0001-01-01T00:00:00Z"), ("late", "9999-12-31T23:59:59.999999999Z")]:
            self.assertEqual(base64.b64decode(first[name]), b"\xc0" + cbor2.dumps(text))
        self.assertEqual(first["again"], {"t": "2026-11-29T12:00:00.5Z", "d": "1.5s", "b": "/w==", "u": 2**64 - 1})

    def test_keys_become_the_texts_that_json_has(self):
        with open(self.path("in"), "w") as file:
            file.write("1\n")
        self.run_rxd("""
plugins: { cbor: PLUGIN }
sources: { in: { file: { path: in, decode: json } } }
sinks:
  out: { from: in, chain: [ { map: '{5: "a", true: "b", "c": 18446744073709551615u}' } ], file: { path: out, encode: cbor } }
""")
        with open(self.path("out"), "rb") as file:
            data = file.read()
        self.assertEqual(cbor2.loads(data), {"5": "a", "true": "b", "c": 2**64 - 1})

    def test_the_example(self):
        run = subprocess.run([RXD, "test", os.path.join(ROOT, "pipelines", "devices.yaml")], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
