"""Tests of the plugin, with fastavro on the other side; in rxd if RXD names it."""
import base64
import datetime
import decimal
import http.server
import io
import json
import math
import os
import random
import resource
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time
import unittest
import uuid

import fastavro

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from format_test import LETTERS, FormatTest, nested, same  # noqa: E402
from plugin_test import RXD  # noqa: E402

PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "avro.so"))
SEED = int(os.environ.get("SEED", "20261129"))
COUNT = int(os.environ.get("COUNT", "400"))
MUTATIONS = int(os.environ.get("MUTATIONS", "1000"))
LEAST, MOST = -(2**63), 2**63 - 1
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


# ---- Schemas and values at random ----


class Making:
    def __init__(self, rng):
        self.rng, self.names = rng, 0

    def name(self):
        self.names += 1
        return f"n{self.names}"

    def schema(self, depth=0, in_union=False):
        rng = self.rng
        choice = rng.random()
        if depth > 3 or choice < 0.4:
            return rng.choice(PRIMITIVES[1:] if in_union else PRIMITIVES)
        if choice < 0.55:
            return {"type": "array", "items": self.schema(depth + 1)}
        if choice < 0.65:
            return {"type": "map", "values": self.schema(depth + 1)}
        if choice < 0.72:
            return {"type": "enum", "name": self.name(), "symbols": [f"s{i}" for i in range(rng.randint(1, 5))]}
        if choice < 0.78:
            return {"type": "fixed", "name": self.name(), "size": rng.choice([0, 1, 4, 16])}
        if choice < 0.88 and not in_union:
            return self.union(depth)
        return self.record(depth)

    def union(self, depth):
        branches, kinds = [], set()
        for _ in range(self.rng.randint(1, 4)):
            branch = self.rng.choice(["null", self.schema(depth + 1, True)])
            kind = branch if isinstance(branch, str) else branch["type"] if branch["type"] in ("array", "map") else branch["name"]
            if kind not in kinds:
                kinds.add(kind)
                branches.append(branch)
        return branches

    def record(self, depth):
        name = self.name()
        space = {"namespace": self.rng.choice(["a.b", "c"])} if self.rng.random() < 0.3 else {}
        fields = [{"name": f"f{i}", "type": self.schema(depth + 1)} for i in range(self.rng.randint(0, 6))]
        return {"type": "record", "name": name, **space, "fields": fields}


def text(rng):
    return "".join(rng.choice(LETTERS) for _ in range(rng.choice([0, 1, 5, 63, 64, 200])))


def value_of(rng, schema, depth=0, space=""):
    """A value, and as fastavro writes it: with the branches of unions named."""
    if isinstance(schema, list):
        branch = rng.choice(schema)
        value, given = value_of(rng, branch, depth, space)
        kind = branch if isinstance(branch, str) else branch["type"] if branch["type"] in ("array", "map") else full_name(branch, space)
        return value, (kind, given)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "null":
        return None, None
    if kind == "array":
        pairs = [value_of(rng, schema["items"], depth + 1, space) for _ in range(rng.choice([0, 1, 2, 3]) if depth else rng.choice([0, 1, 5, 70]))]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if kind == "map":
        pairs = {text(rng): value_of(rng, schema["values"], depth + 1, space) for _ in range(rng.choice([0, 1, 2, 3]))}
        return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}
    if kind == "record":
        inner = full_name(schema, space).rpartition(".")[0]
        pairs = {field["name"]: value_of(rng, field["type"], depth + 1, inner) for field in schema["fields"]}
        return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}
    made = {
        "boolean": lambda: rng.random() < 0.5,
        "int": lambda: rng.choice([0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -2**31, rng.randint(-2**31, 2**31 - 1)]),
        "long": lambda: rng.choice([0, 1, -1, 63, 64, -64, -65, LEAST, MOST, rng.randint(LEAST, MOST)]),
        "float": lambda: struct.unpack("<f", struct.pack("<f", rng.choice([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, rng.uniform(-1e9, 1e9)])))[0],
        "double": lambda: rng.choice([0.0, -0.0, math.inf, math.nan, rng.uniform(-1e9, 1e9), math.ldexp(rng.random(), rng.randint(-1000, 1000))]),
        "bytes": lambda: rng.randbytes(rng.choice([0, 1, 63, 64, 300])),
        "string": lambda: text(rng),
        "enum": lambda: rng.choice(schema["symbols"]),
        "fixed": lambda: rng.randbytes(schema["size"]),
    }[kind]()
    return made, made


def full_name(schema, space):
    space = schema.get("namespace", space)
    return space + "." + schema["name"] if space and "." not in schema["name"] else schema["name"]


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def contained(schema, values, codec="null", **more):
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), values, codec=codec, **more)
    return out.getvalue()


def number(value):
    """As Avro writes a whole number."""
    rest, made = (value << 1) ^ (value >> 63), b""
    rest &= 2**64 - 1
    while rest >= 0x80:
        made += bytes([rest & 0x7f | 0x80])
        rest >>= 7
    return made + bytes([rest])


class AvroTest(FormatTest):
    plugin, format = PLUGIN, "avro"

    def run(self, result=None):
        start = time.monotonic()
        super().run(result)
        if os.environ.get("TIMES"):
            print(f"    {time.monotonic() - start:.2f} s", flush=True)

    def setUp(self):
        super(FormatTest, self).setUp()
        self.rng = random.Random(SEED)
        self.library = host.Plugin(self.plugin)

    def reader(self, schema=None, **parameters):
        return self.opened("decoder", "avro", **({} if schema is None else {"schema": schema}), **parameters)

    def writer(self, schema, **parameters):
        return self.opened("encoder", "avro", schema=schema, **parameters)

    def file(self, name, content):
        with open(self.path(name), "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return self.path(name)

    def one(self, data, decoder):
        event, = self.decoded(data, decoder)
        return event

    def write(self, event, encoder):
        answer = encoder.row_typed(event)
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {str(event)[:300]}")
        return answer["event"]

    def unwritten(self, event, encoder):
        answer = encoder.row_typed(event)
        self.assertEqual(answer["status"], host.FAILED, str(answer["event"])[:300])
        return answer["error"]

    def problem(self, kind="decoder", **parameters):
        with self.assertRaises(host.Refused) as refused:
            self.library.open(kind, "avro", **parameters)
        return refused.exception.at, str(refused.exception)


class OtherSideTests(AvroTest):
    def test_values_at_random_in_both_directions(self):
        equal = 0
        for _ in range(COUNT):
            schema = Making(self.rng).schema()
            decoder, encoder = self.library.open("decoder", "avro", schema=schema), self.library.open("encoder", "avro", schema=schema)
            for _ in range(4):
                value, given = value_of(self.rng, schema)
                theirs = written(schema, given)
                self.assertTrue(same(self.one(theirs, decoder), value), f"{schema} {theirs.hex()}")
                ours = self.write(value, encoder)
                equal += ours == theirs
                # A union may have a branch that fits as well.
                found = fastavro.schemaless_reader(io.BytesIO(ours), fastavro.parse_schema(schema))
                self.assertTrue(equal_values(found, value), f"{schema}\n{found}\n{value}")
            decoder.close()
            encoder.close()
        print(f"\n    {equal} of {COUNT * 4} are equal byte for byte", flush=True)
        self.assertGreater(equal, COUNT * 3)

    def test_containers_of_all_codecs(self):
        decoder = self.reader(framing="container")
        for codec in ["null", "deflate", "zstandard", "snappy"]:
            for _ in range(COUNT // 20):
                schema = Making(self.rng).schema()
                pairs = [value_of(self.rng, schema) for _ in range(self.rng.choice([0, 1, 30]))]
                data = contained(schema, [pair[1] for pair in pairs], codec, sync_interval=self.rng.choice([10, 1000, 16000]))
                self.assertTrue(same(self.decoded(data, decoder), [pair[0] for pair in pairs]), f"{codec} {schema}")

    def test_fingerprints(self):
        for _ in range(COUNT):
            schema = Making(self.rng).schema()
            canonical = fastavro.schema.to_parsing_canonical_form(schema)
            fingerprint = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
            value, given = value_of(self.rng, schema)
            encoder = self.library.open("encoder", "avro", schema=schema, framing="singleObject")
            self.assertEqual(self.write(value, encoder)[:10], b"\xc3\x01" + fingerprint, canonical)
            encoder.close()
            decoder = self.library.open("decoder", "avro", schema=schema, framing="singleObject")
            self.assertTrue(same(self.one(b"\xc3\x01" + fingerprint + written(schema, given), decoder), value))
            decoder.close()

    def test_resolution_at_random(self):
        """A writer's schema that was changed: read, or refused, as fastavro does."""
        read = refused = 0
        for _ in range(COUNT * 2):
            making = Making(self.rng)
            writer = making.record(1)
            reader = self.changed(json.loads(json.dumps(writer)))
            value, given = value_of(self.rng, writer)
            data = written(writer, given)
            try:
                expected = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(writer), fastavro.parse_schema(reader))
            except Exception:  # noqa: BLE001 (of many classes)
                expected = None
            with open(self.path("writer"), "w") as file:
                json.dump(writer, file)
            try:
                decoder = self.library.open("decoder", "avro", schema=reader, writerSchemas=[self.path("writer")])
            except host.Refused:
                self.assertIsNone(expected, f"{writer}\n{reader}")
                refused += 1
                continue
            answer = decoder.row_of_bytes(data)
            decoder.close()
            if expected is None:
                self.assertEqual(answer["status"], host.FAILED, f"{writer}\n{reader}\n{value}\n{answer}")
                refused += 1
            else:
                self.assertEqual(answer["status"], host.OK, f"{writer}\n{reader}\n{value}\n{answer}")
                self.assertTrue(equal_values(expected, answer["event"][0]), f"{writer}\n{reader}\n{expected}\n{answer}")
                read += 1
        print(f"\n    {read} values read by another schema, {refused} refused", flush=True)
        self.assertGreater(min(read, refused), COUNT // 10)

    def changed(self, schema):
        """A schema with another field, order, name or type."""
        rng = self.rng
        fields = schema["fields"]
        for field in fields:
            choice = rng.random()
            if choice < 0.15 and isinstance(field["type"], str):
                field["type"] = {"int": rng.choice(["long", "float", "double"]), "long": rng.choice(["double", "float"]), "float": "double", "string": "bytes"}.get(
                    field["type"], field["type"])
            elif choice < 0.25 and not isinstance(field["type"], list):
                field["type"] = ["null", field["type"]] if field["type"] != "null" else ["string", "null"]
            elif choice < 0.3:
                field["aliases"], field["name"] = [field["name"]], field["name"] + "_new"
            elif choice < 0.33 and isinstance(field["type"], dict) and field["type"]["type"] == "enum":
                field["type"]["symbols"] = field["type"]["symbols"][1:] + ["other"]
            elif choice < 0.36:
                field["type"] = "int"
        if fields and rng.random() < 0.3:
            fields.pop(rng.randrange(len(fields)))
        if rng.random() < 0.4:
            fields.append(rng.choice([{"name": "more", "type": "int", "default": 5}, {"name": "more", "type": ["null", "string"], "default": None},
                                      {"name": "more", "type": {"type": "array", "items": "string"}, "default": ["a", "b"]},
                                      {"name": "more", "type": {"type": "record", "name": "d", "fields": [{"name": "x", "type": "double"}]}, "default": {"x": 1.5}},
                                      {"name": "more", "type": "long"}]))
        rng.shuffle(fields)
        return schema


def equal_values(left, right):
    """`same`, with other orders of members, and of a record's fields."""
    if isinstance(left, dict) and isinstance(right, dict):
        return sorted(left) == sorted(right) and all(equal_values(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal_values, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return same(left, right) or struct.pack("<f", left) == struct.pack("<f", right) if abs(left) < 3e38 and abs(right) < 3e38 else same(left, right)
    if isinstance(left, (int, float)) and isinstance(right, (int, float)) and not isinstance(left, bool) and not isinstance(right, bool):
        return float(left) == float(right) or struct.pack("<f", left) == struct.pack("<f", right)
    return same(left, right)


class SchemaTests(AvroTest):
    def test_what_is_refused(self):
        for schema, reason in [
            ({"type": "strange"}, "the schema has no type 'strange'"), ("strange", "the schema has no type 'strange'"), ([], "a union of the schema is empty"),
            (["null", ["int"]], "a union of the schema has a union in it"), (["int", "int"], "a union of the schema has the type 'int' twice"), (5, "a type of the schema is neither"),
            ({"name": "x"}, "an object of the schema has no 'type'"), ({"type": "record", "name": "a b", "fields": []}, "record of the schema has the name 'a b'"),
            ({"type": "record", "name": "a"}, "the record 'a' has no fields"), ({"type": "enum", "name": "a"}, "the enum 'a' has no symbols"),
            ({"type": "fixed", "name": "a", "size": -1}, "the size of 'a' is not"), ({"type": "fixed", "name": "a", "size": 2**40}, "the size of 'a' is not"),
            ({"type": "record", "name": "a", "fields": [{"name": "x", "type": "int"}] * 2}, "the record 'a' has the field 'x' twice"),
            ({"type": "enum", "name": "a", "symbols": ["x", "x"]}, "the enum 'a' has the symbol 'x' twice"),
            ({"type": "enum", "name": "a", "symbols": ["x"], "default": "y"}, "the default 'y' of the enum 'a' is none of its symbols"),
            ({"type": "record", "name": "a", "fields": [{"name": "x", "type": "int", "default": "y"}]}, "the default of 'a.x' does not fit its type"),
            ({"type": "record", "name": "a", "fields": [{"name": "x", "type": {"type": "record", "name": "a", "fields": []}}]}, "the schema has 'a' twice"),
        ]:
            at, problem = self.problem(schema=schema)
            self.assertEqual(at, "schema")
            self.assertIn(reason, problem)
        deep = "int"
        for _ in range(100):
            deep = {"type": "array", "items": deep}
        self.assertIn("nested more deeply", self.problem(schema=deep)[1])
        self.assertEqual(self.problem(schemaFile=self.file("bad", "{"))[1], "the schema is not JSON")
        self.assertEqual(self.problem(schemaFile="/nowhere"), ("schemaFile", "'/nowhere' cannot be read: No such file or directory"))
        self.assertEqual(self.problem(), ("", "needs 'schema' or 'schemaFile'"))
        self.assertEqual(self.problem(schema="int", schemaFile="x")[0], "schemaFile")
        self.assertEqual(self.problem(schema="int", writerSchemas=[self.file("w", '"string"')]), ("writerSchemas.0", "the writer's string does not fit the reader's int"))
        self.assertEqual(self.problem(framing="confluent")[0], "registry")
        self.assertEqual(self.problem(framing="confluent", registry="ftp://x"), ("registry", "must begin with http:// or https://"))
        self.assertEqual(self.problem(framing="confluent", registry="http://a:b@x")[0], "registry")
        self.assertEqual(self.problem("encoder", framing="confluent", schema="int")[0], "schemaId")

    def test_names_in_namespaces(self):
        schema = {"type": "record", "name": "a.b.R", "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["x"]}}, {"name": "again", "type": "E"}, {"name": "full", "type": "a.b.E"},
            {"name": "inner", "type": {"type": "record", "name": "I", "namespace": "c", "fields": [{"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}}]}},
            {"name": "fixed", "type": "c.F"}, {"name": "next", "type": ["null", "R"]}]}
        value = {"e": "x", "again": "x", "full": "x", "inner": {"f": b"1"}, "fixed": b"2", "next": None}
        value = {**value, "next": value}
        self.assertEqual(self.one(written(schema, value), self.reader(schema)), value)
        self.assertEqual(self.write(value, self.writer(schema)), written(schema, value))

    def test_defaults_of_all_types(self):
        fields = [("null", None, None), ("boolean", True, True), ("int", -5, -5), ("long", 2**40, 2**40), ("float", 1.5, 1.5), ("double", 1, 1.0), ("bytes", "\u00ff\u0000a", b"\xff\0a"),
                  ("string", "ä", "ä"), ({"type": "array", "items": "int"}, [1, 2], [1, 2]), ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}), (["string", "null"], "x", "x"),
                  ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b"), ({"type": "fixed", "name": "F", "size": 2}, "\u00fe\u00ff", b"\xfe\xff"),
                  ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 3}]}, {}, {"x": 3}),
                  ({"type": "long", "logicalType": "timestamp-millis"}, 5, {"$timestamp": 5_000_000})]
        schema = {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": kind, "default": default} for i, (kind, default, _) in enumerate(fields)]}
        expected = {f"f{i}": value for i, (_, _, value) in enumerate(fields)}
        decoder = self.reader(schema, writerSchemas=[self.file("writer", {"type": "record", "name": "R", "fields": []})])
        self.assertEqual(self.one(b"", decoder), expected)
        self.assertEqual(self.one(self.write({}, self.writer(schema)), self.reader(schema)), expected)


class LogicalTests(AvroTest):
    def logical(self, kind, name, **more):
        return {"type": kind, "logicalType": name, **more}

    def both(self, schema, given, event):
        """fastavro writes `given`; the plugin reads `event`, and writes the same bytes."""
        data = written(schema, given)
        self.assertEqual(self.one(data, self.reader(schema)), event)
        ours = self.write(event, self.writer(schema))
        if schema["type"] == "bytes":  # fastavro writes some decimals with a byte that is not needed
            self.assertEqual(fastavro.schemaless_reader(io.BytesIO(ours), fastavro.parse_schema(schema)), given)
            self.assertLessEqual(len(ours), len(data))
        else:
            self.assertEqual(ours, data)

    def test_times(self):
        utc = datetime.timezone.utc
        for moment in [datetime.datetime(2026, 11, 29, 12, 30, 1, 123000, utc), datetime.datetime(1970, 1, 1, tzinfo=utc), datetime.datetime(1907, 2, 3, 4, 5, 6, 789000, utc)]:
            nanoseconds = ((moment - datetime.datetime(1970, 1, 1, tzinfo=utc)) // datetime.timedelta(microseconds=1)) * 1000
            for name in ["timestamp-millis", "timestamp-micros"]:
                self.both(self.logical("long", name), moment, {"$timestamp": nanoseconds})
            local = moment.replace(tzinfo=None)
            shown = local.isoformat(timespec="seconds") + (f".{local.microsecond:06}000" if local.microsecond else "")
            for name in ["local-timestamp-millis", "local-timestamp-micros"]:
                self.both(self.logical("long", name), local, shown)
        for shown, milliseconds in [("9999-12-31T23:59:59.999000000Z", 253402300799999), ("0001-01-01T00:00:00Z", -62135596800000)]:
            self.both(self.logical("long", "timestamp-millis"), milliseconds, shown)
        reader = self.reader(self.logical("long", "timestamp-millis"))
        self.assertIn("the time is not between the years 1 and 9999", self.refused(number(253402300800000), reader))
        self.assertIn("the time is not between", self.refused(number(LEAST), reader))
        nanos = self.logical("long", "timestamp-nanos")
        self.assertEqual(self.one(number(-5), self.reader(nanos)), {"$timestamp": -5})
        self.assertEqual(self.write({"$timestamp": -5}, self.writer(nanos)), number(-5))
        millis = self.writer(self.logical("long", "timestamp-millis"))
        self.assertEqual(self.write({"$timestamp": -1}, millis), number(-1))
        self.assertEqual(self.write("2026-11-29T12:00:00+01:00", millis), number(1795950000000))
        self.assertEqual(self.write(5, millis), number(5))
        self.assertEqual(self.unwritten("noon", millis), "the text is not a time")
        self.assertEqual(self.unwritten("9999-12-31T23:59:59Z", self.writer(nanos)), "the number is beyond those of long")

    def test_times_of_a_day(self):
        self.both(self.logical("int", "time-millis"), datetime.time(12, 30, 1, 123000), {"$duration": 45001123 * 10**6})
        self.both(self.logical("long", "time-micros"), datetime.time(23, 59, 59, 999999), {"$duration": 86399999999 * 1000})
        self.assertEqual(self.write("12:30:01.5", self.writer(self.logical("int", "time-millis"))), number(45001500))

    def test_dates(self):
        for day in [datetime.date(2026, 11, 29), datetime.date(1970, 1, 1), datetime.date(1969, 12, 31), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]:
            self.both(self.logical("int", "date"), day, day.isoformat())
        encoder = self.writer(self.logical("int", "date"))
        self.assertEqual(self.write({"$timestamp": -1}, encoder), number(-1))
        self.assertEqual(self.unwritten("2026-02-30", encoder), "the text is not a date such as 2026-11-29")
        self.assertIn("the time is not between", self.refused(number(2**31 - 1), self.reader(self.logical("int", "date"))))

    def test_decimals(self):
        decimal.getcontext().prec = 2000
        for scale in [0, 2, 5, 20]:
            schemas = [self.logical("bytes", "decimal", precision=60, scale=scale), {**self.logical("fixed", "decimal", precision=60, scale=scale), "name": "F", "size": 30}]
            for whole in [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**9, -10**9, 10**18, 10**59, -(10**59), self.rng.randint(-10**59, 10**59), self.rng.randint(-10**9, 10**9)]:
                given = decimal.Decimal(whole).scaleb(-scale)
                for schema in schemas:
                    self.both(schema, given, f"{given:f}")
        wide = self.logical("bytes", "decimal", precision=1500, scale=700)
        for _ in range(20):
            whole = self.rng.randint(-10**1499, 10**1499)
            self.both(wide, decimal.Decimal(whole).scaleb(-700), f"{decimal.Decimal(whole).scaleb(-700):f}")
        encoder = self.writer(self.logical("bytes", "decimal", precision=5, scale=2))
        decoder = self.reader(self.logical("bytes", "decimal", precision=5, scale=2))
        for given, shown in [("1.5", "1.50"), (7, "7.00"), (-1.25, "-1.25"), ("-0", "0.00"), ("1e2", "100.00"), ("12.3400", "12.34"), ("999.99", "999.99"), (".5", "0.50"), ("1E-2", "0.01")]:
            self.assertEqual(self.one(self.write(given, encoder), decoder), shown)
        for bad, reason in [("1.234", "the decimal has more than 2 digits behind the point"), ("1000", "the decimal has more than 5 digits"), ("x", "the text is not a decimal"),
                            ("", "the text is not a decimal"), ("1e", "the text is not a decimal"), ("1e9999", "the decimal has more than 5 digits"), ("1.2.3", "the text is not a decimal"),
                            (True, "a boolean does not fit bytes"), ("9" * 3000, "the decimal has more than 2400 digits")]:
            self.assertEqual(self.unwritten(bad, encoder), reason)
        small = self.writer({**self.logical("fixed", "decimal", precision=9, scale=0), "name": "F", "size": 1})
        self.assertEqual(self.write("-128", small), b"\x80")
        self.assertEqual(self.unwritten("128", small), "the decimal needs 2 bytes, and the fixed has 1")
        self.assertIn("at most 1024 are read", self.refused(number(1025) + bytes(1025), decoder))
        self.assertEqual(self.one(b"\0", decoder), "0.00")

    def test_uuids_and_durations(self):
        one = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
        self.both(self.logical("string", "uuid"), one, str(one))
        fixed = {**self.logical("fixed", "uuid"), "name": "U", "size": 16}
        self.assertEqual(self.one(one.bytes, self.reader(fixed)), str(one))
        self.assertEqual(self.write(str(one), self.writer(fixed)), one.bytes)
        self.assertEqual(self.unwritten("1234", self.writer(fixed)), "the text is not a UUID")
        duration = {**self.logical("fixed", "duration"), "name": "D", "size": 12}
        event = {"months": 1, "days": 2, "milliseconds": 2**32 - 1}
        data = struct.pack("<III", 1, 2, 2**32 - 1)
        self.assertEqual(self.one(data, self.reader(duration)), event)
        self.assertEqual(self.write(event, self.writer(duration)), data)
        self.assertIn("a duration of Avro needs", self.unwritten({"months": 1}, self.writer(duration)))

    def test_logical_types_that_are_none(self):
        for schema in [self.logical("bytes", "decimal"), self.logical("bytes", "decimal", precision=2, scale=3), self.logical("bytes", "unknown"),
                       {**self.logical("fixed", "duration"), "name": "D", "size": 2}]:
            data = b"\x04ab" if schema["type"] == "bytes" else b"ab"
            self.assertEqual(self.one(data, self.reader(schema)), b"ab")
        self.assertEqual(self.one(number(5), self.reader(self.logical("long", "date"))), 5)

    def test_unions_of_them(self):
        schema = ["null", self.logical("long", "timestamp-micros"), "string", "double"]
        encoder = self.writer(schema)
        for event, branch in [(None, 0), ({"$timestamp": 10**9}, 1), ("text", 2), (1.5, 3), (7, 3)]:
            self.assertEqual(self.write(event, encoder)[0], branch * 2)


class EncoderTests(AvroTest):
    schema = {"type": "record", "name": "shop.Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}, {"name": "count", "type": "int", "default": 1}]}}},
        {"name": "labels", "type": {"type": "map", "values": "int"}, "default": {}}, {"name": "note", "type": ["null", "string"]},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}, "default": "ab"}]}

    def test_what_does_not_fit(self):
        encoder = self.writer(self.schema)
        good = {"id": 1, "state": "OPEN", "items": [{"name": "a"}]}
        self.assertEqual(self.one(self.write(good, encoder), self.reader(self.schema)),
                         {"id": 1, "state": "OPEN", "items": [{"name": "a", "count": 1}], "labels": {}, "note": None, "code": b"ab"})
        for change, reason in [
            ({"id": "1"}, "id: a text does not fit long"), ({"id": 2**63}, "id: the number is beyond those of long"), ({"id": 0.5}, "id: the number is not whole, and the type is long"),
            ({"state": "SENT"}, "state: the enum shop.State has no symbol 'SENT'"), ({"state": 1}, "state: a whole number does not fit enum shop.State"),
            ({"items": {}}, "items: an object does not fit array"), ({"items": [{"name": "a"}, {"name": "b", "count": 2**31}]}, "items[1].count: the number is beyond those of int"),
            ({"items": [{}]}, "items[0].name: the event does not have the field, and it has no default"),
            ({"items": [{"name": "a", "other": 1}]}, "items[0]: the record shop.Item has no field 'other'"), ({"labels": {"x": "y"}}, "labels.x: a text does not fit int"),
            ({"labels": []}, "labels: a list does not fit map"), ({"note": 5}, "note: a whole number fits no branch of the union"),
            ({"code": b"abc"}, "code: there are 3 bytes, and the fixed has 2"), ({"code": "§"}, "code: the text is not base64, and the type is fixed"),
            ({"more": 1}, "the record shop.Order has no field 'more'"),
        ]:
            self.assertEqual(self.unwritten({**good, **change}, encoder), reason)
        self.assertEqual(self.unwritten([], encoder), "a list does not fit record shop.Order")
        self.write({**good, "more": 1}, self.opened("encoder", "avro", schema=self.schema, unknown="ignore"))
        self.assertEqual(self.write({**good, "code": base64.b64encode(b"xy").decode()}, encoder)[-2:], b"xy")

    def test_branches_of_unions(self):
        a = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}]}
        b = {"type": "record", "name": "B", "fields": [{"name": "x", "type": "int"}, {"name": "z", "type": "int"}]}
        schema = ["int", "long", "double", "boolean", "bytes", {"type": "enum", "name": "E", "symbols": ["s"]}, "string", a, b, {"type": "map", "values": "int"},
                  {"type": "array", "items": "int"}, "null"]
        encoder = self.writer(schema)
        for event, branch in [(1, 0), (2**40, 1), (2.5, 2), (True, 3), (b"x", 4), ("s", 5), ("t", 6), ({"x": 1}, 7), ({"x": 1, "z": 2}, 8), ({"q": 1}, 9), ([1], 10), (None, 11), (2**63, 2)]:
            self.assertEqual(self.write(event, encoder)[0], branch * 2, event)

    def test_real_numbers(self):
        for kind, form in [("float", "<f"), ("double", "<d")]:
            encoder = self.writer(kind)
            for event, value in [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf), (5, 5.0), (2**64 - 1, 2.0**64), (-0.0, -0.0)]:
                self.assertEqual(self.write(event, encoder), struct.pack(form, value))
        self.assertEqual(self.unwritten(1e39, self.writer("float")), "the number is beyond those of float")

    def test_deep_events(self):
        schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
        event = {"r": None}
        for _ in range(62):
            event = {"r": event}
        self.assertEqual(self.one(self.write(event, self.writer(schema)), self.reader(schema)), event)
        for _ in range(5):
            event = {"r": event}
        self.assertIn("nested more deeply than 128 levels", self.unwritten(event, self.writer(schema)))


class HostileTests(AvroTest):
    def schemas(self):
        return [EncoderTests.schema, {"type": "array", "items": ["null", "long", "string", {"type": "map", "values": "bytes"}]}] + [Making(self.rng).record(0) for _ in range(20)]

    def test_every_truncation(self):
        for schema in self.schemas():
            decoder = self.reader(schema)
            for _ in range(5):
                data = written(schema, value_of(self.rng, schema)[1])
                for end in range(min(len(data), 400)):
                    self.refused(data[:end], decoder)

    def test_mutated_values(self):
        accepted = checked = 0
        schemas = self.schemas()
        for schema in schemas:
            decoder, encoder, parsed = self.reader(schema), self.writer(schema), fastavro.parse_schema(schema)
            for _ in range(MUTATIONS // len(schemas) + 1):
                data = bytearray(written(schema, value_of(self.rng, schema)[1]))
                for _ in range(self.rng.randint(1, 4)):
                    at, count = self.rng.randrange(len(data) + 1), self.rng.randint(0, 3)
                    data[at:at + count] = self.rng.randbytes(count if self.rng.random() < 0.8 else self.rng.randint(0, 3))
                answer = decoder.row_of_bytes(bytes(data))
                checked += 1
                if answer["status"] != host.OK:
                    self.assertTrue(answer["error"])
                    continue
                accepted += 1
                event, = answer["event"]
                self.assertTrue(equal_values(fastavro.schemaless_reader(io.BytesIO(bytes(data)), parsed), event), bytes(data).hex())
                self.assertTrue(equal_values(self.one(self.write(event, encoder), decoder), event))
        print(f"\n    {checked} mutated values, {accepted} read", flush=True)
        self.assertGreater(accepted, checked // 20)

    def test_mutated_containers(self):
        decoder = self.reader(framing="container")
        read = 0
        for i in range(MUTATIONS // 2):
            codec = ["null", "deflate", "zstandard", "snappy"][i % 4]
            data = bytearray(contained(EncoderTests.schema, [{"id": i, "state": "OPEN", "items": [{"name": "a" * 20, "count": 1}], "labels": {}, "note": None, "code": b"ab"}] * 5, codec))
            for _ in range(self.rng.randint(1, 3)):
                data[self.rng.randrange(len(data))] = self.rng.randrange(256)
            read += decoder.row_of_bytes(bytes(data))["status"] == host.OK
        print(f"\n    {MUTATIONS // 2} mutated containers, {read} read", flush=True)

    def test_bytes_at_random(self):
        decoders = [self.reader(schema) for schema in self.schemas()]
        for _ in range(3000):
            self.rng.choice(decoders).row_of_bytes(self.rng.randbytes(self.rng.randint(0, 40)))

    def test_claimed_lengths(self):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        for kind in ["bytes", "string", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, {"type": "array", "items": "string"}]:
            decoder = self.reader(kind)
            for claimed in [1, 100, 2**31, 2**40, MOST, -1, -100, LEAST]:
                self.refused(number(claimed), decoder)
                if abs(claimed) > 1:
                    self.refused(number(claimed) + number(claimed), decoder)
        nulls = self.reader({"type": "array", "items": "null"})
        for claimed in [10**7, MOST, LEAST + 1]:
            size = b"" if claimed > 0 else number(0)
            self.assertIn("too many values without bytes", self.refused(number(claimed) + size + b"\0", nulls))
        self.assertEqual(len(self.one(number(50_000) + b"\0", nulls)), 50_000)
        empty = self.reader({"type": "array", "items": {"type": "record", "name": "R", "fields": []}})
        self.assertIn("too many values", self.refused(number(MOST), empty))
        many = self.reader({"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long", "default": 1}]}},
                           writerSchemas=[self.file("w", {"type": "array", "items": {"type": "record", "name": "R", "fields": []}})])
        self.assertIn("too many values", self.refused(number(10**7), many))
        skipped = self.reader({"type": "record", "name": "R", "fields": []},
                              writerSchemas=[self.file("v", {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]})])
        self.assertIn("too many values", self.refused(number(MOST), skipped))
        self.assertLess(time.process_time() - start, 20 if os.environ.get("SANITIZE") else 8)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 2_000_000 if os.environ.get("SANITIZE") else 400_000, "KiB")

    def test_recursion(self):
        self.assertIn("nested more deeply than 128 levels", self.refused(b"", self.reader({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]})))
        chain = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
        self.assertIn("nested more deeply", self.refused(b"\x02" * 1_000_000, self.reader(chain)))
        lists = {"type": "record", "name": "R", "fields": [{"name": "r", "type": {"type": "array", "items": "R"}}]}
        self.assertIn("nested more deeply", self.refused(b"\x02" * 1_000_000, self.reader(lists)))
        skipped = self.reader({"type": "record", "name": "O", "fields": []}, writerSchemas=[self.file("w", {"type": "record", "name": "O", "fields": [{"name": "c", "type": chain}]})])
        self.assertIn("nested more deeply", self.refused(b"\x02" * 1_000_000, skipped))

    def test_what_is_no_value(self):
        for kind, data, reason in [("boolean", b"\2", "a boolean is 2"), ("int", number(2**31), "has more than 32 bits"), ("long", b"\xff" * 9 + b"\2", "more than 64 bits"),
                                   ("long", b"\x80" * 20, "more than 64 bits"), (["null"], number(1), "the union has no branch 1"), (["null"], number(-1), "no branch -1"),
                                   ({"type": "enum", "name": "E", "symbols": ["a"]}, number(1), "the enum has no symbol 1"), ("string", b"\2\xff", "at byte 1: the string is not UTF-8"),
                                   ({"type": "map", "values": "null"}, number(2) + b"\2a\2a\0", "the map has the key 'a' twice"), ("int", b"\2\2", "1 bytes follow the value"),
                                   ({"type": "map", "values": "null"}, number(1) + b"\2\xff\0", "the key is not UTF-8")]:
            self.assertIn(reason, self.refused(data, self.reader(kind)))

    def test_bombs(self):
        decoder = self.reader(framing="container", limit="1MiB")
        start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for codec in ["deflate", "zstandard", "snappy"]:
            fits = contained("bytes", [b"a" * (2**20 - 3)], codec)
            self.assertEqual(len(self.decoded(fits, decoder)[0]), 2**20 - 3, codec)
            self.assertIn("more than 1048576 bytes uncompressed, the 'limit'", self.refused(contained("bytes", [bytes(2**20 - 2)], codec), decoder), codec)
            self.assertIn("the 'limit'", self.refused(contained("bytes", [bytes(50 * 2**20)], codec), decoder))
            self.assertIn("the 'limit'", self.refused(contained("bytes", [b"a" * 1000] * 2000, codec, sync_interval=10_000), decoder))
        head = contained("bytes", [], "snappy")
        lie = b"\xff\xff\x03" + b"\0" * 5  # claims 65,535 bytes
        self.assertIn("which its", self.refused(head + number(1) + number(len(lie)) + lie + head[-16:], decoder))
        nulls = contained({"type": "array", "items": "null"}, [[]])
        head, sync = nulls[:-16 - 3], nulls[-16:]
        block = number(1) + number(len(number(50_000) + b"\0")) + number(50_000) + b"\0" + sync
        self.assertIn("too many values", self.refused(head + block * 50, decoder))
        self.assertLess(time.process_time() - start, 20 if os.environ.get("SANITIZE") else 8)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 2_000_000 if os.environ.get("SANITIZE") else 500_000, "KiB")

    def test_broken_containers(self):
        decoder = self.reader(framing="container")
        for codec in ["null", "deflate", "zstandard", "snappy"]:
            data = contained("string", ["a" * 50, "b" * 50], codec)
            ends_well = {len(contained("string", [], codec))}
            for end in range(len(data)):
                if end not in ends_well:
                    self.refused(data[:end], decoder)
            self.assertIn("does not end with the marker of the container", self.refused(data[:-1] + b"x", decoder))
        data = contained("string", ["a" * 50], "snappy")
        self.assertIn("the checksum of the block is wrong", self.refused(data[:-17] + bytes([data[-17] ^ 1]) + data[-16:], decoder))
        self.assertIn("does not begin as a container does", self.refused(b"Obj\2" + data[4:], decoder))
        self.assertIn("the container has the codec 'bzip2'", self.refused(contained("string", ["a"], "bzip2"), decoder))
        out = contained("string", ["a"])
        at = out.index(b"\"string\"")
        self.assertEqual(self.refused(out[:at] + b"\"strung\"" + out[at + 8:], decoder), "the schema has no type 'strung'")


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        status, body = self.server.answers.get(self.path, (404, {"error_code": 40403}))
        if callable(body):
            body = body()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # the other side has had enough


class Server(http.server.ThreadingHTTPServer):
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)  # without a question about the name of the machine
        self.server_name, self.server_port = self.server_address[:2]


class RegistryTests(AvroTest):
    def serve(self, answers, context=None):
        server = Server(("127.0.0.1", 0), Registry)
        server.answers, server.asked = answers, []
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        server.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
        return server

    def message(self, schema_id, data):
        return b"\0" + schema_id.to_bytes(4, "big") + data

    def test_schemas_are_fetched_once(self):
        schemas = {i: {"type": "record", "name": "R", "fields": [{"name": f"f{j}", "type": "long"} for j in range(i)]} for i in range(1, 40)}
        server = self.serve({f"/schemas/ids/{i}": (200, {"schema": json.dumps(schema)}) for i, schema in schemas.items()})
        decoder = self.reader(framing="confluent", registry=server.url + "/")
        for _ in range(3):
            for i in self.rng.sample(list(schemas), len(schemas)):
                self.assertEqual(self.one(self.message(i, bytes(range(0, 2 * i, 2))), decoder), {f"f{j}": j for j in range(i)})
        self.assertEqual(sorted(path for path, _ in server.asked), sorted(f"/schemas/ids/{i}" for i in schemas))

    def test_values_are_resolved_to_the_schema_of_the_file(self):
        server = self.serve({"/schemas/ids/1": (200, {"schema": '{"type": "record", "name": "x.R", "fields": [{"name": "a", "type": "int"}, {"name": "old", "type": "string"}]}', "schemaType": "AVRO"})})
        reader = {"type": "record", "name": "R", "fields": [{"name": "new", "type": "string", "default": "-"}, {"name": "a", "type": "double"}]}
        decoder = self.reader(reader, framing="confluent", registry=server.url)
        self.assertEqual(self.one(self.message(1, number(5) + b"\2x"), decoder), {"new": "-", "a": 5.0})

    def test_user_and_password(self):
        server = self.serve({"/schemas/ids/1": (200, {"schema": '"int"'})})
        decoder = self.reader(framing="confluent", registry=server.url, user="me", password="pass:word")
        self.one(self.message(1, b"\2"), decoder)
        self.assertEqual(server.asked, [("/schemas/ids/1", "Basic " + base64.b64encode(b"me:pass:word").decode())])

    def test_https(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.path("key"), "-out", self.path("cert"), "-days", "2", "-subj", "/CN=127.0.0.1",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("cert"), self.path("key"))
        server = self.serve({"/schemas/ids/1": (200, {"schema": '"int"'})}, context)
        self.assertEqual(self.one(self.message(1, b"\2"), self.reader(framing="confluent", registry=server.url, caFile=self.path("cert"))), 1)
        self.assertIn("the registry cannot be reached: SSL", self.refused(self.message(1, b"\2"), self.reader(framing="confluent", registry=server.url)))

    def test_what_the_registry_cannot_answer(self):
        server = self.serve({"/schemas/ids/1": (200, b"{"), "/schemas/ids/2": (200, {}), "/schemas/ids/3": (200, {"schema": "message M {}", "schemaType": "PROTOBUF"}),
                             "/schemas/ids/4": (200, {"schema": '"x"', "references": [{"name": "x"}]}), "/schemas/ids/5": (200, {"schema": "{"}), "/schemas/ids/6": (200, {"schema": '"x"'}),
                             "/schemas/ids/8": (500, {}), "/schemas/ids/9": (200, b"x" * (5 << 20))})
        decoder = self.reader(framing="confluent", registry=server.url, timeout="60s")
        reasons = {1: "the answer of the registry is not JSON", 2: "has no schema", 3: "the schema is of the type PROTOBUF", 4: "the schema refers to others", 5: "the schema is not JSON",
                   6: "is not valid", 7: "the status 404", 8: "the status 500", 9: "more than 4 MiB"}
        for _ in range(3):
            for schema_id, reason in reasons.items():
                self.assertIn(reason, self.refused(self.message(schema_id, b"\2"), decoder))
        self.assertEqual(sum(path == "/schemas/ids/7" for path, _ in server.asked), 1)
        # Messages with numbers that there are not do not become a flood of requests.
        for schema_id in range(100, 2000):
            self.refused(self.message(schema_id, b"\2"), decoder)
        self.assertLess(len(server.asked), 60)  # ten within ten seconds
        self.assertIn("the registry was asked 10 times in vain within 10 s", self.refused(self.message(5000, b""), decoder))

    def test_no_registry(self):
        server = self.serve({"/schemas/ids/1": (200, lambda: time.sleep(3) or {})})
        decoder = self.reader(framing="confluent", registry=server.url, timeout="200ms")
        start = time.monotonic()
        self.assertIn("the registry cannot be reached: ", self.refused(self.message(1, b"\2"), decoder))
        self.assertLess(time.monotonic() - start, 2)
        decoder = self.reader(framing="confluent", registry="http://127.0.0.1:1")
        self.assertIn("the schema 1: the registry cannot be reached: ", self.refused(self.message(1, b"\2"), decoder))
        self.assertIn("too short for the number of a schema", self.refused(b"\0\0\0\0", decoder))
        self.assertIn("the first byte is not 0", self.refused(b"\1\0\0\0\0", decoder))

    def test_encoder(self):
        server = self.serve({"/subjects/a%2Fb-value/versions/latest": (200, {"id": 300, "schema": '{"type": "array", "items": "int"}', "version": 3})})
        encoder = self.opened("encoder", "avro", framing="confluent", registry=server.url, subject="a/b-value")
        self.assertEqual(self.write([1], encoder), self.message(300, b"\2\2\0"))
        self.assertEqual(self.write(1, self.writer("int", framing="confluent", schemaId=2**32 - 1)), self.message(2**32 - 1, b"\2"))
        self.assertEqual(self.problem("encoder", framing="confluent", registry=server.url, subject="other"), ("registry", "the registry answers with the status 404"))
        self.assertEqual(self.problem("encoder", framing="confluent")[1], "needs a schema and 'schemaId', or 'registry' and 'subject'")

    def test_operator(self):
        server = self.serve({"/schemas/ids/1": (200, {"schema": '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'})})
        operator = self.opened("operator", "avroDecode", framing="confluent", registry=server.url, into="order")
        event = {"key": "k", "value": self.message(1, number(2**40))}
        self.assertEqual(operator.row_typed(event, event["value"])["event"], {**event, "order": {"a": 2**40}})
        self.assertEqual(operator.row_typed({"key": "k"}, None)["event"], {"key": "k"})
        self.assertIn("the schema 2: the registry answers with the status 404", operator.row_typed(event, self.message(2, b""))["error"])
        self.assertEqual(operator.row_typed(event, "text")["error"], "the value of 'bytes' is not bytes")

    def test_fingerprints_choose_the_writer(self):
        old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
        reader = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"}]}
        decoder = self.reader(reader, framing="singleObject", writerSchemas=[self.file("old", old)])
        self.assertEqual(self.one(self.write({"a": 5}, self.writer(old, framing="singleObject")), decoder), {"a": 5, "b": "-"})
        self.assertEqual(self.one(self.write({"a": 5, "b": "x"}, self.writer(reader, framing="singleObject")), decoder), {"a": 5, "b": "x"})
        self.assertRegex(self.refused(self.write(5, self.writer("int", framing="singleObject")), decoder), "at byte 0: none of the schemas has the fingerprint [0-9a-f]{16}")


@unittest.skipUnless(RXD, "set RXD to the program")
class InRxdTests(AvroTest):
    def test_the_example(self):
        pipeline = os.path.join(ROOT, "pipelines", "readings.yaml")
        run = subprocess.run([RXD, "test", pipeline], cwd=ROOT, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        utc = datetime.timezone.utc
        with open(os.path.join(ROOT, "pipelines", "reading.avsc")) as file:
            schema = json.load(file)
        older = {**schema, "fields": [field for field in schema["fields"] if field["name"] != "site"]}
        given = [{"device": f"d{i % 7}", "celsius": decimal.Decimal(i).scaleb(-2), "at": datetime.datetime(2026, 11, 29, tzinfo=utc) + datetime.timedelta(seconds=i)} for i in range(6000, 7000)]
        os.mkdir(self.path("in"))
        with open(self.path("in/a.avro"), "wb") as file:
            file.write(contained(older, given, "deflate"))
        variables = {**os.environ, "READINGS": self.path("in/a.avro"), "HOT": self.path("hot"), "REFUSED": self.path("refused")}
        run = subprocess.run([RXD, "run", pipeline, "--once"], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        with open(self.path("hot")) as file:
            found = [json.loads(line) for line in file]
        self.assertEqual([one["celsius"] for one in found], [f"{i / 100:.2f}" for i in range(6501, 7000)])
        self.assertEqual(found[0], {"device": "d5", "celsius": "65.01", "at": "2026-11-29T01:48:21Z", "site": "unknown"})

    def test_what_is_refused_goes_to_the_errors_output(self):
        with open(self.path("in"), "wb") as file:
            file.write(b"\x02\xff")
        errors, = self.run_rxd("""
plugins: { avro: PLUGIN }
sources: { in: { file: { path: in, decode: { avro: { schema: string } } } } }
sinks:
  out: { from: in, stdout: { encode: ndjson } }
  errors: { from: in.errors, file: { path: errors, encode: ndjson } }
""", "errors")
        self.assertEqual(json.loads(errors)["error"], "at byte 1: the string is not UTF-8")

    def test_a_registry_in_a_pipeline(self):
        server = RegistryTests.serve(self, {"/schemas/ids/3": (200, {"schema": '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'})})
        with open(self.path("in"), "wb") as file:
            file.write(b"\0\0\0\0\3" + number(2**40))
        lines, = self.run_rxd(f"""
plugins: {{ avro: PLUGIN }}
sources: {{ in: {{ file: {{ path: in, decode: {{ avro: {{ framing: confluent, registry: "{server.url}" }} }} }} }} }}
sinks: {{ out: {{ from: in, file: {{ path: lines, encode: ndjson }} }} }}
""", "lines")
        self.assertEqual(json.loads(lines), {"a": 2**40})


if __name__ == "__main__":
    unittest.main()
