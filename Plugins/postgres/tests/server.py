"""A private PostgreSQL server for tests: data in a temporary directory, a random port on loopback."""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# Preloaded sanitizers are for this process only.
os.environ.pop("LD_PRELOAD", None)


def _binaries() -> str | None:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    return os.path.dirname(found[-1]) if found else None


def available() -> bool:
    return _binaries() is not None and shutil.which("psql") is not None


class Server:
    """Runs as the user postgres if the tests run as root, because the server refuses root."""

    def __init__(self) -> None:
        self.binaries = _binaries()
        self.directory = tempfile.mkdtemp(prefix="rxd-pg-")
        self.as_user = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self.as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        subprocess.run(
            [f"{self.binaries}/initdb", "-D", f"{self.directory}/data", "-U", "tester", "-E", "UTF8", "--locale=C",
             "--no-sync", "-A", "trust"], check=True, stdout=subprocess.DEVNULL, cwd=self.directory, **self.as_user)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with open(f"{self.directory}/log", "ab") as log:
            self.process = subprocess.Popen(
                [f"{self.binaries}/postgres", "-D", f"{self.directory}/data", "-p", str(self.port), "-k", self.directory,
                 "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "log_min_messages=error"],
                stdout=log, stderr=log, cwd=self.directory, **self.as_user)
        self.wait()

    def wait(self) -> None:
        for _ in range(300):
            done = subprocess.run(["psql", "-XAtqc", "SELECT 1", self.conninfo], capture_output=True)
            if done.returncode == 0:
                return
            time.sleep(0.05)
        raise TimeoutError("the server does not start")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT: immediately, as in a crash; SIGINT: ends the connections first."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    @property
    def conninfo(self) -> str:
        return f"host={self.directory} port={self.port} user=tester dbname=postgres"

    @property
    def parts(self) -> dict[str, object]:
        """The parameters of the components."""
        return {"host": "127.0.0.1", "port": self.port, "user": "tester", "database": "postgres"}

    def sql(self, text: str) -> list[list[str]]:
        done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-F", "\t", self.conninfo], input=text.encode(),
                              capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.decode())
        return [line.split("\t") for line in done.stdout.decode().splitlines()]

    def column(self, text: str) -> list[str]:
        return [row[0] for row in self.sql(text)]


class Transaction:
    """A connection that stays open."""

    def __init__(self, server: Server) -> None:
        self.psql = subprocess.Popen(["psql", "-XAtq", server.conninfo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, text: str) -> None:
        """Returns when the server has run it."""
        self.psql.stdin.write(text + "\n\\echo done\n")
        self.psql.stdin.flush()
        while self.psql.stdout.readline() != "done\n":
            pass

    def close(self) -> None:
        self.psql.stdin.close()
        self.psql.wait()
        self.psql.stdout.close()
