#!/usr/bin/env python3
"""A sink that writes Parquet files, by pyarrow.

A file appears under its name when it is complete and on the disk; only then its events count as delivered. Until then it is in the folder
`.partial` of the directory, where its writer holds a lock on it; files there that nobody has locked were left by a crash, and are removed.
"""
from __future__ import annotations

import datetime
import fcntl
import hashlib
import os
import secrets
from typing import Any, Dict, List, Optional, Tuple

from rxd_plugin import BadParameter, Error, Example, Plugin, Record, Retry, Sink, With, choice, integer, table_of, template, text

try:
    import parquet_columns as columns
    import pyarrow
    import pyarrow.parquet
except ImportError:  # the spec is known without it
    pyarrow = None

plugin = Plugin("parquet", "1.0.0", "Writes Parquet files, by pyarrow.", uses=["parquet_columns.py", "rxd_plugin.py"])
CREDIT = 8192  # each is a file of its own after a crash of this program, because rxd passes one at a time then
PARTIAL = ".partial"


@plugin.sink(
    confirmation="disk", credit=CREDIT, known_as=["Apache Parquet", "Arrow"],
    examples=[
        Example("readings, with a schema", {"directory": ".", "schema": {"device": "string!", "celsius": "double", "at": "timestamp"}},
                [With({"device": "a", "celsius": 21.5, "at": "2026-03-01T10:00:00Z"}, name="{id}.parquet"),
                 With({"device": "b", "celsius": None}, name="{id}.parquet")]),
        Example("an event that does not fit", {"directory": ".", "schema": {"n": "int64"}}, [With({"n": 1}, name="{id}.parquet"), With({"n": "one"}, name="{id}.parquet")],
                [Error("'n' is \"one\", and must be a whole number")])])
class Parquet(Sink):
    """Writes Parquet files, each complete and synced before its events count as delivered.

    A file has the events of a batch that have the same `name`, at most 8192: those that have come while the one before was written, so few and slow
    events become small files. Collect them by `bufferWithTime` before the sink, and set `lists: file`: each list becomes a file.

    An event that does not fit the schema goes to the errors output with its reason; the others of its batch are written. Of a list, all of it does.
    Without `schema`, each file has the columns that its events have, and of values of different kinds the first decides."""

    directory: str = text("The directory of the files; it is made if there is none.", primary=True, required=True)
    name: str = template("The name of a file below the directory, with `{id}` for a unique part; folders in it are made, such as `day=2026-03-01/`.",
                         default="{id}.parquet")
    id: str = template("The name of an event, such as `{{ meta.id }}`: the same events then make a file of the same name, which replaces the first. "
                       "Left out: `{id}` is never the same.")
    schema: Dict[str, str] = table_of(
        "text", "Columns and their types: `boolean`, `int8` to `int64`, `uint8` to `uint64`, `float`, `double`, `string`, `json` (any value as text), "
        "`binary` (of base64), `date`, `timestamp` (microseconds), `timestamp[ms]`, `timestamp[ns]`, `duration`, `decimal(10, 2)`, `list<T>`, `map<T>`, "
        "`struct<name: T>`. A type that ends with `!` is never null.")
    others: str = choice("Members that `schema` does not have.", {"refuse": "the event is refused", "drop": "they are left out"}, default="refuse")
    lists: str = choice("What an event that is a list is.", {"refuse": "it is refused", "file": "all rows of a file"}, default="refuse")
    compression: str = choice("How columns are compressed.", {"none": "not", "snappy": "fast", "zstd": "smaller", "gzip": "for old readers", "lz4": "fast, for new readers",
                                                              "brotli": "smallest and slow"}, default="snappy")
    row_group: int = integer("The most rows of a row group.", default=131072, minimum=1, maximum=10_000_000)

    def open(self) -> None:
        if pyarrow is None:
            raise BadParameter("pyarrow is not installed: run 'pip install pyarrow' for the Python that runs this plugin")
        self.columns: Optional[Any] = None
        if self.schema is not None:
            members = {}
            for name, type_ in self.schema.items():
                try:
                    members[name] = columns.read_type(type_, self.others == "drop")
                except columns.WrongType as error:
                    raise BadParameter(str(error), at=f"schema.{name}") from None
            if not members:
                raise BadParameter("must have a column", at="schema")
            self.columns = columns.Structure(members, self.others == "drop")
        elif self.others == "drop":
            raise BadParameter("needs 'schema'", at="others")
        self.batch_size = 16 if self.lists == "file" else CREDIT
        self.partial = os.path.join(self.directory, PARTIAL)
        try:
            make_folders(self.partial)
            self.remove_leftovers()
        except OSError as error:
            raise BadParameter(f"cannot be written: {error}", at="directory") from None

    def remove_leftovers(self) -> None:
        for name in os.listdir(self.partial):
            path = os.path.join(self.partial, name)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another instance was faster
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            except (BlockingIOError, FileNotFoundError):
                pass  # its writer is alive, or has just completed it
            finally:
                os.close(descriptor)

    # ---- Batches ----

    def write_batch(self, records: List[Record]) -> None:
        groups: Dict[Any, List[Record]] = {}
        for index, record in enumerate(records):
            problem = self.problem_of(record)
            if problem is not None:
                record.refuse(problem)
                continue
            is_list = type(record.event) is list
            groups.setdefault((record.arguments["name"], index if is_list else -1), []).append(record)
        done = set()
        for (name, _), members in groups.items():
            try:
                self.write_group(name, members)
            except OSError as error:
                # What comes behind the first event that is missing is written again.
                delivered = next(index for index, record in enumerate(records) if record.refused is None and id(record) not in done)
                raise Retry(str(error), delivered=delivered) from None
            done.update(map(id, members))

    def problem_of(self, record: Record) -> Optional[str]:
        name = record.arguments["name"]
        if type(record.event) is list:
            if self.lists != "file":
                return "the event is a list, and 'lists' is not 'file'"
            if not record.event:
                return "the list is empty"
        if not isinstance(name, str) or "{id}" not in name:
            return "the name has no '{id}', so files would replace each other"
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or parts[0] == PARTIAL:
            return f"the name {columns.shown(name)} does not stay below the directory"
        if any(len(part.encode(errors="replace")) > 200 for part in parts):
            return "a part of the name has more than 200 bytes"
        if self.is_given(record) and not isinstance(record.arguments["id"], str):
            return "'id' is not a text"
        return None

    @staticmethod
    def is_given(record: Record) -> bool:
        return record.arguments.get("id") is not None

    def write_group(self, name: str, records: List[Record]) -> None:
        """Writes a file. An event that cannot be a row of it is refused, if it is a list as a whole."""
        events = [record.event for record in records]
        is_list = type(events[0]) is list
        rows: List[Any] = events[0] if is_list else events
        schema = columns.columns_of(rows, self.columns)
        table, refused = columns.table_of(schema, rows)
        if is_list and refused:
            index, reason = next(iter(refused.items()))
            records[0].refuse(f"row {index} of the list: {reason}" + (f"; {len(refused) - 1} more rows do not fit" if len(refused) > 1 else ""))
            return
        for index, reason in refused.items():
            records[index].refuse(reason)
        if not schema.members:
            for record in records:
                record.refuse(record.refused or "the event has no members, so the file would have no columns")
        written = [record for record in records if record.refused is None]
        if written:
            self.write_file(name.replace("{id}", self.unique(written)), table)

    def unique(self, records: List[Record]) -> str:
        if self.is_given(records[0]):
            digest = hashlib.sha256()
            for record in records:
                part = record.arguments["id"].encode(errors="replace")
                digest.update(len(part).to_bytes(8, "big") + part)
            return digest.hexdigest()[:32]
        return datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ-") + secrets.token_hex(8)

    # ---- Files ----

    def write_file(self, name: str, table: Any) -> None:
        path = os.path.join(self.directory, name)
        make_folders(self.partial)  # someone may have removed it
        folder = os.path.dirname(path)
        make_folders(folder)
        temporary = os.path.join(self.partial, secrets.token_hex(16))
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                pyarrow.parquet.write_table(table, file, compression=self.compression, row_group_size=self.row_group)
            os.fsync(descriptor)
            os.rename(temporary, path)
        except BaseException:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise
        finally:
            os.close(descriptor)
        sync_folder(folder)


def make_folders(path: str) -> None:
    """Makes a folder and those that it is in; they are on the disk when it returns."""
    missing: List[Tuple[str, str]] = []
    while path and not os.path.isdir(path):
        parent = os.path.dirname(path.rstrip("/")) or "."
        missing.append((path, parent))
        path = parent
    for made, parent in reversed(missing):
        try:
            os.mkdir(made)
        except FileExistsError:
            pass  # another writer has made it
        sync_folder(parent)


def sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    plugin.run()
