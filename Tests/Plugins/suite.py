"""The promises of a plugin, each as a check that runs against any program of the line protocol.

`Case` says which component is tried with which parameters and inputs; `checks(case)` are the names and functions. Each check
starts processes of its own and raises `Violation`.
"""
import os
import re
import shutil
import tempfile
import time

from host import Clock, Ended, Host, Violation, seeded

NAME = re.compile(r"[a-z][A-Za-z0-9]{0,63}$")
TYPES = ("boolean", "integer", "number", "text", "secret", "duration", "size", "json", "choice", "list", "table",
         "expression", "template")
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

# Events that no author thinks of; most components refuse most of them, which is an answer, too.
STRANGE = [
    {}, None, True, 0, -1, 2**63 - 1, 2**64 - 1, 1.5, 1e300, "", "text", [], [1, [2, {"a": None}]], {"": ""},
    {"a": "ä\u2028\U0001f600\"\\\n\t\u0000"}, {"id": 1, "to": 2, "event": {"ping": 3}}, "\"}]\n{\"close\":1}", {"a": "x" * 200_000},
    {"deep": eval("[" * 60 + "]" * 60)}, {f"member{i}": i for i in range(500)},
]


class Case:
    """`inputs`: members of frames (`event`, `with`) or numbers, which are pauses in nanoseconds."""

    def __init__(self, command, kind, name, parameters=None, inputs=None, directory=None, env=None, timeout=10.0):
        self.command, self.kind, self.name, self.parameters = command, kind, name, parameters or {}
        self.inputs = [{"event": event} for event in STRANGE] if inputs is None else inputs
        self.directory, self.env, self.timeout = directory, env, timeout
        self.reference = None

    def host(self, **more):
        return Host(self.command, cwd=self.directory, env=self.env, timeout=self.timeout, **more)

    def open(self, host, **more):
        instance = host.open(self.kind, self.name, self.parameters, **more)
        if instance.error is not None:
            raise Violation(f"open is refused: {instance.error}")
        return instance

    def needs_clock(self, host):
        return host.component(self.kind, self.name).get("clock", False)

    def has_state(self, host):
        return "state" in host.component(self.kind, self.name)


class Run:
    """One operator through all inputs, on virtual time. `steps` are the inputs that it has had, timers among them."""

    def __init__(self, case, host, instance, clock=None):
        self.case, self.host, self.instance = case, host, instance
        self.clock = clock or Clock()
        self.is_timed = case.needs_clock(host)

    def members(self, step):
        return {**step, "now": self.clock.now} if self.is_timed else step

    def ask(self, step):
        answer = self.host.ask(self.instance, **self.members(step))
        self.clock.take(answer)
        return answer.outcome

    def all(self, steps):
        """Outcomes of inputs, of the timers that come due between them, and of the completion."""
        found = []
        for step in steps:
            if isinstance(step, int):
                end = self.clock.now + step
                while (name := self.clock.due(end)) is not None:
                    found.append(self.ask({"timer": name}))
            else:
                found.append(self.ask(step))
        found.append(self.ask({"complete": True}))
        return found


def events_of(outcomes):
    """What goes downstream and to the errors output."""
    return [part for events, error, _, _ in outcomes for part in (events if error is None else [("error", error)])]


def same(expected, got, where):
    if expected != got:
        for index, (one, other) in enumerate(zip(expected, got)):
            if one != other:
                raise Violation(f"{where}: output {index + 1} is {str(other)[:300]}, was {str(one)[:300]} in a plain run")
        raise Violation(f"{where}: {len(got)} outputs, {len(expected)} in a plain run")


# ---- All kinds ----


def check_spec(case):
    """The spec is well formed, the same twice, and a program that is only asked for it ends."""
    with case.host() as host, case.host() as other:
        spec = host.spec
        if spec != other.spec:
            raise Violation("two processes hand over different specs")
        for key in ("plugin", "version", "summary"):
            if not isinstance(spec.get(key), str) or not spec[key]:
                raise Violation(f"the spec needs the text '{key}'")
        if spec.get("contract", 1) != 1 or not spec["summary"].endswith("."):
            raise Violation("the spec has another contract, or its summary no full stop")
        if not spec.get("components"):
            raise Violation("the spec has no components")
        for component in spec["components"]:
            name = component.get("name", "")
            if component.get("kind") not in ("source", "operator", "sink") or not NAME.match(name):
                raise Violation(f"wrong kind or name of a component: {str(component)[:200]}")
            if not component.get("summary", "").endswith("."):
                raise Violation(f"the summary of {name} has no full stop")
            for parameter in component.get("parameters", []):
                if not NAME.match(parameter.get("name", "")) or parameter.get("type") not in TYPES or not parameter.get("help"):
                    raise Violation(f"a wrong parameter of {name}: {parameter}")
                if parameter.get("required") and "default" in parameter:
                    raise Violation(f"the parameter {parameter['name']} of {name} is required and has a default")
            if not 1 <= component.get("credit", 1024) <= 65536:
                raise Violation(f"the credit of {name} is {component['credit']}")
        host.component(case.kind, case.name)
        host.end()
        other.end()


def check_open(case):
    """An instance opens, a second one, too; a close is silent; an unknown parameter or member does no harm."""
    with case.host() as host:
        first, second = case.open(host), case.open(host, memberOfALaterVersion={"a": [1]})
        host.close(first)
        host.ping()
        host.settle()
        host.close(second)
        host.ping()
        host.settle()
        host.end()


# ---- Operators ----


def reference(case):
    if case.reference is None:
        with case.host() as host:
            instance = case.open(host)
            case.reference = Run(case, host, instance).all(case.inputs)
            host.close(instance)
            host.end()
    return case.reference


def check_answers(case):
    """Each input is answered once, in order, one at a time; twice the same."""
    first, case.reference = reference(case), None
    same(first, reference(case), "a second run")


def check_crowd(case):
    """As many inputs as the credit allows wait at once, and pings between them."""
    expected = [outcome[:2] for outcome in plain(case)]
    with case.host() as host:
        credit = min(host.component(case.kind, case.name).get("credit", 1024), 1024)
        instance = case.open(host)
        steps = [step for step in case.inputs if not isinstance(step, int)]
        run = Run(case, host, instance)
        answers = []
        for index, step in enumerate(steps):
            if len(host.unanswered) >= credit:
                host.settle()
            answers.append(host.input(instance, **run.members(step)))
            if index % 3 == 0:
                host.ping()
        host.settle()
        same(expected, [answer.outcome[:2] for answer in answers], "many inputs at once")
        host.end()


def plain(case):
    """Outcomes of the inputs without pauses, one at a time."""
    with case.host() as host:
        run = Run(case, host, case.open(host))
        found = [run.ask(step) for step in case.inputs if not isinstance(step, int)]
        host.end()
        return found


def check_pieces(case):
    """Frames that come in pieces, with members that the program does not know."""
    for seed in (1, 2):
        with case.host(pieces=seeded(seed)) as host:
            run = Run(case, host, case.open(host))
            steps = [step if isinstance(step, int) else {**step, "later": [{"id": 1}]} for step in case.inputs]
            steps = [step for step in steps if isinstance(step, int) or len(str(step)) < 2000]
            found = run.all(steps)
            host.end()
        with case.host() as host:
            same(Run(case, host, case.open(host)).all(steps), found, f"frames in pieces, seed {seed}")


def check_instances(case):
    """Two instances in one process share no state."""
    expected = reference(case)
    with case.host() as host:
        runs = [Run(case, host, case.open(host)) for _ in range(2)]
        found = [[], []]
        for step in [*case.inputs, {"complete": True}]:
            for run, outcomes in zip(runs, found):
                if isinstance(step, int):
                    end = run.clock.now + step
                    while (name := run.clock.due(end)) is not None:
                        outcomes.append(run.ask({"timer": name}))
                else:
                    outcomes.append(run.ask(step))
        for number, outcomes in enumerate(found):
            same(expected, outcomes, f"instance {number + 1} of two")
        host.end()


def check_cut(case):
    """The state is saved and restored in another process at every instant; the output does not change."""
    expected = reference(case)
    with case.host() as probe:
        if not case.has_state(probe):
            return "no state"
        version = probe.component(case.kind, case.name)["state"].get("version", 1)
        steps = timeline(case, probe)
    # Processes at a cut: one that goes on until the end, one that is opened with the state.
    for cut in range(len(steps) + 1):
        with case.host() as host:
            instance = case.open(host)
            found = [host.ask(instance, **step).outcome for step in steps[:cut]]
            saved = host.ask(instance, save=True)
            if saved.error is not None:
                raise Violation(f"save fails: {saved.error}")
            rest = [host.ask(instance, **step).outcome for step in steps[cut:]]
            same(expected, found + rest, f"saved before input {cut + 1}, and on")
            other = case.open(host, state=saved.state, stateVersion=version)
            rest = [host.ask(other, **step).outcome for step in steps[cut:]]
            same(expected, found + rest, f"restored before input {cut + 1}")
        if cut % max(1, len(steps) // 3) == 0:  # a process of its own is the same, and slow
            with case.host() as host:
                instance = case.open(host, state=saved.state, stateVersion=version)
                rest = [host.ask(instance, **step).outcome for step in steps[cut:]]
                same(expected, found + rest, f"restored in another process before input {cut + 1}")
    return f"{len(steps) + 1} instants"


def timeline(case, host):
    """The inputs of a plain run, timers and completion among them."""
    steps = []

    class Recorder(Run):
        def ask(self, step):
            steps.append(self.members(step))
            return super().ask(step)

    Recorder(case, host, case.open(host)).all(case.inputs)
    return steps


def check_kill(case):
    """The process is killed at every instant with inputs unanswered; what rxd takes is the same as without."""
    with case.host() as probe:
        has_state = case.has_state(probe)
        component = probe.component(case.kind, case.name)
        remembers = "memory" in component or "timers" in component  # then a death without state shows
        steps = timeline(case, probe)
    expected = reference(case)
    for cut in range(0, len(steps) + 1, max(1, len(steps) // 6)):
        taken, saved_at, state = [], 0, None
        with case.host() as host:
            instance = case.open(host)
            version = host.component(case.kind, case.name).get("state", {}).get("version", 1)
            for index, step in enumerate(steps[:cut]):
                if has_state and index == cut // 2:
                    saved_at, state = index, host.ask(instance, save=True).state
                taken.append(host.ask(instance, **step).outcome)
            for step in steps[cut:cut + 3]:
                host.input(instance, **step)
            host.kill()  # perhaps before these are read, perhaps after they are answered
        with case.host() as host:
            instance = case.open(host, **({"state": state, "stateVersion": version} if saved_at else {}))
            # A program without state is not asked again what it has answered.
            replayed = steps[saved_at:cut] if has_state else []
            again = [host.ask(instance, **step).outcome for step in replayed]
            if has_state:
                same(taken[saved_at:], again, f"handed over again behind a kill at input {cut + 1}")
            rest = [host.ask(instance, **step).outcome for step in steps[cut:]]
        if has_state or not remembers:
            same(expected, taken + rest, f"killed at input {cut + 1}")
    return None


# ---- Sinks ----


def check_sink(case):
    """Events one at a time, all at once, and handed over again behind a kill; completion; an orderly end."""
    with case.host() as host:
        instance = case.open(host)
        answers = [host.ask(instance, **step) for step in case.inputs]
        verdicts = [(answer.error, answer.retry) for answer in answers]
        if any(answer.retry for answer in answers):
            return "the sink asks to retry; not tried further"
        if host.ask(instance, complete=True).error is not None:
            raise Violation("the completion fails")
        host.close(instance)
        host.end()
    with case.host() as host:
        instance = case.open(host)
        answers = [host.input(instance, **step) for step in case.inputs]
        host.send({"flush": instance.number})
        host.ping()
        host.settle()
        same(verdicts, [(answer.error, answer.retry) for answer in answers], "all events at once")
        host.ask(instance, complete=True)
        host.end()
    with case.host() as host:
        instance = case.open(host)
        for step in case.inputs:
            host.input(instance, **step)
        host.rest_for(0.02)
        host.kill()
        left = list(host.unanswered.values())
    with case.host(pieces=seeded(3)) as host:
        instance = case.open(host)
        for answer in left:
            if len(str(answer.members)) < 2000:
                host.input(instance, **answer.members)
        host.send({"flush": instance.number})
        host.settle()
        host.end()
    return None


# ---- Sources ----


def collect(case, host, instance, most, seconds=5.0):
    """Events until so many are there, the source has ended, or it is silent for 0.3 s after the first ones; false: it is."""
    deadline = time.monotonic() + min(seconds, case.timeout)
    while len(instance.events) < most and instance.end is None:
        is_silent = not host.pump(0.3 if instance.events else min(seconds, case.timeout))
        if host.has_ended:
            raise Ended("the source has ended without a word")
        if is_silent or time.monotonic() > deadline:
            return False
    return True


def check_credit(case, most=50):
    """A source sends nothing without credit, and never more than it has; stop and completion are orderly."""
    with case.host() as host:
        instance = case.open(host)
        host.rest_for(0.05)
        if instance.events:
            raise Violation("events without credit")
        for credit in (1, 1, 3, 7, most):
            host.give_credit(instance, credit)
            before = len(instance.events)
            goes_on = collect(case, host, instance, before + credit)
            settle_tokens(host, instance)
            if instance.end is not None or not goes_on:
                break
        finish(host, instance)
        return f"{len(instance.events)} events"


def settle_tokens(host, instance):
    if instance.unsettled:
        host.acknowledge(instance, sorted(instance.unsettled))


def finish(host, instance):
    if instance.end is None:
        host.stop(instance)
        host.wait(lambda: instance.end is not None or instance.unsettled, host.timeout, "no 'complete' behind a stop")
        settle_tokens(host, instance)
        host.wait(lambda: instance.end is not None, host.timeout, "no 'complete' behind a stop with everything settled")
    host.close(instance)
    host.end()


def check_tokens(case):
    """A source with tokens completes only when they are settled, and takes failed ones as well."""
    with case.host() as host:
        if host.component(case.kind, case.name).get("recovery") != "sender":
            return "recovery is not 'sender'"
        instance = case.open(host)
        host.give_credit(instance, 4)
        collect(case, host, instance, 4)
        if not instance.events or any(token is None for _, token, _ in instance.events):
            raise Violation("events without token, or none at all")
        host.stop(instance)
        host.rest_for(0.05)
        if instance.end is not None:
            raise Violation("the source has completed before its tokens were settled")
        host.fail(instance, sorted(instance.unsettled)[:1])
        finish(host, instance)
    return None


def check_position(case, most=12):
    """A source that is opened with a position goes on behind it, at every one."""
    with case.host() as host:
        if host.component(case.kind, case.name).get("recovery") != "position":
            return "recovery is not 'position'"
        instance = case.open(host)
        for number in range(1, most + 1):
            host.give_credit(instance, 1)
            goes_on = collect(case, host, instance, number)
            settle_tokens(host, instance)
            if instance.end is not None or not goes_on:
                break
        events = instance.events
        host.kill()
    positions = [(index, position) for index, (_, _, position) in enumerate(events) if position is not None]
    if not positions:
        raise Violation("no event has a position")
    for index, position in positions:
        with case.host() as host:
            instance = case.open(host, position=position)
            host.give_credit(instance, len(events))
            rest = [event for event, _, _ in events[index + 1:]]
            collect(case, host, instance, len(rest))
            settle_tokens(host, instance)
            same(rest, [event for event, _, _ in instance.events][:len(rest)], f"behind position {position}")
            finish(host, instance)
    return f"{len(positions)} positions"


CHECKS = {
    "operator": [check_spec, check_open, check_answers, check_crowd, check_pieces, check_instances, check_cut, check_kill],
    "sink": [check_spec, check_open, check_sink],
    "source": [check_spec, check_open, check_credit, check_tokens, check_position],
}


# ---- What rxd does with a program that ends ----


class Supervised:
    """An operator or sink behind rxd's recovery: starts the program again, hands over what was unanswered one at a time, and
    takes an input away that was the first unanswered one at three ends in a row."""

    def __init__(self, case, credit=1024):
        self.case, self.credit = case, credit
        self.ends = 0
        self.quarantined = []

    def run(self, events):
        """The outcome of each event, None if it was quarantined."""
        outcomes = [None] * len(events)
        first, last_culprit, times, careful_until = 0, None, 0, 0
        while first < len(events):
            host, answers, sent = self.case.host(), [], first
            try:
                instance = self.case.open(host)
                while first < len(events):
                    # Behind an end what was unanswered goes one at a time: so the first unanswered is the culprit.
                    most = 1 if first < careful_until else self.credit
                    while sent < len(events) and sent - first < most and (most > 1 or sent == first):
                        if sent in self.quarantined:
                            sent += 1
                            answers.append(None)
                            continue
                        answers.append(host.input(instance, event=events[sent]))
                        sent += 1
                    host.wait(lambda: not host.unanswered or most > 1 and answers[0] is not None and answers[0].is_taken,
                              self.case.timeout, "no answer in time")
                    while answers and (answers[0] is None or answers[0].is_taken):
                        answer = answers.pop(0)
                        outcomes[first] = None if answer is None else answer.outcome
                        first += 1
            except Violation:
                self.ends += 1
                while answers and (answers[0] is None or answers[0].is_taken):
                    answer = answers.pop(0)
                    outcomes[first] = None if answer is None else answer.outcome
                    first += 1
                if first < len(events):
                    times = times + 1 if last_culprit == first else 1
                    last_culprit, careful_until = first, max(careful_until, sent)
                    if times == 3:
                        self.quarantined.append(first)
                        first += 1
            finally:
                host.kill()
        return outcomes


# ---- Parameters from the examples of the spec ----


def wire(kind, value):
    """A parameter as rxd hands it over."""
    units = {"duration": UNITS, "size": SIZES}.get(kind)
    if units is None or not isinstance(value, str):
        return value
    return sum(round(float(digits) * units[unit]) for digits, unit in re.findall(r"([0-9.]+)\s*([A-Za-z]+)", value))


def parameters(component, given):
    """What `open` has: the given ones and defaults, without expressions and templates."""
    found = {}
    for parameter in component.get("parameters", []):
        name, kind = parameter["name"], parameter["type"]
        if kind in ("expression", "template"):
            continue
        value = given.get(name, parameter.get("default"))
        if value is not None:
            found[name] = wire(kind, value)
    return found


def per_event(component, given, event):
    """`with` for an event; only paths such as `event.a.b` are evaluated, all else is a fixed text."""
    found = {}
    for parameter in component.get("parameters", []):
        text = given.get(parameter["name"], parameter.get("default"))
        if parameter["type"] not in ("expression", "template") or text is None:
            continue
        value = event
        if re.fullmatch(r"event(\.\w+)*", str(text)):
            for part in str(text).split(".")[1:]:
                value = value.get(part) if isinstance(value, dict) else None
        else:
            value = "fixed"
        if parameter["type"] == "template" or parameter.get("result") == "string" and not isinstance(value, str):
            value = str(value)
        found[parameter["name"]] = value
    return {"with": found} if found else {}


def inputs(component, given, events):
    """Frames of events; a number of nanoseconds in a tuple is a pause."""
    return [event[0] if isinstance(event, tuple) else {"event": event, **per_event(component, given, event)}
            for event in events]


class Directory:
    """A temporary directory, removed at the end."""

    def __init__(self, files=None):
        self.files = files or {}

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="rxd-plugin-")
        for name, content in self.files.items():
            with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
                file.write(content)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)
