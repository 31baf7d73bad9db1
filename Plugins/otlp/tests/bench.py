"""Speed: rxd beside a collector (rotel, Rust) that receives the same requests, and beside OpenTelemetry's exporters that send the same records.

RXD names the program; RUNS and RECORDS how much."""
import http.client
import http.server
import json
import os
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import grpc  # noqa: E402
from peers import REQUESTS, logs  # noqa: E402
from plugin_test import free_port, wait_for  # noqa: E402

RXD = os.environ.get("RXD", "rxd")
PLUGIN = os.path.join(os.path.dirname(HERE), "otlp.so")
RUNS = int(os.environ.get("RUNS", "5"))
RECORDS = int(os.environ.get("RECORDS", "400000"))
EACH = 1000  # records of a request
CLIENTS = 4
BODY = logs(*(f"GET /catalogue/items/{number} took 12 ms" for number in range(EACH)), method="GET", route="/catalogue/items", host="a.example.com").SerializeToString()


def send_http(port, count):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(count):
        connection.request("POST", "/v1/logs", BODY, {"content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
    connection.close()


def send_grpc(port, count):
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        for _ in range(count):
            call(BODY, timeout=60)


def rate_of_receiver(send, port):
    """Records a second, of clients that wait for each answer."""
    requests = RECORDS // EACH // CLIENTS
    send(port, 5)
    threads = [threading.Thread(target=send, args=(port, requests)) for _ in range(CLIENTS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return requests * CLIENTS * EACH / (time.monotonic() - began)


class Program:
    def __init__(self, arguments, ready):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(arguments, stdout=self.log, stderr=self.log)

        def is_ready():
            self.log.seek(0)
            return ready(self.log.read())

        wait_for(is_ready, "the start")

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def rxd(text, ready):
    path = os.path.join(directory, "bench.yaml")
    with open(path, "w") as file:
        file.write(text)
    return Program([RXD, "run", path], ready)


def rxd_receives(port, grpc_port):
    return rxd(f"""plugins: {{ otlp: {PLUGIN} }}
delivery: bestEffort
sources:
  in: {{ otlp: {{ http: "127.0.0.1:{port}", grpc: "127.0.0.1:{grpc_port}" }} }}
sinks:
  out: {{ from: in, discard: {{}} }}
""", lambda log: log.count("receiving OTLP") == 2)


def rotel_receives(port, grpc_port):
    import rotel
    agent = os.path.join(os.path.dirname(rotel.__file__), "rotel-agent")

    def listens(_):
        try:
            send_http(port, 1)
            return True
        except OSError:
            return False

    return Program([agent, "start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}",
                    "--exporter", "blackhole"], listens)


class Counting:
    """A receiver that does nothing but read."""

    def __init__(self):
        counting = self
        self.bytes = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self):
                counting.bytes += len(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def sdk_sends(port):
    """OpenTelemetry's exporter, with log records that are made before."""
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    resource, scope = Resource({"service.name": "shop"}), InstrumentationScope("bench")
    batch = [ReadableLogRecord(LogRecord(timestamp=1_700_000_000_000_000_000, observed_timestamp=1, severity_number=SeverityNumber.INFO,
                                         body=f"GET /catalogue/items/{number} took 12 ms",
                                         attributes={"method": "GET", "route": "/catalogue/items", "host": "a.example.com"}),
                               resource, scope) for number in range(EACH)]
    exporter = OTLPLogExporter(endpoint=f"http://127.0.0.1:{port}/v1/logs", compression=Compression.Gzip)
    count = RECORDS // 10 // EACH
    began = time.monotonic()
    for _ in range(count):
        exporter.export(batch)
    return count * EACH / (time.monotonic() - began)


def rxd_sends(port):
    path = os.path.join(directory, "events.ndjson")
    if not os.path.exists(path):
        with open(path, "w") as file:
            for number in range(RECORDS):
                file.write(json.dumps({"body": f"GET /catalogue/items/{number} took 12 ms", "severity": 9, "time": "2026-01-31T12:00:00Z",
                                       "attributes": {"method": "GET", "route": "/catalogue/items", "host": "a.example.com"}}) + "\n")
    text = f"""plugins: {{ otlp: {PLUGIN} }}
delivery: bestEffort
sources:
  in: {{ file: {{ path: {path}, decode: ndjson }} }}
sinks:
  out: {{ from: in, otlp: {{ endpoint: "http://127.0.0.1:{port}", resource: {{ service.name: shop }} }} }}
"""
    pipeline = os.path.join(directory, "send.yaml")
    with open(pipeline, "w") as file:
        file.write(text)
    began = time.monotonic()
    subprocess.run([RXD, "run", pipeline], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=200)
    return RECORDS / (time.monotonic() - began)


def show(label, rates):
    print(f"{label:38} {min(rates):>9,.0f} to {max(rates):>9,.0f} records a second, {statistics.median(rates):>9,.0f} in the middle", flush=True)


def main():
    print(f"requests of {EACH} log records, {len(BODY):,} bytes, {CLIENTS} clients in Python; {RUNS} runs in turn")
    found = {}
    for _ in range(RUNS):
        for name, start in [("rxd", rxd_receives), ("rotel", rotel_receives)]:
            port, grpc_port = free_port(), free_port()
            try:
                with start(port, grpc_port) as program:
                    for protocol, send, target in [("HTTP", send_http, port), ("gRPC", send_grpc, grpc_port)]:
                        before = program.cpu()
                        found.setdefault(f"{name} receives, {protocol}", []).append(rate_of_receiver(send, target))
                        found.setdefault(f"  of its processor time, {protocol}, {name}", []).append(RECORDS / (program.cpu() - before))
            except ImportError:
                print("rotel is not installed")
        counting = Counting()
        found.setdefault("OpenTelemetry's exporter sends, HTTP", []).append(sdk_sends(counting.port))
        found.setdefault("rxd sends, HTTP, from JSON lines", []).append(rxd_sends(counting.port))
    for label, rates in found.items():
        show(label, rates)


if __name__ == "__main__":
    assert REQUESTS
    with tempfile.TemporaryDirectory(prefix="rxd-bench-") as directory:
        main()
