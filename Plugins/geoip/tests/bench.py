"""Measures a pipeline that looks up addresses beside a plain loop of Python's maxminddb, which stands on libmaxminddb. RXD names the program."""
import ipaddress
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import maxminddb

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))
from test_geoip import write  # noqa: E402

COUNT, RUNS = 200_000, 5
PLUGIN = os.path.join(os.path.dirname(HERE), "geoip.so")
rng = random.Random(1)
networks = {str(ipaddress.ip_network((rng.getrandbits(32), 16), strict=False)): {
    "country": {"iso_code": rng.choice(["DE", "FR", "JP"]), "names": {"de": "x" * 9, "en": "y" * 9}}, "location": {"latitude": rng.random(), "longitude": rng.random()}} for _ in range(20_000)}
addresses = [str(ipaddress.ip_network(network)[rng.randrange(65536)]) for network in rng.choices(list(networks), k=COUNT)]

with tempfile.TemporaryDirectory() as directory:
    database = os.path.join(directory, "bench.mmdb")
    write(database, networks)
    with open(os.path.join(directory, "in"), "w") as file:
        file.writelines(json.dumps({"ip": address}) + "\n" for address in addresses)
    reader = maxminddb.open_database(database, maxminddb.MODE_MMAP_EXT)
    chains = {"neither": "map: event", "country": f"geoip: {{ address: event.ip, database: {database}, path: country.iso_code }}", "record": f"geoip: {{ address: event.ip, database: {database} }}"}
    times = {name: [] for name in [*chains, "maxminddb"]}
    for _ in range(RUNS):
        for name, chain in chains.items():
            with open(os.path.join(directory, "pipeline.yaml"), "w") as file:
                file.write(f"plugins: {{ geoip: {PLUGIN} }}\nsources: {{ in: {{ file: {{ path: {directory}/in, decode: json }} }} }}\n"
                           f"sinks: {{ out: {{ from: in, chain: [ {{ {chain} }}, {{ filter: event.ip != '' }} ], discard: {{}} }} }}\n")
            start = time.monotonic()
            subprocess.run([os.environ["RXD"], "run", os.path.join(directory, "pipeline.yaml")], check=True, stdin=subprocess.DEVNULL, capture_output=True)
            times[name].append(time.monotonic() - start)
        start = time.monotonic()
        for address in addresses:
            reader.get(address)
        times["maxminddb"].append(time.monotonic() - start)
    start = statistics.median(times.pop("neither"))
    for name, found in times.items():
        each = sorted((seconds - (start if name in chains else 0)) / COUNT * 1e9 for seconds in found)
        print(f"{name:<10} {each[RUNS // 2]:6.0f} ns a look-up ({each[0]:.0f} to {each[-1]:.0f})")
