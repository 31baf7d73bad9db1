"""Tests of the plugin with a real redis-server: without rxd, and in rxd if RXD names it."""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from plugin_test import RXD, WITH_SANITIZERS, PluginTest, free_port, wait_for  # noqa: E402

PLUGIN = os.path.join(os.path.dirname(HERE), "redis.so")
PASSWORD = "correct horse battery"
COUNT = int(os.environ.get("COUNT", "20000"))


class Client:
    """Speaks the protocol of Redis as far as the tests need it."""

    def __init__(self, port, password=None):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.file = self.socket.makefile("rb")
        if password:
            self("AUTH", password)

    def __del__(self):
        for each in [getattr(self, "file", None), getattr(self, "socket", None)]:
            if each:
                each.close()

    def send(self, *commands):
        out = []
        for command in commands:
            out.append(b"*%d\r\n" % len(command))
            for word in command:
                word = word if isinstance(word, bytes) else str(word).encode()
                out.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(out))

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        return rest.decode()

    def __call__(self, *command):
        return self.all(command)[0]

    def all(self, *commands):
        self.send(*commands)
        replies = [self.reply() for _ in commands]
        for reply in replies:
            if isinstance(reply, RuntimeError):
                raise reply
        return replies


class RedisTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.options = []
        self.server = None

    def start_server(self, *options):
        if options:
            self.options = list(options)
        self.server = self.start(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, "--save", "",
             "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no", *self.options], "redis")

        def ready():
            try:
                Client(self.port)("PING")
            except RuntimeError as error:
                return "NOAUTH" in str(error)
            except OSError:
                return False
            return True
        wait_for(ready, "redis-server")
        return Client(self.port)

    def kill_server(self):
        self.server.end(signal.SIGKILL)

    def load(self, client, *command, count=COUNT, first=0):
        """Sends a command for each number, in place of NUMBER."""
        for start in range(first, first + count, 1000):
            numbers = range(start, min(start + 1000, first + count))
            client.all(*[[word.replace("NUMBER", str(n)) if isinstance(word, str) else word for word in command] for n in numbers])

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def pending(self, client, stream="s", group="g"):
        return client("XPENDING", stream, group)[0]


class ParameterTests(RedisTest):
    def test_errors_name_the_parameter(self):
        stream = {"stream": "s", "group": "g"}
        for kind, component, parameters, expected in [
            ("source", "redisStream", {**stream, "server": "http://host"}, "'server': unknown scheme 'http'; use redis:// or rediss://"),
            ("source", "redisStream", {**stream, "server": "redis://me:" + PASSWORD + "@host"},
             "'server': must not contain a user or a password; use 'user' and 'password'"),
            ("source", "redisStream", {**stream, "server": "host:0"}, "'server': the port must be a number from 1 to 65535"),
            ("source", "redisStream", {**stream, "server": "host:65536"}, "'server': the port must be a number from 1 to 65535"),
            ("source", "redisStream", {**stream, "server": "host:port"}, "'server': the port must be a number from 1 to 65535"),
            ("source", "redisStream", {**stream, "server": "host:"}, "'server': the port must be a number from 1 to 65535"),
            ("source", "redisStream", {**stream, "server": "::1"}, "'server': an IPv6 address must stand in brackets: [::1]:6379"),
            ("source", "redisStream", {**stream, "server": "[::1"}, "'server': the closing bracket of the IPv6 address is missing"),
            ("source", "redisStream", {**stream, "server": "[::1]6379"}, "'server': behind the bracket must stand ':' and the port"),
            ("source", "redisStream", {**stream, "server": "redis://host/2"}, "'server': must be HOST or HOST:PORT, without a path"),
            ("source", "redisStream", {**stream, "server": "redis://host:1/2"}, "'server': must be HOST or HOST:PORT, without a path"),
            ("source", "redisStream", {**stream, "server": "my host"}, "'server': the name of the host contains a character that names cannot have, at character 3"),
            ("source", "redisStream", {**stream, "server": "my;host"}, "'server': the name of the host contains ';' at character 3"),
            ("source", "redisStream", {**stream, "server": ""}, "'server': the name of the host is missing"),
            ("source", "redisStream", {**stream, "server": "unix:socket"}, "'server': the path behind 'unix:' must begin with '/'"),
            ("source", "redisStream", {**stream, "server": "unix:/" + "a" * 200}, "'server': the path of a Unix socket has at most 107 bytes"),
            ("source", "redisStream", {**stream, "server": "unix:/a", "tls": True}, "'tls': a Unix socket has no TLS"),
            ("source", "redisStream", {**stream, "user": "me"}, "'user': needs 'password'"),
            ("source", "redisStream", {**stream, "ca": "/a"}, "'ca': has no effect without 'tls: true' or a server with 'rediss://'"),
            ("source", "redisStream", {**stream, "tls": True, "ca": "/nowhere"}, "'ca': cannot read the certificates: No such file or directory"),
            ("source", "redisStream", {**stream, "tls": True, "certificate": "/nowhere"}, "'certificate': 'certificate' and 'certificateKey' belong together"),
            ("source", "redisStream", {"stream": "", "group": "g"}, "'stream': must not be empty"),
            ("source", "redisStream", {**stream, "batch": 5, "window": 4}, "'batch': must not be above 'window', which is 4"),
            ("source", "redisList", {"key": "a", "processing": "a"}, "'processing': must be another list than 'key'"),
            ("source", "redisSubscribe", {}, "'channels': needs a channel or a pattern"),
            ("source", "redisSubscribe", {"channels": ["a", ""]}, "'channels.1': must not be empty"),
            ("sink", "redisStream", {"stream": "s", "field": ""}, "'field': must not be empty"),
        ]:
            with self.subTest(parameters=parameters):
                message = self.refused(kind, component, parameters)
                self.assertEqual(message, expected)
                self.assertNotIn(PASSWORD, message)


class AccessTests(RedisTest):
    def test_password(self):
        self.start_server("--requirepass", PASSWORD)
        client = Client(self.port, PASSWORD)
        good = self.sink("redisList", {"key": "l", "server": self.address, "password": PASSWORD}, ["a"], "good")
        self.assertEqual(good.process.wait(20), 0, good.errors())
        self.assertEqual(client("LRANGE", "l", 0, -1), [b"a"])
        for name, parameters, expected in [
            ("none", {}, "the server asks for a password"),
            ("wrong", {"password": PASSWORD + "!"}, "the server refuses the user or the password (WRONGPASS)"),
            ("user", {"user": "nobody", "password": PASSWORD}, "the server refuses the user or the password (WRONGPASS)"),
        ]:
            for kind in ["sink", "source"]:
                parameters = {"key": "l", "server": self.address, **parameters}
                run = self.sink("redisList", parameters, ["a"], name) if kind == "sink" else self.source("redisList", parameters, name=name + "-source")
                self.assertEqual(run.process.wait(20), 1)
                self.assertIn(f"failed at 'server': {self.address}: {expected}", run.errors())
                self.assertNotIn(PASSWORD, run.errors())

    def test_tls(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.directory)
        for name in ["server", "other"]:
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", name + ".key",
                    "-out", name + ".pem", "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1")
        secure = free_port()
        client = self.start_server("--tls-port", str(secure), "--tls-cert-file", self.path("server.pem"), "--tls-key-file", self.path("server.key"),
                                   "--tls-auth-clients", "no")
        where = {"key": "l", "server": f"rediss://127.0.0.1:{secure}", "ca": self.path("server.pem")}
        good = self.sink("redisList", where, [{"n": n, "filling": "x" * 500} for n in range(3000)], "good")
        self.assertEqual(good.process.wait(20), 0, good.errors())
        self.assertEqual(client("LLEN", "l"), 3000)
        source = self.source("redisList", {**where, "decode": "json"})
        wait_for(lambda: source.count() == 3000, "3000 events")
        self.assertEqual(source.end(), 0, source.errors())
        self.assertEqual([event["value"]["n"] for event in source.lines()], list(range(3000)))
        bad = self.sink("redisList", {**where, "ca": self.path("other.pem")}, ["a"], "bad")
        self.assertEqual(bad.process.wait(20), 1)
        self.assertIn("the certificate of the server is not accepted", bad.errors())
        careless = self.sink("redisList", {**where, "ca": self.path("other.pem"), "dangerouslySkipVerification": True}, ["a"], "careless")
        self.assertEqual(careless.process.wait(20), 0)

    def test_unix_socket_and_database(self):
        client = self.start_server("--unixsocket", self.path("redis.sock"))
        sink = self.sink("redisSet", {"key": "k:{{ event.id }}", "server": "unix:" + self.path("redis.sock"), "database": 3, "expire": "1h"}, [{"id": 7}])
        self.assertEqual(sink.process.wait(20), 0, sink.errors())
        client("SELECT", 3)
        self.assertEqual(json.loads(client("GET", "k:7")), {"id": 7})
        self.assertGreater(client("PTTL", "k:7"), 3_000_000)


class SinkTests(RedisTest):
    def test_what_is_sent(self):
        client = self.start_server()
        listener = Client(self.port)
        listener("SUBSCRIBE", "c:1")
        events = [{"id": 1, "name": "å\n", "list": [1, 2]}]
        for number, (component, parameters) in enumerate([
            ("redisStream", {"stream": "s:{{ event.id }}"}),
            ("redisStream", {"stream": "whole", "field": "event"}),
            ("redisList", {"key": "l", "value": "{{ event.name }}"}),
            ("redisList", {"key": "l", "push": "left"}),
            ("redisPublish", {"channel": "c:{{ event.id }}"}),
        ]):
            sink = self.sink(component, {**parameters, "server": self.address}, events, f"sink{number}")
            self.assertEqual(sink.process.wait(20), 0, sink.errors())
        self.assertEqual(client("XRANGE", "s:1", "-", "+")[0][1], [b"id", b"1", b"name", "å\n".encode(), b"list", b"[1,2]"])
        whole = client("XRANGE", "whole", "-", "+")[0][1]
        self.assertEqual((whole[0], json.loads(whole[1])), (b"event", events[0]))
        left, right = client("LRANGE", "l", 0, -1)
        self.assertEqual((json.loads(left), right.decode()), (events[0], "å\n"))
        self.assertEqual(json.loads(listener.reply()[2]), events[0])

    def test_maximum_length_is_kept_about(self):
        client = self.start_server()
        sink = self.sink("redisStream", {"stream": "s", "maxLength": 1000, "server": self.address}, [{"n": n} for n in range(5000)])
        self.assertEqual(sink.process.wait(20), 0)
        self.assertLess(client("XLEN", "s"), 1200)

    def test_only_the_bad_events_are_refused(self):
        client = self.start_server()
        client("SET", "taken", "text")
        events = [{"to": "s"}, {"to": "taken"}, {"to": "s"}, {"to": ""}, {"to": "s"}]
        sink = self.sink("redisStream", {"stream": "{{ event.to }}", "server": self.address}, events)
        self.assertEqual(sink.process.wait(20), 0)
        self.assertIn("refused: WRONGTYPE", sink.errors())
        self.assertIn("refused: 'stream' is empty for this event", sink.errors())
        self.assertIn("delivered 3, refused 2", sink.errors())
        self.assertEqual(client("XLEN", "s"), 3)
        texts = self.sink("redisStream", {"stream": "s", "server": self.address}, ["text", {}], "texts")
        self.assertEqual(texts.process.wait(20), 0)
        self.assertIn("delivered 0, refused 2", texts.errors())

    def test_a_server_that_takes_no_writes_is_waited_for(self):
        client = self.start_server()
        client("CONFIG", "SET", "maxmemory", "1")
        sink = self.sink("redisList", {"key": "l", "server": self.address}, range(10))
        wait_for(lambda: "OOM" in sink.errors(), "the refusal")
        client("CONFIG", "SET", "maxmemory", "0")
        self.assertEqual(sink.process.wait(20), 0)
        self.assertEqual(client("LLEN", "l"), 10)
        self.assertIn("works again", sink.errors())

    def test_restart_of_the_server(self):
        client = self.start_server()
        sink = self.sink("redisStream", {"stream": "s", "server": self.address}, [{"n": n} for n in range(COUNT)])
        wait_for(lambda: client("EXISTS", "s") and client("XLEN", "s") >= COUNT // 5, "a fifth")
        self.kill_server()
        time.sleep(0.3)
        client = self.start_server()
        self.assertEqual(sink.process.wait(60), 0)
        self.assertEqual(sink.errors().count("warning"), 1, sink.errors())
        seen = [int(fields[1]) for _, fields in client("XRANGE", "s", "-", "+")]
        self.assert_nothing_lost(range(COUNT), seen, "sink redisStream, server killed")


class ChangeTests(RedisTest):
    """`redisSet` with `retracted`, against a plain model."""

    def changes(self, count, seed):
        """Random changes of a table of 40 keys, and its content at the end."""
        chance, changes, model = random.Random(seed), [], {}
        for n in range(count):
            change = {"id": chance.randrange(40), "n": n, "back": chance.random() < 0.4}
            changes.append(change)
            if change["back"]:
                model.pop(change["id"], None)
            else:
                model[change["id"]] = n
        return changes, model

    def table(self, client):
        keys = client("KEYS", "k:*")
        values = client("MGET", *keys) if keys else []
        # While it runs, a key may be deleted between the two commands.
        return {int(key[2:]): json.loads(value)["n"] for key, value in zip(keys, values) if value is not None}

    def test_keys_follow_changes_in_their_order(self):
        client = self.start_server()
        changes, model = self.changes(3000, 1)
        sink = self.sink("redisSet", {"key": "k:{{ event.id }}", "retracted": "event.back", "server": self.address}, changes)
        self.assertEqual(sink.process.wait(20), 0, sink.errors())
        self.assertIn("delivered 3000, refused 0", sink.errors())
        self.assertEqual(self.table(client), model)

    def test_what_says_no_truth_value_is_refused_alone(self):
        client = self.start_server()
        events = [{"id": 1, "n": 1, "back": None}, {"id": 2, "n": 2}, {"id": 1, "n": 3, "back": "true"}, {"id": 2, "n": 4, "back": 1},
                  {"id": 3, "n": 5, "back": False}, {"id": 3, "n": 6, "back": True}, {"id": 4, "back": True}]
        sink = self.sink("redisSet", {"key": "k:{{ event.id }}", "retracted": "event.back", "expire": "1h", "server": self.address}, events)
        self.assertEqual(sink.process.wait(20), 0, sink.errors())
        self.assertEqual(sink.errors().count("refused: 'retracted' must be true, false or null, and is something else for this event"), 2)
        self.assertIn("delivered 5, refused 2", sink.errors())
        self.assertEqual(self.table(client), {1: 1, 2: 2})
        self.assertGreater(client("PTTL", "k:1"), 3_000_000)

    def test_keys_follow_changes_while_the_server_takes_deletions_only(self):
        client = self.start_server()
        changes, model = self.changes(500, 2)
        client("CONFIG", "SET", "maxmemory", "1")
        sink = self.sink("redisSet", {"key": "k:{{ event.id }}", "retracted": "event.back", "server": self.address}, changes)
        wait_for(lambda: "OOM" in sink.errors(), "the refusal")
        client("CONFIG", "SET", "maxmemory", "0")
        self.assertEqual(sink.process.wait(20), 0, sink.errors())
        self.assertEqual(self.table(client), model)

    def test_keys_follow_changes_while_the_server_restarts(self):
        client = self.start_server()
        changes, model = self.changes(COUNT, 3)
        sink = self.sink("redisSet", {"key": "k:{{ event.id }}", "retracted": "event.back", "server": self.address}, changes)
        wait_for(lambda: client("DBSIZE") > 0, "the first keys")
        self.kill_server()
        time.sleep(0.3)
        client = self.start_server()
        self.assertEqual(sink.process.wait(60), 0, sink.errors())
        self.assertEqual(sink.errors().count("warning"), 1, sink.errors())
        self.assertEqual(self.table(client), model)

    def test_keys_follow_changes_in_rxd_while_the_server_restarts(self):
        client = self.start_server()
        changes, model = self.changes(COUNT, 5)
        with open(self.path("in.ndjson"), "w") as file:
            file.writelines(json.dumps(change) + "\n" for change in changes)
        rxd = self.pipeline(f"""
            plugins: {{ redis: PLUGIN }}
            sources: {{ in: {{ file: {{ path: {self.path("in.ndjson")}, decode: ndjson }} }} }}
            sinks: {{ out: {{ from: in, redisSet: {{ key: 'k:{{{{ event.id }}}}', retracted: event.back, server: '{self.address}' }} }} }}
            """)
        wait_for(lambda: client("DBSIZE") > 0, "the first keys")
        self.kill_server()
        time.sleep(0.3)
        client = self.start_server()
        wait_for(lambda: self.table(client) == model, "the table of the model", 60)
        self.assertEqual(rxd.end(), 0, rxd.errors())
        self.assertEqual(self.table(client), model)
        self.assertIn("delivers again", rxd.errors())


class StreamTests(RedisTest):
    def parameters(self, **more):
        return {"stream": "s", "group": "g", "consumer": "c", "server": self.address, **more}

    def numbers(self, *runs):
        return [int(event["fields"]["n"]) for run in runs for event in run.lines()]

    def test_events(self):
        client = self.start_server()
        client("XADD", "s", "1700000000000-5", "a", "1", "a", "2", "bytes", b"\xff\xfe", "json", '{"x": [1]}', "text", "å")
        source = self.source("redisStream", self.parameters(decode="json"))
        wait_for(lambda: source.count() == 1, "the event")
        self.assertEqual(source.end(), 0, source.errors())
        self.assertEqual(source.lines()[0], {"stream": "s", "id": "1700000000000-5", "time": "2023-11-14T22:13:20.000000000Z", "fields": {
            "a": 2, "bytes": "hex:fffe", "json": {"x": [1]}, "text": "å"}})
        self.assertEqual(self.pending(client), 0)

    def test_new_group_at_the_end(self):
        client = self.start_server()
        client("XADD", "s", "*", "n", "1")
        source = self.source("redisStream", self.parameters(start="end"))
        wait_for(lambda: client("XINFO", "GROUPS", "s"), "the group")
        client("XADD", "s", "*", "n", "2")
        wait_for(lambda: source.count() == 1, "the event")
        source.end()
        self.assertEqual(self.numbers(source), [2])

    def test_nothing_is_acknowledged_before_it_is_delivered(self):
        client = self.start_server()
        self.load(client, "XADD", "s", "*", "n", "NUMBER", count=100)
        source = self.source("redisStream", self.parameters(), more=100000)
        wait_for(lambda: client("XINFO", "GROUPS", "s") and self.pending(client) == 100, "100 under way")
        time.sleep(0.5)
        self.assertEqual(self.pending(client), 100)
        source.end(signal.SIGKILL)
        again = self.source("redisStream", self.parameters(), name="again")
        wait_for(lambda: again.count() == 100 and self.pending(client) == 0, "100 events and acknowledgements")
        again.end()
        self.assertEqual(self.numbers(again), list(range(100)))

    def test_what_a_dead_consumer_left_is_claimed(self):
        client = self.start_server()
        self.load(client, "XADD", "s", "*", "n", "NUMBER", count=500)
        dead = self.source("redisStream", self.parameters(consumer="dead", claimAfter="1s"), more=100000, name="dead")
        wait_for(lambda: client("XINFO", "GROUPS", "s") and self.pending(client) == 500, "500 under way")
        other = self.source("redisStream", self.parameters(consumer="other", claimAfter="1s"), name="other")
        time.sleep(2.5)
        # It is slow but alive: its entries are not claimed.
        self.assertEqual(other.count(), 0)
        dead.end(signal.SIGKILL)
        wait_for(lambda: other.count() == 500 and self.pending(client) == 0, "the claim")
        other.end()
        self.assertEqual(sorted(self.numbers(other)), list(range(500)))

    def test_failed_events_come_again(self):
        client = self.start_server()
        self.load(client, "XADD", "s", "*", "n", "NUMBER", count=3000)
        source = self.source("redisStream", self.parameters(batch=100), more="fail 3")
        wait_for(lambda: client("XINFO", "GROUPS", "s") and len(set(self.numbers(source))) == 3000 and self.pending(client) == 0, "all events")
        source.end()
        self.assertEqual(sorted(self.numbers(source)), list(range(3000)))

    def test_deleted_entries_do_not_stay_pending(self):
        client = self.start_server()
        ids = client.all(*[("XADD", "s", "*", "n", str(n)) for n in range(10)])
        client("XGROUP", "CREATE", "s", "g", "0")
        client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        client("XDEL", "s", *ids[:4])
        source = self.source("redisStream", self.parameters())
        wait_for(lambda: source.count() == 6 and self.pending(client) == 0, "the rest")
        source.end()
        self.assertEqual(self.numbers(source), [4, 5, 6, 7, 8, 9])

    def test_restart_of_the_server(self):
        client = self.start_server()
        self.load(client, "XADD", "s", "*", "n", "NUMBER")
        source = self.source("redisStream", self.parameters(), more=20)
        wait_for(lambda: source.count() > COUNT // 5, "a fifth")
        self.kill_server()
        self.assertLess(source.count(), COUNT)
        time.sleep(0.5)
        client = self.start_server()
        wait_for(lambda: source.count() >= COUNT and self.pending(client) == 0, "all events")
        self.assertEqual(source.end(), 0)
        self.assertEqual(source.errors().count("warning"), 1, source.errors())
        self.assert_nothing_lost(range(COUNT), self.numbers(source), "source redisStream, server killed")

    def test_connections_that_break_at_once_are_not_made_at_once(self):
        client = self.start_server()
        source = self.source("redisStream", self.parameters())
        wait_for(lambda: client("EXISTS", "s"), "the stream")
        end, kills = time.monotonic() + 3, 0
        while time.monotonic() < end:
            kills += client("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        source.end()
        self.assertLess(kills, 15)

    def test_stops_while_the_server_is_down(self):
        self.start_server()
        source = self.source("redisStream", self.parameters())
        wait_for(lambda: "s" in [k.decode() for k in Client(self.port)("KEYS", "*")], "the stream")
        self.kill_server()
        wait_for(lambda: "reconnecting" in source.errors(), "the loss")
        begin = time.monotonic()
        self.assertEqual(source.end(), 0)
        self.assertLess(time.monotonic() - begin, 2)

    def test_a_lost_group_is_made_again(self):
        client = self.start_server()
        source = self.source("redisStream", self.parameters())
        client("XADD", "s", "*", "n", "1")
        wait_for(lambda: source.count() == 1 and self.pending(client) == 0, "the first")
        client("XGROUP", "DESTROY", "s", "g")
        client("XADD", "s", "*", "n", "2")
        wait_for(lambda: source.count() == 2, "the second")
        source.end()
        self.assertEqual(self.numbers(source), [1, 2])

    def test_a_key_of_another_type_ends_the_source(self):
        client = self.start_server()
        client("SET", "s", "text")
        source = self.source("redisStream", self.parameters())
        self.assertEqual(source.process.wait(20), 1)
        self.assertIn("WRONGTYPE", source.errors())


class ListTests(RedisTest):
    def test_restart_of_the_server(self):
        client = self.start_server()
        self.load(client, "RPUSH", "l", "NUMBER")
        source = self.source("redisList", {"key": "l", "server": self.address}, more=20)
        wait_for(lambda: source.count() > COUNT // 5, "a fifth")
        self.kill_server()
        self.assertLess(source.count(), COUNT)
        time.sleep(0.5)
        client = self.start_server()
        wait_for(lambda: source.count() >= COUNT and client("EXISTS", "l", "l:processing") == 0, "all events")
        self.assertEqual(source.end(), 0)
        self.assert_nothing_lost(range(COUNT), [int(event["value"]) for event in source.lines()], "source redisList, server killed")

    def test_crash_of_the_reader(self):
        client = self.start_server()
        # Equal elements are separate elements.
        self.load(client, "RPUSH", "l", "NUMBER", count=300)
        self.load(client, "RPUSH", "l", "NUMBER", count=300)
        source = self.source("redisList", {"key": "l", "server": self.address}, more=100000)
        wait_for(lambda: client("LLEN", "l:processing") == 600, "600 under way")
        source.end(signal.SIGKILL)
        again = self.source("redisList", {"key": "l", "server": self.address}, name="again")
        wait_for(lambda: again.count() == 600 and client("EXISTS", "l", "l:processing") == 0, "all")
        again.end()
        self.assertEqual([int(event["value"]) for event in again.lines()], list(range(300)) * 2)

    def test_failed_events_come_again(self):
        client = self.start_server()
        self.load(client, "LPUSH", "l", "NUMBER", count=2000)
        source = self.source("redisList", {"key": "l", "take": "right", "batch": 50, "server": self.address}, more="fail 3")
        wait_for(lambda: source.count() >= 2000 and client("EXISTS", "l", "l:processing") == 0, "all")
        source.end()
        self.assertEqual(sorted(int(event["value"]) for event in source.lines()), list(range(2000)))


    def test_what_is_no_document_is_rejected_and_leaves_the_list(self):
        client = self.start_server()
        client("RPUSH", "l", "1", "{", "2")
        source = self.source("redisList", {"key": "l", "decode": "json", "server": self.address})
        wait_for(lambda: source.count() == 3 and client("EXISTS", "l", "l:processing") == 0, "all")
        source.end()
        self.assertEqual(source.lines(), [{"key": "l", "value": 1}, {"rejected": "{", "reason": "the element is not a JSON document"}, {"key": "l", "value": 2}])


class SubscribeTests(RedisTest):
    def test_channels_and_patterns_also_after_a_restart(self):
        client = self.start_server()
        source = self.source("redisSubscribe", {"channels": ["a"], "patterns": ["b.*"], "decode": "json", "server": self.address})
        for round in range(2):
            wait_for(lambda: client("PUBSUB", "NUMPAT") == 1 and client("PUBSUB", "NUMSUB", "a")[1] == 1, "the subscriptions")
            client("PUBLISH", "a", '{"n": 1}')
            client("PUBLISH", "b.c", '"text"')
            client("PUBLISH", "a", "no document")
            wait_for(lambda: source.count() == 3 * (round + 1), "the messages")
            if round == 0:
                self.kill_server()
                client = self.start_server()
        self.assertEqual(source.end(), 0)
        self.assertEqual(source.lines(), [{"channel": "a", "message": {"n": 1}}, {"channel": "b.c", "message": "text", "pattern": "b.*"},
                                          {"rejected": "no document", "reason": "the message is not a JSON document"}] * 2)


class PipelineTests(RedisTest):
    """Whole pipelines in rxd, with a state directory."""

    def written(self, name="out.ndjson"):
        try:
            with open(self.path(name), "rb") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def loss(self, source, load, settled, kill, delivery="durable"):
        """Loads events, kills the server or rxd in the middle, and compares."""
        client = self.start_server()
        load(client)
        text = f"""
            delivery: {delivery}
            plugins: {{ redis: PLUGIN }}
            sources: {{ in: {{ {source} }} }}
            sinks: {{ out: {{ from: in, file: {{ path: {self.path("out.ndjson")}, encode: ndjson }} }} }}
            """
        rxd = self.pipeline(text)
        wait_for(lambda: len(self.written()) > COUNT // 5, "a fifth", 60)
        if kill == "server":
            self.kill_server()
        else:
            rxd.end(signal.SIGKILL)
        self.assertLess(len(self.written()), COUNT)
        if kill == "server":
            time.sleep(0.3)
            client = self.start_server()
        else:
            rxd = self.pipeline(text)
        wait_for(lambda: len(set(self.written())) >= COUNT and settled(client), "all events", 90)
        self.assertEqual(rxd.end(), 0, rxd.errors())
        return [json.loads(line) for line in self.written()]

    def test_stream(self):
        for kill in ["server", "rxd"]:
            for delivery in ["durable", "light"]:
                with self.subTest(kill=kill, delivery=delivery):
                    self.end_all()
                    self.directory = os.path.join(self.directory, kill + delivery)
                    os.mkdir(self.directory)
                    events = self.loss(f"redisStream: {{ stream: s, group: g, server: '{self.address}' }}",
                                       lambda client: self.load(client, "XADD", "s", "*", "n", "NUMBER"), lambda client: self.pending(client) == 0, kill, delivery)
                    self.assert_nothing_lost(range(COUNT), [int(event["fields"]["n"]) for event in events],
                                             f"rxd, source redisStream, {delivery}, {kill} killed")

    def test_stops_and_starts_under_load(self):
        """SIGTERM in the middle, three times: events taken are settled."""
        client = self.start_server()
        self.load(client, "XADD", "s", "*", "n", "NUMBER")
        text = f"""
            plugins: {{ redis: PLUGIN }}
            sources: {{ in: {{ redisStream: {{ stream: s, group: g, server: '{self.address}' }} }} }}
            sinks: {{ out: {{ from: in, file: {{ path: {self.path("out.ndjson")}, encode: ndjson }} }} }}
            """
        for _ in range(3):
            before = len(self.written())
            rxd = self.pipeline(text)
            wait_for(lambda: len(self.written()) > min(before + COUNT // 10, COUNT - 1), "some more", 60)
            self.assertEqual(rxd.end(), 0, rxd.errors())
        rxd = self.pipeline(text)
        wait_for(lambda: len(set(self.written())) >= COUNT, "all events", 60)
        rxd.end()
        seen = [int(json.loads(line)["fields"]["n"]) for line in self.written()]
        self.assert_nothing_lost(range(COUNT), seen, "rxd, source redisStream, stopped three times")
        # Entries that were being read at the stop stay pending, and are not delivered before the next start.
        self.assertEqual(len(seen), COUNT)

    def test_the_examples_work(self):
        client = self.start_server()
        listener = Client(self.port)
        listener("SUBSCRIBE", "done:1")
        if not RXD:
            self.skipTest("set RXD to the program")
        examples = os.path.join(os.path.dirname(HERE), "pipelines")
        for name in ["orders", "jobs"]:
            self.start([RXD, "run", os.path.join(examples, name + ".yaml"), "--state-dir", self.path(name)], name, environment={"REDIS": self.address})
        client("XADD", "orders", "*", "order", '{"id": 6, "total": 12}')
        client("XADD", "orders", "*", "order", '{"id": 7, "total": 1200}')
        client("RPUSH", "jobs", '{"id": 1, "text": "shout"}')
        wait_for(lambda: client("LLEN", "to-check") > 0, "the large order")
        self.assertEqual([json.loads(order) for order in client("LRANGE", "to-check", 0, -1)], [{"id": 7, "total": 1200}])
        self.assertEqual(listener.reply()[2], b"SHOUT")

    def test_the_example_of_changes_works(self):
        client = self.start_server()
        if not RXD:
            self.skipTest("set RXD to the program")
        chance = random.Random(4)
        orders = [{"id": n, "customer": f"c{chance.randrange(20)}", "total": n} for n in range(2000)]
        chance.shuffle(orders)
        with open(self.path("in.ndjson"), "w") as file:
            file.writelines(json.dumps(order) + "\n" for order in orders)
        example = os.path.join(os.path.dirname(HERE), "pipelines", "best-orders.yaml")
        with open(self.path("in.ndjson")) as file:
            rxd = self.start([RXD, "run", example, "--state-dir", self.path("best")], "best", stdin=file, environment={"REDIS": self.address})
        self.assertEqual(rxd.process.wait(60), 0, rxd.errors())
        best = {}
        for order in sorted(orders, key=lambda order: -order["total"]):
            best.setdefault(order["customer"], []).append(order)
        expected = {f"best:{order['customer']}:{order['id']}": order for orders in best.values() for order in orders[:3]}
        keys = client("KEYS", "*")
        self.assertEqual({key.decode(): json.loads(value) for key, value in zip(keys, client("MGET", *keys))}, expected)

    def test_the_tests_of_the_examples_pass(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        examples = os.path.join(os.path.dirname(HERE), "pipelines")
        for name in sorted(os.listdir(examples)):
            done = subprocess.run([RXD, "test", os.path.join(examples, name)], capture_output=True, text=True, env=WITH_SANITIZERS)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_list(self):
        for kill in ["server", "rxd"]:
            with self.subTest(kill=kill):
                self.end_all()
                self.directory = os.path.join(self.directory, kill)
                os.mkdir(self.directory)
                events = self.loss(f"redisList: {{ key: l, server: '{self.address}' }}",
                                   lambda client: self.load(client, "RPUSH", "l", "NUMBER"), lambda client: client("EXISTS", "l", "l:processing") == 0, kill)
                self.assert_nothing_lost(range(COUNT), [int(event["value"]) for event in events], f"rxd, source redisList, {kill} killed")

    def test_sinks(self):
        """The lines of a file go to a stream and a list while the server is killed."""
        client = self.start_server()
        with open(self.path("in.ndjson"), "w") as file:
            file.writelines(json.dumps({"n": n}) + "\n" for n in range(COUNT))
        rxd = self.pipeline(f"""
            plugins: {{ redis: PLUGIN }}
            sources: {{ in: {{ file: {{ path: {self.path("in.ndjson")}, decode: ndjson }} }} }}
            sinks:
              stream: {{ from: in, redisStream: {{ stream: 's', server: '{self.address}' }} }}
              list: {{ from: in, redisList: {{ key: 'l', value: '{{{{ event.n }}}}', server: '{self.address}' }} }}
            """)
        wait_for(lambda: client("EXISTS", "s", "l") == 2 and min(client("XLEN", "s"), client("LLEN", "l")) > COUNT // 5, "a fifth", 60)
        self.kill_server()
        time.sleep(0.3)
        client = self.start_server()
        self.assertLess(min(client("XLEN", "s"), client("LLEN", "l")), COUNT)

        def numbers():
            return ([int(fields[1]) for _, fields in client("XRANGE", "s", "-", "+")], [int(n) for n in client("LRANGE", "l", 0, -1)])
        wait_for(lambda: all(len(set(seen)) == COUNT for seen in numbers()), "all events", 90)
        rxd.end()
        for label, seen in zip(["redisStream", "redisList"], numbers()):
            self.assert_nothing_lost(range(COUNT), seen, f"rxd, sink {label}, server killed")

    def test_a_wrong_server_is_reported_with_its_place(self):
        rxd = self.pipeline("""
            plugins: { redis: PLUGIN }
            sources:
              in: { redisStream: { stream: s, group: g, server: "redis://me:secret-word@host" } }
            sinks: { out: { from: in, discard: {} } }
            """)
        self.assertNotEqual(rxd.process.wait(30), 0)
        self.assertIn("must not contain a user or a password", rxd.errors())
        self.assertIn("pipeline.yaml:4:", rxd.errors())
        self.assertNotIn("secret-word", rxd.errors())


if __name__ == "__main__":
    unittest.main()
