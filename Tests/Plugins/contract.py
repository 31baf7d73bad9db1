"""rxd's handling of a program that ends, and calls of `rxd plugin test`, which checks the guarantees of a plugin."""
import json
import os
import shutil
import subprocess
import tempfile

from host import Host, Violation

RXD = os.environ.get("RXD", "")


class Case:
    """A component of a program, with the parameters of its `open` frame."""

    def __init__(self, command, kind, name, parameters=None, directory=None, timeout=10.0):
        self.command, self.kind, self.name, self.parameters = command, kind, name, parameters or {}
        self.directory, self.timeout = directory, timeout

    def host(self):
        return Host(self.command, cwd=self.directory, timeout=self.timeout)

    def open(self, host):
        instance = host.open(self.kind, self.name, self.parameters)
        if instance.error is not None:
            raise Violation(f"open is refused: {instance.error}")
        return instance


def keeps_the_contract(test, command, *parameters, component=None, events=None, files=None, only=None):
    """Fails `test` unless `rxd plugin test` finds no fault. `parameters`: components as in pipeline files."""
    if not RXD:
        test.skipTest("needs RXD, the path of rxd")
    with Directory() as directory:
        options = [f"--parameters={text}" for text in parameters]
        if component:
            options.append(f"--component={component}")
        if only:
            options.append(f"--only={only}")
        if files:
            options.append(f"--files={files}")
        if events is not None:
            path = os.path.join(directory, "events")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(event) + "\n" for event in events)
            options.append(f"--events={path}")
        done = subprocess.run([os.path.abspath(RXD), "plugin", "test", *options, command[0], "--", *command[1:]],
                              capture_output=True, text=True, timeout=300)
        test.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for text in parameters:
            test.assertIn("as given", done.stdout)
        return done.stdout


class Supervised:
    """An operator or sink with rxd's recovery: restarts the program, passes unanswered inputs one at a time, and removes an
    input that was the first unanswered one at three ends in a row."""

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
                    # After an end, unanswered inputs are passed one at a time: so the first unanswered one is the culprit.
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
