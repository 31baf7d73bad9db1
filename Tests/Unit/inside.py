"""In the container of machine.py: starts, uses, reloads, kills and stops rxd.service."""
import json
import pathlib
import subprocess
import sys
import traceback

sys.dont_write_bytecode = True

from exercise import Failure, Service, until  # noqa: E402: it leaves no files behind

PIPELINES = pathlib.Path("/etc/rxd/pipelines")


def systemctl(*arguments, fails=False):
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, timeout=120, check=False)
    if (done.returncode != 0) != fails:
        raise Failure(f"systemctl {' '.join(arguments)} ends with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def shown(*names):
    text = systemctl("show", "rxd", "--property=" + ",".join(names))
    return dict(line.split("=", 1) for line in text.splitlines())


def wants(**values):
    found = shown(*values)
    if found != values:
        raise Failure(f"the unit has {found}, not {values}")


def confined():
    """The main process has no privileges."""
    pid = shown("MainPID")["MainPID"]
    status = dict(
        line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    if status["Uid"].split()[0] == "0":
        raise Failure("the service runs as root")
    for name, value in {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}.items():
        if status[name] != value:
            raise Failure(f"{name} of the service is {status[name]}, not {value}")


def main():
    hub = json.loads(pathlib.Path("/opt/out/settings").read_text())["hub"]
    service = Service(pathlib.Path("/var/log/rxd"), hub, lambda: systemctl("reload", "rxd"))
    systemctl("start", "rxd")
    wants(ActiveState="active", SubState="running", NRestarts="0")
    confined()
    service.check()
    wants(ActiveState="active", SubState="running", NRestarts="0", Result="success")

    systemctl("kill", "--signal=KILL", "--kill-whom=main", "rxd")
    until("the service is not started again", lambda: shown("NRestarts", "SubState") == {"NRestarts": "1", "SubState": "running"})
    until("the server does not answer after a restart", lambda: service.post(1)[0] == 200)

    systemctl("stop", "rxd")
    wants(ActiveState="inactive", SubState="dead", ExecMainCode="1", ExecMainStatus="0", Result="success")
    text = subprocess.run(["journalctl", "--unit=rxd", "--output=cat"], capture_output=True, text=True, check=True).stdout
    if "cannot be set" in text:
        raise Failure("a socket option is refused")

    # Without a file in the directory it is not started; with only other files, it fails once.
    files = {path: path.read_text() for path in PIPELINES.glob("*.yaml")}
    for path in files:
        path.unlink()
    systemctl("start", "rxd")
    wants(ActiveState="inactive", ConditionResult="no")
    (PIPELINES / "README").write_text("Pipelines go here.\n")
    systemctl("start", "rxd", fails=True)
    wants(ActiveState="failed", SubState="failed", ExecMainStatus="66", NRestarts="0")
    (PIPELINES / "README").unlink()
    for path, text in files.items():
        path.write_text(text)


if __name__ == "__main__":
    try:
        main()
        print("passed")
    except BaseException as error:
        if not isinstance(error, Failure):
            traceback.print_exc(file=sys.stdout)
        print(f"failed: {error}")
        subprocess.run(["systemctl", "--no-pager", "--full", "status", "rxd"], check=False)
        subprocess.run(["journalctl", "--no-pager", "--unit=rxd", "--lines=200"], check=False)
        sys.exit(1)
