"""Flink in one JVM: its jars, its runners, and the queries of Nexmark as scripts of its SQL."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = "2.3.0"
SOURCES = [os.path.join(HERE, "..", "..", "..", "Tests", "Flink", "RunScript.java"), os.path.join(HERE, "MeasureScript.java")]


def jars(cache):
    """The folder with Flink's jars: `apache-flink-libraries` of PyPI, 329 MB, which is downloaded once."""
    folder = os.path.join(cache, f"flink-{VERSION}")
    if os.path.isdir(folder):
        return folder
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, f"apache-flink-libraries=={VERSION}"],
                       check=True)
        wheel, = glob.glob(os.path.join(scratch, "*.whl"))
        unpacked = os.path.join(scratch, "lib")
        os.mkdir(unpacked)
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                # Without a logger of its own, Flink says nothing.
                if re.fullmatch(r"pyflink/lib/(?!log4j)[^/]+\.jar", name) or "log4j-api" in name or "log4j-1.2-api" in name:
                    with archive.open(name) as source, open(os.path.join(unpacked, os.path.basename(name)), "wb") as target:
                        shutil.copyfileobj(source, target)
        os.rename(unpacked, folder)
    return folder


def compiled(cache, lib):
    """The folder with the compiled runners."""
    classes = os.path.join(cache, "classes")
    made = os.path.join(classes, "MeasureScript.class")
    if not os.path.exists(made) or os.path.getmtime(made) < max(map(os.path.getmtime, SOURCES)):
        subprocess.run(["javac", "-cp", os.path.join(lib, "*"), "-d", classes, *SOURCES], check=True)
    return classes


class Cluster:
    """Runs scripts, each call in a JVM of its own with a heap of at most `heap` MiB."""

    def __init__(self, cache, heap=1024, parallelism=1):
        self.lib = jars(os.path.abspath(cache))
        self.classes = compiled(os.path.abspath(cache), self.lib)
        self.options = [f"-Xmx{heap}m", f"-Dparallelism={parallelism}"]

    def run(self, runner, scripts):
        """What a runner prints."""
        program = ["java", *self.options, "-cp", f"{self.classes}:{self.lib}/*", runner, *scripts]
        ran = subprocess.run(program, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"Flink exited with {ran.returncode}:\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}")
        return ran.stdout

    def measured(self, small, full):
        """CPU seconds, wall seconds and MiB of one script, without the start of the JVM, of Flink and of a job.

        `small` is the same script over a fiftieth of the events. It runs twice before: the first time for what starts, is loaded and is compiled
        by then; the second time for what each job costs, whatever its events, which is subtracted with their fiftieth.
        """
        lines = [list(map(int, line.split("\t"))) for line in self.run("MeasureScript", [small, small, full]).splitlines()]
        (small_cpu, small_wall, _), (cpu, wall, memory) = lines[1:]
        share = 50 / 49
        return (cpu - small_cpu) * share / 1000, (wall - small_wall) * share / 1000, memory / 1024


# Settings that make Flink's aggregates cheaper, as its own configuration for Nexmark has them.
SETTINGS = {
    "table.exec.mini-batch.enabled": "true", "table.exec.mini-batch.allow-latency": "2 s", "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true", "pipeline.object-reuse": "true", "table.local-time-zone": "UTC",
    "execution.runtime-mode": "streaming",
}

TABLES = {
    "person": ("people", "id BIGINT, name STRING, email STRING, card STRING, city STRING, state STRING, `at` TIMESTAMP_LTZ(3)"),
    "auction": ("auctions", "id BIGINT, item STRING, description STRING, initialBid BIGINT, reserve BIGINT, `at` TIMESTAMP_LTZ(3), "
                            "expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT"),
    "bid": ("bids", "id BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `at` TIMESTAMP_LTZ(3), extra STRING"),
    "side": ("side", "key BIGINT, `value` STRING"),
}


def script(query, data, lateness, output=None):
    """A query as a script that writes its rows to the folder `output`, or discards them if it changes them, because files cannot. Without a folder,
    RunScript writes what is left of them at the end beside the script, as `NAME.rows`."""
    with open(os.path.join(HERE, query + ".sql"), encoding="utf-8") as file:
        text = file.read()
    changes = text.startswith("-- changes\n")
    lines = [f"SET '{name}' = '{value}';" for name, value in SETTINGS.items()]
    for table, (name, columns) in TABLES.items():
        if table != "side":
            columns += f", WATERMARK FOR `at` AS `at` - INTERVAL '{lateness / 1000:.3f}' SECOND"
        lines.append(f"CREATE TABLE {table} ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{data}/{name}.ndjson', "
                     "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601');")
    text = text.removeprefix("-- changes\n").rstrip()
    if output is None:
        return "\n".join(lines + [text + ";", ""])
    if changes:
        target = "'connector' = 'blackhole'"
    else:
        target = f"'connector' = 'filesystem', 'path' = 'file://{output}', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"
    return "\n".join(lines + [f"CREATE TABLE answer WITH ({target}) AS\n{text};", ""])
