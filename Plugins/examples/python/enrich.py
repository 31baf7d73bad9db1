#!/usr/bin/env python3
"""An enricher: adds a row of a CSV table to events. `lookup: { key: event.country, table: countries.csv }`."""
import csv
import os
from typing import Any, Dict

from rxd_plugin import BadParameter, Example, Operator, Plugin, count, expression, log, text

plugin = Plugin("tables", "1.0.0", "Looks events up in tables.")

CAPITALS = "code,name,capital\nFR,France,Paris\nPE,Peru,Lima\n"


@plugin.operator(
    memory="The whole table.",
    input={"type": "object"}, output={"type": "object"},
    examples=[
        Example("the capital of a country", {"key": "event.country", "table": "countries.csv"},
                [{"id": 1, "country": "PE"}, {"id": 2, "country": "XX"}],
                [{"id": 1, "country": "PE", "found": {"name": "Peru", "capital": "Lima"}},
                 {"id": 2, "country": "XX", "found": None}],
                given={"countries.csv": CAPITALS}),
        Example("under another name", {"key": "event.code", "table": "countries.csv", "as": "country"},
                [{"code": "FR"}], [{"code": "FR", "country": {"name": "France", "capital": "Paris"}}],
                given={"countries.csv": CAPITALS}),
    ])
class Lookup(Operator):
    """Adds the row of a CSV file whose first column is the key.

    The first line of the file has the names of the columns. The file is read again when it has changed. An event whose key is
    not there gets null."""

    key: str = expression("What is looked up in the first column.", result="string", required=True)
    table: str = text("The CSV file.", required=True)
    as_: str = text("The member of the event that gets the row.", default="found")

    def open(self) -> None:
        self.rows: Dict[str, Dict[str, str]] = {}
        self.changed_at = 0
        try:
            self.read_if_changed()
        except OSError as error:
            raise BadParameter(f"{self.table}: {error.strerror}", at="table") from None

    def read_if_changed(self) -> None:
        changed_at = os.stat(self.table).st_mtime_ns
        if changed_at == self.changed_at:
            return
        with open(self.table, encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            key = (rows.fieldnames or [""])[0]
            self.rows = {row.pop(key): row for row in rows}
        self.changed_at = changed_at
        log("info", f"{len(self.rows)} rows of {self.table}")

    def process(self, event: Dict[str, Any]) -> Dict[str, Any]:
        self.read_if_changed()
        row = self.rows.get(self.key)
        if row is None:
            count("notFound")
        event[self.as_] = row
        return event


plugin.run()
