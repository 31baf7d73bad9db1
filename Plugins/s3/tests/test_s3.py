"""Tests of the plugin with moto's server, and with servers that misbehave: without rxd, and in rxd if RXD names it."""
import gzip
import html
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from plugin_test import RUNNER, RXD, SANITIZERS, WITH_SANITIZERS, PluginTest, free_port, wait_for  # noqa: E402
from store import (ACCESS, CLEAN, REGION, SECRET, Moto, Proxy, Script, client_of, error, fill, listing, signature, unpacked,  # noqa: E402
                   zstd)

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "s3.so"))
COUNT = int(os.environ.get("COUNT", "5000"))
KILLS = int(os.environ.get("KILLS", "3"))
PATIENCE = float(os.environ.get("PATIENCE", "60"))


def in_process(test):
    """A test that loads the plugin itself: with sanitizers in a separate process, which loads them first."""
    def run(self):
        if not SANITIZERS or "LD_PRELOAD" in os.environ:
            return test(self)
        done = subprocess.run([sys.executable, "-B", "-m", "unittest", self.id()], cwd=HERE, capture_output=True, text=True,
                              env={**os.environ, **SANITIZERS})
        return self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    run.__doc__ = test.__doc__
    return run


class S3Test(PluginTest):
    plugin = PLUGIN

    @classmethod
    def start_moto(cls, **environment):
        cls.moto = Moto(**environment)
        cls.addClassCleanup(cls.moto.end)
        cls.s3 = client_of(cls.moto.port)

    def setUp(self):
        super().setUp()
        self.port = self.moto.port if hasattr(self, "moto") else None
        self.bucket = self.id().split(".")[-1].replace("_", "-")[:60]

    def make_bucket(self):
        self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    def put(self, key, data=b"", **more):
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=data, **more)

    def keys(self, prefix=""):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def content(self, key):
        return unpacked(key, self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def script(self, answer):
        """A server that answers as told."""
        server = Script(answer)
        self.addCleanup(server.end)
        self.port = server.port
        return server

    def given(self, **parameters):
        defaults = {"bucket": self.bucket, "endpoint": f"http://127.0.0.1:{self.port}", "region": REGION, "accessKey": ACCESS,
                    "secretKey": SECRET}
        return {name: value for name, value in {**defaults, **parameters}.items() if value is not None}

    def read(self, name="source", more="", environment=None, **parameters):
        """The source without rxd."""
        return self.start([*RUNNER, self.plugin, "source", "s3", json.dumps(self.given(**parameters)), str(more)], name,
                          environment={**CLEAN, **SANITIZERS, **(environment or {})})

    def all_of(self, run, status=0):
        """The events of a source that has completed; errors of input as `rejected` and `reason`."""
        self.assertEqual(run.process.wait(PATIENCE), status, run.errors())
        return run.lines()

    def write(self, events, name="sink", environment=None, **parameters):
        """The sink without rxd."""
        os.environ.update(CLEAN)
        os.environ.update(environment or {})
        return self.sink("s3", self.given(**{"key": "{id}", **parameters}), events, name)

    def written(self, events, name="sink", **parameters):
        run = self.write(events, name, **parameters)
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        return run

    def values(self, *runs):
        return [event["value"] for run in runs for event in run.lines() if "value" in event]

    def assert_no_secrets(self, *runs):
        for run in runs:
            for text in (SECRET, "Signature=", "authorization"):
                self.assertNotIn(text, run.errors())


class SignatureTests(S3Test):
    """Signatures: published by AWS, and checked by a server."""

    def test_the_examples_of_aws(self):
        checked = subprocess.run([os.path.join(ROOT, "build", "signatures")], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout)
        self.assertEqual(checked.stdout.count(": ok"), 6)

    def test_odd_keys_as_boto_signs_them(self):
        checked = []

        def answer(request):
            checked.append((request.headers["authorization"].split("Signature=")[1], signature(request)))
            if "uploads" in request.query:
                return 200, {}, b"<InitiateMultipartUploadResult><UploadId>a/b+c=&amp;d</UploadId></InitiateMultipartUploadResult>"
            if "list-type" in request.query:
                return 200, {}, listing([("a b+c/ä%20&=;~'()//./../x", 1)] if "start-after" not in request.query else [])
            return 200, {"ETag": '"tag-0"'}, b"1\n"

        self.bucket = "odd"
        self.script(answer)
        self.written(["x" * 6000000], key="a b+c/ä%20&=;~'()!*,:@$//./../{id}", partSize="5MiB", contentType="a/b;  charset=utf-8",
                     encryption="kms", encryptionKey="arn:aws:kms:eu-central-1:1:key/a")
        self.assertEqual(len(self.all_of(self.read(prefix="a b+c/ä%20&=;~'(", sessionToken="TOKEN/+="))), 1)
        self.assertEqual(len(checked), 6)
        for made, expected in checked:
            self.assertEqual(made, expected)

    def test_a_server_that_checks(self):
        self.moto = Moto(INITIAL_NO_AUTH_ACTION_COUNT="4")
        self.addCleanup(self.moto.end)
        iam = client_of(self.moto.port, "iam")
        iam.create_user(UserName="rxd")
        allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
        iam.put_user_policy(UserName="rxd", PolicyName="all", PolicyDocument=json.dumps(allowed))
        key = iam.create_access_key(UserName="rxd")["AccessKey"]
        self.s3 = client_of(self.moto.port, access=key["AccessKeyId"], secret=key["SecretAccessKey"])
        self.port = self.moto.port
        self.make_bucket()
        right = {"accessKey": key["AccessKeyId"], "secretKey": key["SecretAccessKey"]}
        self.written([1, 2], key="a b/c-{id}", **right)  # moto's check is wrong for other characters
        self.written(["x" * 6000000], name="parts", key="parts/{id}", partSize="5MiB", **right)
        events = self.all_of(self.read(prefix="a", **right))
        self.assertEqual([event["value"] for event in events], ["1", "2"])
        self.assertEqual(len(self.all_of(self.read(name="parts-source", prefix="p", maxLine="10MiB", **right))), 1)
        wrong = self.read(name="wrong", accessKey=key["AccessKeyId"], secretKey="not this one")
        self.all_of(wrong, 1)
        self.assertIn("refuses the credentials: SignatureDoesNotMatch", wrong.errors())
        self.assertNotIn("not this one", wrong.errors())
        unknown = self.write([1], name="unknown", accessKey="AKIANOBODY", secretKey=SECRET)
        self.assertEqual(unknown.process.wait(PATIENCE), 1, unknown.errors())
        self.assertIn("refuses the credentials: InvalidAccessKeyId", unknown.errors())
        self.assert_no_secrets(unknown, wrong)


class ParameterTests(S3Test):
    def test_errors_name_the_parameter(self):
        self.port = 9
        for kind, parameters, expected in [
            ("source", {"bucket": "a/b"}, "'bucket': must be 3 to 255 letters, digits, dots, hyphens or underscores"),
            ("source", {"endpoint": "minio:9000"}, "'endpoint': must begin with https:// or http://"),
            ("source", {"endpoint": "ftp://minio"}, "'endpoint': unknown scheme 'ftp'; use http:// or https://"),
            ("source", {"endpoint": f"http://me:{SECRET[:5]}@minio"},
             "'endpoint': must not contain a user or a password; use 'user' and 'password'"),
            ("source", {"endpoint": "http://minio:99999"}, "'endpoint': the port must be a number from 1 to 65535"),
            ("source", {"pathStyle": False}, "'pathStyle': must be true, because 'endpoint' is an address without a name"),
            ("source", {"region": "eu central"}, "'region': must be a name such as eu-central-1"),
            ("source", {"secretKey": None}, "'accessKey': 'accessKey' and 'secretKey' belong together"),
            ("source", {"accessKey": None}, "'secretKey': 'accessKey' and 'secretKey' belong together"),
            ("source", {"profile": "p"}, "'profile': cannot be combined with 'accessKey'"),
            ("source", {"secretKey": "a\nb"}, "'secretKey': must be a line that is not empty"),
            ("source", {"ca": "/nowhere"}, "'ca': cannot read the file: No such file or directory"),
            ("source", {"ca": PLUGIN}, "'ca': has no effect without an endpoint of https://"),
            ("source", {"maxLine": "1GiB"}, "'maxLine': must be 1B to 64MiB"),
            ("source", {"after": "move"}, "'after': 'move' needs 'moveTo'"),
            ("source", {"moveTo": "done/"}, "'moveTo': has no effect without 'after: move'"),
            ("source", {"after": "move", "prefix": "in/", "moveTo": "in/done/"},
             "'moveTo': must not begin with 'prefix': objects would be read again"),
            ("source", {"after": "tag", "tag": "read"}, "'tag': must be NAME=VALUE"),
            ("source", {"start": "new", "after": "delete"}, "'start': cannot be 'new' together with 'after'"),
            ("source", {"queue": "inbox"}, "'queue': must begin with https:// or http://"),
            ("source", {"queue": "https://sqs.example.com"}, "'queue': must be the URL of the queue, with the account and its name"),
            ("source", {"queue": "https://sqs.example.com/1/q", "every": "1s"}, "'every': cannot be combined with 'queue'"),
            ("sink", {"partSize": "1MiB"}, "'partSize': must be 5MiB to 1GiB"),
            ("sink", {"maxBytes": "2GiB"}, "'maxBytes': must be 1B to 1GiB"),
            ("sink", {"replace": True, "onlyNew": True}, "'onlyNew': cannot be combined with 'replace'"),
            ("sink", {"encryptionKey": "arn"}, "'encryptionKey': has no effect without 'encryption: kms'"),
            ("sink", {"contentType": "a\nb"}, "'contentType': must be one line"),
        ]:
            with self.subTest(parameters=parameters):
                self.bucket = "bucket"
                message = self.refused(kind, "s3", {**self.given(**parameters), **({"key": "{id}"} if kind == "sink" else {})})
                self.assertEqual(message, expected)
                self.assertNotIn(SECRET, message)


class ListTests(S3Test):
    """The source that lists."""

    @classmethod
    def setUpClass(cls):
        cls.start_moto()

    def test_many_pages_in_order(self):
        keys = [f"in/{n:05}" for n in range(1500)]

        def answer(request):
            if "list-type" not in request.query:
                return 200, {}, request.path.rsplit("/", 1)[1].encode()
            self.assertEqual((request.query["prefix"], request.query["max-keys"]), ("in/", "1000"))
            rest = [key for key in keys if key > request.query.get("start-after", "")]
            return 200, {}, listing([(key, -1) for key in rest[:1000]], truncated=len(rest) > 1000)

        self.script(answer)
        self.assertEqual([int(event["value"]) for event in self.all_of(self.read(prefix="in/"))], list(range(1500)))

    def wait_for_whole_listings(self):
        """Waits until all keys have been listed once more: the second listing begins when the first has ended."""
        def count():
            return sum(f"GET /{self.bucket}?" in line and "list-type" in line and "start-after" not in line for line in self.moto.requests())

        goal = count() + 2
        wait_for(lambda: count() >= goal, "listings of all keys", PATIENCE)

    def test_more_young_objects_than_are_remembered(self):
        """All are read once, although the later keys are older; after that, only newer ones."""
        now, late, whole = int(time.time()), [], []
        objects = [(f"{n:06}", 0 if n % 1000 else 1, now - n // 10) for n in range(25000)]

        def answer(request):
            if "list-type" not in request.query:
                return 200, {}, request.path.rsplit("/", 1)[1].encode()
            if "start-after" not in request.query:
                whole.append(request)
            rest = [entry for entry in sorted(objects + late) if entry[0] > request.query.get("start-after", "")]
            return 200, {}, listing(rest[:1000], truncated=len(rest) > 1000)

        self.script(answer)
        run = self.read(every="100ms", fullEvery="1s")
        wait_for(lambda: run.count() >= 25, "all", PATIENCE)
        self.assertEqual([int(value) for value in self.values(run)], list(range(0, 25000, 1000)))
        self.assertIn("more than 10000 objects were written within 'lookback'", run.errors())
        late.append(("000000-late", 1, now + 1))
        wait_for(lambda: run.count() >= 26, "a late one", PATIENCE)
        # The second listing of all keys begins when the first has ended.
        goal = len(whole) + 2
        wait_for(lambda: len(whole) >= goal, "listings of all keys", PATIENCE)
        self.assertEqual(self.values(run)[25:], ["000000-late"])
        self.assertEqual(run.end(), 0, run.errors())

    def test_new_objects_are_found_also_before_the_last_key(self):
        self.make_bucket()
        self.put("m/1", b"1\n")
        run = self.read(every="100ms", fullEvery="1s")
        wait_for(lambda: run.count() == 1, "the first", PATIENCE)
        self.put("m/2", b"2\n")
        wait_for(lambda: run.count() == 2, "the next", PATIENCE)
        self.put("a/early", b"3\n")
        wait_for(lambda: run.count() == 3, "one before", PATIENCE)
        self.put("m/1", b"4\n")
        wait_for(lambda: run.count() == 4, "one that was replaced", PATIENCE)
        self.wait_for_whole_listings()
        self.assertEqual(self.values(run), ["1", "2", "3", "4"])
        self.assertEqual(run.end(), 0, run.errors())

    def test_start_new_skips_what_is_there(self):
        self.make_bucket()
        self.put("m/1", b"old\n")
        run = self.read(every="100ms", fullEvery="1s", start="new")
        wait_for(lambda: sum(f"GET /{self.bucket}?" in line for line in self.moto.requests()) > 2, "listings", PATIENCE)
        self.put("a", b"new\n")
        self.put("z", b"new\n")
        wait_for(lambda: run.count() >= 2, "new ones", PATIENCE)
        self.wait_for_whole_listings()
        self.assertEqual(self.values(run), ["new", "new"])
        self.assertEqual(run.end(), 0, run.errors())

    @in_process
    def test_every_position_goes_on_without_loss(self):
        """Stops after each batch, even in the middle of packed objects, and continues from the position."""
        self.make_bucket()
        lines = [f"{n} {'x' * 300}\n" for n in range(9000)]
        self.put("a", "".join(lines[:4000]).encode())
        self.put("b.gz", gzip.compress("".join(lines[4000:7000]).encode()))
        self.put("c", gzip.compress("".join(lines[7000:]).encode()), ContentEncoding="gzip")
        os.environ.update(CLEAN)
        plugin = host.Plugin(self.plugin)
        position, seen, runs, is_over = None, [], 0, False
        while not is_over:
            runs += 1
            with plugin.open("source", "s3", position=position, **self.given()) as instance:
                instance.start(100000)
                left = random.randrange(5, 10)
                while left > 0 and not is_over:
                    has_ended = instance.has_ended  # before the last check: nothing arrives after it
                    batch = instance.take(0.1)
                    if batch is not None:
                        seen += [item["event"]["value"].split()[0] for item in batch[0]]
                        position = batch[1] or position
                        left -= 1
                    is_over = has_ended and batch is None
        self.assertTrue(seen == [str(n) for n in range(9000)], f"{len(seen)} lines, {len(set(seen))} different ones")
        self.assertGreater(runs, 8)


class ContentTests(S3Test):
    """The content of objects."""

    @classmethod
    def setUpClass(cls):
        cls.start_moto()

    def test_objects_of_every_odd_kind(self):
        self.make_bucket()
        lines = {"a empty": b"", "b feed": b"\n", "c": b"1\n2\n", "d": b"1\r\n\r\n2", "e bytes": b"\xff\x00\nx",
                 "f+%20 ä/\u2028&<>": "grüße\n".encode(), "g.gz": gzip.compress(b"1\n") + gzip.compress(b"2\n3"), "h.zst": zstd(b"1\n2\n") + zstd(b"3"),
                 "i.gz": b"", "j": b"1\n"}
        for key, data in lines.items():
            self.put(key, data)
        self.put("k", gzip.compress(b"encoded\n"), ContentEncoding="gzip")
        events = self.all_of(self.read())
        expected = {"b feed": [""], "c": ["1", "2"], "d": ["1", "", "2"], "e bytes": ["hex:ff00", "x"], "f+%20 ä/\u2028&<>": ["grüße"],
                    "g.gz": ["1", "2", "3"], "h.zst": ["1", "2", "3"], "j": ["1"], "k": ["encoded"]}
        found = {}
        for event in events:
            found.setdefault(event["key"], []).append(event["value"])
        self.assertEqual(found, expected)
        self.assertEqual(list(found), sorted(found))
        last = [event for event in events if event["key"] == "d"]
        self.assertEqual([(event["line"], event["offset"], event["size"]) for event in last], [(1, 0, 6), (2, 3, 6), (3, 5, 6)])
        self.assertEqual(last[0]["etag"], self.s3.head_object(Bucket=self.bucket, Key="d")["ETag"].strip('"'))
        self.assertEqual(last[0]["bucket"], self.bucket)
        self.assertIn("lastModified", last[0])

    def test_what_cannot_be_read_is_rejected_and_others_go_on(self):
        self.make_bucket()
        packed = gzip.compress("".join(f"{n}\n" for n in range(100000)).encode())
        self.put("a.gz", packed[:len(packed) // 2])
        self.put("b.gz", b"no gzip")
        self.put("c.zst", zstd(b"1\n" * 1000)[:-3])
        self.put("d.gz", gzip.compress(b"1\n") + b"garbage behind")
        self.put("e", b"short\n" + b"x" * 3000 + b"\nshort again\n" + b"y" * 1001)
        self.put("f", b'{"n": 1}\nno JSON\n\n{"n": 2}\n')
        self.put("g", b"good\n")
        events = self.all_of(self.read(maxLine="1000B"))
        reasons = [event["reason"] for event in events if "reason" in event]
        self.assertRegex(reasons[0], r"^a.gz: at byte \d+ of the object the gzip data cannot be read: the data ends in the middle; the lines before line \d+ were sent")
        self.assertIn("b.gz: at byte 2 of the object the gzip data cannot be read: incorrect header check", reasons[1])
        self.assertIn("c.zst: ", reasons[2])
        self.assertIn("d.gz: ", reasons[3])
        self.assertEqual(reasons[4:], ["e: line 2 at byte 6 has 3000 bytes, more than maxLine (1000)",
                                       "e: line 4 at byte 3019 has 1001 bytes, more than maxLine (1000)"])
        rejected = [event["rejected"] for event in events if "reason" in event]
        self.assertEqual(rejected[4], "x" * 1000)
        values = [(event["key"], event["value"]) for event in events if "value" in event and event["key"] in ("d.gz", "e", "g")]
        self.assertEqual(values, [("d.gz", "1"), ("e", "short"), ("e", "short again"), ("g", "good")])
        json_lines = self.all_of(self.read(name="json", prefix="f", decode="json"))
        self.assertEqual([event.get("value", event.get("reason")) for event in json_lines],
                         [{"n": 1}, "f: line 2 at byte 9 is not a JSON document", {"n": 2}])

    @in_process
    def test_an_object_that_was_replaced_meanwhile_is_read_from_its_start(self):
        self.make_bucket()
        self.put("a", b"".join(b"old %d %s\n" % (n, b"x" * 300) for n in range(4000)))
        os.environ.update(CLEAN)
        plugin = host.Plugin(self.plugin)
        with plugin.open("source", "s3", **self.given()) as instance:
            instance.start(1000)
            while b"=61" not in (position := instance.take(20)[1]):  # within a
                pass
        self.put("a", b"new 0\nnew 1\n")
        with plugin.open("source", "s3", position=position, **self.given()) as instance:
            instance.start(1000)
            batches = [instance.take(20)[0], instance.take(20)[0]]
            self.assertEqual([item["event"]["value"] for batch in batches for item in batch], ["new 0", "new 1"])

    def test_a_body_that_is_cut_is_read_on(self):
        self.make_bucket()
        lines = [f"{n} {random.random()}\n" for n in range(60000)]
        self.put("a", "".join(lines).encode())
        self.put("b.gz", gzip.compress("".join(lines).encode()))
        proxy = Proxy(self.moto.port)
        self.addCleanup(proxy.close)
        self.port = proxy.port
        proxy.limit = 300000
        run = self.read()
        self.assertEqual([event["value"] + "\n" for event in self.all_of(run)], 2 * lines)
        self.assertGreater(proxy.cuts, 5)
        print(f"\n    {proxy.cuts} cuts, 0 lines lost or repeated")
        self.assertIn("count: resumedReads", run.errors())

    def test_a_slow_pipeline_is_no_fault_of_the_server(self):
        """Each part takes longer than a body may stall."""
        self.make_bucket()
        lines = [f"{n} {'x' * 1000}\n" for n in range(20000)]
        self.put("a", "".join(lines).encode())
        run = self.read(more=2500, idleTimeout="1s", environment={"CREDIT": "7000"})
        self.assertEqual([event["value"] + "\n" for event in self.all_of(run)], lines)
        self.assertNotIn("warning", run.errors())


class TLSTests(S3Test):
    def test_certificates(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.directory)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
        with open(self.path("names"), "w") as file:
            file.write("subjectAltName=DNS:localhost")
        openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names",
                "-out", "server.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        self.bucket = "secure"
        server = self.script(lambda request: (200, {}, listing([])))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        named, numbered = f"https://localhost:{self.port}", f"https://127.0.0.1:{self.port}"
        for name, parameters, expected in [
            ("right", {"endpoint": named, "ca": self.path("ca.pem"), "pathStyle": True}, None),
            ("unverified", {"endpoint": numbered, "dangerouslySkipVerification": True}, None),
            ("unknown", {"endpoint": named}, "TLS cannot be set up"),
            ("another", {"endpoint": numbered, "ca": self.path("ca.pem")}, "TLS cannot be set up"),
        ]:
            with self.subTest(name=name):
                run = self.read(name, **parameters)
                self.all_of(run, 0 if expected is None else 1)
                self.assertIn(expected or "", run.errors())


class AfterTests(S3Test):
    """The actions after objects were read."""

    @classmethod
    def setUpClass(cls):
        cls.start_moto()

    def fill(self):
        self.make_bucket()
        for n in range(30):
            self.put(f"in/{n:02}", f"{n}\n".encode() * 3)

    def test_delete(self):
        self.fill()
        self.put("other", b"stays\n")
        events = self.all_of(self.read(prefix="in/", after="delete"))
        self.assertEqual([event["value"] for event in events], [str(n) for n in range(30) for _ in range(3)])
        self.assertEqual(self.keys(), ["other"])

    def test_move_and_tag(self):
        self.fill()
        self.put("in/ ä+%", b"odd\n")
        self.assertEqual(len(self.all_of(self.read(prefix="in/", after="move", moveTo="done/"))), 91)
        self.assertEqual(self.keys(), sorted(["done/ ä+%", *(f"done/{n:02}" for n in range(30))]))
        self.assertEqual(self.content("done/ ä+%"), b"odd\n")
        self.s3.put_object_tagging(Bucket=self.bucket, Key="done/00", Tagging={"TagSet": [{"Key": "mine", "Value": "a b"}]})
        self.assertEqual(len(self.all_of(self.read("tags", prefix="done/", after="tag", tag="state=read"))), 91)
        tags = self.s3.get_object_tagging(Bucket=self.bucket, Key="done/00")["TagSet"]
        self.assertEqual({tag["Key"]: tag["Value"] for tag in tags}, {"mine": "a b", "state": "read"})
        self.put("done/new", b"new\n")
        self.assertEqual([event["value"] for event in self.all_of(self.read("again", prefix="done/", after="tag", tag="state=read"))], ["new"])

    def test_nothing_is_deleted_before_it_is_acknowledged(self):
        self.fill()
        run = self.read(more=600000, prefix="in/", after="delete", every="100ms")  # its first round takes ten minutes
        wait_for(lambda: sum(f"GET /{self.bucket}/in/" in line for line in self.moto.requests()) >= 30, "reads", PATIENCE)
        time.sleep(0.5)
        run.end(signal.SIGKILL)
        self.assertEqual(len(self.keys("in/")), 30)
        again = self.read(name="again", prefix="in/", after="delete")
        self.assertEqual(len(self.all_of(again)), 90)
        self.assertEqual(self.keys("in/"), [])

    def test_objects_whose_events_fail_come_again(self):
        self.make_bucket()
        for n in range(10):
            self.put(f"in/{n}", f"{n}\n".encode() * 3)
        run = self.read(more="fail 2", prefix="in/", after="delete", environment={"CREDIT": "10"})
        self.all_of(run)
        self.assertIn("count: returned", run.errors())
        self.assertEqual(self.keys("in/"), [])
        self.assert_nothing_lost([str(n) for n in range(10)], self.values(run), "rounds that fail")

    def test_what_is_replaced_or_incomplete_stays(self):
        self.fill()
        self.put("in/bad.gz", b"no gzip")
        self.put("in/long", b"x" * 2000)
        run = self.read(more=1500, prefix="in/", after="delete", every="200ms", maxLine="1000B")
        wait_for(lambda: sum(f"GET /{self.bucket}/in/" in line for line in self.moto.requests()) >= 32, "reads", PATIENCE)
        self.put("in/00", b"newer\n")
        wait_for(lambda: "newer" in self.values(run), "the newer one", PATIENCE)
        wait_for(lambda: self.keys("in/") == ["in/bad.gz", "in/long"], "deletions", PATIENCE)
        wait_for(lambda: "in/bad.gz stays, because it could not be read completely" in run.errors(), "the warning", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(sum("reason" in event for event in run.lines()), 2)

    def test_a_stop_deletes_what_is_acknowledged(self):
        self.fill()
        run = self.read(more=300, prefix="in/", after="delete", every="1h")
        wait_for(lambda: run.count() > 0, "a round", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        left = self.read(name="left", prefix="in/", after="delete")
        self.all_of(left)
        self.assertEqual(self.keys("in/"), [])
        self.assertEqual(sorted(map(int, self.values(run, left))), sorted(n for n in range(30) for _ in range(3)))


class QueueTests(S3Test):
    """Notifications through SQS."""

    @classmethod
    def setUpClass(cls):
        cls.start_moto()
        cls.sqs = client_of(cls.moto.port, "sqs")

    def make(self, notify=True):
        self.make_bucket()
        self.queue = self.sqs.create_queue(QueueName=self.bucket[:60])["QueueUrl"].replace("localhost", "127.0.0.1")
        self.queue = f"http://127.0.0.1:{self.moto.port}/" + self.queue.split("/", 3)[3]
        if notify:
            arn = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            self.s3.put_bucket_notification_configuration(Bucket=self.bucket, NotificationConfiguration={
                "QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]})

    def messages(self):
        """The numbers of visible and of outstanding messages."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)["Attributes"]
        return tuple(int(found[name]) for name in names)

    def notify(self, key, bucket=None, event="ObjectCreated:Put", **more):
        record = {"eventName": event, "s3": {"bucket": {"name": bucket or self.bucket}, "object": {"key": key, **more}}}
        return json.dumps({"Records": [record]})

    def send(self, body):
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=body)

    def test_objects_come_and_their_messages_are_deleted(self):
        self.make()
        for n in range(25):
            self.put(f"in/{n} ä+%", f"{n}\n".encode())
        self.put("out/1", b"not wanted\n")
        run = self.read(queue=self.queue, prefix="in/")
        wait_for(lambda: run.count() >= 25 and self.messages() == (0, 0), "messages to be deleted", PATIENCE)
        self.assertEqual(sorted(map(int, self.values(run))), list(range(25)))
        self.put("in/late", b"late\n")
        wait_for(lambda: run.count() >= 26 and self.messages() == (0, 0), "the last", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(self.values(run).count("late"), 1)

    def test_messages_of_every_odd_kind(self):
        self.make(notify=False)
        for key in ["a b", "sns", "bridge", "two", "three"]:
            self.put(key, key.encode())
        self.send(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": self.bucket}))
        self.send(self.notify("a+b"))
        self.send(json.dumps({"Type": "Notification", "Message": self.notify("sns", event="s3:ObjectCreated:Put")}))
        self.send(json.dumps({"detail-type": "Object Created", "detail": {"bucket": {"name": self.bucket}, "object": {"key": "bridge"}}}))
        self.send(json.dumps({"detail-type": "Object Deleted", "detail": {"bucket": {"name": self.bucket}, "object": {"key": "bridge"}}}))
        records = [json.loads(self.notify(key))["Records"][0] for key in ("two", "gone", "three")]
        self.send(json.dumps({"Records": records}))
        self.send(self.notify("a+b", event="ObjectRemoved:Delete"))
        self.send(self.notify("x", bucket="another"))
        self.send("no JSON")
        self.send("[]")
        self.send('{"Records": [{"eventName": 1}]}')
        run = self.read(queue=self.queue)
        wait_for(lambda: self.messages() == (0, 0), "all messages", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertEqual(sorted(self.values(run)), sorted(["a b", "sns", "bridge", "two", "three"]))
        reasons = sorted(event["reason"] for event in run.lines() if "reason" in event)
        self.assertEqual(reasons, sorted(["the message names an object of another bucket", "the message has a record that is none of S3",
                                          "the message is not an S3 notification: it is not a JSON object",
                                          "the message is not an S3 notification: it is not a JSON object"]))
        self.assertIn("count: goneObjects 1", run.errors())

    @in_process
    def test_a_message_stays_until_its_events_are_acknowledged(self):
        """Their processing takes longer than the queue hides them."""
        self.make()
        for n in range(5):
            self.put(f"{n}", f"{n}\n".encode())
        os.environ.update(CLEAN)
        with host.Plugin(self.plugin).open("source", "s3", **self.given(queue=self.queue, visibility="4s")) as instance:
            instance.start(100)
            events = []

            def have_come():
                batch = instance.take(0.1)
                events.extend(batch[0] if batch else [])
                return len(events) >= 5

            wait_for(have_come, "five events", PATIENCE)
            end = time.monotonic() + 6
            while time.monotonic() < end:
                self.assertEqual(self.messages(), (0, 5))
                time.sleep(0.3)
            for item in events:
                instance.acknowledge(item["token"])
            wait_for(lambda: self.messages() == (0, 0), "deletions", PATIENCE)
            self.assertEqual(sorted(item["event"]["value"] for item in events), list("01234"))
            self.assertEqual(instance.stop(20)["status"], host.OK)

    def test_a_failure_gives_messages_back(self):
        self.make()
        for n in range(8):
            self.put(f"{n:02}", f"{n}\n".encode())
        failing = self.read("failing", more="fail 2", queue=self.queue, visibility="1h", environment={"CREDIT": "3"})
        wait_for(lambda: len(set(self.values(failing))) == 8 and self.messages() == (0, 0), "all to be read", PATIENCE)
        self.assertEqual(failing.end(), 0, failing.errors())
        self.assertIn("count: returned", failing.errors())
        self.assert_nothing_lost([str(n) for n in range(8)], self.values(failing), "rounds that fail")

    @in_process
    def test_a_stop_gives_back_what_is_under_way(self):
        self.make()
        for n in range(8):
            self.put(f"{n}", f"{n}\n".encode())
        os.environ.update(CLEAN)
        with host.Plugin(self.plugin).open("source", "s3", **self.given(queue=self.queue, visibility="1h")) as instance:
            instance.start(1)
            taken = instance.take(20)[0]
            wait_for(lambda: self.messages()[1] > 1, "messages under way", PATIENCE)
            instance.begin_stop()
            instance.acknowledge(taken[0]["token"])
            # The next event has no credit left, and rxd answers for it.
            instance.acknowledge(taken[0]["token"] + (1 << 32), failed=True)
            self.assertEqual(instance.join(20)["status"], host.OK)
        wait_for(lambda: self.messages() == (7, 0), "messages to be given back", PATIENCE)
        second = self.read("second", queue=self.queue)
        wait_for(lambda: self.messages() == (0, 0), "the rest", PATIENCE)
        second.end()
        seen = [taken[0]["event"]["value"], *self.values(second)]
        self.assertEqual(sorted(seen), list("01234567"))

    def test_a_queue_that_is_missing(self):
        self.make()
        run = self.read(queue=self.queue + "-missing")
        self.all_of(run, 1)
        self.assertIn("there is no such queue; create it, or correct 'queue'", run.errors())

    def test_after_delete(self):
        self.make()
        self.put("a", b"1\n")
        self.put("b.gz", b"no gzip")
        run = self.read(queue=self.queue, after="delete")
        wait_for(lambda: self.messages() == (0, 0) and self.keys() == ["b.gz"], "the deletion", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())


class HostileTests(S3Test):
    """Servers that refuse, lie, stall or flood."""

    def queue_answer(self, *bodies):
        """The answer to ReceiveMessage."""
        messages = "".join(f"<Message><ReceiptHandle>{n}</ReceiptHandle><Body>{html.escape(body)}</Body></Message>" for n, body in enumerate(bodies))
        return 200, {}, f"<ReceiveMessageResponse><ReceiveMessageResult>{messages}</ReceiveMessageResult></ReceiveMessageResponse>".encode()

    def test_a_stop_while_the_store_answers_no_deletion(self):
        """Eight objects are acknowledged, and none can be deleted: each attempt waits for the idle timeout."""
        keys = [f"k{n}" for n in range(8)]
        records = [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "hang"}, "object": {"key": key}}} for key in keys]
        for name in ["list", "queue"]:
            with self.subTest(name=name):
                hanging, received, read = threading.Event(), [], set()

                def answer(request, hanging=hanging, received=received, read=read):
                    if request.command in ("HEAD", "DELETE"):
                        if len(read) < len(keys):
                            return error(503, "SlowDown")
                        hanging.set()
                        time.sleep(120)
                    if request.command == "POST" and b"ReceiveMessage" in request.body and not received:
                        received.append(request)
                        return self.queue_answer(json.dumps({"Records": records}))
                    if request.command == "POST":
                        return self.queue_answer()
                    if request.path.rstrip("/").endswith(tuple(keys)):
                        read.add(request.path)
                        return 200, {"ETag": '"tag-0"'}, b"line\n"
                    return 200, {}, listing([(key, 5) for key in keys])

                self.bucket = "hang"
                self.script(answer)
                mode = {"every": "1h"} if name == "list" else {"queue": f"http://127.0.0.1:{self.port}/1/q"}
                run = self.read(name, after="delete", idleTimeout="5s", **mode)
                wait_for(lambda: hanging.is_set() and run.count() == 8, "a deletion", PATIENCE)
                begin = time.monotonic()
                self.assertEqual(run.end(seconds=50), 0, run.errors())
                print(f"\n    a stop while no deletion is answered, {name}: {time.monotonic() - begin:.1f} s")

    @unittest.skipIf(SANITIZERS, "sanitizers keep freed memory for a while")
    def test_answers_of_a_queue_that_are_cut_leave_nothing_in_memory(self):
        _, _, whole = self.queue_answer("x" * (12 << 20))
        asked = []

        def answer(request):
            asked.append(request.command)
            return 200, {}, whole[:-30]

        self.bucket = "cut"
        self.script(answer)
        run = self.read(queue=f"http://127.0.0.1:{self.port}/1/q")

        def resident():
            with open(f"/proc/{run.process.pid}/status") as status:
                return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))

        wait_for(lambda: len(asked) >= 2, "two answers", PATIENCE)
        time.sleep(0.2)
        before = resident()
        wait_for(lambda: len(asked) >= 7, "seven answers", PATIENCE)
        time.sleep(0.5)
        self.assertLess(resident() - before, 30)
        self.assertEqual(run.end(), 0, run.errors())

    def test_errors_say_what_to_do(self):
        for name, answer, expected in [
            ("bucket", error(404, "NoSuchBucket"), "there is no bucket 'errors'; create it, or correct 'bucket'"),
            ("region", error(301, "PermanentRedirect", **{"x-amz-bucket-region": "eu-west-1"}),
             "the bucket 'errors' is in the region 'eu-west-1'; set 'region: eu-west-1'"),
            ("region in the body", (400, {}, b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>us-west-2</Region></Error>"),
             "the bucket 'errors' is in the region 'us-west-2'; set 'region: us-west-2'"),
            ("denied", error(403, "AccessDenied"), "access to errors is denied (AccessDenied); allow it to the user of the access key"),
            ("key", error(403, "InvalidAccessKeyId", "unknown"), "refuses the credentials: InvalidAccessKeyId, unknown; check the access key"),
            ("expired", error(400, "ExpiredToken"), "refuses the credentials: ExpiredToken"),
            ("not implemented", error(501, "NotImplemented", "no listing"), "answers 501 NotImplemented: no listing"),
        ]:
            with self.subTest(name=name):
                self.bucket = "errors"
                self.script(lambda request: answer)
                run = self.read(name.replace(" ", ""))
                self.all_of(run, 1)
                self.assertIn(expected, run.errors())
                sink = self.write([1], "sink" + name.replace(" ", ""))
                self.assertEqual(sink.process.wait(PATIENCE), 1, sink.errors())
                self.assert_no_secrets(run, sink)

    def test_a_clock_that_is_wrong(self):
        def answer(request):
            body = b"<Error><Code>RequestTimeTooSkewed</Code></Error>"
            date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 7200))
            request.wfile.write(f"HTTP/1.1 403 Forbidden\r\nDate: {date}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            return None

        server = self.script(answer)
        run = self.read()
        wait_for(lambda: len(server.requests) > 2, "attempts", PATIENCE)
        wait_for(lambda: "the clock of this machine differs from the server's by 7200 s (RequestTimeTooSkewed); set it" in run.errors(),
                 "the warning", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())

    def object(self, body, **more):
        """A server of one object, `a`, whose body `behaviour` sends."""
        def answer(request):
            if "list-type" in request.query:
                return 200, {}, listing([] if "start-after" in request.query else [("a", more.get("size", 100))])
            return body(request)

        return self.script(answer)

    def test_a_server_that_knows_no_ranges_and_cuts(self):
        data = b"".join(b"%d\n" % n for n in range(20000))
        cuts = []

        def body(request):
            cuts.append(request.headers.get("Range"))
            end = len(data) if len(cuts) > 4 else 20000 * len(cuts)
            request.send_response(200)
            request.send_header("Content-Length", str(len(data)))
            request.send_header("ETag", '"tag-0"')
            request.end_headers()
            request.wfile.write(data[:end])
            return None

        server = self.object(body, size=len(data))
        events = self.all_of(self.read())
        self.assertEqual([event["value"] for event in events], [str(n) for n in range(20000)])
        self.assertEqual(cuts, [None, "bytes=20000-", "bytes=40000-", "bytes=60000-", "bytes=80000-"])
        self.assertEqual([head.get("if-match") for _, path, head, _ in server.requests if "list-type" not in path], 5 * ['"tag-0"'])

    def test_lengths_and_parts_that_are_wrong(self):
        answers = [
            (200, {"ETag": '"tag-0"', "Content-Length": "3"}, b"1\n2\n"),         # more than announced: cut there
            (206, {"ETag": '"tag-0"', "Content-Range": "bytes 0-1/4"}, b"1\n"),   # an unrequested part
            (206, {"ETag": '"tag-0"', "Content-Range": "garbage"}, b"9\n9\n"),
            (200, {"ETag": '"other"'}, b"new\nnew\n"),                            # another object
            (200, {"ETag": '"other"'}, b"new\nnew\n"),
        ]

        def body(request):
            if len(answers) == 5 and request.headers.get("Range") is None:
                answers.pop(0)
                request.send_response(200)
                request.send_header("Content-Length", "4")
                request.send_header("ETag", '"tag-0"')
                request.end_headers()
                request.wfile.write(b"1\n")
                return None
            return answers.pop(0) if answers else (404, {}, b"")

        self.object(body, size=4)
        run = self.read()
        events = self.all_of(run)
        self.assertEqual([event["value"] for event in events], ["1", "new", "new"])
        self.assertIn("a was replaced while it was read; it is read again from its start", run.errors())

    def test_an_object_that_is_gone_or_archived(self):
        def answer(request):
            if "list-type" in request.query:
                return 200, {}, listing([("a", 1), ("b", 1), ("c", 1)])
            if request.path.endswith("/a"):
                return error(404, "NoSuchKey")
            if request.path.endswith("/b"):
                return error(403, "InvalidObjectState")
            return 200, {}, b"1\n"

        self.script(answer)
        run = self.read()
        events = self.all_of(run)
        self.assertEqual([event.get("value", event.get("reason")) for event in events],
                         ["b is archived (InvalidObjectState); restore it first", "1"])
        self.assertIn("count: goneObjects 1", run.errors())

    def test_listings_that_are_none(self):
        bomb = b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">' + b"".join(
            b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(10)) + b"]><ListBucketResult>&k;</ListBucketResult>"
        deep = b"<a>" * 100000
        for name, body in [("bomb", bomb), ("deep", deep), ("garbage", os.urandom(10000)), ("empty", b""), ("other", b"<html></html>"),
                           ("cut", listing([("a", 1)])[:-30])]:
            with self.subTest(name=name):
                server = self.script(lambda request: (200, {}, body))
                run = self.read(name)
                wait_for(lambda: len(server.requests) > 2, "attempts", PATIENCE)
                wait_for(lambda: "answers a listing with what is none; trying again" in run.errors(), "the warning", PATIENCE)
                self.assertEqual(run.errors().count("warning"), 1, run.errors())
                self.assertLess(self.memory(run), 150)
                self.assertEqual(run.end(), 0, run.errors())

    def memory(self, run):
        """Megabytes of a process."""
        with open(f"/proc/{run.process.pid}/status") as status:
            return [int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS")][0] if not SANITIZERS else 0

    def test_listings_without_end(self):
        for name, page, expected in [
            ("again", listing([("a", 1)], truncated=True), "does not list the bucket in the order of keys"),
            ("nothing", listing([], truncated=True), "lists nothing, and says that more follows"),
            ("disorder", listing([("b", 1), ("a", 1)]), "does not list the bucket in the order of keys"),
        ]:
            with self.subTest(name=name):
                server = self.script(lambda request: (200, {}, page) if "list-type" in request.query else (200, {}, b"1\n"))
                run = self.read(name)
                wait_for(lambda: expected in run.errors(), "the warning", PATIENCE)
                wait_for(lambda: len(server.requests) > 4, "attempts", PATIENCE)
                self.assertLess(len(server.requests), 50)
                self.assertEqual(run.end(), 0, run.errors())

    def test_a_listing_that_grows_for_ever_takes_no_memory(self):
        number = [0]

        def answer(request):
            if "list-type" not in request.query:
                return error(404, "NoSuchKey")
            number[0] += 1
            return 200, {}, listing([(f"{number[0]:09}-{n:04}", 1) for n in range(1000)], truncated=True)

        self.script(answer)
        run = self.read(start="new")
        wait_for(lambda: number[0] > 20, "pages", PATIENCE)
        before = self.memory(run)
        wait_for(lambda: number[0] > 120, "pages", PATIENCE)
        print(f"\n    100,000 keys more: {self.memory(run) - before:+.1f} MiB")
        self.assertLess(self.memory(run), before + 20)
        self.assertEqual(run.end(), 0, run.errors())

    def test_answers_that_are_too_large(self):
        def flood(request):
            request.send_response(200)
            request.end_headers()
            for _ in range(40):
                request.wfile.write(b"<a>" * 400000)
            return None

        def headers(request):
            request.send_response(200)
            for n in range(10000):
                request.send_header(f"x-{n}", "x" * 100)
            request.end_headers()
            return None

        for name, answer in [("body", flood), ("headers", headers)]:
            with self.subTest(name=name):
                server = self.script(answer)
                run = self.read(name)
                wait_for(lambda: len(server.requests) > 1, "attempts", PATIENCE)
                wait_for(lambda: "warning" in run.errors(), "the warning", PATIENCE)
                self.assertLess(self.memory(run), 200)
                self.assertEqual(run.end(), 0, run.errors())

    def test_a_storm_of_503_ends(self):
        stormy = [True]
        stored = {}

        def answer(request):
            if stormy[0]:
                return error(503, "SlowDown", "Please reduce your request rate.")
            if request.command == "PUT":
                stored[request.url.path] = request.body
                return 200, {"ETag": '"x"'}, b""
            if "list-type" in request.query:
                return 200, {}, listing([("a", 2)])
            return 200, {"ETag": '"tag-0"'}, b"1\n"

        server = self.script(answer)
        run, sink = self.read(), self.write([1, 2, 3])
        wait_for(lambda: len(server.requests) > 8, "attempts", PATIENCE)
        stormy[0] = False
        self.assertEqual([event["value"] for event in self.all_of(run)], ["1"])
        self.assertEqual(sink.process.wait(PATIENCE), 0, sink.errors())
        self.assertEqual(list(stored.values()), [b"1\n2\n3\n"])
        for one in (run, sink):
            self.assertEqual(one.errors().count("answers 503 SlowDown: Please reduce your request rate.; trying again"), 1, one.errors())
            self.assertIn("works again", one.errors())

    def stops_soon(self, run):
        begin = time.monotonic()
        self.assertEqual(run.end(), 0, run.errors())
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_server_that_says_nothing(self):
        silent = threading.Event()
        self.addCleanup(silent.set)

        def answer(request):
            silent.wait(60)
            return None

        server = self.script(answer)
        run = self.read(idleTimeout="1s")
        wait_for(lambda: "Timeout was reached; trying again" in run.errors(), "the time-out", PATIENCE)
        wait_for(lambda: len(server.requests) > 1, "the next attempt", PATIENCE)
        self.stops_soon(run)
        before = len(server.requests)
        waiting = self.read("waiting")
        wait_for(lambda: len(server.requests) > before, "a request", PATIENCE)
        self.stops_soon(waiting)

    def test_a_body_that_stalls_and_one_that_is_slow(self):
        data = b"".join(b"%d\n" % n for n in range(3000))
        times = []

        def body(request):
            times.append(time.monotonic())
            begin = int(request.headers.get("Range", "bytes=0-")[6:-1])
            request.send_response(206 if begin else 200)
            request.send_header("Content-Length", str(len(data) - begin))
            request.send_header("ETag", '"tag-0"')
            if begin:
                request.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            request.end_headers()
            request.wfile.write(data[begin:begin + 5000])
            request.wfile.flush()
            if len(times) < 2:
                time.sleep(20)  # silent
                return None
            for at in range(begin + 5000, len(data), 2000):  # slow
                time.sleep(0.2)
                request.wfile.write(data[at:at + 2000])
            return None

        self.object(body, size=len(data))
        run = self.read(idleTimeout="1s")
        self.assertEqual([event["value"] for event in self.all_of(run)], [str(n) for n in range(3000)])
        self.assertEqual(len(times), 2)
        self.assertLess(times[1] - times[0], 10)

    def test_no_server(self):
        self.port = free_port()
        run, sink = self.read(), self.write([1], timeout="1s")
        for one in (run, sink):
            wait_for(lambda: one.errors().count("requestErrors") > 2, "attempts", PATIENCE)
            self.assertIn(f"127.0.0.1:{self.port}: Couldn't connect to server; trying again", one.errors())
        self.stops_soon(run)
        sink.end(signal.SIGKILL)
        self.assert_no_secrets(run, sink)


class SinkTests(S3Test):
    @classmethod
    def setUpClass(cls):
        cls.start_moto()

    def test_encodings_and_packings(self):
        self.make_bucket()
        events = ["a\nb", {"n": 1}, [1, 2], None]
        for encode, expected in [("ndjson", b'"a\\nb"\n{"n":1}\n[1,2]\nnull\n'), ("text", b'a\nb\n{"n":1}\n[1,2]\nnull\n'),
                                 ("lines", b'a\\nb\n{"n":1}\n[1,2]\nnull\n'), ("bytes", b'a\nb{"n":1}[1,2]null')]:
            for compress, end in [("none", ""), ("gzip", ".gz"), ("zstd", ".zst")]:
                with self.subTest(encode=encode, compress=compress):
                    self.written(events, encode + compress, encode=encode, compress=compress, key=f"{encode}/{{id}}{end}")
                    keys = [key for key in self.keys(encode + "/") if key.endswith(end) and (end or "." not in key)]
                    self.assertEqual(len(keys), 1)
                    self.assertEqual(self.content(keys[0]).replace(b"\\u000a", b"\\n"), expected)
        head = self.s3.head_object(Bucket=self.bucket, Key=self.keys()[0])
        self.assertEqual(head["ContentType"], "application/x-ndjson")

    def test_keys_limits_and_lists(self):
        self.make_bucket()
        events = [{"k": "ab"[n % 2], "n": n} for n in range(100)]
        self.written(events, key="k/{{ event.k }}/{id}", value="{{ event.n }}")
        self.assertEqual(sorted(self.content(key) for key in self.keys("k/")),
                         sorted(b"".join(b"%d\n" % n for n in range(start, 100, 2)) for start in (0, 1)))
        self.written(list(range(10)), "events", key="e/{id}", maxEvents=3)
        self.assertEqual(sorted(self.content(key).count(b"\n") for key in self.keys("e/")), [1, 3, 3, 3])
        self.written(list(range(10)), "bytes", key="b/{id}", maxBytes="4B")
        self.assertEqual(len(self.keys("b/")), 5)
        self.written([[1, 2], 4, 5, [3], 6], "lists", key="l/{id}", lists="lines")
        self.assertEqual(sorted(self.content(key) for key in self.keys("l/")), [b"1\n2\n", b"3\n", b"4\n5\n", b"6\n"])
        many = [{"k": n} for n in range(200)]
        self.written(many, "many", key="m/{{ event.k }}/{id}")
        self.assertEqual(len(self.keys("m/")), 200)

    def test_keys_that_are_none_are_refused_alone(self):
        self.make_bucket()
        run = self.written([{"k": "{id}"}, {"k": ""}, {"k": "fixed"}, {"k": "/a{id}"}, {"k": "x" * 1100 + "{id}"}, {"k": "b{id}"}],
                           key="{{ event.k }}")
        self.assertIn("delivered 2, refused 4", run.errors())
        for reason in ["'key' is empty for this event", "'key' needs {id}", "'key' begins with '/'", "'key' has more than 1024 bytes"]:
            self.assertIn(f"refused: {reason}", run.errors())
        self.assertEqual(len(self.keys()), 2)

    def test_replacing_and_only_new(self):
        self.make_bucket()
        self.written([{"d": "x", "n": 1}, {"d": "y", "n": 2}, {"d": "x", "n": 3}], key="state/{{ event.d }}.json", value="{{ event.n }}",
                     replace=True)
        self.assertEqual({key: self.content(key) for key in self.keys()}, {"state/x.json": b"3\n", "state/y.json": b"2\n"})
        run = self.written([{"d": "x", "n": 9}, {"d": "z", "n": 4}, {"d": "y", "n": 2}], "new", key="state/{{ event.d }}.json",
                           value="{{ event.n }}", onlyNew=True)
        self.assertIn("refused: another object has the key 'state/x.json'", run.errors())
        self.assertIn("delivered 2, refused 1", run.errors())  # y has the same content
        self.assertEqual(self.content("state/x.json"), b"3\n")
        self.assertEqual(self.content("state/z.json"), b"4\n")

    def test_names_of_events_name_objects(self):
        self.make_bucket()
        events = [{"id": f"i{n}"} for n in range(10)]
        for name in ("first", "again"):
            self.written(events, name, key="named/{id}", id="{{ event.id }}")
            self.written(events, name + "unnamed", key="unnamed/{id}")
        self.assertEqual(len(self.keys("named/")), 1)
        self.assertEqual(len(self.keys("unnamed/")), 2)

    def test_parts(self):
        self.make_bucket()
        events = [random.randbytes(300000).hex() for _ in range(40)]
        self.written(events, key="parts/{id}", encode="text", partSize="5MiB", storageClass="STANDARD_IA", encryption="aes256")
        keys = self.keys("parts/")
        self.assertEqual(len(keys), 1)
        self.assertEqual(self.content(keys[0]), "".join(event + "\n" for event in events).encode())
        head = self.s3.head_object(Bucket=self.bucket, Key=keys[0])
        self.assertIn("-5", head["ETag"])
        self.assertEqual((head["StorageClass"], head["ServerSideEncryption"]), ("STANDARD_IA", "AES256"))
        self.assertEqual(self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", []), [])

    def test_an_upload_that_fails_is_given_up(self):
        seen = []

        def answer(request):
            seen.append((request.command, request.query))
            if "uploads" in request.query:
                return 200, {}, b"<InitiateMultipartUploadResult><UploadId>u&amp;1</UploadId></InitiateMultipartUploadResult>"
            if "partNumber" in request.query and request.query["partNumber"] == "2":
                return error(400, "InvalidRequest", "no second part")
            return 200, {"ETag": '"x"'}, b""

        self.script(answer)
        run = self.write(["x" * 6000000], partSize="5MiB")
        self.assertEqual(run.process.wait(PATIENCE), 1, run.errors())
        self.assertIn("no second part", run.errors())
        self.assertEqual(seen[-1], ("DELETE", {"uploadId": "u&1"}))

    def test_completions_whose_answer_is_lost_or_an_error(self):
        completions, hashes = [], []

        def answer(request):
            if "uploads" in request.query:
                hashes.append(request.headers["x-amz-meta-rxd-sha256"])
                return 200, {}, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
            if request.command == "POST":
                completions.append(request.body)
                if len(completions) == 1:
                    return 200, {}, b"<Error><Code>InternalError</Code><Message>try again</Message></Error>"
                return error(404, "NoSuchUpload")
            if request.command == "HEAD":
                return 200, {"x-amz-meta-rxd-sha256": hashes[0]}, b""
            return 200, {"ETag": '"x"'}, b""

        self.script(answer)
        run = self.written(["x" * 6000000], partSize="5MiB")
        self.assertEqual(len(completions), 2)
        self.assertIn("delivered 1, refused 0", run.errors())

    def test_an_answer_that_is_lost_replaces_nothing(self):
        """The object is stored, its answer cut: the next attempt finds it, even with If-None-Match."""
        stored = {}

        def answer(request):
            if request.command == "HEAD":
                return 200, {"x-amz-meta-rxd-sha256": stored[request.url.path]}, b""
            if request.url.path in stored:
                return error(412, "PreconditionFailed")
            self.assertEqual(request.headers["if-none-match"], "*")
            stored[request.url.path] = request.headers["x-amz-meta-rxd-sha256"]
            return None

        self.script(answer)
        run = self.written([1, 2], onlyNew=True)
        self.assertIn("delivered 2, refused 0", run.errors())
        self.assertEqual(len(stored), 1)

    def test_nothing_is_lost_while_connections_are_cut(self):
        self.make_bucket()
        proxy = Proxy(self.moto.port)
        self.addCleanup(proxy.close)
        self.port = proxy.port
        run = self.write(list(range(COUNT)), key="n/{id}", maxEvents=50)
        while run.process.poll() is None:
            time.sleep(random.random() / 10)
            proxy.cut()
        self.assertEqual(run.process.returncode, 0, run.errors())
        found = [int(line) for key in self.keys("n/") for line in self.content(key).splitlines()]
        self.assert_nothing_lost(range(COUNT), found, f"{proxy.cuts} connections cut")


class CredentialTests(S3Test):
    """The origins of credentials; each request names the key that signs it."""

    def asked(self, environment, **parameters):
        """The access key and the token of the first request to the store, or the source's error."""
        server = self.script(lambda request: self.store_answer(request))
        run = self.read(f"run{len(self.processes)}", environment={**CLEAN, **environment}, accessKey=None, secretKey=None, **parameters)
        status = run.process.wait(PATIENCE)
        self.assertNotIn("SECRETPART", run.errors())
        if status != 0:
            return run.errors()
        head = {name.lower(): value for _, path, head, _ in server.requests if "list-type" in path for name, value in head.items()}
        return head["authorization"].split("Credential=")[1].split("/")[0], head.get("x-amz-security-token")

    def store_answer(self, request):
        return 200, {}, listing([])

    def test_the_environment(self):
        self.assertEqual(self.asked({"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "SECRETPART"}), ("ENV", None))
        self.assertEqual(self.asked({"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "SECRETPART", "AWS_SESSION_TOKEN": "TOKEN"}),
                         ("ENV", "TOKEN"))

    def test_the_file(self):
        path = self.path("credentials")
        with open(path, "w") as file:
            file.write("# mine\n[default]\naws_access_key_id = DEFAULT\naws_secret_access_key=SECRETPART\n\n[ other ]\naws_access_key_id=OTHER\n"
                       "aws_secret_access_key = SECRETPART\naws_session_token = TOKEN\n[half]\naws_access_key_id = HALF\n")
        self.assertEqual(self.asked({"AWS_SHARED_CREDENTIALS_FILE": path}), ("DEFAULT", None))
        self.assertEqual(self.asked({"AWS_SHARED_CREDENTIALS_FILE": path, "AWS_PROFILE": "other"}), ("OTHER", "TOKEN"))
        self.assertEqual(self.asked({}, credentialsFile=path, profile="other"), ("OTHER", "TOKEN"))
        os.mkdir(self.path(".aws"))
        os.link(path, self.path(".aws/credentials"))
        self.assertEqual(self.asked({"HOME": self.directory}), ("DEFAULT", None))
        self.assertIn("has no access key in the profile 'half'", self.asked({}, credentialsFile=path, profile="half"))
        self.assertIn("cannot be read: No such file or directory", self.asked({}, credentialsFile=self.path("none")))
        self.assertIn("no credentials are found", self.asked({}))

    def test_a_container(self):
        def answer(request):
            if request.headers.get("Authorization") != "Bearer x":
                return 401, {}, b""
            return 200, {}, json.dumps({"AccessKeyId": "CONTAINER", "SecretAccessKey": "SECRETPART", "Token": "T/+=", "Expiration": "2099-01-01T00:00:00Z"}).encode()

        other = Script(answer)
        self.addCleanup(other.end)
        url = f"http://127.0.0.1:{other.port}/v2/creds"
        self.assertEqual(self.asked({"AWS_CONTAINER_CREDENTIALS_FULL_URI": url, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "Bearer x"}),
                         ("CONTAINER", "T/+="))
        with open(self.path("token"), "w") as file:
            file.write("Bearer x\n")
        self.assertEqual(self.asked({"AWS_CONTAINER_CREDENTIALS_FULL_URI": url, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": self.path("token")}),
                         ("CONTAINER", "T/+="))

    def test_a_machine(self):
        def answer(request):
            if request.command == "PUT" and request.path == "/latest/api/token":
                return 200, {}, b"METADATA"
            if request.headers.get("x-aws-ec2-metadata-token") != "METADATA":
                return 401, {}, b""
            if request.path == "/latest/meta-data/iam/security-credentials/":
                return 200, {}, b"role"
            if request.path == "/latest/meta-data/iam/security-credentials/role":
                return 200, {}, json.dumps({"Code": "Success", "AccessKeyId": "MACHINE", "SecretAccessKey": "SECRETPART", "Token": "TOKEN",
                                            "Expiration": "2099-01-01T00:00:00Z"}).encode()
            return 404, {}, b""

        other = Script(answer)
        self.addCleanup(other.end)
        environment = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{other.port}"}
        self.assertEqual(self.asked(environment), ("MACHINE", "TOKEN"))

    def test_a_web_identity(self):
        forms = []

        def answer(request):
            forms.append(request.body)
            return 200, {}, (b"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>WEB</AccessKeyId>"
                             b"<SecretAccessKey>SECRETPART</SecretAccessKey><SessionToken>TOKEN</SessionToken><Expiration>2099-01-01T00:00:00Z"
                             b"</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")

        other = Script(answer)
        self.addCleanup(other.end)
        with open(self.path("token"), "w") as file:
            file.write("a.b.c\n")
        environment = {"AWS_WEB_IDENTITY_TOKEN_FILE": self.path("token"), "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
                       "AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{other.port}"}
        self.assertEqual(self.asked(environment), ("WEB", "TOKEN"))
        self.assertIn(b"RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=rxd&WebIdentityToken=a.b.c", forms[0])

    def test_temporary_ones_are_renewed(self):
        """They expire soon: the next request fetches new ones. The server refuses the first ones meanwhile."""
        given = []

        def give(request):
            given.append(1)
            return 200, {}, json.dumps({"AccessKeyId": f"KEY{len(given)}", "SecretAccessKey": "SECRETPART", "Token": "T",
                                        "Expiration": "2099-01-01T00:00:00Z"}).encode()

        other = Script(give)
        self.addCleanup(other.end)
        self.store_answer = lambda request: (error(400, "ExpiredToken") if "KEY1/" in request.headers["authorization"] else (200, {}, listing([])))
        self.assertEqual(self.asked({"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{other.port}/"}), ("KEY2", "T"))


class PipelineTests(S3Test):
    """Whole pipelines in rxd."""

    @classmethod
    def setUpClass(cls):
        if not RXD:
            raise unittest.SkipTest("set RXD to the program")
        cls.start_moto()

    def connection(self):
        return f"endpoint: 'http://127.0.0.1:{self.port}', region: {REGION}, accessKey: {ACCESS}, secretKey: {SECRET}"

    def test_a_restart_goes_on_within_an_object(self):
        self.make_bucket()
        self.put("a", b"".join(b"%d\n" % n for n in range(200000)))
        self.put("b.gz", gzip.compress(b"".join(b"%d\n" % n for n in range(200000, 300000))))
        text = f"""name: reader
plugins: {{ s3: PLUGIN }}
sources: {{ in: {{ s3: {{ bucket: {self.bucket}, every: 200ms, {self.connection()} }} }} }}
sinks: {{ out: {{ from: in, chain: [ map: event.value ], file: {{ path: {self.path("out")}, encode: text }} }} }}
"""
        runs = []
        for turn in range(4):
            runs.append(self.pipeline(text, f"run{turn}", state="reader"))
            goal = self.size("out") + 300000 * (turn + 1)
            wait_for(lambda: self.size("out") >= min(goal, 1988890), "a part", PATIENCE)
            runs[-1].end(signal.SIGKILL)
        # The sink truncates the lines that it will write again, so only an object after the others shows that everything has arrived.
        self.put("c", b"300000\n")
        runs.append(self.pipeline(text, "last", state="reader"))

        def lines():
            with open(self.path("out")) as file:
                return file.read().split("\n")[:-1]

        wait_for(lambda: lines()[-1:] == ["300000"], "all lines", PATIENCE)
        self.assertEqual(runs[-1].end(), 0, runs[-1].errors())
        self.assert_nothing_lost([str(n) for n in range(300001)], lines(), "four kills within objects")

    def size(self, name):
        return os.path.getsize(self.path(name)) if os.path.exists(self.path(name)) else 0

    def test_lists_of_a_buffer_become_objects(self):
        self.make_bucket()
        lines = self.path("lines")
        with open(lines, "w") as file:
            file.writelines(json.dumps({"n": n}) + "\n" for n in range(2500))
        text = f"""plugins: {{ s3: PLUGIN }}
sources: {{ in: {{ file: {{ path: {lines}, decode: ndjson }} }} }}
sinks:
  out:
    from: in
    chain: [ bufferWithCount: 1000 ]
    s3: {{ bucket: {self.bucket}, key: "{{{{ formatTime(now, '%Y') }}}}/{{id}}.ndjson.gz", compress: gzip, lists: lines, {self.connection()} }}
"""
        run = self.pipeline(text, "lists")
        self.assertEqual(run.process.wait(PATIENCE), 0, run.errors())
        self.assertEqual(sorted(self.content(key).count(b"\n") for key in self.keys()), [500, 1000, 1000])

    def test_a_stop_does_not_wait_for_a_silent_server(self):
        silent, heard = threading.Event(), threading.Event()
        self.addCleanup(silent.set)

        def answer(request):
            heard.set()
            silent.wait(60)
            return None

        self.script(answer)
        lines = self.path("lines")
        with open(lines, "w") as file:
            file.writelines(f"{n}\n" for n in range(100))
        run = self.pipeline(f"""plugins: {{ s3: PLUGIN }}
sources: {{ in: {{ file: {{ path: {lines}, follow: true }} }} }}
sinks: {{ out: {{ from: in, s3: {{ bucket: silent, key: "{{id}}", {self.connection()} }} }} }}
""", "silent")
        wait_for(heard.is_set, "a request", PATIENCE)
        begin = time.monotonic()
        run.end()
        took = time.monotonic() - begin
        print(f"\n    a stop with a silent server: {took:.1f} s")
        self.assertLess(took, 12, run.errors())

    def test_wrong_settings_are_reported_with_their_place(self):
        run = self.pipeline(f"""plugins: {{ s3: PLUGIN }}
sources: {{ in: {{ s3: {{ bucket: missing-bucket, {self.connection()} }} }} }}
sinks: {{ out: {{ from: in, stdout: {{ encode: json }} }} }}
""", "wrong")
        run.process.wait(PATIENCE)
        self.assertNotEqual(run.process.returncode, 0)
        self.assertIn("there is no bucket 'missing-bucket'; create it, or correct 'bucket'", run.errors())
        self.assertNotIn(SECRET, run.errors())

    def test_the_example_works(self):
        example = os.path.join(ROOT, "pipelines", "orders.yaml")
        tested = subprocess.run([RXD, "test", example], capture_output=True, text=True, timeout=PATIENCE, env=WITH_SANITIZERS)
        self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)
        for bucket in ("orders", "large-orders"):
            self.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.s3.put_object(Bucket="orders", Key="new/1.ndjson.gz", Body=gzip.compress(
            "".join(json.dumps({"id": n, "customer": f"c{n % 3}", "amount": n * 100}) + "\n" for n in range(20)).encode() + b"no JSON\n"))
        rxd = self.start([RXD, "run", example, "--state-dir", self.path("state")], "rxd", environment={
            **CLEAN, "S3": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET,
            "REFUSED": self.path("refused.ndjson")})
        self.bucket = "large-orders"

        def large():
            return [json.loads(line) for key in self.keys() for line in self.content(key).splitlines()]

        wait_for(lambda: len(large()) >= 10, "the large orders", PATIENCE)
        self.assertEqual(sorted(order["id"] for order in large()), list(range(10, 20)))
        self.bucket = "orders"
        wait_for(lambda: self.keys() == ["read/1.ndjson.gz"], "the object to be moved", PATIENCE)
        self.assertEqual(rxd.end(), 0, rxd.errors())
        with open(self.path("refused.ndjson")) as file:
            self.assertIn("is not a JSON document", file.read())


class KillTests(S3Test):
    """From one bucket through rxd into another, under load, while rxd is killed (SIGKILL) or connections are cut KILLS times."""

    LOAD = 2000  # numbers for each kill

    @classmethod
    def setUpClass(cls):
        if not RXD:
            raise unittest.SkipTest("set RXD to the program")
        cls.start_moto()

    def begin(self, source, port):
        self.make_bucket()
        self.text = f"""name: mover
plugins: {{ s3: PLUGIN }}
sources:
  in: {{ s3: {{ bucket: {self.bucket}, prefix: in/, decode: json, idleTimeout: 5s, {source}, {self.connection(port)} }} }}
sinks:
  out:
    from: in
    chain: [ map: event.value ]
    s3: {{ bucket: {self.bucket}, key: "out/{{id}}", id: "{{{{ event }}}}", {self.connection(port)} }}
"""
        self.total = (KILLS + 1) * self.LOAD
        self.sender = threading.Thread(target=fill, args=(self.moto.port, self.bucket, range(self.total), 100, 0.05), daemon=True)
        self.sender.start()
        self.read_keys, self.found = set(), []

    def connection(self, port):
        return f"endpoint: 'http://127.0.0.1:{port}', region: {REGION}, accessKey: {ACCESS}, secretKey: {SECRET}"

    def moved(self):
        """Waits for all numbers in the other bucket; objects do not change, so each is read once."""
        for key in self.keys("out/"):
            if key not in self.read_keys:
                self.read_keys.add(key)
                self.found += [int(line) for line in self.content(key).splitlines()]
        return len(set(self.found))

    def finish(self, label, run):
        self.sender.join(PATIENCE)
        wait_for(lambda: self.moved() >= self.total, "all to be moved", PATIENCE)
        self.assert_nothing_lost(range(self.total), self.found, label)
        wait_for(lambda: self.handles_a_stop(run), "the start of the last one", PATIENCE)
        self.assertEqual(run.end(), 0, run.errors())
        self.assertNotIn(SECRET, run.errors())

    def handles_a_stop(self, run):
        """Whether SIGTERM does not simply end the process: all objects may have been moved before the last rxd starts."""
        with open(f"/proc/{run.process.pid}/status") as status:
            signals = [int(line.split()[1], 16) for line in status if line.startswith(("SigCgt", "SigBlk"))]
        return any(mask >> (signal.SIGTERM - 1) & 1 for mask in signals)

    def kill_rxd(self, source, label):
        self.begin(source, self.moto.port)
        for turn in range(KILLS):
            run = self.pipeline(self.text, f"run{turn}", state="mover")
            goal = min(self.total, self.moved() + random.randrange(1, self.LOAD))
            wait_for(lambda: self.moved() >= goal, f"{goal} to be moved\n{run.errors()}", PATIENCE)
            time.sleep(random.random() / 5)
            run.end(signal.SIGKILL)
        self.finish(f"rxd killed {KILLS} times, {label}", self.pipeline(self.text, "last", state="mover"))

    def test_rxd_is_killed_while_it_lists(self):
        self.kill_rxd("every: 100ms, fullEvery: 1s", "listing")

    def test_rxd_is_killed_while_it_deletes(self):
        self.kill_rxd("every: 100ms, after: delete", "deleting")
        self.assertEqual(self.keys("in/"), [])

    def test_connections_are_cut(self):
        proxy = Proxy(self.moto.port)
        self.addCleanup(proxy.close)
        self.begin("every: 100ms, after: delete", proxy.port)
        run = self.pipeline(self.text, "run")
        for _ in range(KILLS):
            goal = min(self.total, self.moved() + random.randrange(1, self.LOAD))
            wait_for(lambda: self.moved() >= goal, f"{goal} to be moved\n{run.errors()}", PATIENCE)
            before = proxy.cuts
            while proxy.cuts == before and self.moved() < self.total:
                proxy.cut()
                time.sleep(0.005)
        wait_for(lambda: self.keys("in/") == [] or self.sender.is_alive(), "deletions", PATIENCE)
        self.finish(f"connections cut {proxy.cuts} times", run)


if __name__ == "__main__":
    unittest.main()
