"""A landing zone in a folder with a replica behind it."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mirrorfeed.mirror.local_replica import Replica, TableReport
from mirrorfeed.storage.local_folder import FolderStore
from tests import raised
from tests.raised import Expected

MARKER = "__rowMarker__"


def parquet(rows: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    return buffer.getvalue()


def marked(*rows: tuple[int | None, str | None, int]) -> pa.Table:
    """Rows of (id, name), with their marker in the last column."""
    ids, names, markers = zip(*rows, strict=True) if rows else ((), (), ())
    types = (pa.int64(), pa.string(), pa.int32())
    columns = [pa.array(values, kind) for values, kind in zip((ids, names, markers), types, strict=True)]
    return pa.table(columns, names=["id", "name", MARKER])


def plain(*rows: tuple[int | None, str | None]) -> pa.Table:
    """Rows of (id, name) without markers."""
    return marked(*((id, name, 0) for id, name in rows)).drop_columns([MARKER])


@dataclass
class World:
    root: Path
    now: datetime = datetime(2026, 9, 1, tzinfo=UTC)
    replica: Replica = field(init=False)

    def __post_init__(self) -> None:
        self.replica = Replica(FolderStore(str(self.zone)), str(self.target), lambda: self.now)

    @property
    def zone(self) -> Path:
        return self.root / "zone"

    @property
    def target(self) -> Path:
        return self.root / "target"

    def metadata(self, table: str = "orders", **fields: Any) -> None:
        self.put(table, "_metadata.json", json.dumps(fields).encode())

    def put(self, table: str, name: int | str, content: pa.Table | bytes) -> Path:
        """Write a complete file. A number becomes the name of a Parquet file."""
        path = self.zone / table / (f"{name:020}.parquet" if isinstance(name, int) else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else parquet(content))
        return path

    def recreate(self, table: str = "orders", **fields: Any) -> None:
        shutil.rmtree(self.zone / table)
        self.metadata(table, **fields)

    def step(self) -> TableReport:
        """Run one pass over a landing zone with one table."""
        (report,) = self.replica.run_pass()
        return report

    def delta(self, table: str = "dbo/orders") -> DeltaTable:
        return DeltaTable(self.target / table)

    def rows(self, table: str = "dbo/orders") -> list[tuple[Any, ...]]:
        """Sorted rows of the mirror."""
        columns = self.delta(table).to_pyarrow_table().columns
        return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=repr)

    def names(self, folder: str = "orders") -> list[str]:
        path = self.zone / folder
        return sorted(item.name for item in path.iterdir() if item.is_file()) if path.is_dir() else []

    def later(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A landing zone with the table folder `orders` and the key `id`."""
    world = World(tmp_path)
    world.metadata(keyColumns=["id"])
    return world


def is_error(report: TableReport, kind: Expected, /, **facts: object) -> bool:
    """Whether a report has exactly this error and its message."""
    error = report.error
    return raised.is_error(error, kind) and error.facts == facts and report.message.endswith(str(error))
