"""The oracle: events that can be recognised, and the judge of what was delivered.

An event is `{"src":"a","n":7,"pad":"...","sum":C}`. The numbers of a source are consecutive and begin with 1; `sum` is
the CRC-32 of the other members. A feed reports what it sends and what must be delivered; a sink what it received.
"""
import dataclasses
import json
import re
import threading
import zlib

FORM = re.compile(rb'\{"src":"([A-Za-z0-9_-]+)","n":(\d+),"pad":"([a-z]*)","sum":(\d+)\}')


def checksum(source, n, pad):
    return zlib.crc32(b"%s:%d:%s" % (source, n, pad))


def line(source, n, pad=b""):
    """The event as a line of JSON, with its line feed. `source` and `pad` are bytes."""
    return b'{"src":"%s","n":%d,"pad":"%s","sum":%d}\n' % (source, n, pad, zlib.crc32(b"%s:%d:%s" % (source, n, pad)))


class Source:
    """What the judge knows about one source."""

    def __init__(self):
        self.sent = 0  # The highest number that the feed may have sent.
        self.owed = []  # Ranges [first, last] of numbers whose delivery is promised.
        self.counts = bytearray(1)  # How often each number was delivered, up to 255.
        self.highest = 0
        self.previous = 0
        self.run = 0
        self.invented = self.repeated = self.longest = self.reordered = self.delivered = 0

    def owe(self, first, last):
        if self.owed and self.owed[-1][1] == first - 1:
            self.owed[-1][1] = last
        else:
            self.owed.append([first, last])

    def take(self, n):
        if not 1 <= n <= self.sent:
            self.invented += 1
            return
        counts = self.counts
        if n >= len(counts):
            counts.extend(bytes(max(n + 1 - len(counts), len(counts))))
        count = counts[n]
        if count:
            self.repeated += 1
            self.run = self.run + 1 if self.run and n == self.previous + 1 else 1
            if self.run > self.longest:
                self.longest = self.run
            if count < 255:
                counts[n] = count + 1
        else:
            counts[n] = 1
            self.run = 0
            self.delivered += 1
            if n < self.highest:
                self.reordered += 1
            else:
                self.highest = n
        self.previous = n

    def missing(self):
        """The promised numbers that were never delivered."""
        counts = self.counts
        for first, last in self.owed:
            known = min(last, len(counts) - 1)
            if known >= first and counts.find(0, first, known + 1) >= 0:
                for n in range(first, known + 1):
                    if not counts[n]:
                        yield n
            yield from range(max(first, known + 1), last + 1)


@dataclasses.dataclass
class Verdict:
    """Counts of events, over all sources."""
    owed: int = 0
    delivered: int = 0
    lost: int = 0
    invented: int = 0
    damaged: int = 0
    repeated: int = 0
    longest: int = 0
    reordered: int = 0
    examples: list = dataclasses.field(default_factory=list)

    def add(self, other):
        for field in dataclasses.fields(self):
            name = field.name
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name == "longest" else mine + theirs)
        del self.examples[8:]

    def __str__(self):
        return (f"owed {self.owed}, lost {self.lost}, invented {self.invented}, damaged {self.damaged}, "
                f"repeated {self.repeated} (longest run {self.longest}), reordered {self.reordered}")


class Judge:
    """Judges what was delivered. Used by feeds and sinks on several threads at the same time."""

    def __init__(self):
        self.changed = threading.Condition()
        self.sources = {}
        self.damaged = 0
        self.examples = []

    def source(self, name):
        with self.changed:
            return self.sources.setdefault(name, Source())

    def sending(self, name, last):
        """Called before the first byte is sent: from now on numbers up to `last` may be delivered."""
        with self.changed:
            source = self.sources.setdefault(name, Source())
            source.sent = max(source.sent, last)

    def promised(self, name, first, last):
        """Notes that `first` to `last` are in a file or were acknowledged, so they must be delivered."""
        with self.changed:
            self.sources.setdefault(name, Source()).owe(first, last)

    def deliver(self, data):
        """Takes a body or a file of events, one per line: an event itself, or a value that contains events."""
        with self.changed:
            for text in data.split(b"\n"):
                if text:
                    self._line(text)
            self.changed.notify_all()

    def _line(self, text):
        match = FORM.fullmatch(text)
        if match:
            source, n, pad, sum_ = match.groups()
            self._event(source, int(n), pad, int(sum_), text)
            return
        try:
            self._value(json.loads(text), text)
        except (ValueError, RecursionError):
            self._damage(text)

    def _value(self, value, text):
        if isinstance(value, list):
            for one in value:
                self._value(one, text)
        elif isinstance(value, dict) and "src" in value:
            try:
                self._event(value["src"].encode(), int(value["n"]), value["pad"].encode(), int(value["sum"]), text)
            except (KeyError, TypeError, AttributeError, ValueError):
                self._damage(text)
        else:
            self._damage(text)

    def _event(self, source, n, pad, sum_, text):
        if zlib.crc32(b"%s:%d:%s" % (source, n, pad)) != sum_:
            self._damage(text)
            return
        self.sources.setdefault(source, Source()).take(n)

    def _damage(self, text):
        self.damaged += 1
        if len(self.examples) < 4:
            self.examples.append(f"damaged: {text[:120]!r}")

    def has(self, name, n):
        source = self.sources.get(name)
        return source is not None and n < len(source.counts) and source.counts[n] > 0

    def wait(self, name, n, seconds):
        """Whether event `n` has been delivered within the time."""
        with self.changed:
            return self.changed.wait_for(lambda: self.has(name, n), seconds)

    def delivered(self):
        with self.changed:
            return sum(source.delivered + source.repeated for source in self.sources.values())

    def promises(self):
        with self.changed:
            return sum(last - first + 1 for source in self.sources.values() for first, last in source.owed)

    def verdict(self, ignore_loss_before=None):
        """Returns the counts. `ignore_loss_before`: by source name, the number before which losses are ignored."""
        with self.changed:
            result = Verdict(damaged=self.damaged, examples=list(self.examples))
            for name, source in sorted(self.sources.items()):
                lost = list(source.missing())
                if ignore_loss_before:
                    lost = [n for n in lost if n >= ignore_loss_before.get(name, 0)]
                result.owed += sum(last - first + 1 for first, last in source.owed)
                result.delivered += source.delivered
                result.lost += len(lost)
                result.invented += source.invented
                result.repeated += source.repeated
                result.longest = max(result.longest, source.longest)
                result.reordered += source.reordered
                if lost:
                    result.examples.append(f"lost of {name.decode()}: {ranges(lost)} of {source.sent}")
            return result


def ranges(numbers, most=6):
    """`3-5, 9, ...`"""
    spans = []
    for n in numbers:
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:most]]
    return ", ".join(texts + (["..."] if len(spans) > most else []))
