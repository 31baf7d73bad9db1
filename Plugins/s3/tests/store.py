"""Helpers for the tests of s3: moto's server, a proxy that cuts connections, and servers that misbehave."""
import ctypes
import gzip
import http.client
import http.server
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "testing"))
from plugin_test import free_port, wait_for  # noqa: E402

REGION = "eu-central-1"
ACCESS, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
# Nothing from the machine's configuration.
CLEAN = {name: "" for name in os.environ if name.startswith("AWS_")} | {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}


def client_of(port, service="s3", access=ACCESS, secret=SECRET):
    """A plain client."""
    config = botocore.config.Config(retries={"max_attempts": 10}, connect_timeout=5, read_timeout=30, proxies={},
                                    s3={"addressing_style": "path"})
    return boto3.client(service, endpoint_url=f"http://127.0.0.1:{port}", region_name=REGION, aws_access_key_id=access,
                        aws_secret_access_key=secret, config=config)


# It ends with the test. An answer sent in two packets would be delayed by 40 ms each time.
MOTO = """import ctypes, signal, socketserver, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
socketserver.StreamRequestHandler.disable_nagle_algorithm = True
import moto.server
moto.server.main(sys.argv[1:])"""


class Moto:
    """moto's server; a separate process, or the one that all classes of a run share."""

    def __init__(self, **environment):
        self.process = None
        if not environment and os.environ.get("MOTO"):
            port, self.log = os.environ["MOTO"].split()
            self.port = int(port)
            return
        self.port = free_port()
        self.directory = tempfile.mkdtemp(prefix="rxd-moto-")
        self.log = os.path.join(self.directory, "log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([sys.executable, "-c", MOTO, "-H", "127.0.0.1", "-p", str(self.port)], stdout=log, stderr=log,
                                            env={**os.environ, "LD_PRELOAD": "", **environment})

        def answers():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/moto-api/")
                return connection.getresponse().status == 200
            except OSError:
                return False

        wait_for(answers, "moto", 60)

    def end(self):
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory)

    def requests(self):
        """Method and path of each request so far."""
        with open(self.log, errors="replace") as log:
            return [line.split('"')[1] for line in log if '"' in line and "HTTP/1.1" in line]


class Proxy:
    """Forwards connections to a port; `cut` ends all of them at once, in the middle of a transfer."""

    def __init__(self, to):
        self.to, self.connections, self.lock = to, set(), threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.limit = None  # bytes of a connection to the client; then it is cut
        self.cuts = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.run, args=(near,), daemon=True).start()

    def run(self, near):
        try:
            far = socket.create_connection(("127.0.0.1", self.to), 10)
        except OSError:
            near.close()
            return
        with self.lock:
            self.connections |= {near, far}
        passed = 0
        try:
            while True:
                for end in select.select([near, far], [], [], 30)[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    if end is far and self.limit is not None:
                        data = data[:max(0, self.limit - passed)]
                        passed += len(data)
                        near.sendall(data)
                        if passed >= self.limit:
                            self.cuts += 1
                            return
                        continue
                    (far if end is near else near).sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.connections -= {near, far}
            near.close()
            far.close()

    def cut(self):
        with self.lock:
            connections = list(self.connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.cuts += len(connections) // 2

    def close(self):
        self.listener.close()
        self.cut()


class Script(http.server.ThreadingHTTPServer):
    """A server whose answers come from the test: `answer(request)` returns (status, headers, body), or None after writing itself."""

    daemon_threads = True

    def __init__(self, answer):
        self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                self.body = self.rfile.read(length)
                self.url = urllib.parse.urlsplit(self.path)
                self.query = dict(urllib.parse.parse_qsl(self.url.query, keep_blank_values=True))
                self.server.requests.append((self.command, self.path, dict(self.headers), self.body))
                try:
                    made = answer(self)
                except OSError:
                    made = None
                if made is None:
                    self.close_connection = True
                    return
                status, headers, body = made
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *_):
        pass

    def end(self):
        self.shutdown()
        self.server_close()


def signature(request, service="s3"):
    """botocore's signature of the received request."""
    signed = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    made = botocore.awsrequest.AWSRequest(method=request.command, url=f"http://{request.headers['host']}{request.path}", data=request.body,
                                          headers={name: request.headers[name] for name in signed})
    made.context["timestamp"] = request.headers["x-amz-date"]
    auth = botocore.auth.S3SigV4Auth(botocore.credentials.Credentials(ACCESS, SECRET), service, REGION)
    return auth.signature(auth.string_to_sign(made, auth.canonical_request(made)), made)


def listing(objects, truncated=False):
    """The answer to a listing: (key, size) of each, perhaps with seconds since 1970."""
    objects = [(*entry, 1767323045)[:3] for entry in objects]
    contents = "".join(
        f"<Contents><Key>{urllib.parse.quote(key)}</Key><LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.678Z', time.gmtime(modified))}</LastModified>"
        f"<ETag>&quot;tag-0&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, size, modified in objects)
    return (f'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>'
            f"<IsTruncated>{'true' if truncated else 'false'}</IsTruncated>{contents}</ListBucketResult>").encode()


def error(status, code, message="", **headers):
    return status, headers, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


def zstd(data):
    """Packed with the library with which the plugin unpacks: Python has none."""
    library = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_compressBound", "ZSTD_compress", "ZSTD_decompress"):
        getattr(library, name).restype = ctypes.c_size_t
    bound = library.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    target = ctypes.create_string_buffer(bound)
    made = library.ZSTD_compress(target, ctypes.c_size_t(bound), data, ctypes.c_size_t(len(data)), 3)
    return target.raw[:made]


def unzstd(data, most=1 << 24):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    target = ctypes.create_string_buffer(most)
    made = library.ZSTD_decompress(target, ctypes.c_size_t(most), data, ctypes.c_size_t(len(data)))
    return target.raw[:made]


def unpacked(key, data):
    return gzip.decompress(data) if key.endswith(".gz") else unzstd(data) if key.endswith(".zst") else data


def fill(port, bucket, numbers, size=200, pause=0.0, prefix="in/"):
    """Objects of numbers, one per line, named in order."""
    client = client_of(port)
    numbers = list(numbers)
    while numbers:
        part, numbers = numbers[:size], numbers[size:]
        client.put_object(Bucket=bucket, Key=f"{prefix}{part[0]:08}.ndjson", Body="".join(f"{number}\n" for number in part).encode())
        time.sleep(pause * random.random())


if __name__ == "__main__":  # serves until it is ended
    moto = Moto()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        print(moto.port, moto.log, flush=True)
        signal.pause()
    finally:
        moto.end()
