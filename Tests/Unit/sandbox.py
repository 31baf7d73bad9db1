"""Applies the settings of the unit without systemd: a read-only system, a private /tmp and /dev, no privileges and none to gain,
limits, and the unit's system call filter."""
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket as sockets
import subprocess

from exercise import Failure, Service, until
from stage import PREFIX, ROOT, Missing

# Files in /etc that programs read.
SYSTEM_FILES = [
    "alternatives", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "nsswitch.conf", "passwd",
    "resolv.conf", "services", "ssl", "machine-id",
]
# The default limit for systemd's units.
TASKS = 4915


def calls_of(group):
    """The system calls of a group, with those of the groups in it."""
    if not group.startswith("@"):
        return {group}
    text = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", group], capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in text.splitlines()[1:]]
    return set().union(*(calls_of(line) for line in lines if line and not line.startswith("#")))


def allowed_calls(settings):
    allowed = set()
    for value in settings["SystemCallFilter"]:
        calls = set().union(*(calls_of(group) for group in value.lstrip("~").split()))
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    return sorted(allowed)


class Sandbox:
    def __init__(self, stage):
        self.stage = stage
        for program in ["bwrap", "systemd-analyze", "setpriv"]:
            if not shutil.which(program):
                raise Missing(f"{program} is not installed")
        self.settings = stage.settings()
        self.own = stage.folder / "own"
        for name in ["state", "cache", "log", "run", "notify"]:
            (self.own / name).mkdir(parents=True)
        self.user = None
        if os.geteuid() == 0:
            subprocess.run([ROOT / "scripts/as-user", "true"], check=True)
            self.user = pwd.getpwnam("rxd-tests")
            for path in [self.own, *self.own.iterdir()]:
                os.chown(path, self.user.pw_uid, self.user.pw_gid)
        self.errors = self.own / "errors"

    def directory(self, setting, base):
        return f"{base}/{self.settings[setting][0]}"

    def command(self, arguments, *options):
        """The command line that runs `arguments` as the unit does; `options` are further ones of bubblewrap."""
        folders = {
            self.directory("StateDirectory", "/var/lib"): "state", self.directory("CacheDirectory", "/var/cache"): "cache",
            self.directory("LogsDirectory", "/var/log"): "log", self.directory("RuntimeDirectory", "/run"): "run",
            "/run/notify": "notify",
        }
        libraries = self.stage.libraries()
        words = ["bwrap", "--die-with-parent", "--unshare-ipc", "--unshare-uts", "--new-session", *options]
        # The directories that it creates itself are closed to other users.
        parents = {str(parent) for path in [*folders, *libraries, "/etc/rxd", PREFIX] for parent in pathlib.Path(path).parents}
        for parent in sorted(parents - {"/"}):
            words += ["--perms", "0755", "--dir", parent]
        words += ["--ro-bind", "/usr", "/usr"]
        for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"]:
            if os.path.islink(f"/{name}"):
                words += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
            elif os.path.isdir(f"/{name}"):
                words += ["--ro-bind", f"/{name}", f"/{name}"]
        for name in SYSTEM_FILES:
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        words += ["--ro-bind", self.stage.stage / "etc/rxd", self.directory("ConfigurationDirectory", "/etc")]
        words += ["--ro-bind", self.stage.prefix, PREFIX, "--ro-bind", self.stage.prefix.parent / "confine.py", "/opt/confine.py"]
        for folder in libraries:
            words += ["--ro-bind", folder, folder]
        words += ["--dev", "/dev", "--proc", "/proc"]
        for folder in ["/tmp", "/var/tmp"]:
            words += ["--perms", "1777", "--tmpfs", folder]
        for inside, outside in folders.items():
            words += ["--bind", self.own / outside, inside]
        words += ["--remount-ro", "/", "--chdir", "/", "--clearenv"]
        environment = dict(
            self.stage.environment, PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", LANG="C.UTF-8",
            NOTIFY_SOCKET="/run/notify/socket", STATE_DIRECTORY=self.directory("StateDirectory", "/var/lib"),
            CACHE_DIRECTORY=self.directory("CacheDirectory", "/var/cache"),
            LOGS_DIRECTORY=self.directory("LogsDirectory", "/var/log"),
            RUNTIME_DIRECTORY=self.directory("RuntimeDirectory", "/run"),
            CONFIGURATION_DIRECTORY=self.directory("ConfigurationDirectory", "/etc"))
        for name, value in environment.items():
            words += ["--setenv", name, value]
        drop = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all"]
        if self.user:
            words += ["--cap-add", "ALL"]
            drop += [
                "--reuid", str(self.user.pw_uid), "--regid", str(self.user.pw_gid), "--clear-groups", "--bounding-set=-all"]
        settings = {
            "allowed": allowed_calls(self.settings),
            "families": [getattr(sockets, name) for name in self.settings["RestrictAddressFamilies"][0].split()],
            "files": int(self.settings["LimitNOFILE"][0]), "tasks": TASKS, "umask": int(self.settings["UMask"][0], 8),
        }
        words += drop + ["/usr/bin/python3", "-I", "/opt/confine.py", json.dumps(settings)] + arguments
        return [str(word) for word in words]

    def start(self):
        path = self.own / "notify/socket"
        path.unlink(missing_ok=True)
        notify = sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM)
        notify.bind(str(path))
        path.chmod(0o666)
        notify.settimeout(0.2)
        self.pid = None
        reading, writing = os.pipe()
        with open(self.errors, "ab") as errors:
            # bubblewrap waits for the program, which is a separate process.
            self.process = subprocess.Popen(
                self.command(self.settings["ExecStart"][0].split(), "--info-fd", str(writing)), stdin=subprocess.DEVNULL,
                stdout=errors, stderr=errors, pass_fds=[writing])
        os.close(writing)
        with open(reading, encoding="utf-8") as file:
            text = file.read()
        if not text:
            raise Failure("bubblewrap does not start the service")
        self.pid = json.loads(text)["child-pid"]
        until("the service is not ready", lambda: self.is_ready(notify), 60)

    def is_ready(self, notify):
        if self.process.poll() is not None:
            raise Failure(f"the service has ended with {self.process.returncode}")
        try:
            return b"READY=1" in notify.recv(4096).split(b"\n")
        except TimeoutError:
            return False

    def reload(self):
        done = subprocess.run(
            self.command(self.settings["ExecReload"][0].split()), capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise Failure(f"the reload ends with {done.returncode}: {done.stdout}{done.stderr}")

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        try:
            status = self.process.wait(70)
        except subprocess.TimeoutExpired:
            raise Failure("the service has not stopped after 70 s") from None
        if status != 0:
            raise Failure(f"the service has ended with {status}")

    def confirm(self):
        """The process is confined as intended."""
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        wanted = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
        if not self.user:
            del wanted["CapBnd"]
        for name, value in wanted.items():
            if status[name] != value:
                raise Failure(f"{name} of the process is {status[name]}, not {value}")

    def run(self):
        self.process, self.pid = None, None
        try:
            # The second run finds the state of the first one.
            for _ in range(2):
                self.start()
                self.confirm()
                Service(self.own / "log", self.stage.environment["HUB"], self.reload).check()
                self.stop()
            text = self.errors.read_text()
            if "cannot be set" in text:
                raise Failure("a socket option is refused")
        except Failure:
            print(self.errors.read_text())
            raise
        finally:
            # Ending bubblewrap does not end a program that runs as another user.
            if self.process and self.process.poll() is None:
                os.kill(self.pid or self.process.pid, signal.SIGKILL)
                self.process.wait()
