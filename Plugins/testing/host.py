"""Loads native plugins and calls their components, for their tests; see host.c.

    plugin = Plugin("build/tools.so")
    with plugin.open("operator", "shorten", field="title") as shorten:
        self.assertEqual(shorten.row({"title": "..."})["event"], ...)
"""

import ctypes
import json
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

OK, DROP, FAILED, RETRY, STOP = range(5)
_HERE = Path(__file__).resolve().parent
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def _build() -> ctypes.CDLL:
    include = os.environ.get("RXD_PLUGIN_INCLUDE", str(_HERE.parent.parent / "Sources/CPlugin/include"))
    target = _HERE / "build" / "host.so"
    sources = [str(_HERE / "host.c"), str(_HERE / "values.c")]
    inputs = [*map(Path, sources), _HERE / "values.h", Path(include) / "rxd_plugin.h"]
    if not target.exists() or target.stat().st_mtime < max(path.stat().st_mtime for path in inputs):
        target.parent.mkdir(exist_ok=True)
        made = target.with_suffix(f".{os.getpid()}")
        subprocess.run(
            ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-fPIC", "-shared",
             f"-I{include}", *sources, "-o", str(made), "-pthread", "-ldl"], check=True)
        made.rename(target)
    return ctypes.CDLL(str(target))


_library = _build()
_pointer, _text = ctypes.c_void_p, ctypes.c_char_p
for _name, _result, _arguments in [
    ("test_free", None, [_pointer]),
    ("test_load", _pointer, [_text, ctypes.POINTER(_pointer)]),
    ("test_spec", _pointer, [_pointer]),
    ("test_open", _pointer, [_pointer, _text, _text, _text, _text, ctypes.c_size_t, ctypes.c_uint32, _text,
                             ctypes.c_size_t, ctypes.POINTER(_pointer)]),
    ("test_close", None, [_pointer]),
    ("test_log", _pointer, [_pointer]),
    ("test_row", _pointer, [_pointer, _text, _text, ctypes.c_int]),
    ("test_row_of_bytes", _pointer, [_pointer, _text, ctypes.c_size_t]),
    ("test_process", _pointer, [_pointer, _text, ctypes.c_int64]),
    ("test_write", _pointer, [_pointer, _text]),
    ("test_save", _pointer, [_pointer, ctypes.POINTER(ctypes.c_size_t)]),
    ("test_begin_closing", None, [_pointer]),
    ("test_begin_source", None, [_pointer, ctypes.c_int64]),
    ("test_run", _pointer, [_pointer]),
    ("test_take", _pointer, [_pointer, ctypes.c_double]),
    ("test_credit", None, [_pointer, ctypes.c_int64]),
    ("test_acknowledge", None, [_pointer, ctypes.c_uint64, ctypes.c_int]),
    ("test_stop", None, [_pointer]),
]:
    getattr(_library, _name).restype = _result
    getattr(_library, _name).argtypes = _arguments


def _take(pointer: int | None) -> str:
    """The text at `pointer`, which is freed."""
    if not pointer:
        return ""
    text = ctypes.string_at(pointer).decode()
    _library.test_free(pointer)
    return text


class Refused(Exception):
    """`open` or the start of the plugin failed. `at`: the location in the parameters."""

    def __init__(self, message: str, at: str = ""):
        super().__init__(message)
        self.at = at


# For `write` and `process`: an argument that the pipeline file omits.
ABSENT = {"$absent": 0}


def duration(nanoseconds: int) -> dict[str, int]:
    return {"$duration": nanoseconds}


def _to_json(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {"$hex": value.hex()}
    raise TypeError(f"{type(value).__name__} is no value")


def _extended(value: Any) -> Any:
    """JSON has neither bytes nor non-finite numbers."""
    if isinstance(value, (bytes, bytearray)):
        return {"$hex": value.hex()}
    if isinstance(value, float):
        return {"$double": repr(value)}
    if isinstance(value, dict):
        return {name: _extended(member) for name, member in value.items()}
    return [_extended(element) for element in value] if isinstance(value, (list, tuple)) else value


def _from_json(value: dict[str, Any]) -> Any:
    if len(value) == 1 and "$hex" in value:
        return bytes.fromhex(value["$hex"])
    return float(value["$double"]) if len(value) == 1 and "$double" in value else value


def _typed(value: Any, kind: str) -> Any:
    """A parameter in the form in which rxd passes it."""
    if kind == "duration" and isinstance(value, str):
        number, unit = re.fullmatch(r"(\d+)([a-z]+)", value).groups()
        return duration(int(number) * _UNITS[unit])
    if kind == "size" and isinstance(value, str):
        number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", value).groups()
        return int(number) * _SIZES[unit]
    if kind == "list" and not isinstance(value, list):
        return [value]
    return value


class Plugin:
    def __init__(self, path: str | Path):
        problem = _pointer()
        self._plugin = _library.test_load(str(path).encode(), ctypes.byref(problem))
        if not self._plugin:
            raise Refused(_take(problem.value))
        self.spec = json.loads(_take(_library.test_spec(self._plugin)))

    def component(self, kind: str, name: str) -> dict[str, Any]:
        return next(c for c in self.spec["components"] if (c["kind"], c["name"]) == (kind, name))

    def open(self, kind: str, name: str, state: bytes | None = None, position: bytes | None = None,
             **parameters: Any) -> "Instance":
        spec = self.component(kind, name)
        values = {}
        for parameter in spec.get("parameters", []):
            key = parameter["name"]
            if parameter["type"] in ("expression", "template"):
                continue
            if key in parameters or "default" in parameter:
                values[key] = _typed(parameters.pop(key, parameter.get("default")), parameter["type"])
            elif parameter.get("required"):
                raise KeyError(key)
        if parameters:
            raise KeyError(f"no parameters {list(parameters)}")
        problem = _pointer()
        version = spec.get("state", {}).get("version", 0)
        handle = _library.test_open(
            self._plugin, kind.encode(), name.encode(), json.dumps(values).encode(), state, len(state or b""), version,
            position, len(position or b""), ctypes.byref(problem))
        if not handle:
            at, message = _take(problem.value).split("\n", 1)
            raise Refused(message, at)
        return Instance(handle)


class Instance:
    def __init__(self, handle: int):
        self._handle = handle
        self._thread: threading.Thread | None = None
        self.end: dict[str, Any] | None = None

    def __enter__(self) -> "Instance":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._thread:
            self.stop()
        _library.test_close(self._handle)

    def log(self) -> list[str]:
        """The lines logged, counted and gauged since the last call: "warning message", "count name by", "gauge name of value"."""
        return _take(_library.test_log(self._handle)).splitlines()

    def row(self, event: Any, *arguments: Any) -> dict[str, Any]:
        given = (json.dumps(event, default=_to_json).encode(), json.dumps(arguments, default=_to_json).encode())
        return json.loads(_take(_library.test_row(self._handle, *given, 0)))

    def row_typed(self, event: Any, *arguments: Any) -> dict[str, Any]:
        """Like `row`, but bytes and numbers with a fraction are returned unchanged, times and durations as {"$timestamp": N}
        and {"$duration": N}; `event` may contain all of these."""
        given = (json.dumps(_extended(event)).encode(), json.dumps(_extended(arguments)).encode())
        return json.loads(_take(_library.test_row(self._handle, *given, 1)), object_hook=_from_json)

    def row_of_bytes(self, data: bytes) -> dict[str, Any]:
        """Like `row_typed` for bytes, which are the event of a decoder and the argument of a function."""
        return json.loads(_take(_library.test_row_of_bytes(self._handle, data, len(data))), object_hook=_from_json)

    def process(self, *inputs: dict[str, Any], at: int = 0) -> dict[str, Any]:
        return json.loads(_take(_library.test_process(self._handle, json.dumps(inputs).encode(), at)))

    def process_events(self, *events: Any) -> dict[str, Any]:
        return self.process(*({"event": event} for event in events))

    def write(self, *events: Any, arguments: list[list[Any]] | None = None) -> dict[str, Any]:
        inputs = [{"event": event} for event in events]
        for item, with_ in zip(inputs, arguments or []):
            item["with"] = with_
        return json.loads(_take(_library.test_write(self._handle, json.dumps(inputs).encode())))

    def save(self) -> bytes | None:
        count = ctypes.c_size_t()
        pointer = _library.test_save(self._handle, ctypes.byref(count))
        if not pointer:
            return None
        state = ctypes.string_at(pointer, count.value)
        _library.test_free(pointer)
        return state

    def begin_closing(self) -> None:
        """Nothing waits for its results any more."""
        _library.test_begin_closing(self._handle)

    # For sources.

    def start(self, credit: int = 1024) -> None:
        _library.test_begin_source(self._handle, credit)

        def run() -> None:
            self.end = json.loads(_take(_library.test_run(self._handle)))

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def take(self, seconds: float = 5) -> tuple[list[dict[str, Any]], bytes] | None:
        """The next batch, as ({"event", "token"}, perhaps "name", of each, the position after it); None after `seconds`."""
        text = _take(_library.test_take(self._handle, seconds))
        if not text:
            return None
        batch = json.loads(text)
        return batch["events"], bytes.fromhex(batch["position"])

    def credit(self, count: int) -> None:
        _library.test_credit(self._handle, count)

    def acknowledge(self, token: int, failed: bool = False) -> None:
        _library.test_acknowledge(self._handle, token, failed)

    @property
    def has_ended(self) -> bool:
        return self.end is not None

    def begin_stop(self) -> None:
        """Asks the source to stop."""
        _library.test_stop(self._handle)

    def stop(self, seconds: float = 10) -> dict[str, Any]:
        """Asks the source to stop and waits for its end."""
        self.begin_stop()
        return self.join(seconds)

    def join(self, seconds: float = 10) -> dict[str, Any]:
        assert self._thread is not None
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError("the source does not end")
        assert self.end is not None
        return self.end
