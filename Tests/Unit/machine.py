"""A real systemd: the system of this machine, read-only, in a container of systemd-nspawn, with the unit as installed."""
import json
import os
import shutil
import subprocess

from exercise import Failure
from stage import HERE, PREFIX, Missing

CHECK = """\
[Unit]
Description=Looks at rxd.service
Wants=basic.target
After=basic.target
SuccessAction=exit-force
FailureAction=exit-force

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -B /opt/unit/inside.py
StandardOutput=file:/opt/out/report
StandardError=inherit
TimeoutStartSec=400
"""


class Machine:
    def __init__(self, stage):
        self.stage = stage
        if os.geteuid() != 0:
            raise Missing("only root can start a container of systemd-nspawn")
        for program in ["systemd-nspawn", "/lib/systemd/systemd", "/usr/bin/python3"]:
            if not shutil.which(program):
                raise Missing(f"{program} is not installed")

    def run(self):
        out = self.stage.folder / "out"
        out.mkdir()
        check = self.stage.folder / "rxd-check.service"
        check.write_text(CHECK)
        (out / "settings").write_text(json.dumps({"hub": self.stage.environment["HUB"]}))
        binds = {
            self.stage.prefix: PREFIX, self.stage.unit: "/etc/systemd/system/rxd.service",
            self.stage.environment_file: "/etc/default/rxd", self.stage.prefix / "lib/sysusers.d/rxd.conf": "/etc/sysusers.d/rxd.conf",
            check: "/etc/systemd/system/rxd-check.service", HERE: "/opt/unit",
        }
        binds.update({folder: folder for folder in self.stage.libraries()})
        words = [
            "systemd-nspawn", "--quiet", "--directory=/", "--volatile=yes", "--register=no", "--keep-unit", "--private-network",
            f"--machine=rxd-{os.getpid()}", "--console=pipe", f"--bind={out}:/opt/out", f"--bind={self.stage.stage / 'etc/rxd'}:/etc/rxd",
        ]
        words += [f"--bind-ro={outside}:{inside}" for outside, inside in binds.items()]
        words += ["--boot", "systemd.unit=rxd-check.service", "systemd.firstboot=no"]
        # No service of this container may wait for a network.
        words += [f"systemd.mask={name}" for name in ["systemd-networkd-wait-online.service", "NetworkManager-wait-online.service"]]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=480, check=False)
        except subprocess.TimeoutExpired:
            raise Failure("the container has not ended after 480 s") from None
        report = out / "report"
        if not report.exists():
            raise Missing(f"systemd does not start in a container here: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        text = report.read_text(errors="replace")
        if done.returncode != 0 or not text.endswith("passed\n"):
            raise Failure(f"in the container, which has ended with {done.returncode}:\n{text}")
