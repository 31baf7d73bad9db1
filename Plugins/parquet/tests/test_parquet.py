"""Tests of the sink: what pyarrow reads from its files, hostile events, and kills under load; in rxd if RXD names it."""
import base64
import datetime
import decimal
import glob
import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(HERE, "..", "..", "testing"), ROOT]
import parquet_columns as columns  # noqa: E402
from plugin_test import RXD, PluginTest, wait_for  # noqa: E402

PLUGIN = os.path.join(ROOT, "parquet.py")
COUNT, SEED = int(os.environ.get("COUNT", "300")), int(os.environ.get("SEED", "20261130"))
# The Python of this test has pyarrow.
PATH = os.path.dirname(sys.executable) + ":/usr/bin:/bin"
KILLS = int(os.environ.get("KILLS", "3"))
LETTERS = "abcXYZ 09_.\"\\\n\t\0äß€漢😀"
ALL = {"b": "boolean", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "f": "float",
       "d": "double", "s": "string", "j": "json", "y": "binary", "day": "date", "us": "timestamp", "ms": "timestamp[ms]", "ns": "timestamp[ns]", "span": "duration",
       "dec": "decimal(10, 2)", "list": "list<int64>", "map": "map<double>", "struct": "struct<a: int64!, \"b c\": list<struct<x: string>>>"}


def rfc3339(nanoseconds):
    seconds, rest = divmod(nanoseconds, 10**9)
    whole = (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)).isoformat()
    return whole + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"


def cut(number, by):
    return int(decimal.Decimal(number) / by)


class Values:
    """Random values of each type: as they come in an event, and as pyarrow reads them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def text(self, most=20):
        return "".join(self.rng.choices(LETTERS, k=self.rng.randint(0, most)))

    def whole(self, bits, is_signed):
        least, most = (-2**(bits - 1), 2**(bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        value = self.rng.choice([least, most, 0, 1, self.rng.randint(least, most)])
        return value, value

    def pair(self, name):
        rng = self.rng
        if name[0] in "iu" and name[1:].isdigit():
            return self.whole(int(name[1:]), name[0] == "i")
        if name == "b":
            return (value := rng.random() < 0.5), value
        if name == "f":
            return (value := rng.choice([0.5, -1.25, 3e38, 7])), float(pa.scalar(float(value), pa.float32()).as_py())
        if name == "d":
            return (value := rng.choice([rng.uniform(-1e9, 1e9), 1.7976931348623157e308, 5e-324, rng.randint(-2**53, 2**53)])), float(value)
        if name == "s":
            return (value := self.text()), value
        if name == "j":
            value = rng.choice([5, self.text(), None and 0, {"a": [1, None]}, [], True])
            return value, None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if name == "y":
            value = rng.randbytes(rng.randint(0, 20))
            return base64.b64encode(value).decode(), value
        if name == "day":
            value = datetime.date(1970, 1, 1) + datetime.timedelta(days=rng.randint(-100_000, 100_000))
            return value.isoformat(), value
        if name in ("us", "ms", "ns"):
            value = rng.choice([rng.randint(-2**62, 2**62), rng.randint(0, 2**31) * 10**9, -1, 1])
            return rfc3339(value), cut(value, {"ns": 1, "us": 1000, "ms": 10**6}[name])
        if name == "span":
            value = rng.randint(-2**62, 2**62)
            return f"{'-' if value < 0 else ''}{abs(value) // 10**9}.{abs(value) % 10**9:09d}s", value
        if name == "dec":
            value = rng.choice([rng.randint(-10**8, 10**8 - 1), round(rng.uniform(-1e6, 1e6), 2), f"{rng.randint(0, 99)}.5"])
            return value, decimal.Decimal(str(value))
        if name == "list":
            value = [rng.choice([None, rng.randint(-5, 5)]) for _ in range(rng.randint(0, 4))]
            return value, value
        if name == "map":
            value = {self.text(4): rng.choice([None, rng.random()]) for _ in range(rng.randint(0, 4))}
            return value, list(value.items())
        inner = rng.choice([None, [None if rng.random() < 0.2 else {"x": rng.choice([None, self.text(3)])} for _ in range(rng.randint(0, 3))]])
        value = {"a": rng.randint(0, 9), "b c": inner}
        return value, value

    def wrong(self, name):
        """A value that does not fit."""
        wrong = [[1], {"z": 1}, "not one", True, 1.5, 2**70, -2**70]
        fits = {"b": [True], "f": [1.5, True and 2], "d": [1.5, 2**70, -2**70], "s": ["not one"], "j": wrong, "list": [[1]], "dec": [1.5]}
        fits["f"] += [2**70, -2**70]
        allowed = [value for value in wrong if not any(type(value) is type(one) and value == one for one in fits.get(name, []))]
        if name == "map":
            allowed = [value for value in allowed if type(value) is not dict]
        allowed += {"us": ["2026-03-01", "2026-03-01T10:00:00", "9999-01-01T00:00:00Z"], "day": ["2026-02-30", "2026-3-1"], "span": ["5", "1m", "99999999999s"], "y": ["a", "ä==="],
                    "dec": [1.234, 10**8, "x", "NaN"], "list": [["a"], [[1]]], "map": [{"a": "x"}], "struct": [{}, {"a": None}, {"a": 1, "b c": [{"x": 1}]}, {"a": 1, "q": 2}],
                    "f": [3.5e38], "i8": [128], "u8": [-1, 256], "u64": [2**64], "i64": [2**63]}.get(name, [])
        return self.rng.choice(allowed)


def plain(column, kind):
    """The values of a column of a file, times and durations as whole numbers."""
    if kind.startswith(("timestamp", "duration")):
        return column.cast(pa.int64()).to_pylist()
    return column.to_pylist()


class ColumnTests(unittest.TestCase):
    def schema(self, types, drops=False):
        return columns.Structure({name: columns.read_type(text, drops) for name, text in types.items()}, drops)

    def table(self, types, rows, drops=False):
        return columns.table_of(self.schema(types, drops), rows)

    def test_all_types_are_read_as_they_were(self):
        values = Values(SEED)
        for nulls in [0, 0.3]:
            rows, expected = [], []
            for _ in range(COUNT):
                pairs = {name: values.pair(name) if values.rng.random() >= nulls else (None, None) for name in ALL}
                rows.append({name: given for name, (given, _) in pairs.items() if given is not None or values.rng.random() < 0.5})
                expected.append({name: wanted for name, (_, wanted) in pairs.items()})
            table, refused = self.table(ALL, rows)
            self.assertEqual(refused, {})
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            read = pq.read_table(pa.BufferReader(sink.getvalue()))
            for name, kind in ALL.items():
                self.assertEqual(plain(read[name], kind), [row[name] for row in expected], name)

    def test_both_ways_to_convert_are_one(self):
        """A batch with one wrong value goes another way than one without; both must make the same of the others."""
        values = Values(SEED + 1)
        for name, kind in ALL.items():
            for text in [kind, kind + "!"]:
                for _ in range(max(1, COUNT // 10)):
                    rows = [{name: values.pair(name)[0]} for _ in range(values.rng.randint(1, 12))]
                    if text == kind:
                        rows += [{}, {name: None}]
                    rows = [row for row in rows if text == kind or row[name] is not None] or [{name: values.pair("s")[0] if name in "sj" else values.pair(name)[0]}]
                    wrong = {name: values.wrong(name)} if name != "j" else 5
                    good, refused = self.table({name: text}, rows)
                    self.assertEqual(refused, {}, rows)
                    at = values.rng.randint(0, len(rows))
                    mixed, refused = self.table({name: text}, [*rows[:at], wrong, *rows[at:]])
                    self.assertEqual(list(refused), [at], wrong)
                    self.assertTrue(good.equals(mixed), rows)

    def test_reasons(self):
        for types, event, reason in [
                ({"a": "int8"}, {"a": 300}, "'a' is 300, and must be a whole number from -128 to 127"), ({"a": "int64"}, {"a": True}, "'a' is true, and must be a whole number from -9223372036854775808 to 9223372036854775807"),
                ({"a": "double"}, {"a": True}, "'a' is true, and must be a number"), ({"a": "string!"}, {}, "'a' is missing or null"), ({"a": "string"}, {"a": 5}, "'a' is 5, and must be a text"),
                ({"a": "struct<b: list<int64>>"}, {"a": {"b": [1, "x"]}}, "'a.b[1]' is \"x\", and must be a whole number from -9223372036854775808 to 9223372036854775807"),
                ({"a": "struct<b: int64!>"}, {"a": {}}, "'a.b' is missing or null"), ({"a": "list<int64!>"}, {"a": [None]}, "'a[0]' is missing or null"),
                ({"a": "int64"}, {"a": 1, "b": 2}, "the schema has no 'b'"), ({"a": "struct<b: int64>"}, {"a": {"c": 1}}, "the schema has no 'a.c'"),
                ({"a": "int64"}, [1], "the event is [1], and must be an object"), ({"a": "int64"}, None, "the event is null, and must be an object"),
                ({"a": "timestamp"}, {"a": "now" * 50}, '\'a\' is "' + ("now" * 50)[:56] + '..., and must be a time such as "2026-03-01T10:00:00Z"'),
                ({"a": "string"}, {"a": "\ud800"}, "'a' is \"?\", and must be a text"), ({"a": "decimal(4, 2)"}, {"a": 123.4}, "'a' is 123.4, and must be a number of at most 4 digits, 2 of them behind the point")]:
            self.assertEqual(self.table(types, [event])[1], {0: reason})
        table, refused = self.table({"a": "int64", "s": "struct<b: int64>"}, [{"a": 1, "x": 5, "s": {"b": 1, "y": 2}}], drops=True)
        self.assertEqual((table.to_pylist(), refused), ([{"a": 1, "s": {"b": 1}}], {}))
        self.assertEqual(self.table({"a": "int64"}, [{"a": 5.0}])[0].to_pylist(), [{"a": 5}])

    def test_texts_of_types_with_faults(self):
        for text, reason in [("int", "there is no type 'int'; there are boolean, string, json,"), ("list<int64", "'list<int64' has its end where '>' must stand"), ("", "there is no type ''"),
                             ("list<int64>>", "'list<int64>>' goes on behind the type with '>'"), ("decimal(39, 2)", "has '39' where a number from 1 to 38 must stand"),
                             ("decimal(3, 4)", "has '4' where a number from 0 to 3 must stand"), ("timestamp[s]", "has the unit 's', and must have ms, us or ns"), ("int64 int64", "goes on behind the type with 'int64'"),
                             ("struct<a: int64, a: int64>", "has 'a' where the name of another member must stand"), ("struct<>", "has '>' where the name of another member must stand"),
                             ("struct<a int64>", "has int64 where ':' must stand"), ("list<" * 20 + "int64" + ">" * 20, "has more than 16 types within each other")]:
            with self.assertRaises(columns.WrongType) as wrong:
                columns.read_type(text, False)
            self.assertIn(reason, str(wrong.exception))
        rng = random.Random(SEED)
        words = ["list", "<", ">", "struct", "map", "a", ":", ",", "int64", "!", "decimal", "(", "10", ")", "timestamp", "[", "]", "ns", "\"x\"", "\"", "%"]
        for _ in range(5000):
            try:
                columns.read_type(" ".join(rng.choices(words, k=rng.randint(0, 10))), False)
            except columns.WrongType:
                pass

    def inferred(self, *events):
        schema = columns.infer([event for event in events if type(event) is dict])
        return str(schema.arrow), columns.table_of(schema, list(events))

    def test_inferred_types(self):
        for events, expected, refused in [
                ([{"a": 1}, {"b": "x"}, {}], "struct<a: int64, b: string>", []), ([{"a": 1}, {"a": 2.5}], "struct<a: double>", []), ([{"a": None}], "struct<a: string>", []),
                ([{"a": 2**63}, {"a": 1}], "struct<a: uint64>", []), ([{"a": 2**63}, {"a": -1}], "struct<a: int64>", [0]), ([{"a": 1}, {"a": "x"}, {"a": 2}], "struct<a: int64>", [1]),
                ([{"a": "x"}, {"a": 1}, {"a": True}], "struct<a: string>", [1, 2]), ([{"a": 1}, {"a": "x"}, {"a": 2.5}], "struct<a: double>", [1]),
                ([{"a": {"b": 1}}, {"a": {"c": [1, None, 2.5]}}, {"a": 5}], "struct<a: struct<b: int64, c: list<element: double>>>", [2]), ([{"a": {}}, {"a": {}}], "struct<a: string>", []),
                ([{"a": []}], "struct<a: list<element: string>>", []), ([{"a": [[], [{"x": 1}]]}], "struct<a: list<element: list<element: struct<x: int64>>>>", []),
                ([5, {"a": True}, [1]], "struct<a: bool>", [0, 2])]:
            found, (table, reasons) = self.inferred(*events)
            self.assertEqual((found, list(reasons)), (expected, refused), events)
            self.assertEqual(table.num_rows, len(events) - len(refused))

    def test_inferred_types_are_bounded(self):
        deep = 1
        for _ in range(300):
            deep = {"a": deep} if random.random() < 0.5 else [deep]
        found, (table, reasons) = self.inferred({"deep": deep}, {"deep": None})
        self.assertEqual((reasons, table.num_rows), ({}, 2))
        pq.write_table(table, pa.BufferOutputStream())
        most = columns.COLUMNS_MOST
        found, (table, reasons) = self.inferred(*({f"c{index}": 1} for index in range(2 * most)), {"c0": 5})
        self.assertEqual((table.num_columns, len(reasons), table.num_rows), (most, most, most + 1))

    def test_random_events(self):
        """Whatever comes, each event is a row or has a reason, and what was written is read."""
        values = Values(SEED + 2)

        def anything(depth=0):
            choice = values.rng.random()
            if depth < 3 and choice < 0.3:
                return {values.rng.choice("abcd"): anything(depth + 1) for _ in range(values.rng.randint(0, 3))}
            if depth < 3 and choice < 0.4:
                return [anything(depth + 1) for _ in range(values.rng.randint(0, 3))]
            return values.rng.choice([None, True, 5, -2**63, 2**64, 2.5, 1e400, values.text(5), "\ud800"])

        for _ in range(COUNT):
            events = [anything() for _ in range(values.rng.randint(1, 10))]
            schema = columns.infer([event for event in events if type(event) is dict])
            table, reasons = columns.table_of(schema, events)
            if not schema.members:
                continue
            self.assertEqual(table.num_rows + len(reasons), len(events))
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            self.assertTrue(pq.read_table(pa.BufferReader(sink.getvalue())).equals(table))


class SinkTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        if not RXD:
            self.skipTest("set RXD to the program")
        self.out = self.path("out")

    def files(self):
        return sorted(path for path in glob.glob(os.path.join(self.out, "**", "*.parquet"), recursive=True))

    def rows(self):
        return [row for path in self.files() for row in pq.ParquetFile(path).read().to_pylist()]

    def text(self, parameters, source="{ file: { path: in, decode: json } }", chain=""):
        return f"""name: pipeline
plugins: {{ parquet: {{ path: {PLUGIN}, env: {{ PATH: "{PATH}", PYTHONDONTWRITEBYTECODE: "1" }} }} }}
sources: {{ in: {source.replace("path: in", f"path: {self.path('in')}")} }}
sinks:
  out: {{ from: in, chain: [ {chain} ], parquet: {{ directory: {self.out}, {parameters} }} }}
  refused: {{ from: out.errors, file: {{ path: {self.path('refused')}, encode: ndjson }} }}
"""

    def write(self, events):
        with open(self.path("in"), "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)

    def run_all(self, parameters, events=None, chain="", status=0):
        if events is not None:
            self.write(events)
        run = self.pipeline(self.text(parameters, chain=chain))
        self.assertEqual(run.process.wait(60), status, run.errors())
        return run

    def refused(self):
        with open(self.path("refused")) as file:
            return [(event["error"], event["event"]) for event in map(json.loads, file)]


class PipelineTests(SinkTest):
    def test_events_become_rows(self):
        self.run_all("schema: { n: 'int64!', at: timestamp, tags: 'list<string>' }", [{"n": index, "at": rfc3339(index * 10**9), "tags": ["a"] * (index % 3)} for index in range(5000)])
        self.assertEqual([row["n"] for row in sorted(self.rows(), key=lambda row: row["n"])], list(range(5000)))
        self.assertEqual(os.listdir(os.path.join(self.out, ".partial")), [])
        schema = pq.read_schema(self.files()[0])
        self.assertEqual(str(schema.field("n")), "pyarrow.Field<n: int64 not null>")
        self.assertEqual(pq.ParquetFile(self.files()[0]).metadata.row_group(0).column(0).compression, "SNAPPY")

    def test_only_events_at_fault_are_refused(self):
        events = [{"n": index} for index in range(300)]
        events[7], events[100], events[299] = {"n": "x"}, {"m": 1}, [1]
        self.run_all("schema: { n: 'int64!' }", events, status=0)
        self.assertEqual(sorted(row["n"] for row in self.rows()), [index for index in range(300) if index not in (7, 100, 299)])
        self.assertEqual(self.refused(), [("'n' is \"x\", and must be a whole number from -9223372036854775808 to 9223372036854775807", {"n": "x"}), ("the schema has no 'm'", {"m": 1}),
                                          ("the event is a list, and 'lists' is not 'file'", [1])])

    def test_files_by_name(self):
        self.run_all("name: 'day={{ event.day }}/{id}.parquet', compression: zstd, rowGroup: 10", [{"day": f"2026-03-{index % 3 + 1:02d}", "n": index} for index in range(1000)])
        for day in range(3):
            found = [row["n"] for path in glob.glob(os.path.join(self.out, f"day=2026-03-0{day + 1}", "*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]
            self.assertEqual(sorted(found), list(range(day, 1000, 3)))
        self.assertEqual({pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in self.files()}, {"ZSTD"})
        self.assertTrue(all(pq.ParquetFile(path).metadata.row_group(0).num_rows <= 10 for path in self.files()))

    def test_names_stay_below_the_directory(self):
        bad = ["../{id}", "a/../../{id}", "/etc/{id}", "a//{id}", "./{id}", ".partial/{id}", "noid", "x" * 250 + "{id}", "a\0{id}"]
        self.run_all("name: '{{ event.name }}'", [{"name": name} for name in [*bad, "good/{id}.parquet"]])
        self.assertEqual([row["name"] for row in self.rows()], ["good/{id}.parquet"])
        self.assertEqual([event["name"] for _, event in self.refused()], bad)
        self.assertEqual(sorted(os.listdir(self.directory)), sorted(["in", "out", "refused", "pipeline.yaml", "pipeline.out", "pipeline.err", "state-pipeline"]))

    def test_lists_are_files(self):
        self.run_all("lists: file, id: '{{ event[0].n }}'", [{"n": index} for index in range(1000)], chain="{ bufferWithCount: 300 }")
        self.assertEqual(sorted(pq.ParquetFile(path).metadata.num_rows for path in self.files()), [100, 300, 300, 300])
        names = self.files()
        for path in names:
            first = str(pq.ParquetFile(path).read()["n"][0]).encode()
            self.assertEqual(os.path.basename(path), hashlib.sha256(len(first).to_bytes(8, "big") + first).hexdigest()[:32] + ".parquet")
        self.write([[{"n": 0}], [{"n": 1}, {"n": "x"}, 5], [], [{"n": 0}, {"n": 7}]])
        self.run_all("lists: file, id: '{{ size(event) > 0 ? event[0].n : 0 }}', schema: { n: int64 }")
        self.assertEqual(len(self.files()), 4, "the file of the same name has replaced the first")
        self.assertEqual([reason for reason, _ in self.refused()],
                         ["row 1 of the list: 'n' is \"x\", and must be a whole number from -9223372036854775808 to 9223372036854775807; 1 more rows do not fit", "the list is empty"])

    def test_parameters_with_faults(self):
        self.write([{"n": 1}])
        os.mkdir(self.out)
        for parameters, reason in [("schema: { a: int }", "there is no type 'int'"), ("schema: {}", "must have a column"), ("others: drop", "needs 'schema'")]:
            self.assertIn(reason, self.run_all(parameters, status=1).errors())
        with open(self.path("file"), "w"):
            pass
        self.out = self.path("file")
        self.assertIn("cannot be written", self.run_all("lists: refuse", status=1).errors())

    def test_what_cannot_be_written_waits(self):
        """A folder that is in the way: the events wait until it is gone, and none is lost."""
        os.mkdir(self.out)
        with open(os.path.join(self.out, "day"), "w"):
            pass
        self.write([{"n": index} for index in range(200)])
        run = self.pipeline(self.text("name: 'day/{id}.parquet'"))
        wait_for(lambda: "day" in run.errors(), lambda: f"the reason: {run.errors()}")
        self.assertIsNone(run.process.poll())
        os.remove(os.path.join(self.out, "day"))
        self.assertEqual(run.process.wait(60), 0, run.errors())
        self.assertEqual(sorted(row["n"] for row in self.rows()), list(range(200)))
        self.assertEqual(os.listdir(os.path.join(self.out, ".partial")), [])

    def test_what_was_written_before_a_failure_is_not_written_again(self):
        """A batch of two files: the first is complete, the second has a folder in its way."""
        os.mkdir(self.out)
        with open(os.path.join(self.out, "day"), "w"):
            pass
        self.write([{"n": index} for index in range(3000)] + [{"n": "x", "late": True}] + [{"n": index, "late": True} for index in range(3000, 3300)])
        run = self.pipeline(self.text("name: '{{ has(event.late) ? \"day\" : \"good\" }}/{id}.parquet', schema: { n: int64, late: boolean }"))
        wait_for(lambda: "day" in run.errors(), lambda: f"the reason: {run.errors()}")
        os.remove(os.path.join(self.out, "day"))
        self.assertEqual(run.process.wait(60), 0, run.errors())
        self.assertEqual(sorted(row["n"] for row in self.rows()), list(range(3300)))
        self.assertEqual([event for _, event in self.refused()], [{"n": "x", "late": True}])

    def test_the_examples(self):
        run = subprocess.run([sys.executable, "-B", PLUGIN, "--test"], capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        run = subprocess.run([RXD, "test", os.path.join(ROOT, "pipelines", "readings.yaml")], capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": PATH})
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_the_spec_is_that_of_the_file(self):
        run = subprocess.run([sys.executable, "-B", PLUGIN, "--spec"], capture_output=True, text=True, timeout=60, check=True)
        with open(os.path.join(ROOT, "spec.json")) as file:
            self.assertEqual(json.load(file), json.loads(run.stdout), "run: python3 parquet.py --spec > spec.json")

    def test_python_without_pyarrow(self):
        """The spec is there, and the reason names what is missing."""
        if subprocess.run(["/usr/bin/python3", "-c", "import pyarrow"], capture_output=True).returncode == 0:
            self.skipTest("this machine's Python has pyarrow")
        self.write([{"n": 1}])
        run = self.pipeline(self.text("lists: refuse").replace(PATH, "/usr/bin:/bin"))
        self.assertEqual(run.process.wait(60), 1, run.errors())
        self.assertIn("pyarrow is not installed", run.errors())


class KillTests(SinkTest):
    """rxd or the plugin is killed at random instants under load: no row is lost, and no file is ever half."""

    def check_files(self):
        """Each file that has its name is complete."""
        for path in self.files():
            if path not in self.checked:
                pq.ParquetFile(path).read()
                self.checked.add(path)

    def feed(self, rate):
        """Appends rows until told to stop, 500 at once."""
        with open(self.path("in"), "a") as file:
            while not self.is_over:
                file.writelines(json.dumps({"n": self.written + index, "text": "x" * 50}) + "\n" for index in range(500))
                file.flush()
                self.written += 500
                time.sleep(500 / rate)

    def kill(self, whom, label, parameters="", chain=""):
        rng = random.Random(SEED)
        self.checked, self.written, self.is_over = set(), 0, False
        open(self.path("in"), "w").close()
        feeder = threading.Thread(target=self.feed, args=(25_000,))
        feeder.start()
        self.addCleanup(feeder.join)
        self.addCleanup(setattr, self, "is_over", True)
        text = self.text("schema: { n: 'int64!', text: string }" + parameters, "{ file: { path: in, decode: json, follow: true } }", chain)
        run = self.pipeline(text)
        killed = leftovers = 0
        for _ in range(KILLS):
            known = len(self.files())
            wait_for(lambda: len(self.files()) > known, lambda: f"a further file: {run.errors()[-2000:]}")
            time.sleep(rng.uniform(0, 0.4))
            if whom(run):
                killed += 1
            leftovers += len(os.listdir(os.path.join(self.out, ".partial")))
            self.check_files()
            if run.process.poll() is not None:
                run = self.pipeline(text)
        self.is_over = True
        feeder.join()

        def last():
            """Whether the last row has arrived; files are read once."""
            for path in set(self.files()) - rows.keys():
                rows[path] = pq.ParquetFile(path).read(["n"])["n"].to_pylist()
            return any(row and max(row) == self.written - 1 for row in rows.values())
        rows = {}
        wait_for(last, lambda: f"the last of {self.written} rows: {run.errors()[-2000:]}", 60)
        self.assertEqual(run.end(), 0, run.errors()[-2000:])
        self.check_files()
        self.assertEqual(os.listdir(os.path.join(self.out, ".partial")), [], "what was left is removed")
        self.assertEqual(killed, KILLS)
        last()
        self.assert_nothing_lost(range(self.written), [row for part in rows.values() for row in part],
                                 f"{label} ({KILLS} kills, {leftovers} unfinished files seen)")

    def test_kills_of_rxd(self):
        def whom(run):
            run.process.kill()
            run.process.wait()
            return True
        self.kill(whom, "rxd killed")

    def test_kills_of_the_plugin(self):
        def whom(run):
            # Its own child, found by the parent's id.
            children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.process.pid)], capture_output=True, text=True).stdout.split()
            for child in children:
                with open(f"/proc/{child}/cmdline") as file:
                    if PLUGIN in file.read():
                        os.kill(int(child), signal.SIGKILL)
                        return True
            return False
        # Otherwise each row that was under way would become a file: rxd passes one at a time then.
        self.kill(whom, "plugin killed", ", lists: file", "{ bufferWithTime: { every: 100ms, count: 1000 } }")


if __name__ == "__main__":
    unittest.main()
