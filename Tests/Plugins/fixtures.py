"""Paths, and small programs that keep or break the contract."""
import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SDK = os.path.join(ROOT, "Plugins", "python")
EXAMPLES = os.path.join(ROOT, "Plugins", "examples")
# Compiled once for all processes, with no files left in the tree; without site packages, which may take longer to load than everything
# else.
CACHE = tempfile.mkdtemp(prefix="rxd-plugin-cache-")
atexit.register(shutil.rmtree, CACHE, True)
PYTHON = [os.environ.get("PLUGIN_PYTHON", sys.executable), "-S", "-X", f"pycache_prefix={CACHE}"]
sys.path[:0] = [HERE]

# An operator without the SDK. `answer(frame)` may be replaced, and receives a frame with an id.
BARE = r"""
import json, os, sys, time
COMPONENT = {"kind": "operator", "name": "bare", "summary": "A test."}
def write(frame):
    print(json.dumps(frame), flush=True)
def answer(frame):
    write({"id": frame["id"], **({"events": [frame["event"]]} if "event" in frame else {})})
def opened(frame):
    write({"opened": frame["open"]})
def ping(frame):
    write({"pong": frame["ping"]})
def end():
    pass
%s
for line in sys.stdin:
    frame = json.loads(line)
    if "hello" in frame:
        write({"spec": {"plugin": "bare", "version": "1", "summary": "A test.", "components": [COMPONENT]}})
    elif "open" in frame:
        opened(frame)
    elif "ping" in frame:
        ping(frame)
    elif "id" in frame:
        answer(frame)
end()
"""

# A plugin with the SDK; %s stands for its components.
WITH_SDK = f"""
import os, sys, time
sys.path.insert(0, {SDK!r})
from rxd_plugin import *
plugin = Plugin("test", "1.0.0", "A test.")
%s
plugin.run()
"""


def bare(code):
    return [*PYTHON, "-c", BARE % code]


def with_sdk(code):
    return [*PYTHON, "-c", WITH_SDK % code]


def python_example(name):
    return [*PYTHON, os.path.join(EXAMPLES, "python", name)]


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


@contextlib.contextmanager
def script(code):
    """A file with this code."""
    with tempfile.TemporaryDirectory(prefix="rxd-plugin-") as directory:
        path = os.path.join(directory, "plugin.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(code)
        yield path
