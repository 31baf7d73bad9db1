"""An installation of rxd in its own folder, and the settings of its unit."""
import os
import pathlib
import shutil
import socket
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
PREFIX = "/opt/rxd"


class Missing(Exception):
    """A requirement that this machine does not meet."""


class Stage:
    """`make install` below `DESTDIR`, with the pipelines of this test and their ports."""

    def __init__(self, rxd, folder):
        self.rxd, self.folder = rxd, folder
        self.stage = folder / "stage"
        if not shutil.which("jq"):
            raise Missing("jq is not installed, which the plugin needs")
        subprocess.run(
            ["make", "-s", "-C", ROOT, "install", f"RXD={rxd}", f"DESTDIR={self.stage}", f"PREFIX={PREFIX}", "SYSCONFDIR=/etc"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.prefix = self.stage / PREFIX.lstrip("/")
        self.unit = self.prefix / "lib/systemd/system/rxd.service"
        shutil.copy(ROOT / "Plugins/examples/shell/upper.sh", self.prefix / "lib/rxd/plugins/upper.sh")
        shutil.copy(HERE / "confine.py", self.prefix.parent)
        self.pipelines = self.stage / "etc/rxd/pipelines"
        for file in (HERE / "pipelines").glob("*.yaml"):
            shutil.copy(file, self.pipelines)
        self.ports = free_ports(6)
        names = ["HUB", "SECOND", "TCP", "UDP", "SYSLOG", "STATSD"]
        self.environment = {name: f"127.0.0.1:{port}" for name, port in zip(names, self.ports)}
        self.environment_file = folder / "default"
        self.environment_file.write_text("".join(f"{name}={value}\n" for name, value in self.environment.items()))
        for path in [self.stage, *self.stage.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)

    def settings(self):
        """The settings of the unit: each a list of values, because they may be repeated."""
        found = {}
        for line in self.unit.read_text().splitlines():
            name, mark, value = line.partition("=")
            if mark and not line.startswith(("#", "[")):
                found.setdefault(name, []).append(value)
        return found

    def libraries(self):
        """Folders outside of /usr and /lib from which the program is loaded: the Swift runtime of a debug build is in its
        own folder."""
        text = subprocess.run(["ldd", self.rxd], capture_output=True, text=True, check=False).stdout
        paths = [word for line in text.splitlines() for word in line.split() if word.startswith("/")]
        folders = {os.path.dirname(os.path.realpath(path)) for path in paths} | {os.path.dirname(path) for path in paths}
        return sorted(folder for folder in folders if not folder.startswith(("/usr/", "/lib")))


def free_ports(count):
    """Ports that are free for TCP and UDP."""
    taken, ports = [], []
    while len(ports) < count:
        stream, datagram = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        taken += [stream, datagram]
        stream.bind(("127.0.0.1", 0))
        try:
            datagram.bind(stream.getsockname())
            ports.append(stream.getsockname()[1])
        except OSError:
            pass
    for one in taken:
        one.close()
    return ports
