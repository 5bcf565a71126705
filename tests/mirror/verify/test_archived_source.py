"""Verification and repair of a source with archived files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed import load
from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.landing.selection import Selection
from mirrorfeed.mirror.errors import mirrored_version_gone
from mirrorfeed.mirror.verify import compare
from mirrorfeed.source.identifier import Source
from tests.archive.archived_table import NOW, Orders
from tests.raised import raises


def test_source_with_archived_files_is_neither_verified_nor_repaired(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "t", days=2)
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: ./zone\ntables: [{source: ./t, target: sales.orders, keys: [id]}]\n", encoding="utf-8"
    )
    feed = load(str(tmp_path / "mirrorfeed.yml"), spark)
    mirror = str(tmp_path / "mirror")
    feed.publish()
    feed.replicate(mirror)
    assert feed.verify(mirror=mirror)[0].equal

    archive_interval.set_first(spark, table.source, 60, NOW)
    assert isinstance(feed.verify(mirror=mirror)[0].error, ArchivedFilesNeededError)
    for where, source_only in ((None, False), ("id = 25", False), ("id = 25", True)):
        with pytest.raises(ArchivedFilesNeededError):
            feed.repair("sales.orders", None if source_only else mirror, where, source_only=source_only)


def test_deleted_version_of_an_archived_table_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "t", interval=200)
    next(table.path.glob("day=2/*.parquet")).unlink()
    source = table.source
    with raises(mirrored_version_gone):
        compare(spark, source, table.latest, source, ["id"])


@pytest.mark.slow
def test_source_with_a_condition_needs_only_the_files_in_which_rows_may_match(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Orders(spark, tmp_path / "t", interval=60)
    active = spark.read.table(table.source.sql).where("day > 2")
    active.write.format("delta").save(str(tmp_path / "mirror"))
    FolderTiers(tmp_path / "aside", Clock(NOW)).archive(file.uri for file in table.files("1", "2"))
    mirror = Source(path=str(tmp_path / "mirror"))
    assert compare(spark, table.source, table.latest, mirror, ["id"], selection=Selection(where="day > 2")).equal
    with pytest.raises(ArchivedFilesNeededError):
        compare(spark, table.source, table.latest, mirror, ["id"], selection=Selection(where="day > 1"))
