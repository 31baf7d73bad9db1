"""What was recorded of earlier versions, and how the program that is tested is run.

`Tests/Compatibility/record` makes a folder named after a version, once, when that version is released. The folders of versions are not changed
afterwards: a test that fails says that users of that version would find something broken.
"""
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RXD = pathlib.Path(os.environ.get("RXD") or ROOT / ".build/release/rxd")
LIMIT = 60


def versions():
    """The folders of recorded versions."""
    return sorted(path for path in HERE.iterdir() if re.fullmatch(r"\d+\.\d+", path.name))


def run(*arguments, text=None, folder=None, **environment):
    return subprocess.run([RXD, *arguments], input=text, capture_output=True, text=True, cwd=folder, timeout=LIMIT,
                          env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}, check=False)


def wait(condition, what):
    end = time.monotonic() + LIMIT
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT} s: {what}")
        time.sleep(0.02)


# ---- The grammar of pipeline files ----

def grammar():
    """Each key of pipeline files that the schema knows, as lines: where it is, what it may be, whether it must be there.

    `sinks.http.batch  count: integer` would be one of thousands; the lines of a definition begin with its name.
    """
    document = json.loads(run("schema").stdout)
    lines = set()

    def choices(schema):
        """The alternatives of a value, with references by name."""
        if schema is True:
            return ["any"]
        if "$ref" in schema:
            return [schema["$ref"].removeprefix("#/$defs/")]
        found = [one for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())) for one in choices(part)]
        if "enum" in schema:
            found += [f"={json.dumps(value)}" for value in schema["enum"]]
        elif "const" in schema:
            found.append(f"={json.dumps(schema['const'])}")
        elif not found:
            kinds = schema.get("type", "any")
            found += kinds if isinstance(kinds, list) else [kinds]
        return found

    def walk(path, schema):
        if not isinstance(schema, dict):
            return
        for choice in choices(schema):
            lines.add(f"{path}  {choice}")
        for name, below in schema.get("properties", {}).items():
            walk(f"{path}.{name}", below)
        for name in schema.get("required", ()):
            lines.add(f"{path}  must have {name}")
        for member, mark in (("additionalProperties", ".*"), ("items", "[]")):
            if isinstance(schema.get(member), dict):
                walk(path + mark, schema[member])
        for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
            walk(path, part)

    walk("file", {key: value for key, value in document.items() if key != "$defs"})
    for name, schema in document["$defs"].items():
        walk(name, schema)
    return sorted(lines)


# ---- The command line ----

def command_line():
    """Every verb with its options and their short forms, as lines."""
    lines = set()

    def walk(path, command):
        for name in [command["commandName"], *command.get("aliases", ())]:
            here = f"{path} {name}".strip()
            lines.add(here)
            for argument in command.get("arguments", ()):
                for one in argument.get("names", ()):
                    dash = "--" if one["kind"] == "long" else "-"
                    kind = "" if argument["kind"] == "flag" else " VALUE"
                    lines.add(f"{here} {dash}{one['name']}{kind}")
            for below in command.get("subcommands", ()):
                walk(here, below)

    walk("", json.loads(run("--experimental-dump-help").stdout)["command"])
    return sorted(lines)


def codes():
    """The codes that reports have, with whether they are errors."""
    found = re.findall(r"^\| `(RX\d+)` \| (error|warning) \|", (ROOT / "docs/reference/codes.md").read_text(), re.MULTILINE)
    return sorted(f"{code} {kind}" for code, kind in found)


def functions():
    """The signatures of the functions of expressions."""
    page = (ROOT / "docs/reference/functions.md").read_text()
    found = re.findall(r"^### (\S+)\n\n[^`]*?```\n(.*?)\n```", page, re.MULTILINE | re.DOTALL)
    return sorted(f"{name}  {signature}" for name, signatures in found for signature in signatures.splitlines())


# ---- A running process ----

class Receiver:
    """A server that takes what is posted to it. Its port is that of the first one, so that a sink finds it again."""

    def __init__(self, port=0):
        bodies = self.bodies = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Kept:
    """The pipeline `kept.yaml` in a folder of its own, with the input that its state is about."""

    FILE = HERE / "0.1/state/kept.yaml"
    # The first events: 300 keys, so that the state of steps with many keys is kept in pages.
    FIRST = [{"id": n, "n": n} for n in range(1, 303)]

    def __init__(self, file=FILE):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rxd-kept-"))
        shutil.copy(file, self.folder)
        (self.folder / "out").mkdir()
        (self.folder / "lines.ndjson").write_text("".join(json.dumps(event) + "\n" for event in self.FIRST))
        self.database([1, 2, 3])
        self.process = None

    def database(self, ids):
        with sqlite3.connect(self.folder / "rows.db") as rows:
            rows.execute("CREATE TABLE IF NOT EXISTS orders(id INTEGER PRIMARY KEY)")
            rows.executemany("INSERT INTO orders VALUES(?)", [(n,) for n in ids])
        rows.close()

    def append(self, *events):
        with (self.folder / "lines.ndjson").open("a") as file:
            file.write("".join(json.dumps(event) + "\n" for event in events))

    def start(self, port):
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen(
            [RXD, "run", "--state-dir", "state", "--control-socket", "c.sock", "kept.yaml"], cwd=self.folder, stderr=self.log, stdout=self.log,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PORT": str(port)})

    def stop(self, number=signal.SIGTERM):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(LIMIT)
        self.log.close()

    def out(self, name):
        path = self.folder / f"out/{name}.ndjson"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, name, count):
        """The events of a sink's file, when there are that many."""
        def enough():
            if self.process.poll() is not None:
                raise AssertionError(f"rxd has ended: {(self.folder / 'log').read_text()[-2000:]}")
            return len(self.out(name)) >= count

        try:
            wait(enough, f"{count} events of {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {len(self.out(name))}\n{(self.folder / 'log').read_text()[-2000:]}") from None
        return self.out(name)

    def ask(self, path, method="GET"):
        done = subprocess.run(["curl", "-sS", "--noproxy", "*", "-X", method, "--unix-socket", "c.sock", f"http://rxd{path}"], cwd=self.folder,
                              capture_output=True, text=True, check=True)
        return done.stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)


class KeptKeys(Kept):
    """A pipeline that has keys on the disk."""

    FILE = HERE / "0.1/keys/kept.yaml"
    FIRST = list(map(lambda n: {"id": n, "n": n, "text": "no key is long, but this one is. " * 120}, range(4000)))
    # What comes when all have come moves keys with the commits after it.
    LATER = FIRST[-1:] * 20
    STATE = "state.tar.xz"

    def __init__(self, file=FILE):
        super().__init__(file)

    def pack(self, target):
        """Stores the state directory."""
        with tarfile.open(target / self.STATE, "w:xz") as packed:
            for path in sorted((self.folder / "state/pipelines").rglob("*")):
                # A lock says nothing about the state.
                if path.is_file() and path.name != "LOCK":
                    packed.add(path, path.relative_to(self.folder))

    def unpack(self, source):
        with tarfile.open(source / self.STATE) as packed:
            packed.extractall(self.folder)
        for path in (self.folder / "state", *(self.folder / "state").rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)


def shape(value):
    """What a reader of JSON relies on: the members and their kinds. Of a list, what its elements have together."""
    if isinstance(value, dict):
        return {name: shape(below) for name, below in sorted(value.items())}
    if isinstance(value, list):
        together = {}
        shapes = [shape(below) for below in value]
        if shapes and all(isinstance(one, dict) for one in shapes):
            for one in shapes:
                together |= one
            return [together]
        return shapes[:1]
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "null" if value is None else "text"


def control():
    """What the control socket of a process that runs `kept.yaml` answers: the shapes of documents, and the metrics."""
    with Receiver() as receiver, Kept() as kept:
        kept.start(receiver.port)
        kept.wait_for("counted", len(kept.FIRST))
        kept.wait_for("new", 3)
        wait(lambda: len(receiver.bodies) == len(kept.FIRST), "requests")
        # An answer is counted after the receiver has the request.
        def counted():
            text = kept.ask("/metrics")
            return text if "rxd_component_latency_seconds_count" in text else None

        shown = wait(counted, "latencies")
        answers = {path: shape(json.loads(kept.ask(path))) for path in ("/status", "/stats")}
        answers["POST /reload"] = shape(json.loads(kept.ask("/reload", "POST")))
        for path in ("/health", "/ready"):
            answers[path] = kept.ask(path).strip()
        metrics = set()
        kinds = {}
        for line in shown.splitlines():
            if found := re.match(r"# TYPE (\S+) (\S+)", line):
                kinds[found[1]] = found[2]
            elif found := re.match(r"(\w+)(?:\{(.*)\})? ", line):
                name = found[1] if found[1] in kinds else re.sub(r"_(bucket|sum|count)$", "", found[1])
                # Values of labels may contain anything.
                labels = sorted(re.findall(r"(\w+)=", re.sub(r'"(?:[^"\\]|\\.)*"', "", found[2] or "")))
                metrics.add(" ".join([name, kinds[name], *labels]))
        return answers, sorted(metrics)
