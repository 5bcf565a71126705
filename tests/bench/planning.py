"""Which archived files a question needs, of a table with very many: asked here, and of delta-rs with DuckDB.

Both answer the same question from the same log: one file of all, by an id that only its bounds rule in. Warm, the table
is asked again in the same process, and each side opens its log anew, for it may have changed; sides alternate. Cold, it
is the first question of a process in which Spark runs already. The memory is that of the Python process that asks.
"""

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
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random

from mirrorfeed.runtime.spark_session import get_session

FILES = (100_000, 1_000_000)
ROUNDS, WARM_UPS = 7, 3
ROWS = 100
"""In each file."""
_COLUMNS = {"id": "long", "v": "string", "amount": "double", "at": "timestamp", "day": "date"}
_DAY = 24 * 3600 * 1000


def main() -> None:
    print(f"One archived file of many; {ROUNDS} alternating rounds after {WARM_UPS} to warm up, and first questions")
    print(f"{'files':>10} {'':>6} {'plan s':>8} {'delta-rs s':>11} {'ratio':>6} {'plan MiB':>9}")
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    try:
        for files in FILES:
            table = folder / str(files)
            _apart(table, files, "write")
            warm, ours, theirs = (_apart(table, files, what) for what in ("warm", "ours", "theirs"))
            _line(files, "warm", warm["ours"], warm["theirs"], warm["mib"])
            _line(files, "cold", ours["seconds"], theirs["seconds"], ours["mib"])
            shutil.rmtree(table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(files: int, when: str, ours: float, theirs: float, mib: float) -> None:
    print(f"{files:>10,} {when:>6} {ours:>8.2f} {theirs:>11.2f} {ours / theirs:>6.2f} {mib:>9.0f}")


def _apart(table: Path, files: int, what: str) -> dict[str, float]:
    """In a process of its own: what it knows, and its memory, are those of one question."""
    command = [sys.executable, "-m", "tests.bench.planning", what, str(table), str(files)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def measure(what: str, table: Path, files: int) -> dict[str, float]:
    if what == "write":  # elsewhere too, for the most that a process ever held is handed down to those it starts
        write_log(table, files)
        return {}
    wanted = files // 2 * ROWS + 7
    sides: dict[str, Callable[[], list[str]]] = {}
    if what != "theirs":
        sides["ours"] = _ours(table, wanted)
    if what != "ours":
        sides["theirs"] = _theirs(table, wanted)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-WARM_UPS, ROUNDS) if what == "warm" else [0]:
        found = []
        for name in sorted(sides, reverse=bool(number % 2)):
            begun = time.perf_counter()
            found.append(sides[name]())
            if number >= 0:
                times[name].append(time.perf_counter() - begun)
        assert all(len(each) == 1 for each in found), found
        assert len({Path(each[0]).name for each in found}) == 1, found
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    medians = {name: statistics.median(listed) for name, listed in times.items()}
    return {**medians, "seconds": next(iter(medians.values())), "mib": mib}


def _ours(table: Path, wanted: int) -> Callable[[], list[str]]:
    from mirrorfeed.archive.table import GuardedTable

    spark = get_session(memory="6g")
    spark.range(10).count()

    def ask() -> list[str]:
        return [file.uri for file in GuardedTable(spark, str(table)).needed(f"id = {wanted}").files]

    return ask


def _theirs(table: Path, wanted: int) -> Callable[[], list[str]]:
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
    none = dict.fromkeys(ends[0], 0)
    stats = {"numRecords": ROWS, "minValues": ends[0], "maxValues": ends[1], "nullCount": none}
    return {
        "path": f"day={day}/{name}",
        "partitionValues": {"day": day},
        "size": 1_000_000 + number,
        "modificationTime": now - age * _DAY,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
    else:
        main()
