"""Tests of the plugin with a real nats-server: without rxd, and in rxd if RXD names it."""
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from broker import Client, Refusal, fill  # noqa: E402
from logins import credentials  # noqa: E402
from plugin_test import RUNNER, RXD, SANITIZERS, WITH_SANITIZERS, PluginTest, Proxy, free_port, wait_for  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "nats.so"))
SERVER = os.environ.get("NATS_SERVER", "nats-server")
PASSWORD = "correct horse battery"
COUNT = int(os.environ.get("COUNT", "5000"))
KILLS = int(os.environ.get("KILLS", "3"))
PATIENCE = float(os.environ.get("PATIENCE", "60"))


def greet(connection):
    """Acts as a server until a client is connected; returns whether one is."""
    info = {"server_id": "X", "version": "2.9.0", "proto": 1, "host": "127.0.0.1", "port": 1, "headers": True, "max_payload": 1000}
    connection.sendall(f"INFO {json.dumps(info)}\r\n".encode())
    has_asked = bool(connection.recv(4096))
    connection.sendall(b"PONG\r\n")
    return has_asked


def fall_silent(connection):
    greet(connection)
    while connection.recv(4096):
        pass


class NatsTest(PluginTest):
    plugin = PLUGIN

    def start_server(self, config="", jetstream=True):
        """A server, with JetStream on disk, and the given lines of configuration. The second call is a restart."""
        self.port = getattr(self, "port", None) or free_port()
        store = f"jetstream {{ store_dir: {json.dumps(self.path('store'))} }}" if jetstream else ""
        path = self.path("server.conf")
        with open(path, "w") as file:
            file.write(f"host: 127.0.0.1\nport: {self.port}\n{store}\n{config}\n")
        self.server = self.start([SERVER, "-c", path], "server")
        self.servers = [f"127.0.0.1:{self.port}"]

    def client(self, **login):
        def connected():
            try:
                return Client(self.port, **login)
            except (ConnectionRefusedError, ConnectionResetError):
                return None

        client = wait_for(connected, "the server", PATIENCE)
        self.addCleanup(client.close)
        return client

    def start_stream(self, config="", **more):
        """A server with the stream S, whose subjects begin with `s.`."""
        self.start_server(config)
        client = self.client()
        client.add_stream("S", "s.>", **more)
        return client

    def fill(self, first, count, size=0, subject="s.n"):
        """Numbers from `first`."""
        fill(self.port, subject, range(first, first + count), size, PATIENCE)

    def read(self, component="natsStream", name="source", more="", environment=None, **parameters):
        """A source without rxd."""
        given = {"servers": self.servers, "decode": "json", **parameters}
        if component == "natsStream":
            given = {"stream": "S", "consumer": "c", "ackWait": "2s", **given}
        return self.start([*RUNNER, self.plugin, "source", component, json.dumps(given), str(more)], name,
                          environment={**SANITIZERS, **(environment or {})})

    def write(self, events, component="natsStream", name="sink", **parameters):
        """A sink without rxd."""
        given = {"servers": self.servers, **parameters}
        if component == "natsStream":
            given = {"stream": "S", "subject": "s.n", **given}
        return self.sink(component, given, events, name)

    def written(self, *given, **parameters):
        """A sink that has ended."""
        run = self.write(*given, **parameters)
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

    def wait_until_acknowledged(self, client, consumer="c"):
        wait_for(lambda: (info := client.consumer("S", consumer))["num_ack_pending"] == 0 and info["num_pending"] == 0,
                 "acknowledgements", PATIENCE)


class ParameterTests(NatsTest):
    def test_errors_name_the_parameter(self):
        stream = {"stream": "S", "consumer": "c"}
        for kind, component, parameters, expected in [
            ("source", "nats", {"subjects": ["a"], "servers": []}, "'servers': needs a server"),
            ("source", "nats", {"subjects": ["a"], "servers": ["a", "host:70000"]}, "'servers.1': the port must be a number from 1 to 65535"),
            ("source", "nats", {"subjects": ["a"], "servers": [f"nats://me:{PASSWORD}@host"]},
             "'servers.0': must not contain a user or a password; use 'user' and 'password'"),
            ("source", "nats", {"subjects": []}, "'subjects': needs a subject"),
            ("source", "nats", {"subjects": ["a", "b..c"]}, "'subjects.1': must be parts without spaces, separated by dots; "
             "* is any part, > at the end all further ones"),
            ("source", "nats", {"subjects": ["a.>.b"]}, "'subjects.0': must be parts without spaces, separated by dots; "
             "* is any part, > at the end all further ones"),
            ("source", "nats", {"subjects": ["a"], "buffer": "1KiB"}, "'buffer': must be 1MiB to 1GiB"),
            ("source", "nats", {"subjects": ["a"], "password": PASSWORD}, "'password': 'user' and 'password' belong together"),
            ("source", "nats", {"subjects": ["a"], "user": "me", "password": PASSWORD, "token": PASSWORD}, "'token': cannot be combined with 'user'"),
            ("source", "nats", {"subjects": ["a"], "ca": "/a"}, "'ca': has no effect without 'tls: true'"),
            ("source", "nats", {"subjects": ["a"], "tls": True, "ca": "/nowhere"}, "'ca': cannot read the file: No such file or directory"),
            ("source", "nats", {"subjects": ["a"], "credentials": "/nowhere"}, "'credentials': cannot read the file: No such file or directory"),
            ("source", "natsStream", {**stream, "stream": "a.b"}, "'stream': must have 1 to 255 bytes, without spaces and any of . * > / \\"),
            ("source", "natsStream", {**stream, "start": "sequence"}, "'start': 'start: sequence' and 'startSequence' belong together"),
            ("source", "natsStream", {**stream, "startTime": "2026-01-01T00:00:00Z"}, "'startTime': 'start: time' and 'startTime' belong together"),
            ("source", "natsStream", {**stream, "start": "time", "startTime": "soon"}, "'startTime': must be a time such as 2026-01-31T12:00:00Z"),
            ("source", "natsStream", {**stream, "start": "time", "startTime": "9999-01-01T00:00:00Z"},
             "'startTime': must be a time such as 2026-01-31T12:00:00Z"),
            ("source", "natsKV", {"bucket": "a.b"}, "'bucket': must be 1 to 200 letters, digits, hyphens or underscores"),
            ("sink", "natsKV", {"bucket": "", "key": "k"}, "'bucket': must be 1 to 200 letters, digits, hyphens or underscores"),
        ]:
            with self.subTest(parameters=parameters):
                message = self.refused(kind, component, parameters)
                self.assertEqual(message, expected)
                self.assertNotIn(PASSWORD, message)


class SourceTests(NatsTest):
    """The source `nats`."""

    def listen(self, client, run, subject="a.ready"):
        """Publishes until the source receives it."""
        def has_come():
            client.publish(subject, b"0")
            return run.count() > 0

        wait_for(has_come, "the first message", PATIENCE)

    def test_messages_of_every_odd_kind(self):
        self.start_server()
        client = self.client()
        run = self.read("nats", subjects=["a.>", "b.*"], decode="text")
        self.listen(client, run)
        client.publish("b.x", b"")
        client.publish("b.x.y", b"not subscribed to")
        client.publish("b.z", b"\xff\x00")
        client.publish("a.1.2", b"headers", headers=[("b", "1"), ("a", "2"), ("b", "3")])
        client.send(Client.message("a.q", b"question", "answers.here"))
        wait_for(lambda: run.count() >= 5 and {"a.q", "b.z"} <= {event["subject"] for event in run.lines()}, "all", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        events = {event["subject"]: event for event in run.lines()}
        self.assertEqual(events["b.x"], {"subject": "b.x", "value": ""})
        self.assertEqual(events["b.z"]["value"], "hex:ff00")  # bytes, as the host shows them
        self.assertEqual(events["a.1.2"]["headers"], {"a": "2", "b": ["1", "3"]})
        self.assertEqual(events["a.q"]["reply"], "answers.here")
        self.assertNotIn("b.x.y", events)

    def test_a_queue_group_shares_messages(self):
        self.start_server()
        client = self.client()
        runs = [self.read("nats", f"member{n}", subjects=["a.>"], group="g") for n in range(2)]
        while min(run.count() for run in runs) == 0:
            client.publish("a.ready", b"-1")
            client.flush()
        for number in range(COUNT):
            client.publish("a.n", str(number).encode())
        self.wait_for_all(range(COUNT), *runs)
        numbers = [number for number in self.numbers(*runs) if number >= 0]
        self.assertEqual(sorted(numbers), list(range(COUNT)))
        for run in runs:
            self.assertEqual(run.end(), 0, run.errors())

    def test_a_source_that_is_too_slow_drops_and_says_so(self):
        self.start_server()
        client = self.client()
        run = self.read("nats", more=300, subjects=["a.>"], buffer="1MiB", environment={"CREDIT": "12"})
        self.listen(client, run)
        for number in range(60):
            client.publish("a.n", str(number).encode().ljust(100000))
        wait_for(lambda: "droppedMessages" in run.errors(), "the counter", PATIENCE)
        self.assertIn("warning: the pipeline is too slow: messages were dropped", run.errors())
        self.assertEqual(run.end(), 0, run.errors())

    def test_stops_while_messages_arrive(self):
        """The library must not receive any more when the subscription ends."""
        self.start_server()
        self.client()
        is_over = threading.Event()

        def flood():
            client = Client(self.port)
            while not is_over.is_set():
                client.send(client.message("a.n", b"x" * 100) * 500)
            client.close()

        senders = [threading.Thread(target=flood, daemon=True) for _ in range(2)]
        for sender in senders:
            sender.start()
        try:
            for number in range(8):
                run = self.read("nats", f"source{number}", subjects=["a.>", "a.n", "*.n"])
                wait_for(lambda: run.count() > 0, "messages", PATIENCE)
                self.assertEqual(run.end(), 0, run.errors()[-3000:])
        finally:
            is_over.set()
            for sender in senders:
                sender.join(PATIENCE)

    def test_a_source_comes_back_after_the_server(self):
        self.start_server()
        client = self.client()
        run = self.read("nats", subjects=["a.>"])
        self.listen(client, run)
        self.server.end(signal.SIGKILL)
        wait_for(lambda: "the connection is lost; trying again" in run.errors(), "the report", PATIENCE)
        self.start_server()
        count, client = run.count(), self.client()

        def has_come():
            client.publish("a.again", b"1")
            return run.count() > count

        wait_for(has_come, "a message after the restart", PATIENCE)
        self.assertIn(": connected", run.errors())
        self.assertEqual(run.end(), 0, run.errors())


class StreamTests(NatsTest):
    """The source `natsStream`."""

    def test_messages_of_every_odd_kind(self):
        client = self.start_stream()
        client.store("s.empty", b"")
        client.store("s.bytes", b"\xff\x00")
        client.store("s.headers", b"x", [("b", "1"), ("a", "2"), ("b", "3")])
        client.store("s.many", b"x", [(f"h{n}", "x") for n in range(200)])
        client.store("s.text", "grüße".encode())
        client.store("s.status", b"", [("Status", "404")])
        run = self.read(decode="text")
        wait_for(lambda: run.count() >= 5, "five", PATIENCE)
        self.wait_until_acknowledged(client)
        self.assertEqual(run.end(), 0, run.errors())
        events = run.lines()
        self.assertEqual([event["value"] for event in events[:5]], ["", "hex:ff00", "x", "x", "grüße"])
        self.assertEqual([event["sequence"] for event in events[:5]], [1, 2, 3, 4, 5])
        self.assertEqual(events[2]["headers"], {"a": "2", "b": ["1", "3"]})
        self.assertEqual(events[3]["headers"], {f"h{n}": "x" for n in range(200)})
        self.assertEqual((events[0]["stream"], events[0]["deliveries"], events[0]["pending"]), ("S", 1, 5))
        self.assertIn("timestamp", events[0])

    def test_everything_comes_once_in_order_and_is_acknowledged(self):
        client = self.start_stream()
        self.fill(0, COUNT)
        run = self.read()
        self.wait_for_all(range(COUNT), run)
        self.wait_until_acknowledged(client)
        self.fill(COUNT, COUNT)
        self.wait_for_all(range(2 * COUNT), run)
        self.wait_until_acknowledged(client)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(self.numbers(run), list(range(2 * COUNT)))

    def test_nothing_is_acknowledged_before_rxd_has_acknowledged_it(self):
        client = self.start_stream()
        self.fill(0, 100)
        run = self.read(more=600000, environment={"CREDIT": "100"})  # its first round takes ten minutes
        wait_for(lambda: self.exists(client, "c") and client.consumer("S", "c")["num_ack_pending"] == 100, "the messages to be under way", PATIENCE)
        run.end(signal.SIGKILL)
        self.assertEqual(client.consumer("S", "c")["num_ack_pending"], 100)
        again = self.read(name="again")
        self.wait_for_all(range(100), again)
        again.end()

    def test_starts(self):
        client = self.start_stream()
        for number in range(5):
            if number == 3:  # the library starts at a full second in place of its first tenth
                wait_for(lambda: 0.15 < time.time() % 1 < 0.9, "the rest of a second")
            client.store(f"s.{number % 2}", str(number).encode())
        middle = client.ask("STREAM.MSG.GET.S", seq=4)["message"]["time"]
        for start, more, expected in [
            ("all", {}, [0, 1, 2, 3, 4]), ("last", {}, [4]), ("lastPerSubject", {}, [3, 4]), ("new", {}, []),
            ("sequence", {"startSequence": 3}, [2, 3, 4]), ("time", {"startTime": middle}, [3, 4]),
            ("all", {"filter": "s.1"}, [1, 3])]:
            with self.subTest(start=start, more=more):
                name = start + "-" + "".join(more)
                run = self.read(name=name, consumer=name, start=start, **more)
                wait_for(lambda: self.exists(client, name), "the consumer", PATIENCE)
                wait_for(lambda: run.count() >= len(expected), "the messages", PATIENCE)
                self.wait_until_acknowledged(client, name)
                self.assertEqual(run.end(), 0, run.errors())
                self.assertEqual(self.numbers(run), expected)

    def test_a_start_within_the_first_tenth_of_a_second_skips_nothing(self):
        client = self.start_stream()
        for name, given, expected in [("early", "05.041038368Z", "05Z"), ("late", "05.141038368Z", "05.141038368Z"), ("whole", "05Z", "05Z")]:
            run = self.read(name=name, consumer=name, start="time", startTime="2026-01-02T03:04:" + given)
            config = wait_for(lambda: self.exists(client, name), "the consumer", PATIENCE)["config"]
            self.assertEqual(config["opt_start_time"], "2026-01-02T03:04:" + expected)
            self.assertEqual(run.end(), 0, run.errors())

    def exists(self, client, consumer):
        try:
            return client.consumer("S", consumer)
        except Refusal:
            return None

    def test_events_that_fail_come_again(self):
        client = self.start_stream()
        self.fill(0, 100, 30000)
        run = self.read(more="fail 3", buffer="1MiB")
        self.wait_for_all(range(100), run)
        self.wait_until_acknowledged(client)
        self.assertIn("count: returned", run.errors())
        self.assertEqual(run.end(), 0, run.errors())
        self.assert_nothing_lost(range(100), self.numbers(run), "rounds that fail")  # and are not written yet

    def test_the_order_is_kept_with_one_message_under_way(self):
        client = self.start_stream()
        self.fill(0, 20)
        run = self.read(more="fail 4", maxPending=1)
        self.wait_for_all(range(20), run)
        self.wait_until_acknowledged(client)
        self.assertIn("count: returned", run.errors())
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(self.numbers(run), list(range(20)))

    def test_the_next_message_follows_an_acknowledgement_at_once(self):
        """The only outstanding message is acknowledged while the source waits for the next one."""
        client = self.start_stream()
        self.fill(0, 300)
        run = self.read(maxPending=1)
        wait_for(lambda: run.count() > 0, "the first", PATIENCE)
        begin = time.monotonic()
        self.wait_for_all(range(300), run)
        took = time.monotonic() - begin
        print(f"\n    300 messages, one at a time: {took:.1f} s")
        self.assertLess(took, 10)
        self.wait_until_acknowledged(client)
        self.assertEqual(run.end(), 0, run.errors())

    def test_a_slow_pipeline_keeps_its_messages(self):
        """They are outstanding for several times as long as the server waits."""
        client = self.start_stream()
        self.fill(0, 40, 200000)
        run = self.read(more=1000, ackWait="1s", environment={"CREDIT": "8"})
        self.wait_for_all(range(40), run)
        self.wait_until_acknowledged(client)
        self.assertEqual(self.numbers(run), list(range(40)))
        self.assertNotIn("repeatedDeliveries", run.errors())
        self.assertEqual(run.end(), 0, run.errors())

    def test_a_stop_gives_back_what_is_under_way(self):
        client = self.start_stream()
        self.fill(0, 1000, 20000)
        run = self.read(more=600, ackWait="1h", buffer="1MiB")
        wait_for(lambda: run.count() >= 100, "a round", PATIENCE)
        begin = time.monotonic()
        self.assertEqual(run.end(), 0, run.errors())
        again = self.read(name="again")
        self.wait_for_all(range(1000), run, again)
        print(f"\n    given back and read again: {time.monotonic() - begin:.1f} s, with an ackWait of an hour")
        self.wait_until_acknowledged(client)
        again.end()
        self.assert_nothing_lost(range(1000), self.numbers(run, again), "a stop")

    def test_what_is_read_ahead_is_bounded(self):
        client = self.start_stream()
        self.fill(0, 120, 100000)
        run = self.read(more=800, buffer="1MiB", ackWait="1s", environment={"CREDIT": "12"})
        wait_for(lambda: run.count() >= 20, "two rounds", PATIENCE)
        pending = client.consumer("S", "c")["num_ack_pending"]
        self.assertLess(pending, 40)
        run.end()
        fast = self.read(name="fast", buffer="1MiB")
        self.wait_for_all(range(120), run, fast)
        self.assertEqual(fast.end(), 0, fast.errors())

    def test_a_message_that_is_larger_than_the_buffer_comes(self):
        client = self.start_stream("max_payload: 4MB")
        self.fill(0, 5)
        self.fill(5, 1, 3000000)
        self.fill(6, 5)
        run = self.read(buffer="1MiB")
        self.wait_for_all(range(11), run)
        self.wait_until_acknowledged(client)
        self.assertEqual(self.numbers(run), list(range(11)))
        self.assertEqual(run.end(), 0, run.errors())

    def test_what_is_no_json_is_rejected_in_its_place(self):
        client = self.start_stream()
        for data in [b"1", b"no JSON", b"", b"2"]:
            client.store("s.n", data)
        run = self.read()
        wait_for(lambda: run.count() >= 4, "four", PATIENCE)
        self.wait_until_acknowledged(client)
        run.end()
        self.assertEqual([line.get("reason", line.get("value")) for line in run.lines()], [1, "the message is not a JSON document", "", 2])

    def test_two_members_share_a_consumer(self):
        client = self.start_stream()
        runs = [self.read(name=f"member{n}", batch=50) for n in range(2)]
        self.fill(0, COUNT)
        self.wait_for_all(range(COUNT), *runs)
        self.wait_until_acknowledged(client)
        for run in runs:
            self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(sorted(self.numbers(*runs)), list(range(COUNT)))

    def test_after_the_server_everything_goes_on(self):
        client = self.start_stream()
        self.fill(0, COUNT)
        run = self.read()
        wait_for(lambda: run.count() > 100, "a part", PATIENCE)
        self.server.end(signal.SIGKILL)
        self.start_server()
        client = self.client()
        self.fill(COUNT, COUNT)
        self.wait_for_all(range(2 * COUNT), run)
        self.wait_until_acknowledged(client)
        self.assertEqual(run.end(), 0, run.errors())
        self.assert_nothing_lost(range(2 * COUNT), self.numbers(run), "the server killed")


    def test_a_stop_does_not_wait_for_a_dead_server(self):
        self.start_stream()
        self.fill(0, 1000)
        run = self.read(more=50)
        wait_for(lambda: run.count() >= 1000, "all", PATIENCE)
        self.server.end(signal.SIGKILL)
        wait_for(lambda: "connectionErrors" in run.errors(), "the loss", PATIENCE)
        begin = time.monotonic()
        self.assertEqual(run.end(), 0, run.errors())
        took = time.monotonic() - begin
        print(f"\n    a stop with a dead server: {took:.1f} s")
        self.assertLess(took, 8)

    def change_without_a_connection(self, change):
        """The source's reaction to a change that was made while it had no connection."""
        self.start_stream()
        self.fill(0, 10)
        run = self.read()
        self.wait_for_all(range(10), run)
        self.server.end(signal.SIGKILL)
        wait_for(lambda: "connectionErrors" in run.errors(), "the loss", PATIENCE)
        run.process.send_signal(signal.SIGSTOP)  # it must not be the first to reconnect
        self.start_server()
        change(self.client())
        run.process.send_signal(signal.SIGCONT)
        self.assertEqual(run.process.wait(PATIENCE), 1, run.errors())
        return run.errors()

    def test_a_consumer_that_is_deleted_while_there_is_no_connection(self):
        said = self.change_without_a_connection(lambda client: client.ask("CONSUMER.DELETE.S.c"))
        self.assertIn("the stream 'S' has no consumer 'c'", said)

    def test_a_stream_that_is_made_anew_while_there_is_no_connection(self):
        def change(client):
            created = time.time()  # at the earliest: servers are inexact
            wait_for(lambda: time.time() > created + 1.5, "another time of creation")
            client.ask("STREAM.DELETE.S")
            client.add_stream("S", "s.>")
            client.add_consumer("S", "c")

        self.assertIn("the consumer 'c' was deleted and created again; start again with it", self.change_without_a_connection(change))


class LagTests(NatsTest):
    """Lags and names of events."""

    def light(self, source):
        """A pipeline of which nothing is acknowledged: one of its sinks has nobody to connect to."""
        return f"""name: reader
delivery: light
plugins: {{ nats: PLUGIN }}
sources:
  in: {source}
signals:
  ids: {{ from: in, chain: [ {{ map: "{{'id': meta.id, 'value': event.value}}" }} ] }}
sinks:
  out: {{ from: ids, stdout: {{ encode: json }} }}
  held: {{ from: ids, tcp: {{ address: '127.0.0.1:{free_port()}', encode: json }} }}
"""

    def stream_source(self, more=""):
        return f"{{ natsStream: {{ stream: S, consumer: c, decode: json, servers: {json.dumps(self.servers)}, ackWait: 2s{more} }} }}"

    def test_the_lag_is_what_was_not_taken(self):
        self.start_stream()
        self.fill(0, 40, 100000)
        run = self.read(more=1500, environment={"CREDIT": "12"})
        wait_for(lambda: run.count() == 40, "all", PATIENCE)
        wait_for(lambda: run.gauges() == {("lag", "S/c"): 0}, "no lag", PATIENCE)
        values = [float(value) for value in re.findall(r"^gauge: lag S/c (\S+)$", run.errors(), re.M)]
        # The first may have been reported before anything had arrived.
        self.assertEqual(values, sorted(values, reverse=True))
        # Two batches of 11 messages (1 MiB) at most had been accepted then.
        self.assertGreater(values[0], 40 - 23)

    def test_the_lag_grows_while_the_server_delivers_nothing(self):
        """Because as many messages as the consumer allows are unacknowledged."""
        self.start_stream()
        self.fill(0, 30)
        self.pipeline(self.light(self.stream_source(", maxPending: 10")))
        wait_for(lambda: self.shown_gauges() == {("lag", "S/c"): 20}, lambda: f"a lag of 20, not {self.shown_gauges()}", PATIENCE)
        self.fill(30, 20)
        wait_for(lambda: self.shown_gauges() == {("lag", "S/c"): 40}, lambda: f"a lag of 40, not {self.shown_gauges()}", PATIENCE)

    def test_a_message_that_is_delivered_again_has_the_same_name(self):
        self.start_stream()
        run = self.read(more="fail 2", environment={"NAMES": "1"})
        sent = 0

        def has_come_again():
            nonlocal sent
            self.fill(sent, 5)
            sent += 5
            return any(line["event"]["deliveries"] > 1 for line in run.lines())

        wait_for(has_come_again, "a message that failed", PATIENCE)
        for line in run.lines():
            self.assertEqual(line["name"], f"S/{line['event']['sequence']}")

    def test_a_message_that_comes_again_after_a_kill_has_the_same_id(self):
        self.start_stream()
        self.fill(0, 20)
        seen = []
        for name in ["first", "second"]:
            run = self.pipeline(self.light(self.stream_source()), name)
            wait_for(lambda: run.count() >= 20, "all", PATIENCE)
            run.end(signal.SIGKILL)
            seen.append({line["value"]: line["id"] for line in run.lines()})
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0][7], "in/natsStream:S/8")

    def test_each_read_of_a_change_gives_it_the_same_name(self):
        self.start_server()
        client = self.client()
        client.add_bucket("B", history=5)
        for n in range(10):
            client.store(f"$KV.B.k{n % 3}", str(n).encode())
        runs = [self.read("natsKV", name, environment={"NAMES": "1"}, bucket="B") for name in ["a", "b"]]
        wait_for(lambda: all(run.count() == 3 for run in runs), "the values", PATIENCE)
        self.assertEqual(runs[0].lines(), runs[1].lines())
        self.assertEqual([line["name"] for line in runs[0].lines()], ["B/8", "B/9", "B/10"])

    def test_messages_of_subjects_have_no_name(self):
        self.start_server()
        client = self.client()
        run = self.read("nats", environment={"NAMES": "1"}, subjects=["s.>"])

        def has_come():
            client.publish("s.n", b"1")
            return run.count() > 0

        wait_for(has_come, "a message", PATIENCE)
        self.assertIsNone(run.lines()[0]["name"])


class FaultTests(NatsTest):
    """Missing, wrong or deleted objects."""

    def fails(self, run, expected):
        self.assertEqual(run.process.wait(PATIENCE), 1, run.errors())
        self.assertIn(expected, run.errors())
        self.assertNotIn(PASSWORD, run.errors())

    def test_a_server_that_is_not_there_is_reported_once(self):
        self.servers = [f"127.0.0.1:{free_port()}"]
        for component, more in [("nats", {"subjects": ["a"]}), ("natsStream", {}), ("natsKV", {"bucket": "b"})]:
            with self.subTest(component=component):
                run = self.read(component, component, user="me", password=PASSWORD, **more)
                wait_for(lambda: run.errors().count("connectionErrors") > 2, "attempts", PATIENCE)
                self.assertEqual(run.end(), 0, run.errors())
                self.assertEqual(run.errors().count(f"warning: {self.servers[0]}: the server cannot be reached; trying again"), 1, run.errors())
                self.assertNotIn(PASSWORD, run.errors())

    def test_wrong_credentials_end_the_source_with_the_reason(self):
        self.start_server(f"authorization {{ user: me, password: \"{PASSWORD}\" }}")
        self.client(user="me", **{"pass": PASSWORD}).close()
        for component, more in [("nats", {"subjects": ["a"]}), ("natsStream", {}), ("natsKV", {"bucket": "b"})]:
            with self.subTest(component=component):
                self.fails(self.read(component, component, user="me", password="wrong", **more), "the server refuses the login")
        sink = self.write([1], "nats", subject="a", user="me", password="wrong")
        self.assertEqual(sink.process.wait(PATIENCE), 1, sink.errors())
        self.assertIn("the server refuses the login", sink.errors())
        self.written([1], "nats", "right", subject="a", user="me", password=PASSWORD)

    def test_a_token(self):
        self.start_server(f"authorization {{ token: \"{PASSWORD}\" }}")
        self.client(auth_token=PASSWORD).close()
        self.written([1], "nats", "right", subject="a", token=PASSWORD)
        sink = self.write([1], "nats", "wrong", subject="a", token="wrong")
        self.assertEqual(sink.process.wait(PATIENCE), 1, sink.errors())

    def test_a_missing_stream_and_a_missing_consumer(self):
        self.start_stream()
        self.fails(self.read(name="a", stream="T"), "there is no stream 'T'; create it, or correct 'stream'")
        self.fails(self.read(name="b", create=False), "the stream 'S' has no consumer 'c'; create it, or set 'create: true'")
        self.fails(self.read("natsKV", "c", bucket="b"), "there is no bucket 'b'; create it, or correct 'bucket'")

    def test_a_server_without_jetstream(self):
        self.start_server(jetstream=False)
        self.client().close()
        run = self.read()
        wait_for(lambda: "JetStream" in run.errors(), "the report", PATIENCE)
        run.end()

    def test_consumers_that_do_not_fit(self):
        client = self.start_stream()
        client.add_consumer("S", "push", deliver_subject="x")
        client.add_consumer("S", "all", ack_policy="all")
        client.add_consumer("S", "other", filter_subject="s.a")
        self.fails(self.read(name="a", consumer="push"), "'push' is a push consumer; name a pull consumer")
        self.fails(self.read(name="b", consumer="all"), "does not have explicit acknowledgements")
        self.fails(self.read(name="c", consumer="other", filter="s.b"), "has another filter than 'filter'")
        if client.info["version"].startswith("2.9."):  # later ones accept a filter that matches nothing
            self.fails(self.read(name="d", consumer="new", filter="t.>"), "filter")

    def test_a_consumer_that_is_deleted_while_it_is_read(self):
        client = self.start_stream()
        self.fill(0, 10)
        run = self.read()
        self.wait_for_all(range(10), run)
        client.ask("CONSUMER.DELETE.S.c")
        self.fails(run, "the stream 'S' has no consumer 'c'")

    def test_a_stream_that_is_deleted_while_it_is_read(self):
        client = self.start_stream()
        self.fill(0, 10)
        run = self.read()
        self.wait_for_all(range(10), run)
        client.ask("STREAM.DELETE.S")
        self.fails(run, "there is no stream 'S'")

    def test_a_subscription_that_is_not_permitted(self):
        self.start_server("authorization { users: [ { user: me, password: x, permissions: { subscribe: [\"b.>\", \"_INBOX.>\"] } } ] }")
        self.client(user="me", **{"pass": "x"}).close()
        self.fails(self.read("nats", subjects=["a.>"], user="me", password="x"), "Permissions Violation for Subscription to \"a.>\"")

    def test_requests_to_jetstream_that_are_not_permitted(self):
        self.start_server("authorization { users: [ { user: me, password: x, permissions: { publish: [\"s.>\"] } } ] }")
        self.client(user="me", **{"pass": "x"}).close()
        self.fails(self.read(user="me", password="x"), "Permissions Violation for Publish to \"$JS.API.CONSUMER.INFO.S.c\"")

    def test_connections_that_are_lost_at_once(self):
        client = self.start_stream()
        client.add_bucket("b")
        for component, more in [("nats", {"subjects": ["a"]}), ("natsStream", {}), ("natsKV", {"bucket": "b"})]:
            with self.subTest(component=component):
                proxy = Proxy(self.port, 0.3)
                self.addCleanup(proxy.close)
                run = self.read(component, component, servers=[f"127.0.0.1:{proxy.port}"], **more)
                self.assert_growing_pauses(lambda: proxy.opened, run, ": connected")
                self.stops_soon(run)

    def stops_soon(self, run):
        begin = time.monotonic()
        self.assertEqual(run.end(), 0, run.errors())
        took = time.monotonic() - begin
        self.assertLess(took, 8, run.errors())

    def try_hostile(self, behaviour):
        self.hostile(behaviour)
        for component, more in [("nats", {"subjects": ["a"]}), ("natsStream", {}), ("natsKV", {"bucket": "b"})]:
            with self.subTest(component=component):
                run = self.read(component, component, **more)
                wait_for(lambda: "connectionErrors" in run.errors(), "an attempt", PATIENCE)
                self.stops_soon(run)

    def test_a_server_that_says_nothing(self):
        self.try_hostile(lambda connection: connection.recv(1))

    def test_a_server_that_sends_garbage(self):
        def behave(connection):
            while True:
                connection.sendall(random.randbytes(1000))

        self.try_hostile(behave)

    def test_a_server_that_greets_and_then_sends_garbage(self):
        def behave(connection):
            if greet(connection):
                connection.sendall(b"HMSG a 1 999999999 99\r\n" + random.randbytes(100000))

        self.try_hostile(behave)

    def test_a_server_that_greets_and_then_says_nothing(self):
        self.try_hostile(fall_silent)


class SinkTests(NatsTest):
    """The sinks `nats` and `natsStream`."""

    def stored(self, client):
        return [(subject, data.decode()) for subject, _, data in client.messages("S")]

    def test_core_messages_with_headers(self):
        self.start_server()
        client = self.client()
        client.subscribe("a.>")
        events = [{"to": "x", "v": "text", "h": {"Source": "rxd", "Many": ["1", "2"]}}, {"to": "y", "v": {"n": 1}, "h": None},
                  {"to": "bad subject", "v": "", "h": None}, {"to": "z", "v": "", "h": {"a b": "c"}}, {"to": "z", "v": "", "h": {"a": "b\nc"}},
                  {"to": "z", "v": "", "h": 5}, {"to": "*", "v": "", "h": None}, {"to": "end", "v": "", "h": None}]
        sink = self.written(events, "nats", subject="a.{{ event.to }}", value="{{ event.v }}", headers="event.h")
        self.assertIn("delivered 3, refused 5", sink.errors())
        came = [client.next() for _ in range(3)]
        self.assertEqual([(subject, data) for subject, _, data in came], [("a.x", b"text"), ("a.y", b'{"n": 1}'), ("a.end", b"")])
        self.assertEqual(sorted(came[0][1].split("\r\n")[1:4]), ["Many: 1", "Many: 2", "Source: rxd"])

    def test_only_the_message_that_is_too_large_is_refused(self):
        client = self.start_stream("max_payload: 2000")
        for component in ["nats", "natsStream"]:
            sink = self.written(["x" * (5000 if n == 3 else 10) for n in range(6)], component, component, subject="s.n")
            self.assertIn("the message has more bytes, with its headers, than the server takes: 2000", sink.errors())
            self.assertIn("delivered 5, refused 1", sink.errors())
        self.assertEqual(client.state("S")["messages"], 10)

    def test_what_the_stream_refuses_is_refused_alone(self):
        client = self.start_stream(max_msg_size=100)
        sink = self.written(["x" * (500 if n == 3 else 10) for n in range(6)])
        self.assertIn("the stream 'S' refuses the message: message size exceeds maximum allowed", sink.errors())
        self.assertIn("delivered 5, refused 1", sink.errors())
        self.assertEqual(client.state("S")["messages"], 5)

    def test_a_subject_of_no_stream_or_of_another_one(self):
        client = self.start_stream()
        client.add_stream("T", "t.>")
        sink = self.written(["s.a", "u.b", "t.c", "s.d"], subject="{{ event }}")
        self.assertIn("the stream 'S' has no subject that matches 'u.b'", sink.errors())
        self.assertIn("the stream 'S' refuses the message: expected stream does not match", sink.errors())
        self.assertIn("delivered 2, refused 2", sink.errors())
        self.assertEqual([subject for subject, _ in self.stored(client)], ["s.a", "s.d"])
        self.assertEqual(client.state("T")["messages"], 0)

    def test_a_stream_that_is_made_later(self):
        self.start_server()
        client = self.client()
        sink = self.write([1, 2])
        wait_for(lambda: "there is no stream 'S'; create it, or correct 'stream'; trying again" in sink.errors(), "the report", PATIENCE)
        client.add_stream("S", "s.>")
        self.assertEqual(sink.process.wait(PATIENCE), 0, sink.errors())
        self.assertIn("delivered 2, refused 0", sink.errors())

    def test_a_full_stream_is_waited_for(self):
        client = self.start_stream(max_msgs=3, discard="new")
        sink = self.write(list(range(5)))
        wait_for(lambda: "the stream 'S' takes no messages: maximum messages exceeded" in sink.errors(), "the report", PATIENCE)
        client.ask("STREAM.PURGE.S")
        self.assertEqual(sink.process.wait(PATIENCE), 0, sink.errors())
        self.assertIn("delivered 5, refused 0", sink.errors())

    def test_the_server_drops_repetitions_by_id(self):
        client = self.start_stream()
        for name in ["first", "second"]:
            self.written([{"id": n} for n in range(100)], name=name, id="order-{{ event.id }}")
        self.assertEqual(client.state("S")["messages"], 100)

    def test_only_what_is_not_permitted_is_refused(self):
        self.start_server("""authorization { users: [ { user: admin, password: x },
          { user: me, password: x, permissions: { publish: { deny: ["s.secret.>"] } } } ] }""")
        client = self.client(user="admin", **{"pass": "x"})
        client.add_stream("S", "s.>")
        subjects = ["s.a", "s.secret.1", "s.b", "s.secret.2", "s.secret.1", "s.c"]
        for component in ["nats", "natsStream"]:
            client.ask("STREAM.PURGE.S")
            sink = self.written(subjects, component, component, subject="{{ event }}", user="me", password="x", timeout="5s")
            self.assertIn("the server does not permit this user to publish to 's.secret.2'", sink.errors())
            self.assertIn("delivered 3, refused 3", sink.errors())
            self.assertEqual({subject for subject, _ in self.stored(client)}, {"s.a", "s.b", "s.c"})

    def test_the_permissions_of_the_page_suffice(self):
        with open(os.path.join(ROOT, "README.md")) as file:
            rows = [line.split("|") for line in file if "`$JS.API." in line and line.count("|") == 4]
        named = sorted(set(re.findall(r"`([^`]+)`", "".join(row[2] for row in rows))))
        names = {"S": "S", "C": "c", "B": "b", "KV_B": "KV_b"}
        publish = [".".join(names.get(part, part) for part in subject.split(".")) for subject in named if subject.startswith("$")] + ["s.>"]
        publish.append("$JS.API.STREAM.INFO.KV_b")
        self.start_server(f"""authorization {{ users: [ {{ user: admin, password: x }},
          {{ user: me, password: x, permissions: {{ publish: {json.dumps(publish)}, subscribe: ["_INBOX.>"] }} }} ] }}""")
        client = self.client(user="admin", **{"pass": "x"})
        client.add_stream("S", "s.>")
        client.add_bucket("b")
        login = {"user": "me", "password": "x"}
        self.written([1, 2], **login)
        self.written([1, 2], "natsKV", "keys", bucket="b", key="k{{ event }}", **login)
        for component, more in [("natsStream", {}), ("natsKV", {"bucket": "b"})]:
            run = self.read(component, component, **login, **more)
            self.wait_for_all([1, 2], run)
            self.assertEqual(run.end(), 0, run.errors())
        self.assertNotIn("Violation", self.server.errors())

    def test_answers_that_are_not_permitted_are_explained(self):
        self.start_server("""authorization { users: [ { user: admin, password: x },
          { user: me, password: x, permissions: { subscribe: ["own.>"] } } ] }""")
        self.client(user="admin", **{"pass": "x"}).add_stream("S", "s.>")
        sink = self.write([1], user="me", password="x", timeout="5s")
        wait_for(lambda: "Permissions Violation for Subscription to" in sink.errors(), "the report", PATIENCE)
        sink.end(signal.SIGKILL)
        self.written([1], name="own", user="me", password="x", inboxPrefix="own")

    def test_many_events_are_stored_in_order(self):
        client = self.start_stream()
        self.written(list(range(4 * COUNT)))
        self.assertEqual(client.state("S")["messages"], 4 * COUNT)
        run = self.read()
        self.wait_for_all(range(4 * COUNT), run)
        run.end()
        self.assertEqual(self.numbers(run), list(range(4 * COUNT)))

    def test_nothing_is_lost_while_the_server_is_killed(self):
        self.start_stream()
        given = {"servers": self.servers, "stream": "S", "subject": "s.n", "id": "{{ event }}", "timeout": "5s"}
        sink = self.start([*RUNNER, self.plugin, "sink", "natsStream", json.dumps(given)], "sink", stdin=subprocess.PIPE, environment=SANITIZERS)
        count, sent = 4 * COUNT, 0

        def send():
            nonlocal sent
            with sink.process.stdin as pipe:
                for sent in range(count):
                    pipe.write(b"%d\n" % sent)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        for turn in range(3):
            wait_for(lambda: sent > (1 + turn) * COUNT, "some messages", PATIENCE)
            self.server.end(signal.SIGKILL)
            self.start_server()
            self.client()
        sender.join(PATIENCE)
        self.assertEqual(sink.process.wait(PATIENCE), 0, sink.errors())
        run = self.read(name="back")
        self.wait_for_all(range(count), run)
        run.end()
        self.assert_nothing_lost(range(count), self.numbers(run), "sink, the server killed three times")
        numbers = self.numbers(run)
        self.assertEqual(numbers, sorted(numbers))

    def test_a_stop_does_not_wait_until_each_message_was_sent_alone(self):
        """After a violation each message is sent over a connection of its own, here with a slow server."""
        singly = threading.Event()
        opened = []

        def behave(connection):
            opened.append(connection)
            greet(connection)
            if len(opened) > 2:
                singly.set()
            while data := connection.recv(1 << 20):
                if b"PUB a" in data:
                    connection.sendall(b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n")
                if b"PING" in data:
                    time.sleep(0.05)
                    connection.sendall(b"PONG\r\n")

        self.hostile(behave)
        sink = self.write(list(range(300)), "nats", subject="a")
        wait_for(singly.is_set, "a message alone", PATIENCE)
        begin = time.monotonic()
        sink.end()
        took = time.monotonic() - begin
        print(f"\n    a stop while messages are sent alone: {took:.1f} s", sink.errors()[-1500:])
        self.assertLess(took, 5)

    def test_a_sink_survives_hostile_servers(self):
        for data in [b"", b"garbage\r\n" * 100]:
            listener = socket.create_server(("127.0.0.1", 0))
            self.servers = [f"127.0.0.1:{listener.getsockname()[1]}"]
            sink = self.write([1], name=f"sink{len(data)}", connectTimeout="500ms")
            connection, _ = listener.accept()
            connection.sendall(data)
            wait_for(lambda: "trying again" in sink.errors(), "the report", PATIENCE)
            sink.end(signal.SIGKILL)
            connection.close()
            listener.close()


class PartlyRefusedTests(NatsTest):
    def test_what_other_subjects_took_is_not_sent_again(self):
        """One subject of three takes nothing for several attempts."""
        client = self.start_stream(max_msgs_per_subject=2000, discard="new", discard_new_per_subject=True)
        self.fill(1000, 2000, subject="s.b")
        events = [{"s": "bac"[n % 3], "n": n} for n in range(600)]
        run = self.write(events, subject="s.{{ event.s }}", value="{{ event.n }}")
        wait_for(lambda: "trying again" in run.errors(), "the full subject", PATIENCE)
        time.sleep(4)  # pauses of 0.5, 1 and 2 s
        self.assertIsNone(run.process.poll(), run.errors())
        client.ask("STREAM.PURGE.S", filter="s.b")
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        stored = [(subject, int(data)) for subject, _, data in client.messages("S")]
        self.assert_nothing_lost(range(600), [n for _, n in stored], "one subject of three full")
        self.assertEqual(len(stored), 600)
        for subject in ["s.a", "s.b", "s.c"]:
            numbers = [n for of, n in stored if of == subject]
            self.assertEqual(numbers, sorted(numbers))


    def test_later_messages_of_the_subject_follow_one_that_is_sent_again(self):
        """The stream refuses the first message once, and stores the others; without the repetition the first would be the last of x."""
        sent = []

        def store(connection):
            greet(connection)
            file = connection.makefile("rb")
            attempt, number = [], None
            sent.append(attempt)
            while words := file.readline().split():
                if words[0] == b"PING":
                    connection.sendall(b"PONG\r\n")
                elif words[0] == b"SUB":
                    number = words[-1].decode()
                elif words[0] == b"HPUB":
                    subject, reply, head = words[1].decode(), words[2].decode(), int(words[3])
                    data = file.read(int(words[4]) + 2)[head:-2].decode()
                    attempt.append(subject + data)
                    answer = {"stream": "S", "seq": 1}
                    if data == "1" and len(sent) == 1:
                        answer = {"error": {"code": 503, "err_code": 10077, "description": "maximum messages per subject exceeded"}}
                    text = json.dumps(answer)
                    connection.sendall(f"MSG {reply} {number} {len(text)}\r\n{text}\r\n".encode())

        self.hostile(store)
        run = self.written([{"s": s, "n": n} for s, n in [("a", 0), ("x", 1), ("y", 2), ("x", 3), ("y", 4)]],
                           subject="{{ event.s }}", value="{{ event.n }}")
        self.assertEqual(sent, [["a0", "x1", "y2", "x3", "y4"], ["x1", "x3"]])
        self.assertIn("delivered 5, refused 0", run.errors())


class KeyTests(NatsTest):
    """`natsKV`."""

    def start_bucket(self, history=1):
        self.start_server()
        client = self.client()
        client.add_bucket("b", history)
        return client

    def changes(self, run):
        return [(event["key"], event["operation"], event["value"]) for event in run.lines()]

    def put(self, client, key, value):
        client.store(f"$KV.b.{key}", value)

    def delete(self, client, key, operation="DEL"):
        client.store(f"$KV.b.{key}", b"", [("KV-Operation", operation)] + ([("Nats-Rollup", "sub")] if operation == "PURGE" else []))

    def test_current_values_come_first_then_changes(self):
        client = self.start_bucket(5)
        for key, value in [("a", b"1"), ("b.c", b"2"), ("a", b"3"), ("gone", b"4")]:
            self.put(client, key, value)
        self.delete(client, "gone")
        run = self.read("natsKV", bucket="b")
        wait_for(lambda: run.count() >= 3, "the values", PATIENCE)
        self.assertEqual(self.changes(run), [("b.c", "put", 2), ("a", "put", 3), ("gone", "delete", None)])
        self.put(client, "a", b"5")
        self.delete(client, "b.c", "PURGE")
        self.put(client, "a", b"no JSON")
        self.put(client, "a", b"6")
        wait_for(lambda: run.count() >= 7, "the changes", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        lines = run.lines()
        self.assertEqual([(line.get("key"), line.get("operation"), line.get("value"), line.get("reason")) for line in lines[3:]],
                         [("a", "put", 5, None), ("b.c", "purge", None, None), (None, None, None, "the value is not a JSON document"),
                          ("a", "put", 6, None)])
        self.assertEqual([lines[0]["revision"], lines[-1]["revision"], lines[0]["bucket"]], [2, 9, "b"])

    def test_a_table_has_all_values_before_the_first_event_and_follows_the_changes(self):
        client = self.start_bucket()
        for number in range(700):
            self.put(client, f"k{number}", b"%d" % number)
        self.delete(client, "k3")
        text = f"""
            plugins: ['PLUGIN']
            tables:
              rooms:
                natsKV: {{ servers: {json.dumps(self.servers)}, bucket: BUCKET, decode: json }}
                key: event.key
                row: event.value
                delete: event.operation != 'put'
            sources: {{ ticks: {{ interval: 10ms }} }}
            sinks:
              out: {{ from: ticks, chain: [ {{ map: "['k0', 'k3', 'k699', 'k700'].map(key, rooms[key].orValue(-1))" }} ], stdout: {{ encode: json }} }}
            """.replace("\n            ", "\n")
        # The second start reads all of it again, although the source has positions; an empty bucket does not block.
        client.add_bucket("empty")
        for name, bucket, expected in [("one", "b", [0, -1, 699, -1]), ("two", "b", [7, -1, 699, -1]), ("three", "empty", [-1] * 4)]:
            run = self.pipeline("name: rooms\n" + text.replace("BUCKET", bucket), name, state="one")
            wait_for(lambda: run.count() > 0 or run.process.poll() is not None, "the lookups", PATIENCE)
            self.assertIsNone(run.process.poll(), run.errors())
            self.assertEqual(run.lines()[0], expected)
            if name == "one":
                self.put(client, "k0", b"7")
                wait_for(lambda: run.lines()[-1][0] == 7, "the change", PATIENCE)
            self.assertEqual(run.end(), 0, run.errors())

    def test_keys_and_changes_only(self):
        client = self.start_bucket()
        self.put(client, "x.1", b"1")
        some = self.read("natsKV", "some", bucket="b", keys="x.>")
        changes = self.read("natsKV", "changes", bucket="b", start="changes")

        def has_come():
            self.put(client, "y.1", b"2")
            return changes.count() > 0

        wait_for(has_come, "a change", PATIENCE)
        self.put(client, "x.2", b"3")
        wait_for(lambda: some.count() >= 2 and changes.lines()[-1]["key"] == "x.2", "the last one", PATIENCE)
        self.assertEqual(self.changes(some), [("x.1", "put", 1), ("x.2", "put", 3)])
        self.assertNotIn("x.1", [event["key"] for event in changes.lines()])
        for run in [some, changes]:
            self.assertEqual(run.end(), 0, run.errors())

    def test_a_purge_of_a_key_skips_no_change_of_another(self):
        client = self.start_bucket(64)
        self.put(client, "k0", b"-1")
        run = self.read("natsKV", bucket="b")
        wait_for(lambda: run.count() > 0, "the first value", PATIENCE)
        for number in range(200):
            self.put(client, f"k{number % 7}", str(number).encode())
            self.delete(client, "other", "PURGE")

        def values():
            return [event["value"] for event in run.lines() if event["operation"] == "put"]

        wait_for(lambda: len(values()) >= 201, "all changes", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(values(), list(range(-1, 200)))

    def test_no_change_is_missed_while_the_server_is_killed(self):
        client = self.start_bucket(64)
        self.put(client, "k0", b"-1")
        run = self.read("natsKV", bucket="b")
        wait_for(lambda: run.count() > 0, "the first value", PATIENCE)
        for number in range(300):
            self.put(client, f"k{number % 7}", str(number).encode())
            if number % 100 == 50:
                self.server.end(signal.SIGKILL)
                self.start_server()
                client = self.client()
        wait_for(lambda: run.count() >= 301, "all changes", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(self.numbers(run), list(range(-1, 300)))

    def test_a_slow_source_misses_nothing(self):
        client = self.start_bucket(64)
        for number in range(60):
            self.put(client, f"k{number % 7}", str(number).encode().ljust(100000))
        run = self.read("natsKV", bucket="b", buffer="1MiB", more=700, environment={"CREDIT": "12"})
        wait_for(lambda: run.count() >= 7, "the values", PATIENCE)
        self.assertEqual(self.numbers(run), list(range(53, 60)))
        self.assertEqual(run.end(), 0, run.errors())

    def test_puts_deletions_and_keys_that_are_none(self):
        client = self.start_bucket(5)
        events = [{"k": "a", "v": "1", "gone": False}, {"k": "b.c", "v": "2", "gone": None}, {"k": "a", "v": "", "gone": True},
                  {"k": "no key", "v": "", "gone": False}, {"k": ".a", "v": "", "gone": False}, {"k": "x", "v": "", "gone": 5},
                  {"k": "a", "v": "3", "gone": False}]
        parameters = {"bucket": "b", "key": "{{ event.k }}", "value": "{{ event.v }}", "retracted": "event.gone"}
        sink = self.written(events, "natsKV", **parameters)
        self.assertIn("delivered 4, refused 3", sink.errors())
        run = self.read("natsKV", bucket="b")
        wait_for(lambda: run.count() >= 2, "the values", PATIENCE)
        self.assertEqual(self.changes(run), [("b.c", "put", 2), ("a", "put", 3)])
        self.written([{"k": "a", "v": "", "gone": True}], "natsKV", "purge", purge=True, **parameters)
        wait_for(lambda: run.count() >= 3, "the deletion", PATIENCE)
        self.assertEqual(self.changes(run)[2:], [("a", "purge", None)])
        self.assertEqual([subject for subject, _, _ in client.messages("KV_b")], ["$KV.b.b.c", "$KV.b.a"])
        run.end()

    def test_a_bucket_that_is_made_later(self):
        self.start_server()
        client = self.client()
        sink = self.write([1], "natsKV", bucket="b", key="a")
        wait_for(lambda: "there is no bucket 'b'; create it, or correct 'bucket'" in sink.errors(), "the report", PATIENCE)
        client.add_bucket("b")
        self.assertEqual(sink.process.wait(PATIENCE), 0, sink.errors())


class ConnectionTests(NatsTest):
    """TLS, and several servers."""

    def make_certificates(self):
        """A CA, and certificates of the server (for localhost) and of a client."""
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.directory)

        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA", "-days", "2")
        for name, subject in [("server", "/CN=localhost"), ("client", "/CN=me")]:
            with open(self.path(name + ".ext"), "w") as file:
                file.write("subjectAltName=DNS:localhost\n")
            openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                    "-extfile", f"{name}.ext", "-out", f"{name}.pem")

    def test_tls(self):
        self.make_certificates()
        self.start_server(f"""tls {{ cert_file: "{self.path('server.pem')}", key_file: "{self.path('server.key')}",
          ca_file: "{self.path('ca.pem')}", verify: true }}""")
        wait_for(lambda: "Server is ready" in self.server.errors(), "the server", PATIENCE)
        own = {"certificate": self.path("client.pem"), "certificateKey": self.path("client.key")}
        here = f"localhost:{self.port}"
        for name, parameters, expected in [
                ("right", {"tls": True, "ca": self.path("ca.pem"), **own, "servers": [here]}, None),
                ("scheme", {"ca": self.path("ca.pem"), **own, "servers": [f"tls://{here}"]}, None),
                ("unverified", {"tls": True, "dangerouslySkipVerification": True, **own, "servers": self.servers}, None),
                ("without", {"servers": [here]}, "the server requires TLS; set 'tls: true'"),
                ("unknown CA", {"tls": True, **own, "servers": [here]}, "TLS cannot be set up; check the server's certificate, its name and 'ca'"),
                ("another name", {"tls": True, "ca": self.path("ca.pem"), **own, "servers": self.servers}, "TLS cannot be set up"),
                ("another key", {"tls": True, "certificate": self.path("client.pem"), "certificateKey": self.path("ca.key")},
                 "refused at 'certificate'")]:
            with self.subTest(name=name):
                sink = self.write([1], "nats", name, subject="a", **parameters)
                status = sink.process.wait(PATIENCE)
                if expected is None:
                    self.assertEqual(status, 0, sink.errors())
                else:
                    self.assertNotEqual(status, 0)
                    self.assertIn(expected, sink.errors())

    def test_a_server_without_tls(self):
        self.start_server()
        self.client().close()
        sink = self.write([1], "nats", subject="a", tls=True)
        self.assertEqual(sink.process.wait(PATIENCE), 1, sink.errors())
        self.assertIn("the server has no TLS; remove 'tls', or configure the server", sink.errors())

    def test_a_credentials_file(self):
        accepted = credentials(self.directory, self.path("right.creds"))
        credentials(self.directory, self.path("other.creds"))
        with open(self.path("none.creds"), "w") as file:
            file.write("no credentials")
        self.start_server(accepted, jetstream=False)
        wait_for(lambda: "Server is ready" in self.server.errors(), "the server", PATIENCE)
        self.written([1], "nats", "right", subject="a", credentials=self.path("right.creds"))
        sink = self.write([1], "nats", "other", subject="a", credentials=self.path("other.creds"))
        self.assertEqual(sink.process.wait(PATIENCE), 1, sink.errors())
        self.assertIn("the server refuses the login", sink.errors())
        self.assertEqual(self.refused("sink", "nats", {"subject": "a", "credentials": self.path("none.creds")}),
                         "'credentials': the file must have a 'NATS USER JWT' and a 'USER NKEY SEED', each with its lines")

    def test_the_next_server_is_tried(self):
        client = self.start_stream()
        self.fill(0, 100)
        servers = [f"127.0.0.1:{free_port()}", *self.servers]
        run = self.read(servers=servers)
        self.wait_for_all(range(100), run)
        self.wait_until_acknowledged(client)
        self.assertEqual(run.end(), 0, run.errors())
        self.written([1], servers=servers)

    def test_servers_that_a_cluster_has_named(self):
        routes = [free_port() for _ in range(2)]
        ports = [free_port() for _ in range(2)]
        servers = []
        for n in range(2):
            config = self.path(f"cluster{n}.conf")
            with open(config, "w") as file:
                file.write(f"""host: 127.0.0.1\nport: {ports[n]}\nserver_name: n{n}
                  cluster {{ name: c, listen: "127.0.0.1:{routes[n]}", routes: [ "nats://127.0.0.1:{routes[1 - n]}" ] }}\n""")
            servers.append(self.start([SERVER, "-c", config], f"server{n}"))
        self.port = ports[0]
        # Both know each other when one advertises the other to a client.
        wait_for(lambda: f"127.0.0.1:{ports[1]}" in self.client().info.get("connect_urls", []), "the cluster", PATIENCE)
        self.servers = [f"127.0.0.1:{ports[0]}"]
        run = self.read("nats", subjects=["a"])
        client = self.client()

        def came(more_than):
            client.publish("a", b"1")
            return run.count() > more_than

        wait_for(lambda: came(0), "a message", PATIENCE)
        servers[0].end(signal.SIGKILL)
        self.port = ports[1]
        count, client = run.count(), self.client()
        wait_for(lambda: came(count), "a message by the other server", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())


class PipelineTests(NatsTest):
    """Whole pipelines in rxd."""

    def reader(self, name, state=None, delivery="durable", options=()):
        """`state`: the name of an earlier reader that is restarted."""
        text = f"""name: reader
delivery: {delivery}
plugins: {{ nats: PLUGIN }}
sources:
  in: {{ natsStream: {{ stream: S, consumer: c, decode: json, ackWait: 1s, servers: {json.dumps(self.servers)} }} }}
sinks:
  out: {{ from: in, stdout: {{ encode: json }} }}
"""
        return self.pipeline(text, name, options, state)

    def test_everything_comes_once_in_order_and_a_stop_acknowledges(self):
        client = self.start_stream()
        self.fill(0, COUNT)
        first = self.reader("first")
        self.wait_for_all(range(COUNT), first)
        self.assertEqual(first.end(), 0, first.errors())
        self.assertEqual(client.consumer("S", "c")["num_ack_pending"], 0)
        self.fill(COUNT, 10)
        second = self.reader("second", "first")
        self.wait_for_all(range(COUNT + 10), first, second)
        second.end()
        self.assertEqual(self.numbers(first, second), list(range(COUNT + 10)))

    def test_light_delivery_acknowledges_what_is_delivered(self):
        client = self.start_stream()
        self.fill(0, COUNT)
        run = self.reader("light", delivery="light")
        self.wait_for_all(range(COUNT), run)
        self.wait_until_acknowledged(client)
        self.assertEqual(run.end(), 0, run.errors())

    def test_a_consumer_that_is_gone_fails_the_source_and_retry_makes_it_again(self):
        client = self.start_stream()
        self.fill(0, 10)
        text = f"""plugins: {{ nats: PLUGIN }}
sources:
  in: {{ natsStream: {{ stream: S, consumer: c, decode: json, servers: {json.dumps(self.servers)} }} }}
signals:
  again: {{ from: in, chain: [ retry: {{ delay: 200ms }} ] }}
sinks:
  out: {{ from: again, stdout: {{ encode: json }} }}
"""
        run = self.pipeline(text, "gone")
        self.wait_for_all(range(10), run)
        client.ask("CONSUMER.DELETE.S.c")
        self.fill(10, 10)
        self.wait_for_all(range(20), run)
        self.assertEqual(run.end(), 0, run.errors())

    def test_wrong_credentials_are_told_with_their_place(self):
        self.start_server(f"authorization {{ user: me, password: \"{PASSWORD}\" }}")
        self.client(user="me", **{"pass": PASSWORD}).close()
        text = f"""plugins: {{ nats: PLUGIN }}
sources: {{ in: {{ nats: {{ subjects: a, user: me, password: wrong, servers: {json.dumps(self.servers)} }} }} }}
sinks: {{ out: {{ from: in, stdout: {{ encode: json }} }} }}
"""
        run = self.pipeline(text, "wrong")
        run.process.wait(PATIENCE)
        self.assertNotEqual(run.process.returncode, 0)
        self.assertIn("the server refuses the login", run.errors())

    def test_a_sink_whose_server_falls_silent_does_not_hold_up_a_stop(self):
        lines = self.path("lines")
        with open(lines, "w") as file:
            file.writelines(f"{n}\n" for n in range(100))
        for name, sink in [("core", "nats: { subject: a, "), ("stream", "natsStream: { stream: S, subject: s.n, ")]:
            with self.subTest(name=name):
                heard = threading.Event()

                def behave(connection):
                    greet(connection)
                    while connection.recv(4096):
                        heard.set()

                self.hostile(behave)
                run = self.pipeline(f"""plugins: {{ nats: PLUGIN }}
sources: {{ in: {{ file: {{ path: {lines}, follow: true }} }} }}
sinks: {{ out: {{ from: in, {sink} servers: {json.dumps(self.servers)} }} }} }}
""", name)
                wait_for(heard.is_set, "messages", PATIENCE)
                begin = time.monotonic()
                run.end()
                took = time.monotonic() - begin
                print(f"\n    a stop with a silent server, {name}: {took:.1f} s")
                self.assertLess(took, 12, run.errors())

    def test_a_bucket_is_watched_on_after_a_kill(self):
        self.start_server()
        client = self.client()
        client.add_bucket("b", 64)
        text = f"""name: watcher
plugins: {{ nats: PLUGIN }}
sources: {{ in: {{ natsKV: {{ bucket: b, decode: json, servers: {json.dumps(self.servers)} }} }} }}
sinks: {{ out: {{ from: in, stdout: {{ encode: json }} }} }}
"""
        client.store("$KV.b.k", b"0")
        runs = [self.pipeline(text, "first")]
        self.wait_for_all([0], *runs)
        # Without a position, the next run would begin with the current values.
        self.assertEqual(runs[0].end(), 0, runs[0].errors())
        for turn in range(3):
            client.store("$KV.b.k", str(100 * turn).encode())
            runs.append(self.pipeline(text, f"run{turn}", state="first"))
            self.wait_for_all(range(0, 100 * turn + 1, 100), *runs)
            for number in range(100 * turn + 1, 100 * turn + 30):
                client.store(f"$KV.b.k{number % 3}", str(number).encode())
            runs[-1].end(signal.SIGKILL)
        runs.append(self.pipeline(text, "last", state="first"))
        expected = [100 * turn + number for turn in range(3) for number in range(30)]
        self.wait_for_all(expected, *runs)
        runs[-1].end()
        self.assert_nothing_lost(expected, self.numbers(*runs), "a bucket, three kills")

    def test_a_bucket_follows_results_that_change(self):
        self.start_server()
        client = self.client()
        client.add_bucket("best", 1)
        lines = self.path("orders")
        with open(lines, "w") as file:
            file.writelines(json.dumps({"id": n, "total": n * 7 % 10}) + "\n" for n in range(10))
        text = f"""plugins: {{ nats: PLUGIN }}
sources: {{ in: {{ file: {{ path: {lines}, decode: ndjson }} }} }}
sinks:
  out:
    from: in
    chain: [ topN: {{ by: event.total, count: 3 }} ]
    natsKV: {{ bucket: best, key: 'o.{{{{ event.id }}}}', retracted: meta.retracts, servers: {json.dumps(self.servers)} }}
"""
        run = self.pipeline(text, "best")
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        last = {subject: (head, data) for subject, head, data in client.messages("KV_best")}
        left = {subject for subject, (head, _) in last.items() if "KV-Operation" not in head}
        self.assertEqual(left, {f"$KV.best.o.{n}" for n in range(10) if n * 7 % 10 >= 7})

    def newest_ids(self, client):
        return {subject: json.loads(data)["id"] for subject, _, data in client.messages("KV_customers")}

    def test_the_example_works(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        example = os.path.join(ROOT, "pipelines", "orders.yaml")
        tested = subprocess.run([RXD, "test", example], capture_output=True, text=True, timeout=PATIENCE, env=WITH_SANITIZERS)
        self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)
        self.start_server()
        client = self.client()
        client.add_stream("ORDERS", "orders.>")
        client.add_stream("LARGE", "large.>")
        client.add_bucket("customers")
        for n in range(20):
            client.store("orders.new", json.dumps({"id": n, "customer": f"c{n % 3}", "amount": n * 100}).encode())
        client.store("orders.new", b"no JSON")
        rxd = self.start([RXD, "run", example, "--state-dir", self.path("state")], "rxd",
                         environment={"NATS": self.servers[0], "REFUSED": self.path("refused.ndjson")})
        # The sinks are settled one by one: the bucket may still lag when all large orders have arrived.
        newest = {"$KV.customers.c0": 18, "$KV.customers.c1": 19, "$KV.customers.c2": 17}
        wait_for(lambda: client.state("LARGE")["messages"] >= 10, "the large orders", PATIENCE)
        wait_for(lambda: self.newest_ids(client) == newest, "the newest order of each customer", PATIENCE)
        large = client.messages("LARGE")
        self.assertEqual(sorted(json.loads(data)["id"] for _, _, data in large), list(range(10, 20)))
        self.assertEqual({subject for subject, _, _ in large}, {"large.c0", "large.c1", "large.c2"})
        self.assertEqual(rxd.end(), 0, rxd.errors())
        self.assertEqual(self.newest_ids(client), newest)
        with open(self.path("refused.ndjson")) as file:
            self.assertIn("the message is not a JSON document", file.read())


class KillTests(NatsTest):
    """From a stream through rxd into another one, under load, while rxd or the server is killed (SIGKILL) KILLS times."""

    LOAD = 1000  # numbers for each kill

    def start_pipeline(self, name):
        text = f"""name: mover
plugins: {{ nats: PLUGIN }}
sources:
  in: {{ natsStream: {{ stream: S, consumer: c, decode: json, ackWait: 1s, servers: {json.dumps(self.servers)} }} }}
sinks:
  out:
    from: in
    chain: [ map: event.value ]
    natsStream: {{ stream: T, subject: t.n, id: "{{{{ event }}}}", timeout: 5s, servers: {json.dumps(self.servers)} }}
  read: {{ from: in, stdout: {{ encode: json }} }}
"""
        run = self.pipeline(text, name, state="mover")
        self.runs.append(run)
        return run

    def begin(self):
        client = self.start_stream("", max_msgs=-1)
        client.add_stream("T", "t.>")
        self.runs = []
        self.total = (KILLS + 1) * self.LOAD
        self.sender = threading.Thread(target=fill, args=(self.port, "s.n", range(self.total), 0, 60 + 5 * KILLS), daemon=True)
        self.sender.start()

    def moved(self):
        try:
            client = Client(self.port, 2)
        except (OSError, ValueError):
            return 0
        try:
            return client.state("T")["messages"]
        except (OSError, ValueError, IndexError, Refusal):
            return 0
        finally:
            client.close()

    def end(self, label, run):
        self.sender.join(PATIENCE)
        wait_for(lambda: self.moved() >= self.total, "all to be moved", PATIENCE)
        self.wait_until_acknowledged(self.client())
        wait_for(lambda: self.handles_a_stop(run), "the start of the last one", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        back = self.read(name="back", stream="T", consumer="back")
        self.wait_for_all(range(self.total), back, seconds=PATIENCE)
        self.wait_until_acknowledged_of_t()
        back.end()
        self.assert_nothing_lost(range(self.total), self.numbers(*self.runs), label + ", read")
        self.assert_nothing_lost(range(self.total), self.numbers(back), label + ", stored in the other stream")

    def handles_a_stop(self, run):
        """Whether SIGTERM does not simply end the process: all messages may have been moved before the last rxd starts."""
        with open(f"/proc/{run.process.pid}/status") as status:
            signals = [int(line.split()[1], 16) for line in status if line.startswith(("SigCgt", "SigBlk"))]
        return any(mask >> (signal.SIGTERM - 1) & 1 for mask in signals)

    def wait_until_acknowledged_of_t(self):
        client = self.client()
        wait_for(lambda: client.consumer("T", "back")["num_pending"] == 0, "the end of T", PATIENCE)

    def test_rxd_is_killed(self):
        self.begin()
        for turn in range(KILLS):
            run = self.start_pipeline(f"run{turn}")
            goal = min(self.total, self.moved() + random.randrange(1, self.LOAD))
            wait_for(lambda: self.moved() >= goal, f"{goal} to be moved\n{run.errors()}", PATIENCE)
            run.end(signal.SIGKILL)
        self.end(f"rxd killed {KILLS} times", self.start_pipeline("last"))

    def test_the_server_is_killed(self):
        self.begin()
        run = self.start_pipeline("run")
        for turn in range(KILLS):
            goal = min(self.total, self.moved() + random.randrange(1, self.LOAD))
            wait_for(lambda: self.moved() >= goal, f"{goal} to be moved\n{run.errors()}", PATIENCE)
            self.server.end(signal.SIGKILL)
            self.start_server()
            self.client().close()
        self.end(f"the server killed {KILLS} times", run)


if __name__ == "__main__":
    unittest.main()
