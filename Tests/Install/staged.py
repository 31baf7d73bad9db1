"""An installation in a stage, made once for all tests."""
import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("RXD") or ROOT / ".build/release/rxd").resolve()
PREFIX = "/usr"

sys.dont_write_bytecode = True


def run(*words, **options):
    """The output of a program, which must succeed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(str(word) for word in words)} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def install(verb="install", **variables):
    words = [f"{name}={value}" for name, value in variables.items()]
    return run("make", "-s", "-C", ROOT, verb, f"RXD={PROGRAM}", *words)


def files(folder):
    """Paths below a folder, directories with a slash at their end."""
    return sorted(
        "/" + str(path.relative_to(folder)) + ("/" if path.is_dir() and not path.is_symlink() else "") for path in folder.rglob("*"))


def scratch():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rxd-install-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, True)
    return folder


_stage = None


def stage():
    """The folder of an installation with DESTDIR and PREFIX=/usr."""
    global _stage
    if _stage is None:
        _stage = scratch() / "stage"
        install(DESTDIR=_stage, PREFIX=PREFIX)
    return _stage


def has(program):
    return shutil.which(program) is not None
