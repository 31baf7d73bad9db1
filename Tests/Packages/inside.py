"""In the container of lifecycle.py, as root: the life of the package under a real systemd. Each step says what it has shown."""
import glob
import http.server
import json
import os
import pathlib
import pwd
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request

PACKAGES = pathlib.Path("/opt/packages")
PIPELINES = pathlib.Path("/etc/rxd/pipelines")
SETTINGS = json.loads((PACKAGES / "settings.json").read_text())
OLD, NEW = SETTINGS["old"], SETTINGS["new"]


class Failure(Exception):
    """Something that does not work."""


def run(*words, fails=False, **options):
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False, **options)
    if (done.returncode != 0) != fails:
        raise Failure(f"{' '.join(words)} ends with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def until(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what}, after {seconds} s")
        time.sleep(0.1)


def wants(condition, what):
    if not condition:
        raise Failure(what)


def shown(unit, *names):
    return dict(line.split("=", 1) for line in run("systemctl", "show", unit, "--property=" + ",".join(names)).splitlines())


def installed():
    return subprocess.run(["dpkg-query", "-W", "-f=${Version} ${Status}", "rxd"], capture_output=True, text=True, check=False).stdout


def lines(path):
    path = pathlib.Path(path)
    return path.read_text().splitlines() if path.exists() else []


def post(numbers):
    body = "".join(json.dumps({"n": n}) + "\n" for n in numbers).encode()
    with urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8001/orders", data=body), timeout=60) as answer:
        wants(answer.status == 200, f"the orders are answered {answer.status}")


def as_rxd(*words):
    return run("setpriv", "--reuid=rxd", "--regid=rxd", "--init-groups", *words)


def to_deliver():
    """How many events of the shop wait on the disk for the warehouse."""
    found = json.loads(as_rxd("rxd", "state", "ls", "--format", "json", "--state-dir", "/var/lib/rxd"))
    return sum(one["events"] for pipeline in found if pipeline["pipeline"] == "shop" for one in pipeline["outbox"] if one["sink"] == "warehouse")


class Warehouse:
    """Takes orders, and remembers the tokens that came with them."""

    def __init__(self):
        self.orders, self.tokens = [], set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if self.headers.get("Content-Length") else self.chunks()
                outer.orders += [json.loads(line)["n"] for line in body.splitlines() if line.strip()]
                outer.tokens.add(self.headers.get("Authorization"))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def chunks(self):
                found = b""
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    found += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return found

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 8002), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def put(name):
    (PIPELINES / f"{name}.yaml").write_text((PACKAGES / "pipelines" / f"{name}.yaml").read_text())


def drop_in(unit, *names):
    folder = pathlib.Path(f"/etc/systemd/system/{unit}.d")
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.conf").write_text(pathlib.Path(f"/usr/share/rxd/systemd/{name}.conf").read_text())


def install():
    run("dpkg", "--install", SETTINGS["old_file"])
    wants(shown("rxd", "ActiveState", "Result", "UnitFileState") == {"ActiveState": "inactive", "Result": "success", "UnitFileState": "enabled"},
          "without a pipeline file the service is enabled, and neither runs nor has failed")
    wants(pwd.getpwnam("rxd").pw_shell.endswith("nologin"), "the user rxd cannot log in")
    wants(oct(os.stat("/etc/rxd/secrets").st_mode & 0o777) == "0o700", "others cannot list the secrets")
    wants(lines("/etc/default/rxd"), "there is /etc/default/rxd")


def first_pipeline():
    secret = pathlib.Path("/etc/rxd/secrets/token")
    secret.touch(0o600)
    secret.write_text("s3cret\n")
    drop_in("rxd.service", "credentials")
    run("systemctl", "daemon-reload")
    put("shop")
    run("systemctl", "start", "rxd")
    status = pathlib.Path(f"/proc/{shown('rxd', 'MainPID')['MainPID']}/status").read_text()
    wants(f"Uid:\t{pwd.getpwnam('rxd').pw_uid}\t" in status and "CapEff:\t" + "0" * 16 in status, "the service has a user without privileges")
    # More keys than a state has without pages: the format of the store is the second one.
    post(range(400))
    until("the orders are not in the book", lambda: len(lines("/var/log/rxd/book.ndjson")) == 400)
    wants(to_deliver() == 400, f"{to_deliver()} orders wait for the warehouse")


def reload():
    file = PIPELINES / "shop.yaml"
    good = file.read_text()
    file.write_text(good.replace("distinct", "distnct"))
    text = run("systemctl", "reload", "rxd", fails=True)
    journal = run("journalctl", "--unit=rxd", "--output=cat", "--no-pager")
    wants("RX220" in text + journal, "a reload with an error says which")
    wants(shown("rxd", "ActiveState")["ActiveState"] == "active", "the service goes on after a refused reload")
    file.write_text(good)
    run("systemctl", "reload", "rxd")
    post([400])
    until("orders are not taken after a reload", lambda: len(lines("/var/log/rxd/book.ndjson")) == 401)


def upgrade():
    before = shown("rxd", "MainPID")["MainPID"]
    pathlib.Path("/etc/default/rxd").write_text("RXD_LOG_LEVEL=info\n")
    run("dpkg", "--install", "--force-confdef", "--force-confold", SETTINGS["new_file"])
    wants(installed() == f"{NEW} install ok installed", f"installed is {installed()}")
    after = shown("rxd", "MainPID", "ActiveState", "NRestarts")
    wants(after["ActiveState"] == "active" and after["MainPID"] != before, f"the new version runs: {after}")
    wants(lines("/etc/default/rxd") == ["RXD_LOG_LEVEL=info"], "the settings of the user stay")
    # The state: an order that was there is not counted again, and a new one goes on from the count of before.
    post([5, 401])
    until("the state has not been kept", lambda: len(lines("/var/log/rxd/book.ndjson")) == 402)
    wants(json.loads(lines("/var/log/rxd/book.ndjson")[-1]) == {"count": 402, "n": 401}, "the count has gone on")


def refused_downgrade():
    text = run("dpkg", "--install", SETTINGS["old_file"], fails=True)
    wants(f"has the format {SETTINGS['format']}" in text and "downgrade" in text and "is refused" in text, f"the reason is missing: {text}")
    wants(installed().startswith(NEW) and installed().endswith("ok installed"), f"installed is {installed()}")
    wants(shown("rxd", "ActiveState")["ActiveState"] == "active", "the service runs after a refused downgrade")
    post([402])


def delivery():
    warehouse = Warehouse()
    until("the warehouse has not got what waited", lambda: set(warehouse.orders) == set(range(403)))
    wants(warehouse.tokens == {"Bearer s3cret"}, f"the credential is {warehouse.tokens}")
    wants(sorted(warehouse.orders) == list(range(403)), "each order has come once")


def plugin():
    text = run("dpkg", "--install", SETTINGS["plugin_file"])
    until("the plugin's trigger has not run", lambda: "ok installed" in installed())
    wants("cbor" in run("rxd", "plugin", "list"), f"the plugin is not in the list: {text}")
    wants(shown("rxd", "ActiveState")["ActiveState"] == "active", "the service goes on")


def documentation():
    text = run("rxd", "docs", fails=True)
    wants("rxd-doc" in text and "/usr/share/doc/rxd/html" in text, f"without the pages: {text}")
    run("dpkg", "--install", SETTINGS["documentation_file"])
    serving = subprocess.Popen(["rxd", "docs"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = serving.stdout.readline().strip()
        for path, word in [("", b"<title>"), ("docs/first-pipeline.html", b"access.log"), ("site/site.css", b"{")]:
            with urllib.request.urlopen(address + path, timeout=10) as answer:
                wants(answer.status == 200 and word in answer.read(), f"the page {address}{path}")
    finally:
        serving.terminate()
        serving.wait()
    run("dpkg", "--purge", "rxd-doc")
    wants(not pathlib.Path("/usr/share/doc/rxd/html").exists(), "the pages are left")
    text = run("rxd", "version", "--licenses")
    wants("/usr/share/doc/libyaml-0-2/copyright" in text and "Apache License" in text, f"the licences: {text[:2000]}")


def drop_ins():
    folder = pathlib.Path("/var/log/nginx")
    folder.mkdir()
    log = folder / "access.log"
    log.write_text("GET /\n")
    # As Debian's nginx makes it.
    os.chown(log, 33, 4)
    log.chmod(0o640)
    pathlib.Path("/srv/rxd").mkdir()
    user = pwd.getpwnam("rxd")
    os.chown("/srv/rxd", user.pw_uid, user.pw_gid)
    put("system")
    for name in ["rxd-syslog-udp.socket", "rxd-syslog-tcp.socket"]:
        pathlib.Path(f"/etc/systemd/system/{name}").write_text(pathlib.Path(f"/usr/share/rxd/systemd/{name}").read_text())
    drop_in("rxd.service", "read-logs", "read-journal", "write-directory", "low-ports")
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "rxd")
    message = b"<13>Nov 29 10:00:00 router link is down"

    def all_there():
        run("logger", "--tag", "rxd-packages", "an entry")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(message, ("127.0.0.1", 514))
        with socket.create_connection(("127.0.0.1", 514), timeout=10) as sender:
            sender.sendall(message + b"\n")
        time.sleep(0.5)
        return all(lines(f"/srv/rxd/{name}.ndjson") for name in ["visits", "entries", "datagrams", "streams"])

    until("a drop-in does not work: " + str([name for name in ["visits", "entries", "datagrams", "streams"] if not lines(f"/srv/rxd/{name}.ndjson")]), all_there)
    # Without them nothing of it is allowed.
    for name in ["read-logs", "read-journal", "write-directory"]:
        os.unlink(f"/etc/systemd/system/rxd.service.d/{name}.conf")
    for path in glob.glob("/srv/rxd/*"):
        os.unlink(path)
    run("systemctl", "daemon-reload")
    subprocess.run(["systemctl", "restart", "rxd"], check=False, capture_output=True)
    time.sleep(2)
    run("logger", "--tag", "rxd-packages", "an entry")
    time.sleep(1)
    wants(not glob.glob("/srv/rxd/*"), "without the drop-in it cannot write there")
    (PIPELINES / "system.yaml").unlink()
    run("systemctl", "reset-failed", "rxd")
    run("systemctl", "restart", "rxd")


def instance():
    put("single")
    run("systemctl", "start", "rxd@single")
    wants(shown("rxd", "ActiveState")["ActiveState"] == "inactive", "rxd.service ends when an instance starts")
    # An enabled service is started by an upgrade.
    run("systemctl", "disable", "rxd")
    run("systemctl", "enable", "rxd@single")
    until("the instance writes nothing", lambda: lines("/var/log/rxd-single/ticks.ndjson"))
    wants(os.path.exists("/var/lib/rxd-single/pipelines/single.db"), "the instance has a state of its own")
    wants(os.path.exists("/run/rxd-single/control.sock"), "the instance has a control socket of its own")
    run("systemctl", "reload", "rxd@single")


def upgraded_instance():
    before = shown("rxd@single", "MainPID")["MainPID"]
    run("dpkg", "--install", "--force-confold", SETTINGS["newer_file"])
    after = shown("rxd@single", "MainPID", "ActiveState")
    wants(after["ActiveState"] == "active" and after["MainPID"] not in ("0", before), f"an upgrade restarts the instance: {after}")
    wants(shown("rxd", "ActiveState")["ActiveState"] == "inactive", "an upgrade does not start rxd.service beside an instance")


def remove():
    run("dpkg", "--remove", "rxd-plugin-cbor", "rxd")
    wants(not os.path.exists("/usr/bin/rxd") and not os.path.exists("/lib/systemd/system/rxd.service"), "the program is gone")
    wants(subprocess.run(["pgrep", "-x", "rxd"], check=False, capture_output=True).returncode == 1, "no rxd runs")
    wants(os.path.exists("/var/lib/rxd/pipelines/shop.db") and os.path.exists("/etc/default/rxd"), "state and settings stay")


def purge():
    text = run("dpkg", "--purge", "rxd")
    for path in ["/var/lib/rxd", "/var/log/rxd", "/var/cache/rxd", "/var/lib/rxd-single", "/var/log/rxd-single", "/etc/default/rxd", "/usr/lib/rxd"]:
        wants(not os.path.lexists(path), f"{path} is left")
    wants("/etc/rxd" in text and (PIPELINES / "shop.yaml").exists(), f"the user's pipeline files stay, and the purge says so: {text}")
    left = [path for folder in ["/usr", "/var/lib", "/etc"] for path, names, _ in os.walk(folder) if "rxd" in path.rsplit("/", 1)[-1] and "/etc/rxd" not in path]
    wants(left == ["/etc/systemd/system/rxd.service.d"], f"left: {left}")


STEPS = [install, first_pipeline, reload, upgrade, refused_downgrade, delivery, plugin, documentation, drop_ins, instance, upgraded_instance, remove, purge]


def main():
    for step in STEPS:
        start = time.monotonic()
        step()
        print(f"ok     {step.__name__.replace('_', ' ')} ({time.monotonic() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    try:
        main()
        print("passed")
    except BaseException as error:
        if not isinstance(error, Failure):
            traceback.print_exc(file=sys.stdout)
        print(f"failed: {error}")
        for words in [["systemctl", "--no-pager", "--full", "status", "rxd*"], ["journalctl", "--no-pager", "--lines=60"]]:
            sys.stdout.flush()
            subprocess.run(words, check=False)
        sys.exit(1)
