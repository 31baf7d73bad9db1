"""Tests of the plugin with the mock cluster of librdkafka: without rxd, and in rxd if RXD names it."""
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from plugin_test import RUNNER, RXD, SANITIZERS, WITH_SANITIZERS, PluginTest, free_port, wait_for  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "kafka.so"))
CLUSTER = os.path.join(ROOT, "build", "cluster")
FAULTS = os.path.join(ROOT, "build", "faults.so")
PASSWORD = "correct horse battery"
COUNT = int(os.environ.get("COUNT", "5000"))
# Killed members are noticed soon; but the cluster waits 3 s for further members of a new group.
QUICK = {"session.timeout.ms": 3800, "heartbeat.interval.ms": 300}
PRODUCE, HEARTBEAT = 0, 12  # kinds of requests
TOO_LARGE, FENCED = 10, 82  # errors of brokers
RECEIVER = """import socket, sys
connection, _ = socket.create_server(("127.0.0.1", int(sys.argv[1]))).accept()
while data := connection.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
"""
PATIENCE = float(os.environ.get("PATIENCE", "60"))


class KafkaTest(PluginTest):
    plugin = PLUGIN

    def start_cluster(self, partitions=4, topic="t"):
        self.cluster = self.start([CLUSTER], "cluster", stdin=subprocess.PIPE)
        wait_for(lambda: self.said().endswith("\n"), "the cluster")
        self.brokers = self.said().split()[0].split(",")
        self.answers = 1
        self.addCleanup(self.cluster.process.stdin.close)
        self.command(f"topic {topic} {partitions}")

    def said(self):
        with open(self.cluster.out_path) as file:
            return file.read()

    def command(self, text):
        self.cluster.process.stdin.write(text.encode() + b"\n")
        self.cluster.process.stdin.flush()
        self.answers += 1
        wait_for(lambda: self.cluster.count() == self.answers, text, PATIENCE)
        self.assertTrue(self.said().endswith("ok\n"), text)

    def fill(self, first, count, size=0, topic="t"):
        """Numbers from `first`, by key."""
        self.command(f"fill {topic} {first} {count} {size}")

    def read(self, name="source", more="", environment=None, **parameters):
        """The source without rxd."""
        environment = {**SANITIZERS, **(environment or {})}
        if "preload" in environment:
            environment["LD_PRELOAD"] = (environment.get("LD_PRELOAD", "") + " " + environment.pop("preload")).strip()
        given = {"topics": ["t"], "group": "g", "decode": "json", "brokers": self.brokers, **parameters}
        given["options"] = {**QUICK, **given.get("options", {})}
        return self.start([*RUNNER, self.plugin, "source", "kafka", json.dumps(given), str(more)], name, environment=environment)

    def write(self, events, name="sink", **parameters):
        """The sink without rxd."""
        return self.sink("kafka", {"brokers": self.brokers, "topic": "t", **parameters}, events, name)

    def reader(self, name, state=None, delivery="durable", more=""):
        """`state`: the name of an earlier reader that is restarted: in `durable` delivery, acknowledged events may wait in its state
        directory, and are delivered from nowhere else."""
        text = f"""name: reader
delivery: {delivery}
plugins: {{ kafka: PLUGIN }}
sources:
  in: {{ kafka: {{ topics: t, group: g, decode: json, brokers: {json.dumps(self.brokers)}, options: {json.dumps(QUICK)} }} }}
sinks:
  out: {{ from: in, stdout: {{ encode: json }} }}
{more}"""
        return self.pipeline(text, name, state=state)

    def numbers(self, *runs):
        return [event["value"] for run in runs for event in run.lines()]

    def wait_for_number(self, number, run):
        def is_there():
            with open(run.out_path, "rb") as file:
                return b'"value":%d,' % number in file.read()

        wait_for(is_there, f"{number} in {run.out_path}", PATIENCE)

    def wait_for_all(self, expected, *runs, seconds=PATIENCE):
        """Waits until this many numbers have arrived."""
        least = {run: 0 for run in runs}

        def are_there():
            # Decoding is slow: only when there may be enough events.
            counts = {run: run.count() for run in runs}
            if sum(counts.values()) < expected or counts == least:
                return False
            least.update(counts)
            return len(set(self.numbers(*runs))) >= expected

        try:
            wait_for(are_there, f"{expected} events", seconds)
        except AssertionError:
            missing = sorted(set(range(expected)) - set(self.numbers(*runs)))
            said = "\n".join(f"{run.out_path}: {run.count()} events\n{run.errors()[-1500:]}" for run in runs)
            raise AssertionError(f"{len(missing)} of {expected} are missing: {missing[:20]}\n{said}") from None

    def assert_order(self, *runs):
        """In each partition a run may go back, and may only skip numbers that another one has received."""
        places = {run: [(event["partition"], event["offset"]) for event in run.lines()] for run in runs}
        for run in runs:
            others = set().union(*(places[other] for other in runs if other is not run))
            next_offset = {}
            for partition, offset in places[run]:
                left_out = {(partition, skipped) for skipped in range(next_offset.get(partition, offset), offset)}
                self.assertLessEqual(left_out, others, f"{run.out_path}: partition {partition} has a gap before {offset}")
                next_offset[partition] = max(next_offset.get(partition, 0), offset + 1)

    def assert_key_order(self, events, count):
        """When a number arrives for the first time, all earlier ones of its key have arrived."""
        last = {}
        for event in sorted(events, key=lambda event: (event["partition"], event["offset"])):
            number, key = event["value"], event["key"]
            self.assertLessEqual(number, last.get(key, int(key[1:]) - 13) + 13, f"{key} has a gap before {number}")
            last[key] = max(last.get(key, number), number)
        self.assertEqual(sum(1 for _ in set(event["value"] for event in events)), count)


class ParameterTests(KafkaTest):
    def test_errors_name_the_parameter(self):
        source = {"topics": ["t"], "group": "g", "brokers": ["127.0.0.1:1"]}
        for parameters, expected in [
            ({**source, "brokers": []}, "'brokers': needs a broker"),
            ({**source, "brokers": ["a", "host:70000"]}, "'brokers.1': the port must be a number from 1 to 65535"),
            ({**source, "topics": []}, "'topics': needs a topic"),
            ({**source, "group": ""}, "'group': must not be empty"),
            ({**source, "buffer": "1KiB"}, "'buffer': must be 1MiB to 1GiB"),
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

    def test_the_smallest_and_the_largest_buffer_are_accepted(self):
        self.brokers = [f"127.0.0.1:{free_port()}"]
        for buffer in ["1MiB", "1GiB"]:
            run = self.read(buffer, buffer=buffer)
            wait_for(lambda: "connections are down" in run.errors() or run.process.poll() is not None, "a start")
            self.assertEqual(run.end(), 0, run.errors())

    def test_a_broker_that_is_not_there_is_reported_once_without_the_password(self):
        self.brokers = [f"127.0.0.1:{free_port()}"]
        run = self.read(mechanism="PLAIN", user="me", password=PASSWORD)
        wait_for(lambda: "connections are down" in run.errors(), "the report")
        run.end()
        self.assertEqual(run.errors().count("warning"), 1, run.errors())
        self.assertNotIn(PASSWORD, run.errors())


class SourceTests(KafkaTest):
    def test_messages_of_every_odd_kind(self):
        self.start_cluster(1)
        self.command("odd t")
        run = self.read(decode="text")
        wait_for(lambda: run.count() >= 7, "seven events", PATIENCE)
        events = run.lines()
        self.assertEqual([(event.get("key"), event["value"]) for event in events[:4]],
                         [(None, "no key"), ("", "empty key"), ("tombstone", None), ("empty value", "")])
        self.assertNotIn("key", events[0])
        self.assertEqual([events[4]["key"], events[4]["value"]], ["hex:fffe", "hex:ff00"])  # bytes, as the host shows them
        self.assertIn("timestamp", events[0])
        self.assertEqual(events[5]["headers"], {"a": "2", "b": "3", "none": None, "empty": ""})
        self.assertEqual(events[6]["headers"], {f"h{n}": "x" for n in range(200)})

    def test_events_that_fail_come_again_although_seeks_fail(self):
        self.start_cluster()
        self.fill(0, 2000)
        first = self.read("first", "fail 2", {"preload": FAULTS, "KAFKA_FAILED_SEEKS": "1000", "CREDIT": "1000"})
        wait_for(lambda: "failedSeeks" in first.errors(), "a seek that fails", PATIENCE)
        # Later events must not be committed: they are after the failed one.
        for n in range(2000, 3000, 100):
            self.fill(n, 100)
        failures = first.errors().count("failedSeeks")
        wait_for(lambda: first.errors().count("failedSeeks") > failures + 5 or first.count() > 2500, "what is read now", PATIENCE)
        self.assertEqual(first.end(), 0, first.errors())
        second = self.read("second")
        self.wait_for_all(3000, first, second)
        second.end()
        self.assert_nothing_lost(range(3000), self.numbers(first, second), "failed events and seeks")

    def test_start_new_goes_on_where_it_began(self):
        self.start_cluster()
        self.fill(0, 100)
        first = self.read("first", start="new")
        # Its start is not observable: numbers are sent until one arrives.
        sent = 100

        def has_come():
            nonlocal sent
            self.fill(sent, 1)
            sent += 1
            return first.count() > 0

        wait_for(has_come, "a number that was sent meanwhile", PATIENCE)
        self.assertGreaterEqual(min(self.numbers(first)), 100)
        begin = min(self.numbers(first))
        # The start positions of the partitions, including those that received no number.
        self.command("committed g t 4")
        first.end(signal.SIGKILL)
        self.fill(sent, 100)
        second = self.read("second", start="new")
        self.wait_for_all(sent + 100 - begin, first, second)
        second.end()
        # A lower number of another partition may come after the first one.
        self.assertLessEqual(set(range(begin, sent + 100)), set(self.numbers(first, second)))

    def test_topics_may_come_later(self):
        self.start_cluster(topic="other")
        run = self.read(topics=["^late.*"], options={"topic.metadata.refresh.interval.ms": 300})
        wait_for(lambda: run.process.poll() is not None or "UNKNOWN" in run.errors() or run.errors() == "", "a start")
        self.command("topic late1 2")
        self.fill(0, 100, topic="late1")
        self.wait_for_all(100, run)
        run.end()

    def test_what_is_no_json_is_rejected_in_its_place(self):
        self.start_cluster(1)
        self.write(["1", "no JSON", "", "2"]).process.wait(PATIENCE)
        run = self.read()
        wait_for(lambda: run.count() >= 4, "four", PATIENCE)
        run.end()
        self.assertEqual([line.get("reason", line.get("value")) for line in run.lines()],
                         [1, "the value is not a JSON document", "", 2])


class LagTests(KafkaTest):
    def wait_for_lags(self, run, expected):
        wait_for(lambda: lags(run.gauges()) == expected, lambda: f"{expected}, not {run.gauges()}", PATIENCE)

    def test_the_lag_of_each_partition_is_what_was_not_taken(self):
        """Including what the source has read ahead, and after a start at the end of a partition."""
        self.start_cluster(1)
        self.fill(0, 40, 100000)
        run = self.read("run", 1500, {"CREDIT": "12"})
        wait_for(lambda: run.count() == 40, "all", PATIENCE)
        self.wait_for_lags(run, {"t/0": 0})
        values = lag_values(run)
        self.assertEqual(values, sorted(values, reverse=True))
        # Two batches of 11 messages (1 MiB) at most had been accepted when it was reported first.
        self.assertGreater(values[0], 40 - 23)
        self.assertEqual(run.end(), 0, run.errors())  # commits
        again = self.read("again")
        self.wait_for_lags(again, {"t/0": 0})
        self.assertEqual(again.count(), 0)

    def test_the_lag_of_a_paused_partition_grows(self):
        self.start_cluster(1)
        self.fill(0, 30, 100000)
        run = self.read("run", 30000, {"CREDIT": "12"}, buffer="1MiB")  # the first round takes 30 s
        time.sleep(16)  # it joins the group, fills its queue and pauses, without a fetch later on
        self.fill(30, 500)
        wait_for(lambda: lag_values(run), "the end of the first round", PATIENCE)
        # One batch of 11 messages at most had been accepted when its values were reported.
        self.assertGreaterEqual(max(lag_values(run)), 530 - 11)
        self.assertIn("count: pauses", run.errors())

    def test_the_lag_counts_what_is_read_again(self):
        self.start_cluster(1)
        self.fill(0, 100)
        failing = self.read("failing", "fail 1", {"CREDIT": "100"})
        wait_for(lambda: "count: rewinds" in failing.errors(), "a rewind", PATIENCE)
        wait_for(lambda: 100 in lag_values(failing), "a lag of all", PATIENCE)

    def test_the_lag_of_a_partition_that_was_revoked_goes_away(self):
        self.start_cluster(4)
        self.fill(0, 200)
        all_of_them = {f"t/{n}": 0 for n in range(4)}
        first = self.read("first")
        self.wait_for_lags(first, all_of_them)
        second = self.read("second")
        wait_for(lambda: len(first.gauges()) == 2 and len(second.gauges()) == 2, "two partitions each", PATIENCE)
        self.assertEqual({**lags(first.gauges()), **lags(second.gauges())}, all_of_them)
        second.end()
        self.wait_for_lags(first, all_of_them)

    def test_rxd_shows_the_lag(self):
        self.start_cluster(2)
        self.fill(0, 50)
        self.reader("first")
        wait_for(lambda: self.shown_gauges("first") == {("lag", "t/0"): 0, ("lag", "t/1"): 0}, "the metrics", PATIENCE)


def lags(gauges):
    return {of: value for (name, of), value in gauges.items() if name == "lag"}


def lag_values(run):
    """All that were ever reported."""
    return [float(line.split()[-1]) for line in run.errors().splitlines() if line.startswith("gauge: lag") and not line.endswith("none")]


class NameTests(KafkaTest):
    def test_each_read_of_a_message_gives_it_the_same_name(self):
        self.start_cluster(2)
        self.fill(0, 100)
        runs = [self.read(name, environment={"NAMES": "1"}, group=name) for name in ["a", "b"]]
        wait_for(lambda: all(run.count() >= 100 for run in runs), "both", PATIENCE)
        names = [{line["event"]["value"]: line["name"] for line in run.lines()} for run in runs]
        self.assertEqual(names[0], names[1])
        self.assertEqual(len(set(names[0].values())), 100)
        for line in runs[0].lines():
            event = line["event"]
            self.assertEqual(line["name"], f"t/{event['partition']}/{event['offset']}")

    def test_a_message_that_comes_again_after_a_kill_has_the_same_id(self):
        """The sink cannot deliver, so in light delivery nothing is committed."""
        self.start_cluster(1)
        self.fill(0, 20)
        text = f"""name: reader
delivery: light
plugins: {{ kafka: PLUGIN }}
sources:
  in: {{ kafka: {{ topics: t, group: g, decode: json, brokers: {json.dumps(self.brokers)}, options: {json.dumps(QUICK)} }} }}
signals:
  ids: {{ from: in, chain: [ {{ map: "{{'id': meta.id, 'value': event.value}}" }} ] }}
sinks:
  out: {{ from: ids, stdout: {{ encode: json }} }}
  held: {{ from: ids, tcp: {{ address: '127.0.0.1:{free_port()}', encode: json }} }}
"""
        seen = []
        for name in ["first", "second"]:
            run = self.pipeline(text, name)
            wait_for(lambda: run.count() >= 20, "all", PATIENCE)
            run.end(signal.SIGKILL)
            seen.append({line["value"]: line["id"] for line in run.lines()})
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0][7], "in/kafka:t/0/7")


class PauseTests(KafkaTest):
    def test_a_source_that_is_held_up_pauses_and_stays_in_the_group(self):
        self.start_cluster(16)
        self.fill(0, 120, 100000)  # the cluster keeps 5 MB of a partition
        held = self.read("held", 1600, {"CREDIT": "12"}, buffer="2MiB", options={"max.poll.interval.ms": 3800})
        wait_for(lambda: held.count() >= 36, "three rounds", PATIENCE)
        with open(f"/proc/{held.process.pid}/status") as file:
            memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        print(f"\n    held up: {memory // 1024} MiB while 12 MB wait")
        self.assertIn("count: pauses", held.errors())
        self.assertEqual(held.errors().count("count: rebalances"), 1, held.errors())
        held.end()
        fast = self.read("fast", buffer="2MiB")
        self.wait_for_all(120, held, fast)
        self.assert_order(held, fast)
        fast.end()

    def test_paused_partitions_that_come_back_are_read(self):
        """A pauses; B joins and takes over partitions, and returns them."""
        self.start_cluster(8)
        cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
        self.fill(0, 120, 50000)
        a = self.read("a", 1200, {"CREDIT": "24"}, buffer="1MiB", options=cooperative)
        wait_for(lambda: "count: pauses" in a.errors(), "a pause", PATIENCE)
        b = self.read("b", 1200, {"CREDIT": "24"}, buffer="1MiB", options=cooperative)
        wait_for(lambda: b.count() > 0, "the second member", PATIENCE)
        b.end()
        self.fill(120, 40, 50000)
        self.wait_for_all(160, a, b)
        self.assert_order(a, b)
        a.end()

    def test_a_stop_does_not_wait_for_dead_brokers(self):
        self.start_cluster()
        self.fill(0, 1000)
        run = self.read(more=50)
        wait_for(lambda: run.count() >= 1000, "all", PATIENCE)
        self.command("down")
        begin = time.monotonic()
        self.assertEqual(run.end(), 0, run.errors())
        took = time.monotonic() - begin
        print(f"\n    a stop with dead brokers: {took:.1f} s")
        self.assertLess(took, 12)


class SinkTests(KafkaTest):
    def read_back(self, count, **parameters):
        source = self.read("read-back", group="back", **parameters)
        wait_for(lambda: source.count() >= count, f"{count} messages", PATIENCE)
        source.end()
        return source.lines()

    def test_only_the_message_that_is_too_large_is_refused(self):
        self.start_cluster()
        sink = self.write(["x" * (5000 if n == 3 else 10) for n in range(6)], options={"message.max.bytes": 2000})
        sink.process.wait(PATIENCE)
        self.assertIn("too large", sink.errors())
        self.assertIn("delivered 5, refused 1", sink.errors())
        self.read_back(5, decode="text")

    def judge_singly(self, errors, refused):
        """The first `errors` requests are refused as too large: the one with all messages, then the single ones."""
        self.start_cluster(1)
        self.command(f"errors {PRODUCE} {errors} {TOO_LARGE}")
        sink = self.write([{"key": "k", "n": n} for n in range(20)], key="{{ event.key }}", value="{{ event.n }}", linger="500ms")
        sink.process.wait(PATIENCE)
        self.assertIn(f"delivered {20 - refused}, refused {refused}", sink.errors())
        self.assertEqual([event["value"] for event in self.read_back(20 - refused)], list(range(refused, 20)))

    def test_messages_of_a_request_that_is_too_large_are_sent_singly(self):
        self.judge_singly(1, 0)

    def test_only_the_message_of_such_a_request_that_is_too_large_is_refused(self):
        self.judge_singly(2, 1)

    def test_messages_for_a_topic_that_is_not_there_are_refused(self):
        self.start_cluster()
        self.command("unknown gone")
        sink = self.write([{"topic": topic} for topic in ["t", "gone", "t"]], topic="{{ event.topic }}", value="1", timeout="4s")
        sink.process.wait(PATIENCE)
        self.assertIn("delivered 2, refused 1", sink.errors())

    def test_values_and_tombstones(self):
        self.start_cluster(1)
        sink = self.write([{"v": "a", "gone": False}, {"v": "", "gone": None}, {"v": "b", "gone": True}, {"v": "c", "gone": 1}],
                          key="k", value="{{ event.v }}", retracted="event.gone")
        sink.process.wait(PATIENCE)
        self.assertIn("delivered 3, refused 1", sink.errors())
        self.assertIn("'retracted' must be true, false or null", sink.errors())
        self.assertEqual([event["value"] for event in self.read_back(3, decode="text")], ["a", "", None])

    def test_what_other_brokers_have_is_not_sent_again_while_one_is_down(self):
        self.start_cluster(3)
        for partition in range(3):
            self.command(f"leader t {partition} {partition + 1}")
        self.command("down 2")
        events = [{"key": f"k{n % 13}", "n": n} for n in range(500)]
        sink = self.write(events, key="{{ event.key }}", value="{{ event.n }}", timeout="1s")
        source = self.read("back", group="back")
        wait_for(lambda: source.count() > 100, "what the other brokers take", PATIENCE)
        time.sleep(6)  # several attempts of a second, with pauses between them
        self.assertIsNone(sink.process.poll(), "the third broker was not needed")
        self.command("up 2")
        self.assertEqual(sink.process.wait(PATIENCE), 0, sink.errors())
        self.wait_for_all(500, source)
        source.end()
        self.assert_key_order(source.lines(), 500)
        self.assert_nothing_lost(range(500), self.numbers(source), "sink, one of three brokers down")
        self.assertEqual(source.count(), 500)

    def test_the_order_of_keys_is_kept_while_brokers_are_down(self):
        self.start_cluster()
        given = {"brokers": self.brokers, "topic": "t", "key": "{{ event.key }}", "value": "{{ event.n }}", "timeout": "1s"}
        sink = self.start([*RUNNER, self.plugin, "sink", "kafka", json.dumps(given)], "sink", stdin=subprocess.PIPE,
                          environment=SANITIZERS)
        count, sent = 4 * COUNT, 0

        def send():
            nonlocal sent
            with sink.process.stdin as pipe:
                for sent in range(count):
                    pipe.write(json.dumps({"key": f"k{sent % 13}", "n": sent}).encode() + b"\n")

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        for turn, pause in enumerate([0.1, 1.5, 0.4]):  # shorter and longer than `timeout`
            wait_for(lambda: sent > (1 + turn) * COUNT, "some messages", PATIENCE)
            self.command("down")
            time.sleep(pause)
            self.command("up")
        sender.join(PATIENCE)
        self.assertEqual(sink.process.wait(PATIENCE), 0, sink.errors())
        source = self.read("back", group="back")
        self.wait_for_all(count, source)
        source.end()
        self.assert_key_order(source.lines(), count)
        self.assert_nothing_lost(range(count), self.numbers(source), "sink, brokers down three times")


class MemberTests(KafkaTest):
    """Whole pipelines in rxd, in a group."""

    def join_and_leave(self, delivery):
        """A second member joins while the first one reads; then the first one leaves."""
        self.start_cluster()
        self.fill(0, COUNT)
        first = self.reader("first", delivery=delivery)
        wait_for(lambda: first.count() >= 1, "the first", PATIENCE)
        second = self.reader("second", delivery=delivery)
        expected = COUNT

        def has_its_share():
            nonlocal expected
            self.fill(expected, COUNT // 25)
            expected += COUNT // 25
            return second.count() > 0

        wait_for(has_its_share, "the second member to get something", PATIENCE)
        self.assertEqual(first.end(), 0, first.errors())
        self.fill(expected, COUNT)
        return first, second, expected + COUNT

    def judge(self, expected, label, *runs):
        self.wait_for_all(expected, *runs)
        self.assert_order(*runs)
        self.assert_nothing_lost(range(expected), self.numbers(*runs), label)

    def test_nothing_is_lost_when_a_second_member_joins_and_the_first_one_comes_back(self):
        first, second, expected = self.join_and_leave("durable")
        self.wait_for_number(expected - 1, second)
        self.judge(expected, "two members", first, second, self.reader("again", "first"))

    def test_a_member_that_leaves_for_good_keeps_nothing_in_light_delivery(self):
        first, second, expected = self.join_and_leave("light")
        self.judge(expected, "two members, light", first, second)

    def test_what_a_stopped_member_has_taken_waits_for_its_next_start(self):
        """It has a second sink, which cannot deliver anything until then."""
        self.start_cluster()
        self.fill(0, COUNT)
        port = free_port()
        more = f"  held: {{ from: in, tcp: {{ address: '127.0.0.1:{port}', encode: json }} }}\n"
        first = self.reader("first", more=more)
        wait_for(lambda: first.count() >= 1, "the first", PATIENCE)
        self.assertEqual(first.end(), 0, first.errors())
        self.fill(COUNT, 10)
        second = self.reader("second")
        self.wait_for_number(COUNT + 9, second)
        held = self.start([sys.executable, "-c", RECEIVER, str(port)], "held")
        self.reader("again", "first", more=more)
        self.judge(COUNT + 10, "a stopped member", held, second)
        # The group had continued after the events that the first one had received.
        self.assertNotIn(self.numbers(first)[0], self.numbers(second))

    def test_after_a_fatal_error_a_new_client_goes_on(self):
        self.start_cluster()
        self.fill(0, COUNT)
        text = f"""plugins: {{ kafka: PLUGIN }}
sources:
  in: {{ kafka: {{ topics: t, group: g, decode: json, brokers: {json.dumps(self.brokers)},
               options: {json.dumps({**QUICK, "group.instance.id": "one"})} }} }}
signals:
  again: {{ from: in, chain: [ retry: {{ delay: 200ms }} ] }}
sinks:
  out: {{ from: again, stdout: {{ encode: json }} }}
"""
        run = self.pipeline(text, "fatal", ["--stats"])
        self.wait_for_all(COUNT, run)
        self.command(f"errors {HEARTBEAT} 1 {FENCED}")
        self.fill(COUNT, COUNT)
        wait_for(lambda: "fenced" in run.errors(), "the first client to fail", PATIENCE)
        self.fill(2 * COUNT, COUNT)
        self.wait_for_all(3 * COUNT, run)
        run.end()
        self.assert_nothing_lost(range(3 * COUNT), self.numbers(run), "fatal error")


class PipelineTests(KafkaTest):
    """Whole pipelines in rxd."""

    def test_everything_comes_once_in_order_and_a_stop_commits(self):
        self.start_cluster()
        self.fill(0, COUNT)
        first = self.reader("first")
        self.wait_for_all(COUNT, first)
        self.assertEqual(first.end(), 0)
        self.fill(COUNT, 10)
        second = self.reader("second")
        self.wait_for_all(COUNT + 10, first, second)
        second.end()
        self.assert_order(first, second)
        self.assertEqual(sorted(self.numbers(first, second)), list(range(COUNT + 10)))

    def test_nothing_is_lost_by_kills_and_dead_brokers(self):
        self.start_cluster()
        runs = []
        for turn in range(3):
            self.fill(COUNT * turn, COUNT)
            runs.append(self.reader(f"run{turn}", "run0"))
            wait_for(lambda: runs[-1].count() > COUNT // 10, "a part", PATIENCE)
            if turn == 1:
                self.command("down")
                wait_for(lambda: "connections are down" in runs[-1].errors(), "the report", PATIENCE)
                self.command("up")
                self.fill(COUNT * 3, COUNT)
            runs[-1].end(signal.SIGKILL)
        runs.append(self.reader("last", "run0"))
        self.wait_for_all(4 * COUNT, *runs)
        runs[-1].end()
        self.assert_order(*runs)
        self.assert_nothing_lost(range(4 * COUNT), self.numbers(*runs), "three kills, brokers down")

    def test_the_example_works(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        example = os.path.join(ROOT, "pipelines", "orders.yaml")
        tested = subprocess.run([RXD, "test", example], capture_output=True, text=True, timeout=PATIENCE, env=WITH_SANITIZERS)
        self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)
        self.start_cluster(topic="orders")
        self.command("topic large-orders 2")
        orders = self.write([{"id": n, "customer": f"c{n % 3}", "amount": n * 100} for n in range(20)], topic="orders")
        orders.process.wait(PATIENCE)
        rxd = self.start([RXD, "run", example, "--state-dir", self.path("state")], "rxd",
                         environment={"KAFKA": self.brokers[0], "REFUSED": self.path("refused.ndjson")})
        large = self.read("large", topics=["large-orders"], group="large")
        self.assertTrue(wait_for(lambda: large.count() >= 10, "the large orders", PATIENCE))
        self.assertEqual(sorted(event["value"]["id"] for event in large.lines()), list(range(10, 20)))
        self.assertEqual(rxd.end(), 0, rxd.errors())


if __name__ == "__main__":
    unittest.main()
