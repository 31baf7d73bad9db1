"""Runs the pipelines in rxd, whose path is in RXD, against a separate server."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))
import server as servers  # noqa: E402

RXD = os.environ.get("RXD")
server: servers.Server


def setUpModule() -> None:
    global server
    if not RXD or not servers.available():
        raise unittest.SkipTest("needs RXD, the path of rxd, and Debian's postgresql")
    server = servers.Server()


def tearDownModule() -> None:
    server.close()


class Pipelines(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rxd-pg-run-"))
        self.addCleanup(shutil.rmtree, self.directory)
        server.sql("""DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int PRIMARY KEY, total numeric CHECK (total >= 0),
            document jsonb)""")

    def run_pipeline(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        log = open(self.directory / "log", "ab")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [RXD, "--state-dir", str(self.directory / "state"), str(ROOT / "pipelines" / name)], cwd=self.directory,
            env={**os.environ, "SHOP_DB": server.conninfo + " password=geheim", **environment}, stdin=subprocess.PIPE,
            stderr=log)

        def end() -> None:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()

        self.addCleanup(end)
        return process

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def lines(self, name: str) -> list[dict]:
        path = self.directory / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, condition, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, self.log()[-3000:])
            time.sleep(0.05)

    def restart(self) -> None:
        server.stop(signal.SIGQUIT)
        time.sleep(0.3)
        server.start()

    def test_orders_reach_the_table_while_the_server_restarts(self):
        process = self.run_pipeline("orders-to-postgres.yaml")
        half = threading.Event()

        def feed() -> None:
            for n in range(1, 20_001):
                total = -1 if n % 5000 == 0 else n / 2
                process.stdin.write(json.dumps({"id": n, "payment": {"total": total}, "pad": "x" * 50}).encode() + b"\n")
                if n == 10_000:
                    process.stdin.flush()
                    half.set()
                    time.sleep(0.2)
            process.stdin.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        half.wait()
        self.until(lambda: server.column("SELECT count(*) FROM orders")[0] != "0")
        self.restart()
        feeder.join()
        self.assertEqual(process.wait(120), 0, self.log())
        self.assertEqual(server.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM orders"),
                         [["19996", "19996", str(sum(range(20_001)) - 50_000)]])
        refused = self.lines("orders-refused.ndjson")
        self.assertEqual([line["event"]["id"] for line in refused], [5000, 10_000, 15_000, 20_000])
        self.assertIn("violates check constraint", refused[0]["error"])
        self.assertNotIn("geheim", self.log())

    def best_orders(self, feed) -> None:
        """Sends orders of some customers through best-orders.yaml, and compares the table with all orders sorted."""
        server.sql("DROP TABLE IF EXISTS best_orders; CREATE TABLE best_orders (id int PRIMARY KEY, customer text NOT NULL, total numeric)")
        chance = random.Random(2)
        orders = [{"id": n, "customer": f"c{chance.randrange(50)}", "total": n} for n in range(1, 5001)]
        chance.shuffle(orders)
        process = self.run_pipeline("best-orders.yaml")
        feed(process, [json.dumps(order).encode() + b"\n" for order in orders])
        process.stdin.close()
        self.assertEqual(process.wait(120), 0, self.log())
        best = {}
        for order in sorted(orders, key=lambda order: -order["total"]):
            best.setdefault(order["customer"], []).append(order["id"])
        self.assertEqual(sorted(int(n) for n in server.column("SELECT id FROM best_orders")),
                         sorted(n for ids in best.values() for n in ids[:3]))

    def test_a_table_follows_results_that_change(self):
        self.best_orders(lambda process, lines: process.stdin.write(b"".join(lines)))

    def test_a_table_follows_results_that_change_while_the_server_restarts(self):
        def feed(process, lines) -> None:
            process.stdin.write(b"".join(lines[:2500]))
            process.stdin.flush()
            self.until(lambda: server.column("SELECT count(*) FROM best_orders")[0] != "0")
            self.restart()
            process.stdin.write(b"".join(lines[2500:]))

        self.best_orders(feed)

    def changed(self, name: str, *changes: tuple[str, str]) -> str:
        """A pipeline of the directory with some texts replaced; returns its path."""
        text = (ROOT / "pipelines" / name).read_text().replace("../postgres.so", str(ROOT / "postgres.so"))
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def test_a_member_may_say_what_is_taken_back(self):
        server.sql("DROP TABLE IF EXISTS best_orders; CREATE TABLE best_orders (id int PRIMARY KEY, customer text, total numeric)")
        process = self.run_pipeline(self.changed(
            "best-orders.yaml", ("      - topN: { by: event.total, count: 3, per: event.customer }", "      - map: event"),
            ("retracted: meta.retracts", "retracted: event.?gone.orValue(null)"),
            ("\nsinks:", "\nsinks:\n  refused: { from: best.errors, file: refused.ndjson }")))
        process.stdin.write(b"".join(json.dumps(event).encode() + b"\n" for event in [
            {"id": 1}, {"id": 2, "gone": False}, {"id": 1, "gone": True}, {"id": 3, "gone": None}, {"id": 2, "gone": "yes"}]))
        process.stdin.close()
        self.assertEqual(process.wait(30), 0, self.log())
        self.assertEqual(server.column("SELECT id FROM best_orders ORDER BY id"), ["2", "3"])
        self.assertEqual([line["error"] for line in self.lines("refused.ndjson")],
                         ["'retracted' must be true, false or null, and is something else for this event"])

    def test_wrong_keys_have_their_place_in_the_file(self):
        server.sql("DROP TABLE IF EXISTS best_orders; CREATE TABLE best_orders (id int, customer text PRIMARY KEY, total numeric)")
        for changes, message, line in [
            ((), "needs a PRIMARY KEY or UNIQUE constraint on exactly these columns", 27),
            ((("key: id", "key: number"),), "each key must be one of the columns", 27),
            ((("mode: upsert", "mode: insert"), ("key: id", "conflict: ignore")), "which only 'mode: upsert' has", 28),
        ]:
            process = self.run_pipeline(self.changed("best-orders.yaml", *changes))
            process.stdin.write(b'{"id":1,"customer":"ada","total":1}\n')
            process.stdin.close()
            self.assertNotEqual(process.wait(30), 0, message)
            self.assertRegex(self.log(), f"{message}.*best-orders.yaml:{line}:")

    def test_rows_are_read_once_while_server_and_rxd_restart(self):
        insert = "INSERT INTO orders (id) SELECT g FROM generate_series({}, {}) g"
        server.sql(insert.format(1, 8000))
        process = self.run_pipeline("new-orders.yaml", EVERY="20ms")
        self.until(lambda: len(self.lines("orders.ndjson")) > 0)
        self.restart()
        server.sql(insert.format(8001, 14_000))
        self.until(lambda: len(self.lines("orders.ndjson")) >= 10_000)
        process.kill()
        process.wait()
        server.sql(insert.format(14_001, 20_000))
        process = self.run_pipeline("new-orders.yaml", EVERY="20ms")
        self.until(lambda: len({line["id"] for line in self.lines("orders.ndjson")}) == 20_000)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.log())
        ids = [line["id"] for line in self.lines("orders.ndjson")]
        # A kill between two commits may repeat rows, but misses none.
        self.assertEqual(sorted(set(ids)), list(range(1, 20_001)))
        self.assertNotIn("geheim", self.log())

    def test_large_batches(self):
        server.sql("INSERT INTO orders (id) SELECT g FROM generate_series(1, 9000) g")
        text = (ROOT / "pipelines/new-orders.yaml").read_text().replace("key: id", "key: id\n      batch: 5000\n      once: true")
        path = self.directory / "large.yaml"
        path.write_text(text.replace("../postgres.so", str(ROOT / "postgres.so")))
        process = self.run_pipeline(str(path))
        self.assertEqual(process.wait(60), 0, self.log())
        self.assertEqual([line["id"] for line in self.lines("orders.ndjson")], list(range(1, 9001)))

    def test_a_wrong_setting_has_its_place_in_the_file(self):
        process = self.run_pipeline("orders-to-postgres.yaml", SHOP_DB="no string")
        process.stdin.write(b'{"id":1}\n')
        process.stdin.close()
        self.assertNotEqual(process.wait(30), 0)
        self.assertIn("this is not a connection string", self.log())
        self.assertIn("orders-to-postgres.yaml", self.log())

    def test_pipelines_are_valid(self):
        for path in sorted((ROOT / "pipelines").glob("*.yaml")):
            done = subprocess.run([RXD, "check", str(path)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
