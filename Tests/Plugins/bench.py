"""Throughput of a plugin in events of 256 bytes: per second of one core's time, and per second by the clock.

The frames are prepared in advance and written in blocks of 128, so that this side costs little; at most 1,024 are unanswered.
"""
import json
import os
import select
import time

from host import Host

BLOCK = 128
CREDIT = 1024


def event(number, size=256):
    """An event of exactly this many bytes, as JSON."""
    made = {"id": number, "time": "2026-11-23T08:00:00Z", "user": f"user{number % 1000}", "amount": number % 97 + 0.5,
            "ok": True, "card": "4111111111111111", "text": ""}
    made["text"] = "x" * (size - len(json.dumps(made, separators=(",", ":"))))
    return made


def frames(instance, count, first, more=None, size=256):
    blocks, block = [], []
    for number in range(first, first + count):
        body = json.dumps(event(number, size), separators=(",", ":"))
        block.append(f'{{"id":{number},"to":{instance.number},"event":{body}{more or ""}}}\n')
        if len(block) == BLOCK or number == first + count - 1:
            blocks.append((len(block), "".join(block).encode()))
            block = []
    return blocks


def cpu_seconds(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Figures:
    def __init__(self, name, count, wall, cpu):
        self.name, self.count, self.wall, self.cpu = name, count, wall, cpu

    @property
    def per_core(self):
        return self.count / self.cpu

    def __str__(self):
        return (f"{self.name}: {self.per_core:,.0f} events a second of one core, {self.count / self.wall:,.0f} on the wall "
                f"({self.count:,} events, {self.cpu:.2f} s of {self.wall:.2f} s)")


def operator(command, kind, name, parameters, count=200_000, more=None, cwd=None):
    """Operators and sinks."""
    with Host(command, cwd=cwd) as host:
        instance = host.open(kind, name, parameters)
        host.out.clear()
        blocks = frames(instance, count, 1, more)
        if kind == "sink":
            blocks = [(n, data + b'{"flush":%d}\n' % instance.number) for n, data in blocks]
        inp, out = host.process.stdin.fileno(), host.process.stdout.fileno()
        sent = answered = 0
        pending = b""
        blocks.reverse()
        before, start = cpu_seconds(host.process), time.monotonic()
        while answered < count:
            if not pending and blocks and sent - answered + blocks[-1][0] <= CREDIT:
                n, pending = blocks.pop()
                sent += n
            ready = select.select([out], [inp] if pending else [], [], 10)
            if ready[1]:
                pending = pending[os.write(inp, pending):]
            if ready[0]:
                data = os.read(out, 1 << 18)
                if not data:
                    raise SystemExit(f"the plugin has ended: {host.said()[-500:]}")
                if kind == "sink":
                    # The last answer read shows the progress.
                    host.rest += data
                    lines = host.rest.split(b"\n")
                    host.rest = lines.pop()
                    for line in lines[-1:]:
                        frame = json.loads(line)
                        answered = frame.get("through", frame.get("id"))
                else:
                    answered += data.count(b"\n")
            if not any(ready):
                raise SystemExit("no answer within 10 s")
        wall, cpu = time.monotonic() - start, cpu_seconds(host.process) - before
    return Figures(name, count, wall, cpu)


def source(command, name, parameters, count=200_000, cwd=None):
    with Host(command, cwd=cwd) as host:
        instance = host.open("source", name, parameters)
        before, start = cpu_seconds(host.process), time.monotonic()
        host.give_credit(instance, CREDIT)
        while len(instance.events) < count and instance.end is None:
            host.pump(10)
            if instance.credit < CREDIT // 2:
                host.give_credit(instance, CREDIT - instance.credit)
            if instance.unsettled:
                host.acknowledge(instance, sorted(instance.unsettled))
        wall, cpu = time.monotonic() - start, cpu_seconds(host.process) - before
        return Figures(name, len(instance.events), wall, cpu)
