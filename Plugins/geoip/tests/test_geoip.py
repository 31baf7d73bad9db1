"""Tests of the plugin on databases that mmdb_writer makes, beside Python's maxminddb; in rxd if RXD names it."""
import ipaddress
import json
import os
import random
import re
import shutil
import sys
import threading
import unittest

import maxminddb
import netaddr
from mmdb_writer import MMDBWriter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from plugin_test import PluginTest, wait_for  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "geoip.so"))
SEED = int(os.environ.get("SEED", "20261130"))
RECORDS = {
    "192.0.2.0/24": {"country": {"iso_code": "DE", "names": {"en": "Germany", "de": "Deutschland"}}, "location": {"latitude": 52.5, "longitude": 13.4}, "list": [1, {"a": True}, "x"]},
    "198.51.100.0/25": {"country": {"iso_code": "FR"}, "wide": 2**70, "long": 2**64 - 1, "negative": -5, "none": []},
    "2001:db8::/32": {"country": {"iso_code": "JP", "names": {"ja": "日本"}}},
}


def write(path, records, ip_version=6):
    writer = MMDBWriter(ip_version, ipv4_compatible=ip_version == 6, database_type="Test", languages=["en"], int_type="auto")
    for network, record in records.items():
        writer.insert_network(netaddr.IPSet([network]), record)
    writer.to_db_file(path)


class GeoipTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.library = host.Plugin(PLUGIN)
        self.database = self.path("test.mmdb")
        write(self.database, RECORDS)

    def opened(self, kind, name, **parameters):
        instance = self.library.open(kind, name, **parameters)
        self.addCleanup(instance.close)
        return instance

    def step(self, **parameters):
        return self.opened("operator", "geoip", **{"database": self.database, **parameters})

    def found(self, step, address, into="geo"):
        answer = step.row_typed({"n": 1}, address)
        self.assertEqual(answer["status"], host.OK, answer["error"])
        self.assertEqual(answer["event"]["n"], 1)
        return answer["event"][into]


class LookupTests(GeoipTest):
    def test_records(self):
        step = self.step()
        for address, network in [("192.0.2.1", "192.0.2.0/24"), ("192.0.2.255:80", "192.0.2.0/24"), ("::ffff:192.0.2.1", "192.0.2.0/24"), ("2001:db8::1", "2001:db8::/32"),
                                 ("[2001:db8:ffff::1]:443", "2001:db8::/32"), ("[2001:db8::1]", "2001:db8::/32"), ("2001:db8::1%eth0", "2001:db8::/32")]:
            self.assertEqual(self.found(step, address), RECORDS[network], address)
        record = dict(RECORDS["198.51.100.0/25"])
        self.assertEqual(self.found(step, "198.51.100.127"), {**record, "wide": str(2**70)})
        for address in ["198.51.100.128", "203.0.113.1", "::1", None]:
            self.assertIsNone(self.found(step, address), address)

    def test_parts_of_records(self):
        for path, value in [("country.iso_code", "DE"), ("country.names", {"en": "Germany", "de": "Deutschland"}), ("list.1.a", True), ("list.2", "x"), ("location.latitude", 52.5),
                            ("country.none", None), ("none", None), ("list.7", None), ("country.iso_code.x", None), ("list.x", None)]:
            self.assertEqual(self.found(self.step(path=path, into="part"), "192.0.2.1", "part"), value, path)

    def test_what_is_no_address(self):
        step = self.step()
        for text in ["", "x", "1.2.3", "1.2.3.256", "1.2.3.4:", "1.2.3.4:123456", "1.2.3.4:x", "[::1", "[::1]x", "[::1]:", "localhost", "1.2.3.4\0", "1" * 1000, ":::", "01.2.3.4"]:
            answer = step.row_typed({}, text)
            self.assertEqual(answer["status"], host.FAILED, text)
            self.assertIn("is not an IP address", answer["error"])
        self.assertEqual(step.row_typed({}, 5)["error"], "the address is a whole number, and must be a text")
        self.assertEqual(step.row_typed(5, "192.0.2.1")["error"], "the event is a whole number, and must be an object")

    def test_refused_at_the_start(self):
        with open(self.path("text"), "w") as file:
            file.write("hello\n")
        open(self.path("empty"), "w").close()
        os.mkfifo(self.path("pipe"))
        for database, reason in [("none", "cannot open the database: No such file or directory"), ("text", "the file is not a database in MaxMind's format: "),
                                 ("empty", "the file is not a database in MaxMind's format: "), ("", "the database is not a file"), ("pipe", "the database is not a file")]:
            with self.assertRaises(host.Refused) as refused:
                self.step(database=self.path(database))
            self.assertEqual(refused.exception.at, "database")
            self.assertTrue(str(refused.exception).startswith(reason), refused.exception)
        for path in ["", ".", "a.", ".a", "a..b", ".".join("a" * 17)]:
            with self.assertRaises(host.Refused) as refused:
                self.step(path=path)
            self.assertEqual(refused.exception.at, "path")

    def test_a_database_of_ipv4(self):
        write(self.database, {"192.0.2.0/24": {"a": 1}}, 4)
        step = self.step()
        self.assertEqual(self.found(step, "192.0.2.1"), {"a": 1})
        self.assertIsNone(self.found(step, "2001:db8::1"))

    def test_the_function(self):
        function = self.opened("function", "lookup")

        def call(*arguments):
            return function.row_typed(None, *arguments)

        self.assertEqual(call("192.0.2.1", self.database, "country.iso_code")["event"], "DE")
        self.assertEqual(call("192.0.2.1", self.database, host.ABSENT)["event"], RECORDS["192.0.2.0/24"])
        self.assertIsNone(call(None, self.database, host.ABSENT)["event"])
        self.assertEqual(call("192.0.2.1", self.path("none"), host.ABSENT)["error"], "cannot open the database: No such file or directory")
        self.assertIn("names with full stops", call("192.0.2.1", self.database, "a..b")["error"])
        for index in range(15):
            shutil.copy(self.database, self.path(f"copy{index}"))
            self.assertEqual(call("192.0.2.1", self.path(f"copy{index}"), "country.iso_code")["event"], "DE")
        shutil.copy(self.database, self.path("more"))
        self.assertIn("16 databases already", call("192.0.2.1", self.path("more"), host.ABSENT)["error"])

    def test_the_same_as_maxminddb(self):
        rng = random.Random(SEED)
        records = {}
        for _ in range(500):
            network = ipaddress.ip_network((rng.getrandbits(32), rng.randint(8, 32)), strict=False) if rng.random() < 0.5 else ipaddress.ip_network((rng.getrandbits(128), rng.randint(16, 128)), strict=False)
            records[str(network)] = {"n": rng.getrandbits(rng.choice([1, 8, 16, 32, 64])), "t": "".join(rng.choices("abä漢", k=rng.randint(0, 300))), "d": rng.random(), "l": [rng.random() < 0.5] * rng.randint(0, 3)}
        write(self.database, records)
        step = self.step()
        seen = 0
        with maxminddb.open_database(self.database) as reader:
            networks = [ipaddress.ip_network(network) for network in records]
            for index in range(5000):
                network = rng.choice(networks)
                address = network[rng.randrange(network.num_addresses)] if index % 2 else ipaddress.ip_address(rng.getrandbits(32))
                expected = reader.get(address)
                seen += expected is not None
                self.assertEqual(self.found(step, str(address)), expected, address)
        self.assertGreater(seen, 2000)


class ReplacedTests(GeoipTest):
    def replace(self, country):
        write(self.path("new"), {"192.0.2.0/24": {"c": country}})
        os.rename(self.path("new"), self.database)

    def test_a_replaced_file_is_read(self):
        step, other = self.step(path="c", into="c"), self.opened("function", "lookup")
        for country in ["A", "B"]:
            self.replace(country)
            wait_for(lambda: self.found(step, "192.0.2.1", "c") == country, country, 5)
            self.assertEqual(other.row_typed(None, "192.0.2.1", self.database, "c")["event"], country)
        def is_refused(why):
            """The former database is used, and the log says so once."""
            said = {step: [], other: []}

            def is_said():
                self.assertEqual(self.found(step, "192.0.2.1", "c"), "B")
                self.assertEqual(other.row_typed(None, "192.0.2.1", self.database, "c")["event"], "B")
                for one, lines in said.items():
                    lines.extend(one.log())
                return all(said.values())
            wait_for(is_said, why, 5)
            for lines in said.values():
                self.assertRegex(lines[0], f"^warning '{re.escape(self.database)}' was replaced, and what was read before stays in use: {why}")
                self.assertEqual(len(lines), 1)

        self.assertEqual(step.log() + other.log(), [])
        with open(self.database, "r+b") as file:  # cut in place, as an interrupted copy leaves it
            file.truncate(100)
        is_refused("the (file is not a database|database was changed while it was read)")
        os.remove(self.database)
        is_refused("cannot open the database: No such file or directory")
        self.replace("C")
        wait_for(lambda: self.found(step, "192.0.2.1", "c") == "C", "C", 5)

    def test_no_look_up_sees_a_gap(self):
        """Threads look up while the file is replaced again and again: each gets one of the values, and each value comes."""
        self.replace(0)
        step = self.step(path="c", into="c")
        seen, ends, errors = set(), threading.Event(), []

        def look():
            while not ends.is_set():
                answer = step.row_typed({}, "192.0.2.1")
                if answer["status"] != host.OK or not isinstance(answer["event"]["c"], int):
                    errors.append(answer)
                else:
                    seen.add(answer["event"]["c"])

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for value in range(1, 4):
            self.replace(value)
            wait_for(lambda: value in seen, value, 5)
        ends.set()
        for thread in threads:
            thread.join()
        self.assertEqual(errors[:3], [])

    def test_nothing_is_left_open(self):
        def count():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        before = count()
        for _ in range(20):
            instances = [self.library.open("operator", "geoip", database=self.database) for _ in range(3)]
            for instance in instances:
                instance.close()
        self.assertEqual(count(), before)


class HostileTests(GeoipTest):
    def test_damaged_databases(self):
        """A database with changed or missing bytes is refused or read, and ends nothing."""
        rng = random.Random(SEED)
        with open(self.database, "rb") as file:
            good = file.read()
        opened = 0
        for index in range(1500):
            data = bytearray(good)
            if index % 3 == 0:
                del data[rng.randrange(len(data)):]
            for _ in range(rng.randint(1, 8)):
                if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
            with open(self.path("bad"), "wb") as file:
                file.write(data)
            try:
                step = self.library.open("operator", "geoip", database=self.path("bad"))
            except host.Refused:
                continue
            opened += 1
            for address in ["192.0.2.1", "198.51.100.1", "2001:db8::1", "1.1.1.1"]:
                try:
                    answer = step.row_typed({}, address)
                    self.assertTrue(answer["status"] == host.OK or answer["error"])
                except UnicodeDecodeError:
                    pass  # the test host prints texts as they are; rxd replaces what is not UTF-8
            step.close()
        self.assertGreater(opened, 100)


class PipelineTests(GeoipTest):
    def test_lines_with_countries(self):
        with open(os.path.join(ROOT, "pipelines", "visitors.yaml")) as file:
            text = file.read()
        with open(self.path("access.log"), "w") as file:
            for address in ["192.0.2.7", "203.0.113.1", "2001:db8::7"]:
                file.write(f'{address} - - [01/Mar/2026:10:00:05 +0100] "GET /a HTTP/1.1" 200 512 "-" "curl/8"\n')
        text = text.replace("../geoip.so", "PLUGIN").replace("${ACCESS:-access.log}", self.path("access.log")).replace("${DATABASE:-GeoLite2-Country.mmdb}", self.database)
        run = self.pipeline(text)
        self.assertEqual(run.process.wait(30), 0, run.errors())
        self.assertEqual([event["country"] for event in run.lines()], ["DE", None, "JP"])

    def test_the_function_in_an_expression(self):
        with open(self.path("in"), "w") as file:
            file.writelines(json.dumps({"ip": address}) + "\n" for address in ["192.0.2.1", "203.0.113.1", "x"])
        run = self.pipeline(f"""
plugins: {{ geoip: PLUGIN }}
sources: {{ in: {{ file: {{ path: {self.path('in')}, decode: json }} }} }}
sinks: {{ out: {{ from: in, chain: [ {{ map: "{{'at': geoip.lookup(event.ip, '{self.database}', 'country.iso_code')}}" }} ], stdout: {{ encode: ndjson }} }} }}
""")
        run.process.wait(30)
        self.assertEqual(run.lines(), [{"at": "DE"}, {"at": None}])
        self.assertIn('"rejected":1', run.errors())

    def test_a_missing_database_is_located(self):
        run = self.pipeline(f"""plugins: {{ geoip: PLUGIN }}
sources: {{ in: {{ values: [ {{ ip: 192.0.2.1 }} ] }} }}
sinks:
  out:
    from: in
    chain:
      - geoip: {{ address: event.ip, database: {self.path('none')} }}
    stdout: {{ encode: ndjson }}
""")
        self.assertNotEqual(run.process.wait(30), 0)
        self.assertIn("cannot open the database", run.errors())
        self.assertRegex(run.errors(), r"pipeline\.yaml:7:|\"line\":7")


if __name__ == "__main__":
    unittest.main()
