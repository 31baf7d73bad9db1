"""Many at once: small files in a pipeline, filters on an input, pipelines in a process; each compared with peers."""
import os
import shutil
import statistics
import subprocess

from .living import verdict
from .machine import PIPELINES, Fault, Run, say
from .peers import STATUS

# The number of runs of each program; the figures are medians.
ROUNDS = 5

SERVICES = ["checkout", "search", "catalogue", "login", "payments", "caf\u00e9-menu", "media", "api-gateway", "mail",
            "inventory", "reports", "admin"]
STATUSES = [200, 204, 301, 302, 304, 400, 404, 500]


def split(bench, events, lines):
    """A directory of files with a given number of lines each; together, the events of `generate`."""
    data = bench.generate("events", events)
    directory = bench.file(f"split-{events}-{lines}")
    if not os.path.isdir(directory):
        os.makedirs(directory)
        subprocess.run(["split", "-a", "5", "-d", "-l", str(lines), "--additional-suffix=.ndjson", data,
                        os.path.join(directory, "part-")], check=True)
    return directory


def fresh(bench, name):
    directory = bench.file(name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    return directory


def read(directory):
    """The contents of a directory's files, by name."""
    held = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            held[name] = file.read()
    return held


def medians(runs):
    return {by: statistics.median(getattr(run, by) for run in runs) for by in ("wall", "cpu", "peak")}


def line(name, what, figures):
    say(f"{name:<15}{what:<34}{figures['wall']:>7.3f} s{figures['cpu']:>8.3f} s CPU{figures['peak'] / 1e6:>8.1f} MB")


def beside(bench, name, programs, count=ROUNDS):
    """Runs the programs alternately on one core and on two, after comparing their outputs. `programs`: for each its
    name, and a function that returns the command and the environment for an output directory."""
    figures, outputs = {}, {}
    for cores in [bench.cores[-number:] for number in (1, 2) if number <= len(bench.cores)]:
        runs = {what: [] for what, _ in programs}
        for _ in range(count):
            for what, program in programs:
                directory = fresh(bench, name + ".out")
                command, environment = program(directory)
                runs[what].append(Run(bench, command, cores, environment))
                outputs[what] = read(directory)
        if any(output != outputs[programs[0][0]] for output in outputs.values()):
            raise Fault(f"{name}: the outputs differ")
        for what, _ in programs:
            figures[what, len(cores)] = medians(runs[what])
            line(name, f"{what}, {len(cores)} core{'s' * (len(cores) > 1)}", figures[what, len(cores)])
    shutil.rmtree(bench.file(name + ".out"), ignore_errors=True)
    return figures


def pipeline(bench, name):
    return [bench.rxd, "--quiet", os.path.join(PIPELINES, name + ".yaml")]


def files(bench):
    """W17: a filter over 5,000 files of 100 lines."""
    directory = split(bench, 500_000, 100)

    def ours(out):
        return pipeline(bench, "w17-files"), {
            "BENCH_INPUT": directory + "/*.ndjson", "BENCH_OUTPUT": os.path.join(out, "errors")}

    def whole(out):
        return pipeline(bench, "w17-files"), {
            "BENCH_INPUT": bench.generate("events", 500_000), "BENCH_OUTPUT": os.path.join(out, "errors")}

    def mawk(out):
        return ["sh", "-c", f"mawk '/{STATUS}5/' {directory}/*.ndjson > {out}/errors"], {}

    programs = [("rxd, 5,000 files", ours), ("rxd, one file", whole)]
    if shutil.which("mawk"):
        programs.append(("mawk (text), 5,000 files", mawk))
    figures = beside(bench, "w17-files", programs)
    bars = [("seconds", figures["rxd, 5,000 files", 2]["wall"], 0.35, True),
            ("of the time on one core", figures["rxd, 5,000 files", 2]["wall"] / figures["rxd, 5,000 files", 1]["wall"], 1, True)]
    say(f"{'':<15}two cores: {verdict(bars)}")
    return {f"{what}, {cores}": one for (what, cores), one in figures.items()}


def fan_pipeline(bench):
    """The pipeline file of W18, and for each sink its name, its condition and the same condition for mawk."""
    path = bench.file("w18-fan.yaml")
    conditions = [(f"service-{at}", f"event.service == '{service}'", f'"service":"{service}","upstream"')
                  for at, service in enumerate(SERVICES)]
    conditions += [(f"status-{status}", f"event.status == {status}", f"{STATUS}{status},") for status in STATUSES]
    with open(path, "w") as file:
        file.write("name: w18-fan\nsources: { requests: { file: { path: \"${BENCH_INPUT}\", decode: ndjson } } }\nsinks:\n")
        for name, condition, _ in conditions:
            file.write(f"  {name}: {{ from: requests, chain: [ {{ filter: \"{condition}\" }} ],"
                       f" file: {{ path: \"${{BENCH_OUTPUT}}/{name}\", encode: ndjson }} }}\n")
    return path, conditions


def fan(bench):
    """W18: twenty filters on one input, each into a file of its own."""
    data = bench.generate("events", 1_000_000)
    path, conditions = fan_pipeline(bench)

    def ours(out):
        return [bench.rxd, "--quiet", path], {"BENCH_INPUT": data, "BENCH_OUTPUT": out}

    def mawk(out):
        program = "".join(f'/{text}/ {{ print > "{out}/{name}" }}\n' for name, _, text in conditions)
        return ["mawk", program, data], {}

    programs = [("rxd", ours)] + ([("mawk (text)", mawk)] if shutil.which("mawk") else [])
    figures = beside(bench, "w18-fan", programs, 3)
    say(f"{'':<15}two cores: {verdict([('seconds', figures['rxd', 2]['wall'], 0.8, True)])}")
    return {f"{what}, {cores}": one for (what, cores), one in figures.items()}


def pipeline_files(bench, directory):
    """Makes a pipeline for each file of a directory; returns the names, and the directory of the pipelines."""
    names = sorted(os.listdir(directory))
    sources = fresh(bench, "w19-pipelines")
    for name in names:
        with open(os.path.join(sources, name + ".yaml"), "w") as file:
            file.write(f"name: {name}\nsources: {{ requests: {{ file: {{ path: {directory}/{name}, decode: ndjson }} }} }}\n"
                       "sinks: { out: { from: requests, chain: [ { filter: event.status >= 500 } ],"
                       f" file: {{ path: \"${{BENCH_OUTPUT}}/{name}\", encode: ndjson }} }} }}\n")
    return names, sources


def pipelines(bench):
    """W19: a hundred pipelines in one process, each with a file of its own, and one over the same files."""
    directory = split(bench, 500_000, 5000)
    names, sources = pipeline_files(bench, directory)
    figures = {}
    for what, command in ((f"{len(names)} pipelines", [bench.rxd, "--quiet", sources]),
                          ("one pipeline", pipeline(bench, "w17-files"))):
        runs = []
        for _ in range(ROUNDS):
            out = fresh(bench, "w19.out")
            environment = {"BENCH_INPUT": directory + "/*.ndjson",
                           "BENCH_OUTPUT": os.path.join(out, "errors") if what == "one pipeline" else out}
            runs.append(Run(bench, command, bench.cores, environment))
            held = b"".join(read(out).values())
            if figures.setdefault("output", held) != held:
                raise Fault("w19-pipelines: the outputs differ")
        figures[what] = medians(runs)
        line("w19-pipelines", what, figures[what])
    del figures["output"]
    say(f"{'':<15}{verdict([('MB', figures[f'{len(names)} pipelines']['peak'] / 1e6, 100, True)])}")
    shutil.rmtree(bench.file("w19.out"), ignore_errors=True)
    return figures


def counted_files(bench, counter):
    return counter.of_events(lambda events: (
        [os.path.join(PIPELINES, "w17-files.yaml")],
        {"BENCH_INPUT": split(bench, events, 100) + "/*.ndjson",
         "BENCH_OUTPUT": os.path.join(fresh(bench, "counted.out"), "errors")}))


def counted_fan(bench, counter):
    return counter.of_events(lambda events: (
        [fan_pipeline(bench)[0]],
        {"BENCH_INPUT": bench.generate("events", events), "BENCH_OUTPUT": fresh(bench, "counted.out")}))


def counted_pipelines(bench, counter):
    return counter.of_events(lambda events: (
        [pipeline_files(bench, split(bench, events, 1000))[1]], {"BENCH_OUTPUT": fresh(bench, "counted.out")}))


ALL = {"w17-files": files, "w18-fan": fan, "w19-pipelines": pipelines}
