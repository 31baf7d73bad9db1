"""The laws of sinks (docs/connector-laws.md) for those that deliver through a connector of the kit."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "testing"))
import host  # noqa: E402


class Delivery(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = Path(tempfile.mkdtemp(prefix="rxd-delivery-"))
        cls.addClassCleanup(shutil.rmtree, directory)
        shutil.copytree(HERE / "delivery/Sources", directory / "Sources")
        manifest = (HERE / "delivery/Package.swift").read_text().replace('"../.."', json.dumps(str(HERE.parent)))
        (directory / "Package.swift").write_text(manifest)
        scratch = os.environ.get("SCRATCH", str(directory / ".build"))
        flags = (HERE.parent / "flags.mk").read_text().split("FLAGS :=")[1].split()
        done = subprocess.run(["swift", "build", *flags, "--scratch-path", scratch, "--product", "delivery"], cwd=directory,
                              capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.plugin = host.Plugin(Path(scratch) / "release/libdelivery.so")

    def write(self, orders, **parameters):
        """The answer to these events, the numbers of those that are done, and the batches."""
        with self.plugin.open("sink", "scripted", **parameters) as sink:
            answer = sink.write(*({"id": number, "do": order} for number, order in enumerate(orders.split())))
            log = sink.log()
        done = set(range(answer["delivered"])) | set(answer["deliveredAt"])
        if answer["status"] == host.OK:
            done = set(range(len(orders.split())))
        refused = {int(number): reason for number, reason in answer["refused"].items()}
        batches = [[int(n) for n in line.removeprefix("info ").split()] for line in log if line.removeprefix("info ")[0].isdigit()]
        return answer, sorted(done - set(refused)), refused, batches, log

    def test_law_1_what_is_delivered_is_delivered_once(self):
        answer, done, refused, batches, _ = self.write("ok ok ok")
        self.assertEqual((answer["status"], done, refused, batches), (host.OK, [0, 1, 2], {}, [[0, 1, 2]]))

    def test_laws_2_and_4_each_event_has_its_outcome(self):
        answer, done, refused, _, _ = self.write("again ok refuse ok again")
        self.assertEqual((answer["status"], answer["error"], done, refused), (host.RETRY, "busy", [1, 3], {2: "refused"}))

    def test_law_5_an_outcome_that_does_not_fit_decides_nothing(self):
        for orders, most in (("ok twice ok", 3), ("ok outside", 2)):
            answer, done, refused, _, log = self.write(orders)
            self.assertEqual((answer["status"], done, refused), (host.RETRY, [], {}))
            self.assertIn(f"error the outcome of a delivery names an event twice, or one that is not in the batch of {most}", log)

    def test_law_6_an_unknown_error_is_no_delivery(self):
        answer, done, refused, _, _ = self.write("ok throw ok")
        self.assertEqual((answer["status"], answer["error"], done, refused), (host.RETRY, "Unknown()", [], {}))

    def test_law_7_the_event_because_of_which_a_batch_is_refused_is_found(self):
        for place in range(7):
            orders = ["ok"] * 7
            orders[place] = "poison"
            answer, done, refused, batches, _ = self.write(" ".join(orders))
            self.assertEqual((answer["status"], refused), (host.OK, {place: "the batch is refused"}))
            taken = [number for batch in batches if place not in batch for number in batch]
            self.assertEqual(taken, [n for n in range(7) if n != place], "the others are delivered once, in order")
            self.assertEqual(done, taken)

    def test_law_8_while_the_destination_is_down_nothing_is_delivered(self):
        answer, done, refused, batches, _ = self.write("ok ok down ok ok", count=2)
        self.assertEqual((answer["status"], answer["error"], done, refused), (host.RETRY, "the server is away", [0, 1], {}))
        self.assertEqual(batches, [[0, 1], [2, 3]], "what follows waits")

    def test_law_9_a_destination_that_takes_nothing_ends_the_pipeline(self):
        for order, reason in (("broken", "the password is wrong"), ("fail", "nobody is there")):
            answer, done, _, _, _ = self.write(f"ok {order}")
            self.assertEqual((answer["status"], answer["error"], done), (host.FAILED, reason, []))

    def test_law_12_an_event_without_a_form_is_refused_alone(self):
        answer, done, refused, batches, _ = self.write("ok encode ok")
        self.assertEqual((answer["status"], done, refused, batches), (host.OK, [0, 2], {1: "it has no form"}, [[0, 2]]))

    def test_law_13_no_batch_is_larger_than_it_may_be(self):
        self.assertEqual(self.write("ok ok ok ok ok", count=2)[3], [[0, 1], [2, 3], [4]])
        self.assertEqual(self.write("ok ok ok ok ok", bytes=25)[3], [[0, 1], [2, 3], [4]])
        self.assertEqual(self.write("ok ok", bytes=1)[3], [[0], [1]], "one event may have more")

    def test_law_27_it_is_opened_once_before_the_first_delivery(self):
        with self.plugin.open("sink", "scripted") as sink:
            sink.write({"id": 0, "do": "ok"})
            sink.write({"id": 1, "do": "ok"})
            self.assertEqual(sink.log(), ["info open", "info 0", "info 1"])


if __name__ == "__main__":
    unittest.main()
