"""The other sides of the plugin in its tests: requests made with OpenTelemetry's own messages, and a receiver over HTTP and gRPC.

    peers.py PORT GRPC_PORT FILE    receives, and appends the body of each log record to FILE before it answers
"""
import concurrent.futures
import gzip
import http.client
import http.server
import os
import random
import socketserver
import ssl
import string
import sys
import threading

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

REQUESTS = {
    "logs": (logs_service_pb2.ExportLogsServiceRequest, logs_service_pb2.ExportLogsServiceResponse),
    "metrics": (metrics_service_pb2.ExportMetricsServiceRequest, metrics_service_pb2.ExportMetricsServiceResponse),
    "traces": (trace_service_pb2.ExportTraceServiceRequest, trace_service_pb2.ExportTraceServiceResponse),
}
STUBS = {"logs": logs_service_pb2_grpc.LogsServiceStub, "metrics": metrics_service_pb2_grpc.MetricsServiceStub,
         "traces": trace_service_pb2_grpc.TraceServiceStub}
HEX = ("traceId", "spanId", "parentSpanId")


def logs(*bodies, **attributes):
    """A request of log records whose bodies are the given texts or numbers."""
    request = REQUESTS["logs"][0]()
    scope = request.resource_logs.add().scope_logs.add()
    for body in bodies:
        record = scope.log_records.add(severity_number=9, time_unix_nano=1_700_000_000_000_000_001)
        if isinstance(body, int):
            record.body.int_value = body
        else:
            record.body.string_value = body
        for key, value in attributes.items():
            record.attributes.add(key=key).value.string_value = value
    return request


# ---- Random requests ----

class Maker:
    """Requests with every field that the plugin maps, at random. `plain`: without bytes, which JSON makes texts of."""

    def __init__(self, seed, plain=True, fractions=False):
        self.random = random.Random(seed)
        self.plain = plain
        # The host of the tests without rxd writes 3.0 as 3.
        self.numbers = [-1.5, 5e-324, 0.1] + ([] if fractions else [0.0, 3.0, 1e300])

    def text(self):
        return "".join(self.random.choice(string.printable + "äß\u20ac\U0001f600") for _ in range(self.random.randrange(12)))

    def time(self):
        return self.random.randrange(1, 2**63)

    def count(self):
        return self.random.choice([0, 1, 5, 2**40, 2**63 - 1, 2**64 - 1])

    def number(self):
        return self.random.choice([*self.numbers, self.random.random()])

    def id(self, count):
        return self.random.randbytes(count)

    def maybe(self):
        return self.random.random() < 0.6

    def any(self, value, depth=0):
        value.SetInParent()
        kind = self.random.randrange(9 if depth < 4 else 5)
        if kind == 0:
            value.string_value = self.text()
        elif kind == 1:
            value.bool_value = self.maybe()
        elif kind == 2:
            value.int_value = self.random.choice([0, -1, 2**63 - 1, -2**63, 42])
        elif kind == 3:
            value.double_value = self.number()
        elif kind == 4 and not self.plain:
            value.bytes_value = self.id(5)
        elif kind in (5, 6):
            value.array_value.SetInParent()
            for _ in range(self.random.randrange(3)):
                self.any(value.array_value.values.add(), depth + 1)
        elif kind in (7, 8):
            value.kvlist_value.SetInParent()
            self.attributes(value.kvlist_value.values, depth + 1)

    def attributes(self, pairs, depth=0):
        for index in range(self.random.randrange(4)):
            self.any(pairs.add(key=f"{index}{self.text()}").value, depth)

    def around(self, group, scope_group):
        self.attributes(group.resource.attributes)
        if self.maybe():
            group.schema_url = "http://a" + self.text()
            group.resource.dropped_attributes_count = 7
        scope_group.scope.name = self.text()
        scope_group.scope.version = self.text()
        self.attributes(scope_group.scope.attributes)
        if self.maybe():
            scope_group.scope.dropped_attributes_count = 3
            scope_group.schema_url = "http://b" + self.text()

    def request(self, signal):
        request = REQUESTS[signal][0]()
        groups = {"logs": "resource_logs", "metrics": "resource_metrics", "traces": "resource_spans"}[signal]
        scopes = groups.replace("resource", "scope")
        for _ in range(self.random.randrange(1, 4)):
            group = getattr(request, groups).add()
            for _ in range(self.random.randrange(1, 3)):
                scope = getattr(group, scopes).add()
                self.around(group, scope)
                for _ in range(self.random.randrange(1, 6)):
                    getattr(self, signal)(scope)
        return request

    def logs(self, scope):
        record = scope.log_records.add()
        if self.maybe():
            record.time_unix_nano = self.time()
            record.observed_time_unix_nano = self.time()
            record.severity_number = self.random.randrange(25)
            record.severity_text = self.text()
            record.trace_id, record.span_id, record.flags = self.id(16), self.id(8), 2**32 - 1
            record.event_name = self.text()
            record.dropped_attributes_count = 2**32 - 1
        if self.maybe():
            record.body.SetInParent()
            self.any(record.body)
        self.attributes(record.attributes)

    def traces(self, scope):
        span = scope.spans.add(trace_id=self.id(16), span_id=self.id(8), name=self.text(), kind=self.random.randrange(6))
        span.start_time_unix_nano, span.end_time_unix_nano = self.time(), self.time()
        self.attributes(span.attributes)
        if self.maybe():
            span.parent_span_id, span.trace_state, span.flags = self.id(8), "a=b", 0x301
            span.status.code = self.random.randrange(3)
            span.status.message = self.text()
            span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count = 1, 2, 3
        for _ in range(self.random.randrange(3)):
            event = span.events.add(time_unix_nano=self.time(), name=self.text(), dropped_attributes_count=self.random.randrange(2))
            self.attributes(event.attributes)
            link = span.links.add(trace_id=self.id(16), span_id=self.id(8), trace_state=self.text(), flags=self.random.randrange(2))
            self.attributes(link.attributes)

    def exemplars(self, point):
        for _ in range(self.random.randrange(2)):
            exemplar = point.exemplars.add(time_unix_nano=self.time(), trace_id=self.id(16), span_id=self.id(8))
            exemplar.as_double = self.number()
            self.attributes(exemplar.filtered_attributes)
        for _ in range(self.random.randrange(2)):
            point.exemplars.add(as_int=-5)

    def point(self, points):
        point = points.add(time_unix_nano=self.time(), flags=self.random.randrange(2))
        if self.maybe():
            point.start_time_unix_nano = self.time()
        self.attributes(point.attributes)
        return point

    def range(self, point):
        point.count = self.count()
        for name in ("sum", "min", "max"):
            if self.maybe():
                setattr(point, name, self.number())
        self.exemplars(point)

    def metrics(self, scope):
        metric = scope.metrics.add(name=self.text(), description=self.text(), unit=self.text())
        self.attributes(metric.metadata)
        kind = self.random.choice(["gauge", "sum", "histogram", "exponential_histogram", "summary"])
        data = getattr(metric, kind)
        data.SetInParent()
        if kind in ("sum", "histogram", "exponential_histogram"):
            data.aggregation_temporality = self.random.randrange(3)
        if kind == "sum":
            data.is_monotonic = self.maybe()
        for _ in range(self.random.randrange(1, 4)):
            point = self.point(data.data_points)
            if kind in ("gauge", "sum"):
                if self.maybe():
                    point.as_int = self.random.choice([0, -2**63, 2**63 - 1])
                elif self.maybe():
                    point.as_double = self.number()
                self.exemplars(point)
            elif kind == "histogram":
                self.range(point)
                point.explicit_bounds.extend(sorted(self.number() for _ in range(2)))
                point.bucket_counts.extend(self.count() for _ in range(3))
            elif kind == "exponential_histogram":
                self.range(point)
                point.scale, point.zero_count, point.zero_threshold = -3, self.count(), 0.25
                if self.maybe():
                    point.positive.offset = -7
                    point.positive.bucket_counts.extend(self.count() for _ in range(2))
                if self.maybe():
                    point.negative.bucket_counts.append(1)
            else:
                point.count, point.sum = self.count(), self.number()
                for _ in range(self.random.randrange(3)):
                    point.quantile_values.add(quantile=0.5, value=self.number())


def flat(signal, request):
    """Each record with what is around it, as texts: how records are grouped does not matter."""
    groups = {"logs": "resource_logs", "metrics": "resource_metrics", "traces": "resource_spans"}[signal]
    found = []
    for group in getattr(request, groups):
        for scope in getattr(group, groups.replace("resource", "scope")):
            around = (group.resource, group.schema_url, scope.scope, scope.schema_url)
            records = scope.log_records if signal == "logs" else scope.spans if signal == "traces" else []
            for record in records:
                if signal == "traces" and not record.status.ByteSize():
                    record.ClearField("status")  # it says nothing
            found += [str((*around, record)) for record in records]
            for metric in getattr(scope, "metrics", []):
                kind = metric.WhichOneof("data")
                head = type(metric)()
                head.CopyFrom(metric)
                del getattr(head, kind).data_points[:]
                found += [str((*around, head, point)) for point in getattr(metric, kind).data_points]
    return sorted(found)


def json_of(request):
    """OTLP's JSON: ids in hex instead of base64, enums as numbers."""
    import base64

    def correct(value):
        if isinstance(value, list):
            return [correct(one) for one in value]
        if isinstance(value, dict):
            return {name: base64.b64decode(one).hex() if name in HEX and isinstance(one, str) else correct(one)
                    for name, one in value.items()}
        return value
    return correct(json_format.MessageToDict(request, use_integers_for_enums=True))


# ---- Sending ----

def post(port, signal, body, headers=None, timeout=15, compress=False):
    """Sends a request over HTTP; the status, the headers in lower case, and the body of the answer."""
    headers = {"content-type": "application/x-protobuf", **(headers or {})}
    if compress:
        body = gzip.compress(body, 1)
        headers["content-encoding"] = "gzip"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", f"/v1/{signal}", body, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


# ---- Receiving ----

class Receiver:
    """Accepts everything, unless `answer(signal, request, number)` returns something else than None: of HTTP (status, headers, body),
    of gRPC (code, message, trailers), or a response. `requests` has what was accepted."""

    def __init__(self, port=0, grpc_port=0, answer=None, certificate=None, on_accepted=None):
        self.requests = []
        self.headers = []
        self.count = 0
        self.answer = answer or (lambda signal, request, number: None)
        self.on_accepted = on_accepted or (lambda signal, request: None)
        self.lock = threading.Lock()
        self.start_http(port, certificate)
        self.start_grpc(grpc_port, certificate)

    def take(self, signal, request, headers):
        with self.lock:
            self.headers.append(headers)
            self.count += 1
            answer = self.answer(signal, request, self.count)
            if answer is None or not isinstance(answer, tuple):
                self.requests.append((signal, request))
                self.on_accepted(signal, request)
        return REQUESTS[signal][1]() if answer is None else answer

    def records(self):
        with self.lock:
            return [(signal, record) for signal, request in self.requests for record in flat(signal, request)]

    def bodies(self):
        with self.lock:
            return [record.body.int_value for signal, request in self.requests if signal == "logs"
                    for group in request.resource_logs for scope in group.scope_logs for record in scope.log_records]

    def start_http(self, port, certificate):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                signal = self.path.rsplit("/", 1)[1]
                request = REQUESTS[signal][0].FromString(body)
                answer = receiver.take(signal, request, {name.lower(): value for name, value in self.headers.items()})
                status, headers, body = answer if isinstance(answer, tuple) else (200, {}, answer.SerializeToString())
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 64
            allow_reuse_address = True

        self.http = Server(("127.0.0.1", port), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def start_grpc(self, port, certificate):
        receiver = self

        def servicer(base, signal):
            class Servicer(base):
                def Export(self, request, context):
                    answer = receiver.take(signal, request, dict(context.invocation_metadata()))
                    if not isinstance(answer, tuple):
                        return answer
                    code, message, trailers = answer
                    context.set_trailing_metadata(tuple(trailers.items()))
                    context.abort(code, message)
            return Servicer()

        self.grpc = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(servicer(logs_service_pb2_grpc.LogsServiceServicer, "logs"), self.grpc)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(
            servicer(metrics_service_pb2_grpc.MetricsServiceServicer, "metrics"), self.grpc)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(servicer(trace_service_pb2_grpc.TraceServiceServicer, "traces"), self.grpc)
        address = f"127.0.0.1:{port}"
        if certificate:
            with open(certificate[0], "rb") as chain, open(certificate[1], "rb") as key:
                credentials = grpc.ssl_server_credentials([(key.read(), chain.read())])
            self.grpc_port = self.grpc.add_secure_port(address, credentials)
        else:
            self.grpc_port = self.grpc.add_insecure_port(address)
        self.grpc.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.grpc.stop(0).wait()


def main():
    port, grpc_port, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(_, request):
        bodies = [str(record.body.int_value) for group in request.resource_logs for scope in group.scope_logs for record in scope.log_records]
        os.write(file, ("\n".join(bodies) + "\n").encode())

    receiver = Receiver(port, grpc_port, on_accepted=note)
    receiver.requests = type("Nothing", (list,), {"append": lambda *_: None})()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
