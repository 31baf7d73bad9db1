"""Plays rxd's side of the line protocol, strictly: anything that the contract does not allow is a `Violation`.

`Host` runs one process. `bench.py` measures with it; `rxd plugin test` checks the guarantees of any plugin.
"""
import json
import os
import random
import select
import signal
import subprocess
import tempfile
import time

FRAME_BYTES = 16 << 20
LEVELS = ("debug", "info", "warning", "error")
START = 1_767_225_600 * 10**9  # virtual time, 2026-01-01


class Violation(Exception):
    """The program violated the contract."""


class Ended(Violation):
    """The process ended, or was killed, before it had answered."""


class Answer:
    """The frames received for one input."""

    def __init__(self, instance, members):
        self.instance, self.members = instance, members
        self.is_taken = False
        self.events, self.error, self.retry, self.state, self.timers = [], None, None, None, {}
        self.finish = False

    @property
    def outcome(self):
        """The part that a later run must repeat; it includes timers."""
        return (self.events, self.error, self.retry, self.timers)


class Instance:
    """A component instance in a running graph."""

    def __init__(self, number, component):
        self.number, self.component = number, component
        self.kind = component["kind"]
        self.error = None
        self.is_open = False
        # For sources.
        self.credit = 0
        self.events = []  # (event, token, position), in order
        self.names = []  # of the events of a source that gives them
        self.position = None
        self.unsettled = set()
        self.end = None  # {"complete": True} or {"error": ...}
        self.is_stopped = False
        # For sinks.
        self.skips_until_again = False


class Host:
    """One process of a plugin. `pieces`: a random generator; frames are then written in pieces of random length."""

    def __init__(self, command, cwd=None, env=None, pieces=None, timeout=10.0, contract=1):
        self.command, self.pieces, self.timeout = command, pieces, timeout
        self.stderr = tempfile.TemporaryFile()
        environment = {key: os.environ[key] for key in ("PATH", "LANG", "HOME", "TZ") if key in os.environ}
        self.process = subprocess.Popen(
            command, cwd=cwd, env={**environment, "RXD_PLUGIN": "1", **(env or {})}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.stderr, start_new_session=True, bufsize=0)
        os.set_blocking(self.process.stdin.fileno(), False)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.out, self.rest = bytearray(), bytearray()
        self.has_ended = False
        self.spec = None
        self.instances = {}
        self.opening = []  # instances, in the order of `open`
        self.unanswered = {}  # id: Answer, in order
        self.pings = []
        self.log, self.counters, self.gauges = [], {}, {}
        self.ident = self.number = 0
        try:
            self.send({"hello": contract, "version": "0.9.0"})
            self.wait(lambda: self.spec is not None, 5, "no spec within 5 s")
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    # Frames sent by rxd. Members are in the order of the contract's tables, without spaces.

    def send(self, *frames):
        for frame in frames:
            line = json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            assert len(line) <= FRAME_BYTES, "the test sends a frame above 16 MiB"
            self.out += line

    def component(self, kind, name):
        for component in self.spec["components"]:
            if (component["kind"], component["name"]) == (kind, name):
                return component
        raise Violation(f"the spec has no {kind} '{name}'")

    def open(self, kind, name, parameters=None, **more):
        """Opens an instance and waits for it. Durations are nanoseconds, sizes bytes. After a refusal, its `error` is set."""
        self.number += 1
        instance = Instance(self.number, self.component(kind, name))
        self.instances[self.number] = instance
        self.opening.append(instance)
        self.send({"open": self.number, "kind": kind, "name": name, "step": f"test/{self.number} {name}",
                   "parameters": parameters or {}, **more})
        self.wait(lambda: instance not in self.opening, self.timeout, "open is not answered")
        return instance

    def input(self, instance, **members):
        """Queues an input and returns its answer, which comes later."""
        self.ident += 1
        answer = Answer(instance, members)
        self.unanswered[self.ident] = answer
        self.send({"id": self.ident, "to": instance.number, **members})
        return answer

    def again(self, instance, answers):
        """Passes again the event that a sink wants to retry, and all later ones."""
        assert instance.skips_until_again, "no event of it comes again"
        instance.skips_until_again = False
        return [self.input(instance, **answer.members, **({} if index else {"again": True}))
                for index, answer in enumerate(answers)]

    def ask(self, instance, **members):
        """The answer to one input."""
        answer = self.input(instance, **members)
        if instance.kind == "sink" and "event" in members:
            self.send({"flush": instance.number})
        self.settle()
        return answer

    def settle(self):
        """Waits for all answers, each of which restarts the clock, and for all pongs."""
        while self.unanswered or self.pings:
            before = (len(self.unanswered), len(self.pings))
            self.wait(lambda: (len(self.unanswered), len(self.pings)) != before, self.timeout,
                      lambda: f"no answer within {self.timeout:g} s to "
                      + (f"input {next(iter(self.unanswered))}" if self.unanswered else f"ping {self.pings[0]}"))

    def ping(self):
        self.ident_of_ping = getattr(self, "ident_of_ping", 0) + 1
        self.pings.append(self.ident_of_ping)
        self.send({"ping": self.ident_of_ping})

    def give_credit(self, instance, count):
        instance.credit += count
        self.send({"to": instance.number, "credit": count})

    def acknowledge(self, instance, tokens):
        instance.unsettled.difference_update(tokens)
        self.send({"to": instance.number, "acknowledged": list(tokens)})

    def fail(self, instance, tokens, reason="no way"):
        instance.unsettled.difference_update(tokens)
        self.send({"to": instance.number, "failed": list(tokens), "reason": reason})

    def stop(self, instance):
        instance.is_stopped = True
        self.send({"to": instance.number, "stop": True})

    def close(self, instance):
        del self.instances[instance.number]
        self.send({"close": instance.number})

    def end(self, seconds=5.0):
        """Closes the input; the program must end by itself, with status 0."""
        self.wait(lambda: not self.out, self.timeout, "the program does not read")
        self.process.stdin.close()
        deadline = time.monotonic() + seconds
        while not self.has_ended:
            if not self.pump(deadline - time.monotonic()):
                raise Violation(f"the program runs on {seconds:g} s behind the end of its input")
        try:
            status = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Violation(f"the program runs on {seconds:g} s behind the end of its input") from None
        if self.rest:
            raise Violation(f"half a frame at the end: {bytes(self.rest[:100])!r}")
        if status != 0:
            raise Violation(f"the program ends with status {status}")

    def kill(self):
        """Sends SIGKILL to the process group, which only the program uses."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.text = self.said()
        self.stderr.close()

    def said(self):
        """The program's standard error."""
        if not self.stderr.closed:
            self.stderr.seek(0)
            self.text = self.stderr.read().decode(errors="replace")
        return self.text

    # Reading and writing.

    def wait(self, condition, seconds, message):
        deadline = time.monotonic() + seconds
        while not condition():
            if self.has_ended:
                raise Ended(f"the program has ended with status {self.process.wait()}: {self.said()[-500:]}")
            if not self.pump(deadline - time.monotonic()):
                raise Violation(message() if callable(message) else message)

    def rest_for(self, seconds):
        """Reads and writes for this long."""
        deadline = time.monotonic() + seconds
        while not self.has_ended and self.pump(deadline - time.monotonic()):
            pass

    def pump(self, seconds):
        """Reads and writes as much as possible; false: the time is over."""
        if seconds <= 0:
            return False
        out = [self.process.stdin] if self.out and not self.process.stdin.closed else []
        readable, writable, _ = select.select([self.process.stdout], out, [], seconds)
        if writable:
            count = len(self.out) if self.pieces is None else self.pieces.choice([1, 2, 7, 100, 5000])
            try:
                del self.out[:os.write(self.process.stdin.fileno(), self.out[:min(count, 1 << 16)])]
            except BrokenPipeError:
                self.out.clear()  # the end of its output will show the reason
        if readable:
            data = os.read(self.process.stdout.fileno(), 1 << 18)
            if not data:
                self.has_ended = True
                return True
            self.rest += data
            if b"\n" in data:
                lines = self.rest.split(b"\n")
                self.rest = lines.pop()
                for line in lines:
                    self.receive(bytes(line))
            if len(self.rest) >= FRAME_BYTES:
                raise Violation("a frame above 16 MiB")
        return bool(readable or writable)

    # Frames sent by the program.

    def receive(self, line):
        if len(line) >= FRAME_BYTES:
            raise Violation("a frame above 16 MiB")
        try:
            frame = json.loads(line.decode("utf-8"), parse_constant=lambda text: 1 / 0)
        except (ValueError, ZeroDivisionError):
            raise Violation(f"no frame: {line[:200]!r}") from None
        if not isinstance(frame, dict):
            raise Violation(f"no frame: {line[:200]!r}")
        try:
            self.receive_frame(frame)
        except (TypeError, AttributeError, KeyError) as error:
            raise Violation(f"a wrong frame ({error!r}): {str(frame)[:200]}") from None

    def receive_frame(self, frame):
        for name in ("id", "through", "from", "opened", "pong", "spec"):
            # A log, count or gauge frame may name its instance with `from`.
            if name in frame and not (name == "from" and ("log" in frame or "count" in frame or "gauge" in frame)):
                return getattr(self, "receive_" + name)(frame)
        if "log" in frame:
            if frame["log"] not in LEVELS or not isinstance(frame.get("message"), str):
                raise Violation(f"a wrong log frame: {frame}")
            self.log.append((frame["log"], frame["message"]))
        elif "count" in frame:
            name, by = frame["count"], frame.get("by", 1)
            if not isinstance(name, str) or type(by) is not int:
                raise Violation(f"a wrong count frame: {frame}")
            self.counters[name] = self.counters.get(name, 0) + by
        elif "gauge" in frame:
            name, of, value = frame["gauge"], frame.get("of", ""), frame["value"]
            if not isinstance(name, str) or not isinstance(of, str) or type(value) not in (int, float, type(None)):
                raise Violation(f"a wrong gauge frame: {frame}")
            self.gauges.pop((name, of), None)
            if value is not None:
                self.gauges[name, of] = value
        else:
            raise Violation(f"an unknown frame: {str(frame)[:200]}")

    def receive_spec(self, frame):
        if self.spec is not None:
            raise Violation("the spec comes twice")
        self.spec = frame["spec"]

    def receive_opened(self, frame):
        if not self.opening or self.opening[0].number != frame["opened"]:
            raise Violation(f"nothing was opened with the number {frame['opened']}")
        instance = self.opening.pop(0)
        instance.error = frame.get("error")
        instance.is_open = instance.error is None

    def receive_pong(self, frame):
        if not self.pings or self.pings.pop(0) != frame["pong"]:
            raise Violation(f"a pong out of order: {frame}")

    def receive_through(self, frame):
        idents = [ident for ident in self.unanswered if ident <= frame["through"]]
        if not idents or idents[-1] != frame["through"]:
            raise Violation(f"'through' names no unanswered event: {frame}")
        for ident in idents:
            answer = self.unanswered[ident]
            if answer.instance.kind != "sink" or "event" not in answer.members:
                raise Violation(f"'through' answers input {ident}, which is no event of a sink")
            self.take(ident)

    def receive_id(self, frame):
        ident = frame["id"]
        if not self.unanswered:
            raise Violation(f"an answer to nothing: {str(frame)[:200]}")
        expected = next(iter(self.unanswered))
        if ident != expected:
            raise Violation(f"an answer out of order: to input {ident}, expected to {expected}")
        answer = self.unanswered[ident]
        instance, members = answer.instance, answer.members
        error, events = frame.get("error"), frame.get("events", [])
        if error is not None and (not isinstance(error, str) or not error):
            raise Violation(f"an error that is no text: {frame}")
        if not isinstance(events, list):
            raise Violation(f"'events' is not a list: {str(frame)[:200]}")
        if events and (instance.kind != "operator" or error is not None or "save" in members):
            raise Violation(f"events in an answer that has none: {str(frame)[:200]}")
        if "save" in members and error is None and "state" not in frame:
            raise Violation(f"no state in the answer to 'save': {str(frame)[:200]}")
        if "retry" in frame and (instance.kind != "sink" or not isinstance(frame["retry"], str)):
            raise Violation(f"a wrong retry: {frame}")
        for name, after in frame.get("timers", {}).items():
            if after is not None and (type(after) is not int or after < 0):
                raise Violation(f"the timer '{name}' is set to {after}")
            if not instance.component.get("timers"):
                raise Violation(f"the spec of '{instance.component['name']}' says that it sets no timers")
        answer.events, answer.error, answer.retry = events, error, frame.get("retry")
        answer.state, answer.timers = frame.get("state"), frame.get("timers", {})
        answer.finish = frame.get("finish", False)
        if answer.finish not in (True, False) or answer.finish and (instance.kind != "operator" or "save" in members):
            raise Violation(f"a wrong 'finish': {frame}")
        self.take(ident)
        if answer.finish:
            # Inputs passed meanwhile need no answer, and this host allows none.
            for later in [later for later, its in self.unanswered.items() if its.instance is instance]:
                del self.unanswered[later]
        if answer.retry is not None:
            # Inputs that the instance has received meanwhile are not answered; they are passed again.
            instance.skips_until_again = True
            for later in [later for later, its in self.unanswered.items() if its.instance is instance]:
                self.unanswered.pop(later).retry = answer.retry

    def take(self, ident):
        self.unanswered.pop(ident).is_taken = True

    def receive_from(self, frame):
        instance = self.instances.get(frame["from"])
        if instance is None or instance.kind != "source" or not instance.is_open:
            raise Violation(f"from no open source: {str(frame)[:200]}")
        if instance.end is not None:
            raise Violation(f"a frame behind the end of a source: {str(frame)[:200]}")
        if "complete" in frame or "error" in frame:
            if instance.unsettled and "error" not in frame:
                raise Violation(f"a source completes with {len(instance.unsettled)} unsettled tokens")
            instance.end = frame
            return
        events = frame["events"] if "events" in frame else [frame["event"]] if "event" in frame else []
        if not isinstance(events, list):
            raise Violation(f"'events' is not a list: {str(frame)[:200]}")
        names = frame["names"] if "names" in frame else [frame["name"]] if "name" in frame else []
        if names and len(names) != len(events) or not all(isinstance(name, (str, type(None))) for name in names):
            raise Violation(f"names that are not those of the events: {str(frame)[:200]}")
        instance.names += names
        instance.credit -= len(events)
        if instance.credit < 0:
            raise Violation(f"{-instance.credit} events more than credit")
        token, position = frame.get("token"), frame.get("position")
        if token is not None:
            if type(token) is not int or token < 0 or token in instance.unsettled:
                raise Violation(f"a wrong token: {str(frame)[:200]}")
            instance.unsettled.add(token)
        if position is not None:
            instance.position = position
        for index, event in enumerate(events):
            instance.events.append((event, token, position if index == len(events) - 1 else None))


class Clock:
    """Virtual time and the timers that rxd keeps for an instance."""

    def __init__(self, now=START, timers=None):
        self.now, self.timers = now, dict(timers or {})

    def copy(self):
        return Clock(self.now, self.timers)

    def take(self, answer):
        for name, after in answer.timers.items():
            self.timers.pop(name, None)
            if after is not None:
                self.timers[name] = self.now + after

    def due(self, end):
        """The next timer due until then, or None."""
        name = min(self.timers, key=self.timers.get, default=None)
        if name is None or self.timers[name] > end:
            self.now = end
            return None
        self.now = max(self.now, self.timers.pop(name))
        return name


def seeded(seed):
    return random.Random(seed)
