"""Calls each component without rxd."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "testing"))
import host  # noqa: E402

plugin = host.Plugin(HERE / "build" / "example-rust.so")


class Slug(unittest.TestCase):
    def test_makes_a_slug(self):
        with plugin.open("operator", "exampleSlug", field="t") as slug:
            self.assertEqual(slug.row({"t": " Hello, Wörld! "})["event"], {"t": " Hello, Wörld! ", "slug": "hello-wörld"})
            self.assertEqual(slug.row({"t": "?!"})["status"], host.DROP)
            self.assertEqual(slug.row({"t": 1})["error"], "no text 't'")

    def test_an_empty_name_is_refused_at_its_place(self):
        with self.assertRaises(host.Refused) as caught:
            plugin.open("operator", "exampleSlug", **{"field": "t", "as": ""})
        self.assertEqual(caught.exception.at, "as")


class Changes(unittest.TestCase):
    def test_every_cut_and_restore_gives_the_same(self):
        events = [{"s": "a"}, {"s": "a", "n": 1}, {"s": None}, {"s": None}, {"x": 1}, {"s": "a"}]
        expected = [{"s": "a"}, {"s": None}, "no member 's'", {"s": "a"}]
        for cut in range(len(events) + 1):
            answers, state = [], None
            for part in (events[:cut], events[cut:]):
                with plugin.open("operator", "exampleChanges", state=state, field="s") as changes:
                    answers += changes.process_events(*part)["sent"]
                    state = changes.save()
            self.assertEqual([a.get("event", a.get("error")) for a in answers], expected, f"cut after {cut}")


class First(unittest.TestCase):
    def test_ends_its_output_in_the_middle_of_a_batch(self):
        with plugin.open("operator", "exampleFirst", count=2) as first:
            answer = first.process_events({"n": 1}, {"n": 2}, {"n": 3})
            self.assertEqual([item["event"]["n"] for item in answer["sent"]], [1, 2])
            self.assertEqual(answer["finished"], 1)

    def test_the_rest_of_the_count_is_in_the_state(self):
        with plugin.open("operator", "exampleFirst", count=3) as first:
            self.assertEqual(first.process_events({"n": 1}, {"n": 2})["finished"], -1)
            state = first.save()
        with plugin.open("operator", "exampleFirst", state=state, count=3) as second:
            self.assertEqual(second.process_events({"n": 3})["finished"], 0)


@unittest.skipUnless(os.environ.get("RXD"), "needs RXD, the path of rxd")
class InRxd(unittest.TestCase):
    def test_the_tests_of_the_pipeline_pass(self):
        done = subprocess.run([os.environ["RXD"], "test", str(HERE / "pipelines/slugs.yaml")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
