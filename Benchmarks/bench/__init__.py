"""Measures rxd; see `Benchmarks/run --help`."""
