"""Measures a pipeline that writes Parquet beside a plain loop of Python's json and pyarrow, which syncs each file too. RXD names the program."""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq

COUNT, ROWS, RUNS = 200_000, 50_000, 5
HERE = os.path.dirname(os.path.abspath(__file__))
PLUGIN = os.path.join(os.path.dirname(HERE), "parquet.py")
PATH = os.path.dirname(sys.executable) + ":/usr/bin:/bin"
TYPES = {"device": "string!", "sequence": "int64", "at": "timestamp", "celsius": "double", "ok": "boolean", "tags": "list<string>", "position": "struct<x: double, y: double>"}
rng = random.Random(1)


def reading(index):
    return {"device": f"sensor-{rng.randint(0, 999)}", "sequence": index, "at": f"2026-03-01T{index // 36000 % 24:02d}:{index // 600 % 60:02d}:{index // 10 % 60:02d}.{index % 10}Z",
            "celsius": round(rng.uniform(-20, 90), 2), "ok": rng.random() < 0.9, "tags": ["floor-2", "north"], "position": {"x": rng.uniform(0, 100), "y": rng.uniform(0, 100)}}


def plain(source, out):
    schema = pa.schema([pa.field("device", pa.string()), pa.field("sequence", pa.int64()), pa.field("at", pa.string()), pa.field("celsius", pa.float64()), pa.field("ok", pa.bool_()),
                        pa.field("tags", pa.list_(pa.string())), pa.field("position", pa.struct([("x", pa.float64()), ("y", pa.float64())]))])
    rows, number = [], 0

    def write():
        nonlocal rows, number
        table = pa.Table.from_pylist(rows, schema)
        table = table.set_column(2, "at", table["at"].cast(pa.timestamp("us", tz="UTC")))
        with open(os.path.join(out, f"{number}.parquet"), "wb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        rows, number = [], number + 1

    with open(source) as file:
        for line in file:
            rows.append(json.loads(line))
            if len(rows) == ROWS:
                write()
    if rows:
        write()


def rxd(directory, source, out, parameters, chain):
    path = os.path.join(directory, "pipeline.yaml")
    types = ", ".join(f"{name}: '{text}'" for name, text in TYPES.items())
    with open(path, "w") as file:
        file.write(f"""plugins: {{ parquet: {{ path: {PLUGIN}, env: {{ PATH: "{PATH}", PYTHONDONTWRITEBYTECODE: "1" }} }} }}
sources: {{ in: {{ file: {{ path: {source}, decode: json }} }} }}
sinks: {{ out: {{ from: in, chain: [ {chain} ], parquet: {{ directory: {out}, schema: {{ {types} }}{parameters} }} }} }}
""")
    subprocess.run([os.environ["RXD"], "run", path, "--state-dir", os.path.join(directory, "state")], check=True, stdin=subprocess.DEVNULL, capture_output=True)


with tempfile.TemporaryDirectory() as directory:
    source, out = os.path.join(directory, "in"), os.path.join(directory, "out")
    with open(source, "w") as file:
        file.writelines(json.dumps(reading(index)) + "\n" for index in range(COUNT))
    open(source + ".none", "w").close()
    cases = {"a plain loop": lambda: plain(source, out), "rxd, lists of 50,000": lambda: rxd(directory, source, out, ", lists: file", "{ bufferWithCount: 50000 }"),
             "rxd, batches": lambda: rxd(directory, source, out, "", ""), "start of rxd": lambda: rxd(directory, source + ".none", out, "", "")}
    times = {name: [] for name in cases}
    for _ in range(RUNS):
        for name, run in cases.items():
            shutil.rmtree(out, ignore_errors=True)
            os.mkdir(out)
            start = time.monotonic()
            run()
            times[name].append(time.monotonic() - start)
            if name != "start of rxd":
                found = [entry for entry in os.listdir(out) if entry.endswith(".parquet")]
                assert sum(pq.read_metadata(os.path.join(out, entry)).num_rows for entry in found) == COUNT
    start = statistics.median(times.pop("start of rxd"))
    for name, found in times.items():
        rates = sorted(COUNT / (seconds - (start if name.startswith("rxd") else 0)) / 1e3 for seconds in found)
        print(f"{name:<22} {rates[RUNS // 2]:5.0f} thousand rows a second ({rates[0]:.0f} to {rates[-1]:.0f})")
