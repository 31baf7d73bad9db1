"""Blocks `sh` of the pages: each is run on a machine that is played, or says here why it is not.

Blocks `console` show output, and are run by the tests that compare it."""
import json
import os
import re
import subprocess
import time
import unittest

import staged

PLAYED = ("sudo", "systemctl", "systemd-run", "journalctl", "sudoedit")
SYSTEM_FILES = ("alternatives", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "machine-id", "nsswitch.conf", "passwd", "ssl")

# By page and first line: why no test here runs the block.
NOT_RUN = {
    ("install", "sudo apt install ./.build/deb/rxd_*.deb"): "Tests/Packages/inside.py installs the packages in a Debian of its own",
    ("install", "sudo apt install ./.build/deb/rxd-plugin-mqtt_*.deb"): "Tests/Packages/inside.py installs a plugin's package",
    ("install", "tar -xf rxd-0.1.0-linux-x86_64.tar.gz"): "Tests/Packages/run unpacks, installs and removes the archive in bare systems",
    ("install", "make build"): "the build takes minutes; test_install.py runs the other lines with prefixes and stages of its own",
    ("install", "make image"): "Tests/Packages/run makes the image, where buildah is installed",
    ("plugins", "#!/bin/sh"): "a file, which Tests/Plugins/test_docs.py runs",
    ("secrets", "install -d -m 0700 /etc/credstore.encrypted"): "systemd-creds needs the key of a real machine",
    ("standby", "rxd standby --state-dir /var/lib/rxd.standby --token-file /etc/rxd/standby.token \\"): "StandbyRunTests runs two machines; its options are compared below",
    ("standby", "rxd run --state-dir /var/lib/rxd --replicate https://second.example:7935 --replicate-token-file /etc/rxd/standby.token \\"): "as above",
    ("standby", "rxd promote-standby /var/lib/rxd.standby"): "StandbyRunTests promotes a standby and goes on with it",
    ("standby", "rxd run --state-dir /var/lib/rxd --replicate https://second.example:7935 ... --lease /mnt/shared/rxd.lease /etc/rxd/pipelines"): "StandbyFaultTests has the lease",
    ("standby", "rxd promote-standby /var/lib/rxd.standby --lease /mnt/shared/rxd.lease"): "StandbyFaultTests has the lease",
    ("testing", "make faults"): "it takes minutes, and is what the page is about",
}
# Pages whose blocks `console` are not in GuideTests.guides: the test that runs them.
CONSOLE_ELSEWHERE = {
    "plugins": "Tests/Plugins/test_docs.py", "expressions": "Tests/RxdTests/EvalSessionTests.swift", "install": "Tests/RxdTests/DocsVerbTests.swift",
}


def pages():
    return {path.stem: path.read_text() for path in sorted((staged.ROOT / "docs").glob("*.md"))}


def first(block):
    return re.sub(r" {2,}# .*", "", block.split("\n", 1)[0])


def blocks():
    """Blocks `sh` by page and first line."""
    found = {}
    for page, text in pages().items():
        for match in re.finditer(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            key = (page, first(match[1]))
            assert key not in found, key
            found[key] = match[1]
    return found


INSIDE = """
import json, subprocess, sys
for line in sys.stdin:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", json.loads(line)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout + done.stderr]), flush=True)
"""


class Machine:
    """A machine on which rxd is installed: its own /etc, /var, /run and network, and a played service manager."""

    def __init__(self):
        folder = staged.scratch()
        own = folder / "bin"
        own.mkdir()
        for name in PLAYED:
            (own / name).symlink_to("/run/played_manager.py")
        (own / "rxd").symlink_to("/run/stage/usr/bin/rxd")
        words = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--new-session"]
        if os.geteuid() != 0:
            words += ["--unshare-user", "--uid", "0", "--gid", "0"]
        words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for path in ("/run", "/tmp", "/var", "/etc", "/usr/share", "/home", "/root", "/mnt"):
            words += ["--tmpfs", path]
        for name in SYSTEM_FILES:
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        words += ["--ro-bind", staged.ROOT, staged.ROOT, "--ro-bind", staged.stage(), "/run/stage", "--ro-bind", own, "/run/bin"]
        words += ["--ro-bind", staged.ROOT / "Tests/Install/played_manager.py", "/run/played_manager.py"]
        words += ["--ro-bind", staged.stage() / "usr/share/rxd", "/usr/share/rxd", "--ro-bind-try", "/usr/share/zoneinfo", "/usr/share/zoneinfo"]
        words += ["--dir", "/run/play", "--dir", "/root/work", "--chdir", "/root/work", "--clearenv", "--setenv", "HOME", "/root", "--setenv", "LANG", "C.UTF-8"]
        words += ["--setenv", "PATH", "/run/bin:/usr/bin:/bin", "/usr/bin/python3", "-u", "-I", "-c", INSIDE]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.run("cp -r /run/stage/etc/. /etc/; mkdir -p /etc/systemd/system /var/log /var/lib")

    def tries(self, text):
        """The status and the output of commands."""
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the machine has ended"
        return tuple(json.loads(line))

    def run(self, text):
        status, output = self.tries(text)
        assert status == 0, f"{text}\nends with {status}:\n{output}\n{self.tries('cat /run/play/journal')[1]}"
        return output

    def write(self, path, text):
        self.run(f"mkdir -p \"$(dirname '{path}')\"; cat > '{path}' << 'END OF FILE'\n{text}END OF FILE\n")

    def waits(self, what, condition, seconds=60):
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, f"{what}\n{self.tries('cat /run/play/journal')[1]}"
            time.sleep(0.05)
        return found

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


def shown(page, name):
    """The last version of a file that a page shows."""
    return re.findall(rf"^`{re.escape(name)}`:\n\n```yaml\n(.*?)^```$", pages()[page], re.MULTILINE | re.DOTALL)[-1]


class CoverageTests(unittest.TestCase):
    def test_every_block_is_run_or_says_why_not(self):
        run = {key for test in vars(PageTests).values() for key in getattr(test, "blocks", ())}
        self.assertEqual(set(blocks()), run | set(NOT_RUN))
        self.assertFalse(run & set(NOT_RUN))

    def test_every_console_is_run(self):
        guides = set(re.findall(r'\("([\w-]+)", \d+\)', (staged.ROOT / "Tests/RxdTests/GuideTests.swift").read_text().split("static let guides", 1)[1].split("]", 1)[0]))
        self.assertGreater(len(guides), 10)
        for page, text in pages().items():
            if "\n```console\n" in text and page not in guides:
                self.assertIn(page, CONSOLE_ELSEWHERE)
        for page, path in CONSOLE_ELSEWHERE.items():
            self.assertNotIn(page, guides)
            self.assertTrue((staged.ROOT / path).is_file(), path)

    def test_options_are_those_of_the_program(self):
        """Of all blocks, those that nothing runs too."""
        seen = 0
        for key, block in blocks().items():
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"&&|\|\||;|\|", re.sub(r"(^| )#.*", "", line)):
                    words = part.split()
                    while words and (words[0] in ("sudo", "-u", "rxd-user") or "=" in words[0]):
                        words = words[2:] if words[0] == "-u" else words[1:]
                    if len(words) < 2 or words[0] != "rxd" or not re.fullmatch(r"[a-z-]+", words[1]):
                        continue
                    verb = [words[1]] + [word for word in words[2:3] if words[1] in ("state", "deadletters", "plugin")]
                    text = staged.run(staged.PROGRAM, *verb, "--help")
                    for option in (word.split("=", 1)[0] for word in words if word.startswith("--")):
                        self.assertTrue(re.search(rf"(^|[\s,]){re.escape(option)}\b", text), f"{key}: {part}")
                        seen += 1
        self.assertGreater(seen, 8)


def of(page, *lines):
    """Says which blocks a test runs."""
    def mark(test):
        test.blocks = [(page, line) for line in lines]
        return test
    return mark


@unittest.skipUnless(staged.has("bwrap") and staged.has("systemd-analyze"), "needs bubblewrap and systemd-analyze")
class PageTests(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.end)
        self.blocks = blocks()

    def block(self, page, line):
        return self.machine.run(self.blocks[(page, line)])

    @of("service", "sudo install -m 0644 alert.yaml /etc/rxd/pipelines/", "drop_ins=/usr/share/rxd/systemd",
        "sudo systemd-run --quiet --pipe --uid=rxd --property=SupplementaryGroups=adm head -n 1 /var/log/nginx/access.log",
        "sudoedit /etc/rxd/pipelines/alert.yaml", "sudo -u rxd rxd deadletters list --state-dir /var/lib/rxd")
    def test_the_page_of_the_service(self):
        machine = self.machine
        machine.write("/var/log/nginx/access.log", "a line\n")
        # As the page says: the file of the first pipeline with a whole path. That page adds `follow` to it.
        text, count = re.subn(r"\bpath: access\.log,", "path: /var/log/nginx/access.log, follow: true,", shown("first-pipeline", "alert.yaml"))
        self.assertEqual(count, 1)
        machine.write("alert.yaml", text)
        page = list(key for key in self.blocks if key[0] == "service")
        found = self.block(*page[0])
        self.assertIn("alert.yaml: ok", found)
        self.assertIn("rxd.service: active", found)
        self.assertIn("1 pipeline, 1 running", found)
        self.block(*page[1])
        self.assertIn('"enabled": ["rxd.service"]', machine.run("cat /run/play/state.json"))
        self.assertEqual(self.block(*page[2]), "a line\n")
        self.assertIn("1 pipeline running", self.block(*page[3]) + machine.run("cat /run/play/journal"))
        self.assertIn("alert", self.block(*page[4]))
        # What the page says about a reload with an error, and without any file.
        for change in ("sed -i 's/^sources:/source:/'", "rm"):
            machine.run(f"{change} /etc/rxd/pipelines/alert.yaml")
            status, output = machine.tries("systemctl reload rxd")
            self.assertEqual(status, 1, output)
            self.assertIn("rxd.service: active", machine.run("systemctl status rxd"))
            self.assertIn("1 pipeline, 1 running", machine.run("rxd top --once"))

    @of("install", "sudo tee /etc/rxd/pipelines/hello.yaml << 'END'", "sudo install -D -m 0644 -t /etc/systemd/system/rxd.service.d /usr/share/rxd/systemd/read-logs.conf",
        "sudo install -m 0644 -t /etc/systemd/system /usr/share/rxd/systemd/rxd-syslog-*.socket")
    def test_the_page_of_the_installation(self):
        machine = self.machine
        hello, drop_in, ports = PageTests.test_the_page_of_the_installation.blocks
        self.assertIn("hello", self.block(*hello))
        self.block(*drop_in)
        self.block(*ports)
        self.assertIn("rxd.service: active", machine.run("systemctl status rxd"))
        # A drop-in of which systemd knows nothing yet.
        machine.run("cp /usr/share/rxd/systemd/measure-host.conf /etc/systemd/system/rxd.service.d/")
        status, output = machine.tries("systemctl restart rxd")
        self.assertIn("run 'systemctl daemon-reload'", output)
        self.assertEqual(status, 1)
        machine.run("systemctl daemon-reload; systemctl restart rxd")
        machine.waits("the file of the example", lambda: machine.tries("test -e /var/log/rxd/hello.ndjson")[0] == 0)

    @of("standby", "sudo systemctl enable --now rxd-standby", "sudo -u rxd rxd promote-standby /var/lib/rxd.standby")
    def test_the_units_of_a_standby(self):
        machine = self.machine
        machine.run("mkdir -p /etc/rxd/secrets; echo word > /etc/rxd/secrets/standby-token; chmod 600 /etc/rxd/secrets/standby-token")
        machine.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=second.example -keyout /tmp/key -out /tmp/certificate 2>&1")
        machine.run("cat /tmp/certificate /tmp/key > /etc/rxd/secrets/standby.pem; chmod 600 /etc/rxd/secrets/standby.pem")
        machine.write("/etc/rxd/pipelines/a.yaml", "sources: { ticks: { interval: 1h } }\nsinks: { out: { from: ticks, discard: {} } }\n")
        running, promoted = PageTests.test_the_units_of_a_standby.blocks
        self.block(*running)
        self.assertIn("rxd-standby.service: active", machine.run("systemctl status rxd-standby"))
        self.assertIn("is a state directory now", self.block(*promoted))
        self.assertIn("rxd.service: active", machine.run("systemctl status rxd"))
        pid = json.loads(machine.run("cat /run/play/state.json"))["running"]["rxd.service"]
        self.assertEqual(machine.run("cat /var/lib/rxd.standby/lock"), f"{pid}\n")

    @of("cookbook", "cp pipelines/cookbook/rate-alert.yaml my-alert.yaml", "touch access.log")
    def test_the_page_of_the_cookbook(self):
        machine = self.machine
        machine.run(f"ln -s {staged.ROOT}/pipelines pipelines")
        copy, work = (self.blocks[key] for key in PageTests.test_the_page_of_the_cookbook.blocks)
        *lines, dry = copy.strip().splitlines()
        self.assertIn("2 tests passed", machine.run("\n".join(lines)))
        self.assertTrue(dry.startswith("rxd run --dry-run my-alert.yaml"))
        # It follows a log, so a person ends it.
        machine.run(f"({dry.split('#')[0]}) > dry 2>&1 & echo $! > dry.pid")
        machine.waits("the dry run", lambda: machine.tries("test -d /proc/$(cat dry.pid)")[0] == 0)
        machine.run("kill -INT $(cat dry.pid)")
        # Three terminals.
        machine.write("receiver.yaml", shown("cookbook", "receiver.yaml"))
        machine.run("rxd receiver.yaml > received 2> receiver.log &")
        touch, recipe, *loop = work.strip().splitlines()
        machine.run(f"{touch}; ({recipe}) > recipe.log 2>&1 &")
        machine.waits("the recipe", lambda: "access.log" in machine.tries("ls -l /proc/[0-9]*/fd 2> /dev/null")[1])
        machine.run("\n".join(loop))
        expected = re.search(r"`(/hook \{.*?\})`", pages()["cookbook"])[1]
        machine.waits("the message", lambda: expected in machine.tries("cat received")[1])


if __name__ == "__main__":
    unittest.main()
