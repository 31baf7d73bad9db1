"""Shared by the tests of the plugins: real servers on loopback, rxd, and components that run without rxd."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
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
# The program to test with; without it, the tests of whole pipelines are skipped.
RXD = os.environ.get("RXD")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(condition, what, seconds=30):
    """Waits until `condition()` is true, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.02)


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

    def assert_nothing_lost(self, expected, seen, label):
        """All events have arrived; prints how many were repeated."""
        expected, found = set(expected), set(seen)
        self.assertEqual(sorted(expected - found)[:10], [], f"{len(expected - found)} of {len(expected)} were lost")
        self.assertEqual(sorted(found - expected)[:10], [], "invented")
        print(f"\n    {label}: {len(expected)} delivered, 0 lost, {len(seen) - len(found)} repeated", flush=True)
