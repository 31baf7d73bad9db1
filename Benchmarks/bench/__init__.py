"""Measures rxd; `Benchmarks/run --help` tells how."""
