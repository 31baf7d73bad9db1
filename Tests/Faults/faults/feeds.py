"""Generators: they send numbered events at a rate, and tell the judge which must be delivered."""
import collections
import os
import random
import shutil
import socket
import subprocess
import threading
import time

from .oracle import line


class Feed:
    """A thread that sends until it is stopped."""

    def __init__(self, judge, name):
        self.judge = judge
        self.name = name.encode()
        self.n = 0
        self.stopped = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopped.set()
        self.thread.join(20)
        if self.failure:
            raise self.failure

    def _guarded(self):
        try:
            self.run()
        except Exception as error:  # `stop` raises it again.
            self.failure = error

    def _due(self, rate, tick=0.005):
        """Yields how many events are due, about every `tick` seconds, until stopped."""
        start = time.monotonic()
        done = 0
        while not self.stopped.wait(tick):
            due = int((time.monotonic() - start) * rate) - done
            if due > rate:  # After a pause of the machine, catches up at most one second.
                done += due - int(rate)
                due = int(rate)
            if due > 0:
                yield due
                done += due


class FileFeed(Feed):
    """Appends lines to a file.

    `rotate`: None, "rename", "gzip" (renamed, then compressed) or "copytruncate", every `lines` lines; `old` rotated
    files stay. A line may be written in two pieces, as programs with small buffers do.
    """

    def __init__(self, judge, name, path, rate=20_000, rotate=None, lines=5_000, old=5, pad=b"", seed=0):
        super().__init__(judge, name)
        self.path = path
        self.rate = rate
        self.rotate = rotate
        self.lines = lines
        self.old = old
        self.pad = pad
        self.random = random.Random(seed)
        self.rotations = 0
        self.rotated = threading.Condition()
        self.in_file = 0
        # Numbers that copytruncate itself may lose: [first, last] written within `window` seconds before a truncation.
        self.windows = []
        self.window = 0.1
        self.recent = collections.deque()
        self.lock = threading.Lock()
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def run(self):
        for due in self._due(self.rate):
            self.write(due)
            if self.rotate and self.in_file >= self.lines:
                self.turn()

    def write(self, count=1):
        """Appends events; returns the number of the last one."""
        with self.lock:
            first, last = self.n + 1, self.n + count
            data = b"".join(line(self.name, n, self.pad) for n in range(first, last + 1))
            self.judge.sending(self.name, last)
            cut = self.random.randrange(len(data)) if self.random.random() < 0.3 else 0
            for piece in (data[:cut], data[cut:]):
                while piece:
                    piece = piece[os.write(self.file, piece):]
            self.n = last
            self.in_file += count
            if self.rotate == "copytruncate":
                self.recent.append((time.monotonic(), first, last))
            self.judge.promised(self.name, first, last)
            return last

    def turn(self):
        """Rotates now."""
        with self.lock:
            ending = ".gz" if self.rotate == "gzip" else ""
            for i in range(self.old, 0, -1):
                old = f"{self.path}.{i}{ending}"
                if os.path.exists(old):
                    if i == self.old:
                        os.unlink(old)
                    else:
                        os.rename(old, f"{self.path}.{i + 1}{ending}")
            if self.rotate in ("rename", "gzip"):
                os.rename(self.path, f"{self.path}.1")
                os.close(self.file)
                self.file = os.open(
                    self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            else:
                shutil.copyfile(self.path, f"{self.path}.1")
                os.truncate(self.path, 0)
                begin = time.monotonic() - self.window
                self.windows += [(first, last) for at, first, last in self.recent if at >= begin]
                self.recent.clear()
            self.in_file = 0
        with self.rotated:
            self.rotations += 1
            self.rotated.notify_all()
        if self.rotate == "gzip":
            subprocess.run(["gzip", f"{self.path}.1"], check=True)

    def wait_rotation(self, seconds):
        """Waits for the next rotation."""
        with self.rotated:
            count = self.rotations
            return self.rotated.wait_for(lambda: self.rotations > count, seconds)

    def fresh(self, seconds):
        """Sends an event of the same source within the time; returns its number, or None."""
        return self.write(1)

    def close(self):
        os.close(self.file)


class HTTPFeed(Feed):
    """Posts batches of events, one after another on each connection. Unacknowledged batches are not sent again."""

    def __init__(self, judge, name, port, rate=20_000, batch=50, pad=b"", path="/"):
        super().__init__(judge, name)
        self.port = port
        self.rate = rate
        self.batch = batch
        self.pad = pad
        self.head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n" % path.encode()
        self.connection = None
        self.statuses = {}
        self.broken = 0
        self.acknowledged = 0
        self.slowest = 0.0
        self.timeout = 10
        self.lock = threading.Lock()

    def run(self):
        for due in self._due(self.rate):
            for _ in range(max(1, due // self.batch)):
                if self.stopped.is_set():
                    return
                if self.post(self.batch) is None and self.connection is None:
                    break  # Refused: the next tick tries again.

    def post(self, count):
        """Posts a batch; returns the status, or None if there was no answer."""
        with self.lock:
            try:
                if self.connection is None:
                    self.connection = socket.create_connection(("127.0.0.1", self.port), 2)
                    self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                return None
            first, last = self.n + 1, self.n + count
            body = b"".join(line(self.name, n, self.pad) for n in range(first, last + 1))
            self.n = last
            self.judge.sending(self.name, last)
            begun = time.monotonic()
            try:
                self.connection.settimeout(self.timeout)
                self.connection.sendall(self.head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                status = self._answer()
            except (OSError, ValueError):
                self.broken += 1
                self.disconnect()
                return None
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status == 200:
                self.judge.promised(self.name, first, last)
                self.acknowledged += count
            return status

    def _answer(self):
        buffer = b""
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            piece = self.connection.recv(1 << 16)
            if not piece:
                raise ValueError("closed")
            buffer += piece
        head = buffer[:end].decode("latin-1").lower()
        length = 0
        for one in head.split("\r\n")[1:]:
            if one.startswith("content-length:"):
                length = int(one[15:])
        while len(buffer) < end + 4 + length:
            piece = self.connection.recv(1 << 16)
            if not piece:
                raise ValueError("closed")
            buffer += piece
        if "connection: close" in head:
            self.disconnect()
        return int(head.split(" ", 2)[1])

    def disconnect(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def fresh(self, seconds):
        """Posts one event until it is acknowledged; returns its number, or None."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.post(1) == 200:
                return self.n
            self.stopped.wait(0.01) if not self.stopped.is_set() else time.sleep(0.01)
        return None

    def close(self):
        self.disconnect()


class PipeFeed(Feed):
    """Writes lines into a pipe that outlives its readers; `reader` is the end for the standard input of rxd."""

    def __init__(self, judge, name, rate=20_000):
        super().__init__(judge, name)
        self.rate = rate
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        self.lock = threading.Lock()

    def run(self):
        for due in self._due(self.rate):
            self.write(due)

    def write(self, count=1):
        with self.lock:
            first, last = self.n + 1, self.n + count
            data = b"".join(line(self.name, n) for n in range(first, last + 1))
            self.judge.sending(self.name, last)
            while data:
                data = data[os.write(self.writer, data):]
            self.n = last
            self.judge.promised(self.name, first, last)
            return last

    def fresh(self, seconds):
        return self.write(1)

    def close(self):
        os.close(self.writer)
        os.close(self.reader)
