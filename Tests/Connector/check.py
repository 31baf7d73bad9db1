"""Runs a program `rxd` with the sink `redisStream` against a real redis-server: `check.py PROGRAM`."""
import json, os, re, signal, socket, subprocess, sys, tempfile, time

PROGRAM = os.path.abspath(sys.argv[1])
FOLDER = tempfile.mkdtemp(prefix="rxd-connector-")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds} s: {what}\n--- log\n{Daemon.text()[-3000:]}")
        time.sleep(0.02)


def expect(condition, what):
    if not condition:
        raise SystemExit(f"does not hold: {what}\n--- log\n{Daemon.text()[-3000:]}")


class Redis:
    """A server that keeps acknowledged data on disk."""
    port = free_port()
    process = None

    @classmethod
    def start(cls):
        cls.process = subprocess.Popen(
            ["redis-server", "--port", str(cls.port), "--bind", "127.0.0.1", "--dir", FOLDER, "--save", "", "--appendonly", "yes",
             "--appendfsync", "always", "--requirepass", "secret"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: cls.call("PING") == "PONG", "redis-server answers")

    @classmethod
    def kill(cls):
        cls.process.kill()
        cls.process.wait()

    @classmethod
    def call(cls, *words):
        done = subprocess.run(["redis-cli", "-p", str(cls.port), "-a", "secret", "--no-auth-warning", *words], capture_output=True, text=True)
        return done.stdout.strip()

    @classmethod
    def numbers(cls, *streams):
        """The numbers of the events in the streams, in order."""
        found = []
        for stream in streams:
            found += [int(n) for n in re.findall(r'"n": (\d+)', cls.call("XRANGE", stream, "-", "+"))]
        return found


class Daemon:
    log = os.path.join(FOLDER, "log")
    process = None

    @classmethod
    def start(cls):
        with open(cls.log, "ab") as log:
            cls.process = subprocess.Popen(
                [PROGRAM, "run", "--daemon", "--state-dir", f"{FOLDER}/state", "--control-socket", f"{FOLDER}/control", FILE],
                stdout=log, stderr=log, env={**os.environ, "REDIS_PASSWORD": "secret"})
        wait_for(lambda: cls.stats() is not None, "the program runs")

    @classmethod
    def text(cls):
        return open(cls.log, encoding="utf-8", errors="replace").read() if os.path.exists(cls.log) else ""

    @classmethod
    def end(cls, how):
        cls.process.send_signal(how)
        began = time.monotonic()
        cls.process.wait(timeout=60)
        return time.monotonic() - began

    @classmethod
    def stats(cls):
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(5)
                link.connect(f"{FOLDER}/control")
                link.sendall(b"GET /stats HTTP/1.1\r\nHost: rxd\r\nConnection: close\r\n\r\n")
                text = b""
                while part := link.recv(65536):
                    text += part
            return json.loads(text.split(b"\r\n\r\n", 1)[1])
        except (OSError, ValueError, IndexError):
            return None


def command(*words, status=0):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env={**os.environ, "REDIS_PASSWORD": "secret"})
    expect(done.returncode == status, f"{words} ends with {done.returncode}, not {status}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


FILE = os.path.join(FOLDER, "pipeline.yaml")
INPUT = os.path.join(FOLDER, "in.ndjson")
sent = 0


def write(count=0, stream=None, batch=50, errors=True):
    """The pipeline, or events in its input."""
    global sent
    if count == 0:
        with open(FILE, "w") as file:
            file.write(f"""
name: events
sources: {{ in: {{ file: {{ path: {INPUT}, follow: true, decode: ndjson }} }} }}
sinks:
  out:
    from: in
    redisStream:
      {{ stream: event.to, port: {Redis.port}, password: '${{REDIS_PASSWORD}}', batch: {batch}, queue: 100, retry: {{ delay: 20ms, maxDelay: 200ms }} }}
""")
            if errors:
                file.write(f"  refused: {{ from: out.errors, file: {{ path: {FOLDER}/refused.ndjson, encode: ndjson }} }}\n")
        return
    with open(INPUT, "a") as file:
        for _ in range(count):
            file.write(json.dumps({"n": sent, "to": stream or "ab"[sent % 2], "text": "x" * 100}) + "\n")
            sent += 1


def wait_for_all(wanted, what):
    wait_for(lambda: set(Redis.numbers("a", "b")) >= wanted, what)
    found = Redis.numbers("a", "b")
    expect(set(found) == wanted, f"{what}: nothing was invented")
    return len(found) - len(wanted)


def main():
    # Its parameters are checked and described like those of built-in sinks.
    with open(FILE, "w") as file:
        file.write("sources: { in: { stdin: { decode: ndjson } } }\nsinks: { out: { from: in, redisStream: { stream: event.to, port: 70000, hots: h } } }\n")
    text = command("check", FILE, status=78)
    expect("pipeline.yaml:2:" in text and "70000" in text and "'host'" in text, f"errors have their places: {text}")
    expect("How many events may wait." in command("describe", "redisStream"), "the sink is described")
    # A dry run needs no server.
    write()
    write(2)
    shown = command("run", "--dry-run", "--once", FILE)
    expect('"n":1' in shown.replace(" ", ""), f"a dry run shows events: {shown}")

    Redis.start()
    Daemon.start()
    write(500)
    wait_for_all(set(range(sent)), "events arrive")
    expect(Redis.numbers("a") == [n for n in range(sent) if n % 2 == 0], "a stream has the order of its events")

    # The server is killed; events that arrive meanwhile wait, bounded, and the program reports this once.
    Redis.kill()
    write(5000)
    wait_for(lambda: "trying again" in Daemon.text(), "the log names the failure")
    most = 0
    end = time.monotonic() + 2
    while time.monotonic() < end:
        document = Daemon.stats() or {}
        most = max([most] + [int(n) for n in re.findall(r'"queue":\s*\{[^}]*?"events":\s*(\d+)', json.dumps(document))])
        time.sleep(0.1)
    Redis.start()
    again = wait_for_all(set(range(sent)), "nothing is lost while the server is away")
    expect(0 < most < 1000, f"of 5000 events few wait in memory: {most}")
    wait_for(lambda: "accepts events again" in Daemon.text(), "the log names the recovery")
    expect("secret" not in Daemon.text(), "the password is in no log")

    # An event refused by the server goes to the errors output alone, with the reason.
    Redis.call("SET", "text", "no stream")
    refused = sent
    write(1, stream="text")
    write(20)
    good = set(range(sent)) - {refused}
    wait_for_all(good, "the neighbours of a refused event arrive")
    wait_for(lambda: os.path.exists(f"{FOLDER}/refused.ndjson") and open(f"{FOLDER}/refused.ndjson").read().count("\n") == 1, "the refused event")
    text = open(f"{FOLDER}/refused.ndjson").read()
    expect("WRONGTYPE" in text and f'"n":{refused}' in text.replace(" ", ""), f"the reason of the refusal: {text}")

    # A reload while the server is down waits for nothing and loses nothing.
    Redis.kill()
    write(300)
    write(batch=20, errors=False)
    began = time.monotonic()
    command("reload", "--wait", "--socket", f"{FOLDER}/control")
    lasted = time.monotonic() - began
    Redis.start()
    good |= set(range(refused + 1, sent))
    wait_for_all(good, "nothing is lost over a reload")

    # If nothing reads the errors output, a refused event is a dead letter.
    write(1, stream="text")
    wait_for(lambda: "WRONGTYPE" in command("deadletters", "show", "events", "--state-dir", f"{FOLDER}/state"), "the dead letter")

    # A stop, then a crash, while the server is down: the next run continues from the state.
    for how in [signal.SIGTERM, signal.SIGKILL]:
        Redis.kill()
        write(400)
        good |= set(range(sent - 400, sent))
        wait_for(lambda: "trying again" in Daemon.text()[-2000:], "the log names the failure")
        stopped = Daemon.end(how)
        expect(stopped < 20, f"a stop does not wait for the server: {stopped:.1f} s")
        Redis.start()
        Daemon.start()
        again += wait_for_all(good, f"nothing is lost over {how.name}")
    expect(Daemon.end(signal.SIGTERM) < 10, "the program ends")
    Redis.kill()
    print(f"a connector of its own: {sent} events, nothing lost over 4 kills of the server, a reload ({lasted * 1000:.0f} ms), a stop and a "
          f"kill of the program; {again} came twice; at most {most} waited; 1 refused, 1 dead letter")


try:
    main()
finally:
    for process in [Redis.process, Daemon.process]:
        if process and process.poll() is None:
            process.kill()
    subprocess.run(["rm", "-rf", FOLDER])
