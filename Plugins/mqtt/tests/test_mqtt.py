"""Tests of the plugin with a real mosquitto: without rxd, and in rxd if RXD names it."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from plugin_test import RXD, WITH_SANITIZERS, PluginTest, free_port, wait_for  # noqa: E402

PLUGIN = os.environ.get("PLUGIN", os.path.join(os.path.dirname(HERE), "mqtt.so"))
PASSWORD = "correct horse battery"
COUNT = int(os.environ.get("COUNT", "20000"))


class MQTTTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.broker = None
        self.settings = ""

    def start_broker(self, settings=None):
        """Starts mosquitto with persistence: its state is saved with `save`, and at a clean exit."""
        if settings is not None:
            self.settings = settings
        with open(self.path("mosquitto.conf"), "w") as file:
            file.write(f"""user root
persistence true
persistence_location {self.directory}/
autosave_interval 0
max_queued_messages 0
log_dest stderr
listener {self.port} 127.0.0.1
{self.settings or "allow_anonymous true"}
""")
        self.broker = self.start(["mosquitto", "-c", self.path("mosquitto.conf")], "mosquitto")

        def ready():
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
            except OSError:
                return False
            return True
        wait_for(ready, "mosquitto")

    def save(self):
        """Makes the broker save its state to disk."""
        begin = time.time_ns()
        self.broker.process.send_signal(signal.SIGUSR1)
        database = self.path("mosquitto.db")
        wait_for(lambda: os.path.exists(database) and os.stat(database).st_mtime_ns >= begin - 20_000_000 and not os.path.exists(database + ".new"),
                 "the database")

    def hold(self, process):
        """Stops a publishing process, and waits until the broker has read all of its packets: `save` then saves everything that the broker
        acknowledges."""
        process.send_signal(signal.SIGSTOP)

        def is_read():
            with open(f"/proc/{process.pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] != "T":
                    return False
            with open("/proc/net/tcp") as file:
                for line in file.readlines()[1:]:
                    _, local, remote, _, queues = line.split()[:5]
                    to_send, to_read = (int(size, 16) for size in queues.split(":"))
                    if int(local.split(":")[1], 16) == self.port and to_read or int(remote.split(":")[1], 16) == self.port and to_send:
                        return False
            return True
        wait_for(is_read, "the broker to read everything")

    def kill_broker(self):
        self.broker.end(signal.SIGKILL)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def publish(self, topic, *options, lines=None):
        run = subprocess.run(["mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.port), "-q", "1", "-t", topic, *options,
                              *(["-l"] if lines is not None else [])],
                             input="".join(f"{line}\n" for line in lines) if lines is not None else None, text=True, capture_output=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)

    def parameters(self, **more):
        return {"topics": ["t/#"], "clientID": "reader", "server": self.address, **more}

    def source(self, parameters, more=None, name="source"):
        """Starts a source and waits until it has subscribed."""
        before = self.broker.errors().count("Sending SUBACK") if self.broker else 0
        source = PluginTest.source(self, "mqtt", parameters, more, name)
        if self.broker:
            wait_for(lambda: self.broker.errors().count("Sending SUBACK") > before or source.process.poll() is not None, "the subscription")
        return source

    def quiet_source(self):
        """The same with a broker that logs only errors and subscriptions."""
        source = PluginTest.source(self, "mqtt", self.parameters())
        wait_for(lambda: "reader 1 t/#" in self.broker.errors(), "the subscription")
        return source

    def numbers(self, *runs):
        return [int(event["payload"]) for run in runs for event in run.lines()]


LOG = "log_type all\nallow_anonymous true"
QUIET = "log_type error\nlog_type subscribe\nallow_anonymous true"


class ParameterTests(MQTTTest):
    def test_errors_name_the_parameter(self):
        source = {"topics": ["t"], "clientID": "a"}
        for kind, parameters, expected in [
            ("source", {**source, "server": "tcp://host"}, "'server': unknown scheme 'tcp'; use mqtt:// or mqtts://"),
            ("source", {**source, "server": "mqtt://me:" + PASSWORD + "@host"}, "'server': must not contain a user or a password; use 'user' and 'password'"),
            ("source", {**source, "server": "host:70000"}, "'server': the port must be a number from 1 to 65535"),
            ("source", {**source, "server": "::1"}, "'server': an IPv6 address must stand in brackets: [::1]:1883"),
            ("source", {**source, "server": "unix:/a"}, "'server': must be HOST or HOST:PORT, not a Unix socket"),
            ("source", {**source, "password": PASSWORD}, "'password': needs 'user'"),
            ("source", {"topics": ["t"]}, "'clientID': is needed with 'qos: 1': the broker keeps messages for a client that it knows again"),
            ("source", {**source, "clientID": ""}, "'clientID': must have 1 to 65535 bytes, and no control characters"),
            ("source", {**source, "topics": []}, "'topics': needs a topic"),
            ("source", {**source, "topics": ["a", "a+/b"]}, "'topics.1': is not a topic filter: '+' stands for one whole level, '#' for all at the end"),
            ("source", {**source, "topics": ["a/#/b"]}, "'topics.0': is not a topic filter: '+' stands for one whole level, '#' for all at the end"),
            ("source", {**source, "topics": ["$share/g"]}, "'topics.0': a shared subscription has the form $share/GROUP/FILTER"),
            ("source", {**source, "will": "gone"}, "'will': must be a mapping with 'topic' and 'payload'"),
            ("source", {**source, "will": {"payload": "gone"}}, "'will': needs 'topic'"),
            ("source", {**source, "will": {"topic": "a/#"}}, "'will.topic': is not a topic to publish to: it has a '+' or a '#', or is too long"),
            ("source", {**source, "will": {"topic": "a", "qos": 3}}, "'will.qos': must be 0, 1 or 2"),
            ("source", {**source, "will": {"topic": "a", "retain": 1}}, "'will.retain': must be true or false"),
            ("source", {**source, "will": {"topic": "a", "qoss": 1}}, "'will.qoss': 'will' has 'topic', 'payload', 'qos' and 'retain'"),
            ("source", {**source, "certificate": "/a"}, "'certificate': has no effect without 'tls: true' or a server with 'mqtts://'"),
            ("source", {**source, "tls": True, "ca": "/nowhere"}, "'ca': cannot read the file: No such file or directory"),
            ("sink", {"topic": "t", "version": "3.1.1", "expire": "1s"}, "'expire': needs 'version: 5'"),
            ("sink", {"topic": "t", "version": "3.1.1", "contentType": "a/b"}, "'contentType': needs 'version: 5'"),
        ]:
            with self.subTest(parameters=parameters):
                message = self.refused(kind, "mqtt", parameters)
                self.assertEqual(message, expected)
                self.assertNotIn(PASSWORD, message)


class AccessTests(MQTTTest):
    def test_password_and_rights(self):
        with open(self.path("passwords"), "w") as file:
            file.write(f"me:{PASSWORD}\n")
        subprocess.run(["mosquitto_passwd", "-U", self.path("passwords")], check=True)
        with open(self.path("rights"), "w") as file:
            file.write("user me\ntopic readwrite t/#\n")
        self.start_broker(f"password_file {self.path('passwords')}\nacl_file {self.path('rights')}\n")
        good = {"user": "me", "password": PASSWORD, "server": self.address}
        sink = self.sink("mqtt", {"topic": "{{ event }}", **good}, ["t/a", "other", "t/b"], "good")
        self.assertEqual(sink.process.wait(20), 0, sink.errors())
        # Version 5 says which message the broker refused.
        self.assertIn("refused: the broker refuses the message: Not authorized", sink.errors())
        self.assertIn("delivered 2, refused 1", sink.errors())
        for version in ["5", "3.1.1"]:
            bad = {**good, "password": PASSWORD + "!", "version": version}
            for name, run in [("sink", self.sink("mqtt", {"topic": "t", **bad}, ["a"], "sink" + version)),
                              ("source", PluginTest.source(self, "mqtt", {"topics": "t", "clientID": "a", **bad}, name="source" + version))]:
                with self.subTest(name=name, version=version):
                    self.assertEqual(run.process.wait(20), 1)
                    self.assertIn(f"failed at 'server': {self.address}: the broker refuses the connection: ", run.errors())
                    self.assertNotIn(PASSWORD, run.errors())

    def test_tls(self):
        for name in ["server", "other"]:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", name + ".key",
                            "-out", name + ".pem", "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True, cwd=self.directory)
        self.start_broker(f"cafile {self.path('server.pem')}\ncertfile {self.path('server.pem')}\nkeyfile {self.path('server.key')}\n{LOG}")
        where = {"server": f"mqtts://127.0.0.1:{self.port}", "ca": self.path("server.pem")}
        source = self.source({**self.parameters(), **where}, more=1)
        sink = self.sink("mqtt", {"topic": "t/a", "payload": "{{ event.n }}", **where}, [{"n": n} for n in range(3000)])
        self.assertEqual(sink.process.wait(20), 0, sink.errors())
        wait_for(lambda: source.count() == 3000, "3000 events")
        self.assertEqual(source.end(), 0, source.errors())
        # The session's waiting messages arrive in one read with the answer to CONNECT.
        more = self.sink("mqtt", {"topic": "t/a", "payload": "{{ event.n }}", **where}, [{"n": n} for n in range(3000, 6000)], "more")
        self.assertEqual(more.process.wait(20), 0, more.errors())
        again = self.source({**self.parameters(), **where}, more=1, name="again")
        wait_for(lambda: again.count() == 3000, "3000 events")
        self.assertEqual(again.end(), 0, again.errors())
        self.assertEqual(self.numbers(source, again), list(range(6000)))
        bad = self.sink("mqtt", {"topic": "t", **where, "ca": self.path("other.pem")}, ["a"], "bad")
        self.assertEqual(bad.process.wait(20), 1)
        self.assertIn("the certificate of the broker is not accepted", bad.errors())
        careless = self.sink("mqtt", {"topic": "t", **where, "ca": self.path("other.pem"), "dangerouslySkipVerification": True}, ["a"], "careless")
        self.assertEqual(careless.process.wait(20), 0)


class MessageTests(MQTTTest):
    def test_what_arrives(self):
        for version in ["5", "3.1.1"]:
            with self.subTest(version=version):
                self.start_broker(LOG)
                self.publish("t/kept", "-r", "-m", '"old"')
                source = self.source(self.parameters(decode="json", version=version))
                wait_for(lambda: source.count() == 1, "the retained one")
                self.publish("t/a/b", "-m", '{"x": [1]}')
                self.publish("t/c", "-q", "0", "-m", '"å"')
                if version == "5":
                    self.publish("t/d", "-V", "5", "-m", "5", "-D", "publish", "content-type", "text/plain", "-D", "publish", "user-property", "k", "v1",
                                 "-D", "publish", "user-property", "k", "v2", "-D", "publish", "response-topic", "r", "-D", "publish", "correlation-data", "c")
                self.publish("t/bad", "-m", "{")
                self.publish("t/e", "-n")
                expected = 6 if version == "5" else 5
                wait_for(lambda: source.count() == expected, "the events")
                self.assertEqual(source.end(), 0, source.errors())
                events = source.lines()
                self.assertEqual(events[:3], [
                    {"topic": "t/kept", "payload": "old", "qos": 1, "retained": True},
                    {"topic": "t/a/b", "payload": {"x": [1]}, "qos": 1, "retained": False},
                    {"topic": "t/c", "payload": "å", "qos": 0, "retained": False}])
                if version == "5":
                    self.assertEqual(events[3], {"topic": "t/d", "payload": 5, "qos": 1, "retained": False, "contentType": "text/plain", "responseTopic": "r",
                                                 "correlationData": "c", "properties": {"k": "v2"}})
                self.assertEqual(events[-2], {"rejected": "{", "reason": "the payload is not a JSON document"})
                self.assertEqual(events[-1], {"topic": "t/e", "payload": "", "qos": 1, "retained": False})
                self.broker.end()
                os.remove(self.path("mosquitto.db"))
                os.remove(source.out_path)

    def test_shared_subscriptions(self):
        for version in ["5", "3.1.1"]:
            with self.subTest(version=version):
                if self.broker:
                    self.broker.end()
                self.start_broker(LOG)
                readers = [self.source(self.parameters(topics=["$share/g/t/#"], clientID=f"reader{version}{n}", version=version), name=f"{version}{n}") for n in range(2)]
                self.publish("t/a", lines=range(1000))
                wait_for(lambda: sum(reader.count() for reader in readers) == 1000, "1000 events")
                for reader in readers:
                    self.assertEqual(reader.end(), 0)
                    self.assertGreater(reader.count(), 0)
                self.assertEqual(sorted(self.numbers(*readers)), list(range(1000)))

    def test_last_will(self):
        self.start_broker(LOG)
        watcher = self.source(self.parameters(topics=["wills/#"], clientID="watcher"), name="watcher")
        def will(n):
            return {"will": {"topic": f"wills/{n}", "payload": "gone", "qos": 1, "retain": True}}
        killed = self.source(self.parameters(clientID="killed", **will(1)), name="killed")
        killed.end(signal.SIGKILL)
        wait_for(lambda: watcher.count() == 1, "the will")
        orderly = self.source(self.parameters(clientID="orderly", **will(2)), name="orderly")
        self.assertEqual(orderly.end(), 0)
        # Failed events do not publish a will, either.
        failing = self.source(self.parameters(clientID="failing", **will(3)), more="fail 2", name="failing")
        for first in [0, 10]:
            self.publish("t/a", lines=range(first, first + 10))
            wait_for(lambda: len(set(self.numbers(failing))) == first + 10, "all events")
        self.assertIn("failedWindows", failing.errors())
        failing.end()
        killed = self.source(self.parameters(clientID="killed", **will(4)), name="killed4")
        killed.end(signal.SIGKILL)
        wait_for(lambda: watcher.count() == 2, "the other will")
        watcher.end()
        self.assertEqual([(event["topic"], event["payload"]) for event in watcher.lines()], [("wills/1", "gone"), ("wills/4", "gone")])

    def test_what_is_sent(self):
        self.start_broker(LOG)
        watcher = self.source(self.parameters(topics=["#"], clientID="watcher"), name="watcher")
        for number, (parameters, events) in enumerate([
            ({"topic": "a/{{ event.id }}"}, [{"id": 1}]),
            ({"topic": "b", "payload": "{{ event.id }}", "retain": True, "contentType": "text/plain", "expire": "1h"}, [{"id": 2}]),
            ({"topic": "c", "qos": 0}, ["text"]),
            ({"topic": "{{ event }}"}, ["d/#", "", "d"]),
        ]):
            sink = self.sink("mqtt", {**parameters, "server": self.address}, events, f"sink{number}")
            self.assertEqual(sink.process.wait(20), 0, sink.errors())
        self.assertIn("refused: 'topic' is not a topic to publish to", sink.errors())
        self.assertIn("refused: 'topic' is empty for this event", sink.errors())
        wait_for(lambda: watcher.count() == 4, "the messages")
        watcher.end()
        self.assertEqual([(event["topic"], event["payload"], event.get("contentType")) for event in watcher.lines()],
                         [("a/1", '{"id":1}', None), ("b", "2", "text/plain"), ("c", "text", None), ("d", "d", None)])
        late = self.source(self.parameters(topics=["#"], clientID="late"), name="late")
        wait_for(lambda: late.count() == 1, "the retained one")
        late.end()
        self.assertEqual(late.lines()[0]["topic"], "b")


class DeliveryTests(MQTTTest):
    def versions(self):
        for version in ["5", "3.1.1"]:
            with self.subTest(version=version):
                self.end_all()
                self.directory = os.path.join(self.directory, version)
                os.mkdir(self.directory)
                yield version

    def test_nothing_is_acknowledged_before_it_is_delivered(self):
        for version in self.versions():
            self.start_broker(LOG)
            source = self.source(self.parameters(version=version), more=100000)
            self.publish("t/a", lines=range(200))
            under_way = 200 if version == "5" else 20
            wait_for(lambda: self.broker.errors().count("Sending PUBLISH to reader") >= under_way, "messages under way")
            time.sleep(0.5)
            self.assertEqual(self.broker.errors().count("Received PUBACK from reader"), 0)
            source.end(signal.SIGKILL)
            again = self.source(self.parameters(version=version), name="again")
            wait_for(lambda: again.count() == 200, "200 events")
            again.end()
            self.assertEqual(self.numbers(again), list(range(200)))
            self.assertEqual(self.broker.errors().count("Received PUBACK from reader"), 200)

    def test_the_connection_lives_while_a_sink_is_slow(self):
        self.start_broker(LOG)
        source = self.source(self.parameters(keepAlive="5s"), more=12000)
        self.publish("t/a", "-m", "1")
        wait_for(lambda: source.count() == 1, "the event")
        wait_for(lambda: self.broker.errors().count("Received PUBACK from reader") == 1, "the acknowledgement")
        self.assertGreaterEqual(self.broker.errors().count("Received PINGREQ from reader"), 3)
        self.assertEqual(self.broker.errors().count("Sending CONNACK to reader"), 1)
        self.assertEqual(source.end(), 0)

    def test_failed_events_come_again(self):
        self.start_broker(LOG)
        # Each failure costs a pause, and on a busy machine a window may be a single message.
        source = self.source(self.parameters(window=20), more="fail 4")
        for first in range(0, 100, 20):
            self.publish("t/a", lines=range(first, first + 20))
            wait_for(lambda: len(set(self.numbers(source))) == first + 20, "all events")
        source.end()
        self.assertIn("failedWindows", source.errors())

    def test_two_clients_of_one_name(self):
        self.start_broker(LOG)
        sources = [PluginTest.source(self, "mqtt", self.parameters(), name=f"twin{n}") for n in range(2)]
        time.sleep(3)
        for source in sources:
            source.end()
        self.assertLess(self.broker.errors().count("Sending CONNACK"), 25)
        self.assertIn("is another client connected as 'reader'?", sources[0].errors() + sources[1].errors())

    def test_qos_0(self):
        self.start_broker(LOG)
        source = self.source({"topics": "t/#", "qos": 0, "server": self.address})
        self.publish("t/a", lines=range(100))
        wait_for(lambda: source.count() == 100, "100 events")
        self.assertEqual(source.end(), 0)
        self.assertEqual({event["qos"] for event in source.lines()}, {0})

    def test_restart_of_the_broker_source(self):
        for version in self.versions():
            self.start_broker(LOG)
            self.source(self.parameters(version=version), name="first").end()
            self.publish("t/a", lines=range(COUNT))
            source = self.source(self.parameters(version=version), more=5)
            wait_for(lambda: source.count() > COUNT // 5, "a fifth")
            self.save()
            self.kill_broker()
            self.assertLess(source.count(), COUNT)
            time.sleep(0.5)
            self.start_broker()
            wait_for(lambda: source.count() >= COUNT and len(set(self.numbers(source))) == COUNT, "all events", 60)
            self.assertEqual(source.end(), 0, source.errors())
            self.assertEqual(source.errors().count("warning"), 1, source.errors())
            self.assert_nothing_lost(range(COUNT), self.numbers(source), f"source mqtt {version}, broker killed")

    def test_restart_of_the_broker_sink(self):
        for version in self.versions():
            self.start_broker(QUIET)
            watcher = self.quiet_source()
            sink = self.sink("mqtt", {"topic": "t/a", "payload": "{{ event.n }}", "version": version, "server": self.address}, [{"n": n} for n in range(COUNT)])
            wait_for(lambda: watcher.count() > COUNT // 5, "a fifth")
            # The broker acknowledges messages that are in its memory: all of them must have left it, or be saved.
            self.hold(sink.process)
            self.save()
            self.kill_broker()
            sink.process.send_signal(signal.SIGCONT)
            time.sleep(0.5)
            self.start_broker()
            self.assertEqual(sink.process.wait(60), 0, sink.errors())
            self.assertEqual(sink.errors().count("warning"), 1, sink.errors())
            self.assertIn("count: connectionErrors", sink.errors())
            wait_for(lambda: len(set(self.numbers(watcher))) == COUNT, "all events", 60)
            self.assertEqual(watcher.end(), 0)
            self.assert_nothing_lost(range(COUNT), self.numbers(watcher), f"sink mqtt {version}, broker killed")

    def test_a_login_that_is_refused_after_it_has_worked(self):
        """The configuration of the broker is changing: it is tried again."""
        self.start_broker(QUIET)
        watcher = self.quiet_source()
        sink = self.sink("mqtt", {"topic": "t/a", "payload": "{{ event.n }}", "server": self.address}, [{"n": n} for n in range(COUNT)])
        wait_for(lambda: watcher.count() > COUNT // 5, "a fifth")
        self.hold(sink.process)
        self.save()
        self.kill_broker()
        self.start_broker("log_type all\nallow_anonymous false")
        sink.process.send_signal(signal.SIGCONT)
        wait_for(lambda: self.broker.errors().count("Sending CONNACK") >= 5 or any(run.process.poll() is not None for run in (watcher, sink)),
                 "refusals")
        self.assertIsNone(watcher.process.poll(), watcher.errors())
        self.assertIsNone(sink.process.poll(), sink.errors())
        self.kill_broker()
        self.start_broker(QUIET)
        self.assertEqual(sink.process.wait(60), 0, sink.errors())
        wait_for(lambda: len(set(self.numbers(watcher))) == COUNT, "all events", 60)
        self.assertEqual(watcher.end(), 0)

    def test_stops_while_the_broker_is_down(self):
        self.start_broker(LOG)
        source = self.source(self.parameters())
        self.kill_broker()
        wait_for(lambda: "reconnecting" in source.errors() and "count: connectionErrors" in source.errors(), "the loss")
        begin = time.monotonic()
        self.assertEqual(source.end(), 0)
        self.assertLess(time.monotonic() - begin, 2)


class PipelineTests(MQTTTest):
    """Whole pipelines in rxd, with a state directory."""

    def written(self):
        try:
            with open(self.path("out.ndjson"), "rb") as file:
                return [json.loads(line)["payload"] for line in file.read().splitlines(True) if line.endswith(b"\n")]
        except FileNotFoundError:
            return []

    def test_source(self):
        for kill in ["broker", "rxd"]:
            for version in ["5", "3.1.1"]:
                with self.subTest(kill=kill, version=version):
                    self.end_all()
                    self.directory = os.path.join(self.directory, kill + version)
                    os.mkdir(self.directory)
                    self.start_broker(LOG)
                    self.source(self.parameters(version=version), name="first").end()
                    self.publish("t/a", lines=range(COUNT))
                    text = f"""
                        plugins: {{ mqtt: PLUGIN }}
                        sources: {{ in: {{ mqtt: {{ topics: "t/#", clientID: reader, server: '{self.address}', version: {version} }} }} }}
                        sinks: {{ out: {{ from: in, file: {{ path: {self.path("out.ndjson")}, encode: ndjson }} }} }}
                        """
                    begin = time.monotonic()
                    rxd = self.pipeline(text)
                    wait_for(lambda: len(self.written()) > COUNT // 20, "a twentieth", 60)
                    if kill == "broker":
                        self.save()
                        self.kill_broker()
                    else:
                        rxd.end(signal.SIGKILL)
                    self.assertLess(len(self.written()), COUNT)
                    if kill == "broker":
                        time.sleep(0.3)
                        self.start_broker()
                    else:
                        rxd = self.pipeline(text)
                    wait_for(lambda: len(set(self.written())) >= COUNT, "all events", 90)
                    print(f"\n    {time.monotonic() - begin:.1f} s from the start of rxd", end="")
                    self.assertEqual(rxd.end(), 0, rxd.errors())
                    self.assert_nothing_lost(range(COUNT), [int(n) for n in self.written()], f"rxd, source mqtt {version}, {kill} killed")

    def test_sink(self):
        self.start_broker(QUIET)
        watcher = self.quiet_source()
        with open(self.path("in.ndjson"), "w") as file:
            file.writelines(json.dumps({"n": n}) + "\n" for n in range(COUNT))
        rxd = self.pipeline(f"""
            plugins: {{ mqtt: PLUGIN }}
            sources: {{ in: {{ file: {{ path: {self.path("in.ndjson")}, decode: ndjson }} }} }}
            sinks: {{ out: {{ from: in, mqtt: {{ topic: 't/{{{{ event.n % 10 }}}}', payload: '{{{{ event.n }}}}', server: '{self.address}' }} }} }}
            """)
        wait_for(lambda: watcher.count() > COUNT // 5, "a fifth", 60)
        self.hold(rxd.process)
        self.save()
        self.kill_broker()
        rxd.process.send_signal(signal.SIGCONT)
        self.assertLess(watcher.count(), COUNT)
        time.sleep(0.3)
        self.start_broker()
        wait_for(lambda: len(set(self.numbers(watcher))) == COUNT, "all events", 60)
        rxd.end()
        watcher.end()
        self.assert_nothing_lost(range(COUNT), self.numbers(watcher), "rxd, sink mqtt 5, broker killed")

    def test_the_example_works(self):
        self.start_broker(LOG)
        if not RXD:
            self.skipTest("set RXD to the program")
        watcher = self.source(self.parameters(topics=["warnings/#"], decode="json", clientID="watcher"), name="watcher")
        before = self.broker.errors().count("Sending SUBACK")
        self.start([RXD, "run", os.path.join(os.path.dirname(HERE), "pipelines", "sensors.yaml"), "--state-dir", self.path("state")], "sensors",
                   environment={"BROKER": self.address})
        wait_for(lambda: self.broker.errors().count("Sending SUBACK") > before, "the subscription")
        self.publish("sensors/fridge/temperature", "-m", '{"celsius": 5}')
        self.publish("sensors/oven/temperature", "-m", '{"celsius": 240}')
        wait_for(lambda: watcher.count() > 0, "the warning")
        watcher.end()
        self.assertEqual([(event["topic"], event["payload"]) for event in watcher.lines()], [("warnings/oven", {"sensor": "oven", "celsius": 240})])

    def test_what_is_promised_depends_on_qos(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        environment = {**WITH_SANITIZERS, "XDG_CACHE_HOME": self.path("cache")}
        subprocess.run([RXD, "plugin", "check", self.plugin], env=environment, check=True, capture_output=True)
        said = {}
        for source in [0, 1]:
            for sink in [0, 1]:
                with open(self.path("promise.yaml"), "w") as file:
                    file.write(f"""
plugins: {{ mqtt: {self.plugin} }}
sources: {{ in: {{ mqtt: {{ topics: a, clientID: a, qos: {source} }} }} }}
sinks: {{ out: {{ from: in, mqtt: {{ topic: b, qos: {sink} }} }} }}
""")
                check = subprocess.run([RXD, "check", "-v", self.path("promise.yaml")], env=environment, capture_output=True, text=True)
                self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
                said[source, sink] = check.stdout
        self.assertIn("'mqtt' does not know what arrives", said[1, 0])
        self.assertNotIn("'mqtt' does not know what arrives", said[1, 1])
        self.assertNotIn("'mqtt' cannot be read again", said[1, 1])
        self.assertIn("'mqtt' cannot be read again", said[0, 1])

    def test_a_wrong_server_is_reported_with_its_place(self):
        rxd = self.pipeline("""
            plugins: { mqtt: PLUGIN }
            sources:
              in: { mqtt: { topics: a, clientID: a, server: "mqtt://me:secret-word@host" } }
            sinks: { out: { from: in, discard: {} } }
            """)
        self.assertNotEqual(rxd.process.wait(30), 0)
        self.assertIn("must not contain a user or a password", rxd.errors())
        self.assertIn("pipeline.yaml:4:", rxd.errors())
        self.assertNotIn("secret-word", rxd.errors())


if __name__ == "__main__":
    unittest.main()
