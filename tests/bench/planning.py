"""Time to find the archived files that a query needs in a table with many files.

Three sides answer the same question from the same log: the guard, the plan of Spark alone, and delta-rs with DuckDB.
The answer is one file, found by the bounds of an id. Warm: repeated in the same process, with the sides in turn.
Changed: the same, with a commit before each question. Cold: the first question in a process in which Spark runs. Memory
is that of the Python process, without Spark."""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.runtime.spark_session import get_session
from mirrorfeed.source.identifier import Source

FILES = (100_000, 1_000_000)
ROUNDS, WARM_UPS = 7, 3
SIDES = ("guard", "Spark", "delta-rs")
ROWS = 100
"""In each file."""
_COLUMNS = {"id": "long", "v": "string", "amount": "double", "at": "timestamp", "day": "date"}
_DAY = 24 * 3600 * 1000


def main() -> None:
    print(f"One archived file of many; medians of {ROUNDS} rounds in turns after {WARM_UPS}, and first questions")
    print(f"{'files':>10} {'':>8} {'guard s':>8} {'Spark s':>8} {'delta-rs s':>11} {'guard MiB':>10}")
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    try:
        for files in map(int, sys.argv[1:]) if len(sys.argv) > 1 else FILES:
            table = folder / str(files)
            _apart(table, files, "write")
            cold = [_apart(table, files, side) for side in SIDES]
            _line(files, "cold", [found["seconds"] for found in cold], cold[0]["mib"])
            for when in ("warm", "changed"):
                found = _apart(table, files, when)
                _line(files, when, [found[side] for side in SIDES], found["mib"])
            shutil.rmtree(table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(files: int, when: str, seconds: Sequence[float], mib: float) -> None:
    guard, spark, others = seconds
    print(f"{files:>10,} {when:>8} {guard:>8.2f} {spark:>8.2f} {others:>11.2f} {mib:>10.0f}", flush=True)


def _apart(table: Path, files: int, what: str) -> dict[str, float]:
    """In a process of its own: what it knows, and its memory, are those of one question."""
    command = [sys.executable, "-m", "tests.bench.planning", what, str(table), str(files)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


def measure(what: str, table: Path, files: int) -> dict[str, float]:
    if what == "write":  # elsewhere too, for the most that a process ever held is handed down to those it starts
        write_log(table, files)
        return {}
    wanted = files // 2 * ROWS + 7
    sides = {side: _side(side, table, wanted) for side in SIDES if what in (side, "warm", "changed")}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in [0] if what in sides else range(-WARM_UPS, ROUNDS):
        found = []
        if what == "changed":
            _append(table, files + number, max(int(each.stem) for each in (table / "_delta_log").glob("*.json")) + 1)
        for place in range(len(sides)):
            name = SIDES[(place + number) % len(sides)] if len(sides) > 1 else what
            started = time.perf_counter()
            found.append(sides[name]())
            if number >= 0:
                times[name].append(time.perf_counter() - started)
        assert all(len(each) == 1 for each in found), found
        assert len({Path(each[0]).name for each in found}) == 1, found
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    medians = {name: statistics.median(listed) for name, listed in times.items()}
    return {**medians, "seconds": next(iter(medians.values())), "mib": mib}


def _side(side: str, table: Path, wanted: int) -> Callable[[], list[str]]:
    if side == "delta-rs":
        return _delta_rs(table, wanted)
    spark = get_session({"spark.driver.memory": "6g"})
    spark.range(10).count()
    engine, source = OpenSourceEngine(spark), Source(path=str(table))

    def ask() -> list[str]:
        now = datetime.now(UTC)
        if side == "guard":
            return [file.uri for file in engine.needed(source, f"id = {wanted}", now).files]
        return [file.uri for file in engine.find_in_plan(source, f"id = {wanted}", now).files]

    return ask


def _delta_rs(table: Path, wanted: int) -> Callable[[], list[str]]:
    import duckdb
    import pyarrow as pa
    from deltalake import DeltaTable

    def ask() -> list[str]:
        actions = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))
        until = int(datetime.now().timestamp() * 1000) - 60 * _DAY
        connection = duckdb.connect()
        connection.register("actions", actions)
        rows = connection.execute(
            f'SELECT path FROM actions WHERE "min.id" <= {wanted} AND "max.id" >= {wanted}'
            f" AND modification_time <= {until}"
        )
        return [row[0] for row in rows.fetchall()]

    return ask


def write_log(table: Path, files: int, commits: int = 4) -> None:
    """A table of which there is only the log: its files are a day to a year old, and partitioned by day. The newest
    commit but one is a checkpoint, as logs of this length have one."""
    from deltalake import DeltaTable

    log = table / "_delta_log"
    log.mkdir(parents=True)
    rng = Random(files)
    now = int(datetime.now().timestamp() * 1000)
    for commit in range(commits):
        if commit == commits - 1:
            DeltaTable(str(table)).create_checkpoint()
        with (log / f"{commit:020d}.json").open("w", encoding="utf-8") as file:
            first = [{"commitInfo": {"timestamp": now, "operation": "WRITE"}}, *(_opening(now) if not commit else [])]
            for action in first:
                file.write(json.dumps(action) + "\n")
            for number in range(files * commit // commits, files * (commit + 1) // commits):
                file.write(json.dumps({"add": _add(number, now, rng)}) + "\n")


def _append(table: Path, number: int, version: int) -> None:
    now = int(datetime.now().timestamp() * 1000)
    lines = [{"commitInfo": {"timestamp": now, "operation": "WRITE"}}, {"add": _add(number, now, Random(version))}]
    commit = table / "_delta_log" / f"{version:020d}.json"
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _opening(now: int) -> list[dict[str, object]]:
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in _COLUMNS.items()]
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day"],
        "configuration": {"delta.timeUntilArchived": "60 days"},
        "createdTime": now,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def _add(number: int, now: int, rng: Random) -> dict[str, object]:
    age, low = 1 + number % 365, number * ROWS
    day = (date(2026, 1, 1) - timedelta(days=age)).isoformat()
    name = f"part-{number % 200:05d}-{uuid.UUID(int=rng.getrandbits(128))}.c000.snappy.parquet"
    ends = [
        {"id": low + i, "v": f"v{low + i:012d}", "amount": (low + i) * 1.5, "at": "2026-01-01T00:00:00.000Z"}
        for i in (0, ROWS - 1)
    ]
    zeros = dict.fromkeys(ends[0], 0)
    stats = {"numRecords": ROWS, "minValues": ends[0], "maxValues": ends[1], "nullCount": zeros}
    return {
        "path": f"day={day}/{name}",
        "partitionValues": {"day": day},
        "size": 1_000_000 + number,
        "modificationTime": now - age * _DAY,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


if __name__ == "__main__":
    if len(sys.argv) > 3:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
    else:
        main()
