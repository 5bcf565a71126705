"""The view of `mirrorfeed history-view`: SQLite runs its T-SQL on a mirror, with the permanent history as reference."""

from __future__ import annotations

import hmac
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.api.history_view import view_sql
from mirrorfeed.config.model import Table
from mirrorfeed.history.append import append_versions
from mirrorfeed.history.history_record import find_record, find_segment
from mirrorfeed.history.history_table import HistoryTable
from mirrorfeed.history.replay import apply_changes
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.log_record import Record, parse
from mirrorfeed.landing.names import Target
from mirrorfeed.mirror.errors import history_view_column_taken, history_view_impossible
from mirrorfeed.runtime.credentials import Secret
from mirrorfeed.source.identifier import Source
from tests.raised import raises
from tests.support.delivered import TimedTable
from tests.support.delta import Zone

HISTORIES = int(os.environ.get("MIRRORFEED_HISTORIES", "1"))
TARGET, VIEW = Target("sales", "orders"), Target("sales", "orders_history")
Valid = list[tuple[Any, ...]]
"""Rows of the view: key, value, start, end and whether the row is current."""


def rows_of_view(record: Record, mirrored: Iterable[dict[str, Any]]) -> Valid:
    """Run the T-SQL with SQLite, which has the same names in brackets and the same window functions."""
    database = sqlite3.connect(":memory:")
    database.execute("ATTACH ':memory:' AS sales")
    names = "Key, v, _change_type, _commit_version, _commit_timestamp"
    database.execute(f"CREATE TABLE sales.orders ({names})")
    rows = [[row[name.strip()] for name in names.split(",")] for row in mirrored]
    changes = [[*row[:-1], row[-1].isoformat()] for row in rows]
    database.executemany("INSERT INTO sales.orders VALUES (?, ?, ?, ?, ?)", changes)
    database.execute(view_sql(record, TARGET, VIEW).replace("CREATE OR ALTER VIEW", "CREATE VIEW"))
    return database.execute("SELECT Key, v, valid_from, valid_to, is_current FROM sales.orders_history").fetchall()


def at(rows: Valid, time: datetime) -> list[tuple[str, str | None]]:
    """Rows that are valid at a time, as a person asks the view for them."""
    text = time.isoformat()
    return sorted(
        ((key, v) for key, v, start, end, _ in rows if start <= text and (end is None or text < end)), key=str
    )


def test_view_has_the_rows_of_the_permanent_history_at_every_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Counter[str]
) -> None:
    """The mirror has the hash of the key, under another name. The permanent history has the key."""
    monkeypatch.setenv("KEY_OF_VIEW", secret := "the secret of this test")
    hidden = {"transform": {"id": "hash"}, "rename": {"id": "Key"}, "hash_key": Secret(env="KEY_OF_VIEW")}

    def published(rows: Iterable[tuple[int, str | None]]) -> list[tuple[str, str | None]]:
        hashed = ((hmac.new(secret.encode(), str(key).encode(), "sha256").hexdigest(), v) for key, v in rows)
        return sorted(hashed, key=str)

    for seed in range(HISTORIES):
        table = TimedTable.create(spark, tmp_path / str(seed), seed, shared_times=True)
        delivery = Delivery("append", preimages=seed % 2 == 1)
        zone = Zone(tmp_path / f"zone{seed}", table.table, delivery=delivery, **hidden)
        history = Source(path=str(tmp_path / f"history{seed}"))
        entry = {"source": str(table.table.path), "target": "sales.orders", "history": str(history.path)}
        stored_as = Table.model_validate({**entry, "keys": ["id"]})
        table.commit()
        for _ in range(2):
            zone.publish()
            append_versions(spark, stored_as)
            for _ in range(4):
                table.commit()
        zone.publish()
        append_versions(spark, stored_as)
        changes = [{**row, "_commit_timestamp": table.time(row["_commit_version"])} for row in zone.mirrored]
        rows = rows_of_view(_record(zone), changes)
        stored = HistoryTable(spark, history)
        view = stored.read_view()
        assert view is not None
        records = stored.read_records(view)
        for version in range(1, len(table.states)):
            if version + 1 < len(table.states) and table.time(version) == table.time(version + 1):
                continue  # at a shared time, the newest version counts
            segment = find_segment(records, version)
            assert segment is not None
            feed = stored.read_rows(view, segment, segment[0].to_version_inclusive - 1, version)
            kept = apply_changes(feed, find_record(segment, version)).collect()
            expected = published((row["id"], row["v"]) for row in kept)
            assert at(rows, table.time(version)) == expected, (seed, version, table.states)
            counted["times compared with the permanent history"] += 1
        current = sorted(((key, v) for key, v, _, _, is_current in rows if is_current), key=str)
        assert current == published(table.states[-1].items())
        assert all((end is None) == bool(is_current) for _, _, _, end, is_current in rows)


def _record(zone: Zone) -> Record:
    return parse(json.dumps(zone.record).encode(), "the newest record")


@pytest.mark.parametrize(
    ("delivery", "keys", "columns", "error"),
    [
        ("upsert", ["id"], ["id"], history_view_impossible),
        ("append", [], ["id"], history_view_impossible),
        ("append", ["id"], ["id", "Valid_From"], history_view_column_taken),
    ],
)
def test_table_that_cannot_have_the_view_is_refused(
    delivery: str, keys: Sequence[str], columns: Sequence[str], error: Any
) -> None:
    with raises(error):
        view_sql(record(delivery, keys, columns), TARGET, VIEW)


def test_names_are_quoted() -> None:
    sql = view_sql(record("append", ["a]b"], ["a]b", "c d"]), Target(None, "x y"), Target(None, "z"))
    assert sql.startswith("CREATE OR ALTER VIEW [dbo].[z] AS\nSELECT [a]]b], [c d],")
    assert "PARTITION BY [a]]b]" in sql
    assert "FROM [dbo].[x y]" in sql


def record(delivery: Any, keys: Sequence[str], columns: Sequence[str]) -> Record:
    from mirrorfeed.landing.schema import Column

    return Record(
        number=1,
        batch="a",
        time="2026-01-01T00:00:00+00:00",
        source="s",
        source_id="i",
        from_version_exclusive=None,
        to_version_inclusive=1,
        columns=tuple(Column(name, "integer") for name in columns),
        keys=tuple(keys),
        next_file_number=1,
        delivery=Delivery(delivery),
    )
