"""Child processes, temporary directories and mounts: all are removed when the test ends, even after a failure."""
import atexit
import ctypes
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

_libc = ctypes.CDLL(None, use_errno=True)
_cleanup = []
_children = set()


def at_end(action):
    """Registers `action` to run at the end of the test, the newest first. Returns it, for `undo`."""
    _cleanup.append(action)
    return action


def undo(action):
    """Runs the action now instead of at the end."""
    if action in _cleanup:
        _cleanup.remove(action)
        action()


@atexit.register
def clean():
    for child in list(_children):
        if child.poll() is None:
            child.kill()
        child.wait()
    _children.clear()
    while _cleanup:
        try:
            _cleanup.pop()()
        except OSError as error:
            print(f"faults: cannot clean up: {error}")


def end_on_signals():
    """SIGTERM and SIGHUP end the test as an exception does, so that it cleans up."""
    def leave(number, _):
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


class Directory:
    """A temporary directory, removed at the end."""

    def __init__(self, keep=False):
        self.path = tempfile.mkdtemp(prefix="rxd-faults-")
        self._remove = None if keep else at_end(lambda: shutil.rmtree(self.path, ignore_errors=True))

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def remove(self):
        if self._remove:
            undo(self._remove)


def mount(*arguments):
    """Mounts, and unmounts at the end; returns the action that unmounts. OSError if the machine does not allow it."""
    target = arguments[-1]
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip() or "mount failed")
    return at_end(lambda: subprocess.run(["umount", target], check=False, capture_output=True))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds, pause=0.005):
    """Polls until the condition is true; False if it is not within the time. For conditions that nothing announces."""
    end = time.monotonic() + seconds
    while True:
        if condition():
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(pause)


class Rxd:
    """An rxd process, run as a service manager does: with a state directory, and notified when it is ready."""

    #: The program, and whether its log is printed after a failure; set by the command line.
    program = None

    def __init__(self, pipelines, state=None, directory=None, environment=None, before=(), log=None, stdin=None,
                 options=(), user=None, limits=()):
        """`before`: words before the command, such as strace. `user`: a numeric user id to run as."""
        self.pipelines = [pipelines] if isinstance(pipelines, str) else list(pipelines)
        self.state = state
        self.directory = directory
        self.environment = environment or {}
        self.before = list(before)
        self.log_path = log
        self.stdin = stdin
        self.options = list(options)
        self.user = user
        self.limits = list(limits)
        self.child = None

    def start(self):
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.notify.bind(b"\0rxd-faults-%d-%d" % (os.getpid(), self.notify.fileno() + (time.monotonic_ns() << 8)))
        name = self.notify.getsockname()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RXD") and k != "STATE_DIRECTORY"}
        environment.update(self.environment, NOTIFY_SOCKET="@" + name[1:].decode())
        command = [*self.before, self.program, "run", "--daemon", "--log-format", "text", *self.options]
        if self.state:
            command += ["--state-dir", self.state]
        command += self.pipelines
        log = open(self.log_path, "ab") if self.log_path else subprocess.DEVNULL
        user, limits = self.user, self.limits

        def prepare():
            _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: rxd does not outlive the test.
            for limit, value in limits:
                import resource
                resource.setrlimit(limit, (value, value))
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                _libc.prctl(1, signal.SIGKILL)

        self.log_start = os.path.getsize(self.log_path) if self.log_path else 0
        self.started = time.monotonic()
        self.readied = None
        self.child = subprocess.Popen(
            command, env=environment, stdin=self.stdin or subprocess.DEVNULL, stdout=log, stderr=log,
            cwd=self.directory, preexec_fn=prepare)
        _children.add(self.child)
        if self.log_path:
            log.close()
        self.handle = os.pidfd_open(self.child.pid)
        return self

    @property
    def pid(self):
        return self.child.pid

    @property
    def alive(self):
        return self.child.poll() is None

    def ready(self, seconds=10):
        """Waits until rxd is ready; returns the seconds since the start, or None if it ended or takes longer."""
        if self.readied is not None:
            return self.readied
        end = time.monotonic() + seconds
        while True:
            rest = end - time.monotonic()
            if rest <= 0:
                return None
            readable, _, _ = select.select([self.notify, self.handle], [], [], rest)
            if self.notify in readable:
                if b"READY=1" in self.notify.recv(4096):
                    self.readied = time.monotonic() - self.started
                    return self.readied
            elif self.handle in readable:
                return None

    def run_for(self, seconds):
        """Lets rxd run for this time; returns the seconds from its start until it was ready, or None if it is not."""
        end = time.monotonic() + seconds
        ready = self.ready(seconds)
        if self.alive and (rest := end - time.monotonic()) > 0:
            select.select([self.handle], [], [], rest)
        return ready

    def signal(self, number):
        if self.alive:
            self.child.send_signal(number)

    def kill(self):
        """Sends SIGKILL; returns whether the process was still running."""
        hit = self.alive
        if hit:
            self.child.kill()
        code = self.child.wait()
        self._close()
        return hit and code == -signal.SIGKILL

    def wait(self, seconds):
        """The exit status, negative for a signal; None if the process still runs."""
        try:
            code = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._close()
        return code

    def stop(self, seconds=20):
        """Sends SIGTERM; returns the exit status, or None if the process does not end and had to be killed."""
        self.signal(signal.SIGTERM)
        code = self.wait(seconds)
        if code is None:
            self.kill()
        return code

    def _close(self):
        _children.discard(self.child)
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
            self.notify.close()

    def resident(self):
        """The resident memory in bytes; 0 after the process has ended."""
        try:
            with open(f"/proc/{self.pid}/status") as file:
                return int(re.search(r"^VmRSS:\s+(\d+)", file.read(), re.M)[1]) * 1024
        except (OSError, TypeError):
            return 0

    def log(self):
        """What this process logged."""
        if not self.log_path:
            return ""
        with open(self.log_path, "rb") as file:
            file.seek(self.log_start)
            return file.read(1 << 20).decode(errors="replace")
