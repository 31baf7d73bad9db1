"""Shared by the tests of the plugins: real servers on loopback, rxd, and components that run without rxd."""
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import host

# A component in a separate process; `host` is built when it is imported.
RUNNER = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(host.__file__)), "run_component.py")]
# With SANITIZE, the sanitizers of a plugin built with them: Python has none.
SANITIZERS = {
    "LD_PRELOAD": " ".join(subprocess.run(["cc", f"-print-file-name=lib{name}.so"], capture_output=True, text=True).stdout.strip()
                           for name in ("asan", "ubsan")),
    "ASAN_OPTIONS": "detect_leaks=0"} if os.environ.get("SANITIZE") else {}
WITH_SANITIZERS = {**os.environ, **SANITIZERS}
# The program to test with; without it, the tests of whole pipelines are skipped.
RXD = os.environ.get("RXD")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(condition, what, seconds=30):
    """Waits until `condition()` is true, and returns its value. `what` may be a function that describes it at the end."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what() if callable(what) else what}")
        time.sleep(0.02)


class Proxy:
    """Forwards bytes to a port of this machine, until it cuts all connections; with `life`, each after so many seconds."""

    def __init__(self, port, life=None):
        self.target, self.pairs, self.sockets, self.lock = port, [], [], threading.Lock()
        self.life, self.opened = life, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.is_closed = False
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while not self.is_closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                continue
            self.sockets.append(client)
            self.opened += 1
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                continue
            self.sockets.append(server)
            with self.lock:
                self.pairs.append((client, server))
            if self.life is not None:
                timer = threading.Timer(self.life, self.cut)
                timer.daemon = True
                timer.start()
            for source, sink in [(client, server), (server, client)]:
                threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    def copy(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for one in pair:
                try:
                    # A reset, not a clean close.
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.is_closed = True
        self.listener.close()
        self.cut()
        for one in self.sockets:
            one.close()


class Process:
    """A program whose output goes to files in `directory`; it is ended by its process id."""

    def __init__(self, arguments, directory, name, stdin=None, environment=None):
        self.out_path = os.path.join(directory, name + ".out")
        self.err_path = os.path.join(directory, name + ".err")
        with open(self.out_path, "ab") as out, open(self.err_path, "ab") as err:
            self.process = subprocess.Popen(arguments, stdin=stdin or subprocess.DEVNULL, stdout=out, stderr=err,
                                            env={**os.environ, **(environment or {})})

    def lines(self):
        """The complete lines of standard output, decoded as JSON."""
        with open(self.out_path, "rb") as file:
            data = file.read()
        return [json.loads(line) for line in data[:data.rfind(b"\n") + 1].splitlines()]

    def count(self):
        with open(self.out_path, "rb") as file:
            return file.read().count(b"\n")

    def errors(self):
        with open(self.err_path, errors="replace") as file:
            return file.read()

    def gauges(self):
        """The values that a component without rxd has set and not removed, by name and `of`."""
        gauges = {}
        for name, of, value in re.findall(r"^gauge: (\S+) (\S*) (\S+)$", self.errors(), re.M):
            gauges[name, of] = None if value == "none" else float(value)
        return {key: value for key, value in gauges.items() if value is not None}

    def end(self, number=signal.SIGTERM, seconds=40):
        """Sends a signal, unless it has ended, and returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.process.args[0]} did not end after {seconds} s:\n{self.errors()[-2000:]}")


class PluginTest(unittest.TestCase):
    """A directory and processes for each test; all are removed after it."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="rxd-plugin-")
        self.processes = []
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in reversed(self.processes):
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()

    def start(self, arguments, name, stdin=None, environment=None):
        if arguments[0] == RXD:  # which loads the plugin
            environment = {**SANITIZERS, **(environment or {})}
        process = Process(arguments, self.directory, name, stdin, environment)
        self.processes.append(process)
        return process

    def path(self, name):
        return os.path.join(self.directory, name)

    # Components without rxd.

    def source(self, component, parameters, more=None, name="source"):
        arguments = [*RUNNER, self.plugin, "source", component, json.dumps(parameters)]
        return self.start(arguments + ([str(more)] if more is not None else []), name, environment=SANITIZERS)

    def sink(self, component, parameters, events, name="sink"):
        """Starts a sink with the events."""
        with open(self.path(name + ".in"), "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        with open(self.path(name + ".in")) as file:
            return self.start([*RUNNER, self.plugin, "sink", component, json.dumps(parameters)], name, stdin=file,
                              environment=SANITIZERS)

    def refused(self, kind, component, parameters):
        """The plugin's errors for wrong parameters: their location and the reason."""
        run = subprocess.run([*RUNNER, self.plugin, kind, component, json.dumps(parameters)], capture_output=True,
                             text=True, stdin=subprocess.DEVNULL, timeout=20, env={**os.environ, **SANITIZERS})
        self.assertEqual(run.returncode, 78, run.stderr)
        return [line for line in run.stderr.splitlines() if line.startswith("refused at ")][0][len("refused at "):]

    def hostile(self, behaviour):
        """A fake server; `behaviour` is called with each connection."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.servers = [f"127.0.0.1:{listener.getsockname()[1]}"]

        def behave(connection):
            try:
                behaviour(connection)
            except OSError:
                pass

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                self.addCleanup(connection.close)
                threading.Thread(target=behave, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()

    def assert_growing_pauses(self, opened, run, said):
        """Connections that are lost after a moment are made less and less often; `opened` counts them."""
        wait_for(lambda: said in run.errors(), f"{said!r}", 30)
        before = opened()
        time.sleep(6)
        self.assertLess(opened() - before, 9, run.errors())

    # Pipelines in rxd.

    def pipeline(self, text, name="pipeline", options=(), state=None):
        """Starts rxd with a pipeline file; PLUGIN in the text is the path of the plugin. `state`: the name of an earlier run
        whose state directory it uses; the text must then name the pipeline."""
        if not RXD:
            self.skipTest("set RXD to the program")
        path = self.path(name + ".yaml")
        # Plugins must not be where others may write.
        with open(path, "w") as file:
            file.write(text.replace("PLUGIN", self.plugin))
        return self.start([RXD, "run", path, "--state-dir", self.path("state-" + (state or name)), *options], name)

    def shown_gauges(self, name="pipeline"):
        """The gauges in the metrics of a pipeline, by name and `of`; none before it serves them."""
        path = os.path.join(self.path("state-" + name), "control.sock")
        if not os.path.exists(path):
            return {}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: rxd\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        found = {}
        for labels, value in re.findall(r"^rxd_plugin_gauge\{(.*)\} (\S+)$", text, re.M):
            label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            found[label["gauge"], label.get("of", "")] = float(value)
        return found

    def assert_nothing_lost(self, expected, seen, label):
        """All events have arrived; prints how many were repeated."""
        expected, found = set(expected), set(seen)
        self.assertEqual(sorted(expected - found)[:10], [], f"{len(expected - found)} of {len(expected)} were lost")
        self.assertEqual(sorted(found - expected)[:10], [], "invented")
        print(f"\n    {label}: {len(expected)} delivered, 0 lost, {len(seen) - len(found)} repeated", flush=True)
