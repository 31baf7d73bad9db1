"""The world of a test: a directory, a state directory, feeds, a sink, the judge, and one rxd at a time."""
import os

from .feeds import FileFeed, HTTPFeed, PipeFeed
from .oracle import Judge
from .process import Directory, Rxd, free_port, wait_until
from .server import Server

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def pipeline(name):
    return os.path.join(HERE, "pipelines", f"{name}.yaml")


class World:
    """`sink`: "file" or "http". `source`: "file", "http" or "stdin"."""

    def __init__(self, name, source, sink, seed=0, rate=20_000, feeds=None, keep=False, state=None, judge=None,
                 script="200", **feed_options):
        self.name = name
        self.directory = Directory(keep)
        self.judge = judge or Judge()
        self.state = state or self.directory / "state"
        self.stateless = False
        os.makedirs(self.state, 0o700, exist_ok=True)
        self.log = self.directory / "log"
        self.out = self.directory / "out.ndjson"
        self.input = self.directory / "in.log"
        self.port = free_port()
        self.sink = sink
        self.server = Server(self.judge, script, seed) if sink == "http" else None
        self.environment = {"IN": self.input, "OUT": self.out, "PORT": str(self.port),
                            "URL": self.server.url if self.server else ""}
        if source == "file":
            self.feeds = [FileFeed(self.judge, "a", self.input, rate, seed=seed, **feed_options)]
        elif source == "stdin":
            self.feeds = [PipeFeed(self.judge, "a", rate)]
        else:
            names = "abcd"[:feeds or 4]
            self.feeds = [HTTPFeed(self.judge, one, self.port, rate / len(names), **feed_options) for one in names]
        self.rxd = None
        self.peeked = 0

    def start(self, pipelines=None, **options):
        """Starts rxd, and does not wait until it is ready."""
        if isinstance(self.feeds[0], PipeFeed):
            options.setdefault("stdin", self.feeds[0].reader)
        if self.server:
            self.server.settle()
        environment = {**self.environment, **options.pop("environment", {})}
        state = None if self.stateless else self.state
        self.rxd = Rxd(pipelines or pipeline(self.name), state, self.directory.path, environment, log=self.log,
                       **options)
        return self.rxd.start()

    def feed(self):
        for one in self.feeds:
            one.start()

    def stop_feeds(self):
        for one in self.feeds:
            one.stop()

    def fresh(self, seconds=5):
        """Sends an event and waits for its delivery; returns the seconds that took, or None."""
        import time
        begun = time.monotonic()
        feed = self.feeds[0]
        n = feed.fresh(seconds)
        if n is None:
            return None
        rest = seconds - (time.monotonic() - begun)
        if self.server:
            arrived = self.judge.wait(feed.name, n, rest)
        else:
            needle = b'"n":%d,' % n
            arrived = wait_until(lambda: self._peek(b'{"src":"%s",%s' % (feed.name, needle)), rest)
        return time.monotonic() - begun if arrived else None

    def _peek(self, text):
        try:
            with open(self.out, "rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - (1 << 20)))
                return text in file.read()
        except FileNotFoundError:
            return False

    def drain(self, seconds=60):
        """Waits until everything sent so far has been processed: sends an event, which arrives after it."""
        return self.fresh(seconds) is not None

    def judged(self):
        """Passes the file to the judge, after rxd has ended."""
        if not self.server:
            try:
                with open(self.out, "rb") as file:
                    rest = b""
                    while piece := file.read(1 << 22):
                        head, _, rest = (rest + piece).rpartition(b"\n")
                        self.judge.deliver(head)
                    if rest:
                        self.judge.deliver(rest)
            except FileNotFoundError:
                pass
        return self.judge.verdict()

    def close(self):
        for one in self.feeds:
            if one.thread.is_alive():
                one.stopped.set()
                one.thread.join(5)
        if self.rxd and self.rxd.handle is not None:
            self.rxd.kill()
        if self.server:
            self.server.down()
        for one in self.feeds:
            one.close()
        self.directory.remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def logged(self, text):
        """The number of log lines that contain the text."""
        with open(self.log, errors="replace") as file:
            return sum(text in line for line in file)

    def tail(self, lines=12):
        """The end of the log."""
        try:
            with open(self.log, errors="replace") as file:
                return file.read()[-20_000:].splitlines()[-lines:]
        except FileNotFoundError:
            return []
