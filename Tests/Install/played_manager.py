#!/usr/bin/env python3
"""Plays what pages call on a machine with systemd: `sudo`, `systemctl`, `systemd-run`, `journalctl`, `sudoedit`. Linked under these names in a sandbox.

`systemctl` reads units and drop-ins from where the real one does, has them verified by systemd-analyze, refuses to start a unit whose files have changed
since `daemon-reload`, and really starts and reloads the program, with the directories and variables that the unit asks for."""
import hashlib
import json
import os
import pathlib
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys

PLAY = pathlib.Path("/run/play")
STATE = PLAY / "state.json"
JOURNAL = PLAY / "journal"
UNITS = [pathlib.Path("/etc/systemd/system"), pathlib.Path("/run/stage/usr/lib/systemd/system")]
DIRECTORIES = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib", "CacheDirectory": "/var/cache", "LogsDirectory": "/var/log", "ConfigurationDirectory": "/etc"}


def fail(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def state():
    return json.loads(STATE.read_text()) if STATE.exists() else {"enabled": [], "running": {}, "known": {}}


def keep(value):
    STATE.write_text(json.dumps(value))


def full(name):
    return name if "." in name.rsplit("@", 1)[-1] else f"{name}.service"


def template(unit):
    before, _, kind = unit.rpartition(".")
    return f"{before.split('@', 1)[0]}@.{kind}" if "@" in before else unit


def files(unit):
    """The unit and its drop-ins."""
    names = dict.fromkeys([unit, template(unit)])
    own = next((path for name in names for folder in UNITS if (path := folder / name).is_file()), None)
    if own is None:
        fail(f"Unit {unit} could not be found.")
    return [own] + sorted(path for name in names for folder in UNITS for path in (folder / f"{name}.d").glob("*.conf"))


def digest(unit):
    return hashlib.sha256(b"".join(path.read_bytes() for path in files(unit))).hexdigest()


def settings(unit):
    """Values by name; an empty one removes those before it."""
    found = {}
    instance = unit.rpartition(".")[0].partition("@")[2]
    for path in files(unit):
        for line in path.read_text().splitlines():
            name, sign, value = line.partition("=")
            if not sign or line.startswith(("#", ";", "[")):
                continue
            value = value.strip().replace("%i", instance).replace("%d", f"/run/credentials/{unit}")
            found.setdefault(name.strip(), [])
            if value:
                found[name.strip()].append(value)
            else:
                found[name.strip()] = []
    return found


def verify(unit):
    folder = PLAY / "verified"
    shutil.rmtree(folder, True)
    folder.mkdir()
    own, *more = files(unit)
    (folder / unit).write_text(own.read_text().replace("/usr/bin/rxd", "/bin/true"))
    if more:
        (folder / f"{unit}.d").mkdir()
        for path in more:
            shutil.copy(path, folder / f"{unit}.d")
    for path in UNITS[0].glob("*.socket"):
        shutil.copy(path, folder)
    done = subprocess.run(["systemd-analyze", "verify", folder / unit], env={"SYSTEMD_UNIT_PATH": f"{folder}:", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    if done.returncode or done.stdout or done.stderr:
        fail(f"{unit}: {done.stdout}{done.stderr}")


def reload_definitions(value):
    for unit in set(value["running"]) | set(value["enabled"]) | set(value["known"]):
        verify(unit)
        value["known"][unit] = digest(unit)


def environment(unit, found):
    variables = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    for line in found.get("Environment", []):
        variables.update(word.split("=", 1) for word in shlex.split(line))
    for path in found.get("EnvironmentFile", []):
        if not (pathlib.Path(path.lstrip("-")).exists() or path.startswith("-")):
            fail(f"{unit}: no {path}")
        if pathlib.Path(path.lstrip("-")).exists():
            lines = pathlib.Path(path.lstrip("-")).read_text().splitlines()
            variables.update(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    for name, base in DIRECTORIES.items():
        paths = [f"{base}/{one}" for value in found.get(name, []) for one in value.split()]
        for path in paths:
            pathlib.Path(path).mkdir(mode=0o700 if name in ("RuntimeDirectory", "StateDirectory") else 0o755, parents=True, exist_ok=True)
        if paths:
            variables[f"{name.removesuffix('Directory').upper()}_DIRECTORY"] = ":".join(paths)
    credentials = pathlib.Path(f"/run/credentials/{unit}")
    for value in found.get("LoadCredential", []):
        name, path = value.split(":", 1)
        credentials.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(path, credentials / name)
        (credentials / name).chmod(0o400)
    if found.get("LoadCredential"):
        variables["CREDENTIALS_DIRECTORY"] = str(credentials)
    return variables


def command(line, variables):
    words = [word[2:-1] if word.startswith("${") and word[2:-1] not in variables else variables[word[2:-1]] if word.startswith("${") else word for word in shlex.split(line)]
    return ["/run/stage" + words[0] if words[0] == "/usr/bin/rxd" else words[0], *words[1:]]


def runs(unit, value):
    """A process that has ended by itself is no longer running."""
    if unit in value["running"] and not pathlib.Path(f"/proc/{value['running'][unit]}/fd").exists():
        del value["running"][unit]
    return unit in value["running"]


def start(unit, value):
    if runs(unit, value):
        return
    if unit in value["known"] and value["known"][unit] != digest(unit):
        fail(f"the unit file, source configuration file or drop-ins of {unit} changed on disk: run 'systemctl daemon-reload'")
    verify(unit)
    value["known"][unit] = digest(unit)
    found = settings(unit)
    for path in found.get("ConditionDirectoryNotEmpty", []):
        if not any(pathlib.Path(path).iterdir()):
            return
    for path in found.get("ConditionPathExists", []):
        if not pathlib.Path(path).exists():
            return
    for other in [full(name) for line in found.get("Conflicts", []) for name in line.split()]:
        for running in [name for name in value["running"] if name == other or template(name) == other]:
            stop(running, value)
    variables = environment(unit, found)
    path = PLAY / "notify"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, open(JOURNAL, "ab") as journal:
        notify.bind(str(path))
        notify.settimeout(0.2)
        process = subprocess.Popen(
            command(found["ExecStart"][-1], variables), env={**variables, "NOTIFY_SOCKET": str(path)}, cwd="/", stdin=subprocess.DEVNULL, stdout=journal, stderr=journal,
            start_new_session=True)
        for _ in range(600):
            if process.poll() is not None:
                fail(f"Job for {unit} failed: it ends with {process.returncode}.\n{JOURNAL.read_text()}")
            try:
                if b"READY=1" in notify.recv(4096).split(b"\n"):
                    break
            except TimeoutError:
                continue
        else:
            fail(f"{unit} does not get ready.\n{JOURNAL.read_text()}")
    value["running"][unit] = process.pid


def stop(unit, value):
    if not runs(unit, value):
        return
    pid = value["running"].pop(unit)
    watch = os.pidfd_open(pid)
    signal.pidfd_send_signal(watch, signal.SIGTERM)
    if not select.select([watch], [], [], 90)[0]:
        fail(f"{unit} does not stop")


def systemctl(words):
    options = {word for word in words if word.startswith("-")}
    verb, *units = [word for word in words if not word.startswith("-")]
    if options - {"--now"}:
        fail(f"not played: {' '.join(options)}")
    value = state()
    if verb == "daemon-reload":
        reload_definitions(value)
    for unit in map(full, units):
        if verb in ("enable", "disable"):
            if "WantedBy" not in settings(unit):
                fail(f"{unit} has no [Install]")
            value["enabled"] = sorted(set(value["enabled"]) - {unit} | ({unit} if verb == "enable" else set()))
        if verb == "start" or verb == "enable" and "--now" in options:
            start(unit, value)
        elif verb == "stop" or verb == "disable" and "--now" in options:
            stop(unit, value)
        elif verb == "restart":
            stop(unit, value)
            start(unit, value)
        elif verb == "reload":
            if not runs(unit, value):
                fail(f"{unit} is not active, cannot reload.")
            found = settings(unit)
            variables = environment(unit, found)
            done = subprocess.run(command(found["ExecReload"][-1], variables), env=variables, check=False)
            if done.returncode:
                fail(f"Job for {unit} failed: {done.returncode}")
        elif verb == "status":
            print(f"{unit}: {'active' if runs(unit, value) else 'inactive'}")
            if not runs(unit, value):
                sys.exit(3)
        elif verb not in ("enable", "disable"):
            fail(f"not played: {verb}")
    keep(value)


def sudo(words):
    while words and words[0].startswith("-"):
        if words[0] != "-u":
            fail(f"not played: {words[0]}")
        words = words[2:]
    os.execvp(words[0], words)


def systemd_run(words):
    known = subprocess.run(["/usr/bin/systemd-run", "--help"], capture_output=True, text=True, check=True).stdout
    while words[0].startswith("-"):
        option = words.pop(0).split("=", 1)[0]
        if f"{option}" not in known:
            fail(f"no option {option}")
    os.execvp(words[0], words)


def journalctl(words):
    if words[:1] != ["-u"]:
        fail(f"not played: {words}")
    files(full(words[1]))
    sys.stdout.write(JOURNAL.read_text())


def sudoedit(words):
    for word in words:
        path = pathlib.Path(word)
        path.write_text(path.read_text() + "# edited\n")


PLAYED = {"sudo": sudo, "systemctl": systemctl, "systemd-run": systemd_run, "journalctl": journalctl, "sudoedit": sudoedit}

if __name__ == "__main__":
    PLAYED[pathlib.Path(sys.argv[0]).name](sys.argv[1:])
