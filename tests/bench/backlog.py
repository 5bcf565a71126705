"""`python -m tests.bench.backlog`: publish a source with 10,000 unpublished commits.

The first publication is before the commits. Then `mirrorfeed publish` runs until nothing is left, and once more with
SIGKILL at five moments. At the end, the mirror must be equal to the source. The exit code is 1 if it differs, if a
version was published twice, or if a run did not continue after the last record.

`--by-spark` names the source in such a way that Spark reads its log, as on Databricks. `--delta` measures what Delta
takes for the same ranges without mirrorfeed."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from mirrorfeed.landing.log_record import Record, parse
from mirrorfeed.landing.names import record_number, staged_record_number
from mirrorfeed.runtime.spark_session import get_session
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import commit_name
from tests.bench import tables
from tests.support.commits import write_checksum

VERSIONS_PER_PUBLICATION = 500  # the default
_KILLS = 5
_PAUSE = 0.05
_COMMITS_PER_CHECKPOINT = 100
_COMMAND = Path(sys.executable).with_name("mirrorfeed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.backlog")
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=5, help="changed rows of a commit")
    parser.add_argument("--by-spark", action="store_true", help="read the source's log with Spark")
    parser.add_argument("--delta", action="store_true", help="also measure Delta without mirrorfeed")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    try:
        source, started = folder / "source", time.monotonic()
        _create(source, given.rows)
        config = _configure(folder, source, given.by_spark)
        _run(config, "publish")
        _commit(source, given.commits, given.rows)
        print(f"{given.commits:,} commits of {given.rows} rows, made in {time.monotonic() - started:.0f} s", flush=True)
        shutil.copytree(folder / "zone", folder / "first")
        _measure(config, given.commits, "without a kill", 0)
        shutil.rmtree(folder / "zone")
        shutil.copytree(folder / "first", folder / "zone")
        _measure(config, given.commits, f"{_KILLS} kills", _KILLS)
        if given.delta:
            _measure_delta(source, given.commits)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, source: Path, by_spark: bool) -> Path:
    table = {"source": source.as_uri() if by_spark else str(source), "target": "bench.backlog", "keys": ["id"]}
    settings = {"landing_zone": "./zone", "log_retention_records": 1000, "tables": [table]}
    (config := folder / "mirrorfeed.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return config


def _create(source: Path, rows: int) -> None:
    deltalake.write_deltalake(source, _rows(range(rows), 0), configuration={"delta.enableChangeDataFeed": "true"})
    write_checksum(source / "_delta_log" / commit_name(0))


def _commit(source: Path, commits: int, rows: int) -> None:
    """Append new rows and update them, in turn. Writes the same files as Spark, in much less time."""
    start, log = int(time.time() * 1000) - commits * 1000, source / "_delta_log"
    state = json.loads((log / commit_name(0)).with_suffix(".crc").read_text(encoding="utf-8"))
    (source / "_change_data").mkdir()
    for version in range(1, commits + 1):
        at, updates, number = start + version * 1000, version % 2 == 0, (version + 1) // 2
        ids, name = range(number * rows, (number + 1) * rows), f"part-{version:05d}.parquet"
        size = _write(source / name, _rows(ids, version))
        stats = {"numRecords": rows, "minValues": {"id": ids[0]}, "maxValues": {"id": ids[-1]}}
        add = {"path": name, "size": size, "partitionValues": {}, "modificationTime": at, "dataChange": True}
        actions: list[dict[str, Any]] = [{"add": add | {"stats": json.dumps(stats)}}]
        operation, metrics = "WRITE", {"numFiles": 1, "numOutputRows": rows, "numOutputBytes": size}
        if updates:
            operation, metrics = "MERGE", {"numTargetRowsUpdated": rows, "numTargetBytesAdded": size}
            images = [(_rows(ids, version - 1), "update_preimage"), (_rows(ids, version), "update_postimage")]
            changes = [each.append_column("_change_type", pa.array([kind] * rows)) for each, kind in images]
            path = f"_change_data/cdc-{version:05d}.parquet"
            cdc = {"path": path, "size": _write(source / path, pa.concat_tables(changes)), "dataChange": False}
            replaced = f"part-{version - 1:05d}.parquet"
            actions.append({"remove": {"path": replaced, "deletionTimestamp": at, "dataChange": True}})
            actions.append({"cdc": cdc | {"partitionValues": {}}})
            size -= (source / replaced).stat().st_size
        state["numFiles"] += 0 if updates else 1
        state["tableSizeBytes"] += size
        info = {"timestamp": at, "operation": operation, "operationParameters": {}, "readVersion": version - 1}
        actions.insert(0, {"commitInfo": info | {"operationMetrics": {key: str(metrics[key]) for key in metrics}}})
        file = log / commit_name(version)
        file.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
        file.with_suffix(".crc").write_text(json.dumps(state), encoding="utf-8")
        os.utime(file, (at / 1000, at / 1000))
        if version % _COMMITS_PER_CHECKPOINT == 0:
            deltalake.DeltaTable(source, version=version).create_checkpoint()


def _rows(ids: Iterable[int], version: int) -> pa.Table:
    ids = list(ids)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{each} at {version}" for each in ids]})


def _write(file: Path, rows: pa.Table) -> int:
    pq.write_table(rows, file)
    return file.stat().st_size


def _measure(config: Path, commits: int, name: str, kills: int) -> None:
    zone, publications = config.parent / "zone", -(-commits // VERSIONS_PER_PUBLICATION)
    watch, started = _Watch(config, zone), time.monotonic()
    for kill in range(kills + 1):
        before = _newest(zone)
        if kill < kills:
            watch.run(kill_after=1 + publications * (kill + 1) // (kills + 1), delay=kill / kills)
        else:
            watch.run()
        print(f"  run {kill + 1}: records {before + 1} to {_newest(zone)}", flush=True)
    seconds, records = time.monotonic() - started, _records(zone)
    mib = ", ".join(f"{kind} {peak / 2**20:,.1f}" for kind, peak in watch.peaks.items())
    print(f"{name}: {len(records) - 1} publications, {kills + 1} runs, {seconds:.0f} s; most MiB: {mib}")
    print(f"  seconds of each but the first of a run: {_shown(watch.seconds)}")
    print(f"  CPU seconds of the same: {_shown(watch.cpu_seconds)}", flush=True)
    print(_run(config, "publish"))
    mirror = str(config.parent / "mirror")
    _run(config, "replicate", str(zone), mirror)
    print(_run(config, "verify", "--mirror", mirror), flush=True)
    shutil.rmtree(mirror)
    ends = [record.to_version_inclusive for record in records]
    if ends != [0, *range(VERSIONS_PER_PUBLICATION, commits, VERSIONS_PER_PUBLICATION), commits]:
        sys.exit(f"the publications end at other versions: {ends}")
    if [record.from_version_exclusive for record in records] != [None, *ends[:-1]]:
        sys.exit("the ranges are not consecutive")


class _Watch:
    """Runs `publish` in processes of their own, and measures them until the end or until it kills them."""

    def __init__(self, config: Path, zone: Path) -> None:
        self._command, self._zone = [str(_COMMAND), "publish", "--config", str(config)], zone
        self.peaks = {"Python": 0, "JVM": 0, "both": 0, "staged files": 0}
        self.seconds, self.cpu_seconds = list[float](), list[float]()
        """Of all publications except the first one of each run."""

    def run(self, kill_after: int | None = None, delay: float = 0) -> None:
        """Run to the end, or kill the run after the record `kill_after`: `delay` is the share of the next publication
        that still runs."""
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, start_new_session=True)
        watched, newest, marks = psutil.Process(process.pid), _newest(self._zone), list[tuple[float, float]]()
        while process.poll() is None:
            cpu = self._measure(watched)
            if (now := _newest(self._zone)) > newest:
                newest = now
                marks.append((time.monotonic(), cpu))
                if len(marks) > 1:
                    self.seconds.append(marks[-1][0] - marks[-2][0])
                    self.cpu_seconds.append(marks[-1][1] - marks[-2][1])
            if kill_after and newest >= kill_after:
                time.sleep(delay * statistics.median(self.seconds or [1]))
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(_PAUSE)
        if process.returncode != (-signal.SIGKILL if kill_after else 0):
            sys.exit(f"publish ended with {process.returncode}")

    def _measure(self, process: psutil.Process) -> float:
        """Update the peaks. Returns the CPU seconds of the processes."""
        memory, cpu = {"Python": 0, "JVM": 0}, 0.0
        with suppress(psutil.NoSuchProcess):
            for each in (process, *process.children(recursive=True)):
                memory["JVM" if each.name() == "java" else "Python"] += each.memory_info().rss
                cpu += sum(each.cpu_times()[:2])
        staged = 0
        for file in self._zone.glob("*/*/_mirrorfeed/*/*"):
            with suppress(FileNotFoundError):
                staged += file.stat().st_size if staged_record_number(file.name) else 0
        for kind, size in (memory | {"both": sum(memory.values()), "staged files": staged}).items():
            self.peaks[kind] = max(self.peaks[kind], size)
        return cpu


def _newest(zone: Path) -> int:
    return max((record_number(file.name) or 0 for file in zone.glob("*/*/_mirrorfeed/*/*.json")), default=0)


def _records(zone: Path) -> list[Record]:
    files = [file for file in zone.glob("*/*/_mirrorfeed/*/*.json") if record_number(file.name)]
    return [parse(file.read_bytes(), str(file)) for file in sorted(files)]


def _shown(seconds: Sequence[float]) -> str:
    return f"{' '.join(f'{each:.2f}' for each in seconds)}; median {statistics.median(seconds or [0]):.2f}"


def _run(config: Path, *arguments: str) -> str:
    """Run a command, and return the last line of its output that is no border of a table."""
    command = [str(_COMMAND), *arguments, *(() if arguments[0] == "replicate" else ("--config", str(config)))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return next((line for line in reversed(output.splitlines()) if "│" in line), "")


def _measure_delta(source: Path, commits: int) -> None:
    spark, table = get_session(), Source(path=str(source))
    ranges = [(start + 1, start + VERSIONS_PER_PUBLICATION) for start in range(0, commits, VERSIONS_PER_PUBLICATION)]

    def read(first: int, last: int) -> Callable[[], object]:
        return tables.feed(spark, table, first, last).count

    questions: dict[str, list[Callable[[], object]]] = {
        "open the table with delta-rs": [lambda: deltalake.DeltaTable(source)] * 3,
        "open the table with Spark": [lambda: spark.read.table(table.sql).schema] * 3,
        "DESCRIBE HISTORY LIMIT 16": [lambda: spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 16").collect()] * 3,
        "DESCRIBE HISTORY": [lambda: spark.sql(f"DESCRIBE HISTORY {table.sql}").collect()] * 3,
        "count of the feed of each range": [read(*each) for each in ranges],
    }
    for name, asked in questions.items():
        times = []
        for ask in asked:
            started = time.monotonic()
            ask()
            times.append(time.monotonic() - started)
        print(f"Delta, {name}: {_shown(times)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
