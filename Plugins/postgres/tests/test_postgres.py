"""Calls each component without rxd, against a separate server."""

import os
import random
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT.parent / "testing")]
import host  # noqa: E402
import server as servers  # noqa: E402

server: servers.Server
plugin: host.Plugin


def setUpModule() -> None:
    global server, plugin
    if not servers.available():
        raise unittest.SkipTest("needs Debian's postgresql")
    plugin = host.Plugin(ROOT / "postgres.so")
    server = servers.Server()


def tearDownModule() -> None:
    server.close()


def later(seconds: float, action) -> threading.Thread:
    thread = threading.Thread(target=lambda: (time.sleep(seconds), action()))
    thread.start()
    return thread


class Query(unittest.TestCase):
    def setUp(self) -> None:
        server.sql("DROP TABLE IF EXISTS t; CREATE TABLE t (id serial PRIMARY KEY, x text);")

    def open(self, position=None, **parameters):
        return plugin.open("source", "postgresQuery", position=position,
                           **{**server.parts, "table": "t", "key": "id", "every": "10ms", **parameters})

    def events(self, source, seconds=0.3):
        """All events until none arrives for a while, and the last position."""
        events, position = [], None
        while (batch := source.take(seconds)) is not None:
            events += [item["event"] for item in batch[0]]
            position = batch[1]
        return events, position

    def read_once(self, **parameters):
        with self.open(once=True, **parameters) as source:
            source.start(credit=1 << 20)
            end = source.join()
            self.assertEqual(end["status"], host.OK, end["error"])
            return self.events(source, 0)

    def test_types_become_values(self):
        server.sql("""DROP TABLE IF EXISTS kinds; CREATE TABLE kinds (id int, b bool, big bigint, f float8, nan float8, n numeric,
            j jsonb, bytes bytea, at timestamptz, late timestamptz, day date, u uuid, list int[], texts text[], deep int[][],
            none text, "Quoted \"\"name\"\"\" text);
            INSERT INTO kinds VALUES (1, true, 9007199254740993, 0.1, 'NaN', 1.50, '{"a": [1, null]}', '\\x00ff',
            '2026-02-28 23:59:59.123456+01', 'infinity', '2026-01-02', '00000000-0000-0000-0000-000000000001', '{1,NULL}',
            '{"a b","c\\"d","NULL",NULL,""}', '{{1,2},{3,4}}', NULL, 'ä')""")
        [event], position = self.read_once(table="kinds")
        self.assertEqual(event, {
            "id": 1, "b": True, "big": 9007199254740993, "f": 0.1, "nan": "NaN", "n": 1.5, "j": {"a": [1, None]},
            "bytes": "hex:00ff", "at": "2026-02-28T22:59:59.123456000Z", "late": "infinity", "day": "2026-01-02",
            "u": "00000000-0000-0000-0000-000000000001", "list": [1, None], "texts": ["a b", 'c"d', "NULL", None, ""],
            "deep": [[1, 2], [3, 4]], "none": None, 'Quoted "name"': "ä"})
        self.assertEqual(position, b"=1")

    def test_timestamps_of_all_years(self):
        server.sql("""DROP TABLE IF EXISTS times; CREATE TABLE times (id int, at timestamptz); INSERT INTO times
            SELECT row_number() OVER (), d FROM generate_series('1700-01-31 12:00+00'::timestamptz, '2262-01-01', '997 hours') d""")
        events, _ = self.read_once(table="times")
        expected = server.column("SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') FROM times ORDER BY id")
        self.assertEqual([event["at"][:19] for event in events], expected)

    def test_new_rows_come_in_order_and_a_position_goes_on(self):
        server.sql("INSERT INTO t (x) SELECT 'a' || n FROM generate_series(1, 2500) n")
        with self.open() as source:
            source.start(credit=1 << 20)
            events, position = self.events(source)
            self.assertEqual([event["id"] for event in events], list(range(1, 2501)))
            server.sql("INSERT INTO t (x) VALUES ('new')")
            self.assertEqual(self.events(source)[0], [{"id": 2501, "x": "new"}])
        with self.open(position=position, columns=["x"]) as source:
            source.start()
            self.assertEqual(self.events(source), ([{"x": "new", "id": 2501}], b"=2501"))

    def test_start_new_leaves_out_what_is_there_also_after_a_restart(self):
        for rows, first in ((0, 1), (3, 4)):
            server.sql(f"TRUNCATE t RESTART IDENTITY; INSERT INTO t (x) SELECT 'old' FROM generate_series(1, {rows})")
            with self.open(start="new") as source:
                source.start()
                events, position = self.events(source)
                self.assertEqual(events, [])
            server.sql("INSERT INTO t (x) VALUES ('while down')")
            with self.open(start="new", position=position) as source:
                source.start()
                self.assertEqual(self.events(source)[0], [{"id": first, "x": "while down"}])

    def test_a_query_and_a_text_key(self):
        server.sql("INSERT INTO t (x) VALUES ('b'), ('a'), ('c'), (NULL)")
        events, position = self.read_once(table=None, query="SELECT x, id * 2 AS twice FROM t -- all;\n ; ", key="x")
        self.assertEqual(events, [{"x": "a", "twice": 4}, {"x": "b", "twice": 2}, {"x": "c", "twice": 6}])
        self.assertEqual(position, b"=c")

    def test_rows_with_one_key_stay_together(self):
        server.sql("INSERT INTO t SELECT n, n / 4 FROM generate_series(1, 40) n")
        expected = server.column("SELECT id FROM t ORDER BY x::int")
        events, _ = self.read_once(table=None, query="SELECT id, x::int AS k FROM t", key="k", batch=5)
        self.assertEqual(sorted(event["id"] for event in events), sorted(map(int, expected)))
        with self.open(table=None, query="SELECT id, x::int AS k FROM t", key="k", batch=3) as source:
            source.start()
            self.events(source)
            self.assertIn("more than 3 rows have the key 1", source.join()["error"])

    def late_commit(self, writers):
        """The numbers read when number 1 is committed after number 2."""
        first = servers.Transaction(server)
        first.run("BEGIN; INSERT INTO t (x) VALUES ('late');")
        server.sql("INSERT INTO t (x) VALUES ('early')")
        with self.open(writers=writers) as source:
            source.start()
            before, _ = self.events(source)
            first.run("COMMIT;")
            first.close()
            after, _ = self.events(source)
        return [event["x"] for event in before], [event["x"] for event in after]

    def test_a_row_that_is_committed_late_is_not_missed(self):
        self.assertEqual(self.late_commit("wait"), ([], ["late", "early"]))

    def test_ignoring_writers_misses_it(self):
        self.assertEqual(self.late_commit("ignore"), (["early"], []))

    def test_many_writers_and_nothing_is_missed(self):
        def write(worker: int) -> None:
            connection = servers.Transaction(server)
            for turn in range(60):
                connection.run(f"BEGIN; INSERT INTO t (x) SELECT 'w' FROM generate_series(1, {turn % 3 + 1}); "
                               f"SELECT pg_sleep({(worker + turn) % 4 * 0.002}); COMMIT;")
            connection.close()

        with self.open(batch=7) as source:
            source.start(credit=1 << 20)
            threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ids = [event["id"] for event in self.events(source, 1)[0]]
        self.assertEqual(ids, [int(n) for n in server.column("SELECT id FROM t ORDER BY id")])
        self.assertEqual(len(ids), 480)

    def test_settings_are_checked_with_their_place(self):
        for parameters, at, message in [
            ({"table": None}, "", "give either a table or a query"),
            ({"query": "SELECT 1"}, "query", "give either"),
            ({"table": None, "query": "SELECT 1", "columns": ["x"]}, "columns", "columns belong to a table"),
            ({"conninfo": "host=a"}, "host", "give either conninfo or the parts"),
        ]:
            with self.assertRaisesRegex(host.Refused, message) as caught:
                self.open(**parameters)
            self.assertEqual(caught.exception.at, at)
        with self.assertRaisesRegex(host.Refused, "not a connection string") as caught:
            plugin.open("source", "postgresQuery", table="t", key="id", conninfo="host=a pass word=geheim")
        self.assertEqual(caught.exception.at, "conninfo")
        self.assertNotIn("word", str(caught.exception))

    def test_a_missing_table_fails_with_the_servers_message(self):
        with self.open(table="nowhere") as source:
            source.start()
            end = source.join()
        self.assertEqual((end["status"], end["error"]), (host.FAILED, 'relation "nowhere" does not exist (42P01)'))

    def test_no_server_is_tried_again_without_the_password_and_a_stop_comes_at_once(self):
        with plugin.open("source", "postgresQuery", table="t", key="id", host="127.0.0.1", port=1, user="geheim",
                         password="geheim") as source:
            source.start()
            time.sleep(0.7)
            start = time.monotonic()
            self.assertEqual(source.stop()["status"], host.OK)
            self.assertLess(time.monotonic() - start, 0.5)
            log = source.log()
        self.assertEqual(len(log), 1)
        self.assertIn("warning cannot connect to the database; trying again", log[0])
        self.assertNotIn("geheim", log[0])

    def test_a_silent_server_does_not_hold_up_a_stop(self):
        import socket
        with socket.create_server(("127.0.0.1", 0)) as silent:
            with plugin.open("source", "postgresQuery", table="t", key="id", host="127.0.0.1",
                             port=silent.getsockname()[1]) as source:
                source.start()
                time.sleep(0.2)
                self.assertEqual(source.stop(1)["status"], host.OK)

    def test_nothing_is_lost_when_the_server_restarts_under_load(self):
        def write() -> None:
            for _ in range(20):
                while True:
                    try:
                        server.sql("INSERT INTO t (x) SELECT 'load' FROM generate_series(1, 1000)")
                        break
                    except RuntimeError:
                        time.sleep(0.05)

        def restart() -> None:
            server.stop(signal.SIGQUIT)
            server.start()

        with self.open(batch=300) as source:
            source.start(credit=1 << 20)
            writer, restarter = later(0, write), later(0.3, restart)
            writer.join()
            restarter.join()
            count = int(server.column("SELECT count(*) FROM t")[0])
            ids = []
            while len(ids) < count and (batch := source.take(5)) is not None:
                ids += [item["event"]["id"] for item in batch[0]]
            log = source.log()
        self.assertGreaterEqual(count, 20_000)
        self.assertEqual(ids, [int(n) for n in server.column("SELECT id FROM t ORDER BY id")])
        self.assertIn("count reconnects 1", log)


class Notify(unittest.TestCase):
    def open(self, **parameters):
        return plugin.open("source", "postgresNotify", **{**server.parts, **parameters})

    def ready(self, source, channel) -> None:
        """Sends until one arrives: then LISTEN has run."""
        for _ in range(100):
            server.sql(f"NOTIFY \"{channel}\", 'ready'")
            if source.take(0.1):
                break
        while source.take(0.2):
            pass

    def test_notifications_are_events(self):
        with self.open(channels=["a B", "c"], decode="json") as source:
            source.start()
            self.ready(source, "a B")
            source.log()
            server.sql("""BEGIN; NOTIFY "a B", '{"n": 1}'; NOTIFY c, 'no json'; NOTIFY c; COMMIT; NOTIFY d, '1'""")
            events = []
            while batch := source.take(0.3):
                events += batch[0]
            self.assertEqual([(item["event"]["channel"], item["event"]["payload"]) for item in events if "event" in item],
                             [("a B", {"n": 1})])
            self.assertEqual([(item["rejected"], item["error"]) for item in events if "error" in item],
                             [("no json", "a notification of channel 'c' is not JSON"), ("", "a notification of channel 'c' is not JSON")])
            start = time.monotonic()
            source.stop()
            self.assertLess(time.monotonic() - start, 0.5)

    def test_it_listens_again_after_a_restart_and_says_what_is_lost(self):
        with self.open(channels=["c"]) as source:
            source.start()
            self.ready(source, "c")
            server.stop(signal.SIGINT)
            server.start()
            self.ready(source, "c")
            server.sql("NOTIFY c, 'after'")
            self.assertEqual(source.take()[0][0]["event"]["payload"], "after")
            log = "\n".join(source.log())
        self.assertIn("no connection to the database; trying again: ", log)
        self.assertIn("notifications sent while there was no connection are lost", log)

    def test_channels_are_checked(self):
        for channels in ([], [""], ["x" * 64]):
            with self.assertRaises(host.Refused) as caught:
                self.open(channels=channels)
            self.assertEqual(caught.exception.at, "channels")


class Insert(unittest.TestCase):
    def setUp(self) -> None:
        server.sql("""DROP TABLE IF EXISTS t, p; CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1);
            CREATE TABLE t (id int PRIMARY KEY, n int CHECK (n < 1000), x text);""")

    def open(self, **parameters):
        return plugin.open("sink", "postgresInsert", **{
            **server.parts, "table": "t", "columns": {"id": "id", "n": "n", "x": "x"}, **parameters})

    def test_values_of_all_types(self):
        server.sql("""DROP TABLE IF EXISTS kinds; CREATE TABLE kinds (b bool, n numeric, x text, j jsonb, js json, bytes bytea,
            at timestamptz, i interval, ns bigint, list int[], texts text[], deep int[][], doc jsonb, none int DEFAULT 5, text_int text)""")
        names = ["b", "n", "x", "j", "js", "bytes", "at", "i", "ns", "list", "texts", "deep", "none", "text_int"]
        event = {"b": True, "n": 12.5, "x": "a\tb\\\nä", "j": "text", "js": {"a": None}, "bytes": {"$bytes": "\x00\x01z"},
                 "at": {"$timestamp": -1}, "i": host.duration(-1_500_000_000), "ns": host.duration(7),
                 "list": [1, None, 3], "texts": ['a"b', "c,d", None, "NULL", ""], "deep": [[1, 2], [3, 4]], "text_int": 17,
                 "s": {"o": 1}}
        for mode in ("insert", "copy"):
            server.sql("TRUNCATE kinds")
            with self.open(table="kinds", columns={**{name: name for name in names}, "doc": "s"}, mode=mode) as sink:
                answer = sink.write(event)
                self.assertEqual((answer["status"], answer["error"], answer["refused"]), (host.OK, "", {}))
            row = server.sql("""SELECT b, n, encode(convert_to(x, 'UTF8'), 'hex'), j, js, bytes, at AT TIME ZONE 'UTC', i, ns, list,
                texts, deep, doc, none IS NULL, text_int FROM kinds""")
            self.assertEqual(row, [[
                "t", "12.5", "a\tb\\\nä".encode().hex(), '"text"', '{"a":null}', "\\x00017a", "1970-01-01 00:00:00",
                "-00:00:01.5", "7", "{1,NULL,3}", '{"a\\"b","c,d",NULL,"NULL",""}', "{{1,2},{3,4}}", '{"o": 1}', "t", "17"]], mode)

    def test_a_row_that_is_refused_is_refused_alone(self):
        events = [{"id": 1, "n": 1}, {"id": 2, "n": 1000}, {"id": 3, "n": "x"}, {"id": 1, "n": 4}, {"n": 5},
                  {"id": 6, "x": "zero\0byte"}, {"id": 7, "n": 7}]
        for mode in ("insert", "copy"):
            server.sql("TRUNCATE t")
            with self.open(mode=mode) as sink:
                answer = sink.write(*events)
                again = sink.write({"id": 8})
            self.assertEqual((answer["status"], again["status"]), (host.OK, host.OK), answer["error"])
            refused = answer["refused"]
            self.assertEqual(sorted(refused), ["1", "2", "3", "4", "5"])
            self.assertIn('violates check constraint "t_n_check"', refused["1"])
            self.assertIn("invalid input syntax for type integer", refused["2"])
            self.assertIn("duplicate key value violates unique constraint", refused["3"])
            self.assertIn("Key (id)=(1) already exists", refused["3"])
            self.assertIn("null value in column", refused["4"])
            self.assertEqual(refused["5"], "the text for column 'x' has a zero byte, which PostgreSQL cannot store")
            self.assertEqual(server.column("SELECT id FROM t ORDER BY id"), ["1", "7", "8"], mode)

    def test_a_constraint_that_is_checked_at_commit(self):
        server.sql("ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES p DEFERRABLE INITIALLY DEFERRED")
        for mode in ("insert", "copy"):
            server.sql("TRUNCATE t")
            with self.open(mode=mode) as sink:
                answer = sink.write({"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3})
                self.assertEqual((answer["status"], list(answer["refused"])), (host.OK, ["1"]), answer)
            self.assertEqual(server.column("SELECT id FROM t ORDER BY id"), ["1", "3"])

    def test_a_row_that_is_there_stays_with_every_unique_key(self):
        server.sql("ALTER TABLE t ADD UNIQUE (x)")
        with self.open(conflict="ignore") as sink:
            self.assertEqual(sink.write({"id": 1, "x": "a"}, {"id": 1, "x": "b"}, {"id": 2, "x": "a"}, {"id": 3})["refused"], {})
        self.assertEqual(server.sql("SELECT id, x FROM t ORDER BY id"), [["1", "a"], ["3", ""]])

    def upsert(self, *changes, **parameters):
        """Writes one batch: each change is an event, or one with the result of `retracted`."""
        changes = [change if isinstance(change, tuple) else (change, host.ABSENT) for change in changes]
        with self.open(**{"mode": "upsert", "key": "id", **parameters}) as sink:
            return sink.write(*(event for event, _ in changes), arguments=[[host.ABSENT, back] for _, back in changes])

    def test_upsert_takes_changes_in_their_order(self):
        answer = self.upsert({"id": 1, "x": "a"}, {"id": 1, "n": 2, "x": "b"}, {"id": 2}, ({"id": 2}, True), {"id": 3, "x": "old"},
                             ({"id": 3, "x": "old"}, True), ({"id": 3, "x": "new"}, False), ({"id": 4}, None), ({"id": 5}, True))
        self.assertEqual((answer["status"], answer["refused"]), (host.OK, {}), answer["error"])
        self.assertEqual(server.sql("SELECT id, n, x FROM t ORDER BY id"), [["1", "2", "b"], ["3", "", "new"], ["4", "", ""]])
        self.upsert(({"id": 1, "n": "of no number, which the key does not need"}, True), {"id": 4, "x": "c"})
        self.assertEqual(server.sql("SELECT id, x FROM t ORDER BY id"), [["3", "new"], ["4", "c"]])
        self.assertEqual(self.upsert({"id": 4}, {"id": 6}, columns={"id": "id"})["refused"], {})
        self.assertEqual(server.sql("SELECT id, x FROM t ORDER BY id"), [["3", "new"], ["4", "c"], ["6", ""]])

    def test_the_key_of_a_deletion_has_the_types_of_its_columns(self):
        server.sql("""DROP TABLE IF EXISTS keys; CREATE TABLE keys (at timestamptz, name varchar(9), f real, bytes bytea, list int[],
            n numeric, d date, b bool, i interval, j jsonb, "a ""b" char(5), value int, PRIMARY KEY
            (name, at, f, bytes, list, n, d, b, i, j, "a ""b"))""")
        names = ["at", "name", "f", "bytes", "list", "n", "d", "b", "i", "j", 'a "b']
        event = {"at": {"$timestamp": 1_700_000_000_123_456_789}, "name": "ä", "f": 0.1, "bytes": {"$bytes": "\x00z"}, "list": [1, 2],
                 "n": 1.50, "d": "2026-11-28", "b": False, "i": host.duration(1_500_000_000), "j": {"a": [1]}, 'a "b': "ab", "value": 1}
        others = [{**event, name: value} for name, value in [("at", {"$timestamp": 0}), ("name", "b"), ("f", 0.2), ("list", []), ("j", 1)]]
        parameters = {"table": "keys", "columns": {name: name for name in [*names, "value"]}, "key": names}
        answer = self.upsert(event, *others, {**event, "value": 2}, **parameters)
        self.assertEqual((answer["status"], answer["refused"]), (host.OK, {}), answer["error"])
        self.assertEqual(server.column("SELECT value FROM keys ORDER BY value"), ["1"] * 5 + ["2"])
        self.assertEqual(self.upsert((event, True), **parameters)["refused"], {})
        self.assertEqual(server.column("SELECT value FROM keys"), ["1"] * 5)

    def test_what_says_no_truth_value_and_a_null_key_are_refused_alone(self):
        answer = self.upsert({"id": 1}, ({"id": 1}, "true"), ({"id": 1}, 1), ({}, True), ({"id": "zero\0byte"}, True), {"id": 2})
        self.assertEqual(answer["status"], host.OK, answer["error"])
        wrong = "'retracted' must be true, false or null, and is something else for this event"
        self.assertEqual({index: text for index, text in answer["refused"].items() if index != "4"},
                         {"1": wrong, "2": wrong, "3": "the row cannot be retracted: column 'id' of its key is NULL"})
        self.assertIn("has a zero byte", answer["refused"]["4"])
        self.assertEqual(server.column("SELECT id FROM t ORDER BY id"), ["1", "2"])

    def test_changes_keep_their_order_when_rows_among_them_are_refused(self):
        answer = self.upsert({"id": 1, "x": "a"}, {"id": 2, "n": 1000}, ({"id": 1}, True), {"id": 3, "x": "a"}, ({"id": 3}, True),
                             {"id": 3, "x": "b"}, ({"id": "no number"}, True), {"id": 1, "x": "b"}, {"id": 4}, ({"id": 4}, True))
        self.assertEqual((answer["status"], sorted(answer["refused"])), (host.OK, ["1", "6"]), answer)
        self.assertIn("the database refuses the row: new row for relation", answer["refused"]["1"])
        self.assertIn("invalid input syntax for type integer", answer["refused"]["6"])
        self.assertEqual(server.sql("SELECT id, x FROM t ORDER BY id"), [["1", "b"], ["3", "b"]])

    def test_a_deletion_that_the_database_refuses_is_refused_alone(self):
        server.sql("ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES p DEFERRABLE INITIALLY DEFERRED; INSERT INTO t VALUES (7, 1)")
        answer = self.upsert({"id": 2}, ({"id": 1}, True), ({"id": 2}, True), {"id": 3}, table="p", columns={"id": "id"})
        self.assertEqual((answer["status"], list(answer["refused"])), (host.OK, ["1"]), answer)
        self.assertIn("violates foreign key constraint", answer["refused"]["1"])
        self.assertEqual(server.column("SELECT id FROM p ORDER BY id"), ["1", "3"])

    def test_a_key_without_a_constraint_is_a_wrong_setting(self):
        bad = {"id": "no number"}
        for key in ("n", ["id", "n"]):
            for events in [[{"id": 1, "n": 1}], [bad, {"id": 1, "n": 1}]]:
                with self.open(mode="upsert", key=key) as sink:
                    answer = sink.write(*events)
                self.assertEqual((answer["status"], answer["at"]), (host.FAILED, "key"), answer)
                self.assertIn("needs a PRIMARY KEY or UNIQUE constraint on exactly these columns: there is no unique", answer["error"])
        self.assertEqual(server.column("SELECT id FROM t"), [])

    def test_what_cannot_be_written_to_is_a_wrong_setting(self):
        server.sql("CREATE VIEW v AS SELECT count(*) AS id FROM p; CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)")
        self.addCleanup(server.sql, "DROP VIEW v; DROP TABLE late")
        for table, message in [("v", "cannot insert into view"), ("late", "does not support deferrable unique constraints")]:
            answer = self.upsert({"id": 1}, table=table, columns={"id": "id"})
            self.assertEqual((answer["status"], answer["at"]), (host.FAILED, "table"), answer)
            self.assertIn(message, answer["error"])

    def test_a_right_that_is_lost_while_it_runs_is_a_wrong_setting(self):
        server.sql("DROP ROLE IF EXISTS writer; CREATE ROLE writer LOGIN; GRANT SELECT, INSERT, UPDATE ON t TO writer")
        with self.open(mode="upsert", key="id", user="writer") as sink:
            self.assertEqual(sink.write({"id": 1})["status"], host.OK)
            answer = sink.write({"id": 2}, {"id": 1}, arguments=[[host.ABSENT, False], [host.ABSENT, True]])
        self.assertEqual((answer["status"], answer["error"]), (host.FAILED, "permission denied for table t (42501)"))
        self.assertEqual(server.column("SELECT id FROM t"), ["1"])
        server.sql("DROP OWNED BY writer; DROP ROLE writer")

    def test_a_table_follows_changes_while_the_server_restarts(self):
        """Random changes with bad rows among them, against a plain model."""
        chance = random.Random(1)
        model = {}
        with self.open(mode="upsert", key="id") as sink:
            for turn in range(60):
                events, arguments, bad = [], [], set()
                for place in range(chance.randrange(1, 200)):
                    event = {"id": chance.randrange(40), "n": chance.randrange(1000), "x": f"{turn}.{place}"}
                    is_back = chance.random() < 0.4
                    if turn % 5 == 0 and chance.random() < 0.05:
                        event["n"], is_back = 1000, False
                        bad.add(str(place))
                    elif is_back:
                        model.pop(event["id"], None)
                    else:
                        model[event["id"]] = event
                    events.append(event)
                    arguments.append([host.ABSENT, is_back])
                restarter = later(0.002, lambda: (server.stop(signal.SIGQUIT), server.start())) if turn % 12 == 7 else None
                while (answer := sink.write(*events, arguments=arguments))["status"] != host.OK:
                    self.assertEqual(answer["status"], host.RETRY, answer["error"])
                    time.sleep(0.05)
                self.assertEqual(set(answer["refused"]), bad)
                if restarter:
                    restarter.join()
            log = sink.log()
        self.assertEqual(log.count("count reconnects 1"), 5, log)
        self.assertEqual(server.sql("SELECT id, n, x FROM t ORDER BY id"),
                         [[str(event["id"]), str(event["n"]), event["x"]] for _, event in sorted(model.items())])

    def test_paths_the_whole_event_and_the_row_expression(self):
        server.sql("DROP TABLE IF EXISTS d; CREATE TABLE d (name text, doc jsonb)")
        with self.open(table="public.d", columns={"name": "customer.name", "doc": "."}) as sink:
            sink.write({"customer": {"name": "Ada"}}, {"customer": 5})
            sink.write({"id": 1}, arguments=[[{"customer": {"name": "Bob"}}]])
        self.assertEqual(server.sql("SELECT name, doc FROM d"), [
            ["Ada", '{"customer": {"name": "Ada"}}'], ["", '{"customer": 5}'], ["Bob", '{"customer": {"name": "Bob"}}']])

    def test_settings_are_checked_with_their_place(self):
        for parameters, at in [
            ({"columns": {}}, "columns"), ({"columns": {"id": "a..b"}}, "columns.id"), ({"table": ""}, "table"),
            ({"conflict": "ignore", "mode": "copy"}, "mode"), ({"mode": "upsert"}, "key"), ({"mode": "upsert", "key": []}, "key"),
            ({"mode": "upsert", "key": ["id", "z"]}, "key"), ({"key": "id"}, "key"), ({"mode": "copy", "key": "id"}, "key"),
            ({"conflict": "ignore", "key": "id"}, "key"), ({"mode": "upsert", "key": "id", "conflict": "ignore"}, "conflict"),
        ]:
            with self.assertRaises(host.Refused) as caught:
                self.open(**parameters)
            self.assertEqual(caught.exception.at, at)

    def test_a_wrong_table_fails_and_a_missing_server_asks_for_another_try(self):
        with self.open(table="nowhere") as sink:
            answer = sink.write({"id": 1})
            self.assertEqual((answer["status"], answer["error"]), (host.FAILED, 'relation "nowhere" does not exist (42P01)'))
        with self.open(port=1, password="geheim", user="geheim") as sink:
            answer = sink.write({"id": 1})
            self.assertEqual(answer["status"], host.RETRY)
            self.assertIn("refused", answer["error"])
            self.assertNotIn("geheim", answer["error"])

    def test_a_changed_table_gets_a_new_statement(self):
        with self.open() as sink:
            self.assertEqual(sink.write({"id": 1})["status"], host.OK)
            server.sql("ALTER TABLE t ALTER COLUMN x TYPE int USING 0")
            answer = sink.write({"id": 2, "x": 5})
            self.assertEqual((answer["status"], answer["refused"]), (host.OK, {}), answer["error"])

    def test_a_lock_is_waited_for_only_as_long_as_timeout_says(self):
        holder = servers.Transaction(server)
        holder.run("BEGIN; LOCK TABLE t;")
        with self.open(timeout="300ms") as sink:
            start = time.monotonic()
            answer = sink.write({"id": 1})
            self.assertEqual(answer["status"], host.RETRY)
            self.assertIn("statement timeout", answer["error"])
            self.assertLess(time.monotonic() - start, 5)
            holder.run("COMMIT;")
            holder.close()
            self.assertEqual(sink.write({"id": 1})["status"], host.OK)
        self.assertEqual(server.column("SELECT id FROM t"), ["1"])

    def test_a_write_ends_early_when_nobody_waits_for_it(self):
        holder = servers.Transaction(server)
        holder.run("BEGIN; LOCK TABLE t;")
        with self.open() as sink:
            later(0.2, sink.begin_closing)
            start = time.monotonic()
            self.assertEqual(sink.write({"id": 1})["status"], host.RETRY)
            self.assertLess(time.monotonic() - start, 2)
        holder.run("COMMIT;")
        holder.close()

    def load(self, mode, **parameters):
        """20,000 events; the server dies and restarts in the middle."""
        events = [{"id": n, "n": n % 1000, "x": "load " * 20} for n in range(1, 20_001)]
        stopped, tries, start = False, 0, time.monotonic()
        with self.open(mode=mode, **parameters) as sink:
            restarter = None
            for begin in range(0, len(events), 1000):
                if begin == 10_000 and restarter is None:
                    restarter = later(0.005, lambda: (server.stop(signal.SIGQUIT), time.sleep(0.3), server.start()))
                while True:
                    answer = sink.write(*events[begin:begin + 1000])
                    if answer["status"] == host.OK:
                        break
                    self.assertEqual(answer["status"], host.RETRY, answer["error"])
                    tries += 1
                    stopped = True
                    time.sleep(0.05)
                for index in answer["refused"]:
                    # The previous batch was committed and its answer lost: only without `conflict`.
                    self.assertEqual(parameters.get("conflict"), None)
                    self.assertIn("duplicate key", answer["refused"][index])
            restarter.join()
        self.assertTrue(stopped, "the server was not missed")
        self.assertEqual(server.sql("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t"),
                         [["20000", "20000", "1", "20000"]])

    def test_nothing_is_lost_when_the_server_restarts_under_load(self):
        self.load("insert", conflict="ignore")

    def test_nothing_is_lost_when_the_server_restarts_under_copy(self):
        self.load("copy")


if __name__ == "__main__":
    unittest.main()
