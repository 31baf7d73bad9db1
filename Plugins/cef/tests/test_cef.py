"""Tests of the plugin against format_cef and writers of the test, and of hostile input; in rxd if RXD names it."""
import os
import random
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
import host  # noqa: E402
from plugin_test import RXD, PluginTest  # noqa: E402

try:
    import format_cef
except ImportError:
    format_cef = None

ROOT = os.path.dirname(HERE)
PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "cef.so"))
COUNT, SEED = int(os.environ.get("COUNT", "3000")), int(os.environ.get("SEED", "20261130"))
HEADER = ["deviceVendor", "deviceProduct", "deviceVersion", "deviceEventClassId", "name"]
LETTERS = "abcXYZ 019_.\\|=\"'ä€漢😀\0:/?&"
CEF, LEEF = "CEF:0|Acme|Fire|1.2|100|worm|5|", "LEEF:1.0|Acme|Proxy|2.1|login|"


class LineTest(PluginTest):
    plugin = PLUGIN

    def setUp(self):
        super().setUp()
        self.library = host.Plugin(PLUGIN)
        self.rng = random.Random(SEED)
        self.cef, self.leef = self.opened("decoder", "cef"), self.opened("decoder", "leef")
        self.strict, self.labels = self.opened("decoder", "cef", strict=True), self.opened("decoder", "cef", labels=True)

    def opened(self, kind, name, **parameters):
        instance = self.library.open(kind, name, **parameters)
        self.addCleanup(instance.close)
        return instance

    def event(self, instance, line):
        data = line if isinstance(line, bytes) else line.encode()
        answer = instance.row_of_bytes(data)
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {line[:200]!r}")
        return answer["event"]

    def refusal(self, instance, line):
        answer = instance.row_of_bytes(line if isinstance(line, bytes) else line.encode())
        self.assertEqual(answer["status"], host.FAILED, str(answer["event"]))
        return answer["error"]

    def text(self, most=20):
        """A text without spaces at its ends, which lines do not keep."""
        return "".join(self.rng.choices(LETTERS, k=self.rng.randint(1, most))).strip() or "x"


class CefTests(LineTest):
    def extension(self, text, instance=None):
        return self.event(instance or self.cef, CEF + text)["extension"]

    def test_the_header(self):
        self.assertEqual(self.event(self.cef, r"CEF:1| a\|b |c\\|d=e||\n|High| k=v"), {
            "version": 1, "deviceVendor": "a|b", "deviceProduct": "c\\", "deviceVersion": "d=e", "deviceEventClassId": "", "name": "\\n", "severity": "High", "extension": {"k": "v"}})
        for severity, value in [("0", 0), ("10", 10), ("Very-High", "Very-High"), ("", ""), ("1.5", "1.5"), ("-1", "-1"), ("9999", "9999"), (" 7 ", 7)]:
            self.assertEqual(self.event(self.cef, f"CEF:0|a|b|c|d|e|{severity}|")["severity"], value)
            self.assertEqual(self.event(self.cef, f"CEF:0|a|b|c|d|e|{severity}"), self.event(self.cef, f"CEF:0|a|b|c|d|e|{severity}|"))

    def test_heads_of_syslog(self):
        for head in ["<34>Mar  1 10:00:00 fw1", "<134>1 2026-03-01T10:00:00Z fw1 CEFD 1 - -", "2026-03-01 fw1"]:
            self.assertEqual(self.event(self.cef, f"{head} {CEF}k=v")["head"], head)
        self.assertEqual(self.event(self.cef, f"fw1: xCEF: {CEF}k=v")["head"], "fw1: xCEF:")
        self.assertNotIn("head", self.event(self.cef, CEF))

    def test_values_with_spaces_and_equals_signs(self):
        for text, expected in [("a=b", {"a": "b"}), ("a=b c d=e", {"a": "b c", "d": "e"}), ("a= b=c", {"a": "", "b": "c"}), ("a=", {"a": ""}), ("  a=b  ", {"a": "b"}),
                               ("u=http://x/?q=1 b=c", {"u": "http://x/?q=1", "b": "c"}), ("a=x==y b=1", {"a": "x==y", "b": "1"}), ("a=b (c=d) e=f", {"a": "b (c=d)", "e": "f"}),
                               (r"a=x \= y b=c\=d", {"a": "x = y", "b": "c=d"}), (r"a=1\n2\r3\\4\|5", {"a": "1\n2\r3\\4|5"}), (r"p=C:\Temp\x q=\\srv", {"p": r"C:\Temp\x", "q": r"\srv"}),
                               ("a=\\", {"a": "\\"}), ("a.b[0]=1 c:d=2 ä=3", {"a.b[0]": "1", "c:d": "2", "ä": "3"}), ("a=1 b=2 a=3", {"b": "2", "a": "3"}), ("a=1|2", {"a": "1|2"}),
                               ("a=b\0c d=e", {"a": "b\0c", "d": "e"}), ("a\tb=c", None)]:
            if expected is None:
                self.assertIn("does not begin with a key", self.refusal(self.cef, CEF + "= " + text))
            else:
                self.assertEqual(self.extension(text), expected, text)
        self.assertEqual(self.extension(" ".join(f"k{index % 300}={index}" for index in range(3000))), {f"k{index % 300}": str(index) for index in range(2700, 3000)})

    def test_labels(self):
        for text, expected in [("cs1Label=Policy cs1=Default", {"Policy": "Default"}), ("cs1=Default cs1Label=My Policy src=x", {"My Policy": "Default", "src": "x"}),
                               ("cs1Label=src cs1=a src=b", {"cs1Label": "src", "cs1": "a", "src": "b"}), ("cs1Label=Policy", {"cs1Label": "Policy"}), ("Label=a b=c", {"Label": "a", "b": "c"}),
                               ("cs1Label= cs1=a", {"cs1Label": "", "cs1": "a"}), ("aLabel=x a=1 bLabel=x b=2", {"x": "1", "bLabel": "x", "b": "2"})]:
            self.assertEqual(self.extension(text, self.labels), expected, text)

    def test_refusals_have_a_place(self):
        for line, reason in [("hello", "the line has no 'CEF:'"), ("xCEF:0|a|b|c|d|e|5|", "the line has no 'CEF:'"), ("CEF:0", "byte 5: the header ends in its version"),
                             ("CEF:2|a|b|c|d|e|5|", "byte 4: the version is '2', and must be 0 or 1"), ("CEF:0|a|b|c", "byte 11: the header ends before its field 'deviceEventClassId'"),
                             (CEF + "abc", f"byte {len(CEF)}: the extension does not begin with a key and '='"), (CEF + " =b", f"byte {len(CEF) + 1}: the extension does not begin with a key and '='"),
                             (CEF + "a b=c", f"byte {len(CEF)}: the extension does not begin with a key and '='")]:
            self.assertEqual(self.refusal(self.cef, line), reason)
        self.assertEqual(self.refusal(self.strict, CEF + r"p=C:\Temp"), f"byte {len(CEF) + 4}: a backslash is followed by neither a character that it escapes nor another one")
        self.assertEqual(self.cef.row_of_bytes(b"  ")["status"], host.DROP)

    def written(self, fields, severity, extension):
        def escaped(text, characters):
            return "".join("\\" + letter if letter in characters else {"\n": "\\n", "\r": "\\r"}.get(letter, letter) for letter in text)
        return "CEF:0|" + "|".join([*(escaped(field, "\\|") for field in fields), str(severity)]) + "|" + " ".join(
            f"{key}={escaped(value, chr(92) + '=')}" for key, value in extension.items())

    def test_what_is_escaped_is_read_again(self):
        for _ in range(COUNT):
            fields = [self.text() for _ in HEADER]
            extension = {"".join(self.rng.choices("abcXYZ09_.", k=5)): self.text(40) + self.rng.choice(["", "\nx", "\rx"]) for _ in range(self.rng.randint(0, 8))}
            line = self.written(fields, 5, extension)
            self.assertEqual(self.event(self.strict, line), {"version": 0, **dict(zip(HEADER, fields)), "severity": 5, "extension": extension}, line)

    @unittest.skipUnless(format_cef, "no format_cef (scripts/install-packages --tests)")
    def test_lines_of_format_cef(self):
        for _ in range(300):
            extension = {"sourceAddress": "10.0.0.1", "sourcePort": self.rng.randint(1, 65535), "message": self.text(40).replace("\0", "").replace("\\", "/").strip(),  # it does not escape backslashes in values
                         "applicationProtocol": "HTTP",
                         "requestUrl": "http://a/?b=c|d"}
            name = self.text(40).replace("\0", "").replace("\\", "|").strip()  # nor two of them in a name
            line = format_cef.format_cef("Acme|x", "Fi\\re", "1", "100", name, 7, extension)
            found = self.event(self.cef, line if isinstance(line, bytes) else str(line))
            self.assertEqual((found["deviceVendor"], found["deviceProduct"], found["severity"]), ("Acme|x", "Fi\\re", 7), line)
            self.assertEqual(found["name"], name, line)
            self.assertEqual((found["extension"]["src"], found["extension"]["spt"], found["extension"]["app"]), ("10.0.0.1", str(extension["sourcePort"]), "HTTP"))
            self.assertEqual((found["extension"]["msg"], found["extension"]["request"]), (extension["message"], extension["requestUrl"]), line)


class LeefTests(LineTest):
    def attributes(self, line):
        return self.event(self.leef, line)["attributes"]

    def test_version_1(self):
        self.assertEqual(self.event(self.leef, "<1>fw LEEF:1.0|a|b|c|d|src=1\tname=two words\tu=x?a=b\\t\t\tempty="), {
            "head": "<1>fw", "version": "1.0", "vendor": "a", "product": "b", "productVersion": "c", "eventId": "d",
            "attributes": {"src": "1", "name": "two words", "u": "x?a=b\\t", "empty": ""}})
        self.assertEqual(self.attributes("LEEF:1.0|a|b|c|d"), {})
        self.assertEqual(self.attributes("LEEF:1.0|a|b|c|d|a=1|2\ta=3"), {"a": "3"})

    def test_delimiters_of_version_2(self):
        for field, delimiter in [("^", "^"), ("x5E", "^"), ("0x5e", "^"), ("x005E", "^"), ("", "\t"), ("\t", "\t"), ("x09", "\t"), (" ", " "), (";", ";"), ("=", None)]:
            if delimiter and delimiter != "=":
                self.assertEqual(self.attributes(f"LEEF:2.0|a|b|c|d|{field}|src=1{delimiter}dst=2"), {"src": "1", "dst": "2"}, field)
        for line in ["LEEF:2.0|a|b|c|d|src=1\tdst=2", "LEEF:2.0|a|b|c|d|src=1\tdst=2|3"]:
            self.assertEqual(self.attributes(line)["src"], "1")
        self.assertEqual(self.attributes("LEEF:2.0|a|b|c|d|src=1\tdst=2|3")["dst"], "2|3")
        for field in ["xZZ", "0x", "x00", "xFF", "x12345", "ab"]:
            self.assertEqual(self.refusal(self.leef, f"LEEF:2.0|a|b|c|d|{field}|src=1"),
                             "byte 17: the delimiter must be one ASCII character, or 'x' and its code in hexadecimal digits")

    def test_refusals_have_a_place(self):
        for line, reason in [("hello", "the line has no 'LEEF:'"), ("LEEF:1.0", "byte 8: the header ends in its version"), ("LEEF:3.0|a|b|c|d|", "byte 5: the version is '3.0', and must be 1.0 or 2.0"),
                             ("LEEF:1.0|a|b", "byte 12: the header ends before its field 'productVersion'"), (LEEF + "a=1\tb", f"byte {len(LEEF) + 4}: the attribute has no '='"),
                             (LEEF + "=1", f"byte {len(LEEF)}: the attribute has no name")]:
            self.assertEqual(self.refusal(self.leef, line), reason)

    def test_what_is_written_is_read_again(self):
        for _ in range(COUNT):
            delimiter = self.rng.choice("^\t;~#")
            attributes = {"".join(self.rng.choices("abcXYZ09", k=5)): self.text(40).replace(delimiter, "") .strip() for _ in range(self.rng.randint(0, 8))}
            fields = [self.text().replace("|", "").strip() for _ in range(4)]
            line = f"LEEF:2.0|{'|'.join(fields)}|{self.rng.choice([delimiter, f'x{ord(delimiter):02x}'])}|" + delimiter.join(f"{key}={value}" for key, value in attributes.items())
            self.assertEqual(self.event(self.leef, line), {"version": "2.0", **dict(zip(["vendor", "product", "productVersion", "eventId"], fields)), "attributes": attributes}, line)


class HostileTests(LineTest):
    def test_cut_and_changed_lines(self):
        """Every prefix of a line, and random changes, have an answer."""
        samples = [(CEF + r"a=b\=c d=two words e=\n f").encode(), (LEEF + "a=1\tb=two words").encode(), b"LEEF:2.0|a|b|c|d|x5E|a=1^b=2"]
        for sample in samples:
            for end in range(len(sample) + 1):
                for instance in (self.cef, self.leef, self.strict, self.labels):
                    answer = instance.row_of_bytes(sample[:end])
                    self.assertTrue(answer["status"] in (host.OK, host.DROP) or answer["error"])
        end, checked = time.monotonic() + 2, 0
        while time.monotonic() < end and checked < 30_000:
            data = bytearray(self.rng.choice(samples))
            for _ in range(self.rng.randint(1, 6)):
                at = self.rng.randrange(len(data) + 1)
                data[at:at + self.rng.randint(0, 3)] = bytes(self.rng.choices(b"\\|=\x00\t ^xaCEF:L", k=self.rng.randint(0, 3)))
            for instance in (self.cef, self.leef, self.strict, self.labels):
                answer = instance.row_of_bytes(bytes(data))
                self.assertTrue(answer["status"] in (host.OK, host.DROP) or answer["error"])
            checked += 1
        self.assertGreater(checked, 100)

    def test_huge_lines_need_linear_time(self):
        for line in [CEF + "a=" + "=" * 2_000_000, CEF + "a=" + "\\" * 2_000_001, CEF + "a=" + "x=" * 1_000_000, CEF + "a=" + " " * 2_000_000, CEF + "a=1 " * 500_000,
                     "CEF:" * 500_000, "CEF:0|" + "\\|" * 1_000_000, CEF + " ".join(f"k{index}Label=x" for index in range(100_000))]:
            for instance in (self.cef, self.labels):
                start = time.monotonic()
                instance.row_of_bytes(line.encode())
                self.assertLess(time.monotonic() - start, 4, line[:60])
        for line in [LEEF + "a=1\t" * 500_000, LEEF + "\t" * 2_000_000, "LEEF:" * 400_000]:
            start = time.monotonic()
            self.leef.row_of_bytes(line.encode())
            self.assertLess(time.monotonic() - start, 4, line[:60])


class PipelineTests(LineTest):
    def test_the_example(self):
        if not RXD:
            self.skipTest("set RXD to the program")
        run = subprocess.run([RXD, "test", os.path.join(ROOT, "pipelines", "devices.yaml")], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_lines_of_a_file(self):
        with open(self.path("in"), "wb") as file:
            file.write(f"{CEF}a=1 b=2 c\n\nno line\n{CEF}a=2\n{CEF}".encode() + b"a=x\xffy \xff=z\n")
        run = self.pipeline(f"""
plugins: {{ cef: PLUGIN }}
sources: {{ in: {{ file: {{ path: {self.path('in')}, decode: cef }} }} }}
sinks: {{ out: {{ from: in, stdout: {{ encode: ndjson }} }} }}
""")
        run.process.wait(30)
        self.assertEqual([event["extension"] for event in run.lines()], [{"a": "1", "b": "2 c"}, {"a": "2"}, {"a": "x\ufffdy \ufffd=z"}])
        self.assertIn('"received":4,"sent":3,"rejected":1', run.errors())


if __name__ == "__main__":
    unittest.main()
