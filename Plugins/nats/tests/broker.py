"""A small NATS client for the tests: publishes, sends JetStream requests, and inspects a server's content."""
import base64
import itertools
import json
import os
import socket

from plugin_test import wait_for


class Refusal(Exception):
    """JetStream refuses a request."""


class Client:
    def __init__(self, port, seconds=10, **login):
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.file = self.socket.makefile("rb")
        self.info = json.loads(self.file.readline()[len(b"INFO "):])
        self.inbox = "_INBOX." + os.urandom(8).hex()
        self.numbers = itertools.count()
        options = {"verbose": False, "headers": True, "no_responders": True, "lang": "python", "version": "1", **login}
        self.send(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox}.* 1\r\nPING\r\n".encode())
        while not (line := self.file.readline()).startswith(b"PONG"):
            if not line or line.startswith(b"-ERR"):
                raise ConnectionError(line.decode() or "closed")

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    @staticmethod
    def message(subject, data=b"", reply="", headers=()):
        if not headers:
            return f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n"
        head = b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers) + b"\r\n"
        return f"HPUB {subject} {reply} {len(head)} {len(head) + len(data)}\r\n".encode() + head + data + b"\r\n"

    def publish(self, subject, data=b"", headers=()):
        self.send(self.message(subject, data, headers=headers))

    def subscribe(self, subject):
        self.send(f"SUB {subject} 2\r\n".encode())
        self.flush()

    def flush(self):
        self.request("$TEST.NOBODY")

    def next(self):
        """The next message: its subject, its headers as text, its data."""
        while True:
            line = self.file.readline()
            if not line:
                raise ConnectionError("closed")
            words = line.split()
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                body = self.file.read(int(words[-1]) + 2)[:-2]
                head = int(words[-2]) if words[0] == b"HMSG" else 0
                return words[1].decode(), body[:head].decode(errors="replace"), body[head:]

    def request(self, subject, data=b"", headers=()):
        """The answer; None if there is no answer."""
        reply = f"{self.inbox}.{next(self.numbers)}"
        self.send(self.message(subject, data, reply, headers))
        while True:
            came, head, data = self.next()
            if came == reply:
                return None if head.startswith("NATS/1.0 503") else data

    def ask(self, subject, **payload):
        data = self.request("$JS.API." + subject, json.dumps(payload).encode() if payload else b"")
        if data is None:
            raise Refusal("nobody answers")
        answer = json.loads(data)
        if "error" in answer:
            raise Refusal(answer["error"]["description"])
        return answer

    # Stream functions for the tests.

    def add_stream(self, name, *subjects, **more):
        return self.ask(f"STREAM.CREATE.{name}", name=name, subjects=list(subjects), storage="file", num_replicas=1, retention="limits",
                        discard=more.pop("discard", "old"), max_consumers=-1, max_msgs=more.pop("max_msgs", -1), max_bytes=-1, **more)

    def add_bucket(self, name, history=1):
        return self.add_stream(f"KV_{name}", f"$KV.{name}.>", max_msgs_per_subject=history, discard="new", allow_rollup_hdrs=True,
                               deny_delete=True)

    def add_consumer(self, stream, name, **config):
        return self.ask(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", stream_name=stream,
                        config={"durable_name": name, "ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant", **config})

    def consumer(self, stream, name):
        return self.ask(f"CONSUMER.INFO.{stream}.{name}")

    def state(self, stream):
        return self.ask(f"STREAM.INFO.{stream}")["state"]

    def store(self, subject, data, headers=()):
        """Stores one message; returns its sequence."""
        answer = self.request(subject, data, headers)
        if answer is None:
            raise Refusal("nobody answers")
        answer = json.loads(answer)
        if "error" in answer:
            raise Refusal(answer["error"]["description"])
        return answer["seq"]

    def messages(self, stream):
        """All messages in a stream: subject, headers, data."""
        kept = []
        state = self.state(stream)
        for sequence in range(state["first_seq"], state["last_seq"] + 1):
            try:
                message = self.ask(f"STREAM.MSG.GET.{stream}", seq=sequence)["message"]
            except Refusal:
                continue
            kept.append((message["subject"], base64.b64decode(message.get("hdrs", "")).decode(), base64.b64decode(message.get("data", ""))))
        return kept


def fill(port, subject, numbers, size=0, seconds=60):
    """Stores JSON numbers, padded to `size` bytes, in order and once each, even while the server is killed and started."""
    waiting = list(numbers)

    def are_stored():
        client = None
        try:
            client = Client(port)
            while waiting:
                store_some(client, subject, waiting[:200], size)
                del waiting[:200]
            return True
        except (OSError, ValueError, IndexError):
            return False
        finally:
            if client is not None:
                client.close()

    wait_for(are_stored, f"the numbers to be stored in {subject}", seconds)


def store_some(client, subject, numbers, size):
    """A few at once; the server drops duplicates by their id."""
    replies = {f"{client.inbox}.{next(client.numbers)}" for _ in numbers}
    client.send(b"".join(Client.message(subject, str(number).encode().ljust(size), reply, [("Nats-Msg-Id", f"n{number}")])
                         for number, reply in zip(numbers, sorted(replies))))
    while replies:
        came, _, data = client.next()
        if came in replies:
            if not data or "error" in json.loads(data):
                raise ConnectionError(data)
            replies.remove(came)
