"""Lines per second of boto3 and of rxd, alternating, on moto's server: RXD=PROGRAM bench.py [LINES [RUNS]]

moto, in Python, and the machine's two cores limit both: the processor time shows what each of them needs."""
import gzip
import os
import resource
import sys
import time

from store import ACCESS, REGION, SECRET, Moto, client_of
from test_s3 import RXD, S3Test

LINES, RUNS = (int(sys.argv[1]) if len(sys.argv) > 1 else 1000000), (int(sys.argv[2]) if len(sys.argv) > 2 else 5)
OBJECTS = 20
LINE = "%07d " + "x" * 91 + "\n"  # 100 bytes


def processor():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Bench(S3Test):
    def connection(self):
        return f"bucket: {self.bucket}, endpoint: 'http://127.0.0.1:{self.port}', region: {REGION}, accessKey: {ACCESS}, secretKey: {SECRET}"

    def run_rxd(self, text, name):
        begin, used = time.monotonic(), processor()
        run = self.pipeline(text, name)
        assert run.process.wait(300) == 0, run.errors()
        return time.monotonic() - begin, processor() - used

    def rxd_read(self, turn, prefix):
        return self.run_rxd(f"""plugins: {{ s3: PLUGIN }}
sources: {{ in: {{ s3: {{ prefix: {prefix}/, {self.connection()} }} }} }}
sinks: {{ out: {{ from: in, chain: [ map: event.value ], file: {{ path: {self.path('out')}, encode: text }} }} }}
""", f"read-{prefix}-{turn}")

    def boto_read(self, prefix):
        """The work of a short script: lists, gets, splits into lines, writes them."""
        begin, used = time.monotonic(), time.process_time()
        with open(self.path("plain"), "wb") as out:
            for key in self.keys(prefix + "/"):
                body = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"]
                lines = gzip.GzipFile(fileobj=body) if key.endswith(".gz") else body.iter_lines(65536)
                for line in lines:
                    out.write(line.rstrip(b"\n") + b"\n")
        return time.monotonic() - begin, time.process_time() - used

    def rxd_write(self, turn, compress, collects):
        chain = f"chain: [ bufferWithCount: {LINES // OBJECTS} ], " if collects else ""
        return self.run_rxd(f"""plugins: {{ s3: PLUGIN }}
sources: {{ in: {{ file: {{ path: {self.path('lines')} }} }} }}
sinks: {{ out: {{ from: in, {chain}s3: {{ lists: lines, key: "rxd-{compress}-{turn}/{{id}}", encode: text, compress: {compress}, {self.connection()} }} }} }}
""", f"write-{compress}-{collects}-{turn}")

    def boto_write(self, turn, compress):
        """The same lines in OBJECTS objects."""
        begin, used = time.monotonic(), time.process_time()
        with open(self.path("lines"), "rb") as lines:
            for number in range(OBJECTS):
                body = b"".join(next(lines) for _ in range(LINES // OBJECTS))
                self.put(f"boto-{compress}-{turn}/{number}", gzip.compress(body, 6) if compress == "gzip" else body)
        return time.monotonic() - begin, time.process_time() - used

    def runTest(self):
        self.moto = Moto()
        self.addCleanup(self.moto.end)
        self.s3, self.port = client_of(self.moto.port), self.moto.port
        self.bucket = "bench"
        self.make_bucket()
        with open(self.path("lines"), "w") as file:
            file.writelines(LINE % n for n in range(LINES))
        for number in range(OBJECTS):
            body = "".join(LINE % n for n in range(number * LINES // OBJECTS, (number + 1) * LINES // OBJECTS)).encode()
            self.put(f"plain/{number:02}", body)
            self.put(f"gzip/{number:02}.gz", gzip.compress(body, 6))
        figures, objects = {}, []
        for turn in range(RUNS):
            for prefix in ("plain", "gzip"):
                figures.setdefault(f"boto3 reads {prefix}", []).append(self.boto_read(prefix))
                figures.setdefault(f"rxd reads {prefix}", []).append(self.rxd_read(turn, prefix))
                with open(self.path("plain"), "rb") as plain, open(self.path("out"), "rb") as out:
                    assert plain.read() == out.read(), "other lines"
                os.remove(self.path("out"))
            for compress in ("none", "gzip"):
                figures.setdefault(f"boto3 writes {compress}", []).append(self.boto_write(turn, compress))
                figures.setdefault(f"rxd writes {compress}", []).append(self.rxd_write(turn, compress, False))
                objects.append(len(self.keys(f"rxd-{compress}-{turn}/")))
                figures.setdefault(f"rxd writes {compress}, collected", []).append(self.rxd_write(turn, compress, True))
                for maker in ("rxd", "boto"):
                    for key in self.keys(f"{maker}-{compress}-{turn}/"):
                        self.s3.delete_object(Bucket=self.bucket, Key=key)
        print(f"boto3 and 'collected': {OBJECTS} objects; else {min(objects)} to {max(objects)} objects")
        for name, measured in figures.items():
            rates = sorted(LINES / took / 1000 for took, _ in measured)
            used = sorted(used for _, used in measured)
            print(f"{name}: {rates[0]:.0f} to {rates[-1]:.0f} thousand lines a second, {rates[len(rates) // 2]:.0f} in the middle; "
                  f"{used[len(used) // 2]:.2f} s of processor time in the middle")


if __name__ == "__main__":
    import unittest
    if not RXD:
        sys.exit("set RXD to the program")
    unittest.TextTestRunner().run(Bench())
