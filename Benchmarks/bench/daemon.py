"""A running program, measured from outside."""
import os
import re
import signal
import subprocess
import time


class Watched:
    """Started on entering `with`, stopped by SIGTERM on leaving it."""

    def __init__(self, command, environment=None):
        self.command = command
        self.environment = {**os.environ, **(environment or {})}

    def __enter__(self):
        self.child = subprocess.Popen(
            self.command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            self.noise = self.child.communicate(timeout=30)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.communicate()
            raise

    @property
    def cpu(self):
        """The CPU seconds of all its threads so far, to the nanosecond."""
        return time.clock_gettime_ns((~self.child.pid << 3) | 2) / 1e9

    @property
    def wakeups(self):
        count = 0
        for task in os.listdir(f"/proc/{self.child.pid}/task"):
            with open(f"/proc/{self.child.pid}/task/{task}/status") as file:
                count += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", file.read(), re.M)[1])
        return count

    @property
    def resident(self):
        with open(f"/proc/{self.child.pid}/status") as file:
            return int(re.search(r"^VmRSS:\s+(\d+)", file.read(), re.M)[1]) * 1024

    def over(self, seconds):
        """The cost of waiting for `seconds`: (share of a core, wake-ups)."""
        return self.meanwhile(lambda: time.sleep(seconds))[:2]

    def meanwhile(self, body):
        """The program's cost while `body` runs: (share of a core, wake-ups, the result of `body`).

        The share is its user and system CPU time divided by the wall time."""
        wakeups, start, cpu = self.wakeups, time.monotonic(), self.cpu
        outcome = body()
        cpu, took = self.cpu - cpu, time.monotonic() - start
        return cpu / took, self.wakeups - wakeups, outcome


class Daemon(Watched):
    """A running rxd."""

    def __init__(self, bench, *pipelines, environment=None):
        super().__init__([bench.rxd, "--quiet", *pipelines], environment)
