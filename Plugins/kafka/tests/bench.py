"""Messages per second of a plain client and of rxd, alternating, on the mock cluster: RXD=PROGRAM bench.py [COUNT [RUNS]]"""
import json
import os
import subprocess
import sys
import time

from test_kafka import PLUGIN, ROOT, RXD, KafkaTest, wait_for

COUNT, RUNS = (int(sys.argv[1]) if len(sys.argv) > 1 else 500000), (int(sys.argv[2]) if len(sys.argv) > 2 else 5)
BENCH = os.path.join(ROOT, "build", "bench")


class Bench(KafkaTest):
    def plain(self, what, topic):
        return int(subprocess.run([BENCH, what, ",".join(self.brokers), topic, str(COUNT)], capture_output=True, check=True).stdout)

    def rxd_produce(self, topic, name):
        path = self.path("lines")
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.writelines(f"message {n}\n" for n in range(COUNT))
        begin = time.monotonic()
        run = self.pipeline(f"""plugins: {{ kafka: PLUGIN }}
sources: {{ in: {{ file: {{ path: {path} }} }} }}
sinks: {{ out: {{ from: in, kafka: {{ topic: {topic}, brokers: {json.dumps(self.brokers)} }} }} }}
""", name)
        assert run.process.wait(300) == 0, run.errors()
        return COUNT / (time.monotonic() - begin)

    def rxd_consume(self, topic, name, sink="stdout: { encode: text }", map="map: event.value"):
        run = self.pipeline(f"""plugins: {{ kafka: PLUGIN }}
sources: {{ in: {{ kafka: {{ topics: {topic}, group: {name}, brokers: {json.dumps(self.brokers)} }} }} }}
sinks: {{ out: {{ from: in, chain: [ {map} ], {sink} }} }}
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
            if os.path.exists(self.path("cluster.out")):
                os.remove(self.path("cluster.out"))
            self.start_cluster(16, "plain")
            self.command("topic rxd 16")
            for name, measure in [("plain produce", lambda: self.plain("produce", "plain")), ("rxd produce", lambda: self.rxd_produce("rxd", f"p{turn}")),
                                  ("plain consume", lambda: self.plain("consume", "plain")), ("rxd consume", lambda: self.rxd_consume("plain", f"c{turn}"))]:
                rates.setdefault(name, []).append(measure() / 1000)
        for name, measured in rates.items():
            print(f"{name}: {min(measured):.0f} to {max(measured):.0f} thousand a second, {sorted(measured)[len(measured) // 2]:.0f} in the middle")


if __name__ == "__main__":
    import unittest
    if not RXD:
        sys.exit("set RXD to the program")
    unittest.TextTestRunner().run(Bench())
