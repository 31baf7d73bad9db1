"""Checks a running service: each component that opens a resource must deliver one event."""
import json
import time
import urllib.error
import urllib.request


class Failure(Exception):
    """A failed check."""


# The output files of the pipelines; each must receive an event.
FILES = [
    "file", "packed", "program", "answered", "again", "tcp", "udp", "unix", "syslog", "statsd", "events", "messages", "followed",
    "arrived", "asked", "rows", "polled",
]


def until(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what}, after {seconds} s")
        time.sleep(0.1)


class Service:
    """A running service.

    log: the folder of its log files, as seen from here.
    hub: HOST:PORT of its HTTP servers.
    reload: reloads it, and raises a Failure if that fails.
    """

    def __init__(self, log, hub, reload):
        self.log, self.hub, self.reload = log, hub, reload
        # No proxy from the environment.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path, body=None, headers=None):
        request = urllib.request.Request(f"http://{self.hub}{path}", data=body, headers=headers or {})
        try:
            with self.opener.open(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def post(self, number):
        row = json.dumps({"n": number, "text": f"event {number}", "name": "unit.events"}).encode()
        return self.ask("/in", row + b"\n")

    def missing(self):
        found = {path.name.split(".")[0] for path in self.log.iterdir() if path.is_file() and path.stat().st_size > 0}
        return [name for name in FILES if name not in found]

    def check(self):
        until("the server does not answer", lambda: self.post(1)[0] == 200)
        number = 1
        # A listener to live events may have connected after the first ones.
        end = time.monotonic() + 60
        while self.missing():
            if time.monotonic() > end:
                raise Failure(f"nothing has come out of {', '.join(self.missing())}")
            number += 1
            status, text = self.post(number)
            if status != 200:
                raise Failure(f"POST /in is answered {status} {text}")
            time.sleep(0.2)
        if not any("EVENT 1" in line for line in (self.log / "file.ndjson").read_text().splitlines()):
            raise Failure("the plugin has not worked on the events")
        # The exporter belongs to another pipeline than the events above, so its metric may appear later.
        until("the exporter has no metric", lambda: "unit_events" in self.ask("/numbers")[1])
        status, text = self.ask("/hello?name=unit")
        if (status, text) != (200, '"hello unit"'):
            raise Failure(f"GET /hello is answered {status} {text}")
        self.refuses_pages()
        self.reload()
        if self.post(number + 1)[0] != 200:
            raise Failure("POST /in is not answered after a reload")

    def refuses_pages(self):
        """Pages of other sites cannot reach a server on the loopback address."""
        for path, body in [("/in", b"{}\n"), ("/numbers", None), ("/events", None), ("/hello", None)]:
            for headers, wanted in [({"Host": "rebind.example", "Origin": "http://rebind.example"}, 421), ({"Origin": "https://evil.example"}, 403)]:
                status, _ = self.ask(path, body, headers)
                if status != wanted:
                    raise Failure(f"{path} with {headers} is answered {status}, not {wanted}")
