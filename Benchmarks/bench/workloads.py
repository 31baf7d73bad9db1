"""The workloads that are compared with a plain loop over the same simdjson."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    # The pipeline's file in `pipelines`, without `.yaml`.
    name: str
    # What `generate` makes.
    input: str
    # The probe whose output must be the same, byte for byte.
    same: str
    # What the share is taken of: a work of the probe, or `cat`.
    reference: str
    # The least share of the reference on one core, in percent.
    bar: float
    # Whether outputs are also compared with that of the reference, both in one form of strings and numbers.
    canonical: bool = False
    # Whether three rounds on one core say all.
    brief: bool = False


ALL = [
    Workload("w1-filter", "events", "filter", "filter", 70),
    Workload("w1v-validate", "events", "filter", "filter", 0, brief=True),
    Workload("w2-map", "events", "map", "map", 60),
    Workload("w3-lines", "events", "lines", "cat", 80),
    Workload("w3j-same", "events", "lines", "cat", 80),
    Workload("w3j-set", "events", "set", "serialise", 60, canonical=True),
    Workload("w4-groups", "events", "groups", "groups", 60),
    Workload("w5-changes", "events", "changes", "changes", 70),
    Workload("w5d-distinct", "events", "distinct", "distinct", 60),
    Workload("scan-distinct-ints", "ints", "ints", "ints", 0),
]

NAMES = [workload.name for workload in ALL]
