"""Tests of the plugin with OpenTelemetry's SDK for Python and receivers of its messages: without rxd, and in rxd if RXD names it."""
import gzip
import json
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import grpc  # noqa: E402
from peers import REQUESTS, STUBS, Maker, Receiver, flat, json_of, logs, post  # noqa: E402
from plugin_test import RXD, PluginTest, free_port, wait_for  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "otlp.so"))
KILLS = int(os.environ.get("KILLS", "10"))
PATIENCE = float(os.environ.get("PATIENCE", "60"))
MIB = 1 << 20


def varint(number):
    """As protobuf writes it."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes(made) + bytes([number])


class OtlpTest(PluginTest):
    plugin = PLUGIN

    def start_source(self, more=None, name="source", **parameters):
        """The source on free ports, when it listens."""
        self.port, self.grpc_port = free_port(), free_port()
        parameters = {"http": f"127.0.0.1:{self.port}", "grpc": f"127.0.0.1:{self.grpc_port}", **parameters}
        run = super().source("otlp", parameters, more, name)
        wait_for(lambda: run.errors().count("receiving OTLP") == 2 or run.process.poll() is not None, "the start", 20)
        self.assertIsNone(run.process.poll(), run.errors())
        return run

    def wait_for_lines(self, run, count, seconds=20):
        wait_for(lambda: run.count() >= count or run.process.poll() is not None, f"{count} lines\n{run.errors()}", seconds)
        return run.lines()

    def channel(self, port=None):
        channel = grpc.insecure_channel(f"127.0.0.1:{port or self.grpc_port}", options=[("grpc.max_send_message_length", -1)])
        self.addCleanup(channel.close)
        return channel

    def receiver(self, **options):
        receiver = Receiver(**options)
        self.addCleanup(receiver.close)
        return receiver

    def start_sink(self, receiver, events, name="sink", **parameters):
        port = receiver.grpc_port if parameters.get("protocol") == "grpc" else receiver.port
        return self.sink("otlp", {"endpoint": f"http://127.0.0.1:{port}", **parameters}, events, name)

    def make_certificates(self):
        """A file of a certificate for 127.0.0.1, and one of its key."""
        chain, key = self.path("chain.pem"), self.path("key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", chain], check=True,
                       capture_output=True)
        return chain, key


class ShapeTests(OtlpTest):
    """What the plugin knows of the messages is what OpenTelemetry's package says."""

    NAMES = {"ArrayValue": "ArrayValue", "Scope": "InstrumentationScope", "NumberPoint": "NumberDataPoint",
             "HistogramPoint": "HistogramDataPoint", "ExponentialPoint": "ExponentialHistogramDataPoint",
             "ExponentialPoint.Buckets": "ExponentialHistogramDataPoint.Buckets", "SummaryPoint": "SummaryDataPoint",
             "SummaryPoint.Quantile": "SummaryDataPoint.ValueAtQuantile", "Span.Status": "Status"}
    OTHER = {"Data": "Sum", "Response": "collector.logs.v1.ExportLogsServiceResponse",
             "Response.PartialSuccess": "collector.logs.v1.ExportLogsPartialSuccess"}

    def test_the_field_numbers_and_types(self):
        from google.protobuf import descriptor_pb2
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
        from opentelemetry.proto.common.v1 import common_pb2
        from opentelemetry.proto.logs.v1 import logs_pb2
        from opentelemetry.proto.metrics.v1 import metrics_pb2
        from opentelemetry.proto.resource.v1 import resource_pb2
        from opentelemetry.proto.trace.v1 import trace_pb2
        subprocess.run(["protoc", f"--proto_path={ROOT}/src", f"--descriptor_set_out={self.path('set')}", "otlp.proto"], check=True)
        with open(self.path("set"), "rb") as file:
            ours = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file[0]
        theirs = {}

        def gather(messages, prefix):
            for message in messages:
                theirs[prefix + message.name] = message
                gather(message.nested_types, prefix + message.name + ".")

        for module in (common_pb2, logs_pb2, metrics_pb2, resource_pb2, trace_pb2, logs_service_pb2):
            gather(module.DESCRIPTOR.message_types_by_name.values(), "")
        kinds = descriptor_pb2.FieldDescriptorProto
        compared = 0

        def compare(message, prefix):
            nonlocal compared
            name = prefix + message.name
            other = theirs.get(self.NAMES.get(name, self.OTHER.get(name, name)).rsplit("v1.", 1)[-1])
            if other is None:
                self.assertIn(name.split(".")[0], ("Failure", "RetryInfo"))
                return
            numbers = other.fields_by_number
            for field in message.field:
                self.assertIn(field.number, numbers, f"{name}.{field.name}")
                known = numbers[field.number]
                # A text may be bytes, an enum a number, and the data of a metric bytes.
                same = {kinds.TYPE_STRING: kinds.TYPE_BYTES, kinds.TYPE_ENUM: kinds.TYPE_INT32}
                if name == "Metric" and field.number in (5, 7, 9, 10, 11):
                    same[kinds.TYPE_MESSAGE] = kinds.TYPE_BYTES
                self.assertEqual(field.type, same.get(known.type, known.type), f"{name}.{field.name}")
                compared += 1
            for inner in message.nested_type:
                compare(inner, name + ".")

        for message in ours.message_type:
            compare(message, "")
        self.assertGreater(compared, 110)


class ParameterTests(OtlpTest):
    def test_errors_name_the_parameter(self):
        chain, key = self.make_certificates()
        off = {"http": "", "grpc": ""}
        for kind, parameters, expected in [
            ("source", off, "'http': is empty, and so is 'grpc': nothing would be received"),
            ("source", {"http": "127.0.0.1:70000"}, "'http': the port must be a number from 1 to 65535"),
            ("source", {"grpc": "grpc://127.0.0.1"}, "'grpc': must be HOST:PORT, without a scheme"),
            ("source", {"http": "127.0.0.1:9", "grpc": "127.0.0.1:9"}, "'grpc': is the address of 'http'"),
            ("source", {"signals": ["logs", "profiles"]}, "'signals': 'profiles' is no signal; use logs, metrics, traces"),
            ("source", {"signals": []}, "'signals': at least one must be there"),
            ("source", {"maxBody": "10B"}, "'maxBody': must be from 1024 to"),
            ("source", {"maxPending": "1MiB"}, "'maxPending': must not be smaller than 'maxBody'"),
            ("source", {"certificate": chain}, "'certificate': needs 'certificateKey'"),
            ("source", {"certificateKey": key}, "'certificateKey': has no effect without 'certificate'"),
            ("source", {"certificate": "/no/file", "certificateKey": key}, "'certificate': /no/file cannot be used"),
            ("source", {"certificate": chain, "certificateKey": chain}, "'certificateKey': "),
            ("source", {"certificate": chain, "certificateKey": key, "clientCa": key}, "'clientCa': "),
            ("sink", {"endpoint": "127.0.0.1:4318"}, "'endpoint': must begin with https:// or http://"),
            ("sink", {"endpoint": "http://h/v1/logs"}, "'endpoint': must not end with '/v1/logs', which is added for each signal"),
            ("sink", {"endpoint": "http://h/x", "protocol": "grpc"}, "'endpoint': must have no path with 'protocol: grpc'"),
            ("sink", {"endpoint": "http://u:p@h"}, "'endpoint': must not contain a user or a password"),
            ("sink", {"headers": {"a b": "c"}}, "'headers': a name has a character that headers cannot have"),
            ("sink", {"headers": {"Host": "c"}}, "'headers': 'host' is set by the sink"),
            ("sink", {"headers": {"x": "a\r\nb: c"}}, "'headers': the value of 'x' has a character that headers cannot have"),
            ("sink", {"ca": chain}, "'ca': has no effect without https:// in 'endpoint'"),
            ("sink", {"endpoint": "https://h", "ca": "/no/file"}, "'ca': /no/file: No such file or directory"),
            ("sink", {"endpoint": "https://h", "certificateKey": key}, "'certificateKey': has no effect without 'certificate'"),
        ]:
            with self.subTest(kind=kind, parameters=parameters):
                reason = self.refused(kind, "otlp", parameters)
                self.assertTrue(reason.startswith(expected), reason)


class SourceTests(OtlpTest):
    """The source, without rxd."""

    def sdk(self, run_in):
        """Logs, a span and metrics by OpenTelemetry's SDK, over the given protocol."""
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        if run_in == "http":
            from opentelemetry.exporter.otlp.proto.http import Compression
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            def exporter(kind, path):
                return kind(endpoint=f"http://127.0.0.1:{self.port}/v1/{path}", compression=Compression.Gzip)
        else:
            from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            def exporter(kind, path):
                return kind(endpoint=f"http://127.0.0.1:{self.grpc_port}", insecure=True, compression=grpc.Compression.Gzip)
        resource = Resource({"service.name": "shop", "ports": [1, 2]})
        logger_provider = LoggerProvider(resource=resource)
        logger_provider.add_log_record_processor(BatchLogRecordProcessor(exporter(OTLPLogExporter, "logs")))
        tracer_provider = TracerProvider(resource=resource)
        tracer_provider.add_span_processor(BatchSpanProcessor(exporter(OTLPSpanExporter, "traces")))
        meter_provider = MeterProvider(resource=resource, metric_readers=[
            PeriodicExportingMetricReader(exporter(OTLPMetricExporter, "metrics"), 3_600_000)])
        logger = logger_provider.get_logger("lib", "1.0")
        with tracer_provider.get_tracer("lib").start_as_current_span("work", attributes={"x": 1.5}) as span:
            span.add_event("step", {"ok": True})
            logger.emit(LogRecord(timestamp=1_700_000_000_123_456_789, observed_timestamp=1, severity_number=SeverityNumber.WARN, severity_text="WARN",
                                  body={"a": [1, None], "b": 2.0}, attributes={"big": 2**60}))
        meter = meter_provider.get_meter("lib")
        meter.create_counter("orders", "1", "taken").add(3, {"shop": "a"})
        meter.create_histogram("latency").record(2.5)
        for provider in (logger_provider, tracer_provider, meter_provider):
            provider.shutdown()

    def check_sdk(self, protocol):
        run = self.start_source()
        self.sdk(protocol)
        by_name = {event.get("name", event["signal"]): event for event in self.wait_for_lines(run, 4)}
        self.assertEqual(sorted(by_name), ["latency", "log", "orders", "work"])
        for event in by_name.values():
            self.assertEqual(event["resource"], {"service.name": "shop", "ports": [1, 2]})
            self.assertEqual(event["scope"]["name"], "lib")
        log, span, counter, histogram = (by_name[name] for name in ("log", "work", "orders", "latency"))
        self.assertEqual((log["severity"], log["severityText"], log["body"]), (13, "WARN", {"a": [1, None], "b": 2.0}))
        self.assertEqual((log["attributes"], log["scope"]["version"]), ({"big": 2**60}, "1.0"))
        self.assertEqual((log["traceId"], log["spanId"]), (span["traceId"], span["spanId"]))
        self.assertEqual((span["kind"], span["status"], span["attributes"]), ("internal", "unset", {"x": 1.5}))
        self.assertEqual((span["events"][0]["name"], span["events"][0]["attributes"]), ("step", {"ok": True}))
        self.assertEqual({name: counter[name] for name in ("type", "temporality", "monotonic", "value", "unit", "description", "attributes")},
                         {"type": "sum", "temporality": "cumulative", "monotonic": True, "value": 3, "unit": "1", "description": "taken",
                          "attributes": {"shop": "a"}})
        self.assertEqual((histogram["type"], histogram["count"], histogram["sum"], histogram["min"]), ("histogram", 1, 2.5, 2.5))
        self.assertEqual(sum(histogram["bucketCounts"]), 1)
        self.assertEqual(run.end(), 0, run.errors())

    def test_the_sdk_over_http(self):
        self.check_sdk("http")

    def test_the_sdk_over_grpc(self):
        self.check_sdk("grpc")

    def test_protobuf_json_and_grpc_are_the_same(self):
        run = self.start_source()
        for seed, name in enumerate(["logs", "metrics", "traces"] * 3):
            request = Maker(seed).request(name)
            count = len(flat(name, request))
            self.assertEqual(post(self.port, name, request.SerializeToString())[0], 200)
            status, headers, body = post(self.port, name, json.dumps(json_of(request)).encode(), {"content-type": "application/json; charset=utf-8"},
                                         compress=True)
            self.assertEqual((status, headers["content-type"], body), (200, "application/json", b"{}"))
            compression = grpc.Compression.Gzip if seed % 2 else None
            STUBS[name](self.channel()).Export(request, compression=compression, timeout=15)
            run.seen = getattr(run, "seen", 0) + 3 * count
            lines = self.wait_for_lines(run, run.seen)[-3 * count:]
            self.assertEqual(lines[:count], lines[count:2 * count], name)
            self.assertEqual(lines[:count], lines[2 * count:], name)

    def test_texts_that_are_not_utf8_are_repaired(self):
        run = self.start_source()
        body = logs("caf\u00e9").SerializeToString().replace("\u00e9".encode(), b"\xe9\xe9")
        self.assertEqual(post(self.port, "logs", body)[0], 200)
        self.assertEqual(self.wait_for_lines(run, 1)[0]["body"][:4], "caf\ufffd")

    def test_unknown_fields_pass(self):
        run = self.start_source()
        record = logs("x").SerializeToString()
        # Field 999 of the request, a varint, and field 1000, a group.
        extra = b"\xb8\x3e\x05" + b"\xc3\x3e\x08\x01\xc4\x3e"
        self.assertEqual(post(self.port, "logs", extra + record)[0], 200)
        self.assertEqual(self.wait_for_lines(run, 1)[0]["body"], "x")

    def test_a_record_that_cannot_be_an_event_is_rejected_alone(self):
        run = self.start_source()
        request = logs("a", "b", "c")
        request.resource_logs[0].scope_logs[0].log_records[1].time_unix_nano = 2**63
        response = REQUESTS["logs"][1].FromString(post(self.port, "logs", request.SerializeToString())[2])
        self.assertEqual((response.partial_success.rejected_log_records, response.partial_success.error_message),
                         (1, "a time is after the year 2262"))
        response = STUBS["logs"](self.channel()).Export(request, timeout=15)
        self.assertEqual(response.partial_success.rejected_log_records, 1)
        body = post(self.port, "logs", json.dumps(json_of(request)).encode(), {"content-type": "application/json"})[2]
        self.assertEqual(json.loads(body)["partialSuccess"], {"rejectedLogRecords": "1", "errorMessage": "a time is after the year 2262"})
        self.assertEqual([event["body"] for event in self.wait_for_lines(run, 6)], ["a", "c"] * 3)

    def test_large_requests_are_taken_whole_or_not_at_all(self):
        run = self.start_source()
        request = logs(*(f"n{index}" for index in range(5000)))
        body = request.SerializeToString()
        self.assertEqual(post(self.port, "logs", body, compress=True)[0], 200)
        self.assertEqual([event["body"] for event in self.wait_for_lines(run, 5000)], [f"n{index}" for index in range(5000)])
        # The last record is damaged: its attribute's key is cut off.
        request.resource_logs[0].scope_logs[0].log_records.add().attributes.add(key="abc")
        damaged = request.SerializeToString().replace(b"\x0a\x03abc", b"\x0a\x7fabc")
        self.assertEqual(post(self.port, "logs", damaged)[0], 400)
        self.assertEqual(post(self.port, "logs", logs("after").SerializeToString())[0], 200)
        self.assertEqual(self.wait_for_lines(run, 5001)[-1]["body"], "after")
        self.assertEqual(run.count(), 5001)

    def test_requests_that_are_none(self):
        run = self.start_source(signals=["logs", "traces"], authorization="Bearer x", maxBody="64KiB")
        good, auth = logs("x").SerializeToString(), {"authorization": "Bearer x"}
        for status, name, body, headers in [
            (401, "logs", good, {}), (401, "logs", good, {"authorization": "Bearer y"}),
            (404, "metrics", b"", auth), (404, "nothing", b"", auth),
            (415, "logs", good, {**auth, "content-type": "text/plain"}), (415, "logs", good, {**auth, "content-encoding": "br"}),
            (400, "logs", good[:-1], auth), (400, "logs", b"\xff" * 50, auth), (400, "logs", b"\x00\x01", auth),
            (400, "logs", b"{", {**auth, "content-type": "application/json"}),
            (400, "logs", b'{"resourceLogs":[{"scopeLogs":5}]}', {**auth, "content-type": "application/json"}),
            (400, "traces", b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xy"}]}]}]}', {**auth, "content-type": "application/json"}),
            (400, "logs", b"no gzip", {**auth, "content-encoding": "gzip"}),
            (400, "logs", gzip.compress(good)[:-9], {**auth, "content-encoding": "gzip"}),
            (413, "logs", bytes(70_000), auth), (413, "logs", gzip.compress(bytes(64 * MIB)), {**auth, "content-encoding": "gzip"}),
            (413, "logs", (bytes(10_000) for _ in range(10)), auth),
        ]:
            with self.subTest(status=status, name=name, headers=headers):
                got = post(self.port, name, body, headers)
                self.assertEqual(got[0], status)
                self.assertTrue(got[2])
        self.assertEqual(post(self.port, "logs", good, auth, compress=True)[0], 200)
        stub = STUBS["logs"](self.channel())
        for code, request, metadata in [
            (grpc.StatusCode.UNAUTHENTICATED, logs("x"), ()),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, logs("x" * 70_000), (("authorization", "Bearer x"),)),
        ]:
            with self.assertRaises(grpc.RpcError) as caught:
                stub.Export(request, timeout=15, metadata=metadata)
            self.assertEqual(caught.exception.code(), code)
        with self.assertRaises(grpc.RpcError) as caught:
            STUBS["metrics"](self.channel()).Export(REQUESTS["metrics"][0](), timeout=15)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        raw = self.channel().unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        with self.assertRaises(grpc.RpcError) as caught:
            raw(b"\xff\xff", timeout=15, metadata=(("authorization", "Bearer x"),))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(len(self.wait_for_lines(run, 1)), 1)

    def raw(self, data, wait=3):
        """Sends bytes; what comes back until the end, or until nothing comes for a while."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.settimeout(wait)
            received = b""
            try:
                connection.sendall(data)
                while piece := connection.recv(65536):
                    received += piece
            except OSError:
                pass
            return received

    def test_http_as_it_should_not_be(self):
        self.start_source(idleTimeout="1s")
        good = logs("x").SerializeToString()
        head = b"POST /v1/logs HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"
        length = f"Content-Length: {len(good)}\r\n\r\n".encode()
        for expected, data in [
            (b"405", b"GET /v1/logs HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
            (b"400", b"POST /v1/logs HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
            (b"400", b"POST  HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"400", b"POST /v1/logs HTTP/3.0\r\nHost: a\r\n\r\n"),
            (b"400", head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
            (b"400", head + b"Content-Length: -5\r\n\r\nhello"),
            (b"400", head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello"),
            (b"400", head + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            (b"400", head + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            (b"400", head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"),
            (b"400", head + b"Bad Name: 1\r\n" + length + good),
            (b"400", head + b"X: a\x01b\r\n" + length + good),
            (b"400", head + b"X: " + b"y" * 40_000 + b"\r\n" + length + good),
            (b"400", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
            (b"413", head + b"Content-Length: 99999999999\r\n\r\n" + bytes(100_000)),
            (b"413", head + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"),
        ]:
            with self.subTest(data=data[:200]):
                received = self.raw(data)
                self.assertTrue(received.startswith(b"HTTP/1.1 " + expected), received[:200])
        # Two at once, and one in single bytes, chunked, with a permission that is asked for.
        twice = (head + length + good) * 2
        self.assertEqual(self.raw(twice).count(b"HTTP/1.1 200"), 2)
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in head + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n":
                connection.sendall(bytes([byte]))
            self.assertEqual(connection.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            for byte in good:
                connection.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
            connection.sendall(b"0\r\nA-Trailer: 1\r\n\r\n")
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200"))
        # A client that never comes to an end is closed after twice `idleTimeout`, though it goes on sending.
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(b"POST /v1/logs HTTP/1.1\r\n")
            began = time.monotonic()
            with self.assertRaises(OSError):
                while time.monotonic() - began < 15:
                    connection.sendall(b"x")
                    time.sleep(0.2)
            self.assertLess(time.monotonic() - began, 10)

    def test_http2_as_it_should_not_be(self):
        run = self.start_source()
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        settings = b"\0\0\0\x04\0\0\0\0\0"
        rng = random.Random(1)
        for frames in [b"", b"\xff" * 100, b"\0\0\x05\0\x01\0\0\0\x01hello", b"\0\0\x05\x01\x05\0\0\0\x01\xff\xff\xff\xff\xff",
                       b"\0\0\0\x09\0\0\0\0\x01" * 1000, b"\0\0\x08\x06\0\0\0\0\0" + bytes(8), *(rng.randbytes(300) for _ in range(30)),
                       *(struct.pack(">I", rng.randrange(40))[1:] + bytes([rng.randrange(10), rng.randrange(256)]) + struct.pack(">I", rng.randrange(5))
                         + rng.randbytes(60) for _ in range(60))]:
            self.raw(preface + settings + frames, 0.05)
        self.assertEqual(post(self.port, "logs", logs("x").SerializeToString())[0], 200)
        self.assertEqual(len(self.wait_for_lines(run, 1)), 1)

    def test_damaged_bodies(self):
        """Cut, changed and random bytes: each gets an answer, and the source goes on."""
        run = self.start_source()
        rng = random.Random(2)
        import http.client
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        answers = set()
        for index in range(240):
            name = ["logs", "metrics", "traces"][index % 3]
            body = bytearray(Maker(index, plain=False).request(name).SerializeToString())
            is_json = index % 5 == 0
            if is_json:
                body = bytearray(json.dumps(json_of(Maker(index).request(name))).encode())
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(len(body))
                if rng.random() < 0.3:
                    del body[at:]
                    body += b"\x01"
                else:
                    body[at] = rng.randrange(256)
            connection.request("POST", f"/v1/{name}", bytes(body),
                               {"content-type": "application/json" if is_json else "application/x-protobuf"})
            answer = connection.getresponse()
            answer.read()
            answers.add(answer.status)
        self.assertEqual(answers, {200, 400})
        connection.close()
        self.assertEqual(run.end(), 0, run.errors()[-3000:])

    def nested(self, depth, kind):
        request = logs("x")
        value = request.resource_logs[0].scope_logs[0].log_records[0].body
        for _ in range(depth):
            value = value.array_value.values.add() if kind == "list" else value.kvlist_value.values.add(key="k").value
        value.int_value = 1
        return request

    def test_deep_nesting(self):
        """What is too deep is refused; the deepest that is taken can be sent again."""
        run = self.start_source()
        receiver = self.receiver()
        for kind, deepest in [("list", 44), ("object", 29)]:
            statuses = [post(self.port, "logs", self.nested(depth, kind).SerializeToString())[0] for depth in (deepest, deepest + 1)]
            self.assertEqual(statuses, [200, 400], kind)
            event = self.wait_for_lines(run, 1)[-1] if kind == "list" else self.wait_for_lines(run, 2)[-1]
            sink = self.start_sink(receiver, [event], kind)
            self.assertEqual(sink.end(0), 0, sink.errors())
            self.assertIn("delivered 1, refused 0", sink.errors())
            self.assertEqual(flat("logs", receiver.requests[-1][1]), flat("logs", self.nested(deepest, kind)))
        # So deep that recursion would overflow the stack: written by hand, since Python's library refuses it.
        body = b"\x10\x01"
        for tag in [b"\x0a", b"\x2a"] * 20_000 + [b"\x2a", b"\x12", b"\x12", b"\x0a"]:
            body = tag + varint(len(body)) + body
        self.assertEqual(post(self.port, "logs", body)[0], 400)
        deep = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":' + b'{"arrayValue":{"values":[' * 20_000 + b"]}}" * 20_000 + b"}]}]}]}"
        self.assertEqual(post(self.port, "logs", deep, {"content-type": "application/json"})[0], 400)
        self.assertEqual(post(self.port, "logs", logs("x").SerializeToString())[0], 200)

    def test_large_bodies_and_memory(self):
        """Bodies of 100 MB, and a few bytes that unpack to a gigabyte or stand for millions of records, need little memory."""
        run = self.start_source()

        def memory():
            with open(f"/proc/{run.process.pid}/status") as status:
                return int([line for line in status if line.startswith("VmHWM")][0].split()[1]) // 1024

        before = memory()
        self.assertEqual(post(self.port, "logs", bytes(100 * MIB))[0], 413)
        bomb = gzip.compress(bytes(MIB)) * 1000
        self.assertEqual(post(self.port, "logs", bomb, {"content-encoding": "gzip"})[0], 413)
        # Two million empty records in 4 MB; only their number is kept until the first is damaged.
        inner = b"\x12\x00" * 2_000_000 + b"\x12\x02\x0d\x0d"
        for tag in (b"\x12", b"\x0a"):
            inner = tag + varint(len(inner)) + inner
        self.assertEqual(post(self.port, "logs", inner)[0], 400)
        if not os.environ.get("SANITIZE"):
            self.assertLess(memory() - before, 100)
        self.assertEqual(post(self.port, "logs", logs("x").SerializeToString())[0], 200)

    def test_an_answer_waits_for_the_acknowledgement(self):
        self.start_source(700)
        began = time.monotonic()
        self.assertEqual(post(self.port, "logs", logs("x").SerializeToString())[0], 200)
        self.assertGreater(time.monotonic() - began, 0.65)

    def test_events_that_fail_are_asked_for_again(self):
        self.start_source("fail 1")
        status, headers, _ = post(self.port, "logs", logs("x").SerializeToString())
        self.assertEqual((status, headers["retry-after"]), (503, "1"))
        with self.assertRaises(grpc.RpcError) as caught:
            STUBS["logs"](self.channel()).Export(logs("x"), timeout=15)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("grpc-status-details-bin", dict(caught.exception.trailing_metadata()))

    def test_a_slow_pipeline(self):
        self.start_source(60_000, timeout="300ms")
        status, headers, _ = post(self.port, "logs", logs("x").SerializeToString())
        self.assertEqual((status, headers["retry-after"]), (503, "1"))

    def test_back_pressure(self):
        """What a pipeline that takes nothing leaves waiting is bounded; clients are told to come again, and their connections stay."""
        self.start_source(60_000, maxBody="1MiB", maxPending="2MiB", timeout="30s")
        body = logs(*("x" * 1000 for _ in range(900))).SerializeToString()
        answers = []

        def send():
            answers.append(post(self.port, "logs", body, timeout=3)[0])

        def attempt():
            try:
                send()
            except OSError:
                answers.append(0)  # it waits

        threads = [threading.Thread(target=attempt) for _ in range(30)]
        for thread in threads:
            thread.start()
            time.sleep(0.01)
        for thread in threads:
            thread.join()
        self.assertGreater(answers.count(503), 10, answers)
        self.assertEqual(set(answers) - {0, 503}, set())

    def test_connections_are_bounded(self):
        self.start_source(maxConnections=4)
        idle = [socket.create_connection(("127.0.0.1", self.port), 5) for _ in range(10)]
        try:
            self.assertEqual(post(self.port, "logs", logs("x").SerializeToString())[0], 200)
        finally:
            for connection in idle:
                connection.close()

    def test_a_stop_answers_what_is_under_way(self):
        run = self.start_source(1000)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(post(self.port, "logs", logs("x").SerializeToString())[0])) for _ in range(5)]
        for thread in threads:
            thread.start()
        self.wait_for_lines(run, 5)
        self.assertEqual(run.end(), 0, run.errors())
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), 5)
        self.assertLessEqual(set(answers), {200, 503})

    def test_tls(self):
        chain, key = self.make_certificates()
        run = self.start_source(certificate=chain, certificateKey=key)
        context = ssl.create_default_context(cafile=chain)
        import http.client
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=15, context=context)
        for size in (1, 3 * MIB):
            connection.request("POST", "/v1/logs", logs("x" * size).SerializeToString(), {"content-type": "application/x-protobuf"})
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (200, b""))
        connection.close()
        with open(chain, "rb") as file:
            channel = grpc.secure_channel(f"127.0.0.1:{self.grpc_port}", grpc.ssl_channel_credentials(file.read()))
        STUBS["logs"](channel).Export(logs("y"), timeout=15)
        channel.close()
        with socket.create_connection(("127.0.0.1", self.port), 5) as plain:
            plain.sendall(b"POST /v1/logs HTTP/1.1\r\n\r\n")
            plain.settimeout(5)
            try:
                self.assertNotIn(b"HTTP/1.1 200", plain.recv(1000))
            except OSError:
                pass
        self.assertEqual(len(self.wait_for_lines(run, 3)), 3)

    def test_client_certificates(self):
        chain, key = self.make_certificates()
        self.start_source(certificate=chain, certificateKey=key, clientCa=chain)
        import http.client
        for has_own in (False, True):
            context = ssl.create_default_context(cafile=chain)
            if has_own:
                context.load_cert_chain(chain, key)
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=15, context=context)
            try:
                connection.request("POST", "/v1/logs", logs("x").SerializeToString(), {"content-type": "application/x-protobuf"})
                self.assertEqual((connection.getresponse().status, has_own), (200, True))
            except (ssl.SSLError, OSError):
                self.assertFalse(has_own)
            connection.close()

    def test_an_address_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            run = self.source("otlp", {"http": f"127.0.0.1:{port}", "grpc": ""})
            wait_for(lambda: "Address already in use; trying again" in run.errors(), "the warning")
        wait_for(lambda: "receiving OTLP" in run.errors(), "the address to be free")
        run = self.source("otlp", {"http": "192.0.2.1:4318", "grpc": ""}, name="second")
        self.assertEqual(run.end(0), 1)
        self.assertIn("failed at 'http': 192.0.2.1:4318: Cannot assign requested address", run.errors())


class SinkTests(OtlpTest):
    """The sink, without rxd."""

    def settled(self, run, delivered, refused=0):
        self.assertEqual(run.end(0), 0, run.errors())
        self.assertIn(f"delivered {delivered}, refused {refused}", run.errors())

    def check_round_trip(self, protocol, compression):
        source = self.start_source()
        receiver = self.receiver()
        expected = []
        for seed in range(30):
            name = ["logs", "metrics", "traces"][seed % 3]
            request = Maker(1000 + seed, fractions=True).request(name)
            expected += [(name, record) for record in flat(name, request)]
            self.assertEqual(post(self.port, name, request.SerializeToString())[0], 200)
        events = self.wait_for_lines(source, len(expected))
        sink = self.start_sink(receiver, events, protocol=protocol, compression=compression)
        self.settled(sink, len(events))
        self.maxDiff = 3000
        self.assertEqual(sorted(receiver.records()), sorted(expected))

    def test_the_round_trip_over_http(self):
        self.check_round_trip("http", "gzip")

    def test_the_round_trip_over_grpc(self):
        self.check_round_trip("grpc", "none")

    def test_simple_events(self):
        receiver = self.receiver()
        events = [{"body": "a", "severity": "error", "attributes": {"k": 1}, "time": "2026-01-31T12:00:00.5+01:00"}, {"status": 500}, "text", [1, 2.5], None,
                  {"body": None, "severity": 9}, {"body": "b", "severity": "INFO2", "resource": {"x": 1}}, {"signal": "log"}]
        self.settled(self.start_sink(receiver, events, resource={"service.name": "shop"}, protocol="grpc", compression="gzip"), len(events))
        request = receiver.requests[0][1]
        resources = {json.dumps({pair.key: pair.value.string_value or pair.value.int_value for pair in group.resource.attributes}): group
                     for group in request.resource_logs}
        self.assertEqual(sorted(resources), ['{"service.name": "shop"}', '{"x": 1}'])
        records = resources['{"service.name": "shop"}'].scope_logs[0].log_records
        self.assertEqual(len(records), 7)
        self.assertEqual((records[0].body.string_value, records[0].severity_number, records[0].severity_text, records[0].time_unix_nano),
                         ("a", 17, "error", 1_769_857_200_500_000_000))
        self.assertEqual(records[1].body.kvlist_value.values[0].value.int_value, 500)
        self.assertEqual(records[2].body.string_value, "text")
        self.assertEqual(records[3].body.array_value.values[1].double_value, 2.5)
        self.assertEqual([record.HasField("body") for record in records], [True] * 6 + [False])
        self.assertEqual(resources['{"x": 1}'].scope_logs[0].log_records[0].severity_number, 10)

    def test_events_that_cannot_be_sent(self):
        receiver = self.receiver()
        wrong = [({"body": 1, "host": "a"}, "the event has the unknown member 'host'; put it into 'attributes'"),
                 ({"body": 1, "severity": "loud"}, "'severity' must be a number or one of trace"),
                 ({"body": 1, "time": "yesterday"}, "'time' must be a time from 1970 to 2262"),
                 ({"body": 1, "time": 5}, "'time' must be a time from 1970 to 2262"),
                 ({"body": 1, "traceId": "xy"}, "'traceId' must be hexadecimal"),
                 ({"body": 1, "attributes": []}, "'attributes' must be an object"),
                 ({"body": 1, "flags": -1}, "'flags' must be a whole number of 32 bits that is not negative"),
                 ({"signal": "profile"}, "'signal' must be log, span or metric"),
                 ({"signal": 5}, "'signal' must be log, span or metric"),
                 ({"signal": "metric"}, "'type' must be gauge, sum, histogram"),
                 ({"signal": "metric", "type": "gauge", "count": 1}, "the event has the unknown member 'count'"),
                 ({"signal": "metric", "type": "sum", "value": "x"}, "'value' must be a number"),
                 ({"signal": "span", "kind": "odd"}, "'kind' must be one of unspecified, internal"),
                 ({"signal": "span", "events": [5]}, "'events' must be a list of objects"),
                 ({"signal": "span", "scope": {"nam": ""}}, "scope has the unknown member 'nam'"),
                 ({"body": json.loads("[" * 60 + "]" * 60)}, "the event is nested too deeply")]
        run = self.start_sink(receiver, [event for pair in wrong for event in (pair[0], {"body": "good"})])
        self.settled(run, len(wrong), len(wrong))
        reasons = [line[len("refused: "):] for line in run.errors().splitlines() if line.startswith("refused: ")]
        for (event, expected), reason in zip(wrong, reasons, strict=True):
            self.assertTrue(reason.startswith(expected), (event, reason))
        self.assertEqual(len(receiver.records()), len(wrong))

    def numbers(self, count):
        return [{"body": number} for number in range(count)]

    def test_an_answer_that_asks_for_patience(self):
        """Retry-After, and RetryInfo of gRPC, are waited for."""
        for protocol, answer in [
            ("http", (503, {"retry-after": "2"}, b"")), ("http", (429, {}, b"")),
            ("grpc", (grpc.StatusCode.UNAVAILABLE, "busy", {})),
            ("grpc", (grpc.StatusCode.RESOURCE_EXHAUSTED, "slow down", {"grpc-status-details-bin": b"\x1a\x30\x0a\x28" + b"type.googleapis.com/google.rpc.RetryInfo"
                                                                         + b"\x12\x04\x0a\x02\x08\x02"})),
        ]:
            with self.subTest(protocol=protocol, answer=answer):
                times = []
                receiver = self.receiver(answer=lambda *_: times.append(time.monotonic()) or (answer if len(times) == 1 else None))
                self.settled(self.start_sink(receiver, self.numbers(10), "s" + os.urandom(2).hex(), protocol=protocol), 10)
                self.assertEqual(sorted(receiver.bodies()), list(range(10)))
                if "retry-after" in answer[1] or answer[0] == grpc.StatusCode.RESOURCE_EXHAUSTED:
                    self.assertGreater(times[1] - times[0], 1.9)

    def test_a_request_that_is_refused_is_divided(self):
        """The events at fault go to the errors output with the receiver's reason, all others arrive, and nothing twice."""
        bad = {3, 40, 41, 99}
        message = b"\x08\x03\x12\x0bno good one"

        def has_bad(request):
            return any(record.body.int_value in bad for group in request.resource_logs for scope in group.scope_logs for record in scope.log_records)

        for protocol, answer in [("http", (400, {}, message)), ("grpc", (grpc.StatusCode.INVALID_ARGUMENT, "no good one", {}))]:
            receiver = self.receiver(answer=lambda _, request, __: answer if has_bad(request) else None)
            run = self.start_sink(receiver, self.numbers(100), protocol, protocol=protocol)
            self.settled(run, 96, 4)
            self.assertEqual(run.errors().count("no good one"), 4, run.errors())
            self.assertEqual(sorted(receiver.bodies()), [number for number in range(100) if number not in bad])

    def test_a_request_that_is_too_large_is_divided(self):
        for protocol, answer in [("http", (413, {}, b"")), ("grpc", (grpc.StatusCode.RESOURCE_EXHAUSTED, "too large", {}))]:
            receiver = self.receiver(answer=lambda _, request, __: answer if request.ByteSize() > 500 else None)
            run = self.start_sink(receiver, self.numbers(200) + [{"body": "x" * 600}], protocol, protocol=protocol)
            self.settled(run, 200, 1)
            self.assertEqual(sorted(receiver.bodies()), list(range(200)))

    def test_partial_success(self):
        response = REQUESTS["logs"][1]()
        response.partial_success.rejected_log_records = 2
        response.partial_success.error_message = "two are old"
        for partial, delivered, refused in [("refuse", 0, 10), ("accept", 10, 0)]:
            receiver = self.receiver(answer=lambda *_: response)
            run = self.start_sink(receiver, self.numbers(10), partial, partial=partial)
            self.settled(run, delivered, refused)
            self.assertIn("the receiver has rejected 2 of the 10 log records of the request, and does not say which: two are old", run.errors())
            self.assertEqual(receiver.count, 1)
        response.partial_success.rejected_log_records = 10
        run = self.start_sink(self.receiver(answer=lambda *_: response), self.numbers(10), "all", partial="accept")
        self.settled(run, 0, 10)
        self.assertIn("the receiver has rejected it: two are old", run.errors())

    def test_what_can_never_work_ends_the_sink(self):
        for protocol, answer, at, expected in [
            ("http", (401, {}, b""), "headers", "answers 401; check 'headers'"),
            ("http", (404, {}, b""), "endpoint", "answers 404; it takes no logs here: correct 'endpoint'"),
            ("http", (302, {"location": "/x"}, b""), "endpoint", "answers 302"),
            ("grpc", (grpc.StatusCode.UNAUTHENTICATED, "who?", {}), "headers", "answers UNAUTHENTICATED: who?; check 'headers'"),
            ("grpc", (grpc.StatusCode.UNIMPLEMENTED, "", {}), "endpoint", "answers UNIMPLEMENTED; it takes no logs here"),
        ]:
            with self.subTest(protocol=protocol, answer=answer):
                run = self.start_sink(self.receiver(answer=lambda *_: answer), self.numbers(3), "s" + os.urandom(2).hex(), protocol=protocol)
                self.assertEqual(run.end(0), 1, run.errors())
                self.assertIn(f"failed at '{at}': ", run.errors())
                self.assertIn(expected, run.errors())

    def test_headers_and_other_refusals(self):
        receiver = self.receiver(answer=lambda *_: (500, {}, b""))
        run = self.start_sink(receiver, self.numbers(3), headers={"Authorization": "Bearer secret-word", "x-empty": ""})
        self.settled(run, 0, 3)
        self.assertIn("answers 500", run.errors())
        self.assertNotIn("secret-word", run.errors())
        self.assertEqual((receiver.headers[0]["authorization"], receiver.headers[0]["x-empty"]), ("Bearer secret-word", ""))
        receiver = self.receiver()
        self.settled(self.start_sink(receiver, self.numbers(3), "g", protocol="grpc", headers={"authorization": "Bearer x"}), 3)
        self.assertEqual(receiver.headers[0]["authorization"], "Bearer x")

    def test_many_requests_at_once(self):
        """In batches of 1024 events, each of several requests; with one at a time, the order is kept."""
        for protocol in ("http", "grpc"):
            for concurrency in (1, 8):
                receiver = self.receiver()
                run = self.start_sink(receiver, self.numbers(5000), f"{protocol}{concurrency}", protocol=protocol, concurrency=concurrency, maxEvents=100)
                self.settled(run, 5000)
                bodies = receiver.bodies()
                self.assertEqual(bodies if concurrency == 1 else sorted(bodies), list(range(5000)))

    def test_a_receiver_that_comes_late_and_goes(self):
        """Also over a connection that was closed: libcurl 7.88 must be told anew that it is HTTP/2."""
        for protocol in ("http", "grpc"):
            port, grpc_port = free_port(), free_port()
            target = grpc_port if protocol == "grpc" else port
            run = self.sink("otlp", {"endpoint": f"http://127.0.0.1:{target}", "protocol": protocol, "maxEvents": 50}, self.numbers(3000), protocol)
            time.sleep(0.3)
            self.assertIsNone(run.process.poll())
            first = Receiver(port, grpc_port)
            wait_for(lambda: len(first.bodies()) > 200, "some")
            first.close()
            second = self.receiver(port=port, grpc_port=grpc_port)
            self.settled(run, 3000)
            self.assertEqual(sorted(set(first.bodies() + second.bodies())), list(range(3000)))

    def test_tls(self):
        certificate = self.make_certificates()
        receiver = self.receiver(certificate=certificate)
        for protocol, port in [("http", receiver.port), ("grpc", receiver.grpc_port)]:
            endpoint = f"https://127.0.0.1:{port}"
            self.settled(self.sink("otlp", {"endpoint": endpoint, "protocol": protocol, "ca": certificate[0]}, self.numbers(2000), protocol), 2000)
            run = self.sink("otlp", {"endpoint": endpoint, "protocol": protocol}, self.numbers(3), "untrusted" + protocol)
            self.assertEqual(run.end(0), 1)
            self.assertIn("failed at 'endpoint': ", run.errors())
            self.settled(self.sink("otlp", {"endpoint": endpoint, "protocol": protocol, "dangerouslySkipVerification": True}, self.numbers(3),
                                   "skip" + protocol), 3)

    def test_peers_that_are_none(self):
        """Servers that close at once, send nonsense, or nothing: the sink tries again, and ends when it is stopped."""
        for protocol in ("http", "grpc"):
            for nonsense in (b"", b"\0" * 1000, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000):
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", 0))
                    listener.listen()
                    count = [0]

                    def serve():
                        while True:
                            try:
                                connection, _ = listener.accept()
                            except OSError:
                                return
                            count[0] += 1
                            with connection:
                                try:
                                    connection.recv(10_000)
                                    connection.sendall(nonsense)
                                except OSError:
                                    pass

                    threading.Thread(target=serve, daemon=True).start()
                    run = self.sink("otlp", {"endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}", "protocol": protocol, "timeout": "500ms"},
                                    self.numbers(3), "n" + os.urandom(3).hex())
                    wait_for(lambda: "trying again" in run.errors(), run.errors)
                    self.assertIsNone(run.process.poll())
                    run.process.kill()
                    run.process.wait()
                    listener.close()


class PipelineTests(OtlpTest):
    """Whole pipelines in rxd."""

    def mover(self, sink, name="mover", source="", port=None):
        self.port, self.grpc_port = port or free_port(), free_port()
        run = self.pipeline(f"""name: {name}
plugins: {{ otlp: PLUGIN }}
sources:
  in: {{ otlp: {{ http: "127.0.0.1:{self.port}", grpc: "127.0.0.1:{self.grpc_port}"{source} }} }}
sinks:
  out: {{ from: in, {sink} }}
""", name)
        wait_for(lambda: run.errors().count("receiving OTLP") == 2, "the start", 30)
        return run

    def test_a_round_trip_through_two_rxd(self):
        receiver = self.receiver()
        second = self.mover(f'otlp: {{ endpoint: "http://127.0.0.1:{receiver.grpc_port}", protocol: grpc }}', "second")
        middle = self.port
        first = self.mover(f'otlp: {{ endpoint: "http://127.0.0.1:{middle}" }}', "first")
        expected = []
        for seed in range(30):
            name = ["logs", "metrics", "traces"][seed % 3]
            request = Maker(2000 + seed, plain=False).request(name)
            expected += [(name, record) for record in flat(name, request)]
            if seed % 2:
                self.assertEqual(post(self.port, name, request.SerializeToString(), compress=True)[0], 200)
            else:
                STUBS[name](self.channel()).Export(request, timeout=15)
        wait_for(lambda: len(receiver.records()) >= len(expected), "all")
        self.assertEqual(sorted(receiver.records()), sorted(expected))
        for run in (first, second):
            self.assertEqual(run.end(), 0, run.errors())

    def test_json_lines_between(self):
        """To a file as JSON lines and from it: everything but bytes, which become texts, is as it was."""
        receiver = self.receiver()
        writer = self.mover("stdout: { encode: ndjson }", "writer")
        expected = []
        for seed in range(15):
            name = ["logs", "metrics", "traces"][seed % 3]
            request = Maker(3000 + seed).request(name)
            expected += [(name, record) for record in flat(name, request)]
            self.assertEqual(post(self.port, name, request.SerializeToString())[0], 200)
        wait_for(lambda: writer.count() >= len(expected), "the lines")
        reader = self.pipeline(f"""plugins: {{ otlp: PLUGIN }}
sources:
  in: {{ file: {{ path: {writer.out_path}, decode: ndjson }} }}
sinks:
  out: {{ from: in, otlp: {{ endpoint: "http://127.0.0.1:{receiver.port}" }} }}
""", "reader")
        wait_for(lambda: len(receiver.records()) >= len(expected), "all", 30)
        self.assertEqual(sorted(receiver.records()), sorted(expected), reader.errors())

    def test_refusals_go_to_the_errors_output(self):
        receiver = self.receiver(answer=lambda _, request, __: (400, {}, b"") if "bad" in str(request) else None)
        port = free_port()
        run = self.pipeline(f"""plugins: {{ otlp: PLUGIN }}
sources:
  in: {{ otlp: {{ http: "127.0.0.1:{port}", grpc: "" }} }}
sinks:
  out: {{ from: in, otlp: {{ endpoint: "http://127.0.0.1:{receiver.port}" }} }}
  refused: {{ from: out.errors, stdout: {{ encode: ndjson }} }}
""", "refusals")
        wait_for(lambda: "receiving OTLP" in run.errors(), "the start", 30)
        self.assertEqual(post(port, "logs", logs("a", "bad", "c").SerializeToString())[0], 200)
        lines = self.wait_for_lines(run, 1)
        self.assertEqual(lines[0]["event"]["body"], "bad")
        self.assertIn("answers 400", lines[0]["error"])
        wait_for(lambda: len(receiver.records()) == 2, "the others")

    def test_requests_without_events_do_not_add_up(self):
        """What rxd keeps of them is bounded, though no event makes it forget them."""
        port = free_port()
        run = self.pipeline(f"""plugins: {{ otlp: PLUGIN }}
sources:
  in: {{ otlp: {{ http: "127.0.0.1:{port}", grpc: "", maxBody: 2MiB }} }}
sinks:
  out: {{ from: in, discard: {{}} }}
  refused: {{ from: in.errors, stdout: {{ encode: ndjson }} }}
""", "unused")
        wait_for(lambda: "receiving OTLP" in run.errors(), "the start", 30)

        def memory():
            with open(f"/proc/{run.process.pid}/status") as status:
                return int([line for line in status if line.startswith("VmHWM")][0].split()[1]) // 1024

        body = b'{"other":[' + b"[1,2]," * 170_000 + b"[]]}"
        before = memory()
        for number in range(60):
            wrong = number % 2
            self.assertEqual(post(port, "logs", body[:-1] if wrong else body, {"content-type": "application/json"})[0], 400 if wrong else 200)
        if not os.environ.get("SANITIZE"):  # which keeps freed memory
            self.assertLess(memory() - before, 100)
        lines = self.wait_for_lines(run, 5)
        self.assertRegex(lines[0]["error"], "requests of [0-9]+ bytes had no events; of the last one, ")

    def test_rotel_sends_and_receives(self):
        """A collector that PyPI carries stands between two pipelines."""
        try:
            import rotel
        except ImportError:
            self.skipTest("rotel is not installed")
        agent = os.path.join(os.path.dirname(rotel.__file__), "rotel-agent")
        reader = self.mover("stdout: { encode: ndjson }", "reader")
        target, grpc_port, http_port = self.grpc_port, free_port(), free_port()
        collector = self.start([agent, "start", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}", "--otlp-http-endpoint", f"127.0.0.1:{http_port}",
                                "--otlp-exporter-endpoint", f"http://127.0.0.1:{target}", "--batch-timeout", "100ms"], "rotel")

        def listens():
            try:
                socket.create_connection(("127.0.0.1", http_port), 1).close()
                return True
            except OSError:
                return collector.process.poll() is not None

        wait_for(listens, "rotel")
        self.assertIsNone(collector.process.poll(), collector.errors())
        sender = self.mover(f'otlp: {{ endpoint: "http://127.0.0.1:{grpc_port}", protocol: grpc }}', "sender")
        expected = 0
        for name in ("logs", "metrics", "traces"):
            request = Maker(5).request(name)
            expected += len(flat(name, request))
            self.assertEqual(post(self.port, name, request.SerializeToString())[0], 200)
        lines = self.wait_for_lines(reader, expected)
        self.assertEqual({line["signal"] for line in lines}, {"log", "metric", "span"})
        self.assertEqual(len(lines), expected, sender.errors())


class KillTests(OtlpTest):
    """From clients through rxd to a receiver, under load, while rxd or the receiver is killed (SIGKILL) KILLS times."""

    LOAD = 500  # numbers for each kill

    def setUp(self):
        super().setUp()
        if not RXD:
            self.skipTest("set RXD to the program")
        self.total = (KILLS + 1) * self.LOAD
        self.entry, self.ports = free_port(), (free_port(), free_port())
        self.repeated = 0

    def start_receiver(self):
        run = self.start([sys.executable, "-B", os.path.join(HERE, "peers.py"), *map(str, self.ports), self.path("stored")], "receiver" + os.urandom(3).hex())
        wait_for(lambda: "ready" in open(run.out_path).read(), run.errors)
        return run

    def start_mover(self, protocol, name):
        port = self.ports[protocol == "grpc"]
        return self.pipeline(f"""name: mover
plugins: {{ otlp: PLUGIN }}
sources:
  in: {{ otlp: {{ http: "127.0.0.1:{self.entry}", grpc: "" }} }}
sinks:
  out: {{ from: in, otlp: {{ endpoint: "http://127.0.0.1:{port}", protocol: {protocol}, maxEvents: 100 }} }}
""", name, state="mover")

    def feed(self):
        """Sends each piece until it is answered by 200, several at once."""
        pieces = iter(range(0, self.total, 20))
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    first = next(pieces, None)
                if first is None:
                    return
                body = logs(*range(first, min(first + 20, self.total))).SerializeToString()
                end = time.monotonic() + PATIENCE + 5 * KILLS
                while time.monotonic() < end:
                    try:
                        if post(self.entry, "logs", body, timeout=20)[0] == 200:
                            break
                    except OSError:
                        pass
                    except Exception:  # an answer that was cut off
                        pass
                    time.sleep(0.02)
                time.sleep(0.02)

        self.senders = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for sender in self.senders:
            sender.start()

    def stored(self):
        if not os.path.exists(self.path("stored")):
            return []
        with open(self.path("stored")) as file:
            return [int(line) for line in file.read().split("\n")[:-1] if line]

    def finish(self, label, run):
        for sender in self.senders:
            sender.join(PATIENCE + 5 * KILLS)
        wait_for(lambda: len(set(self.stored())) >= self.total, f"all\n{run.errors()[-2000:]}", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        self.assert_nothing_lost(range(self.total), self.stored(), label)

    def wait_for_progress(self, run):
        goal = min(self.total, len(set(self.stored())) + random.randrange(1, self.LOAD))
        wait_for(lambda: len(set(self.stored())) >= goal, f"{goal} of {self.total}\n{run.errors()[-2000:]}", PATIENCE)

    def kill_rxd(self, protocol):
        self.start_receiver()
        self.feed()
        for turn in range(KILLS):
            run = self.start_mover(protocol, f"run{turn}")
            self.wait_for_progress(run)
            run.end(signal.SIGKILL)
        self.finish(f"rxd killed {KILLS} times, {protocol}", self.start_mover(protocol, "last"))

    def kill_receiver(self, protocol):
        receiver = self.start_receiver()
        run = self.start_mover(protocol, "run")
        self.feed()
        for _ in range(KILLS):
            self.wait_for_progress(run)
            receiver.end(signal.SIGKILL)
            receiver = self.start_receiver()
        self.finish(f"the receiver killed {KILLS} times, {protocol}", run)

    def test_rxd_is_killed(self):
        self.kill_rxd("http")

    def test_the_receiver_is_killed(self):
        self.kill_receiver("grpc")




if __name__ == "__main__":
    unittest.main()
