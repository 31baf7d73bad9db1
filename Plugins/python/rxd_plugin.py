"""Write plugins for rxd in Python: operators, sources and sinks. One file, Python 3.9 or newer, no dependencies.

Copy this file next to your plugin::

    from rxd_plugin import Example, Plugin, integer, text

    plugin = Plugin("text-tools", "1.0.0", "Small operators on texts.")

    @plugin.operator(examples=[
        Example("a headline", {"field": "title", "to": 6}, [{"title": "Twenty Thousand"}], [{"title": "Twenty"}])])
    def shorten(event, field: str = text("The field to cut.", primary=True, required=True),
                to: int = integer("The most characters that stay.", default=80, minimum=1)):
        \"\"\"Cuts a text of the event after a number of characters.\"\"\"
        return {**event, field: event[field][:to]}

    plugin.run()

``python3 plugin.py --spec`` prints what rxd learns of the plugin, ``python3 plugin.py --test`` runs the examples and checks
the protocol. The docstring is the summary (first paragraph, one sentence with a full stop) and the details (the rest).

A parameter is declared once: as the default value of an argument of a function, or of an attribute of a class. Its name in
pipeline files is its Python name in camel case: ``max_length`` is ``maxLength``, ``from_`` is ``from``. Durations are
seconds, sizes bytes; expressions and templates are passed as their results for the current event.

Output that user code prints goes to the log of rxd, never into the protocol. An exception raised by an operator becomes the error of
that event; see `Reject`, `Retry`, `Sink` and `Source` for the others.
"""
from __future__ import annotations

import base64
import datetime
import json
import logging
import math
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from types import GeneratorType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

__all__ = [
    "BadParameter", "Error", "Example", "Finish", "Item", "Operator", "Pause", "Plugin", "Record", "Reject", "Retry", "Sink", "Source",
    "With", "boolean", "choice", "count", "duration", "expression", "gauge", "integer", "json_value", "list_of", "log", "number",
    "secret", "size", "table_of", "template", "text"]

CONTRACT = 1
_FRAME_BYTES = 16 << 20  # bytes of a frame with its line feed
_FLUSH_BYTES = 1 << 16
_FLUSH_SECONDS = 0.005
_TEST_SECONDS = 10.0  # seconds for which --test waits for a frame
_LEVELS = ("debug", "info", "warning", "error")

# ---- Failures ----


class Reject(Exception):
    """This event cannot be processed: it goes to the errors output with this reason. Any other exception does the same and is also
    logged with its location in the code."""


class Retry(Exception):
    """For sinks: this event and all later ones are to be delivered again later. `OSError` (no connection, a full disk, a time-out)
    does the same. `delivered`: how many records at the start of a batch are delivered."""

    def __init__(self, message: str, delivered: int = 0) -> None:
        super().__init__(message)
        self.delivered = delivered


class Finish(Exception):
    """Raised by an operator: its output completes after the given events and those that were yielded before. Its input is
    cancelled, and it receives nothing more. In `open`: before the first event."""

    def __init__(self, *events: Any) -> None:
        super().__init__("the output is complete")
        self.events = events


class BadParameter(Exception):
    """Raised in `open`: the parameters are invalid. `at`: the location, such as ``"field"`` or ``"server.port"``."""

    def __init__(self, message: str, at: str = "") -> None:
        super().__init__(message)
        self.at = at


# ---- Parameters ----


class Parameter:
    """The result of the functions below. `spec` is the parameter as it appears in the spec."""

    def __init__(self, kind: str, help: str, **members: Any) -> None:
        if not help.endswith("."):
            raise ValueError(f"the help of a parameter is a sentence with a full stop: {help!r}")
        self.kind = kind
        self.members = {name: value for name, value in members.items() if value is not None and value is not False}
        if "default" in members and members["default"] is False:
            self.members["default"] = False
        if self.members.get("required") and "default" in self.members:
            raise ValueError("a required parameter has no default")
        self.help = help
        self.is_per_event = kind in ("expression", "template")

    def spec(self, name: str) -> Dict[str, Any]:
        return {"name": name, "type": self.kind, **self.members, "help": self.help}

    def value(self, value: Any) -> Any:
        """The value that user code receives for a value of the protocol."""
        return self._converted(self.kind, value)

    def _converted(self, kind: str, value: Any) -> Any:
        of = self.members.get("of", "")
        if kind == "duration" and value is not None:
            return value / 1e9
        if kind == "list" and of == "duration":
            return [self._converted(of, element) for element in value or []]
        if kind == "table" and of == "duration":
            return {name: self._converted(of, element) for name, element in (value or {}).items()}
        return value


# Each returns Any, so that `to: int = integer(...)` is well typed.


def boolean(help: str, *, default: Optional[bool] = None, required: bool = False, primary: bool = False) -> Any:
    """True or false."""
    return Parameter("boolean", help, required=required, primary=primary, default=default)


def integer(help: str, *, default: Optional[int] = None, minimum: Optional[int] = None, maximum: Optional[int] = None,
            required: bool = False, primary: bool = False) -> Any:
    """A whole number; the range is inclusive."""
    return Parameter("integer", help, required=required, primary=primary, default=default, minimum=minimum, maximum=maximum)


def number(help: str, *, default: Optional[float] = None, required: bool = False, primary: bool = False) -> Any:
    """A number; a float."""
    return Parameter("number", help, required=required, primary=primary, default=default)


def text(help: str, *, default: Optional[str] = None, required: bool = False, primary: bool = False) -> Any:
    """A text."""
    return Parameter("text", help, required=required, primary=primary, default=default)


def secret(help: str, *, required: bool = False, primary: bool = False) -> Any:
    """A text that rxd never shows. Do not log it."""
    return Parameter("secret", help, required=required, primary=primary)


def duration(help: str, *, default: Optional[str] = None, minimum: Optional[str] = None, maximum: Optional[str] = None,
             required: bool = False, primary: bool = False) -> Any:
    """Seconds, a float. Default and range are written as in pipeline files: ``"300ms"``."""
    return Parameter("duration", help, required=required, primary=primary, default=default, minimum=minimum, maximum=maximum)


def size(help: str, *, default: Optional[str] = None, required: bool = False, primary: bool = False) -> Any:
    """Bytes, an int. The default is written as in pipeline files: ``"64KiB"``."""
    return Parameter("size", help, required=required, primary=primary, default=default)


def json_value(help: str, *, default: Any = None, required: bool = False, primary: bool = False) -> Any:
    """Any value."""
    return Parameter("json", help, required=required, primary=primary, default=default)


def choice(help: str, choices: Mapping[str, str], *, default: Optional[str] = None, required: bool = False,
           primary: bool = False) -> Any:
    """One of some names, each with its own help."""
    listed = [{"name": name, "help": its} for name, its in choices.items()]
    return Parameter("choice", help, required=required, primary=primary, default=default, choices=listed)


def list_of(of: str, help: str, *, default: Optional[Sequence[Any]] = None, required: bool = False,
            primary: bool = False) -> Any:
    """A list; `of`: the type of its elements: boolean, integer, number, text, secret, duration, size or json."""
    return Parameter("list", help, of=of, required=required, primary=primary, default=default)


def table_of(of: str, help: str, *, default: Optional[Mapping[str, Any]] = None, required: bool = False,
             primary: bool = False) -> Any:
    """Names with values, a dict; `of` as for `list_of`."""
    return Parameter("table", help, of=of, required=required, primary=primary, default=default)


def expression(help: str, *, result: Optional[str] = None, default: Optional[str] = None, required: bool = False,
               primary: bool = False) -> Any:
    """An expression that rxd evaluates for each event; user code receives its result. `result`: the required type, such as
    ``"string"``; any type by default."""
    return Parameter("expression", help, required=required, primary=primary, default=default, result=result)


def template(help: str, *, default: Optional[str] = None, required: bool = False, primary: bool = False) -> Any:
    """A text with ``{{ expressions }}`` that rxd fills for each event; user code receives the text."""
    return Parameter("template", help, required=required, primary=primary, default=default)


# ---- Components ----


class Operator:
    """Base class of operators with state, timers or setup. One instance is one step of a running pipeline; parameters are
    attributes, set before `open`.

    `process`, `timer` and `complete` return one event, or None for none, or yield any number of events. They run one at a time, in the
    order of the input. `now`: the time of the input in seconds since 1970 on the clock of the pipeline, which is virtual in tests;
    requires ``clock=True`` in the declaration of the operator. `raise Finish(event)` completes the output."""

    is_test = False
    now = 0.0
    _timers: Dict[str, Optional[float]]

    def open(self) -> None:
        """Prepares the instance; raise `BadParameter` if the parameters are invalid."""

    def process(self, event: Any) -> Any:
        raise NotImplementedError("an operator has a method process(self, event)")

    def timer(self, name: str) -> Any:
        """A timer that `set_timer` has set is due. Timers survive a restart: rxd keeps them."""

    def complete(self) -> Any:
        """The input has completed; only `close` is called after this."""

    def save(self) -> Any:
        """The state, any JSON value, below 16 MiB of text."""

    def restore(self, state: Any, version: int) -> None:
        """Restores a result of `save`, perhaps one of an older version of the component. Called after `open`."""

    def close(self) -> None:
        """The instance is no longer used; nothing is called after this."""

    def set_timer(self, name: str, seconds: float) -> None:
        """`timer(name)` is called after this many seconds; setting it again moves it."""
        self._timers[name] = seconds

    def cancel_timer(self, name: str) -> None:
        self._timers[name] = None


class Record:
    """An event in a batch of a sink. `arguments`: results of expressions and templates, by Python name."""

    __slots__ = ("event", "arguments", "refused", "_id")

    def __init__(self, ident: int, event: Any, arguments: Dict[str, Any]) -> None:
        self._id, self.event, self.arguments = ident, event, arguments
        self.refused: Optional[str] = None

    def refuse(self, message: str) -> None:
        """This event can never be delivered: it goes to the errors output with this reason."""
        self.refused = message


class Sink:
    """Base class of sinks. Implement `write` (one event at a time) or `write_batch`. When it returns, the events are delivered.
    `Retry` and `OSError`: they are passed again later, after an increasing pause. `Reject` and every other exception: the event is
    refused permanently and goes to the errors output; in a batch, only an event that also fails alone."""

    is_test = False
    batch_size = 1000

    def open(self) -> None:
        """Prepares the instance; raise `BadParameter` if the parameters are invalid."""

    def write(self, event: Any) -> None:
        raise NotImplementedError("a sink has a method write(self, event) or write_batch(self, records)")

    def write_batch(self, records: List[Record]) -> None:
        """Delivers up to `batch_size` records, in order; `record.refuse` removes one. Called when the batch is full or no further
        event waits. If it raises anything other than `Retry` and `OSError`, the records are passed again one at a time, including
        those that were written before it raised: refuse single events with `record.refuse`, or write in a transaction."""
        raise NotImplementedError

    def complete(self) -> None:
        """Everything has been written; nothing follows."""

    def close(self) -> None:
        """The instance is no longer used; nothing is called after this."""


class Item:
    """An event that a source yields with a token, a position or a name.

    `token`: any number of 0 or above; `acknowledged` or `failed` receive it when rxd knows the outcome of the event. `position`: any
    JSON value; after a restart `position` of the source is the newest saved one, and the source continues after it. `name`: a text
    that the event has each time the source sends it, and no other event; for a source with ``names=True``."""

    __slots__ = ("event", "token", "position", "name")

    def __init__(self, event: Any, token: Optional[int] = None, position: Any = None, name: Optional[str] = None) -> None:
        self.event, self.token, self.position, self.name = event, token, position, name


class Source:
    """Base class of sources. `run` yields events or `Item`s, on its own thread; a yield waits while rxd accepts no events. Its end
    is the end of the signal, an exception is its failure. At a stop the generator is not resumed; when all tokens are settled it is
    closed, so ``finally`` can close connections."""

    is_test = False
    position: Any = None
    _runner: "_SourceRunner"

    def open(self) -> None:
        """Prepares the instance; raise `BadParameter` if the parameters are invalid."""

    def run(self) -> Iterator[Any]:
        raise NotImplementedError("a source has a method run(self) that yields events")

    def acknowledged(self, tokens: List[int]) -> None:
        """Everything that these events caused is delivered, or on disk. Called on the thread of `run`, at a yield or in `wait`."""

    def failed(self, tokens: List[int], reason: str) -> None:
        """These events could not be delivered. Called like `acknowledged`."""

    def close(self) -> None:
        """The source sends nothing more; nothing is called after this."""

    @property
    def is_stopping(self) -> bool:
        return self._runner.is_stopping

    def wait(self, seconds: float, *files: Any) -> List[Any]:
        """Waits this long, or until one of `files` is readable or the source is to stop; returns the readable ones. Use it instead
        of `time.sleep`: acknowledgements are delivered meanwhile."""
        return self._runner.wait(seconds, files)


# ---- Log and counters ----


def log(level: str, message: str) -> None:
    """Writes a line to rxd's log; level: debug, info, warning or error. The module `logging` does the same."""
    session = _Session.current
    if session is None or level not in _LEVELS:
        sys.stderr.write(f"{level}: {message}\n")
    else:
        session.log(level, message)


def count(name: str, by: int = 1) -> None:
    """Adds to a counter of this step, shown with its other counters."""
    if _Session.current is not None:
        _Session.current.count(name, by)


def gauge(name: str, value: Optional[float], of: str = "") -> None:
    """Sets a value of this instance that rises and falls, such as a lag; None removes it. `of` tells values of one name apart, such
    as a partition. rxd adds up what the instances of a step set."""
    if _Session.current is not None:
        _Session.current.gauge(name, value, of)


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log(_LEVELS[min(max(record.levelno // 10 - 1, 0), 3)], self.format(record))


# ---- Examples ----


class With:
    """An input of an example with the results of expressions and templates: ``With({"a": 1}, key="x")``. Not needed for
    expressions such as ``event.path``."""

    def __init__(self, event: Any, **arguments: Any) -> None:
        self.event, self.arguments = event, arguments


class Pause:
    """This many seconds without an event; timers that are due run."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Error:
    """An expected rejection whose reason contains this text."""

    def __init__(self, message: str = "") -> None:
        self.message = message


class Example:
    """An example for the reference page, and a test: these inputs must give exactly these outputs.

    `parameters`: as in a pipeline file, durations as texts. Inputs of operators and sinks: events, `With`, `Pause`. Outputs: events
    and `Error`s. A source is stopped after the last output. `given`: files (name: text) in the working directory of the test; `files`:
    their required contents afterwards."""

    def __init__(self, title: str, parameters: Mapping[str, Any], inputs: Iterable[Any] = (), outputs: Iterable[Any] = (), *,
                 given: Optional[Mapping[str, str]] = None, files: Optional[Mapping[str, str]] = None) -> None:
        self.title, self.parameters = title, dict(parameters)
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.given, self.files = dict(given or {}), dict(files or {})


# ---- The plugin ----


class _Component:
    """A declared component: its entry in the spec and how an instance is created."""

    def __init__(self, kind: str, target: Any, name: Optional[str], examples: Iterable[Example],
                 members: Dict[str, Any]) -> None:
        self.kind, self.target, self.examples = kind, target, list(examples)
        base: Type[Any] = {"operator": Operator, "source": Source, "sink": Sink}[kind]
        self.is_class = isinstance(target, type)
        if self.is_class and not issubclass(target, base):
            raise TypeError(f"{target.__name__} must be a subclass of {base.__name__}")
        self.name = name or _camel(target.__name__[0].lower() + target.__name__[1:])
        if not re.fullmatch(r"[a-z][A-Za-z0-9]*", self.name):
            raise ValueError(f"the name of a component has letters and digits and begins with a lower-case letter: {self.name!r}")
        paragraphs = _without_margin(target.__doc__ or "").split("\n\n", 1)
        summary = " ".join(paragraphs[0].split())
        if not summary.endswith("."):
            raise ValueError(f"the docstring of {self.name} begins with a sentence with a full stop: {summary!r}")
        self.parameters: Dict[str, Parameter] = self._declared()
        self.python_names = {_camel(name): name for name in self.parameters}
        self.per_event = {_camel(name): name for name, its in self.parameters.items() if its.is_per_event}
        self.spec: Dict[str, Any] = {"kind": kind, "name": self.name, "summary": summary}
        if len(paragraphs) > 1:
            self.spec["details"] = paragraphs[1]
        self.spec["parameters"] = [its.spec(_camel(name)) for name, its in self.parameters.items()]
        if self.is_class and kind == "operator":
            if target.save is not Operator.save:
                self.spec["state"] = {"version": members.get("state_version", 1)}
            if target.timer is not Operator.timer:
                self.spec["timers"] = True
        for key, value in members.items():
            if value is not None and key != "state_version":
                self.spec[_camel(key)] = value
        unknown = [key for example in self.examples for key in example.parameters if key not in self.python_names]
        if unknown:
            raise ValueError(f"an example of {self.name} has a parameter that is not declared: {unknown[0]!r}")
        self.spec["examples"] = [{"title": e.title, "yaml": self._yaml(e.parameters)} for e in self.examples]
        self.state_version: int = self.spec.get("state", {}).get("version", 0)

    def _declared(self) -> Dict[str, Parameter]:
        if not self.is_class:
            code, defaults = self.target.__code__, self.target.__defaults__ or ()
            names = code.co_varnames[:code.co_argcount]
            found = dict(zip(names[len(names) - len(defaults):], defaults))
            found.update(self.target.__kwdefaults__ or {})
            return {name: value for name, value in found.items() if isinstance(value, Parameter)}
        found = {}
        for base in reversed(self.target.__mro__):
            found.update({name: value for name, value in vars(base).items() if isinstance(value, Parameter)})
        return found

    def _yaml(self, parameters: Mapping[str, Any]) -> str:
        if not parameters:
            return self.name if self.kind == "operator" else f"{self.name}: {{}}"
        key = next(iter(parameters))
        if len(parameters) == 1 and self.parameters[self.python_names[key]].members.get("primary"):
            return f"{self.name}: {_yaml_text(parameters[key])}"
        return f"{self.name}: {_yaml_text(dict(parameters))}"

    def values(self, given: Mapping[str, Any]) -> Dict[str, Any]:
        """Values of all parameters that do not depend on an event, by Python name."""
        return {name: its.value(given.get(_camel(name))) for name, its in self.parameters.items() if not its.is_per_event}


class Plugin:
    """A plugin. `name`: letters, digits, ``-``, ``_``; `summary`: one sentence with a full stop; `uses`: further files that belong
    to the plugin, such as a module that it imports, relative to the directory of its file: a change of one is a change of the
    plugin."""

    def __init__(self, name: str, version: str, summary: str, uses: Iterable[str] = ()) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"the name of a plugin has letters, digits, '-' and '_': {name!r}")
        if not summary.endswith("."):
            raise ValueError(f"the summary is a sentence with a full stop: {summary!r}")
        self.name, self.version, self.summary, self.uses = name, version, summary, list(uses)
        self.components: List[_Component] = []

    def operator(self, target: Any = None, *, name: Optional[str] = None, examples: Iterable[Example] = (),
                 input: Any = None, output: Any = None, memory: Optional[str] = None, state_version: int = 1,
                 clock: Optional[bool] = None, credit: Optional[int] = None, known_as: Optional[List[str]] = None,
                 see_also: Optional[List[str]] = None) -> Any:
        """Declares an operator: a function of an event and of parameters, which returns one event, or None for none, or yields any
        number; or a subclass of `Operator`. `input`, `output`: JSON Schemas of the events; `memory`: one sentence on the data that
        it keeps; `state_version`: the version of the result of `save`; `credit`: how many events it receives ahead."""
        members = {"input": input, "output": output, "memory": memory, "state_version": state_version, "clock": clock,
                   "credit": credit, "known_as": known_as, "see_also": see_also}
        return self._declare("operator", target, name, examples, members)

    def source(self, target: Any = None, *, name: Optional[str] = None, examples: Iterable[Example] = (), output: Any = None,
               recovery: Optional[str] = None, names: Optional[bool] = None,
               when: Optional[List[Mapping[str, Any]]] = None, known_as: Optional[List[str]] = None,
               see_also: Optional[List[str]] = None) -> Any:
        """Declares a source: a generator function, or a subclass of `Source`. `recovery`: how its events are repeated after a
        crash: ``never``, ``sender`` (with tokens), ``request``, ``position`` (with positions). `names`: whether each event is an
        `Item` with a name. `when`: for a recovery that depends on a parameter: ``[{"parameter": "qos", "is": 0, "recovery":
        "never"}]``, with names as in pipeline files."""
        members = {"output": output, "recovery": recovery, "names": names, "when": when, "known_as": known_as,
                   "see_also": see_also}
        return self._declare("source", target, name, examples, members)

    def sink(self, target: Any = None, *, name: Optional[str] = None, examples: Iterable[Example] = (), input: Any = None,
             confirmation: Optional[str] = None, when: Optional[List[Mapping[str, Any]]] = None, credit: Optional[int] = None,
             known_as: Optional[List[str]] = None, see_also: Optional[List[str]] = None) -> Any:
        """Declares a sink: a function of an event and of parameters, or a subclass of `Sink`. `confirmation`: how far a delivered
        event is secured: ``nothing``, ``system``, ``disk``, ``receiver``. `when`: for a confirmation that depends on a parameter:
        ``[{"parameter": "sync", "is": False, "confirmation": "system"}]``, with names as in pipeline files."""
        members = {"input": input, "confirmation": confirmation, "when": when, "credit": credit, "known_as": known_as,
                   "see_also": see_also}
        return self._declare("sink", target, name, examples, members)

    def _declare(self, kind: str, target: Any, name: Optional[str], examples: Iterable[Example],
                 members: Dict[str, Any]) -> Any:
        def declared(target: Any) -> Any:
            self.components.append(_Component(kind, target, name, examples, members))
            return target
        return declared if target is None else declared(target)

    @property
    def spec(self) -> Dict[str, Any]:
        """The spec, as rxd receives it."""
        return {"plugin": self.name, "version": self.version, "summary": self.summary, "contract": CONTRACT,
                **({"uses": self.uses} if self.uses else {}), "components": [component.spec for component in self.components]}

    def run(self) -> None:
        """Serves rxd on the standard streams until rxd closes them; with ``--spec`` or ``--test`` does that instead."""
        arguments = sys.argv[1:]
        if arguments == ["--spec"]:
            print(json.dumps(self.spec, indent=2, ensure_ascii=False))
        elif arguments == ["--test"]:
            sys.exit(_Tests(self).run())
        elif sys.stdin.isatty():
            sys.exit(f"{self.name} is a plugin of rxd, which starts it. Try it with --test, or --spec.")
        else:
            try:
                _Session(self).serve()
            except BrokenPipeError:
                pass  # rxd has ended


def _camel(name: str) -> str:
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _without_margin(text: str) -> str:
    """A docstring without the indentation of the code."""
    first, *rest = text.strip().expandtabs().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return "\n".join([first, *(line[margin:].rstrip() for line in rest)])


def _yaml_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_yaml_text(k)}: {_yaml_text(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_yaml_text, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9./_][A-Za-z0-9./_ +()-]*[A-Za-z0-9/_)]|[A-Za-z]", value):
        if not re.fullmatch(r"true|false|null|yes|no|on|off|y|n|[0-9._+-]+|0[xob].*|[0-9.]+e.*", value, re.I):
            return value
    return json.dumps(value, ensure_ascii=False)


# ---- JSON ----


def _other(value: Any) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"an event has a value that is no JSON, of type {type(value).__name__}")


def _make_encoder() -> Callable[[Any], str]:
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_other)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    text_encoder: Any = getattr(json.encoder, "encode_basestring", None)
    if make is None or text_encoder is None:
        return encoder.encode
    # encoder.encode creates this for each value.
    encode: Any = make(None, _other, text_encoder, None, ":", ",", False, False, False)

    def encoded(value: Any) -> str:
        return "".join(encode(value, 0))
    try:
        if encoded({"a": [1, "ä", None]}) == encoder.encode({"a": [1, "ä", None]}):
            return encoded
    except Exception:
        pass
    return encoder.encode


_encode = _make_encoder()
_SURROGATE = re.compile("[\ud800-\udfff]")


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return _SURROGATE.sub("\ufffd", text).encode()


def _fits(text: str) -> bool:
    return len(text) < _FRAME_BYTES // 4 or len(_bytes(text)) < _FRAME_BYTES - 256


# ---- The protocol ----


class _Session:
    """The standard streams, the instances and the unwritten frames. One thread reads and runs operators and sinks; each source has
    its own thread."""

    current: Optional["_Session"] = None

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.components = {(c.kind, c.name): c for c in plugin.components}
        self.instances: Dict[int, _Runner] = {}
        self.waiting: Optional[_SinkRunner] = None  # holds unanswered records
        self.lock = threading.Lock()
        self.parts: List[str] = []
        self.bytes = 0
        self.flushed_at = 0.0
        self.counters: Dict[Tuple[int, str], int] = {}
        self.gauges: Dict[Tuple[int, str, str], Optional[float]] = {}
        self.through = 0  # all ids up to this one are delivered; 0: nothing to report
        self.complaints: Dict[str, int] = {}
        self.local = threading.local()
        # Output of user code and its child processes must not enter the protocol, nor may they read its input.
        self.input = os.dup(0)
        self.output = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        for stream in (sys.stdout, sys.stderr):
            reconfigure: Any = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(line_buffering=True, errors="backslashreplace")

    # Writing.

    def send(self, frame: str) -> None:
        """Adds a frame; it is written at the latest when there is no more input to read."""
        with self.lock:
            self.parts.append(frame)
            self.bytes += len(frame)
            if self.bytes < _FLUSH_BYTES and time.monotonic() - self.flushed_at < _FLUSH_SECONDS:
                return
            self._flush()

    def flush(self) -> None:
        with self.lock:
            self._flush()

    def _flush(self) -> None:
        if self.through:
            self.parts.append(f'{{"through":{self.through}}}')
            self.through = 0
        if self.counters:
            counters, self.counters = self.counters, {}
            for (number, name), by in counters.items():
                self.parts.append(_encode({"count": name, "by": by, "from": number}))
        if self.gauges:
            gauges, self.gauges = self.gauges, {}
            for (number, name, of), value in gauges.items():
                self.parts.append(_encode({"gauge": name, **({"of": of} if of else {}), "value": value, "from": number}))
        self.flushed_at = time.monotonic()
        if not self.parts:
            return
        self.parts.append("")
        data = memoryview(_bytes("\n".join(self.parts)))
        self.parts = []
        self.bytes = 0
        while data:
            try:
                data = data[os.write(self.output, data):]
            except BlockingIOError:
                select.select([], [self.output], [])

    def delivered(self, ident: int) -> None:
        with self.lock:
            self.through = ident
            if time.monotonic() - self.flushed_at >= _FLUSH_SECONDS:
                self._flush()

    def answer(self, frame: str) -> None:
        """Sends an answer after the pending `delivered` frame."""
        if self.through:
            with self.lock:
                self.parts.append(f'{{"through":{self.through}}}')
                self.through = 0
        self.send(frame)

    def log(self, level: str, message: str) -> None:
        frame: Dict[str, Any] = {"log": level, "message": message[:10_000]}
        number = getattr(self.local, "number", 0)
        if number:
            frame["from"] = number
        self.send(_encode(frame))

    def count(self, name: str, by: int) -> None:
        key = (getattr(self.local, "number", 0), name)
        with self.lock:
            self.counters[key] = self.counters.get(key, 0) + by

    def gauge(self, name: str, value: Optional[float], of: str) -> None:
        if value is not None and not math.isfinite(value):
            value = None
        with self.lock:
            self.gauges[(getattr(self.local, "number", 0), name, of)] = value

    def reason(self, error: BaseException) -> str:
        """The message for a failure of user code; a mistake in it is also logged with its location, the first five times."""
        if isinstance(error, (Reject, Retry, BadParameter)):
            return str(error) or type(error).__name__
        lines = traceback.extract_tb(error.__traceback__)
        place = f"{os.path.basename(lines[-1].filename)}:{lines[-1].lineno}" if lines else "?"
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        times = self.complaints[place] = self.complaints.get(place, 0) + 1
        if times <= 5:
            self.log("warning", f"{said} ({place})" + ("; further ones of this place are not logged" if times == 5 else ""))
        return said[:1000]

    # Reading.

    def serve(self) -> None:
        _Session.current = self
        root = logging.getLogger()
        if not root.handlers:
            root.addHandler(_LogHandler())
            root.setLevel(logging.INFO)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pieces: List[bytes] = []  # the start of an unfinished line
        try:
            while True:
                try:
                    data = os.read(self.input, 1 << 18)
                except BlockingIOError:
                    select.select([self.input], [], [])
                    continue
                if not data:
                    break
                pieces.append(data)
                if b"\n" not in data:
                    continue
                lines = b"".join(pieces).split(b"\n")
                pieces = [lines.pop()]
                for frame in self._frames(lines):
                    self.receive(frame)
                self.flush()
        finally:
            for number in list(self.instances):
                self.close(number)
        self.flush()

    @staticmethod
    def _frames(lines: List[bytes]) -> List[Any]:
        # One call for many lines takes half the time.
        try:
            frames = json.loads(b"[" + b",".join(lines) + b"]")
            if len(frames) == len(lines):
                return list(frames)
        except ValueError:
            pass
        return [json.loads(line) for line in lines]

    def receive(self, frame: Dict[str, Any]) -> None:
        ident = frame.get("id")
        if ident is not None:
            runner = self.instances[frame["to"]]
            if self.waiting is not None and self.waiting is not runner:
                self.waiting.write_waiting()  # answers must be sent in the order of the ids
            self.local.number = runner.number
            runner.input(ident, frame)
        elif "to" in frame:
            self.control(frame["to"], frame)
        elif "flush" in frame:
            self.control(frame["flush"], frame)
        elif "ping" in frame:
            self.answer(f'{{"pong":{frame["ping"]}}}')
            self.flush()
        elif "open" in frame:
            self.open(frame)
        elif "close" in frame:
            self.close(frame["close"])
        elif "hello" in frame:
            self.send(_encode({"spec": self.plugin.spec}))

    def control(self, number: int, frame: Dict[str, Any]) -> None:
        if number in self.instances:
            self.instances[number].control(frame)

    def open(self, frame: Dict[str, Any]) -> None:
        number = frame["open"]
        self.local.number = number
        opened: Dict[str, Any] = {"opened": number}
        runner: Optional[_Runner] = None
        try:
            component = self.components.get((frame["kind"], frame["name"]))
            if component is None:
                raise BadParameter(f"{self.plugin.name} has no {frame['kind']} '{frame['name']}'")
            if frame.get("stateVersion", 0) > component.state_version and "state" in frame:
                raise BadParameter(f"the state has version {frame['stateVersion']}, newer than {component.state_version}")
            made: Type[_Runner] = {"operator": _OperatorRunner, "sink": _SinkRunner, "source": _SourceRunner}[component.kind]
            runner = made(self, number, component, frame)
            self.instances[number] = runner
            if runner.has_finished:
                opened["finish"] = True
        except BadParameter as error:
            opened["error"] = str(error)
            if error.at:
                opened["at"] = error.at
        except Exception as error:
            opened["error"] = self.reason(error)
        self.send(_encode(opened))
        self.flush()
        if runner is not None:
            runner.start()

    def close(self, number: int) -> None:
        runner = self.instances.pop(number, None)
        if runner is not None:
            try:
                runner.close()
            except Exception as error:
                self.reason(error)


class _Runner:
    """Runs one instance."""

    has_finished = False  # an operator's output is complete: outstanding inputs are ignored

    def __init__(self, session: _Session, number: int, component: _Component, frame: Dict[str, Any]) -> None:
        self.session, self.number, self.component = session, number, component
        self.values = component.values(frame.get("parameters", {}))
        self.instance: Any = None
        if component.is_class:
            self.instance = component.target()
            for name, value in self.values.items():
                setattr(self.instance, name, value)
            for name in component.per_event.values():
                setattr(self.instance, name, None)
            self.instance.is_test = frame.get("test") is True

    def start(self) -> None:
        pass

    def input(self, ident: int, frame: Dict[str, Any]) -> None:
        raise ValueError(f"{self.component.name} takes no inputs")

    def control(self, frame: Dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        if self.instance is not None:
            self.instance.close()

    def arguments(self, frame: Dict[str, Any]) -> Dict[str, Any]:
        """The results of expressions and templates, by Python name."""
        given = frame.get("with") or {}
        return {python: given.get(name) for name, python in self.component.per_event.items()}


class _OperatorRunner(_Runner):
    def __init__(self, session: _Session, number: int, component: _Component, frame: Dict[str, Any]) -> None:
        super().__init__(session, number, component, frame)
        self.timers: Dict[str, Optional[float]] = {}
        self.per_event = bool(component.per_event)
        if self.instance is not None:
            self.instance._timers = self.timers
            try:
                self.instance.open()
                if "state" in frame:
                    self.instance.restore(frame["state"], frame.get("stateVersion", 0))
            except Finish:
                self.has_finished = True
            # rxd keeps the timers set before a restart; `open` may not set any.
            self.timers.clear()
            self.process: Callable[..., Any] = self.instance.process
        elif self.values:
            target, values = component.target, self.values
            self.process = lambda event, **arguments: target(event, **values, **arguments)
        else:
            self.process = component.target

    def input(self, ident: int, frame: Dict[str, Any]) -> None:
        if self.has_finished:
            return
        session = self.session
        events: List[str] = []
        try:
            if self.instance is not None and "now" in frame:
                self.instance.now = frame["now"] / 1e9
            if "event" in frame:
                if not self.per_event:
                    result = self.process(frame["event"])
                elif self.instance is None:
                    result = self.process(frame["event"], **self.arguments(frame))
                else:
                    self.instance.__dict__.update(self.arguments(frame))
                    result = self.process(frame["event"])
            elif "save" in frame:
                state = _encode(self.instance.save()) if self.instance is not None else "null"
                if not _fits(state):
                    raise Reject(f"the state has {len(state)} characters of JSON, at most 16 MiB")
                session.answer(f'{{"id":{ident},"state":{state}}}')
                return
            elif self.instance is None:
                result = None
            elif "timer" in frame:
                result = self.instance.timer(frame["timer"])
            else:
                result = self.instance.complete()
            if result is None:
                answer = f'{{"id":{ident}'
            elif type(result) is GeneratorType:
                for event in result:
                    events.append(_encode(event))
                answer = self.events(ident, events)
            else:
                answer = self.events(ident, [_encode(result)])
        except Finish as finish:
            answer = self.finish(ident, events, finish)
        except Exception as error:
            answer = f'{{"id":{ident},"error":{_encode(session.reason(error))}'
        if self.timers:
            answer += f',"timers":{self.timer_text()}'
            self.timers.clear()
        session.answer(answer + "}")

    def finish(self, ident: int, events: List[str], finish: Finish) -> str:
        self.has_finished = True
        self.timers.clear()
        try:
            return self.events(ident, events + [_encode(event) for event in finish.events]) + ',"finish":true'
        except Exception as error:
            return f'{{"id":{ident},"error":{_encode(self.session.reason(error))},"finish":true'

    def events(self, ident: int, events: List[str]) -> str:
        answer = f'{{"id":{ident},"events":[{",".join(events)}]'
        if not _fits(answer):
            raise Reject(f"{len(events)} events have {len(answer)} characters of JSON, an answer has at most 16 MiB")
        return answer

    def timer_text(self) -> str:
        return _encode({name: None if s is None else max(0, round(s * 1e9)) for name, s in self.timers.items()})


class _SinkRunner(_Runner):
    def __init__(self, session: _Session, number: int, component: _Component, frame: Dict[str, Any]) -> None:
        super().__init__(session, number, component, frame)
        self.records: List[Record] = []
        self.is_skipping = False  # until the event for which `Retry` was raised is passed again
        self.is_batched = False
        if self.instance is not None:
            self.instance.open()
            self.is_batched = component.target.write_batch is not Sink.write_batch

    def input(self, ident: int, frame: Dict[str, Any]) -> None:
        if "event" not in frame:
            self.write_waiting()
            if self.is_skipping:
                return
            try:
                if self.instance is not None:
                    self.instance.complete()
                self.session.answer(f'{{"id":{ident}}}')
            except Exception as error:
                self.session.answer(f'{{"id":{ident},"error":{_encode(self.session.reason(error))}}}')
            return
        if self.is_skipping:
            if frame.get("again") is not True:
                return
            self.is_skipping = False
        arguments = self.arguments(frame) if self.component.per_event else {}
        if self.is_batched:
            self.records.append(Record(ident, frame["event"], arguments))
            self.session.waiting = self
            if len(self.records) >= self.instance.batch_size:
                self.write_waiting()
            return
        try:
            if self.instance is None:
                self.component.target(frame["event"], **self.values, **arguments)
            else:
                self.instance.__dict__.update(arguments)
                self.instance.write(frame["event"])
            self.session.delivered(ident)
        except Exception as error:
            self.failure(ident, error)

    def failure(self, ident: int, error: Exception) -> None:
        """Answers one event for which user code has failed."""
        if isinstance(error, (Retry, OSError)):
            self.is_skipping = True
            said = str(error) or type(error).__name__
            self.session.answer(f'{{"id":{ident},"retry":{_encode(said[:1000])}}}')
        else:
            self.session.answer(f'{{"id":{ident},"error":{_encode(self.session.reason(error))}}}')

    def write_waiting(self) -> None:
        if self.session.waiting is self:
            self.session.waiting = None
        records, self.records = self.records, []
        if not records:
            return
        self.session.local.number = self.number
        failure: Optional[Exception] = None
        delivered = len(records)
        try:
            self.instance.write_batch(records)
        except Exception as error:
            if len(records) > 1 and not isinstance(error, (Retry, OSError)):
                self.write_singly(records)
                return
            failure = error
            delivered = error.delivered if isinstance(error, Retry) else 0
        for record in records[:delivered]:
            if record.refused is None:
                self.session.delivered(record._id)
            else:
                self.session.answer(f'{{"id":{record._id},"error":{_encode(record.refused)}}}')
        for record in records[delivered:]:
            if self.is_skipping or failure is None:
                break
            self.failure(record._id, failure)

    def write_singly(self, records: List[Record]) -> None:
        """Finds the records that cause the failure of a batch: the others are delivered."""
        for record in records:
            if self.is_skipping:
                return
            try:
                if record.refused is None:
                    self.instance.write_batch([record])
            except Exception as error:
                self.failure(record._id, error)
                continue
            if record.refused is None:
                self.session.delivered(record._id)
            else:
                self.session.answer(f'{{"id":{record._id},"error":{_encode(record.refused)}}}')

    def control(self, frame: Dict[str, Any]) -> None:
        self.write_waiting()

    def close(self) -> None:
        # Unanswered records are passed again, elsewhere or later.
        self.records = []
        if self.session.waiting is self:
            self.session.waiting = None
        super().close()


class _SourceRunner(_Runner):
    """Runs a source on its own thread. `state` guards everything that both threads use."""

    def __init__(self, session: _Session, number: int, component: _Component, frame: Dict[str, Any]) -> None:
        super().__init__(session, number, component, frame)
        self.state = threading.Lock()
        self.credit = 0
        self.is_stopping = False
        self.is_ended = False
        self.told: List[Tuple[List[int], Optional[str]]] = []  # tokens, and the reason of their failure
        self.unsettled: Dict[int, int] = {}
        self.plain: List[str] = []
        self.plain_names: List[Optional[str]] = []
        self.plain_bytes = 0
        self.position: Optional[str] = None
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        os.set_blocking(self.wake_read, False)
        if self.instance is not None:
            self.instance._runner = self
            self.instance.position = frame.get("position")
            self.instance.open()
        self.flush_wanted = threading.Event()
        self.threads = [threading.Thread(target=self.run, daemon=True), threading.Thread(target=self.flush_soon, daemon=True)]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    # On the reading thread.

    def control(self, frame: Dict[str, Any]) -> None:
        with self.state:
            self.credit += frame.get("credit", 0)
            if "acknowledged" in frame:
                self.told.append((frame["acknowledged"], None))
            if "failed" in frame:
                self.told.append((frame["failed"], str(frame.get("reason", ""))))
            if "stop" in frame:
                self.is_stopping = True
                threading.Thread(target=self.end_for_it, daemon=True).start()
        self.wake()

    def wake(self) -> None:
        try:
            os.write(self.wake_write, b"x")
        except OSError:
            pass

    def close(self) -> None:
        with self.state:
            self.is_stopping = True
            self.is_ended = True
            self.unsettled.clear()
        self.wake()
        self.flush_wanted.set()
        self.threads[0].join(0.5)
        if not self.threads[0].is_alive():
            os.close(self.wake_read)
            os.close(self.wake_write)
            self.wake_write = -1
        super().close()

    def end_for_it(self) -> None:
        """A source that is blocked in a call does not keep rxd waiting if it has no unsettled events."""
        self.threads[0].join(1)
        with self.state:
            if self.unsettled or self.is_ended:
                return
            self._flush()
        self.end({"complete": True})

    # On the thread of the source.

    def run(self) -> None:
        self.session.local.number = self.number
        end: Dict[str, Any] = {"complete": True}
        stream: Iterator[Any] = iter(())
        try:
            stream = iter(self.instance.run() if self.instance is not None else self.component.target(**self.values))
            item: Any = next(stream, self)
            while item is not self:
                item = item if isinstance(item, Item) else Item(item)
                try:
                    encoded = self.encoded(item.event)
                except (TypeError, ValueError) as error:  # the event is not JSON, or too large
                    if not isinstance(stream, GeneratorType):
                        raise
                    item = stream.throw(error)
                    continue
                if not self.add(encoded, item.token, item.position, item.name):
                    break
                if self.told:
                    self.hand_over()
                item = next(stream, self)
        except StopIteration:
            pass
        except Exception as error:
            end = {"error": self.session.reason(error)}
        try:
            self.flush()
            while self.unsettled:
                self.wait(60, ())
            self.hand_over()
            if isinstance(stream, GeneratorType):
                stream.close()
        except Exception as error:
            end = {"error": self.session.reason(error)}
        self.end(end)

    def end(self, end: Dict[str, Any]) -> None:
        with self.state:
            if self.is_ended:
                return
            self.is_ended = True
        self.session.send(_encode({"from": self.number, **end}))
        self.session.flush()

    @staticmethod
    def encoded(event: Any) -> str:
        encoded = _encode(event)
        if not _fits(encoded):
            raise ValueError(f"the event has {len(encoded)} characters of JSON, at most 16 MiB")
        return encoded

    def add(self, encoded: str, token: Optional[int], position: Any, name: Optional[str]) -> bool:
        """False: the source is to stop, and the event was not accepted."""
        while self.credit <= 0 and not self.is_stopping:
            self.flush()
            self.wait(60, ())
        with self.state:
            if self.is_stopping:
                return False
            self.credit -= 1
            if token is not None:
                self.unsettled[token] = self.unsettled.get(token, 0) + 1
                self._flush()
                place = "" if position is None else f',"position":{_encode(position)}'
                named = "" if name is None else f',"name":{_encode(name)}'
                self.session.send(f'{{"from":{self.number},"event":{encoded},"token":{token}{named}{place}}}')
            else:
                self.plain.append(encoded)
                self.plain_names.append(name)
                self.plain_bytes += len(encoded)
                if position is not None:
                    self.position = _encode(position)
                if len(self.plain) >= 256 or self.plain_bytes >= _FLUSH_BYTES:
                    self._flush()
        self.flush_wanted.set()
        return True

    def flush(self) -> None:
        with self.state:
            self._flush()
        self.session.flush()

    def _flush(self) -> None:
        if self.plain and not self.is_ended:
            place = "" if self.position is None else f',"position":{self.position}'
            named = f',"names":{_encode(self.plain_names)}' if any(name is not None for name in self.plain_names) else ""
            self.session.send(f'{{"from":{self.number},"events":[{",".join(self.plain)}]{named}{place}}}')
            self.plain, self.plain_names, self.plain_bytes, self.position = [], [], 0, None

    def flush_soon(self) -> None:
        while not self.is_ended:
            self.flush_wanted.wait()
            time.sleep(_FLUSH_SECONDS)
            self.flush_wanted.clear()
            try:
                self.flush()
            except OSError:
                return

    def wait(self, seconds: float, files: Sequence[Any]) -> List[Any]:
        self.flush()
        ready: List[Any] = []
        if not self.told:
            ready = select.select([self.wake_read, *files], [], [], max(0.0, seconds))[0]
            if self.wake_read in ready:
                ready.remove(self.wake_read)
                os.read(self.wake_read, 4096)
        self.hand_over()
        return ready

    def hand_over(self) -> None:
        """Tells the source the outcome of its events."""
        with self.state:
            told, self.told = self.told, []
        for tokens, reason in told:
            if self.instance is not None and reason is None:
                self.instance.acknowledged(tokens)
            elif self.instance is not None:
                self.instance.failed(tokens, reason or "")
            with self.state:
                for token in tokens:
                    left = self.unsettled.pop(token, 0) - 1
                    if left > 0:
                        self.unsettled[token] = left


# ---- Tests ----

_SECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _wire(kind: str, value: Any, of: str = "") -> Any:
    """Converts a value as in a pipeline file into the form in which rxd passes it."""
    if kind == "list":
        return [_wire(of, element) for element in value]
    if kind == "table":
        return {name: _wire(of, element) for name, element in value.items()}
    units = _SECONDS if kind == "duration" else _SIZES
    if kind not in ("duration", "size") or not isinstance(value, str):
        return value
    parts = re.findall(r"([0-9.]+)\s*([A-Za-zµ]+)", value)
    if not parts or any(unit not in units for _, unit in parts):
        raise ValueError(f"'{value}' is no {kind}: units are {', '.join(units)}")
    return sum(round(float(digits) * units[unit]) for digits, unit in parts)


class _Failure(Exception):
    pass


class _TestHost:
    """Plays rxd for one process of the plugin."""

    def __init__(self, directory: str) -> None:
        import subprocess
        import tempfile
        cache = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
        command = [sys.executable, *cache, os.path.abspath(sys.argv[0])]
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, cwd=directory, env={**os.environ, "RXD_PLUGIN": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.stderr)
        self.log: List[str] = []
        self.ident = 0
        self.number = 0
        self.finished = False  # the most recently opened or asked instance has completed its output
        self.rest = b""
        self.frames: List[Dict[str, Any]] = []
        self.send({"hello": CONTRACT, "version": "test", "member of a later version": 1})
        self.spec = self.next()["spec"]

    def send(self, *frames: Dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"".join(_encode(frame).encode() + b"\n" for frame in frames))
            self.process.stdin.flush()
        except BrokenPipeError:
            raise _Failure("the plugin has ended") from None

    def next(self) -> Dict[str, Any]:
        """The next frame other than log lines and counters."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + _TEST_SECONDS
        while True:
            while self.frames:
                frame = self.frames.pop(0)
                if "log" not in frame and "count" not in frame and "gauge" not in frame:
                    return frame
                if "log" in frame:
                    self.log.append(f"{frame['log']}: {frame['message']}")
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise _Failure(f"no answer within {_TEST_SECONDS:g} s")
            data = os.read(self.process.stdout.fileno(), 1 << 18)
            if not data:
                raise _Failure(f"the plugin has ended, with status {self.process.wait()}")
            *lines, self.rest = (self.rest + data).split(b"\n")
            if max(map(len, [*lines, self.rest])) >= _FRAME_BYTES:
                raise _Failure("a frame above 16 MiB")
            self.frames.extend(json.loads(line) for line in lines)

    def open(self, component: _Component, example: Example, **more: Any) -> int:
        self.number += 1
        parameters = {}
        for name, its in component.parameters.items():
            value = example.parameters.get(_camel(name), its.members.get("default"))
            if value is not None and not its.is_per_event:
                parameters[_camel(name)] = _wire(its.kind, value, its.members.get("of", ""))
        self.send({"open": self.number, "kind": component.kind, "name": component.name, "step": f"test/{self.number}",
                   "parameters": parameters, "test": True, **more})
        answer = self.next()
        if answer.get("opened") != self.number or "error" in answer:
            raise _Failure(f"open: {answer.get('error', answer)}")
        self.finished = answer.get("finish", False)
        return self.number

    def ask(self, number: int, **members: Any) -> Dict[str, Any]:
        """Passes one input and returns its answer."""
        self.ident += 1
        self.send({"id": self.ident, "to": number, **members})
        answer = self.next()
        if answer.get("through", answer.get("id")) != self.ident:
            raise _Failure(f"the answer to input {self.ident} is {_encode(answer)[:200]}")
        self.finished = answer.get("finish", False)
        return answer

    def end(self) -> None:
        import subprocess
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            status = self.process.wait(5)
        except subprocess.TimeoutExpired:
            raise _Failure("the plugin runs on 5 s behind the end of its input") from None
        finally:
            self.kill()
        if status != 0:
            raise _Failure(f"the plugin ends with status {status}")

    def said(self, most: int = 5) -> List[str]:
        """The log and the standard error, at most `most` lines."""
        self.stderr.seek(0)
        lines = self.log + self.stderr.read().decode(errors="replace").splitlines()
        return lines[:most] + ([f"and {len(lines) - most} further lines"] if len(lines) > most else [])

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass


class _Tests:
    """The run of --test."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.passed = self.failed = 0

    def run(self) -> int:
        self.attempt("the spec is handed over", lambda host: None)
        for component in self.plugin.components:
            if not component.examples:
                print(f"      {component.name}: no examples")
            for example in component.examples:
                one: Callable[[_TestHost], Optional[str]]
                if component.kind == "operator":
                    one = lambda host: self.operator(host, component, example)  # noqa: B023
                elif component.kind == "sink":
                    one = lambda host: self.sink(host, component, example)  # noqa: B023
                else:
                    one = lambda host: self.source(host, component, example)  # noqa: B023
                self.attempt(f"{component.name}: {example.title}", one, example)
        crowds = [(component, example) for component in self.plugin.components for example in component.examples
                  if component.kind == "operator" and self.events(example)]
        component, example = crowds[0] if crowds else (self.plugin.components[0], Example("", {}))
        self.attempt("many inputs at once, and a ping", lambda host: self.crowd(host, component, example), example, quiet=True)
        print(f"{self.passed} passed" + (f", {self.failed} failed" if self.failed else ""))
        return 1 if self.failed else 0

    @staticmethod
    def events(example: Example) -> List[Any]:
        return [step for step in example.inputs if not isinstance(step, Pause)]

    def attempt(self, title: str, what: Callable[[_TestHost], Optional[str]], example: Optional[Example] = None,
                quiet: bool = False) -> None:
        import shutil
        import tempfile
        directory = tempfile.mkdtemp(prefix="rxd-plugin-")
        host: Optional[_TestHost] = None
        try:
            for name, content in (example.given if example else {}).items():
                with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                    file.write(content)
            host = _TestHost(directory)
            if host.spec != json.loads(_encode(self.plugin.spec)):
                raise _Failure("the spec of the process is another one")
            note = what(host)
            host.end()
            for name, content in (example.files if example and not quiet else {}).items():
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    self.compare([content], [file.read()], f" in {name}")
            self.passed += 1
            print(f"ok    {title}" + (f" ({note})" if note else ""))
        except (_Failure, OSError, ValueError, KeyError) as error:
            self.failed += 1
            said = str(error) if isinstance(error, _Failure) else f"{type(error).__name__}: {error}"
            print(f"FAIL  {title}\n      " + said.replace("\n", "\n      "))
        finally:
            if host is not None:
                host.kill()
                for line in host.said() if example and not quiet else ():
                    print(f"      | {line}")
                host.stderr.close()
            shutil.rmtree(directory, ignore_errors=True)
            sys.stdout.flush()

    @staticmethod
    def compare(expected: Sequence[Any], got: Sequence[Any], where: str = "") -> None:
        def same(wanted: Any, had: Any) -> bool:
            if isinstance(wanted, Error) or isinstance(had, Error):
                return isinstance(wanted, Error) and isinstance(had, Error) and wanted.message in had.message
            return bool(json.loads(_encode(wanted)) == had)

        def shown(values: Sequence[Any]) -> str:
            return "  ".join(f"Error({v.message!r})" if isinstance(v, Error) else _encode(v) for v in values) or "nothing"
        if len(expected) != len(got) or not all(map(same, expected, got)):
            raise _Failure(f"expected{where}: {shown(expected)}\ngot: {shown(got)}")

    def inputs(self, component: _Component, example: Example) -> List[Any]:
        """The inputs as members of frames, pauses unchanged."""
        made: List[Any] = []
        for given in example.inputs:
            if isinstance(given, Pause):
                made.append(given)
                continue
            event, arguments = (given.event, given.arguments) if isinstance(given, With) else (given, {})
            frame: Dict[str, Any] = {"event": event}
            for name, python in component.per_event.items():
                text = example.parameters.get(name, component.parameters[python].members.get("default"))
                if python in arguments:
                    frame.setdefault("with", {})[name] = arguments[python]
                elif text is not None:
                    frame.setdefault("with", {})[name] = self.evaluated(name, text, event)
            made.append(frame)
        return made

    @staticmethod
    def evaluated(name: str, text: str, event: Any) -> Any:
        if not re.fullmatch(r"event(\.[A-Za-z_][A-Za-z0-9_]*)*", text):
            raise _Failure(f"rxd evaluates '{text}'; give the result in the example: With(event, {name}=...)")
        for part in text.split(".")[1:]:
            event = event[part]
        return event

    def operator(self, host: _TestHost, component: _Component, example: Example) -> str:
        steps = self.inputs(component, example)
        self.compare(example.outputs, self.outputs(host, component, example, steps, -1))
        if not component.state_version:
            return ""
        for cut in range(len(steps) + 1):
            self.compare(example.outputs, self.outputs(host, component, example, steps, cut),
                         f" with the state saved and restored before input {cut + 1}")
        return f"state cut at {len(steps) + 1} places"

    @staticmethod
    def outputs(host: _TestHost, component: _Component, example: Example, steps: List[Any], cut: int) -> List[Any]:
        number = host.open(component, example)
        now = 1767225600 * 10**9
        timers: Dict[str, int] = {}
        found: List[Any] = []

        def ask(**members: Any) -> None:
            answer = host.ask(number, **members, **({"now": now} if component.spec.get("clock") else {}))
            for name, nanoseconds in answer.get("timers", {}).items():
                timers.pop(name, None)
                if nanoseconds is not None:
                    timers[name] = now + nanoseconds
            found.extend(answer.get("events", []))
            if "error" in answer:
                found.append(Error(answer["error"]))

        for index, step in enumerate([*steps, None]):
            if host.finished:
                break
            if index == cut:
                answer = host.ask(number, save=True)
                if "state" not in answer:
                    raise _Failure(f"save: {answer.get('error', answer)}")
                host.send({"close": number})
                number = host.open(component, example, state=answer["state"], stateVersion=component.state_version)
            if isinstance(step, Pause):
                end = now + round(step.seconds * 1e9)
                while timers and min(timers.values()) <= end and not host.finished:
                    name = min(timers, key=lambda name: timers[name])
                    now = max(now, timers.pop(name))
                    ask(timer=name)
                now = end
            elif step is not None:
                ask(**step)
        if not host.finished:
            ask(complete=True)
        host.send({"close": number})
        return found

    def sink(self, host: _TestHost, component: _Component, example: Example) -> str:
        frames = [step for step in self.inputs(component, example) if not isinstance(step, Pause)]
        number = host.open(component, example)
        first = host.ident + 1
        host.ident += len(frames)
        host.send(*({"id": first + i, "to": number, **frame} for i, frame in enumerate(frames)), {"flush": number})
        errors: List[Any] = []
        answered = first - 1
        while answered < host.ident:
            answer = host.next()
            last = answer.get("through", answer.get("id", 0))
            if not answered < last <= host.ident or "id" in answer and last != answered + 1:
                raise _Failure(f"an answer out of order: {_encode(answer)[:200]}")
            answered = last
            if "error" in answer or "retry" in answer:
                errors.append(Error(str(answer.get("error", answer.get("retry")))))
            if "retry" in answer:
                break
        self.compare(example.outputs, errors)
        if answered == host.ident and not (errors and "retry" in answer):
            host.ask(number, complete=True)
        host.send({"close": number})
        return ""

    def source(self, host: _TestHost, component: _Component, example: Example) -> str:
        pieces = self.sent(host, component, example, len(example.outputs))
        self.compare(example.outputs, [event for event, _ in pieces])
        if component.spec.get("recovery") != "position":
            return ""
        positions = 0
        for index, (_, position) in enumerate(pieces):
            if position is not None:
                positions += 1
                rest = self.sent(host, component, example, len(pieces) - index - 1, position=position)
                self.compare(example.outputs[index + 1:], [event for event, _ in rest], f" behind position {position}")
        if not positions and pieces:
            raise _Failure("recovery is 'position', but no event has one")
        return f"from {positions} positions"

    @staticmethod
    def sent(host: _TestHost, component: _Component, example: Example, most: int, **more: Any) -> List[Tuple[Any, Any]]:
        """The first events, one at a time, each with its position."""
        number = host.open(component, example, **more)
        found: List[Tuple[Any, Any]] = []
        while len(found) < most:
            host.send({"to": number, "credit": 1})
            frame = host.next()
            if "error" in frame:
                found.append((Error(frame["error"]), None))
            if "error" in frame or "complete" in frame:
                host.send({"close": number})
                return found
            events = frame.get("events", [frame.get("event")])
            if len(events) != 1 or frame.get("from") != number:
                raise _Failure(f"a source that may send one event sends {_encode(frame)[:200]}")
            found.append((events[0], frame.get("position")))
            if "token" in frame:
                host.send({"to": number, "acknowledged": [frame["token"]]})
        host.send({"to": number, "stop": True})
        frame = host.next()
        if "complete" not in frame and "error" not in frame:
            raise _Failure(f"behind a stop comes {_encode(frame)[:200]}")
        host.send({"close": number})
        return found

    def crowd(self, host: _TestHost, component: _Component, example: Example) -> Optional[str]:
        frames = [step for step in self.inputs(component, example) if not isinstance(step, Pause)] * 1000
        frames = frames[:1000]
        if frames:
            number = host.open(component, example)
            host.send(*({"id": index + 1, "to": number, **frame} for index, frame in enumerate(frames)))
        host.send({"ping": 7})
        for index in range(len(frames)):
            answer = host.next()
            if answer.get("id") != index + 1:
                raise _Failure(f"the answer to input {index + 1} is {_encode(answer)[:200]}")
            if answer.get("finish"):
                break  # outstanding inputs are ignored
        if host.next() != {"pong": 7}:
            raise _Failure("no pong")
        return f"{len(frames)} of {component.name}" if frames else None
