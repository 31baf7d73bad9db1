"""Tests of the plugin with a real RabbitMQ server: without rxd, and in rxd if RXD names it."""
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from broker import Client, Raw, Refusal, long, properties, short, table  # noqa: E402
from plugin_test import RUNNER, RXD, SANITIZERS, WITH_SANITIZERS, PluginTest, Proxy, free_port, wait_for  # noqa: E402
from server import BODY_MOST, PASSWORD, Known, Server  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "amqp.so"))
COUNT = int(os.environ.get("COUNT", "5000"))
KILLS = int(os.environ.get("KILLS", "3"))
SERVER_KILLS = KILLS if KILLS > 3 else 2  # a start takes several seconds
PATIENCE = float(os.environ.get("PATIENCE", "60"))
shared = None


def shared_server():
    """One server for all tests, unless the environment names one started by somebody else."""
    global shared
    if shared is None:
        shared = Known(os.environ["SERVER"]) if os.environ.get("SERVER") else Server()
        if isinstance(shared, Server):
            shared.start()
    return shared


def tearDownModule():
    if isinstance(shared, Server):
        shared.end()


class AmqpTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.use(self.choose_server())
        # Names that only this test uses, because the classes share a server.
        self.q = ".".join(self.id().split(".")[-2:])[:120]

    def choose_server(self):
        return shared_server()

    def use(self, server):
        self.server = server
        self.servers = [f"127.0.0.1:{server.port}"]

    def client(self, **login):
        client = Client(self.server.port, **login)
        self.addCleanup(client.close)
        return client

    def publisher(self, *queues, **arguments):
        """A client with confirmations; the queues are declared, starting with `self.q`."""
        client = self.client()
        for queue in queues or [self.q]:
            client.declare(queue, **arguments)
        client.confirm()
        return client

    def read(self, name="source", more="", environment=None, **parameters):
        """A source without rxd."""
        given = {"servers": self.servers, "queue": self.q, "decode": "json", **parameters}
        return self.start([*RUNNER, self.plugin, "source", "amqp", json.dumps(given), str(more)], name,
                          environment={**SANITIZERS, **(environment or {})})

    def write(self, events, name="sink", **parameters):
        """A sink without rxd."""
        return self.sink("amqp", {"servers": self.servers, **parameters}, events, name)

    def written(self, events, name="sink", **parameters):
        """A sink that has ended."""
        run = self.write(events, name, **parameters)
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        return run

    def numbers(self, *runs):
        return [event["value"] for run in runs for event in run.lines()]

    def wait_for_all(self, expected, *runs, seconds=PATIENCE):
        """Waits until each of the numbers has arrived."""
        expected, counts = set(expected), {}

        def are_there():
            # Decoding is slow: only when there may be enough events.
            now = {run: run.count() for run in runs}
            if now == counts or sum(now.values()) < len(expected):
                return False
            counts.update(now)
            return expected <= set(self.numbers(*runs))

        try:
            wait_for(are_there, f"{len(expected)} events", seconds)
        except AssertionError:
            missing = sorted(expected - set(self.numbers(*runs)))
            said = "\n".join(f"{run.out_path}: {run.count()} events\n{run.errors()[-1500:]}" for run in runs)
            raise AssertionError(f"{len(missing)} of {len(expected)} are missing: {missing[:20]}\n{said}") from None

    def wait_for_end(self, run, queue=None):
        """The source ends, and no message remains in the queue."""
        self.assertEqual(run.end(), 0, run.errors())
        client = self.client()
        wait_for(lambda: client.declare(queue or self.q, passive=True)[1] == 0, "the end of the consumer", PATIENCE)
        self.assertEqual(client.count(queue or self.q), 0)

    def consumers(self, queue=None):
        """The number of consumers of a queue, none if the queue does not exist."""
        client = Client(self.server.port)
        try:
            return client.declare(queue or self.q, passive=True)[1]
        except Refusal:
            return 0
        finally:
            client.close()

    def bodies(self, queue=None):
        return [message["body"] for message in self.client().drain(queue or self.q)]

    def said(self, run, text):
        wait_for(lambda: text in run.errors(), f"{text!r} in:\n{run.errors()}", PATIENCE)

    def deliver(self, *messages):
        """A server that delivers messages, each with properties and a body, and records the answers."""
        self.answers = []

        def behave(connection):
            file = greet(connection)
            if not file:
                return
            for tag, (properties, body) in enumerate(messages, 1):
                connection.sendall(method(60, 60, short("c") + struct.pack(">QB", tag, 0) + short("") + short("k")) +
                                   Client.frame(2, struct.pack(">HHQ", 60, 0, len(body)) + properties) + Client.frame(3, body))
            while True:
                head = file.read(7)
                if len(head) < 7:
                    return
                self.answers.append(file.read(struct.unpack(">I", head[3:])[0] + 1))

        self.hostile(behave)

    def proxy(self):
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        self.servers = [f"127.0.0.1:{proxy.port}"]
        return proxy


def method(cls, number, arguments, channel=1):
    return Client.frame(1, struct.pack(">HH", cls, number) + arguments, channel)


def greet(connection, until=None):
    """Acts as a server, until a channel with confirmations or a consumer exists; `until`: the method before which it stops."""
    answers = {(10, 11): method(10, 30, struct.pack(">HIH", 2047, 131072, 60), 0), (10, 40): method(10, 41, b"\0", 0),
               (20, 10): method(20, 11, long(b"")), (85, 10): method(85, 11, b""), (60, 10): method(60, 11, b""),
               (60, 20): method(60, 21, short("c"))}
    file = connection.makefile("rb")
    if file.read(8) != b"AMQP\0\0\x09\x01":
        return None
    connection.sendall(method(10, 10, b"\0\x09" + table({}) + long(b"PLAIN") + long(b"en_US"), 0))
    while True:
        head = file.read(7)
        if len(head) < 7:
            return None
        data = file.read(struct.unpack(">I", head[3:])[0] + 1)
        came = struct.unpack(">HH", data[:4])
        if came == until:
            return file
        if came in answers:
            connection.sendall(answers[came])
        if came in ((85, 10), (60, 20)):
            return file


class ParameterTests(AmqpTest):
    def test_errors_name_the_parameter(self):
        for kind, parameters, expected in [
            ("source", {"queue": ""}, "'queue': must have 1 to 255 bytes"),
            ("source", {"queue": "q" * 256}, "'queue': must have at most 255 bytes"),
            ("source", {"queue": "q", "servers": []}, "'servers': needs a server"),
            ("source", {"queue": "q", "servers": ["a", "host:70000"]}, "'servers.1': the port must be a number from 1 to 65535"),
            ("source", {"queue": "q", "servers": [f"amqp://me:{PASSWORD}@host"]},
             "'servers.0': must not contain a user or a password; use 'user' and 'password'"),
            ("source", {"queue": "q", "servers": ["amqp://host/vhost"]}, "'servers.0': must be HOST or HOST:PORT, without a path"),
            ("source", {"queue": "q", "servers": ["host", "amqps://host"]}, "'servers.1': all servers must be amqps://, or none; use 'tls: true'"),
            ("source", {"queue": "q", "servers": ["amqp://host"], "tls": True}, "'servers.0': amqp:// is not encrypted; use amqps://"),
            ("source", {"queue": "q", "password": PASSWORD}, "'password': 'user' and 'password' belong together"),
            ("source", {"queue": "q", "mechanism": "EXTERNAL"}, "'mechanism': EXTERNAL needs 'certificate', which names the user"),
            ("source", {"queue": "q", "ca": "/a"}, "'ca': has no effect without 'tls: true'"),
            ("source", {"queue": "q", "tls": True, "ca": "/nowhere"}, "'ca': cannot read the file: No such file or directory"),
            ("source", {"queue": "q", "type": "quorum", "durable": False}, "'durable': queues of the types quorum and stream are always durable"),
            ("source", {"queue": "q", "type": "stream", "autoDelete": True},
             "'autoDelete': queues of the types quorum and stream cannot delete themselves"),
            ("source", {"queue": "q", "autoDelete": True}, "'autoDelete': has no effect without 'declare: true'"),
            ("source", {"queue": "q", "arguments": {"x-max-length": 5}}, "'arguments': has no effect without 'declare: true'"),
            ("source", {"queue": "q", "declare": True, "arguments": {"x-queue-type": "quorum"}}, "'arguments.x-queue-type': is the parameter 'type'"),
            ("source", {"queue": "q", "bindings": [{"exchange": "e"}, {"routingKey": "k"}]},
             "'bindings.1': needs 'exchange', a text of 1 to 255 bytes"),
            ("source", {"queue": "q", "bindings": ["e"]}, "'bindings.0': must have the form { exchange: NAME, routingKey: KEY }"),
            ("source", {"queue": "q", "bindings": [{"exchange": "e", "key": "k"}]},
             "'bindings.0': has an unknown member 'key'; known are exchange, routingKey and arguments"),
            ("source", {"queue": "q", "bindings": [{"exchange": "e", "routingKey": ["a", 5]}]},
             "'bindings.0': 'routingKey' must be a text of at most 255 bytes, or a list of such"),
            ("source", {"queue": "q", "offset": "number"}, "'offset': 'offset: number' and 'offsetNumber' belong together"),
            ("source", {"queue": "q", "offsetTime": "2026-01-01T00:00:00Z"}, "'offsetTime': 'offset: timestamp' and 'offsetTime' belong together"),
            ("source", {"queue": "q", "offset": "timestamp", "offsetTime": "soon"}, "'offsetTime': must be a time such as 2026-01-31T12:00:00Z"),
            ("sink", {"declare": "topic", "routingKey": "q"}, "'declare': has no effect without 'exchange'"),
        ]:
            with self.subTest(parameters=parameters):
                message = self.refused(kind, "amqp", parameters)
                self.assertEqual(message, expected)
                self.assertNotIn(PASSWORD, message)


class SourceTests(AmqpTest):
    def test_messages_of_every_odd_kind(self):
        client = self.publisher()
        nested = {"a": 1, "t": {"l": [1, 2.5, True, None, "x", {"y": b"\xff"}]}, "empty": {}, "": "no name"}
        deep = "bottom"
        for _ in range(25):
            deep = {"d": deep}
        client.exchange(self.q + ".x")
        client.bind(self.q, self.q + ".x", "eu.#")
        client.publish(self.q, b"")
        client.publish(self.q, b"\xff\x00")
        client.publish("eu.new", "grüße".encode(), self.q + ".x", headers=nested, content_type="text/plain", content_encoding="utf-8", priority=3,
                       correlation_id="c1", reply_to="answers", expiration="600000", message_id="m1", timestamp=1700000000, type="t1",
                       user_id="guest", app_id="a1")
        client.publish(self.q, b"deep", headers=deep)
        client.publish(self.q, b"many", headers={f"h{n}": "x" * 100 for n in range(1000)})
        run = self.read(decode="text")
        wait_for(lambda: run.count() >= 5, "five", PATIENCE)
        self.wait_for_end(run)
        events = run.lines()
        self.assertEqual([event["value"] for event in events], ["", "hex:ff00", "grüße", "deep", "many"])
        self.assertEqual((events[0]["exchange"], events[0]["routingKey"], events[0]["redelivered"], events[0]["persistent"]), ("", self.q, False, True))
        full = events[2]
        self.assertEqual(full.pop("headers"), {**nested, "t": {"l": [1, 2.5, True, None, "x", {"y": "hex:ff"}]}})
        self.assertEqual(full.pop("timestamp"), "2023-11-14T22:13:20.000000000Z")
        self.assertEqual(full, {"exchange": self.q + ".x", "routingKey": "eu.new", "value": "grüße", "redelivered": False, "persistent": True,
                                "contentType": "text/plain", "contentEncoding": "utf-8", "priority": 3, "correlationId": "c1", "replyTo": "answers",
                                "expiration": "600000", "messageId": "m1", "type": "t1", "userId": "guest", "appId": "a1"})
        self.assertEqual(events[3]["headers"], deep)
        self.assertEqual(len(events[4]["headers"]), 1000)

    def test_headers_that_the_server_does_not_look_at(self):
        twice = Raw(long(b"".join(short(n) + b"S" + long(v) for n, v in [("b", b"1"), ("a", b"2"), ("b", b"3")])))
        odd = Raw(long(short("t") + b"T" + struct.pack(">Q", 2 ** 63) + short("d") + b"D\x02" + struct.pack(">I", 5) + short("l") + b"L" +
                       struct.pack(">Q", 2 ** 64 - 1) + short("f") + b"f" + struct.pack(">f", 0.5) + short("s") + b"s\xff\xfe" + short("x") + b"x" +
                       long(b"\xff")))
        deep, hostile = b"V", []
        for _ in range(20000):  # the room in a frame
            deep = b"F" + long(short("") + deep)
        for headers in [deep, b"Z?", b"S" + struct.pack(">I", 2 ** 31), b"F" + struct.pack(">I", 500) + short("b") + b"V", b"I\0", b""]:
            hostile.append((properties(headers=Raw(long(short("a") + headers))), b"1"))
        self.deliver((properties(headers=twice), b"1"), (properties(headers=odd, timestamp=2 ** 64 - 1), b"2"), *hostile, (b"\xff\xff", b"1"),
                     (b"", b"1"), (properties(), b"3"))
        run = self.read()
        wait_for(lambda: run.count() >= 11, "all", PATIENCE)
        lines = run.lines()
        damaged = "the properties of the message are damaged, or its headers are nested too deeply"
        self.assertEqual([line.get("reason", line.get("value")) for line in lines], [1, 2] + 8 * [damaged] + [3])
        self.assertEqual(lines[0]["headers"], {"a": "2", "b": "3"})
        headers = lines[1]["headers"]
        self.assertEqual([headers[name] for name in "dlfsx"], ["0.05", 2 ** 64 - 1, 0.5, -2, "hex:ff"])
        self.assertEqual(len(headers), 6)
        wait_for(lambda: struct.pack(">HHQB", 60, 80, 11, 1) + b"\xce" in self.answers, f"an acknowledgement of all: {self.answers}", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())

    def test_everything_comes_once_in_order_and_is_acknowledged(self):
        client = self.publisher()
        client.fill(self.q, range(COUNT))
        run = self.read()
        self.wait_for_all(range(COUNT), run)
        client.fill(self.q, range(COUNT, 2 * COUNT))
        self.wait_for_all(range(2 * COUNT), run)
        self.wait_for_end(run)
        self.assertEqual(self.numbers(run), list(range(2 * COUNT)))

    def test_nothing_is_acknowledged_before_rxd_has_acknowledged_it(self):
        client = self.publisher()
        client.fill(self.q, range(100))
        run = self.read(more=600000, environment={"CREDIT": "100"})  # its first round takes ten minutes
        wait_for(lambda: client.count(self.q) == 0, "the messages to be under way", PATIENCE)
        run.end(signal.SIGKILL)
        wait_for(lambda: client.count(self.q) == 100, "the messages to be back", PATIENCE)
        again = self.read(name="again")
        self.wait_for_all(range(100), again)
        self.wait_for_end(again)
        self.assertEqual({event["redelivered"] for event in again.lines()}, {True})

    def test_a_slow_pipeline_is_held_back_by_prefetch_while_heartbeats_go_on(self):
        client = self.publisher()
        client.fill(self.q, range(20))
        # A round takes longer than the server waits for a heartbeat.
        run = self.read(more=5000, prefetch=10, heartbeat="1s", environment={"CREDIT": "10"})
        wait_for(lambda: client.count(self.q) == 10, "the first round", PATIENCE)
        begin = time.monotonic()
        wait_for(lambda: run.count() >= 20, "both rounds", PATIENCE)
        self.assertGreater(time.monotonic() - begin, 4)
        self.wait_for_end(run)
        self.assertEqual(self.numbers(run), list(range(20)))
        self.assertNotIn("connectionErrors", run.errors())

    def test_events_that_fail_come_again(self):
        client = self.publisher()
        client.fill(self.q, range(100), 30000)
        run = self.read(more="fail 3", prefetch=20)
        self.wait_for_all(range(100), run)
        self.assertIn("count: requeued", run.errors())
        self.wait_for_end(run)
        self.assert_nothing_lost(range(100), self.numbers(run), "rounds that fail")  # and are not written yet

    def test_events_that_fail_are_dead_lettered(self):
        client = self.publisher(self.q + ".dead")
        client.declare(self.q, x_dead_letter_exchange="", x_dead_letter_routing_key=self.q + ".dead")
        client.fill(self.q, range(60))
        run = self.read(more="fail 2", prefetch=10, onFailure="deadLetter")
        wait_for(lambda: run.count() + client.count(self.q + ".dead") >= 60, "all", PATIENCE)
        self.assertIn("count: deadLettered", run.errors())
        self.wait_for_end(run)
        dead = [int(body) for body in self.bodies(self.q + ".dead")]
        self.assertGreater(len(dead), 0)
        self.assertEqual(sorted(dead + self.numbers(run)), list(range(60)))

    def test_a_queue_that_is_deleted_and_made_again(self):
        client = self.publisher()
        client.fill(self.q, range(10))
        run = self.read()
        self.wait_for_all(range(10), run)
        client.delete(self.q)
        self.said(run, f"the server has cancelled the consumer: the queue '{self.q}' was deleted, or has moved; trying again")
        client.declare(self.q)
        client.fill(self.q, range(10, 20))
        self.wait_for_all(range(20), run)
        self.assertIn(": connected", run.errors())
        self.wait_for_end(run)

    def test_a_queue_that_the_source_declares_and_binds(self):
        client = self.publisher(self.q + ".other")
        client.exchange(self.q + ".topic")
        client.exchange(self.q + ".headers", "headers")
        run = self.read(declare=True, arguments={"x-max-length": 1000}, bindings=[
            {"exchange": self.q + ".topic", "routingKey": ["eu.#", "us.new"]},
            {"exchange": self.q + ".headers", "arguments": {"x-match": "all", "kind": "a", "number": 5}}])
        wait_for(lambda: self.consumers() == 1, "the consumer", PATIENCE)
        for key in ["eu.old.x", "us.old", "us.new"]:
            client.publish(key, json.dumps(key).encode(), self.q + ".topic")
        for number in [4, 5]:
            client.publish("", str(number).encode(), self.q + ".headers", headers={"kind": "a", "number": number})
        wait_for(lambda: run.count() >= 3, "the messages", PATIENCE)
        client.delete(self.q)  # the source reconnects by itself
        wait_for(lambda: self.consumers() == 1, "the next consumer", PATIENCE)
        client.publish("us.new", b"6", self.q + ".topic")
        wait_for(lambda: run.count() >= 4, "the last message", PATIENCE)
        self.wait_for_end(run)
        self.assertEqual(self.numbers(run), ["eu.old.x", "us.new", 5, 6])

    def test_an_exclusive_consumer_waits_for_its_turn(self):
        client = self.publisher()
        first = self.read("first", exclusive=True)
        wait_for(lambda: self.consumers() == 1, "the consumer", PATIENCE)
        second = self.read("second", exclusive=True)
        self.said(second, "in exclusive use")
        client.fill(self.q, range(10))
        self.wait_for_all(range(10), first)
        self.assertEqual(first.end(), 0, first.errors())
        client.fill(self.q, range(10, 20))
        self.wait_for_all(range(10, 20), second)
        self.wait_for_end(second)

    def test_two_sources_share_a_queue(self):
        client = self.publisher()
        runs = [self.read(name=f"member{n}", prefetch=50) for n in range(2)]
        wait_for(lambda: self.consumers() == 2, "both", PATIENCE)
        client.fill(self.q, range(COUNT))
        self.wait_for_all(range(COUNT), *runs)
        self.assertEqual(runs[0].end(), 0, runs[0].errors())
        self.wait_for_end(runs[1])
        self.assertEqual(sorted(self.numbers(*runs)), list(range(COUNT)))
        self.assertGreater(min(run.count() for run in runs), 0)

    def test_a_quorum_queue(self):
        run = self.read(type="quorum", declare=True, prefetch=100, more="fail 5")
        client = self.publisher(self.q + ".other")
        wait_for(lambda: self.consumers() == 1, "the consumer", PATIENCE)
        client.fill(self.q, range(1000))
        self.wait_for_all(range(1000), run)
        self.wait_for_end(run)
        self.assert_nothing_lost(range(1000), self.numbers(run), "a quorum queue, rounds that fail")

    def test_a_lost_connection_loses_nothing_and_keeps_the_order(self):
        client = self.publisher()
        client.fill(self.q, range(COUNT), 2000)
        proxy = self.proxy()
        run = self.read(more=20, prefetch=300)
        for turn in range(3):
            wait_for(lambda: run.count() > (1 + turn) * COUNT // 5, "a part", PATIENCE)
            proxy.cut()
        self.wait_for_all(range(COUNT), run)
        self.assertIn("connectionErrors", run.errors())
        self.wait_for_end(run)
        numbers = self.numbers(run)
        self.assert_nothing_lost(range(COUNT), numbers, "three cuts")
        self.assertEqual(list(dict.fromkeys(numbers)), list(range(COUNT)))

    def test_connections_that_are_lost_at_once(self):
        opened = []

        def behave(connection):
            greet(connection)
            opened.append(connection)
            time.sleep(0.2)
            connection.close()

        self.hostile(behave)
        run = self.read()
        self.assert_growing_pauses(lambda: len(opened), run, ": connected")
        self.assertEqual(run.end(), 0, run.errors())

    def test_a_stop_does_not_wait_until_a_connection_times_out(self):
        """The server accepts the connection and never answers, not even to set up TLS."""
        for name, more in [("tls", {"tls": True}), ("plain", {})]:
            with self.subTest(name=name):
                heard = threading.Event()
                self.hostile(lambda connection, heard=heard: heard.set() or connection.recv(100000) and connection.recv(1))
                run = self.read(name, connectTimeout="30s", **more)
                wait_for(heard.is_set, "the connection", PATIENCE)
                begin = time.monotonic()
                self.assertEqual(run.end(), 0, run.errors())
                self.assertLess(time.monotonic() - begin, 5)

    def test_a_stop_gives_back_what_is_under_way(self):
        client = self.publisher()
        client.fill(self.q, range(1000), 20000)
        run = self.read(more=300, prefetch=100)
        wait_for(lambda: run.count() >= 100, "a round", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        again = self.read(name="again")
        self.wait_for_all(range(1000), run, again)
        self.wait_for_end(again)
        self.assertEqual(sorted(self.numbers(run, again)), list(range(1000)))

    def test_a_stop_does_not_wait_for_a_server_that_falls_silent(self):
        for name, until in [("login", (10, 11)), ("queue", (60, 20)), ("deliveries", None)]:
            with self.subTest(name=name):
                heard = threading.Event()

                def behave(connection, until=until, heard=heard):
                    file = greet(connection, until)
                    heard.set()
                    while file and file.read(1000):
                        pass

                self.hostile(behave)
                run = self.read(name)
                wait_for(heard.is_set, "the connection", PATIENCE)
                begin = time.monotonic()
                self.assertEqual(run.end(), 0, run.errors())
                took = time.monotonic() - begin
                print(f"\n    a stop with a silent server, {name}: {took:.1f} s")
                self.assertLess(took, 8)

    def test_messages_up_to_the_limit_of_the_server(self):
        client = self.publisher()
        for number, size in enumerate([1, BODY_MOST, 131064, 131065, 262128]):
            client.publish(self.q, str(number).encode().ljust(size))
        run = self.read()
        self.wait_for_all(range(5), run)
        self.wait_for_end(run)
        self.assertEqual(self.numbers(run), list(range(5)))


class StreamTests(AmqpTest):
    """Queues of type stream."""

    def setUp(self):
        super().setUp()
        self.broker = self.publisher(x_queue_type="stream")

    def follow(self, name="source", **parameters):
        return self.read(name, type="stream", **parameters)

    def test_offsets(self):
        self.broker.fill(self.q, range(10))
        before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
        for offset, more, expected in [("first", {}, range(10)), ("last", {}, range(10)), ("number", {"offsetNumber": 7}, range(7, 10)),
                                       ("timestamp", {"offsetTime": before}, range(10)), ("next", {}, None)]:
            with self.subTest(offset=offset):
                run = self.follow(offset, offset=offset, **more)
                if offset == "last":  # the last chunk, whose start depends on the server
                    wait_for(lambda: run.count() > 0 and self.numbers(run)[-1] == 9, "the last one", PATIENCE)
                elif offset == "next":
                    def has_come():
                        self.broker.publish(self.q, b"10")
                        return run.count() > 0

                    wait_for(has_come, "a new message", PATIENCE)
                    self.assertEqual(set(self.numbers(run)), {10})
                else:
                    wait_for(lambda: run.count() >= len(expected), "the messages", PATIENCE)
                    self.assertEqual(self.numbers(run), list(expected))
                    self.assertEqual([event["offset"] for event in run.lines()], list(expected))
                self.assertEqual(run.end(), 0, run.errors())

    def test_each_read_of_a_message_gives_it_the_same_name(self):
        self.broker.fill(self.q, range(10))
        runs = [self.follow(name, offset="first", environment={"NAMES": "1"}) for name in ["a", "b"]]
        wait_for(lambda: all(run.count() == 10 for run in runs), "both", PATIENCE)
        self.assertEqual(runs[0].lines(), runs[1].lines())
        self.assertEqual([line["name"] for line in runs[0].lines()], [f"{self.q}/{n}" for n in range(10)])

    def test_more_than_the_window_comes_once_in_order(self):
        self.broker.fill(self.q, range(COUNT))
        run = self.follow(offset="first", prefetch=100)
        self.wait_for_all(range(COUNT), run)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(self.numbers(run), list(range(COUNT)))

    def test_a_lost_connection_repeats_nothing(self):
        self.broker.fill(self.q, range(COUNT), 1000)
        proxy = self.proxy()
        run = self.follow(offset="first", more=20, prefetch=300)
        for turn in range(3):
            wait_for(lambda: run.count() > (1 + turn) * COUNT // 5, f"a part {turn} {run.count()}\n{run.errors()}", PATIENCE)
            proxy.cut()
        self.wait_for_all(range(COUNT), run)
        self.assertIn("connectionErrors", run.errors())
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(self.numbers(run), list(range(COUNT)))

    def test_a_queue_that_is_no_stream(self):
        queue = self.q + ".classic"
        client = self.publisher(queue)
        client.fill(queue, range(1))
        run = self.read(type="stream", queue=queue, prefetch=10)
        self.assertEqual(run.process.wait(PATIENCE), 1, run.errors())
        self.assertRegex(run.errors(), "failed at '(type|queue)'")


class SinkTests(AmqpTest):
    def test_properties_and_order(self):
        self.publisher()
        events = [{"n": n, "h": {"s": "x", "i": n, "d": 0.5, "l": [1, {"a": None}], "b": True}, "p": n % 10, "t": {"$timestamp": 1700000000 * 10 ** 9}}
                  for n in range(100)]
        self.written(events, routingKey=self.q, value="{{ event.n }}", headers="event.h", messageId="m{{ event.n }}", correlationId="c", replyTo="r",
                     type="t", priority="event.p", expiration="1h", appId="a", contentType="text/x")
        messages = self.client().drain(self.q)
        self.assertEqual([int(message["body"]) for message in messages], list(range(100)))
        self.assertEqual(messages[7]["properties"], {
            "headers": {"s": "x", "i": 7, "d": 0.5, "l": [1, {"a": None}], "b": True}, "message_id": "m7", "correlation_id": "c", "reply_to": "r",
            "type": "t", "priority": 7, "expiration": "3600000", "app_id": "a", "content_type": "text/x", "delivery_mode": 2})

    def test_what_is_sent_without_a_value(self):
        self.publisher()
        self.written(["text", {"a": 1}, 5], routingKey=self.q, persistent=False)
        messages = self.client().drain(self.q)
        self.assertEqual([message["body"] for message in messages], [b"text", b'{"a":1}', b"5"])
        self.assertEqual([message["properties"].get("content_type") for message in messages], [None, "application/json", "application/json"])
        self.assertEqual({message["properties"]["delivery_mode"] for message in messages}, {1})

    def test_messages_that_no_queue_takes_are_refused_with_the_reason(self):
        client = self.publisher()
        keys = [self.q if n % 3 else self.q + ".nowhere" for n in range(300)]
        run = self.written([{"k": key, "n": n} for n, key in enumerate(keys)], routingKey="{{ event.k }}", value="{{ event.n }}")
        self.assertIn("delivered 200, refused 100", run.errors())
        self.assertIn("refused: the server has returned the message: 312 NO_ROUTE; its routing key names no queue", run.errors())
        self.assertEqual([int(body) for body in self.bodies()], [n for n in range(300) if n % 3])
        silent = self.written([1], "silent", routingKey=self.q + ".nowhere", mandatory=False)
        self.assertIn("delivered 1, refused 0", silent.errors())
        # The routing key and the body are the same: only the headers differ.
        client.exchange(self.q + ".h", "headers")
        client.bind(self.q, self.q + ".h", x_match="all", to="here")
        events = [{"h": {"to": "here" if n % 2 else "nowhere", "n": n}} for n in range(100)]
        headers = self.written(events, "headers", exchange=self.q + ".h", routingKey="", value="same", headers="event.h")
        self.assertIn("delivered 50, refused 50", headers.errors())
        self.assertIn(f"bind a queue to the exchange '{self.q}.h' for its routing key", headers.errors())
        self.assertEqual([message["properties"]["headers"]["n"] for message in self.client().drain(self.q)], list(range(1, 100, 2)))

    def test_messages_that_are_nacked_come_again_without_repeating_others(self):
        client = self.publisher(self.q + ".open")
        client.declare(self.q, x_max_length=5, x_overflow="reject-publish")
        events = [{"k": self.q if n % 2 else self.q + ".open", "n": n} for n in range(40)]
        run = self.write(events, routingKey="{{ event.k }}", value="{{ event.n }}")
        self.said(run, "the server cannot take messages (nack): a queue is full, or has no leader; trying again")
        taken = []

        def all_are_taken():
            while message := client.get(self.q):
                taken.append(int(message["body"]))
            return len(taken) >= 20

        wait_for(all_are_taken, "the full queue to take all", PATIENCE)
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        self.assertIn("count: nacked", run.errors())
        self.assertIn("delivered 40, refused 0", run.errors())
        self.assertEqual(sorted(taken), list(range(1, 40, 2)))
        self.assertEqual(sorted(int(body) for body in self.bodies(self.q + ".open")), list(range(0, 40, 2)))

    def test_what_can_never_be_delivered_is_refused_alone(self):
        self.publisher()
        deep = None
        for _ in range(40):
            deep = {"d": deep}
        events = [{"n": 1}, {"n": "x" * (BODY_MOST + 1)}, {"n": 2}, {"n": 3, "h": {"x": "y" * 140000}}, {"n": 4, "h": 5}, {"n": 5, "h": deep},
                  {"n": 6, "h": {"n" * 256: 1}}, {"n": 7, "p": 256}, {"n": 8, "p": "high"}, {"n": 9, "id": "i" * 256}, {"n": 10, "h": None, "p": None}]
        events = [{"h": None, "p": None, "id": "", **event} for event in events]
        run = self.written(events, routingKey=self.q, value="{{ event.n }}", headers="event.h", priority="event.p", messageId="{{ event.id }}")
        # Messages that were unconfirmed when the server closed the channel are sent again.
        self.assertEqual(list(dict.fromkeys(int(body) for body in self.bodies())), [1, 2, 10])
        refusals = [line for line in run.errors().splitlines() if line.startswith("refused: ")]
        self.assertEqual(len(refusals), 8, run.errors())
        for expected in [f"the server refuses the message: PRECONDITION_FAILED - message size {BODY_MOST + 1} is larger than configured max size {BODY_MOST}",
                         "the headers and other properties have more bytes than the server takes: 131052",
                         "'headers' must be an object or null, and is something else for this event", "'headers' has nesting that is too deep",
                         "'headers' has a name of more than 255 bytes",
                         "'priority' must be a whole number from 0 to 255 or null, and is something else for this event",
                         "'messageId' has 256 bytes; AMQP allows 255"]:
            self.assertIn("refused: " + expected, refusals)
        long_key = self.written(["k" * 256, self.q], "key", routingKey="{{ event }}")
        self.assertIn("refused: the routing key has 256 bytes; AMQP allows 255", long_key.errors())
        self.assertEqual(self.bodies(), [self.q.encode()])

    def test_an_exchange_that_is_missing_declared_or_deleted(self):
        client = self.publisher()
        exchange = self.q + ".x"
        missing = self.write([1], "missing", exchange=exchange, routingKey="k")
        self.assertEqual(missing.process.wait(PATIENCE), 1)
        self.assertIn("failed at 'exchange'", missing.errors())
        self.assertIn(f"NOT_FOUND - no exchange '{exchange}' in vhost '/'; create it, set 'declare', or correct 'exchange'", missing.errors())
        self.written([1], "declares", exchange=exchange, routingKey="k", declare="topic", mandatory=False)
        client.bind(self.q, exchange, "#")
        other = self.write([1], "other", exchange=exchange, routingKey="k", declare="fanout")
        self.assertEqual(other.process.wait(PATIENCE), 1)
        self.assertIn("failed at 'declare'", other.errors())
        run = self.endless(exchange=exchange, routingKey="k")
        self.send(run, range(1024))
        wait_for(lambda: client.count(self.q) == 1024, "the first", PATIENCE)
        client.delete_exchange(exchange)
        self.send(run, range(1024, 2048))
        self.said(run, f"NOT_FOUND - no exchange '{exchange}'")
        client.exchange(exchange)
        client.bind(self.q, exchange, "#")
        wait_for(lambda: client.count(self.q) == 2048, "the second", PATIENCE)
        run.process.stdin.close()
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        self.assertEqual([int(body) for body in self.bodies()], list(range(2048)))

    def endless(self, **parameters):
        given = {"servers": self.servers, **parameters}
        return self.start([*RUNNER, self.plugin, "sink", "amqp", json.dumps(given)], "endless", stdin=subprocess.PIPE,
                          environment={**SANITIZERS, "PYTHONUNBUFFERED": "1"})

    def send(self, run, events):
        """1024 events: then the runner passes them to the sink."""
        run.process.stdin.write(b"".join(json.dumps(event).encode() + b"\n" for event in events))
        run.process.stdin.flush()

    def test_what_the_user_may_not_publish_is_refused_alone(self):
        client = self.publisher()
        client.bind(self.q, "amq.topic", "*." + self.q)
        login = {"user": "limited", "password": PASSWORD}
        events = [{"k": ("forbidden." if n % 4 == 0 else "allowed.") + self.q, "n": n} for n in range(40)]
        run = self.written(events, exchange="amq.topic", routingKey="{{ event.k }}", value="{{ event.n }}", **login)
        self.assertIn("delivered 30, refused 10", run.errors())
        self.assertIn("the server refuses the message: ACCESS_REFUSED", run.errors())
        self.assertEqual(sorted({int(body) for body in self.bodies()}), [n for n in range(40) if n % 4])
        other = self.write([1], "other", exchange="amq.direct", routingKey="k", **login)
        self.assertEqual(other.process.wait(PATIENCE), 0)
        self.assertIn("delivered 0, refused 1", other.errors())

    def test_many_events_are_stored_in_order(self):
        self.publisher()
        self.written(list(range(4 * COUNT)), routingKey=self.q)
        self.assertEqual([int(body) for body in self.bodies()], list(range(4 * COUNT)))

    def test_an_idle_connection_is_kept(self):
        client = self.publisher()
        run = self.endless(routingKey=self.q, heartbeat="1s")
        self.send(run, range(1024))
        wait_for(lambda: client.count(self.q) == 1024, "the first", PATIENCE)
        time.sleep(5)  # the server waits 2 s for a heartbeat
        self.send(run, range(1024, 2048))
        wait_for(lambda: client.count(self.q) == 2048, "the second", PATIENCE)
        run.process.stdin.close()
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        self.assertNotIn("connect again", run.errors())

    def test_cut_connections_lose_nothing(self):
        self.publisher()
        proxy = self.proxy()
        events = [{"n": n, "x": "x" * 2000} for n in range(2 * COUNT)]
        run = self.write(events, routingKey=self.q, messageId="{{ event.n }}", value="{{ event }}")
        client = self.client()
        for turn in range(3):
            wait_for(lambda: client.count(self.q) > (1 + turn) * COUNT // 3, "a part", PATIENCE)
            proxy.cut()
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        self.assertIn("trying again", run.errors())
        numbers = [json.loads(body)["n"] for body in self.bodies()]
        self.assert_nothing_lost(range(2 * COUNT), numbers, "sink, three cuts")
        self.assertEqual(list(dict.fromkeys(numbers)), list(range(2 * COUNT)))

    def test_a_server_that_falls_silent_is_given_up(self):
        def behave(connection):
            file = greet(connection)
            while file and file.read(1000):
                pass

        self.hostile(behave)
        run = self.write([1], routingKey="q", timeout="1s")
        self.said(run, "1 messages were not confirmed within 1000 ms; trying again")
        run.end(signal.SIGKILL)


class ConnectionTests(AmqpTest):
    """Logins, TLS, and missing, wrong or deleted objects."""

    def fails(self, expected, at, name="source", **parameters):
        run = self.read(name, **parameters)
        self.assertEqual(run.process.wait(PATIENCE), 1, run.errors())
        self.assertIn(expected, run.errors())
        self.assertIn(f"failed at '{at}'", run.errors())
        self.assertNotIn(PASSWORD, run.errors())

    def test_logins(self):
        self.publisher()
        self.fails("the server refuses the login; check 'user' and 'password'", "user", "password", user="me", password=PASSWORD + "!")
        self.fails("NOT_ALLOWED - vhost missing not found; correct 'vhost', or allow it to the user", "vhost", "vhost", vhost="missing")
        self.fails("the server refuses the virtual host 'other'", "vhost", "forbidden", vhost="other", user="me", password=PASSWORD)
        self.written([1], "right", routingKey=self.q, user="me", password=PASSWORD)
        sink = self.write([1], "wrong", routingKey=self.q, user="me", password="wrong")
        self.assertEqual(sink.process.wait(PATIENCE), 1)
        self.assertIn("failed at 'user'", sink.errors())

    def test_what_is_missing_or_not_allowed(self):
        client = self.publisher()
        self.fails("NOT_FOUND - no queue 'nowhere' in vhost '/'; create it, set 'declare: true', or correct 'queue'", "queue", "queue", queue="nowhere")
        self.fails("NOT_FOUND - no exchange 'nowhere' in vhost '/'; create it, or correct 'bindings' or 'queue'", "bindings.1", "exchange",
                   bindings=[{"exchange": "amq.topic", "routingKey": "x"}, {"exchange": "nowhere"}])
        self.fails("PRECONDITION_FAILED - inequivalent arg 'x-queue-type'", "declare", "type", declare=True, type="quorum")
        self.fails("ACCESS_REFUSED", "declare", "permission", declare=True, queue=self.q + ".new", user="limited", password=PASSWORD)
        self.assertEqual(client.count(self.q), 0)

    def test_tls(self):
        self.publisher()
        path = self.server.path
        here, ca = f"localhost:{self.server.tls_port}", path("ca.pem")
        client = {"certificate": path("client.pem"), "certificateKey": path("client.key")}
        stranger = {"certificate": path("stranger.pem"), "certificateKey": path("stranger.key")}
        for name, parameters, expected in [
                ("right", {"tls": True, "ca": ca}, None),
                ("scheme", {"ca": ca, "servers": [f"amqps://{here}"]}, None),
                ("unverified", {"tls": True, "dangerouslySkipVerification": True, "servers": [f"127.0.0.1:{self.server.tls_port}"]}, None),
                ("external", {"tls": True, "ca": ca, "mechanism": "EXTERNAL", **client}, None),
                ("stranger", {"tls": True, "ca": ca, "mechanism": "EXTERNAL", **stranger},
                 "the server refuses the login; check 'certificate', and which user the server takes from it"),
                ("unknown CA", {"tls": True}, "the server's certificate is refused"),
                ("another name", {"tls": True, "ca": ca, "servers": [f"127.0.0.1:{self.server.tls_port}"]}, "the server's certificate is refused"),
                ("plain port", {"tls": True, "ca": ca, "servers": [f"localhost:{self.server.port}"]}, "TLS"),
                ("without", {}, "what answers there is no AMQP server"),
                ("another key", {"tls": True, "certificate": path("client.pem"), "certificateKey": path("ca.key")}, "refused at 'certificateKey'")]:
            with self.subTest(name=name):
                run = self.write([1], name, routingKey=self.q, **{"servers": [here], "connectTimeout": "3s", **parameters})
                if expected is None:
                    self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
                else:
                    self.said(run, expected)
                    run.end(signal.SIGKILL)
        self.assertEqual(len(self.bodies()), 4)
        # Many messages and large ones, in both directions.
        sizes = [10 + n * 37 % 2000 for n in range(3000)] + [700000]
        self.written(["x" * size for size in sizes], "much", routingKey=self.q, tls=True, ca=ca, servers=[here])
        run = self.read(decode="text", tls=True, ca=ca, servers=[here])
        wait_for(lambda: run.count() >= len(sizes), "all", PATIENCE)
        self.wait_for_end(run)
        self.assertEqual([len(value) for value in self.numbers(run)], sizes)

    def test_a_server_that_cannot_be_reached_is_waited_for(self):
        client = self.publisher()
        client.fill(self.q, range(10))
        closed = f"127.0.0.1:{free_port()}"
        run = self.read(servers=[closed])
        self.said(run, f"{closed}: the server cannot be reached: Connection refused; trying again")
        begin = time.monotonic()
        self.assertEqual(run.end(), 0, run.errors())
        self.assertLess(time.monotonic() - begin, 5)
        nameless = self.read("nameless", servers=["nowhere.invalid"])
        self.said(nameless, "the name of the server cannot be resolved")
        nameless.end(signal.SIGKILL)
        both = self.read("both", servers=[closed, *self.servers])
        self.wait_for_all(range(10), both)
        self.wait_for_end(both)
        self.written([1], "sink", routingKey=self.q, servers=[closed, *self.servers])

    def test_hostile_servers(self):
        start = method(10, 10, b"\0\x09" + table({}) + long(b"PLAIN AMQPLAIN") + long(b"en_US"), 0)
        for name, data, expected in [
                ("nothing", b"", "the server has closed the connection"),
                ("http", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "what answers there is no AMQP server"),
                ("version", b"AMQP\0\1\0\0", "the server does not know AMQP 0-9-1"),
                ("huge", struct.pack(">BHI", 1, 0, 2 ** 32 - 1), "what answers there is no AMQP server"),
                ("end", start[:-1] + b"!", "the server has sent a damaged frame"),
                ("half", start[:9], "the server has closed the connection"),
                ("lies", method(10, 10, b"\0\x09" + struct.pack(">I", 2 ** 32 - 1), 0), "the server does not offer the login PLAIN"),
                ("no PLAIN", method(10, 10, b"\0\x09" + table({}) + long(b"AMQPLAIN") + long(b""), 0), "the server does not offer the login PLAIN"),
                ("tune", start + method(10, 30, b"\0", 0), "the server has sent a damaged frame"),
                ("other", start + method(99, 99, b"\0" * 100, 0), "the server has closed the connection")]:
            with self.subTest(name=name):
                def behave(connection, data=data):
                    connection.recv(8)
                    connection.sendall(data)
                    if data.startswith(start):
                        connection.recv(4096)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(4096)
                    connection.close()

                self.hostile(behave)
                run = self.read(name, connectTimeout="2s")
                self.said(run, expected)
                run.end(signal.SIGKILL)

    def test_hostile_deliveries(self):
        def deliver(tag):
            return method(60, 60, short("c") + struct.pack(">QB", tag, 0) + short("") + short("k"))

        def header(size):
            return Client.frame(2, struct.pack(">HHQ", 60, 0, size) + b"\0\0")

        for name, data, expected in [
                ("tag", deliver(5) + header(0), "the server has sent deliveries out of order"),
                ("body", Client.frame(3, b"x"), "the server has sent frames out of order"),
                ("twice", deliver(1) + deliver(2), "the server has sent frames out of order"),
                ("longer", deliver(1) + header(1) + Client.frame(3, b"xx"), "the server has sent frames out of order"),
                ("endless", deliver(1) + header(2 ** 63), "a message has 9223372036854775808 bytes, which is too many"),
                ("short", method(60, 60, b"\xff"), "the server has sent a damaged frame"),
                ("close", method(20, 40, struct.pack(">H", 406) + short("PRECONDITION_FAILED - \x1b[2J") + b"\0\0\0\0"),
                 "the server has closed the channel: PRECONDITION_FAILED - ?[2J"),
                ("forced", method(10, 50, struct.pack(">H", 320) + short("CONNECTION_FORCED") + b"\0\0\0\0", 0),
                 "the server has closed the connection: CONNECTION_FORCED"),
                ("silence", b"", "the server has been silent for 2 s")]:
            with self.subTest(name=name):
                def behave(connection, data=data):
                    file = greet(connection)
                    if file:
                        connection.sendall(data)
                        while file.read(1000):
                            pass

                self.hostile(behave)
                run = self.read(name, heartbeat="1s")
                self.said(run, expected + "; trying again")
                run.end(signal.SIGKILL)

    def test_hostile_confirmations(self):
        for name, data, expected in [
                ("unknown", method(60, 80, struct.pack(">QB", 10 ** 9, 1)), "1 messages were not confirmed within 1000 ms"),
                ("return", method(60, 50, struct.pack(">H", 312) + short("NO_ROUTE") + short("") + short("other")) +
                 Client.frame(2, struct.pack(">HHQ", 60, 0, 0) + b"\0\0"), "the server has returned a message that was not sent"),
                ("content", Client.frame(3, b"x"), "the server has sent frames out of order")]:
            with self.subTest(name=name):
                def behave(connection, data=data):
                    file = greet(connection)
                    if file and file.read(10):
                        connection.sendall(data)
                        while file.read(1000):
                            pass

                self.hostile(behave)
                run = self.write([1], name, routingKey="q", timeout="1s")
                self.said(run, expected)
                run.end(signal.SIGKILL)


class PipelineTests(AmqpTest):
    """Whole pipelines in rxd."""

    def reader(self, name, state=None, delivery="durable", more=""):
        """`state`: the name of an earlier reader that is restarted."""
        text = f"""name: reader
delivery: {delivery}
plugins: {{ amqp: PLUGIN }}
sources:
  in: {{ amqp: {{ queue: "{self.q}", decode: json, servers: {json.dumps(self.servers)} {more} }} }}
sinks:
  out: {{ from: in, stdout: {{ encode: json }} }}
"""
        return self.pipeline(text, name, (), state)

    def test_everything_comes_once_in_order_and_a_stop_acknowledges(self):
        client = self.publisher()
        client.fill(self.q, range(COUNT))
        first = self.reader("first")
        self.wait_for_all(range(COUNT), first)
        self.wait_for_end(first)
        client.fill(self.q, range(COUNT, COUNT + 10))
        second = self.reader("second", "first")
        self.wait_for_all(range(COUNT + 10), first, second)
        self.wait_for_end(second)
        self.assertEqual(self.numbers(first, second), list(range(COUNT + 10)))

    def test_light_delivery_acknowledges_what_is_delivered(self):
        client = self.publisher()
        client.fill(self.q, range(COUNT))
        run = self.reader("light", delivery="light")
        self.wait_for_all(range(COUNT), run)
        self.wait_for_end(run)

    def test_a_stream_is_read_on_behind_the_saved_position(self):
        client = self.publisher(x_queue_type="stream")
        client.fill(self.q, range(1000))
        runs = [self.reader("first", more=", type: stream, offset: first")]
        self.wait_for_all(range(1000), *runs)
        self.assertEqual(runs[0].end(), 0, runs[0].errors())
        client.fill(self.q, range(1000, 2000))
        runs.append(self.reader("second", "first", more=", type: stream, offset: first"))
        self.wait_for_all(range(2000), *runs)
        self.assertEqual(self.numbers(*runs), list(range(2000)))
        runs[-1].end(signal.SIGKILL)
        client.fill(self.q, range(2000, 3000))
        runs.append(self.reader("third", "first", more=", type: stream, offset: first"))
        self.wait_for_all(range(3000), *runs)
        self.assertEqual(runs[-1].end(), 0, runs[-1].errors())
        self.assert_nothing_lost(range(3000), self.numbers(*runs), "a stream, one kill")

    def test_a_message_of_a_queue_has_no_id_and_one_of_a_stream_has(self):
        for kind, expected in [("classic", "none"), ("stream", "in/amqp:{}/0")]:
            with self.subTest(kind=kind):
                queue = f"{self.q}-{kind}"
                client = self.publisher(queue, **({"x_queue_type": "stream"} if kind == "stream" else {}))
                client.fill(queue, [7])
                run = self.pipeline(f"""plugins: {{ amqp: PLUGIN }}
sources:
  in: {{ amqp: {{ queue: {queue}, decode: json, servers: {json.dumps(self.servers)}{', type: stream, offset: first' if kind == 'stream' else ''} }} }}
sinks:
  out: {{ from: in, chain: [ {{ map: "{{'id': has(meta.id) ? meta.id : 'none'}}" }} ], stdout: {{ encode: json }} }}
""", kind)
                wait_for(lambda: run.count() > 0, "the message", PATIENCE)
                self.assertEqual(run.lines()[0]["id"], expected.format(queue))

    def test_names_of_headers_that_are_not_utf8(self):
        """Two of them become the same name; the last one counts."""
        self.deliver((properties(headers=Raw(long(b"".join(short(name) + b"I" + struct.pack(">i", n) for n, name in
                                                           enumerate([b"\xff", b"a", b"\xfe"]))))), b"1"))
        run = self.reader("names")
        wait_for(lambda: run.count() >= 1, "the message", PATIENCE)
        self.assertEqual(run.lines()[0]["headers"], {"a": 1, "\ufffd": 2})
        self.assertEqual(run.end(), 0, run.errors())

    def test_a_wrong_login_is_reported_with_its_location(self):
        self.publisher()
        run = self.reader("wrong", more=f", user: me, password: 'wrong {PASSWORD}'")
        run.process.wait(PATIENCE)
        self.assertNotEqual(run.process.returncode, 0)
        self.assertIn("the server refuses the login; check 'user' and 'password'", run.errors())
        self.assertNotIn(PASSWORD, run.errors())

    def test_a_sink_whose_server_falls_silent_does_not_hold_up_a_stop(self):
        lines = self.path("lines")
        with open(lines, "w") as file:
            file.writelines(f"{n}\n" for n in range(100))
        heard = threading.Event()

        def behave(connection):
            file = greet(connection)
            while file and file.read(100):
                heard.set()

        self.hostile(behave)
        run = self.pipeline(f"""plugins: {{ amqp: PLUGIN }}
sources: {{ in: {{ file: {{ path: {lines}, follow: true }} }} }}
sinks: {{ out: {{ from: in, amqp: {{ routingKey: q, servers: {json.dumps(self.servers)} }} }} }}
""", "silent")
        wait_for(heard.is_set, "messages", PATIENCE)
        begin = time.monotonic()
        run.end()
        took = time.monotonic() - begin
        print(f"\n    a stop with a silent server: {took:.1f} s")
        self.assertLess(took, 12, run.errors())

    def lines_of(self, name):
        with open(self.path(name)) as file:
            return file.read().count("\n")

    def test_the_example_works(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        example = os.path.join(ROOT, "pipelines", "orders.yaml")
        tested = subprocess.run([RXD, "test", example], capture_output=True, text=True, timeout=PATIENCE, env=WITH_SANITIZERS)
        self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)
        client = self.publisher(self.q)
        client.bind(self.q, "amq.topic", "large.c1")
        client.bind(self.q, "amq.topic", "large.c2")
        rxd = self.start([RXD, "run", example, "--state-dir", self.path("state")], "rxd",
                         environment={"RABBITMQ": self.servers[0], "REFUSED": self.path("refused.ndjson"), "UNROUTED": self.path("unrouted.ndjson")})
        wait_for(lambda: self.consumers("rxd-orders") == 1, "the consumer", PATIENCE)
        for n in range(20):
            client.publish("orders.new", json.dumps({"id": n, "customer": f"c{n % 3}", "amount": n * 100}).encode(), "amq.topic")
        client.publish("orders.new", b"no JSON", "amq.topic")
        wait_for(lambda: client.count(self.q) >= 7, "the large orders", PATIENCE)
        messages = client.drain(self.q)
        self.assertEqual([json.loads(message["body"])["id"] for message in messages], [n for n in range(10, 20) if n % 3])
        self.assertEqual({message["key"] for message in messages}, {"large.c1", "large.c2"})
        self.assertEqual(messages[0]["properties"]["headers"], {"source": "rxd"})
        wait_for(lambda: os.path.exists(self.path("unrouted.ndjson")) and self.lines_of("unrouted.ndjson") == 3, "the others", PATIENCE)
        self.assertEqual(rxd.end(), 0, rxd.errors())
        with open(self.path("refused.ndjson")) as file:
            self.assertIn("the message is not a JSON document", file.read())
        with open(self.path("unrouted.ndjson")) as file:
            self.assertEqual([json.loads(line)["event"]["id"] for line in file], [12, 15, 18])


class KillTests(AmqpTest):
    """From a queue through rxd into another one, under load, while rxd or the server is killed (SIGKILL) KILLS times; only this class uses the
    server."""

    LOAD = 2000  # messages for each kill

    @classmethod
    def setUpClass(cls):
        cls.own = Server()
        try:
            cls.own.start()
        except BaseException:
            cls.own.end()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.own.end()

    def choose_server(self):
        return self.own

    def setUp(self):
        super().setUp()
        self.source, self.target = self.q + ".in", self.q + ".out"

    def start_pipeline(self, name):
        text = f"""name: mover
plugins: {{ amqp: PLUGIN }}
sources:
  in: {{ amqp: {{ queue: "{self.source}", decode: json, servers: {json.dumps(self.servers)} }} }}
sinks:
  out:
    from: in
    chain: [ map: event.value ]
    amqp: {{ routingKey: "{self.target}", timeout: 5s, servers: {json.dumps(self.servers)} }}
  read: {{ from: in, stdout: {{ encode: json }} }}
"""
        run = self.pipeline(text, name, state="mover")
        self.runs.append(run)
        return run

    def begin(self, **arguments):
        if not RXD:
            self.skipTest("set RXD to the program")
        client = self.publisher(self.source, self.target, **arguments)
        self.runs, self.total = [], 0
        self.load(client)

    def load(self, client):
        """Publishes numbers for one kill; returns when they are stored."""
        client.fill(self.source, range(self.total, self.total + self.LOAD))
        self.total += self.LOAD

    def wait_until_moved(self, client, goal, run):
        wait_for(lambda: client.count(self.target) >= goal, f"{goal} to be moved\n{run.errors()}", PATIENCE)

    def end(self, label, run):
        client = self.client()
        moved = []

        def are_moved():
            moved.extend(int(message["body"]) for message in client.drain(self.target))
            return len(moved) >= self.total and set(moved) >= set(range(self.total))

        wait_for(are_moved, "all to be moved", PATIENCE)
        # Messages whose acknowledgement the server did not have when it was killed are delivered again.
        wait_for(lambda: client.declare(self.source, passive=True) == (0, 1), "the source to be connected, and to have read all", PATIENCE)
        wait_for(lambda: self.handles_a_stop(run), "the start of the last one", PATIENCE)
        self.wait_for_end(run, self.source)
        self.assertTrue(are_moved())
        read = self.numbers(*self.runs)
        self.assert_nothing_lost(range(self.total), read, label + ", read")
        self.assert_nothing_lost(range(self.total), moved, label + ", in the other queue")
        # The first deliveries are in order.
        for numbers in [read, moved]:
            self.assertEqual(list(dict.fromkeys(numbers)), list(range(self.total)))
        client.delete(self.source)
        client.delete(self.target)

    def handles_a_stop(self, run):
        """Whether SIGTERM does not simply end the process: all messages may have been moved before the last rxd starts."""
        with open(f"/proc/{run.process.pid}/status") as status:
            signals = [int(line.split()[1], 16) for line in status if line.startswith(("SigCgt", "SigBlk"))]
        return any(mask >> (signal.SIGTERM - 1) & 1 for mask in signals)

    def test_rxd_is_killed(self):
        self.begin()
        client = self.client()
        client.confirm()
        for turn in range(KILLS):
            run = self.start_pipeline(f"run{turn}")
            self.wait_until_moved(client, self.total - random.randrange(1, self.LOAD), run)
            run.end(signal.SIGKILL)
            self.load(client)
        self.end(f"rxd killed {KILLS} times", self.start_pipeline("last"))

    def kill_server(self, label, **arguments):
        self.begin(**arguments)
        run = self.start_pipeline("run")
        for _ in range(SERVER_KILLS):
            client = self.client()
            client.confirm()
            self.load(client)
            self.wait_until_moved(client, self.total - random.randrange(1, self.LOAD), run)
            self.server.kill()
            self.server.start()
        self.end(f"{label}: the server killed {SERVER_KILLS} times", run)
        self.assertIn("trying again", run.errors())

    def test_the_server_is_killed(self):
        self.kill_server("classic queues")

    def test_a_server_without_memory_holds_the_sink_back(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        client = self.publisher(self.target)
        lines = self.path("lines")
        open(lines, "w").close()
        run = self.pipeline(f"""plugins: {{ amqp: PLUGIN }}
sources: {{ in: {{ file: {{ path: {lines}, follow: true }} }} }}
sinks: {{ out: {{ from: in, amqp: {{ routingKey: "{self.target}", timeout: 5s, heartbeat: 3s, servers: {json.dumps(self.servers)} }} }} }}
""", "blocked")

        def append(numbers):
            with open(lines, "a") as file:
                file.writelines(f"{n}\n" for n in numbers)

        append(range(10))
        wait_for(lambda: client.count(self.target) == 10, "the first", PATIENCE)
        self.server.control("set_vm_memory_high_watermark", "0.00001")
        append(range(10, 2000))
        self.said(run, "the server takes no messages for now: low on memory")
        time.sleep(8)  # longer than `timeout` and than the server's heartbeat limit
        self.assertLess(client.count(self.target), 2000)
        self.server.control("set_vm_memory_high_watermark", "0.4")
        try:
            wait_for(lambda: client.count(self.target) >= 2000, "all", PATIENCE)
        except AssertionError:
            raise AssertionError(f"{client.count(self.target)} of 2000 messages have come\n{run.errors()}") from None
        self.assertEqual(run.end(), 0, run.errors())
        self.assertIn("the server takes messages again", run.errors())
        self.assertNotIn("trying again", run.errors())
        self.assertEqual([int(body) for body in self.bodies(self.target)], list(range(2000)))


if __name__ == "__main__":
    unittest.main()
