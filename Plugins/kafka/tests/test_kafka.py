"""Tests of the plugin with the mock cluster of librdkafka: without rxd, and in rxd if RXD names it."""
import json
import os
import signal
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from plugin_test import PluginTest, free_port, wait_for  # noqa: E402

PLUGIN = os.path.join(os.path.dirname(HERE), "kafka.so")
CLUSTER = os.path.join(os.path.dirname(HERE), "build", "cluster")
PASSWORD = "correct horse battery"
COUNT = int(os.environ.get("COUNT", "5000"))


class KafkaTest(PluginTest):
    plugin = PLUGIN

    def start_cluster(self, partitions=4):
        self.cluster = self.start([CLUSTER], "cluster", stdin=subprocess.PIPE)
        wait_for(lambda: self.said().endswith("\n"), "the cluster")
        self.brokers = self.said().split()[0].split(",")
        self.answers = 1
        self.addCleanup(self.cluster.process.stdin.close)
        self.command(f"topic t {partitions}")

    def said(self):
        with open(self.cluster.out_path) as file:
            return file.read()

    def command(self, text):
        self.cluster.process.stdin.write(text.encode() + b"\n")
        self.cluster.process.stdin.flush()
        self.answers += 1
        wait_for(lambda: self.cluster.count() == self.answers, text)
        self.assertTrue(self.said().endswith("ok\n"))

    def fill(self, first, count, name="fill"):
        """Numbers from `first`, by keys, through the sink."""
        sink = self.sink("kafka", {"brokers": self.brokers, "topic": "t", "key": "{{ event.key }}", "value": "{{ event.n }}"},
                         [{"key": f"k{n % 13}", "n": n} for n in range(first, first + count)], name)
        self.assertEqual(sink.process.wait(60), 0, sink.errors())

    def reader(self, name):
        text = f"""plugins: {{ kafka: PLUGIN }}
sources:
  in: {{ kafka: {{ topics: t, group: g, decode: json, brokers: {json.dumps(self.brokers)}, options: {{ session.timeout.ms: 6000, heartbeat.interval.ms: 500 }} }} }}
sinks:
  out: {{ from: in, stdout: {{ encode: json }} }}
"""
        return self.pipeline(text, name)

    def numbers(self, *runs):
        return [event["value"] for run in runs for event in run.lines()]

    def assert_ordered(self, run):
        last = {}
        for event in run.lines():
            self.assertEqual(event["offset"], last.get(event["partition"], event["offset"] - 1) + 1)
            last[event["partition"]] = event["offset"]


class ParameterTests(KafkaTest):
    def test_errors_name_the_parameter(self):
        source = {"topics": ["t"], "group": "g", "brokers": ["127.0.0.1:1"]}
        for parameters, expected in [
            ({**source, "brokers": []}, "'brokers': needs a broker"),
            ({**source, "brokers": ["a", "host:70000"]}, "'brokers.1': the port must be a number from 1 to 65535"),
            ({**source, "topics": []}, "'topics': needs a topic"),
            ({**source, "group": ""}, "'group': must not be empty"),
            ({**source, "options": {"client.idd": "x"}}, "'options.client.idd': librdkafka has no option 'client.idd'"),
            ({**source, "options": {"session.timeout.ms": "soon"}},
             "'options.session.timeout.ms': librdkafka refuses the value of 'session.timeout.ms'"),
            ({**source, "options": {"sasl.password": PASSWORD}}, "'options.sasl.password': 'sasl.password' cannot be set here"),
            ({**source, "options": {"enable.auto.commit": True}}, "'options.enable.auto.commit': 'enable.auto.commit' cannot be set here"),
            ({**source, "password": PASSWORD}, "'password': 'user' and 'password' belong together"),
            ({**source, "ca": "/a"}, "'ca': has no effect without 'tls: true'"),
            ({**source, "tls": True, "ca": "/nowhere"}, "'ca': cannot read the file: No such file or directory"),
        ]:
            with self.subTest(parameters=parameters):
                message = self.refused("source", "kafka", parameters)
                self.assertEqual(message, expected)
                self.assertNotIn(PASSWORD, message)

    def test_a_broker_that_is_not_there_is_reported_once_without_the_password(self):
        run = self.source("kafka", {"topics": ["t"], "group": "g", "brokers": [f"127.0.0.1:{free_port()}"],
                                    "mechanism": "PLAIN", "user": "me", "password": PASSWORD})
        wait_for(lambda: "connections are down" in run.errors(), "the report")
        run.end()
        self.assertEqual(run.errors().count("warning"), 1, run.errors())
        self.assertNotIn(PASSWORD, run.errors())


class SinkTests(KafkaTest):
    def test_only_the_message_that_is_too_large_is_refused(self):
        self.start_cluster()
        sink = self.sink("kafka", {"brokers": self.brokers, "topic": "t", "options": {"message.max.bytes": 2000}},
                         ["x" * (5000 if n == 3 else 10) for n in range(6)])
        sink.process.wait(60)
        self.assertIn("too large", sink.errors())
        self.assertIn("delivered 5, refused 1", sink.errors())
        source = self.source("kafka", {"topics": ["t"], "group": "g", "brokers": self.brokers}, 5)
        wait_for(lambda: source.count() >= 5, "five messages", 60)


class PipelineTests(KafkaTest):
    def test_everything_comes_in_order_and_a_stop_commits(self):
        self.start_cluster()
        self.fill(0, COUNT)
        first = self.reader("first")
        wait_for(lambda: first.count() >= COUNT, "all", 60)
        self.assertEqual(first.end(), 0)
        self.assert_ordered(first)
        self.fill(COUNT, 10, "more")
        second = self.reader("second")
        wait_for(lambda: second.count() >= 10, "the next", 60)
        second.end()
        self.assertEqual(sorted(self.numbers(first, second)), list(range(COUNT + 10)))

    def test_nothing_is_lost_by_a_kill(self):
        self.start_cluster()
        self.fill(0, COUNT)
        first = self.reader("first")
        wait_for(lambda: first.count() >= COUNT // 10, "a part", 60)
        first.end(signal.SIGKILL)
        self.fill(COUNT, COUNT, "more")
        second = self.reader("second")
        wait_for(lambda: len(set(self.numbers(first, second))) >= 2 * COUNT, "all", 60)
        self.assert_nothing_lost(range(2 * COUNT), self.numbers(first, second), "killed")

    def test_nothing_is_lost_when_a_second_member_joins_and_leaves(self):
        self.start_cluster()
        self.fill(0, COUNT)
        first = self.reader("first")
        wait_for(lambda: first.count() >= 1, "the first", 60)
        second = self.reader("second")
        for turn in range(1, 60):
            self.fill(COUNT * turn, COUNT, f"more{turn}")
            if second.count() > 0:
                break
        first.end()
        self.fill(COUNT * (turn + 1), COUNT, "last")
        expected = COUNT * (turn + 2)
        wait_for(lambda: len(set(self.numbers(first, second))) >= expected, "all", 60)
        self.assert_nothing_lost(range(expected), self.numbers(first, second), "two members")

    def test_nothing_is_lost_when_brokers_are_down(self):
        self.start_cluster()
        self.fill(0, COUNT)
        first = self.reader("first")
        wait_for(lambda: first.count() >= 1, "the first", 60)
        self.command("down")
        wait_for(lambda: "connections are down" in first.errors(), "the report", 60)
        self.command("up")
        self.fill(COUNT, COUNT, "more")
        wait_for(lambda: len(set(self.numbers(first))) >= 2 * COUNT, "all", 60)
        self.assert_nothing_lost(range(2 * COUNT), self.numbers(first), "brokers down")


if __name__ == "__main__":
    unittest.main()
