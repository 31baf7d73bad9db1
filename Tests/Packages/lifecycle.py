"""The life of the packages in a Debian 12 of debootstrap, with systemd as process 1 in a container of systemd-nspawn."""
import json
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
# What systemd needs to start, what the test uses, and what the packages depend on.
INCLUDED = ["systemd", "systemd-sysv", "dbus", "procps", "bsdutils", "python3-minimal", "libpython3-stdlib"]
CHECK = """\
[Unit]
Description=Lives the life of the package
Wants=basic.target systemd-journald.service
After=basic.target
SuccessAction=exit-force
FailureAction=exit-force

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -B /opt/packages/inside.py
StandardOutput=file:/opt/out/report
StandardError=inherit
TimeoutStartSec=900
"""


class Missing(Exception):
    """Something that this machine lacks."""


class Failure(Exception):
    """Something that does not work."""


def output(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(str(word) for word in words)} ends with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def field(package, name):
    return output("dpkg-deb", "--field", package, name).strip()


def named(packages, name):
    return next(path for path in packages if path.name.startswith(name + "_"))


def libraries(rxd):
    """Folders outside of /usr and /lib from which a debug build loads the Swift runtime."""
    paths = [word for line in output("ldd", rxd).splitlines() for word in line.split() if word.startswith("/")]
    folders = {os.path.dirname(path) for path in paths} | {os.path.dirname(os.path.realpath(path)) for path in paths}
    return sorted(folder for folder in folders if not folder.startswith(("/usr/", "/lib")))


def system(folder, packages):
    """A Debian 12 with what the packages depend on, made once."""
    if (folder / "etc/debian_version").exists():
        return folder
    for program in ["debootstrap", "systemd-nspawn"]:
        if not shutil.which(program):
            raise Missing(f"{program} is not installed")
    if os.geteuid() != 0:
        raise Missing("only root can make a Debian and start a container")
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(INCLUDED)}", "bookworm", fresh, MIRROR]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"debootstrap ends with {done.returncode}: {done.stdout[-500:]}")
    needed = set()
    for package in packages:
        for group in field(package, "Depends").split(",") + field(package, "Recommends").split(","):
            name = re.split(r"[\s|(]", group.strip())[0]
            if name and not name.startswith("rxd"):
                needed.add(name)
    output("chroot", fresh, "apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *sorted(needed),
           env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"})
    output("chroot", fresh, "apt-get", "clean")
    fresh.rename(folder)
    return folder


def repacked(package, folder, version, store_format):
    """The package as another version, which reads stores up to another format."""
    work = folder / "repack"
    shutil.rmtree(work, ignore_errors=True)
    output("dpkg-deb", "--raw-extract", package, work)
    control, preinst = work / "DEBIAN/control", work / "DEBIAN/preinst"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.M))
    text = re.sub(r"^VERSION=.*$", f"VERSION={version}", preinst.read_text(), flags=re.M)
    preinst.write_text(re.sub(r"^FORMAT=.*$", f"FORMAT={store_format}", text, flags=re.M))
    target = folder / f"rxd_{version}.deb"
    output("dpkg-deb", "--root-owner-group", "-Znone", "--build", work, target)
    shutil.rmtree(work)
    return target


def run(rxd, packages, scratch, cache):
    """Raises a Failure with the report if a step fails."""
    main = named(packages, "rxd")
    plugin = named(packages, "rxd-plugin-cbor")
    documentation = named(packages, "rxd-doc")
    base = system(cache / "bookworm", [main, plugin])
    root = scratch / "root"
    output("cp", "-a", "--reflink=auto", base, root)
    files = scratch / "packages"
    shutil.copytree(HERE / "pipelines", files / "pipelines")
    shutil.copy(HERE / "inside.py", files)
    version = field(main, "Version")
    # A version before the stores that this one writes: they have pages, and only those with spilled keys a later format.
    with_pages = int(re.search(r"static let versionWithPages: Int64 = (\d+)\n", (ROOT / "Sources/Storage/StoreSchema.swift").read_text())[1])
    reads = re.search(r"^FORMAT=(\d+)$", subprocess.run(
        ["dpkg-deb", "--ctrl-tarfile", main], capture_output=True, check=True).stdout.decode(errors="replace"), re.M)[1]
    old = repacked(main, files, "0.0.9-1", with_pages - 1)
    newer = repacked(main, files, version + "+newer", int(reads))
    for path in [main, plugin, documentation]:
        shutil.copy(path, files)
    (files / "settings.json").write_text(json.dumps({
        "old": "0.0.9-1", "new": version, "old_file": f"/opt/packages/{old.name}", "new_file": f"/opt/packages/{main.name}",
        "newer_file": f"/opt/packages/{newer.name}", "plugin_file": f"/opt/packages/{plugin.name}", "format": with_pages,
        "documentation_file": f"/opt/packages/{documentation.name}"}))
    out = scratch / "out"
    out.mkdir()
    (root / "etc/systemd/system/rxd-check.service").write_text(CHECK)
    words = [
        "systemd-nspawn", "--quiet", f"--directory={root}", "--register=no", "--keep-unit", "--private-network", f"--machine=rxd-{os.getpid()}",
        "--console=pipe", f"--bind={out}:/opt/out", f"--bind-ro={files}:/opt/packages"]
    words += [f"--bind-ro={folder}" for folder in libraries(rxd)]
    words += ["--boot", "systemd.unit=rxd-check.service", "systemd.firstboot=no"]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=900, check=False)
    except subprocess.TimeoutExpired:
        raise Failure("the container has not ended after 900 s") from None
    report = out / "report"
    if not report.exists():
        raise Missing(f"systemd does not start in a container here: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    text = report.read_text(errors="replace")
    if done.returncode != 0 or not text.endswith("passed\n"):
        raise Failure(f"in the container, which has ended with {done.returncode}:\n{text}")
    return text
