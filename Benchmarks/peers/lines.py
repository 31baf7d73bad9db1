"""The workloads in Python with orjson: `python3 lines.py WORK < INPUT > OUTPUT`."""
import sys

from orjson import dumps, loads

out = sys.stdout.buffer
work = sys.argv[1]
lines = sys.stdin.buffer
if work == "filter":
    for line in lines:
        if loads(line)["status"] >= 500:
            out.write(line)
elif work == "map":
    for line in lines:
        event = loads(line)
        request = event["request"]
        out.write(dumps({"id": event["id"], "service": event["service"], "us": event["latency"] * 1000,
                         "what": request["method"] + " " + request["path"]}) + b"\n")
elif work == "same":
    for line in lines:
        out.write(dumps(loads(line)) + b"\n")
elif work == "set":
    for line in lines:
        event = loads(line)
        event["status"] += 1
        out.write(dumps(event) + b"\n")
elif work == "changes":
    before = None
    for line in lines:
        service = loads(line)["service"]
        if service != before:
            before = service
            out.write(line)
elif work == "distinct":
    known = set()
    for line in lines:
        client = loads(line)["client"]
        if client not in known:
            known.add(client)
            out.write(line)
elif work == "groups":
    groups = {}
    for line in lines:
        event = loads(line)
        key = event["service"], event["status"]
        group = groups.get(key)
        if group is None:
            groups[key] = group = [0, 0.0]
        group[0] += 1
        group[1] += event["latency"]
    for (service, status), (count, total) in groups.items():
        out.write(dumps({"service": service, "status": status, "count": count, "mean": total / count}) + b"\n")
out.flush()
