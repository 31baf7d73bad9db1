"""Reloads of a busy pipeline, for pairs of a source and a sink: they are short, and no answer and no answered event is lost."""
import http.client
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time

from ..process import Directory, Rxd, free_port, wait_until
from ..report import Report, percentile

#: The sources, by how their clients send.
SOURCES = {"whole": '{httpServer: {address: "127.0.0.1:%(port)d", decode: ndjson}}',
           "parts": '{httpServer: {address: "127.0.0.1:%(port)d", decode: ndjson}}',
           "tcp": '{tcp: {address: "127.0.0.1:%(port)d", decode: ndjson}}',
           "file": '{file: {path: "%(dir)s/in", follow: true, decode: ndjson}}',
           "interval": '{interval: 1ms}'}
SINKS = {"discard": "{from: q, discard: {}}",
         "file": '{from: q, file: "%(dir)s/out"}',
         "synced": '{from: q, file: {path: "%(dir)s/out", sync: batch}}',
         "files": '{from: q, file: {path: "%(dir)s/{{ string(event.n %% 3) }}.out"}}',
         "http": '{from: q, http: {url: "%(url)s/", batch: {count: 1000, every: 1s}}}',
         "slow": '{from: q, http: {url: "%(url)s/slow", batch: {count: 1000, every: 20ms}}}',
         "dead": '{from: q, http: {url: "http://127.0.0.1:1/", batch: {count: 10, every: 20ms}}}',
         "tcp": '{from: q, tcp: "127.0.0.1:%(sink)d"}',
         "unix": '{from: q, unix: "%(dir)s/u.sock"}',
         "udp": '{from: q, udp: "127.0.0.1:%(sink)d"}',
         "syslog": '{from: q, syslog: {address: "127.0.0.1:%(sink)d"}}',
         "exec": "{from: q, exec: [cat]}",
         "stream": "{from: q, exec: {command: [sh, -c, 'exec cat > /dev/null'], encode: ndjson}}",
         "stdout": "{from: q, stdout: {encode: ndjson}}",
         "stalled": '{from: q, file: "%(dir)s/pipe"}',
         "plugin": "{from: q, take: {}}",
         "native": "{from: q, probeSink: pass}",
         "remoteWrite": '{from: q, chain: [{map: "{\'name\': \'n_total\', \'type\': \'counter\', \'value\': 1}"}], prometheusRemoteWrite: {url: "%(url)s/write"}}',
         "sqlite": '{from: q, sqlite: {path: "%(dir)s/db", table: t, columns: {n: event.n}, create: "CREATE TABLE IF NOT EXISTS t (n INTEGER)"}}',
         "sse": '{from: q, sse: {address: "127.0.0.1:%(listen)d"}}',
         "webSocket": '{from: q, webSocket: {listen: "127.0.0.1:%(listen)d"}}',
         "exporter": '{from: q, chain: [{map: "{\'name\': \'n_total\', \'type\': \'counter\', \'value\': 1}"}], prometheusExporter: {listen: "127.0.0.1:%(listen)d"}}'}
MODES = {"none": None, "light": "light", "durable": "durable"}
#: Sinks with which clients wait for an answer that never comes, with and without a reload.
UNANSWERED = ("dead", "stalled")
CASES = [f"{source}-{sink}" for source in SOURCES for sink in SINKS]
QUICK = ["whole-file", "parts-http", "whole-slow", "whole-dead", "tcp-tcp", "file-http", "interval-exec", "tcp-plugin"]
#: The limit for the 99th percentile of all reloads of a pair.
LIMIT_MS = 50
#: Reloads in each of three modes: more than a hundred per pair.
ROUNDS, QUICK_ROUNDS = 34, 4
ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), *[".."] * 4))
#: The command that builds the library of a native plugin; None: nothing.
COMPILER = next(filter(None, map(shutil.which, ("clang", "cc"))), None)
PLUGIN = """from rxd_plugin import Plugin, Sink
plugin = Plugin("p", "1.0.0", "Takes events.")

@plugin.sink(confirmation="nothing")
class Take(Sink):
    \"\"\"Takes events.\"\"\"

    def write_batch(self, records):
        pass

plugin.run()
"""


def run(options):
    for case in CASES:
        if options.cases and case not in options.cases or options.quick and not options.cases and case not in QUICK:
            continue
        source, sink = case.split("-")
        if sink == "native" and COMPILER is None:
            report = Report(f"pairs/{case}", options.seed)
            report.skip("there is no C compiler")
            yield report
            continue
        times = []
        for mode in MODES:
            yield pair(options, source, sink, mode, times)
        report = Report(f"pairs/{case}", options.seed)
        if not times:
            continue
        report.figure("reloads", len(times))
        report.figure("median ms", percentile(times, 0.5))
        report.figure("longest ms", max(times))
        report.most("99th percentile, ms", percentile(times, 0.99), LIMIT_MS)
        yield report.end()


class Receiver:
    """Accepts events over HTTP, late at `/slow`, and notes their numbers; discards what comes over TCP and UDP."""

    def __init__(self, socket_path):
        self.numbers = {}
        self.lock = threading.Lock()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path == "/slow":
                    time.sleep(0.2)
                if self.path != "/write":
                    receiver.take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.web.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.web.server_address[1]
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        self.stream = socket.create_server(("127.0.0.1", 0))
        self.port = self.stream.getsockname()[1]
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", self.port))
        self.local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.local.bind(socket_path)
        self.local.listen(64)
        for listener in (self.stream, self.local):
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def take(self, body):
        with self.lock:
            for line in body.splitlines():
                n = json.loads(line).get("n")
                self.numbers[n] = self.numbers.get(n, 0) + 1

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection):
        try:
            while connection.recv(1 << 16):
                pass
        except OSError:
            pass

    def close(self):
        self.web.shutdown()
        self.web.server_close()
        for listener in (self.stream, self.local):
            # Wakes the thread, which waits for a connection.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.datagrams.close()


class Client(threading.Thread):
    """Posts events one after another on a kept connection; `gap`: the pause between head and body, in seconds."""

    def __init__(self, port, first, gap):
        super().__init__(daemon=True)
        self.port, self.next, self.gap = port, first, gap
        self.done = False
        self.codes, self.accepted, self.times = {}, [], []

    def run(self):
        connection = None
        while not self.done:
            n, self.next = self.next, self.next + 1
            body = b'{"n":%d}\n' % n
            head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.port), 20)
                if self.gap:
                    connection.sendall(head)
                    time.sleep(self.gap)
                    begun = time.monotonic()
                    connection.sendall(body)
                else:
                    begun = time.monotonic()
                    connection.sendall(head + body)
                answer = connection.recv(4096)
                self.times.append((begun, time.monotonic() - begun))
                code = answer[9:12].decode() or "closed"
            except OSError as error:
                code = type(error).__name__
            self.codes[code] = self.codes.get(code, 0) + 1
            if code == "200":
                self.accepted.append(n)
            else:
                connection = None
            time.sleep(0.002)


class Lines(threading.Thread):
    """Sends lines over TCP, or appends them to a file."""

    def __init__(self, port, path):
        super().__init__(daemon=True)
        self.port, self.path, self.done = port, path, False

    def run(self):
        n, connection = 0, None
        with open(self.path, "ab", buffering=0) as file:
            while not self.done:
                line = b"".join(b'{"n":%d}\n' % i for i in range(n, n + 20))
                n += 20
                if not self.port:
                    file.write(line)
                else:
                    try:
                        connection = connection or socket.create_connection(("127.0.0.1", self.port), 20)
                        connection.sendall(line)
                    except OSError:
                        connection = None
                time.sleep(0.005)


class Control(http.client.HTTPConnection):
    """The control socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=90)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def reload(self):
        """Reloads; returns how long that took in milliseconds, or a minute if it is refused or not answered."""
        try:
            self.request("POST", "/reload")
            verdict = json.loads(self.getresponse().read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError):
            return 60_000
        finally:
            self.close()
        return verdict.get("milliseconds", 60_000) if verdict.get("result") == "reloaded" else 60_000


def pair(options, source, sink, mode, all_times):
    report = Report(f"pairs/{source}-{sink}-{mode}", options.seed)
    directory = Directory(options.keep)
    receiver = Receiver(directory / "u.sock")
    path = directory / "p.yaml"
    names = {"dir": directory.path, "port": free_port(), "listen": free_port(), "sink": receiver.port,
             "url": receiver.url}
    head = f"delivery: {MODES[mode]}\n" if MODES[mode] else ""
    if sink == "plugin":
        with open(directory / "plugin.py", "w") as file:
            file.write(PLUGIN)
        head += f'plugins: {{p: {{run: [python3, ./plugin.py], env: {{PYTHONPATH: "{ROOT}/Plugins/python"}}}}}}\n'
    elif sink == "native":
        subprocess.run([COMPILER, "-shared", "-fPIC", "-I", ROOT + "/Sources/CPlugin/include", "-o",
                        directory / "probe.so", ROOT + "/Tests/PluginHostTests/Fixtures/probe.c"], check=True)
        head += "plugins: {p: ./probe.so}\n"
    # The reader of this pipe reads nothing.
    os.mkfifo(directory / "pipe")
    stalled = os.open(directory / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    value = "event" if source != "interval" else '{"n": event.tick}'

    def write(version):
        text = (head + f"name: p\nsources: {{s: {SOURCES[source]}}}\n"
                f"signals: {{q: {{from: s, chain: [{{map: '{value}'}}, {{set: {{v: {version}}}}}]}}}}\n"
                f"sinks: {{o: {SINKS[sink]}}}\n") % names
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)

    open(directory / "in", "w").close()
    write(0)
    rxd = Rxd(path, directory / "state" if mode != "none" else None, directory.path, {}, log=directory / "log",
              options=["--control-socket", directory / "c.sock"])
    rxd.start()
    try:
        report.require("starts", rxd.ready() is not None)
        if not report.passed:
            report.notes += rxd.log().splitlines()[-4:]
            return report.end()
        clients = []
        if source in ("whole", "parts"):
            clients = [Client(names["port"], i * 10_000_000, 0.06 if source == "parts" else 0) for i in range(4)]
        elif source in ("tcp", "file"):
            clients = [Lines(names["port"] if source == "tcp" else 0, directory / "in")]
        for client in clients:
            client.start()
        rxd.run_for(0.3)
        times, spans = [], []
        for version in range(1, (options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)) + 1):
            write(version)
            begun = time.monotonic()
            times.append(Control(directory / "c.sock").reload())
            spans.append((begun, time.monotonic()))
            rxd.run_for(0.06)
        all_times += times
        for client in clients:
            client.done = True
        times.sort()
        report.figure("reload, median ms", times[len(times) // 2])
        report.figure("reload, longest ms", times[-1])
        report.require("reloaded each time", times[-1] < 60_000)
        if source in ("whole", "parts"):
            if sink not in UNANSWERED:
                for client in clients:
                    client.join(30)
                slowest = max((took for client in clients for begun, took in client.times
                               if any(a - took <= begun <= b for a, b in spans)), default=0)
                usual = sorted(took for client in clients for _, took in client.times)
                report.figure("answer, median ms", round(usual[len(usual) // 2] * 1000, 1) if usual else None)
                report.figure("answer during a reload, longest ms", round(slowest * 1000, 1))
            codes = {}
            for client in clients:
                for code, count in dict(client.codes).items():
                    codes[code] = codes.get(code, 0) + count
            report.figure("answers", codes)
            report.require("only 200", set(codes) == {"200"} or not codes and sink in UNANSWERED, codes)
            if sink in ("http", "slow"):
                accepted = [n for client in clients for n in client.accepted]
                wait_until(lambda: all(n in receiver.numbers for n in accepted), 20)
                report.most("acknowledged and not received", sum(n not in receiver.numbers for n in accepted), 0)
                report.most("received twice", sum(count > 1 for count in list(receiver.numbers.values())), 0)
        report.notes += rxd.log().splitlines()[-4:]
    finally:
        rxd.kill()
        receiver.close()
        os.close(stalled)
        directory.remove()
    return report.end()
