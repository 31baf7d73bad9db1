"""Messages per second of a plain client and of rxd, alternating, on streams on disk: RXD=PROGRAM bench.py [COUNT [RUNS]]"""
import json
import os
import subprocess
import sys
import time

from test_nats import ROOT, RXD, NatsTest, wait_for

COUNT, RUNS = (int(sys.argv[1]) if len(sys.argv) > 1 else 200000), (int(sys.argv[2]) if len(sys.argv) > 2 else 5)
BENCH = os.path.join(ROOT, "build", "bench")


class Bench(NatsTest):
    def plain(self, what, stream):
        return int(subprocess.run([BENCH, what, f"nats://{self.servers[0]}", stream, f"{stream.lower()}.n", str(COUNT)], capture_output=True,
                                  check=True).stdout)

    def rxd_publish(self, stream, name):
        path = self.path("lines")
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.writelines(f"message {n}\n" for n in range(COUNT))
        begin = time.monotonic()
        run = self.pipeline(f"""plugins: {{ nats: PLUGIN }}
sources: {{ in: {{ file: {{ path: {path} }} }} }}
sinks: {{ out: {{ from: in, natsStream: {{ stream: {stream}, subject: {stream.lower()}.n, servers: {json.dumps(self.servers)} }} }} }}
""", name)
        assert run.process.wait(300) == 0, run.errors()
        return COUNT / (time.monotonic() - begin)

    def rxd_consume(self, stream, name):
        run = self.pipeline(f"""plugins: {{ nats: PLUGIN }}
sources: {{ in: {{ natsStream: {{ stream: {stream}, consumer: {name}, servers: {json.dumps(self.servers)} }} }} }}
sinks: {{ out: {{ from: in, chain: [ map: event.value ], stdout: {{ encode: text }} }} }}
""", name)
        wait_for(lambda: os.path.getsize(run.out_path) > 0, "the first message")
        begin = time.monotonic()
        size = sum(len(f"message {n}\n") for n in range(COUNT))
        wait_for(lambda: os.path.getsize(run.out_path) >= size, "all messages", 300)
        took = time.monotonic() - begin
        run.end()
        return COUNT / took

    def runTest(self):
        rates = {}
        for turn in range(RUNS):
            self.end_all()
            self.port = None
            self.start_server(f"server_name: n{turn}")
            client = self.client()
            for stream in [f"PLAIN{turn}", f"RXD{turn}"]:
                client.add_stream(stream, f"{stream.lower()}.>")
            for name, measure in [("plain publish", lambda: self.plain("publish", f"PLAIN{turn}")),
                                  ("rxd publish", lambda: self.rxd_publish(f"RXD{turn}", f"p{turn}")),
                                  ("plain consume", lambda: self.plain("consume", f"PLAIN{turn}")),
                                  ("rxd consume", lambda: self.rxd_consume(f"PLAIN{turn}", f"c{turn}"))]:
                rates.setdefault(name, []).append(measure() / 1000)
        for name, measured in rates.items():
            print(f"{name}: {min(measured):.0f} to {max(measured):.0f} thousand a second, {sorted(measured)[len(measured) // 2]:.0f} in the middle")
        for what in ["publish", "consume"]:
            ratios = sorted(rxd / plain for rxd, plain in zip(rates[f"rxd {what}"], rates[f"plain {what}"]))
            print(f"{what}: rxd at {ratios[0]:.2f} to {ratios[-1]:.2f} of the plain client, {ratios[len(ratios) // 2]:.2f} in the middle")


if __name__ == "__main__":
    import unittest
    if not RXD:
        sys.exit("set RXD to the program")
    unittest.TextTestRunner().run(Bench())
