#!/usr/bin/env python3
"""A source with a position: the lines of a growing file. `lines: app.log`."""
from typing import Any, Iterator

from rxd_plugin import BadParameter, Example, Item, Plugin, Source, boolean, text

plugin = Plugin("lines", "1.0.0", "Reads lines of a file.")


@plugin.source(
    recovery="position",
    output={"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]},
    examples=[Example("three lines", {"path": "a.txt"}, outputs=[{"line": "one"}, {"line": ""}, {"line": "three"}],
                      given={"a.txt": "one\n\nthree\nhalf a li"})])
class Lines(Source):
    """Sends each line of a file, from the beginning. After a restart it goes on behind the last one that counts."""

    path: str = text("The file.", primary=True, required=True)
    follow: bool = boolean("Whether further lines are waited for at the end.", default=True)

    def open(self) -> None:
        try:
            self.file = open(self.path, "rb")
        except OSError as error:
            raise BadParameter(f"{self.path}: {error.strerror}", at="path") from None

    def run(self) -> Iterator[Any]:
        offset = self.position or 0
        with self.file:
            self.file.seek(offset)
            while not self.is_stopping:
                line = self.file.readline()
                if line.endswith(b"\n"):
                    offset += len(line)
                    yield Item({"line": line[:-1].decode("utf-8", "replace")}, position=offset)
                elif self.follow:
                    self.file.seek(offset)
                    self.wait(0.2)
                else:
                    return


plugin.run()
