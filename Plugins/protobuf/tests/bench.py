"""Measures the plugin beside libprotobuf, and as part of rxd's pipelines.

    python3 bench.py PLUGIN PROGRAM
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.path.dirname(HERE), "build")
sys.path[:0] = [os.path.join(HERE, "..", "..", "testing"), BUILD]
import bench_pb2  # noqa: E402
from bench_format import measure  # noqa: E402


def dumps(event):
    del event["note"]
    data = bench_pb2.Reading(**event).SerializeToString()
    return bytes([len(data) & 0x7f | 0x80, len(data) >> 7]) + data


measure("protobuf", sys.argv[1], sys.argv[2], dumps, f"{{ descriptors: {BUILD}/bench.pb, message: bench.Reading, framing: delimited }}")
