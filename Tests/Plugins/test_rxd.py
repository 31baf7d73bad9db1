"""The examples, and broken plugins, in the real rxd: needs RXD, the path of a build with plugins."""
import tempfile
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
import unittest

import fixtures

RXD = os.environ.get("RXD", "")
PIPELINES = os.path.join(fixtures.EXAMPLES, "pipelines")

PIPELINE = """
plugins:
  test: { run: [python3, plugin.py], timeout: 1s }
sources:
  in: %s
sinks:
  out:
    from: in
    chain: [ %s ]
    %s
"""
STDIN, STDOUT = "{ stdin: { decode: json } }", "stdout: { encode: json }"

TROUBLE = '''
@plugin.operator
def trouble(event):
    """Does what the event says."""
    do = event.get("do")
    if do == "die": os._exit(3)
    if do == "segv": os.kill(os.getpid(), 11)
    if do == "hang": time.sleep(60)
    if do == "raise": return event["nothing"]
    if do == "print": print("left in the code")
    if do == "memory": bytearray(3 << 30)
    if do == "files": return [open("/dev/null") for _ in range(1000)]
    return event
'''


@unittest.skipUnless(RXD and os.access(RXD, os.X_OK), "needs RXD")
class WithRxd(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory(prefix="rxd-plugin-"))
        self.environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(self.directory, "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def rxd(self, *arguments, **more):
        more.setdefault("cwd", self.directory)
        environment = {**self.environment, **more.pop("env", {})}
        return subprocess.run([os.path.abspath(RXD), *arguments], text=True, capture_output=True, timeout=60, env=environment, **more)

    def write(self, name, content):
        with open(os.path.join(self.directory, name), "w", encoding="utf-8") as file:
            file.write(content)

    def path(self, name):
        return os.path.join(self.directory, name)


class Examples(WithRxd):
    def test_every_plugin_passes_its_check(self):
        for name in ("enrich", "rate", "spool", "lines", "table"):
            result = self.rxd("plugin", "check", "--", "python3", os.path.join(fixtures.EXAMPLES, "python", name + ".py"))
            with self.subTest(name):
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertIn("is fine", result.stdout)
        self.assertEqual(self.rxd("plugin", "check", os.path.join(fixtures.EXAMPLES, "shell", "upper.sh")).returncode, 0)

    def test_a_directory_of_plugins(self):
        os.mkdir(self.path("plugins"))
        for name in ("shell/upper.sh", "python/rate.py"):
            shutil.copy(os.path.join(fixtures.EXAMPLES, name), self.path("plugins"))
        os.chmod(self.path("plugins/rate.py"), 0o755)
        shutil.copy(os.path.join(fixtures.SDK, "rxd_plugin.py"), self.path("plugins"))
        self.write("p.yaml", "sources: { in: { stdin: { decode: json } } }\n"
                   "sinks: { out: { from: in, chain: [ { upper: name } ], stdout: { encode: json } } }\n")
        for name in ("upper.sh", "rate.py"):
            self.rxd("plugin", "check", os.path.join("plugins", name))
        listed = self.rxd("plugin", "list", "--plugin-dir", "plugins").stdout
        self.assertEqual(re.findall(r"operator (\w+)", listed), ["rate", "upper"])
        result = self.rxd("--plugin-dir", "plugins", "p.yaml", input='{"name":"a"}\n')
        self.assertEqual(result.stdout, '{"name":"A"}\n', result.stderr)
        os.chmod(self.path("plugins"), 0o777)
        self.assertIn("others may write", self.rxd("plugin", "list", "--plugin-dir", "plugins").stdout)
        self.assertNotEqual(self.rxd("--plugin-dir", "plugins", "p.yaml", input="").returncode, 0)

    def test_tests_of_the_pipelines(self):
        for name, count in (("countries", 1), ("rates", 1), ("names", 1)):
            result = self.rxd("test", os.path.join(PIPELINES, name + ".yaml"), env={"KEPT": self.path("kept")})
            with self.subTest(name):
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertIn(f"{count} test passed", result.stdout)

    def test_shell(self):
        result = self.rxd(os.path.join(PIPELINES, "names.yaml"), input='{"name":"Ada"}\n{"name":5}\n{"name":"Bob"}\n',
                          env={"KEPT": self.path("kept")})
        self.assertEqual(result.stdout, '{"name":"ADA"}\n{"name":"BOB"}\n', result.stderr)
        with open(self.path("kept"), encoding="utf-8") as file:
            self.assertEqual(file.read(), result.stdout)

    def test_spool_into_a_database(self):
        os.mkdir(self.path("spool"))
        for number in range(200):
            self.write(f"spool/{number}.json", json.dumps({"id": f"order{number}"}))
        process = subprocess.Popen(
            [os.path.abspath(RXD), os.path.join(PIPELINES, "spool.yaml")], stderr=subprocess.PIPE, text=True,
            env={**self.environment, "SPOOL": self.path("spool"), "ORDERS": self.path("orders.sqlite")})
        self.addCleanup(process.stderr.close)
        self.wait(lambda: not os.listdir(self.path("spool")), process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 0)
        with sqlite3.connect(self.path("orders.sqlite")) as connection:
            self.assertEqual(connection.execute("SELECT count(*) FROM orders").fetchone()[0], 200)
        connection.close()

    def wait(self, condition, process):
        deadline = time.monotonic() + 30
        while not condition():
            self.assertIsNone(process.poll(), "rxd has ended")
            self.assertLess(time.monotonic(), deadline, "too slow")
            time.sleep(0.02)

    def test_lines_go_on_behind_kills(self):
        count = 60_000
        self.write("app.log", "".join(f"{number}\n" for number in range(count)))
        os.mkdir(self.path("state"), 0o700)
        more = {**self.environment, "LOG": self.path("app.log"), "OUT": self.path("out")}
        command = [os.path.abspath(RXD), "--state-dir", self.path("state"), os.path.join(PIPELINES, "lines.yaml")]
        for _ in range(2):
            process = subprocess.Popen(command, env=more, stderr=subprocess.DEVNULL)
            before = self.lines()
            self.wait(lambda: self.lines() > before or process.poll() is not None, process)
            process.kill()
            process.wait()
        self.assertEqual(subprocess.run(command, env=more, capture_output=True, timeout=60).returncode, 0)
        with open(self.path("out"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "".join(f"{number}\n" for number in range(count)))

    def lines(self):
        return os.path.getsize(self.path("out")) if os.path.exists(self.path("out")) else 0


class Mistakes(WithRxd):
    """Typical mistakes of a newcomer, and the outcome of earlier and later events."""

    def run_with(self, code, chain, events):
        shutil.copy(os.path.join(fixtures.SDK, "rxd_plugin.py"), self.directory)
        self.write("plugin.py", code)
        self.write("p.yaml", PIPELINE % (STDIN, chain, STDOUT))
        result = self.rxd("p.yaml", input="".join(json.dumps(event) + "\n" for event in events))
        return result, [json.loads(line) for line in result.stdout.splitlines()]

    def trouble(self, do, message, passes=False):
        events = [{"n": n} for n in range(30)]
        events.insert(17, {"do": do})
        result, found = self.run_with(fixtures.WITH_SDK % TROUBLE, "trouble", events)
        self.assertEqual(found, [event for event in events if passes or "n" in event], result.stderr)
        self.assertRegex(result.stderr, message)
        self.assertEqual(len(re.findall(r'"message":"event rejected"', result.stderr)), 0 if passes else 1)

    def test_crashes(self):
        self.trouble("die", "exited with 3")
        self.trouble("segv", "signal 11")

    def test_a_hang(self):
        self.trouble("hang", "has not answered for 1s")

    def test_exceptions(self):
        self.trouble("raise", "KeyError: 'nothing'")

    def test_print(self):
        self.trouble("print", "left in the code", passes=True)

    def test_a_plugin_that_cannot_start_costs_no_event(self):
        code = "import os\nif os.path.exists('broken'): raise ImportError('no module named pandas')\n" + fixtures.WITH_SDK % TROUBLE
        self.assertEqual(self.run_with(code, "trouble", [{"n": 0}])[1], [{"n": 0}])  # now the spec is known
        self.write("broken", "")
        with subprocess.Popen([os.path.abspath(RXD), "p.yaml"], cwd=self.directory, env=self.environment, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write('{"n":1}\n{"n":2}\n')
            process.stdin.close()
            starts = 0
            for line in process.stderr:
                starts += "no module named pandas; starting again" in line
                if starts == 4:
                    os.remove(self.path("broken"))
                    break
            self.assertEqual(starts, 4)
            self.assertEqual(process.stdout.read(), '{"n":1}\n{"n":2}\n')
            process.stderr.read()

    def test_the_end_of_a_plugin_is_waited_for(self):
        code = fixtures.WITH_SDK % """
@plugin.operator
class Slow(Operator):
    'Closes slowly.'
    def process(self, event): return event
    def close(self):
        time.sleep(0.5)
        open("closed", "w").close()
"""
        self.assertEqual(self.run_with(code, "slow", [1])[1], [1])
        self.assertTrue(os.path.exists(self.path("closed")))

    def test_secrets_are_masked_wherever_a_plugin_says_them(self):
        code = fixtures.WITH_SDK % """
@plugin.operator
def leak(event, token=secret("A token.")):
    'Leaks.'
    print("printed", token)
    log("warning", "logged " + token)
    raise Reject("rejected " + token)
"""
        result, _ = self.run_with(code, "{ leak: { token: hunter2secret } }", [1])
        for said in ("printed (secret)", "logged (secret)", "rejected (secret)"):
            self.assertIn(said, result.stderr)
        self.assertNotIn("hunter2secret", result.stderr)

    def test_limits(self):
        self.trouble("memory", "MemoryError")
        self.trouble("files", "Too many open files")

    def test_garbage_on_standard_output(self):
        code = fixtures.BARE % "def answer(frame):\n" \
            "    if frame.get('event') == {'do': 'print'}: print('debugging', flush=True)\n" \
            "    write({'id': frame['id'], **({'events': [frame['event']]} if 'event' in frame else {})})"
        events = [{"n": 1}, {"do": "print"}, {"n": 2}]
        result, found = self.run_with(code, "bare", events)
        self.assertEqual(found, [{"n": 1}, {"n": 2}])
        self.assertRegex(result.stderr, "not a JSON object.*debugging")

    def test_a_changed_spec(self):
        code = fixtures.WITH_SDK % TROUBLE
        result, _ = self.run_with(code.replace('"1.0.0"', '"1.0.%d" % time.time_ns()'), "trouble", [{"n": 1}])
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertIn("its spec differs", result.stderr)


if __name__ == "__main__":
    unittest.main()
