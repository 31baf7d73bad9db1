"""Other programs that are installed, with the same work over the same input."""
import os
import shlex
import shutil
import subprocess

from .machine import HERE, Fault, Run, remove, say
from .workloads import ALL

PEERS = os.path.join(HERE, "peers")

# The text before the event's own member `status`, and before no other: these programs do not parse JSON.
STATUS = '"client":"[^"]*","status":'

JQ = {
    "w1-filter": "select(.status >= 500)",
    "w2-map": '{id, service, us: (.latency * 1000), what: (.request.method + " " + .request.path)}',
    "w3j-same": ".",
    "w3j-set": ".status += 1",
    "w5-changes": "foreach inputs as $event ({}; {before: .service, service: $event.service, event: $event};"
                  " if .before != .service then .event else empty end)",
    "w5d-distinct": "foreach inputs as $event ({known: {}}; .is_new = (.known[$event.client] | not)"
                    " | .known[$event.client] = true | .event = $event; if .is_new then .event else empty end)",
    "w4-groups": 'reduce inputs as $event ({}; ($event.service + "/" + ($event.status | tostring)) as $key'
                 " | .[$key] |= {service: $event.service, status: $event.status, count: ((.count // 0) + 1),"
                 " sum: ((.sum // 0) + $event.latency)}) | .[] | {service, status, count, mean: (.sum / .count)}",
}
MLR = {
    "w1-filter": ["filter", "$status >= 500"],
    "w2-map": ["put", "-q", 'emit mapsum({"id": $id}, {"service": $service}, {"us": $latency * 1000},'
               ' {"what": $request["method"] . " " . $request["path"]})'],
    "w3j-same": ["cat"],
    "w3j-set": ["put", "$status = $status + 1"],
    "w4-groups": ["stats1", "-a", "count,mean", "-f", "latency", "-g", "service,status"],
    "w5d-distinct": ["head", "-n", "1", "-g", "client"],
}
WORKS = {
    "w1-filter": "filter", "w2-map": "map", "w3j-same": "same", "w3j-set": "set", "w4-groups": "groups",
    "w5-changes": "changes", "w5d-distinct": "distinct",
}
DUCKDB = {
    "w1-filter": "COPY (SELECT json FROM read_ndjson_objects('{input}') WHERE (json->>'$.status')::INT >= 500)"
                 " TO '{output}' (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER E'\\x01')",
    "w4-groups": "COPY (SELECT json->>'$.service' AS service, (json->>'$.status')::INT AS status, count(*) AS count,"
                 " avg((json->>'$.latency')::DOUBLE) AS mean FROM read_ndjson_objects('{input}') GROUP BY 1, 2)"
                 " TO '{output}' (FORMAT json)",
    "w13-join": "COPY (SELECT count(*) AS pairs, sum((a.json->>'$.bytes')::BIGINT + (b.json->>'$.status')::BIGINT) AS sum"
                " FROM read_ndjson_objects('{input}') a JOIN read_ndjson_objects('{input}') b"
                " ON (a.json->>'$.id')::BIGINT = (b.json->>'$.id')::BIGINT) TO '{output}' (FORMAT json)",
}


def commands(workload, data, output):
    """(name, command) of each installed peer that can do the work; `output` is the file that it writes."""
    name, found = workload.name, []

    def add(program, *arguments, label=None):
        if shutil.which(program):
            found.append((label or program, [program, *arguments]))

    if name in JQ:
        reads_itself = "inputs" in JQ[name]
        add("jq", "-c", *(["-n"] if reads_itself else []), JQ[name], data)
    if name in MLR:
        add("mlr", "--ijsonl", "--ojsonl", *MLR[name], data)
    for awk in ("mawk", "gawk"):
        if name == "w1-filter":
            add(awk, f"/{STATUS}5/", data, label=f"{awk} (text)")
        if name == "w3-lines":
            add(awk, "{ print }", data)
        if name == "w5-changes":
            add(awk, r'{ s = substr($0, index($0, "\"service\":") + 11); s = substr(s, 1, index(s, "\"") - 1) }'
                     " s != before { before = s; print }", data, label=f"{awk} (text)")
    if name == "w1-filter":
        add("grep", f"{STATUS}5", data, label="grep (text)")
        add("rg", f"{STATUS}5", data, label="rg (text)")
    if name in WORKS:
        has_orjson = subprocess.run(["python3", "-c", "import orjson"], capture_output=True).returncode == 0
        for program, script, label in (("node", "lines.js", "node"), ("python3", "lines.py", "orjson")):
            if shutil.which(program) and (label == "node" or has_orjson):
                script = shlex.quote(os.path.join(PEERS, script))
                add("sh", "-c", f"{program} {script} {WORKS[name]} < {shlex.quote(data)}", label=label)
    if name in DUCKDB:
        add("duckdb", "-c", DUCKDB[name].format(input=data, output=output))
    return found


def same(bench, ours, theirs):
    """Whether two outputs contain the same events, ignoring the form of strings and numbers."""
    forms = []
    for path in (ours, theirs):
        form = path + ".canonical"
        remove(form)
        Run(bench, [bench.program("probe"), "canonical", path, form], bench.cores)
        forms.append(form)
    # Groups may come in any order.
    for form in forms:
        if os.path.getsize(form) < 1 << 20:
            subprocess.run(["sort", "-o", form, form], check=True)
    found = subprocess.run(["cmp", "-s", *forms]).returncode == 0
    remove(*forms)
    return found


def table(bench, chosen, events):
    cores = bench.cores[-1:]
    say(f"\npeers, one core, {events:,} events, the best of two runs")
    say(f"{'workload':<15}{'peer':<14}{'MB/s':>7}{'CPU s':>8}  output")
    figures = []
    for workload in [one for one in ALL if one in chosen and one.input == "events"]:
        data = bench.generate("events", events)
        size, ours = os.path.getsize(data), bench.file("peers.rxd")
        remove(ours)
        environment = {"BENCH_INPUT": data, "BENCH_OUTPUT": ours}
        runs = []
        for _ in range(2):
            remove(ours)
            runs.append(Run(bench, bench.pipeline(workload.name), cores, environment))
        rows = [("rxd", runs, "")]
        for name, command in commands(workload, data, bench.file("peers.out")):
            output = bench.file("peers.out")
            writes_itself = any(output in argument for argument in command)
            try:
                runs = []
                for _ in range(2):
                    remove(output)
                    runs.append(Run(bench, command, cores, output="-" if writes_itself else output))
            except Fault as fault:
                say(f"{workload.name:<15}{name:<14} failed: {str(fault).splitlines()[0]}")
                continue
            rows.append((name, runs, "same" if same(bench, ours, output) else "other"))
            remove(output)
        for name, runs, note in rows:
            best = min(runs, key=lambda run: run.wall)
            say(f"{workload.name:<15}{name:<14}{size / best.wall / 1e6:>7.0f}{best.cpu:>8.2f}  {note}")
            figures.append({"workload": workload.name, "peer": name, "wall": best.wall, "cpu": best.cpu, "bytes": size,
                            "output": note})
        remove(ours)
    say("other: not the same events, mostly because ids beyond 2^53 are rounded")
    say("\nthe commands:")
    for workload in [one for one in ALL if one in chosen and one.input == "events"]:
        for name, command in commands(workload, "INPUT", "OUTPUT"):
            say(f"  {workload.name} {name}: {shlex.join(command)}")
    return figures
