"""Measures the plugin beside avro-c, and as part of rxd's pipelines.

    python3 bench.py PLUGIN PROGRAM
"""
import io
import json
import os
import random
import subprocess
import sys
import tempfile

import fastavro

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from bench_format import COUNT, reading  # noqa: E402

with open(os.path.join(HERE, "bench.avsc")) as file:
    schema = fastavro.parse_schema(json.load(file))
rng = random.Random(1)
out = io.BytesIO()
fastavro.writer(out, schema, [reading(rng, index) for index in range(COUNT)], codec="null")
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "events")
    with open(path, "wb") as file:
        file.write(out.getvalue())
    subprocess.run([os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[1]), path], check=True, cwd=os.path.dirname(HERE))
