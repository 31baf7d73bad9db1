"""Tests of the plugin against a real collectd, and of hostile input; in rxd if RXD names it."""
import hashlib
import hmac
import json
import os
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from plugin_test import RXD, PluginTest, free_port, wait_for  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "collectd.so"))
COUNT, SEED = int(os.environ.get("COUNT", "2000")), int(os.environ.get("SEED", "20261130"))
FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
HOST, TIME, PLUGIN_NAME, PLUGIN_INSTANCE, TYPE, TYPE_INSTANCE, VALUES, INTERVAL, TIME_HIGH, INTERVAL_HIGH = range(10)
MESSAGE, SEVERITY, SIGNATURE, ENCRYPTED = 0x100, 0x101, 0x200, 0x210
KINDS = ["counter", "gauge", "derive", "absolute"]
COLLECTD = shutil.which("collectd", path=os.environ.get("PATH", "") + ":/usr/sbin")
TYPES = """# names of values
load  shortterm:GAUGE:0:5000, midterm:GAUGE:0:5000, longterm:GAUGE:0:5000
gauge value:GAUGE:U:U
if_octets\trx:DERIVE:0:U,tx:DERIVE:0:U

mixed a:COUNTER:U:U b:GAUGE:U:U c:DERIVE:U:U d:ABSOLUTE:U:U
"""


# A writer of packets that is not the plugin's.

def part(kind, body):
    return struct.pack(">HH", kind, len(body) + 4) + body


def text(kind, value):
    return part(kind, value.encode() + b"\0")


def number(kind, value):
    return part(kind, struct.pack(">Q", value))


def values(*given):
    """Each a kind and a value."""
    return part(VALUES, struct.pack(">H", len(given)) + bytes(KINDS.index(kind) for kind, _ in given) + b"".join(
        struct.pack({"gauge": "<d", "derive": ">q"}.get(kind, ">Q"), value) for kind, value in given))


def high(nanoseconds):
    """Nanoseconds as 2^-30 seconds."""
    return (nanoseconds << 30) // 10**9


NOW = 1764400000_250000000
HEAD = text(HOST, "web1") + number(TIME_HIGH, high(NOW)) + number(INTERVAL_HIGH, high(10_500000000))
PLAIN = HEAD + text(PLUGIN_NAME, "load") + text(TYPE, "load") + values(("gauge", 0.5), ("gauge", 1.25), ("gauge", 2.0))
COMMON = {"host": "web1", "plugin": "load", "plugin_instance": "", "type": "load", "type_instance": "", "time": {"$timestamp": NOW}}
EVENT = {**COMMON, "interval": {"$duration": 10_500000000}, "values": {"shortterm": 0.5, "midterm": 1.25, "longterm": 2.0},
         "kinds": {"shortterm": "gauge", "midterm": "gauge", "longterm": "gauge"}}
NOTIFICATION = HEAD + text(PLUGIN_NAME, "df") + text(PLUGIN_INSTANCE, "root") + text(TYPE, "percent") + text(TYPE_INSTANCE, "used") + number(
    SEVERITY, 1) + text(MESSAGE, "disk füll")


def signed(packet, user="rxd", password="secret"):
    return part(SIGNATURE, hmac.digest(password.encode(), user.encode() + packet, "sha256") + user.encode()) + packet


def encrypted(packet, user="rxd", password="secret", checksum=None):
    vector = bytes(range(16))
    plain = (checksum or hashlib.sha1(packet).digest()) + packet
    hidden = subprocess.run(["openssl", "enc", "-aes-256-ofb", "-K", hashlib.sha256(password.encode()).hexdigest(), "-iv", vector.hex()],
                            input=plain, capture_output=True, check=True, env={**os.environ, "LD_PRELOAD": ""}).stdout
    return part(ENCRYPTED, struct.pack(">H", len(user.encode())) + user.encode() + vector + hidden)


class CollectdTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.library = host.Plugin(PLUGIN)
        self.rng = random.Random(SEED)
        self.types = self.write("types.db", TYPES)
        self.users = self.write("users", "# users\nrxd: secret\n\n other:\tpass: word \n")
        self.decoder = self.opened(types=self.types)

    def write(self, name, content):
        with open(self.path(name), "w") as file:
            file.write(content)
        return self.path(name)

    def opened(self, **parameters):
        instance = self.library.open("decoder", "collectd", **parameters)
        self.addCleanup(instance.close)
        return instance

    def decoded(self, data, instance=None):
        answer = (instance or self.decoder).row_of_bytes(data)
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {data[:200].hex()}")
        return answer["event"]

    def refusal(self, data, instance=None):
        answer = (instance or self.decoder).row_of_bytes(data)
        self.assertEqual(answer["status"], host.FAILED, f"{data[:200].hex()} is {str(answer['event'])[:200]}")
        return answer["error"]


class DecoderTests(CollectdTest):
    def test_values_and_notifications(self):
        self.assertEqual(self.decoded(PLAIN), [EVENT])
        self.assertEqual(self.decoded(b""), [])
        self.assertEqual(self.decoded(NOTIFICATION), [{**COMMON, "plugin": "df", "plugin_instance": "root", "type": "percent", "type_instance": "used",
                                                      "severity": "failure", "message": "disk füll"}])
        for severity, name in [(2, "warning"), (4, "okay")]:
            self.assertEqual(self.decoded(HEAD + number(SEVERITY, severity) + text(MESSAGE, ""))[0]["severity"], name)

    def test_parts_hold_until_they_are_replaced(self):
        packet = PLAIN + text(PLUGIN_NAME, "interface") + text(PLUGIN_INSTANCE, "eth0") + text(TYPE, "if_octets") + values(("derive", 1), ("derive", -2))
        packet += text(PLUGIN_INSTANCE, "eth1") + values(("derive", 2**63 - 1), ("derive", -2**63)) + number(TIME, 5) + number(INTERVAL, 1) + text(PLUGIN_INSTANCE, "")
        packet += text(HOST, "web2") + values(("derive", 3), ("derive", 4))
        kinds = {"rx": "derive", "tx": "derive"}
        base = {**EVENT, "plugin": "interface", "type": "if_octets", "kinds": kinds}
        self.assertEqual(self.decoded(packet), [
            EVENT, {**base, "plugin_instance": "eth0", "values": {"rx": 1, "tx": -2}}, {**base, "plugin_instance": "eth1", "values": {"rx": 2**63 - 1, "tx": -2**63}},
            {**base, "host": "web2", "time": {"$timestamp": 5_000000000}, "interval": {"$duration": 1_000000000}, "values": {"rx": 3, "tx": 4}}])

    def test_kinds_of_values(self):
        event, = self.decoded(HEAD + text(PLUGIN_NAME, "p") + text(TYPE, "mixed") + values(("counter", 2**64 - 1), ("gauge", float("nan")), ("derive", -1), ("absolute", 2**63)))
        self.assertEqual(event["values"], {"a": 2**64 - 1, "b": None, "c": -1, "d": 2**63})
        self.assertEqual(event["kinds"], {"a": "counter", "b": "gauge", "c": "derive", "d": "absolute"})
        for given in [float("inf"), float("-inf"), -0.0, 5e-324, 1.7976931348623157e308]:
            event, = self.decoded(HEAD + text(PLUGIN_NAME, "p") + text(TYPE, "gauge") + values(("gauge", given)))
            self.assertEqual(struct.pack("<d", event["values"]["value"]), struct.pack("<d", given))

    def test_names_of_values(self):
        def names(instance, kind, count):
            event, = self.decoded(HEAD + text(PLUGIN_NAME, "p") + text(TYPE, kind) + values(*[("gauge", 1.0)] * count), instance)
            self.assertEqual(list(event["kinds"]), list(event["values"]))
            return list(event["values"])
        self.assertEqual(names(self.decoder, "mixed", 4), ["a", "b", "c", "d"])
        self.assertEqual(names(self.decoder, "mixed", 3), ["0", "1", "2"])
        self.assertEqual(names(self.decoder, "mixed", 1), ["value"])
        self.assertEqual(names(self.decoder, "unheard", 2), ["0", "1"])
        self.assertEqual(names(self.decoder, "unheard", 7000), [str(index) for index in range(7000)])
        more = self.opened(types=[self.types, self.write("more.db", "load a:GAUGE:0:U,b:GAUGE:0:U\nunheard x:GAUGE:0:U y:gauge:0:U")])
        self.assertEqual((names(more, "load", 2), names(more, "unheard", 2), names(more, "mixed", 4)), (["a", "b"], ["x", "y"], ["a", "b", "c", "d"]))
        many = self.opened(types=self.write("many.db", "".join(f"t{index} v{index}:GAUGE:U:U\n" for index in range(5000))))
        self.assertEqual([names(many, f"t{index}", 1) for index in (0, 1, 777, 4999)], [["v0"], ["v1"], ["v777"], ["v4999"]])
        self.assertEqual(names(self.opened(types=[]), "load", 3), ["0", "1", "2"])

    def test_times_are_exact(self):
        for given, expected in [(1 << 30, 10**9), ((1 << 30) + 1, 10**9 + 1), ((1 << 31) - 1, 2 * 10**9 - 1), (high(NOW) + 1, NOW + 1), ((9223372036 << 30), 9223372036 * 10**9)]:
            event, = self.decoded(PLAIN.replace(number(TIME_HIGH, high(NOW)), number(TIME_HIGH, given)))
            self.assertEqual(event["time"], {"$timestamp": expected})
        plain, = self.decoded(PLAIN.replace(HEAD, text(HOST, "web1")))
        self.assertEqual(plain, {name: value for name, value in EVENT.items() if name not in ("time", "interval")})

    def test_what_the_protocol_allows(self):
        self.assertEqual(self.decoded(PLAIN.replace(HEAD, HEAD + part(0x7777, b"") + part(0xffff, b"anything"))), [EVENT])
        event, = self.decoded(PLAIN.replace(b"web1", b"\xffeb1"))
        self.assertEqual(event["host"], "\ufffdeb1")

    def test_refusals_have_a_place(self):
        at, value = len(PLAIN), values(("gauge", 1.0))
        for data, reason in [
                (b"\0", "byte 0: the packet ends within the head of a part"), (PLAIN + b"\0\0\0", f"byte {at}: the packet ends within the head of a part"),
                (PLAIN + b"\0\0\0\3", f"byte {at}: a part claims a length of 3 bytes, and its head alone has 4"),
                (PLAIN + b"\0\0\xff\xff\0", f"byte {at}: a part claims 65535 bytes, and the packet has 5 more"),
                (part(HOST, b""), "byte 0: the host does not end with a zero byte"), (part(TYPE_INSTANCE, b"abc"), "byte 0: the type_instance does not end with a zero byte"),
                (text(HOST, "h" * 255) + text(PLUGIN_INSTANCE, "p" * 256), "byte 260: the plugin_instance has 256 bytes, and may have 255"),
                (part(PLUGIN_NAME, b"a\0b\0"), "byte 0: the plugin has a zero byte before its end"), (part(TIME, b"1234567"), "byte 0: a number has 7 bytes, and must have 8"),
                (number(TIME, 2**63), "byte 0: the time is not between 1677-09-21 and 2262-04-11"),
                (number(TIME_HIGH, 2**64 - 1), "byte 0: the time is not between 1677-09-21 and 2262-04-11"),
                (number(INTERVAL_HIGH, 2**64 - 1), "byte 0: the interval is longer than 292 years"), (number(INTERVAL, 2**63), "byte 0: the interval is longer than 292 years"),
                (PLAIN + part(VALUES, b""), f"byte {at}: the part claims 0 values, and has 0 bytes for them"), (PLAIN + part(VALUES, b"\0\0"), f"byte {at}: the part has no values"),
                (PLAIN + part(VALUES, b"\xff\xff" + b"\1" * 9), f"byte {at}: the part claims 65535 values, and has 9 bytes for them"),
                (PLAIN + part(VALUES, b"\0\1\4" + b"\0" * 8), f"byte {at + 6}: a value has the unknown kind 4"), (value, "byte 0: there are values, and no host before them"),
                (HEAD + value, f"byte {len(HEAD)}: there are values, and no plugin before them"),
                (HEAD + text(PLUGIN_NAME, "p") + value, f"byte {len(HEAD) + 6}: there are values, and no type before them"),
                (text(MESSAGE, "m"), "byte 0: there is a message, and before it no severity 1, 2 or 4"),
                (number(SEVERITY, 3) + text(MESSAGE, "m"), "byte 12: there is a message, and before it no severity 1, 2 or 4")]:
            self.assertEqual(self.refusal(data), reason)

    def test_parameters_with_faults(self):
        for parameters, at, reason in [
                ({"types": ["/nowhere"]}, "types.0", "cannot read '/nowhere': No such file or directory"),
                ({"types": [self.types, self.write("bad.db", "#\nload x\n")]}, "types.1",
                 f"'{self.path('bad.db')}', line 2: a line must be the name of a type and values such as 'rx:DERIVE:0:U', each with another name"),
                ({"types": [""]}, "types.0", "must be the path of a file"), ({"users": "/nowhere"}, "users", "cannot read '/nowhere': No such file or directory"),
                ({"users": self.write("none", "# nobody\n")}, "users", f"'{self.path('none')}' has no users"),
                ({"users": self.write("bad", "a: b\nab\n")}, "users", f"'{self.path('bad')}', line 2 has no colon; a line must be NAME: PASSWORD"),
                ({"users": self.write("double", "a: b\na: c\n")}, "users", f"'{self.path('double')}', line 2 has a user that an earlier line has too; a line must be NAME: PASSWORD"),
                ({"users": self.write("empty", "a: \n")}, "users", f"'{self.path('empty')}', line 1 has no password; a line must be NAME: PASSWORD"),
                ({"security": "sign"}, "security", "needs 'users', the file with their passwords")]:
            with self.assertRaises(host.Refused) as refused:
                self.opened(**parameters)
            self.assertEqual((refused.exception.at, str(refused.exception)), (at, reason))
        for line in ["load", "load x:GAUGE", "load x:GAUGE:0", "load :GAUGE:0:U", "load x:FLOAT:0:U", "load a:GAUGE:0:U a:GAUGE:0:U", "load a:GAUGE:0:U \xff"]:
            with self.assertRaises(host.Refused):
                self.opened(types=self.write("bad.db", line))


class SecurityTests(CollectdTest):
    def setUp(self):
        super().setUp()
        self.sign, self.encrypt = (self.opened(types=self.types, users=self.users, security=level) for level in ["sign", "encrypt"])
        self.any = self.opened(types=self.types, users=self.users, security="none")

    def test_who_is_believed(self):
        by_default = self.opened(types=self.types, users=self.users)
        for made, accepted in [(PLAIN, [self.any]), (signed(PLAIN), [self.any, self.sign, by_default]), (encrypted(PLAIN), [self.any, self.sign, by_default, self.encrypt]),
                               (signed(PLAIN, "other", "pass: word "), [self.any, self.sign]), (encrypted(PLAIN, "other", "pass: word "), [self.any, self.sign, self.encrypt])]:
            for instance in accepted:
                self.assertEqual(self.decoded(made, instance), [EVENT])
        for instance in [self.sign, by_default]:
            self.assertEqual(self.refusal(PLAIN, instance), f"byte {PLAIN.rindex(values(('gauge', 0.5), ('gauge', 1.25), ('gauge', 2.0)))}: the packet is neither signed nor encrypted, and 'security' is 'sign'")
        for packet in [PLAIN, signed(PLAIN), NOTIFICATION, signed(NOTIFICATION)]:
            self.assertIn("the packet is not encrypted, and 'security' is 'encrypt'", self.refusal(packet, self.encrypt))
        self.assertIn("is neither signed nor encrypted", self.refusal(encrypted(PLAIN) + PLAIN, self.sign))

    def test_who_is_not(self):
        for packet, reason in [(signed(PLAIN, password="wrong"), "byte 0: the signature of the user 'rxd' is wrong"),
                               (signed(PLAIN, "nobody"), "byte 0: the packet is signed by the user 'nobody', whom the file of 'users' does not have"),
                               (encrypted(PLAIN, "nobody"), "byte 0: the packet is encrypted by the user 'nobody', whom the file of 'users' does not have"),
                               (encrypted(PLAIN, password="wrong"), "byte 0: the encrypted part of the user 'rxd' has a wrong checksum: the password is another one, or the packet is damaged"),
                               (part(SIGNATURE, b"x" * 32), "byte 0: the signature has 32 bytes, and no user"),
                               (HEAD + signed(PLAIN), f"byte {len(HEAD)}: a signature is not the first part, and so not for all of the packet"),
                               (signed(PLAIN) + PLAIN, "byte 0: the signature of the user 'rxd' is wrong"),
                               (encrypted(encrypted(PLAIN)), "in the encrypted part, byte 0: an encrypted part is within another one"),
                               (encrypted(signed(PLAIN)), "in the encrypted part, byte 0: a signature is within an encrypted part"),
                               (encrypted(PLAIN[:-1]), f"in the encrypted part, byte {PLAIN.rindex(values(('gauge', 0.5), ('gauge', 1.25), ('gauge', 2.0)))}: a part claims 33 bytes, and the packet has 32 more"),
                               (part(ENCRYPTED, b"\0\3rxd" + b"x" * 35), "byte 0: the encrypted part has 40 bytes, too few for a user and a checksum"),
                               (part(ENCRYPTED, b"\xff\xffrxd" + b"x" * 60), "byte 0: the encrypted part has 65 bytes, too few for a user and a checksum"),
                               (part(ENCRYPTED, b""), "byte 0: the encrypted part has 0 bytes, too few for a user and a checksum")]:
            for instance in [self.any, self.sign, self.encrypt]:
                self.assertEqual(self.refusal(packet, instance), reason)
        self.assertEqual(self.refusal(signed(PLAIN)), "byte 0: the packet is signed by the user 'rxd', and 'users' is not given")
        self.assertEqual(self.refusal(encrypted(PLAIN)), "byte 0: the packet is encrypted by the user 'rxd', and 'users' is not given")

    def test_names_of_users_are_any_bytes(self):
        for made in [signed, encrypted]:
            packet = made(PLAIN, "nobödy").replace("ö".encode(), b"\xff\xfe")
            self.assertRegex(self.refusal(packet, self.sign), r"^byte 0: the packet is (signed|encrypted) by the user 'nob\?\?dy', whom the file of 'users' does not have$")

    def test_each_damaged_bit_is_found(self):
        for packet in [signed(PLAIN), encrypted(PLAIN)]:
            for at in range(len(packet) * 8):
                damaged = bytearray(packet)
                damaged[at // 8] ^= 1 << at % 8
                # A part of an unknown type is ignored.
                answer = self.sign.row_of_bytes(bytes(damaged))
                self.assertTrue(answer["status"] == host.FAILED or answer["event"] == [] and at < 16, damaged.hex())
            for end in range(1, len(packet)):
                self.refusal(packet[:end], self.sign)


class HostileTests(CollectdTest):
    def test_cut_packets(self):
        packet = PLAIN + NOTIFICATION + PLAIN
        whole = self.decoded(packet)
        self.assertEqual(len(whole), 3)
        ends, at = {0}, 0
        while at < len(packet):
            at += struct.unpack_from(">H", packet, at + 2)[0]
            ends.add(at)
        for end in range(len(packet)):
            if end in ends:
                found = self.decoded(packet[:end])
                self.assertEqual(found, whole[:len(found)])
            else:
                self.assertRegex(self.refusal(packet[:end]), r"^byte \d+: (the packet ends within the head of a part|a part claims \d+ bytes, and the packet has \d+ more)$")

    def check(self, data):
        answer = self.decoder.row_of_bytes(data)
        if answer["status"] != host.OK:
            self.assertEqual(answer["status"], host.FAILED)
            self.assertRegex(answer["error"], r"^byte \d+: ", data.hex())
            return 0
        for event in answer["event"]:
            self.assertTrue({"host", "plugin", "plugin_instance", "type", "type_instance"} <= set(event), data.hex())
            self.assertTrue(set(event.get("values", {"": ""})) == set(event.get("kinds", {"": ""})), data.hex())
        return 1

    def test_damaged_bytes(self):
        checked = accepted = 0
        packet = PLAIN + NOTIFICATION
        for at in range(len(packet)):
            for byte in [*range(16), 127, 128, 255, *self.rng.sample(range(16, 255), 237 if "SANITIZE" in os.environ else 30)]:
                accepted += self.check(packet[:at] + bytes([byte]) + packet[at + 1:])
                checked += 1
        print(f"\n    {checked} packets with a damaged byte, {accepted} of them read", flush=True)

    def test_random_input(self):
        checked = accepted = 0
        end = time.monotonic() + FUZZ_SECONDS
        samples = [PLAIN, NOTIFICATION, PLAIN + NOTIFICATION, signed(PLAIN), encrypted(PLAIN), HEAD + text(PLUGIN_NAME, "p") + text(TYPE, "mixed") + values(
            ("counter", 1), ("gauge", 1.0), ("derive", 1), ("absolute", 1))]
        secure = self.opened(types=self.types, users=self.users)
        while checked < 50_000 and time.monotonic() < end:
            data = bytearray(self.rng.choice(samples))
            for _ in range(self.rng.randint(1, 6)):
                at = self.rng.randrange(len(data) + 1)
                data[at:at + self.rng.randint(0, 4)] = self.rng.choice([self.rng.randbytes(self.rng.randint(0, 4)), struct.pack(">HH", self.rng.choice([*range(12), 0x100, 0x101, 0x200, 0x210]), self.rng.randint(0, 40))])
            accepted += self.check(bytes(data))
            if bytes(data) not in samples:
                # Only what was encrypted as a whole may have come through.
                answer = secure.row_of_bytes(bytes(data))
                self.assertTrue(answer["status"] == host.FAILED or answer["event"] in ([], [EVENT]), data.hex())
            checked += 1
        print(f"\n    {checked} packets at random, {accepted} of them read", flush=True)

    def test_claims_cost_nothing(self):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        for _ in range(2000):
            self.refusal(HEAD + struct.pack(">HHH", VALUES, 65535, 65535))
            self.refusal(HEAD + struct.pack(">HH", ENCRYPTED, 65535))
        self.assertLess(time.monotonic() - start, 5)
        if not os.environ.get("SANITIZE"):  # which keeps freed memory
            self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 50_000, "KiB")

    def test_random_packets_are_read(self):
        """Packets of the writer of this test, of all kinds and lengths."""
        letters = "abcXYZ 09_.-/äß€漢😀"
        for _ in range(COUNT):
            packet, expected, state = b"", [], {}
            for _ in range(self.rng.randint(1, 8)):
                for kind, name in [(HOST, "host"), (PLUGIN_NAME, "plugin"), (PLUGIN_INSTANCE, "plugin_instance"), (TYPE, "type"), (TYPE_INSTANCE, "type_instance")]:
                    if name not in state or self.rng.random() < 0.5:
                        needed = name in ("host", "plugin", "type")
                        state[name] = "".join(self.rng.choices(letters, k=self.rng.randint(1 if needed else 0, 20))) if name != "type" or self.rng.random() < 0.5 else "mixed"
                        packet += text(kind, state[name])
                if "time" not in state or self.rng.random() < 0.3:
                    state["time"] = self.rng.randint(1, 2**33 - 1)
                    packet += number(TIME, state["time"])
                given = [(kind, {"gauge": self.rng.uniform(-1e9, 1e9), "derive": self.rng.randint(-2**63, 2**63 - 1)}.get(kind, self.rng.randint(0, 2**64 - 1)))
                         for kind in self.rng.choices(KINDS, k=self.rng.choice([1, 2, 4, 9]))]
                packet += values(*given)
                names = ["a", "b", "c", "d"] if state["type"] == "mixed" and len(given) == 4 else ["value"] if len(given) == 1 else [str(index) for index in range(len(given))]
                expected.append({**state, "time": {"$timestamp": state["time"] * 10**9}, "values": dict(zip(names, (value for _, value in given))),
                                 "kinds": dict(zip(names, (kind for kind, _ in given)))})
            self.assertEqual(self.decoded(packet), expected, packet.hex())


@unittest.skipUnless(COLLECTD, "no collectd (scripts/install-packages --tests)")
class OtherSideTests(CollectdTest):
    """A collectd that measures this machine and passes on what it is told, to three ports: plain, signed, encrypted."""

    def setUp(self):
        super().setUp()
        if not RXD:
            self.skipTest("set RXD to the program")
        self.ports = {"plain": free_port(), "sign": free_port(), "encrypt": free_port()}
        self.receive("right")

    def receive(self, name):
        parameters = {"plain": "collectd", "sign": f"{{ collectd: {{ users: {self.users} }} }}", "encrypt": f"{{ collectd: {{ users: {self.users}, security: encrypt }} }}"}
        sources = "".join(f"  {by}: {{ udp: {{ address: '127.0.0.1:{port}', decode: {parameters[by]} }} }}\n" for by, port in self.ports.items())
        signals = "".join(f"""  {by}_seen: {{ from: {by}, chain: [ {{ map: "{{ 'by': '{by}', 'it': event }}" }} ] }}
  {by}_refused: {{ from: {by}.errors, chain: [ {{ map: "{{ 'by': 'refused', 'reason': event.error }}" }} ] }}
""" for by in self.ports)
        seen = ", ".join(f"{by}_{what}" for by in self.ports for what in ["seen", "refused"])
        self.run_ = self.pipeline(f"""
plugins: {{ collectd: PLUGIN }}
sources:
{sources}signals:
{signals}sinks: {{ out: {{ from: {{ merge: [ {seen} ] }}, stdout: {{ encode: ndjson }} }} }}
""", name)
        wait_for(lambda: all(self.is_bound(port) for port in self.ports.values()) or self.run_.process.poll() is not None, lambda: f"the ports: {self.run_.errors()}")
        self.assertIsNone(self.run_.process.poll(), self.run_.errors())

    @staticmethod
    def is_bound(port):
        with open("/proc/net/udp") as file:
            return f":{port:04X} " in file.read()

    def start_collectd(self, more=""):
        config = self.write("collectd.conf", f"""
Hostname "machine"
FQDNLookup false
BaseDir "{self.directory}"
PIDFile "{self.directory}/pid"
TypesDB "/usr/share/collectd/types.db"
Interval 0.5
LoadPlugin logfile
<Plugin logfile>
  LogLevel info
  File "{self.directory}/collectd.log"
</Plugin>
LoadPlugin network
LoadPlugin unixsock
LoadPlugin load
LoadPlugin memory
LoadPlugin cpu
<Plugin network>
  Server "127.0.0.1" "{self.ports['plain']}"
  <Server "127.0.0.1" "{self.ports['sign']}">
    SecurityLevel Sign
    Username "rxd"
    Password "secret"
  </Server>
  <Server "127.0.0.1" "{self.ports['encrypt']}">
    SecurityLevel Encrypt
    Username "rxd"
    Password "secret"
  </Server>
</Plugin>
<Plugin unixsock>
  SocketFile "{self.directory}/unix"
</Plugin>
{more}""")
        daemon = self.start([COLLECTD, "-f", "-C", config], "collectd", environment={"LD_PRELOAD": ""})
        wait_for(lambda: os.path.exists(self.path("unix")) or daemon.process.poll() is not None, lambda: f"collectd: {daemon.errors()}")
        self.assertIsNone(daemon.process.poll(), daemon.errors())
        return daemon

    def tell(self, *commands):
        """Commands of the plugin unixsock; all must succeed."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path("unix"))
            answers = connection.makefile("r")
            for command in commands:
                connection.sendall(command.encode() + b"\n")
                self.assertRegex(answers.readline(), r"^0 ", command)

    def found(self, by, plugin):
        return [line["it"] for line in self.run_.lines() if line["by"] == by and line["it"]["plugin"] == plugin]

    def test_values_of_a_real_collectd(self):
        daemon = self.start_collectd()
        told = [("test-a/gauge-b", "-1.5e-7", {"value": -1.5e-7}, "gauge"), ("test-a/gauge-unknown", "U", {"value": None}, "gauge"), ("test-a/counter", str(2**64 - 1), {"value": 2**64 - 1}, "counter"),
                ("test/derive-x", str(-2**63), {"value": -2**63}, "derive"), ("test/absolute", "12345", {"value": 12345}, "absolute"),
                ("test-a/load", "0.25:0.5:8", {"shortterm": 0.25, "midterm": 0.5, "longterm": 8.0}, "gauge"), ("test/if_octets-eth0", "1:9007199254740993", {"rx": 1, "tx": 9007199254740993}, "derive")]
        self.tell(*(f'PUTVAL "far/{name}" interval=2.5 1764400000.25:{given}' for name, given, _, _ in told))
        many = [f"test{index % 7}-i{index}/gauge-{'n' * (index % 50)}" for index in range(300)]
        self.tell(*(f'PUTVAL "crowd/{name}" interval=1 {1764400000 + index}:{index}' for index, name in enumerate(many)))
        self.tell('PUTNOTIF severity=warning time=1764400001.5 message="disk is full" host=far plugin=note plugin_instance=p type=df type_instance=root', "FLUSH plugin=network")
        for by in self.ports:
            wait_for(lambda: len(self.found(by, "note")) == 1 and len(self.found(by, "test")) >= len(told), lambda: f"the values by {by}: {self.run_.errors()}")
            got = {(event["plugin_instance"], event["type"], event["type_instance"]): event for event in self.found(by, "test")}
            for name, _, expected, kind in told:
                plugin, type_ = name.split("/")
                event = got[plugin.partition("-")[2], type_.partition("-")[0], type_.partition("-")[2]]
                self.assertEqual(event["values"], expected, by)
                self.assertEqual(set(event["kinds"].values()), {kind})
                self.assertEqual((event["host"], event["time"], event["interval"]), ("far", "2025-11-29T07:06:40.25Z", "2.5s"))
            self.assertEqual(self.found(by, "note"), [{"host": "far", "plugin": "note", "plugin_instance": "p", "type": "df", "type_instance": "root",
                                                       "time": "2025-11-29T07:06:41.5Z", "severity": "warning", "message": "disk is full"}])
            wait_for(lambda: sum(line["it"]["host"] == "crowd" and line["by"] == by for line in self.run_.lines()) == len(many), lambda: f"the crowd by {by}: {self.run_.errors()}")
            crowd = {f"{event['plugin']}-{event['plugin_instance']}/gauge-{event['type_instance']}": event["values"]["value"] for event in (line["it"] for line in self.run_.lines())
                     if event["host"] == "crowd"}
            self.assertEqual(crowd, {name: float(index) for index, name in enumerate(many)})
            # Measured by collectd itself.
            wait_for(lambda: all(self.found(by, plugin) for plugin in ["load", "memory", "cpu"]), lambda: f"load, memory and cpu by {by}: {self.run_.errors()}")
            load = self.found(by, "load")[0]
            self.assertEqual((load["host"], list(load["values"]), load["interval"]), ("machine", ["shortterm", "midterm", "longterm"], "0.5s"))
            self.assertIn("used", {event["type_instance"] for event in self.found(by, "memory")})
            self.assertEqual({kind for event in self.found(by, "cpu") for kind in event["kinds"].values()}, {"derive"})
        self.assertEqual(daemon.end(), 0, daemon.errors())
        self.assertEqual(self.run_.end(), 0)
        self.assertEqual([line for line in self.run_.lines() if line["by"] == "refused"], [])

    def test_a_wrong_password_is_refused(self):
        self.run_.end()
        self.write("users", "rxd: another\n")
        self.receive("wrong")
        daemon = self.start_collectd()
        self.tell('PUTVAL "far/test/gauge" interval=1 1764400000:5', "FLUSH plugin=network")
        reasons = ["the signature of the user 'rxd' is wrong", "has a wrong checksum"]
        wait_for(lambda: all(any(reason in line.get("reason", "") for line in self.run_.lines()) for reason in reasons), lambda: f"refusals: {self.run_.lines()}")
        wait_for(lambda: self.found("plain", "test"), "the plain values")
        self.assertEqual({line["by"] for line in self.run_.lines()}, {"plain", "refused"})
        self.assertEqual(daemon.end(), 0, daemon.errors())


class PipelineTests(CollectdTest):
    def test_the_example(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        run = subprocess.run([RXD, "test", os.path.join(ROOT, "pipelines", "collectd.yaml")], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_the_examples_of_the_spec(self):
        if not RXD or os.environ.get("SANITIZE"):  # the tester's own process is without sanitizers
            self.skipTest("set RXD to the program")
        run = subprocess.run([RXD, "plugin", "test", PLUGIN, "--only", "examples"], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
