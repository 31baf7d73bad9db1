"""A scripted HTTP server on loopback: it answers by its script, and passes what it accepts to the judge."""
import random
import socket
import struct
import threading
import time

ANSWERS = ("200", "500", "503", "429", "hang", "reset", "partial")
BODIES = {
    "200": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "500": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "429": b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
}


class Server:
    """`script`: an answer for all requests, a list of answers whose last one repeats, or a mapping of answers to
    weights.

    `reset` reads `reset_after` bytes of the request and resets the connection. `partial` keeps the events, sends half a
    response and closes: the sender cannot know. `hang` reads and never answers. `down()` refuses connections.
    """

    def __init__(self, judge, script="200", seed=0, port=0, reset_after=200):
        self.judge = judge
        self.random = random.Random(seed)
        self.reset_after = reset_after
        self.script = script
        self.step = 0
        self.lock = threading.RLock()
        self.closed = threading.Condition(self.lock)
        self.connections = set()
        self.arrivals = []  # (monotonic seconds, body) of each request, if `keeps` is set.
        self.keeps = False
        self.keys = set()
        self.requests = self.same_key = self.accepted = 0
        self.answered = dict.fromkeys(ANSWERS, 0)
        self.port = port
        self.listener = None
        self.up()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def up(self, script=None):
        """Listens, and follows this script from now on."""
        if script is not None:
            self.script, self.step = script, 0
        if self.listener:
            return
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.port = self.listener.getsockname()[1]
        self.listener.listen(64)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def down(self):
        """Refuses connections and resets those that exist."""
        with self.lock:
            listener, self.listener = self.listener, None
            connections, self.connections = self.connections, set()
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for one in connections:
            _reset(one)

    def settle(self, seconds=5):
        """Waits until the judge has everything from a sender that has ended: until its connections are closed."""
        end = time.monotonic() + seconds
        with self.closed:
            while self.connections and (rest := end - time.monotonic()) > 0:
                self.closed.wait(rest)

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                if self.listener is not listener:
                    connection.close()
                    return
                self.connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _next(self):
        with self.lock:
            script = self.script
            if isinstance(script, str):
                answer = script
            elif isinstance(script, dict):
                answer = self.random.choices(list(script), list(script.values()))[0]
            else:
                answer = script[min(self.step, len(script) - 1)]
                self.step += 1
            self.answered[answer] += 1
            self.requests += 1
            return answer

    def _serve(self, connection):
        buffer = bytearray()
        try:
            while self._request(connection, buffer):
                pass
        except OSError:
            pass
        finally:
            connection.close()
            with self.lock:
                self.connections.discard(connection)
                self.closed.notify_all()

    def _request(self, connection, buffer):
        """Reads a request and answers it; returns whether the connection stays open."""
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            piece = connection.recv(1 << 16)
            if not piece:
                return False
            buffer += piece
        head = bytes(buffer[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head[1:])}
        answer = self._next()
        length = int(headers["content-length"])
        if "100-continue" in headers.get("expect", "").lower():
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        wanted = end + 4 + (length if answer != "reset" else min(length, max(0, self.reset_after - end - 4)))
        while len(buffer) < wanted:
            piece = connection.recv(1 << 18)
            if not piece:
                return False
            buffer += piece
        if answer == "reset":
            _reset(connection)
            return False
        body = bytes(buffer[end + 4:wanted])
        del buffer[:wanted]
        if answer == "hang":
            while connection.recv(1 << 16):
                pass
            return False
        if answer in ("200", "partial"):
            key = headers.get("idempotency-key")
            with self.lock:
                self.accepted += 1
                if key is not None and key in self.keys:
                    self.same_key += body.count(b"\n")
                self.keys.add(key)
                if self.keeps:
                    self.arrivals.append((time.monotonic(), body))
            self.judge.deliver(body)
        if answer == "partial":
            connection.sendall(BODIES["200"][:20])
            return False
        connection.sendall(BODIES[answer])
        return True


def _reset(connection):
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
    except OSError:
        pass
    connection.close()
