#!/usr/bin/env python3
"""An operator with state and a timer: counts the events of each key in each period. `rate: { key: event.path, every: 10s }`."""
from typing import Any, Dict, Iterator

from rxd_plugin import Example, Operator, Pause, Plugin, duration, expression, integer

plugin = Plugin("rates", "1.0.0", "Counts events over time.")


@plugin.operator(
    memory="A number for each key of the period, `keys` at most.",
    output={"type": "object", "properties": {"key": {}, "count": {"type": "integer"}, "rate": {"type": "number"}},
            "required": ["key", "count", "rate"]},
    examples=[
        Example("two pages", {"key": "event.path", "every": "10s"},
                [{"path": "/a"}, {"path": "/b"}, Pause(1), {"path": "/a"}, Pause(10), {"path": "/b"}, Pause(60)],
                [{"key": "/a", "count": 2, "rate": 0.2}, {"key": "/b", "count": 1, "rate": 0.1},
                 {"key": "/b", "count": 1, "rate": 0.1}]),
        Example("the completion sends what has been counted", {"key": "event.path"},
                [{"path": "/a"}], [{"key": "/a", "count": 1, "rate": 1.0}]),
    ])
class Rate(Operator):
    """Counts the events of each key and sends the counts at the end of each period.

    A period begins with its first event, so silence costs nothing. `rate` is events per second."""

    key: str = expression("What is counted by.", result="string", required=True)
    every: float = duration("How long a period is.", default="1s", minimum="10ms", maximum="1d")
    keys: int = integer("The most keys of a period; an event with a further one is an error.", default=10_000, minimum=1)

    def open(self) -> None:
        self.counts: Dict[str, int] = {}

    def process(self, event: Any) -> None:
        if self.key not in self.counts and len(self.counts) >= self.keys:
            raise ValueError(f"there are already {self.keys} keys")
        if not self.counts:
            self.set_timer("period", self.every)
        self.counts[self.key] = self.counts.get(self.key, 0) + 1

    def timer(self, name: str) -> Iterator[Dict[str, Any]]:
        counts, self.counts = self.counts, {}
        for key, count in counts.items():
            yield {"key": key, "count": count, "rate": count / self.every}

    def complete(self) -> Iterator[Dict[str, Any]]:
        return self.timer("period")

    def save(self) -> Any:
        return list(self.counts.items())  # a JSON object would turn all keys into texts

    def restore(self, state: Any, version: int) -> None:
        self.counts = dict(state)


plugin.run()
