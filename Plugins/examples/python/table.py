#!/usr/bin/env python3
"""A sink that writes batches into a table of an SQLite database, one transaction each.

`table: { database: orders.sqlite, name: orders, key: event.id }`. A repeated event replaces itself, so there are no duplicates.
"""
import json
import sqlite3
from typing import Any, List

from rxd_plugin import BadParameter, Example, Plugin, Record, Retry, Sink, expression, text

plugin = Plugin("sqlite", "1.0.0", "Writes events into an SQLite database.")


@plugin.sink(
    confirmation="disk",
    examples=[Example("orders", {"database": "orders.sqlite", "name": "orders", "key": "event.id"},
                      [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a", "n": 3}])])
class Table(Sink):
    """Writes events into a table with the columns `key` and `event`, as JSON; a later event of a key replaces an earlier one."""

    database: str = text("The file of the database; it is made if there is none.", required=True)
    name: str = text("The table; it is made if there is none.", default="events")
    key: str = expression("The key of the event.", result="string", required=True)

    def open(self) -> None:
        if not self.name.isidentifier():
            raise BadParameter(f"'{self.name}' cannot be the name of a table", at="name")
        try:
            self.connection = sqlite3.connect(self.database, timeout=1)
            self.connection.execute("PRAGMA synchronous = FULL")
            self.connection.execute(f"CREATE TABLE IF NOT EXISTS {self.name} (key TEXT PRIMARY KEY, event TEXT)")
        except sqlite3.Error as error:
            raise BadParameter(f"{self.database}: {error}", at="database") from None

    def write_batch(self, records: List[Record]) -> None:
        rows: List[Any] = []
        for record in records:
            if isinstance(record.arguments["key"], str):
                rows.append((record.arguments["key"], json.dumps(record.event)))
            else:
                record.refuse("the key is not a text")
        try:
            with self.connection:
                self.connection.executemany(f"INSERT OR REPLACE INTO {self.name} VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:  # locked, full or not writable
            raise Retry(str(error)) from None

    def close(self) -> None:
        self.connection.close()


plugin.run()
