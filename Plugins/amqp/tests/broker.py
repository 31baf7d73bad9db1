"""A small client of AMQP 0-9-1 for the tests: it publishes, reads and inspects queues."""
import socket
import struct
import sys

FRAME_MOST = 131072


class Refusal(Exception):
    """The server closes the channel or the connection."""


class Raw(bytes):
    """Encoded bytes, valid or invalid."""


def short(text):
    data = text.encode() if isinstance(text, str) else text
    return bytes([len(data)]) + data


def long(data):
    return struct.pack(">I", len(data)) + data


def value(item):
    if isinstance(item, Raw):
        return bytes(item)
    if item is None:
        return b"V"
    if isinstance(item, bool):
        return b"t" + bytes([item])
    if isinstance(item, int):
        return b"l" + struct.pack(">q", item)
    if isinstance(item, float):
        return b"d" + struct.pack(">d", item)
    if isinstance(item, str):
        return b"S" + long(item.encode())
    if isinstance(item, bytes):
        return b"x" + long(item)
    if isinstance(item, dict):
        return b"F" + table(item)
    return b"A" + long(b"".join(value(one) for one in item))


def table(items):
    if isinstance(items, Raw):
        return bytes(items)
    return long(b"".join(short(name) + value(item) for name, item in items.items()))


PROPERTIES = ["content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration",
              "message_id", "timestamp", "type", "user_id", "app_id"]


def properties(**given):
    flags, data = 0, b""
    for index, name in enumerate(PROPERTIES):
        if name not in given:
            continue
        flags |= 1 << (15 - index)
        item = given[name]
        if name == "headers":
            data += table(item)
        elif name in ("delivery_mode", "priority"):
            data += bytes([item])
        elif name == "timestamp":
            data += struct.pack(">Q", item)
        else:
            data += short(item)
    return struct.pack(">H", flags) + data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def short(self):
        return self.take(self.number("B"))

    def value(self):
        kind = self.take(1)
        if kind == b"F":
            return self.table()
        if kind == b"A":
            data = Reader(self.take(self.number("I")))
            items = []
            while data.at < len(data.data):
                items.append(data.value())
            return items
        if kind in (b"S", b"x"):
            data = self.take(self.number("I"))
            return data.decode() if kind == b"S" else data
        if kind == b"t":
            return bool(self.number("B"))
        if kind == b"V":
            return None
        return self.number({b"l": "q", b"d": "d", b"I": "i", b"T": "Q", b"f": "f", b"b": "b", b"s": "h"}[kind])

    def table(self):
        data = Reader(self.take(self.number("I")))
        items = {}
        while data.at < len(data.data):
            name = data.short().decode()
            items[name] = data.value()
        return items


def read_properties(data):
    reader = Reader(data)
    flags = reader.number("H")
    found = {}
    for index, name in enumerate(PROPERTIES):
        if flags & 1 << (15 - index):
            found[name] = (reader.table() if name == "headers" else reader.number("B") if name in ("delivery_mode", "priority")
                           else reader.number("Q") if name == "timestamp" else reader.short().decode())
    return found


class Client:
    def __init__(self, port, vhost="/", user="guest", password="guest", seconds=20):
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.published = self.confirmed = 0
        self.nacked = set()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.wait((10, 10))
        self.method(10, 11, table({}) + short("PLAIN") + long(f"\0{user}\0{password}".encode()) + short("en_US"), 0)
        self.wait((10, 30))
        self.method(10, 31, struct.pack(">HIH", 1, FRAME_MOST, 0), 0)
        self.method(10, 40, short(vhost) + b"\0\0", 0)
        self.wait((10, 41))
        self.method(20, 10, b"\0")
        self.wait((20, 11))

    def close(self):
        self.file.close()
        self.socket.close()

    @staticmethod
    def frame(kind, data, channel=1):
        return struct.pack(">BHI", kind, channel, len(data)) + data + b"\xce"

    def method(self, cls, number, arguments, channel=1):
        self.socket.sendall(self.frame(1, struct.pack(">HH", cls, number) + arguments, channel))

    def read_frame(self):
        head = self.file.read(7)
        if len(head) < 7:
            raise ConnectionError("closed")
        kind, _, size = struct.unpack(">BHI", head)
        data = self.file.read(size + 1)
        if len(data) < size + 1:
            raise ConnectionError("closed")
        return kind, data[:-1]

    def next(self):
        """The next method: its numbers, and a reader of its arguments."""
        while True:
            kind, data = self.read_frame()
            if kind != 1:
                continue
            method = struct.unpack(">HH", data[:4])
            reader = Reader(data[4:])
            if method in ((20, 40), (10, 50)):
                code = reader.number("H")
                raise Refusal(f"{code} {reader.short().decode()}")
            if method in ((60, 80), (60, 120)):
                self.take_confirmation(method, reader)
                continue
            return method, reader

    def wait(self, method):
        while True:
            came, reader = self.next()
            if came == method:
                return reader

    # Queues and exchanges.

    def declare(self, queue, durable=True, passive=False, **arguments):
        """The numbers of its messages and consumers."""
        self.method(50, 10, b"\0\0" + short(queue) + bytes([passive | durable << 1]) + table({k.replace("_", "-"): v for k, v in arguments.items()}))
        reader = self.wait((50, 11))
        reader.short()
        return reader.number("I"), reader.number("I")

    def count(self, queue):
        return self.declare(queue, passive=True)[0]

    def delete(self, queue):
        self.method(50, 40, b"\0\0" + short(queue) + b"\0")
        self.wait((50, 41))

    def exchange(self, name, kind="topic"):
        self.method(40, 10, b"\0\0" + short(name) + short(kind) + b"\x02" + table({}))
        self.wait((40, 11))

    def delete_exchange(self, name):
        self.method(40, 20, b"\0\0" + short(name) + b"\0")
        self.wait((40, 21))

    def bind(self, queue, exchange, key="", **arguments):
        self.method(50, 20, b"\0\0" + short(queue) + short(exchange) + short(key) + b"\0" + table({k.replace("_", "-"): v for k, v in arguments.items()}))
        self.wait((50, 21))

    # Messages.

    def confirm(self):
        self.method(85, 10, b"\0")
        self.wait((85, 11))

    def take_confirmation(self, method, reader):
        tag = reader.number("Q")
        if method == (60, 120):
            self.nacked.add(tag)
        if reader.number("B") & 1:
            self.confirmed = max(self.confirmed, tag)
            self.singles = {one for one in getattr(self, "singles", set()) if one > tag}
        else:
            self.singles = getattr(self, "singles", set()) | {tag}
        while self.confirmed + 1 in self.singles:
            self.confirmed += 1
            self.singles.remove(self.confirmed)

    def message(self, queue, body, exchange="", **given):
        encoded = given.get("raw") or properties(**{"delivery_mode": 2, **given})
        data = self.frame(1, struct.pack(">HHH", 60, 40, 0) + short(exchange) + short(queue) + b"\0")
        data += self.frame(2, struct.pack(">HHQ", 60, 0, len(body)) + encoded)
        for at in range(0, len(body), FRAME_MOST - 8):
            data += self.frame(3, body[at:at + FRAME_MOST - 8])
        return data

    def publish(self, queue, body, exchange="", **given):
        self.socket.sendall(self.message(queue, body, exchange, **given))
        self.published += 1

    def fill(self, queue, numbers, size=0, **given):
        """Publishes numbers, each once; returns when the server has confirmed all. The channel must have confirmations."""
        numbers = list(numbers)
        for at in range(0, len(numbers), 500):
            part = numbers[at:at + 500]
            self.socket.sendall(b"".join(self.message(queue, str(number).encode().ljust(size), **given) for number in part))
            self.published += len(part)
            self.wait_for_confirmations()

    def wait_for_confirmations(self):
        while self.confirmed < self.published:
            kind, data = self.read_frame()
            if kind == 1:
                method = struct.unpack(">HH", data[:4])
                if method in ((60, 80), (60, 120)):
                    self.take_confirmation(method, Reader(data[4:]))
                elif method in ((20, 40), (10, 50)):
                    raise Refusal(repr(data))

    def read(self, count, tagged):
        """This many messages from deliveries or answers: routing key, properties, body."""
        messages = []
        while len(messages) < count:
            method, reader = self.next()
            if method in ((60, 72), (60, 31)):
                break
            if method not in ((60, 60), (60, 71)):
                continue
            if tagged:
                reader.short()
            tag, redelivered, exchange, key = reader.number("Q"), reader.number("B"), reader.short(), reader.short()
            _, header = self.read_frame()
            size, body = struct.unpack(">Q", header[4:12])[0], b""
            while len(body) < size:
                body += self.read_frame()[1]
            messages.append({"tag": tag, "redelivered": bool(redelivered), "exchange": exchange.decode(), "key": key.decode(),
                             "properties": read_properties(header[12:]), "body": body})
        return messages

    def get(self, queue):
        """The next message, without an acknowledgement; None if there is none."""
        self.method(60, 70, b"\0\0" + short(queue) + b"\x01")
        messages = self.read(1, False)
        return messages[0] if messages else None

    def consume(self, queue, prefetch=0, exclusive=False, no_ack=True, **arguments):
        if prefetch:
            self.method(60, 10, struct.pack(">IHB", 0, prefetch, 0))
            self.wait((60, 11))
        self.method(60, 20, b"\0\0" + short(queue) + short("reader") + bytes([no_ack << 1 | exclusive << 2]) +
                    table({k.replace("_", "-"): v for k, v in arguments.items()}))

    def drain(self, queue):
        """All messages that a queue has."""
        count = self.count(queue)
        if count == 0:
            return []
        self.consume(queue)
        messages = self.read(count, True)
        self.method(60, 30, short("reader") + b"\0")
        return messages + self.read(sys.maxsize, True)  # messages received meanwhile

    def ack(self, tag):
        self.method(60, 80, struct.pack(">QB", tag, 1))
