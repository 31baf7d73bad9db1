"""Operators in Python that complete before their input: their marbles are the ones of the core's operators."""
import json
import os
import re
import subprocess
import tempfile
import unittest

import fixtures
from contract import keeps_the_contract
from fixtures import with_sdk
from host import Host

RXD = os.environ.get("RXD", "")
CORE = os.path.join(fixtures.ROOT, "Sources", "PipelineCore", "Operators")

OPERATORS = '''
@plugin.operator(memory="A counter.", examples=[
    Example("two", {"count": 2}, [1, 2, 3], [1, 2]), Example("none", {"count": 0}, [1], []), Example("few", {"count": 5}, [1], [1])])
class PluginTake(Operator):
    """Passes on the first events."""
    count: int = integer("How many.", primary=True, required=True, minimum=0)

    def open(self):
        self.left = self.count
        if self.left == 0:
            raise Finish()

    def process(self, event):
        self.left -= 1
        if self.left == 0:
            raise Finish(event)
        return event

    def save(self):
        return self.left

    def restore(self, state, version):
        self.left = state


@plugin.operator(examples=[Example("small", {"where": "event.ok"}, [{"ok": True}, {"ok": False}, {"ok": True}], [{"ok": True}])])
def plugin_take_while(event, where: bool = expression("The condition.", result="bool", primary=True, required=True),
                      inclusive: bool = boolean("Also send the event that ends it.", default=False)):
    """Passes on events until one does not fulfil a condition."""
    if where:
        return event
    raise Finish(event) if inclusive else Finish()


@plugin.operator(examples=[Example("a number", {}, [1, 2], [1, 2, 3])])
def yielding(event):
    """Sends two and ends with a third."""
    yield 1
    yield 2
    raise Finish(3)


@plugin.operator(examples=[Example("a timer", {}, [1, Pause(2), 5], [1, "bye"])])
class Until(Operator):
    """Ends after a second."""
    def process(self, event):
        self.set_timer("end", 1.0)
        return event
    def timer(self, name):
        self.set_timer("never", 1.0)
        raise Finish("bye")
'''


def core_marbles(operator):
    """The examples of the core's operator: title, step, input, output."""
    with open(os.path.join(CORE, operator + ".swift"), encoding="utf-8") as file:
        text = file.read()
    found = re.findall(r'\.marble\(\s*"([^"]*)",\s*"([^"]*)",\s*in: "([^"]*)",\s*out: "([^"]*)"\s*\)', text)
    assert len(found) >= 3, found
    return found


class Finish(unittest.TestCase):
    @unittest.skipUnless(RXD and os.access(RXD, os.X_OK), "needs RXD")
    def test_marbles_are_those_of_the_core(self):
        with tempfile.TemporaryDirectory(prefix="rxd-finish-") as directory:
            command = json.dumps(with_sdk(OPERATORS))
            for operator, name in (("Take", "take"), ("TakeWhile", "takeWhile")):
                own = "plugin" + name[0].upper() + name[1:]
                for title, step, given, expected in core_marbles(operator):
                    path = os.path.join(directory, "one.yaml")
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(f"""
plugins: {{ test: {{ run: {command} }} }}
sources: {{ a: {{ never: {{}} }} }}
sinks:
  out:
    from: a
    chain: [ {{ {step.replace(name, own)} }} ]
    discard: {{}}
tests:
  - name: {title}
    inputs: {{ a: {{ marbles: "{given}" }} }}
    expect: {{ out: {{ marbles: "{expected}" }} }}
""")
                    done = subprocess.run([os.path.abspath(RXD), "test", path], capture_output=True, text=True, timeout=60,
                                          env={**os.environ, "XDG_CACHE_HOME": directory + "/cache"})
                    self.assertEqual(done.returncode, 0, f"{step}: {title}\n{done.stdout}{done.stderr}")

    def test_the_plugin_s_own_tests_pass(self):
        with fixtures.script(fixtures.WITH_SDK % OPERATORS) as script:
            done = fixtures.run([*fixtures.PYTHON, script, "--test"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("pluginTake: two (state cut at", done.stdout)

    def test_what_was_under_way_is_ignored(self):
        with Host(with_sdk(OPERATORS)) as host:
            one = host.open("operator", "yielding", {})
            other = host.open("operator", "yielding", {})
            answers = [host.input(one, event=n) for n in range(5)] + [host.input(other, event=9)]
            host.settle()
            for answer in (answers[0], answers[-1]):
                self.assertEqual((answer.events, answer.finish), ([1, 2, 3], True))
            self.assertEqual([answer.is_taken for answer in answers[1:-1]], [False] * 4)

    def test_the_contract_is_kept(self):
        said = keeps_the_contract(self, with_sdk(OPERATORS), "pluginTakeWhile: '!event.ok'")
        self.assertEqual(len(re.findall(r"ok +finish ", said)), 6, said)


if __name__ == "__main__":
    unittest.main()
