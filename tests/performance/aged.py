"""The state that tables have after a year, written directly: source logs, landing-zone logs, waiting files, the ledger.

Everything is in local folders. One table is published, and the others are copies of it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.config.loader import load
from mirrorfeed.config.model import zone_of
from mirrorfeed.landing.log_record import PreviousRecord, Record, parse
from mirrorfeed.landing.names import data_name, record_name, staged_name
from mirrorfeed.orchestration.ledger import COLUMNS, PUBLISHED
from mirrorfeed.orchestration.ledger_state import LedgerState, TableState
from mirrorfeed.source.table_info import commit_name
from tests.support.commits import write_checksum
from tests.support.fleets import fleet

_TYPES = {
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "map<string, bigint>": pa.map_(pa.string(), pa.int64()),
}
_ROWS_PER_FILE = 10
_KEPT = 10
"""Records that a log keeps, as by default."""


@dataclass(frozen=True)
class Age:
    """What has accumulated. The defaults are one day."""

    commits: int = 1
    """Commits of each source, all published. All commits and their checkpoints are in its log."""
    records: int = 1
    """Records of each table's log, of which the newest ones still exist."""
    waiting_files: int = 1
    """Data files in the folder of the first table that Fabric has not consumed."""
    ledger_days: int = 1
    """Days with rows of publications in the ledger, today included."""
    rows_per_day: int = 100
    """Rows of the ledger per day. Those of today are in files of ten rows, and those of each other day in one file."""


def build(folder: Path, tables: int, age: Age) -> Path:
    """Write sources, landing zone and ledger of `tables` up-to-date tables (`sales.t0` and so on).

    Returns their configuration."""
    config = fleet(folder, tables, rows=100, more="ledger: ./ledger\n")
    _extend_source(folder / "t0", age.commits)
    newest = _extend_log(folder / "zone/sales.schema/t0", age)
    for number in range(1, tables):
        name = f"t{number}"
        for path in (folder, folder / "zone/sales.schema"):
            shutil.rmtree(path / name)
            shutil.copytree(path / "t0", path / name, ignore=_later_data if path != folder else None)
    files = folder / "zone/sales.schema/t0"  # only the first table has many files in its folder
    last = newest.next_file_number - 1
    for number in range(last - age.waiting_files + 1, last):
        os.link(files / data_name(last), files / data_name(number))
    write_ledger(folder / "ledger", tables, age)
    read, now = load(config), datetime.now(UTC)
    assert read.ledger is not None
    names = [str(table.target) for table in read.tables]
    states = {
        name: TableState(name, False, newest.at, newest.from_version_exclusive, newest.to_version_inclusive, now)
        for name in names
    }
    LedgerState(lambda: zone_of(read), read.ledger).update(states, maintained_at=now)
    return config


def _later_data(folder: str, names: list[str]) -> list[str]:
    """Return the data files except the newest one, which Fabric leaves in the folder."""
    return sorted(name for name in names if name.endswith(".parquet"))[:-1]


def _extend_source(source: Path, commits: int) -> None:
    """Add commits without rows up to version `commits`, with the checkpoints that Spark writes every ten commits."""
    log = source / "_delta_log"
    moment = int(datetime.now(UTC).timestamp() * 1000) - commits
    for version in range(2, commits + 1):
        info = {"timestamp": moment + version, "operation": "OPTIMIZE", "operationParameters": {}}
        (log / commit_name(version)).write_text(json.dumps({"commitInfo": info}))
    newest = commits // 10 * 10
    if newest < 10:
        return
    deltalake.DeltaTable(source, version=newest).create_checkpoint()
    checkpoint = log / f"{newest:020d}.checkpoint.parquet"
    for version in range(10, newest, 10):
        os.link(checkpoint, log / f"{version:020d}.checkpoint.parquet")
    write_checksum(log / commit_name(commits))


def _extend_log(table: Path, age: Age) -> Record:
    """Replace the record of a table by the newest records of a long log. Returns the newest record."""
    (log,) = (path for path in (table / "_mirrorfeed").iterdir() if path.is_dir())
    first = parse((log / record_name(1)).read_bytes(), "")
    if age.records == 1:
        return first
    (log / record_name(1)).unlink()
    files = max(age.records, age.waiting_files)
    (table / data_name(1)).rename(table / data_name(files))
    record, before = first, None
    start = datetime.fromisoformat(first.time) - timedelta(minutes=_KEPT)
    for back in range(min(_KEPT, age.records) - 1, -1, -1):
        number, batch = age.records - back, f"{age.records - back:032x}"
        (file,) = first.files
        time = (start + timedelta(minutes=_KEPT - back)).isoformat(timespec="milliseconds")
        named = replace(file, number=files - back, staged=staged_name(number, batch, "0" * 32))
        record = replace(
            first,
            number=number,
            batch=batch,
            time=time,
            committed=time,
            from_version_exclusive=age.commits - back - 1,
            to_version_inclusive=age.commits - back,
            next_file_number=files - back + 1,
            files=(named,),
            follows=before,
        )
        (log / record_name(number)).write_bytes(record.to_json())
        before = PreviousRecord(number, batch, "")
    return record


def write_ledger(path: Path, tables: int, age: Age) -> None:
    """Write a ledger as it is after its daily maintenance."""
    schema = pa.schema([(name, _TYPES[type_]) for name, type_, _ in COLUMNS])
    now = datetime.now(UTC)
    actions, size = [], age.rows_per_day
    rows = _rows(schema, tables, size)
    deltalake.DeltaTable.create(
        path, schema, partition_by=["utc_day"], configuration={"delta.dataSkippingNumIndexedCols": "3"}
    )
    for back in range(age.ledger_days - 1, -1, -1):
        day = (now - timedelta(days=back)).date()
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        seconds = 86_400 if back else max(1, int((now - start).total_seconds()))
        micros = pa.array(range(0, seconds * 1_000_000, max(1, seconds * 1_000_000 // size))[:size])
        times = pc.add(pc.cast(micros, pa.duration("us")), pa.scalar(start, _TYPES["timestamp"]))
        for part, first in enumerate(range(0, size, size if back else _ROWS_PER_FILE)):
            stored = rows.slice(first, size if back else _ROWS_PER_FILE)
            moments = times.slice(first, len(stored))
            stored = stored.set_column(stored.schema.get_field_index("time"), "time", moments)
            file = path / f"utc_day={day}" / f"part-{part:05d}-{day}.parquet"
            file.parent.mkdir(exist_ok=True)
            pq.write_table(stored, file, compression="zstd")
            bounds = [moment.as_py().isoformat(timespec="milliseconds") for moment in (moments[0], moments[-1])]
            stats = {
                "numRecords": len(stored),
                "minValues": {"time": bounds[0].replace("+00:00", "Z")},
                "maxValues": {"time": bounds[1].replace("+00:00", "Z")},
                "nullCount": {"time": 0},
            }
            actions.append(
                {
                    "add": {
                        "path": f"utc_day={day}/{file.name}",
                        "partitionValues": {"utc_day": str(day)},
                        "size": file.stat().st_size,
                        "modificationTime": int(now.timestamp() * 1000),
                        "dataChange": True,
                        "stats": json.dumps(stats),
                    }
                }
            )
    (path / "_delta_log" / commit_name(1)).write_text(
        "\n".join(map(json.dumps, [{"commitInfo": {"operation": "WRITE", "timestamp": 0}}, *actions]))
    )


def _rows(schema: pa.Schema, tables: int, count: int) -> pa.Table:
    """Return the rows of a day, whose times are NULL."""
    numbers = range(count)
    columns = {
        "table": [f"sales.t{number % tables}" for number in numbers],
        "outcome": [PUBLISHED] * count,
        "from_version": list(numbers),
        "to_version": [number + 1 for number in numbers],
        **{name: [0] * count for name in ("inserts", "updates", "deletes", "tries", "retries")},
        "upserts": [number % 977 for number in numbers],
        "files": [1] * count,
        "bytes": [number * 7919 % 100_000 for number in numbers],
        **{f"{phase}_seconds": [number % 100 / 50 for number in numbers] for phase in ("stage", "record", "rename")},
        "lag_seconds": [float(number % 600) for number in numbers],
        "build": ["0.1.0"] * count,
    }
    stored = [field for field in schema if field.name != "utc_day"]
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in stored]
    return pa.table(arrays, schema=pa.schema(stored))
