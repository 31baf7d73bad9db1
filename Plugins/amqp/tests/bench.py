"""Messages per second of a plain client and of rxd, alternating, with durable queues: RXD=PROGRAM bench.py [COUNT [RUNS]]"""
import json
import os
import subprocess
import sys
import time
import unittest

from test_amqp import ROOT, RXD, AmqpTest, tearDownModule, wait_for

COUNT, RUNS = (int(sys.argv[1]) if len(sys.argv) > 1 else 200000), (int(sys.argv[2]) if len(sys.argv) > 2 else 5)
BENCH = os.path.join(ROOT, "build", "bench")


class Bench(AmqpTest):
    def plain(self, what, queue):
        return int(subprocess.run([BENCH, what, str(self.server.port), queue, str(COUNT)], capture_output=True, check=True).stdout)

    def rxd_publish(self, queue, name):
        path = self.path("lines")
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.writelines(f"message {n}\n" for n in range(COUNT))
        begin = time.monotonic()
        run = self.pipeline(f"""plugins: {{ amqp: PLUGIN }}
sources: {{ in: {{ file: {{ path: {path} }} }} }}
sinks: {{ out: {{ from: in, amqp: {{ routingKey: {queue}, servers: {json.dumps(self.servers)} }} }} }}
""", name)
        assert run.process.wait(300) == 0, run.errors()
        return COUNT / (time.monotonic() - begin)

    def rxd_consume(self, queue, name):
        run = self.pipeline(f"""plugins: {{ amqp: PLUGIN }}
sources: {{ in: {{ amqp: {{ queue: {queue}, servers: {json.dumps(self.servers)} }} }} }}
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
            plain, own = f"plain{turn}", f"rxd{turn}"
            client = self.client()
            for queue in [plain, own]:
                client.declare(queue)
            for name, measure in [("plain publish", lambda: self.plain("publish", plain)), ("rxd publish", lambda: self.rxd_publish(own, f"p{turn}")),
                                  ("plain consume", lambda: self.plain("consume", plain)), ("rxd consume", lambda: self.rxd_consume(own, f"c{turn}"))]:
                rates.setdefault(name, []).append(measure() / 1000)
            for queue in [plain, own]:
                assert client.count(queue) == 0, queue
                client.delete(queue)
        for name, measured in rates.items():
            print(f"{name}: {min(measured):.0f} to {max(measured):.0f} thousand a second, {sorted(measured)[len(measured) // 2]:.0f} in the middle")
        for what in ["publish", "consume"]:
            ratios = sorted(rxd / plain for rxd, plain in zip(rates[f"rxd {what}"], rates[f"plain {what}"]))
            print(f"{what}: rxd at {ratios[0]:.2f} to {ratios[-1]:.2f} of the plain client, {ratios[len(ratios) // 2]:.2f} in the middle")


if __name__ == "__main__":
    if not RXD:
        sys.exit("set RXD to the program")
    try:
        unittest.TextTestRunner().run(Bench())
    finally:
        tearDownModule()
