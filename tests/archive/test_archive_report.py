"""How much of a table is archived. Unknown values are reported as unknown."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.databricks import RecordingDatabricks
from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import archive_interval as intervals
from mirrorfeed.archive.archive_interval import Policy
from mirrorfeed.archive.archive_report import Share, ages_of, share, share_of
from mirrorfeed.archive.archived_files import select_archived
from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.tier_store import Priority, Tier, TierFacts
from tests.archive.archived_table import NOW, POLICY, Orders


def file(size: int | None, days: float | None) -> DataFile:
    """A file of this age."""
    created: datetime | None = None if days is None else NOW - timedelta(days=days)
    return DataFile(f"file:/t/{size}-{days}", size, created=created)


@pytest.mark.parametrize(
    ("files", "interval", "expected", "archived", "words"),
    [
        ([], POLICY, Share("t", 0, 0, 0, 0), None, "0 of 0 files archived, 0 B of 0 B"),
        ([file(30, 1), file(10, 61)], POLICY, Share("t", 2, 40, 1, 10), 0.25, "1 of 2 files archived, 10 B of 40 B"),
        ([file(30, 60), file(10, 59.9)], POLICY, Share("t", 2, 40, 1, 30), 0.75, None),
        ([file(30, None), file(10, 1)], POLICY, Share("t", 2, 40, 1, 30), 0.75, None),
        ([file(30, 900)], None, Share("t", 1, 30, 0, 0), 0.0, "0 of 1 file archived, 0 B of 30 B"),
        ([file(None, 900), file(10, 1), file(10, 1)], POLICY, Share("t", 3, 20, 1, None), 1 / 3,
         "1 of 3 files archived"),
        ([file(0, 900), file(0, 1)], POLICY, Share("t", 2, 0, 1, 0), 0.5, None),
    ],
    ids=["no files", "by bytes", "at the interval", "unknown age", "no archive", "unknown bytes", "empty files"],
)  # fmt: skip
def test_share_is_by_bytes_or_else_by_files(
    files: list[DataFile], interval: Policy | None, expected: Share, archived: float | None, words: str | None
) -> None:
    found = share_of(Source(path="t"), files, select_archived(files, interval, NOW))
    assert (found, found.archived) == (expected, archived)
    assert words is None or found.summary == words


@pytest.mark.parametrize(
    ("days", "label"),
    [
        (-1, "0-7 d"),
        (0, "0-7 d"),
        (6.9, "0-7 d"),
        (7, "7-30 d"),
        (89.9, "30-90 d"),
        (90, "90-180 d"),
        (364, "180-365 d"),
        (365, "365 d on"),
        (None, "unknown"),
    ],
)
def test_file_is_counted_by_age(days: float | None, label: str) -> None:
    assert {name: count for name, count in ages_of([file(100, days)], NOW).items() if count} == {label: 100}


def test_age_ranges_are_the_same_for_all_tables() -> None:
    found = ages_of([file(1, 3), file(2, 3), file(4, 61), file(8, 999)], NOW)
    assert found == {"0-7 d": 3, "7-30 d": 0, "30-90 d": 4, "90-180 d": 0, "180-365 d": 0, "365 d on": 8}
    assert ages_of([file(1, None)], NOW)["unknown"] == 1


def test_share_is_read_from_the_log_or_from_databricks(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "orders")
    sizes = {str(each.partition): each.bytes or 0 for each in table.files()}
    ages = ages_of(table.files(), NOW)
    assert share(spark, table.source, NOW) == Share(  # it has no archive yet
        str(table.source), 4, sum(sizes.values()), 0, 0, bytes_by_age=ages
    )
    intervals.set_first(spark, table.source, 60, NOW)
    old = sum(sizes[str({"day": day})] for day in "12")
    assert share(spark, table.source, NOW) == Share(
        str(table.source), 4, sum(sizes.values()), 2, old, bytes_by_age=ages
    )
    clock = Clock(NOW)
    tiers = FolderTiers(tmp_path / "aside", clock)
    tiers.archive(file.uri for file in table.files("1", "2"))
    tiers.restore([file.uri for file in table.files("1")], Priority.HIGH)
    clock.pass_(1)
    seen = share(spark, table.source, NOW, tiers)
    assert (seen.restored_files, seen.restored_bytes) == (1, 4)  # every file of this store has four bytes
    assert (seen.active_bytes, seen.cold_bytes) == (seen.bytes - old + 4, old - 4)
    assert seen.summary.endswith("; 1 restored")

    engine = RecordingDatabricks(spark, {"SHOW ARCHIVED FILES FOR ": [("file:/t/1",), ("file:/t/2",)]})
    found = share(engine, table.source, NOW)  # type: ignore[arg-type]
    assert found == Share(str(table.source), 4, sum(sizes.values()), 2, None)
    assert (found.archived, found.summary) == (0.5, "2 of 4 files archived")
    engine = RecordingDatabricks(spark, {"SHOW ARCHIVED FILES FOR ": [(file.uri,) for file in table.files()[:2]]})
    reported = share(engine, table.source, NOW, tiers)  # type: ignore[arg-type]
    assert (reported.archived_files, reported.archived_bytes, reported.restored_bytes) == (
        2,
        8,
        4,
    )  # sizes from the storage
    sized, unsized = TierFacts(Tier.ARCHIVE, 4), TierFacts(Tier.ARCHIVE)
    partly: Any = SimpleNamespace(
        facts=lambda uris: dict(zip(uris, (sized, unsized), strict=True)), restores_copies=False
    )
    assert share(engine, table.source, NOW, partly).archived_bytes is None  # type: ignore[arg-type]  # a stand-in session
    engine = RecordingDatabricks(spark, {"SHOW ARCHIVED FILES FOR ": [("file:/t/1",), ("file:/t/2",)]})
    share(engine, table.source, NOW)  # type: ignore[arg-type]
    assert engine.statements == [f"SHOW ARCHIVED FILES FOR {table.source.sql}"]
    none = RecordingDatabricks(spark, {})
    assert share(none, table.source, NOW) == Share(str(table.source), 4, sum(sizes.values()), 0, 0)  # type: ignore[arg-type]
