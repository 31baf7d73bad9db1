#!/usr/bin/env python3
"""A source with acknowledgement: reads files from a directory, and removes each when rxd has delivered it.

Other programs move finished files into the directory, each with a JSON value. A file that could not be delivered, or is not
JSON, is renamed to NAME.failed. Nothing is lost when this program, rxd or the machine stops: the file still exists.
"""
import json
import os
from typing import Any, Dict, Iterator, List, Set

from rxd_plugin import BadParameter, Example, Item, Plugin, Source, duration, log, text

plugin = Plugin("spool", "1.0.0", "Reads events from files of a directory.")


@plugin.source(
    recovery="sender",
    examples=[Example("two orders", {"directory": "."}, outputs=[{"order": 1}, {"order": 2}],
                      given={"1.json": '{"order":1}', "2.json": '{"order":2}', "3.json": "{", "4.txt": ""})])
class Spool(Source):
    """Sends the content of each file NAME.json of a directory, and removes it when it has been delivered."""

    directory: str = text("The directory.", primary=True, required=True)
    every: float = duration("How often the directory is looked at.", default="500ms", minimum="10ms")

    def open(self) -> None:
        if not os.path.isdir(self.directory):
            raise BadParameter(f"'{self.directory}' is no directory", at="directory")
        self.names: Dict[int, str] = {}  # by token

    def run(self) -> Iterator[Any]:
        token = 0
        while not self.is_stopping:
            in_hand: Set[str] = set(self.names.values())
            for name in sorted(os.listdir(self.directory)):
                if not name.endswith(".json") or name in in_hand:
                    continue
                path = os.path.join(self.directory, name)
                try:
                    with open(path, encoding="utf-8") as file:
                        event = json.load(file)
                except ValueError as error:
                    log("warning", f"{name} is no JSON: {error}")
                    os.rename(path, path + ".failed")
                    continue
                token += 1
                self.names[token] = name
                yield Item(event, token=token)
            self.wait(self.every)

    def acknowledged(self, tokens: List[int]) -> None:
        for token in tokens:
            os.remove(os.path.join(self.directory, self.names.pop(token)))

    def failed(self, tokens: List[int], reason: str) -> None:
        for token in tokens:
            path = os.path.join(self.directory, self.names.pop(token))
            log("warning", f"{path} failed: {reason}")
            os.rename(path, path + ".failed")


plugin.run()
