"""Tests of the plugin beside Python's ElementTree, and of hostile documents; in rxd if RXD names it."""
import http.server
import os
import random
import resource
import sys
import threading
import time
import unittest
import xml.etree.ElementTree as ElementTree
from xml.sax.saxutils import escape, quoteattr

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from plugin_test import PluginTest  # noqa: E402

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "xml.so"))
COUNT, SEED = int(os.environ.get("COUNT", "2000")), int(os.environ.get("SEED", "20261130"))
NAMES = ["a", "b", "c-d", "e.f", "g_h", "Ä", "漢"]
LETTERS = "abc <>&\"'\n\täß漢😀]"


def random_document(rng, depth=0):
    name = rng.choice(NAMES)
    attributes = "".join(f" {key}={quoteattr(text(rng))}" for key in rng.sample(NAMES, rng.choice([0, 0, 1, 3])))
    parts = []
    for _ in range(rng.choice([0, 1, 2, 5, 20]) if depth < 4 else 1):
        choice = rng.random()
        if choice < 0.5 and depth < 4:
            parts.append(random_document(rng, depth + 1))
        else:
            parts.append(rng.choice([escape(text(rng)), f"<![CDATA[{text(rng).replace(']', '')}]]>", "<!-- no -->", "<?no thing?>", "&#228;&lt;"]))
    return f"<{name}{attributes}>{''.join(parts)}</{name}>" if parts else f"<{name}{attributes}/>"


def text(rng):
    return "".join(rng.choices(LETTERS, k=rng.randint(0, 12)))


def value_of(element):
    """What the plugin should make of an element."""
    found = {}
    for child in element:
        found.setdefault(child.tag, []).append(value_of(child))
    content = (element.text or "") + "".join(child.tail or "" for child in element)
    value = {**{"@" + name: text for name, text in element.attrib.items()}, **{name: values if len(values) > 1 else values[0] for name, values in found.items()}}
    if not value:
        return content
    if len(element):
        content = content.strip(" \t\r\n")
    return {**value, "#text": content} if content else value


class XmlTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.library = host.Plugin(PLUGIN)
        self.rng = random.Random(SEED)
        self.decoder = self.opened()

    def opened(self, **parameters):
        instance = self.library.open("decoder", "xml", **parameters)
        self.addCleanup(instance.close)
        return instance

    def events(self, document, **parameters):
        answer = (self.opened(**parameters) if parameters else self.decoder).row_of_bytes(document if isinstance(document, bytes) else document.encode())
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {document[:300]!r}")
        return answer["event"]

    def refusal(self, document, **parameters):
        answer = (self.opened(**parameters) if parameters else self.decoder).row_of_bytes(document if isinstance(document, bytes) else document.encode())
        self.assertEqual(answer["status"], host.FAILED, str(answer["event"])[:300])
        return answer["error"]


class MappingTests(XmlTest):
    def test_the_same_as_elementtree(self):
        for _ in range(COUNT):
            document = random_document(self.rng)
            root = ElementTree.fromstring(document)
            self.assertEqual(self.events(document), [{root.tag: value_of(root)}], document)

    def test_records_are_the_elements_of_a_path(self):
        for _ in range(COUNT // 10):
            items = [random_document(self.rng) for _ in range(self.rng.randint(0, 20))]
            others = ["<x><item>no</item></x>", "<items/>", "text", "<item2><y/></item2>", '<r a="b"><item/></r>']
            document = "<r>" + "".join(self.rng.choice(others) + f"<item>{item}</item>" for item in items) + "</r>"
            expected = [value_of(element) for element in ElementTree.fromstring(document).findall("item")]
            self.assertEqual(self.events(document, records="r/item"), expected)
        self.assertEqual(self.events("<r><r><r>x</r></r></r>", records="r/r"), [{"r": "x"}])
        self.assertEqual(self.events("<r>x</r>", records="r"), ["x"])
        self.assertEqual(self.events("<r>x</r>", records="s"), [])

    def test_lists(self):
        self.assertEqual(self.events("<r><a>1</a><b>2</b></r>", lists=["a"]), [{"r": {"a": ["1"], "b": "2"}}])
        self.assertEqual(self.events("<r><a>1</a><b>2</b><a>3</a></r>", lists=["a", "r"]), [{"r": [{"a": ["1", "3"], "b": "2"}]}])

    def test_encodings_and_names(self):
        for encoding in ["utf-8", "utf-16", "iso-8859-1"]:
            self.assertEqual(self.events(f'<?xml version="1.0" encoding="{encoding}"?><a>ä</a>'.encode(encoding)), [{"a": "ä"}])
        self.assertEqual(self.events('<s:a xmlns:s="urn:x"><s:b/></s:a>'), [{"s:a": {"@xmlns:s": "urn:x", "s:b": ""}}])
        self.assertEqual(self.events('<!DOCTYPE plist PUBLIC "-//X" "http://127.0.0.1:1/x.dtd"><plist/>'), [{"plist": ""}])
        self.assertEqual(self.events(""), [])
        for parameters in [{"records": ""}, {"records": "/a"}, {"records": "a//b"}, {"records": "/".join("a" * 33)}]:
            with self.assertRaises(host.Refused) as refused:
                self.library.open("decoder", "xml", **parameters)
            self.assertEqual(refused.exception.at, "records")

    def test_the_function(self):
        function = self.library.open("function", "parse")
        self.addCleanup(function.close)
        self.assertEqual(function.row_typed(None, "<a>b</a>")["event"], {"a": "b"})
        self.assertEqual(function.row_typed(None, "")["error"], "line 1, byte 0: no element found")


class HostileTests(XmlTest):
    def test_refusals_have_a_place(self):
        for document, reason in [("<a>\n<b></a>", "line 2, byte 9: mismatched tag"), ("hello", "line 1, byte 0: syntax error"), ("<a>", "line 1, byte 3: no element found"), ("<a/><b/>", "line 1, byte 4: junk after document element"),
                                 ("<a>\0</a>", "line 1, byte 3: not well-formed (invalid token)"), (b"<a>\xff</a>", "line 1, byte 3: not well-formed (invalid token)"), ('<a b="1" b="2"/>', "line 1, byte 9: duplicate attribute"),
                                 ("<a>&x;</a>", "line 1, byte 3: undefined entity"), ('<?xml version="1.0" encoding="x"?><a/>', "line 1, byte 30: unknown encoding")]:
            self.assertEqual(self.refusal(document), reason, document)

    def test_entities_are_refused(self):
        laughs = '<!DOCTYPE a [<!ENTITY l0 "ha">' + "".join(f'<!ENTITY l{index} "{f"&l{index - 1};" * 10}">' for index in range(1, 12)) + "]><a>&l11;</a>"
        with open(self.path("secret"), "w") as file:
            file.write("secret")
        asked = []

        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}/x.dtd"
        for document in [laughs, f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{self.path("secret")}">]><a>&x;</a>', f'<!DOCTYPE a [<!ENTITY % x SYSTEM "{url}"> %x;]><a/>',
                         f'<!DOCTYPE a [<!ENTITY x SYSTEM "{url}">]><a>&x;</a>']:
            start = time.monotonic()
            self.assertIn("entities are not read", self.refusal(document))
            self.assertLess(time.monotonic() - start, 1)
        self.assertIn("the entity '&x;' is not known", self.refusal(f'<!DOCTYPE a SYSTEM "{url}"><a>&x;</a>'))
        self.assertEqual(asked, [])

    def test_depth(self):
        for levels in [1, 127, 128]:
            self.assertEqual(len(self.events("<a>" * levels + "</a>" * levels)), 1)
        for levels in [129, 1_000_000]:
            self.assertEqual(self.refusal("<a>" * levels + "</a>" * levels), "line 1, byte 384: elements are nested more deeply than 128 levels")

    def test_huge_documents_need_linear_time(self):
        for document in ["<r>" + "<a/>" * 300_000 + "</r>", "<r>" + "".join(f"<a{index}/>" for index in range(100_000)) + "</r>", "<r " + " ".join(f'a{index}=""' for index in range(50_000)) + "/>",
                         "<r>" + "x" * 5_000_000 + "</r>", "<r>" + "x<a/>" * 200_000 + "</r>", f"<{'a' * 1_000_000}/>"]:
            start = time.monotonic()
            self.events(document)
            self.assertLess(time.monotonic() - start, 10, document[:40])

    def test_records_keep_nothing_between_them(self):
        decoder = self.opened(records="r/a")
        document = ("<r>" + "<other><x>" + "y" * 1000 + "</x></other><a/>" * 2000 + "</r>").encode()
        self.assertEqual(decoder.row_of_bytes(document)["status"], host.FAILED)  # the elements do not match
        document = ("<r>" + ("<other><x>" + "y" * 1000 + "</x></other><a/>") * 20_000 + "</r>").encode()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.assertEqual(len(decoder.row_of_bytes(document)["event"]), 20_000)
        if not os.environ.get("SANITIZE"):
            self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 40_000, "KiB")

    def test_cut_and_changed_documents(self):
        samples = [random_document(self.rng).encode() for _ in range(20)] + [b'<?xml version="1.0"?><!DOCTYPE a [<!ATTLIST a b CDATA "x">]><a>&amp;<b c="d">e</b></a>']
        records = self.opened(records="a/b", lists=["c"])
        for sample in samples:
            for end in range(1, len(sample), 1 + len(sample) // 300):
                self.assertTrue(self.decoder.row_of_bytes(sample[:end])["error"])
        end, checked = time.monotonic() + 2, 0
        while time.monotonic() < end and checked < 20_000:
            data = bytearray(self.rng.choice(samples))
            for _ in range(self.rng.randint(1, 5)):
                at = self.rng.randrange(len(data) + 1)
                data[at:at + self.rng.randint(0, 3)] = bytes(self.rng.choices(b"<>/&;=\"'![]\x00\xffa ", k=self.rng.randint(0, 3)))
            for instance in (self.decoder, records):
                answer = instance.row_of_bytes(bytes(data))
                self.assertTrue(answer["status"] == host.OK or answer["error"])
            checked += 1
        self.assertGreater(checked, 100)


class PipelineTests(XmlTest):
    def test_a_file(self):
        with open(self.path("feed.xml"), "w") as file:
            file.write("<rss><channel><title>t</title>" + "".join(f"<item><n>{index}</n></item>" for index in range(100)) + "</channel></rss>")
        run = self.pipeline(f"""
plugins: {{ xml: PLUGIN }}
sources: {{ in: {{ file: {{ path: {self.path('feed.xml')}, decode: {{ xml: rss/channel/item }} }} }} }}
sinks: {{ out: {{ from: in, chain: [ {{ map: "{{'n': int(event.n), 'again': xml.parse('<a>b</a>').a}}" }} ], stdout: {{ encode: ndjson }} }} }}
""")
        self.assertEqual(run.process.wait(30), 0, run.errors())
        self.assertEqual(run.lines(), [{"n": index, "again": "b"} for index in range(100)])


if __name__ == "__main__":
    unittest.main()
