"""The cost of each guarantee for each sink of the catalogue: the same events with each guarantee, alternating."""
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading

from .machine import Fault, Run, Surroundings, say
from .pairs import Estimate

EVENTS = 300_000
ROUNDS = 6
PROMISES = ("bestEffort", "light", "durable")
#: The limit for the time with each guarantee, relative to `bestEffort`.
BARS = {"light": 1.1, "durable": 2.5}


@contextlib.contextmanager
def collector(bench, events):
    """A server that accepts requests over HTTP and counts the events."""
    with subprocess.Popen(
            [bench.program("collect")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.stdin.close()
        counted = json.loads(server.stdout.readline())
    if counted["lines"] < events:
        raise Fault(f"http: {counted['lines']} of {events} events came")


@contextlib.contextmanager
def reader(address):
    """Reads all that comes over connections to a socket."""
    buffer = bytearray(1 << 20)

    def read(connection):
        with connection:
            while connection.recv_into(buffer):
                pass

    def accept(listener):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=read, args=(listener.accept()[0],), daemon=True).start()

    kind = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield address if kind == socket.AF_UNIX else str(listener.getsockname()[1])
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def local_reader(bench, events):
    with tempfile.TemporaryDirectory() as folder, reader(os.path.join(folder, "socket")) as place:
        yield place


def nothing(bench, events):
    return contextlib.nullcontext("")


#: Sinks by name: the receiver, the number of input events, and the parameters, with its address and the directory for
#outputs.
SINKS = {
    "file": (nothing, EVENTS, "file: {{ path: '{directory}/out', encode: ndjson }}"),
    "file, 12 by name": (
        nothing, EVENTS, "file: {{ path: '{directory}/by/{{{{ event.service }}}}.ndjson', encode: ndjson }}"),
    "file, 4 of 12 open": (
        nothing, EVENTS // 10,
        "file: {{ path: '{directory}/by/{{{{ event.service }}}}.ndjson', encode: ndjson, maxOpenFiles: 4 }}"),
    "stdout": (nothing, EVENTS, "stdout: {{ encode: ndjson }}"),
    "http, 1000 a request": (
        collector, EVENTS, "http: {{ url: 'http://127.0.0.1:{place}/', encode: ndjson, batch: {{ count: 1000, every: 1s }} }}"),
    "http, 1 a request": (collector, EVENTS // 30, "http: {{ url: 'http://127.0.0.1:{place}/', encode: ndjson }}"),
    "tcp": (lambda bench, events: reader(("127.0.0.1", 0)), EVENTS,
            "tcp: {{ address: '127.0.0.1:{place}', encode: ndjson }}"),
    "unix": (local_reader, EVENTS, "unix: {{ path: '{place}', encode: ndjson }}"),
    "exec": (nothing, EVENTS, "exec: {{ command: [sh, -c, 'cat > /dev/null'], encode: ndjson }}"),
    "sqlite": (
        nothing, EVENTS,
        "sqlite: {{ path: '{directory}/out.db', table: rows, columns: {{ service: event.service, status: event.status }},"
        " create: 'CREATE TABLE rows(service TEXT, status INTEGER)' }}"),
    "discard": (nothing, EVENTS, "discard: {{}}"),
}


def promises(bench):
    """W22: events from a file to each sink, with each guarantee. State and outputs are on a disk."""
    figures = {}
    surroundings = Surroundings()
    say(f"\nw22-sinks: seconds by the clock, two cores, a disk, {ROUNDS} rounds in turn; medians, and the interval of the ratios to bestEffort, by the "
        "clock and in processor time")
    worse = []
    for name, (receiver, events, parameters) in SINKS.items():
        data = bench.generate("events", events)
        runs = {promise: [] for promise in PROMISES}
        for _ in range(ROUNDS):
            for promise in PROMISES:
                directory = tempfile.mkdtemp(prefix="sinks-", dir=bench.programs)
                os.mkdir(os.path.join(directory, "by"))
                try:
                    with receiver(bench, events) as place:
                        path = os.path.join(directory, "w22.yaml")
                        with open(path, "w") as file:
                            file.write(
                                f"delivery: {promise}\nsources: {{ in: {{ file: {{ path: '{data}', decode: ndjson }} }} }}\n"
                                "sinks: { out: { from: in, " + parameters.format(place=place, directory=directory) + " } }\n")
                        os.sync()
                        runs[promise].append(Run(
                            bench, [bench.rxd, "--quiet", "--state-dir", os.path.join(directory, "state"), path], bench.cores,
                            output="/dev/null"))
                finally:
                    shutil.rmtree(directory)
        figures[name] = {"bestEffort": [run.wall for run in runs["bestEffort"]]}
        text = f"{name:<22}{statistics.median(figures[name]['bestEffort']):>8.2f}"
        for promise, bar in BARS.items():
            pairs = list(zip(runs[promise], runs["bestEffort"]))
            ratio = Estimate.of([own.wall / least.wall for own, least in pairs])
            cpu = Estimate.of([own.cpu / least.cpu for own, least in pairs])
            figures[name][promise] = {"wall": [run.wall for run in runs[promise]], "ratio": ratio, "cpu": cpu, "bar": bar}
            text += f"   {promise} {statistics.median(run.wall for run in runs[promise]):.2f},"
            text += f" {ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f}), cpu {cpu.median:.2f} ({cpu.low:.2f}-{cpu.high:.2f})"
            if ratio.at_most(bar) is False:
                worse.append(f"{name}: {promise} takes {ratio.median:.2f} times as long as bestEffort, more than {bar}")
        say(text)
    for line in worse:
        say(f"  {line}")
    say(surroundings)
    return figures


ALL = {"w22-sinks": promises}
