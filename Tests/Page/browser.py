"""A browser over WebDriver, with only the standard library: Debian's chromium and chromium-driver."""
import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

LIMIT = 120


class Browser:
    """One window. `width` and `height` are the page's. With `network` it notes what pages ask for."""

    def __init__(self, width=1280, height=800, dark=False, touch=False, network=False):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._driver = subprocess.Popen(
            [shutil.which("chromedriver"), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._base = f"http://127.0.0.1:{port}"
        options = {
            "binary": shutil.which("chromium"),
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--no-proxy-server", f"--window-size={width},{height}",
            ] + (["--blink-settings=preferredColorScheme=0"] if dark else []),
        }
        if touch:
            options["mobileEmulation"] = {
                "deviceMetrics": {"width": width, "height": height, "pixelRatio": 2, "touch": True, "mobile": True}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        if network:
            wanted["goog:loggingPrefs"]["performance"] = "ALL"
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
                break
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._base += f"/session/{answer['sessionId']}"
        if not touch:
            # The window has a frame, even if it is invisible.
            inner = self.run("return [window.innerWidth, window.innerHeight]")
            self._call("POST", "/window/rect", {"width": 2 * width - inner[0], "height": 2 * height - inner[1]})

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._base + path, method=method, data=data, headers={"Content-Type": "application/json"})
        try:
            return json.load(self._opener.open(request, timeout=LIMIT))["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()[:2000]) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()

    def open(self, url):
        self._call("POST", "/url", {"url": url})

    def tab(self, handle=None):
        """Opens a new tab, or switches to the given one; returns the previous one."""
        former = self._call("GET", "/window")
        wanted = handle or self._call("POST", "/window/new", {"type": "tab"})["handle"]
        self._call("POST", "/window", {"handle": wanted})
        return former

    def run(self, script, *arguments):
        """The result of a function with this body."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments, until=bool):
        """The first result of the script that meets the condition."""
        deadline = time.monotonic() + LIMIT
        while True:
            found = self.run(script, *arguments)
            if until(found):
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{script} stays {found!r}")
            time.sleep(0.05)

    def key(self, key):
        self.run("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0], bubbles: true }))", key)

    def errors(self):
        """The errors and violations that the console has reported."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]

    def command(self, name, **parameters):
        """A command of the protocol of Chromium's developer tools."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def requests(self):
        """The addresses that pages have asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self._call("POST", "/se/log", {"type": "performance"})]
        return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._call("GET", "/screenshot")))
