"""The workloads that are compared with a plain loop over the same simdjson."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    # The pipeline's file in `pipelines`, without `.yaml`.
    name: str
    # The kind of input, as `generate` names it.
    input: str
    # The probe whose output must be identical, byte for byte.
    same: str
    # The reference for the share: a job of the probe, or `cat`.
    reference: str
    # The lower bound for the share of the reference on one core, in percent.
    bar: float
    # Whether the output is also compared with the reference's, after bringing strings and numbers of both into one
    # form.
    canonical: bool = False
    # Whether measuring on one core suffices.
    brief: bool = False
    # The fraction of the events that it gets.
    part: float = 1
    # How often it reads its input.
    readings: int = 1
    # Whether it writes a second file, `OUTPUT.2`.
    writes_two: bool = False

    def count(self, events):
        """The number of lines that it gets if the others get `events`."""
        return int(events * self.part) * (4 if self.input == "ints" else 1)


# A round is as short as possible without consisting mostly of the start, so that there can be many.
ALL = [
    Workload("w1-filter", "events", "filter", "filter", 70, part=0.5),
    Workload("w1-two", "events", "filters", "filters", 70, part=0.5, writes_two=True),
    Workload("w1v-validate", "events", "filter", "filter", 0, part=0.25, brief=True),
    Workload("w2-map", "events", "map", "map", 60, part=0.5),
    Workload("w3-lines", "events", "lines", "cat", 80, part=0.5),
    Workload("w3j-same", "events", "lines", "cat", 80, part=0.5),
    Workload("w3j-set", "events", "set", "serialise", 60, part=0.25, canonical=True),
    Workload("w4-groups", "events", "groups", "groups", 60, part=0.5),
    Workload("w5-changes", "events", "changes", "changes", 70, part=0.5),
    # All events, because it works differently once it has seen most clients.
    Workload("w5d-distinct", "events", "distinct", "distinct", 60),
    # All events, because the memory is meant for 100,000 clients.
    Workload("w14-windows", "events", "windows", "windows", 0),
    Workload("w15-statistics", "bids", "statistics", "statistics", 0),
    # A million events, because it reads half a million twice.
    Workload("w13-join", "events", "join", "join", 0, part=0.5, readings=2),
    # A quarter of the events takes as long as the others: lines are parsed by patterns.
    Workload("w16-grok", "access", "access", "access", 0, part=0.25),
    Workload("w16-regex", "access", "access", "access", 0, part=0.25),
    Workload("scan-distinct-ints", "ints", "ints", "ints", 0, part=0.5),
]

NAMES = [workload.name for workload in ALL]
