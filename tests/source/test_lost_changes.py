"""Known ways in which a change feed loses or duplicates changes, each with its result."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.landing.errors import IncompatibleSchemaError
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.source.errors import FeedGapError, GapReason, SourceRecreatedError, feed_off
from tests.raised import Expected, raises
from tests.support.delta import SPARK_4_0, DeltaTable, Zone


@pytest.fixture(scope="module")
def published_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Zone:
    """Rows 1 to 3, published at version 1."""
    folder = tmp_path_factory.mktemp("begun")
    table = DeltaTable(spark, folder / "orders")
    table.insert(1, 2, 3)
    zone = Zone(folder / "zone", table)
    zone.publish()
    return zone


@pytest.fixture
def published(published_once: Zone, tmp_path: Path) -> Zone:
    """A copy that the test changes."""
    return Zone.copied(published_once, tmp_path)


def vacuum_everything(table: DeltaTable) -> None:
    """Remove files like VACUUM when the lag is longer than its retention."""
    shutil.rmtree(table.path / "_change_data")


def switch_off_and_on(table: DeltaTable) -> None:
    table.set_feed(False)
    table.insert(11)
    table.set_feed(True)


def update_and_vacuum(table: DeltaTable) -> None:
    table.sql("UPDATE {} SET v = 'new' WHERE id = 1")
    vacuum_everything(table)


def overwrite_with_another_type(table: DeltaTable) -> None:
    frame = table.spark.sql("SELECT 1L AS id, 'x' AS v")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(table.path))


def recreate(table: DeltaTable) -> None:
    shutil.rmtree(table.path)
    table.spark.catalog.clearCache()
    DeltaTable(table.spark, table.path).insert(7)


@pytest.mark.parametrize(
    ("loss", "finding", "words"),
    [
        (switch_off_and_on, FeedGapError, "after version 1 cannot be read: at version 2 the change data feed is off."),
        (update_and_vacuum, FeedGapError, "after version 1 cannot be read: in version 2 a file is missing."),
        (recreate, SourceRecreatedError, "was replaced, or dropped and created again"),
        pytest.param(
            overwrite_with_another_type, IncompatibleSchemaError, "'id' was integer and is long", marks=pytest.mark.slow
        ),
    ],
)
def test_lost_changes_are_reported_and_nothing_is_published(
    published: Zone, loss: Callable[[DeltaTable], None], finding: Expected, words: str
) -> None:
    loss(published.table)
    before = published.everything()
    with raises(finding, match=re.escape(words)):
        published.publish()
    after = published.everything()
    assert {name for name in after if name not in before and not Path(name).name.startswith("0")} == set()
    assert {name: after.get(name) for name in before} == before


def test_versions_before_a_missing_one_are_published_and_the_gap_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Spark itself reads past the missing version, between two checkpoints, without an error."""
    table = DeltaTable(spark, tmp_path / "orders")
    for number in range(1, 4):
        table.insert(number)
    table.checkpoint()
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    for number in range(4, 9):
        table.insert(number)
        if number == 6:
            table.checkpoint()
    table.commit_file(5).unlink()
    with pytest.raises(FeedGapError, match="after version 4 cannot be read: at version 5 the log has no commit"):
        zone.publish()
    assert zone.record["to_version_inclusive"] == 4
    assert [row["id"] for row in zone.last] == [4]


def test_expired_versions_are_a_gap_until_the_retention_is_increased(published: Zone) -> None:
    table = published.table
    table.insert(4)
    table.insert(5)
    long_ago = time.time() - 8 * 86_400
    for version in range(3):
        os.utime(table.commit_file(version), (long_ago, long_ago))
    if not SPARK_4_0:  # this Delta version reads back as far as files exist
        with pytest.raises(FeedGapError, match=f"at version 2 {re.escape(GapReason.EXPIRED)}"):
            published.publish()
        table.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 30 days')")
    published.publish()
    assert published.mirrors_the_table()


def test_restore_to_before_the_feed_was_enabled_is_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "orders", feed=False)
    table.set_feed(True)
    table.insert(1)
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    with pytest.raises(FeedGapError, match="at version 3 the change data feed was turned off"):
        zone.publish()


def test_no_snapshot_is_taken_without_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "orders", feed=False)
    table.insert(1)
    with raises(feed_off, match=r"off at version 1\. Run `mirrorfeed enable-cdf`"):
        Zone(tmp_path / "zone", table).publish()


def test_nothing_new_directly_after_the_snapshot(published: Zone) -> None:
    assert str(published.publish().decision) == "nothing new, version 1 is published"
    published.table.insert(4)
    published.publish()
    assert published.last == [{"id": 4, "v": "v4", "__rowMarker__": 4}]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="files"),
        # `publish/test_delta_cases` covers all kinds of Spark's own commits with deletion vectors, as ordered changes.
        pytest.param({"delta.enableDeletionVectors": "true"}, id="deletion vectors", marks=pytest.mark.soak),
    ],
)
def test_changes_of_every_kind_reach_the_mirror(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = DeltaTable(spark, tmp_path / "orders", properties=properties)
    table.insert(1, 2, 3, 4)
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    table.sql("UPDATE {} SET id = 30 WHERE id = 3")  # a changed key
    table.sql("UPDATE {} SET v = v")  # no real change
    table.sql("DELETE FROM {} WHERE id = 1")
    table.sql("OPTIMIZE {}")
    table.sql("INSERT OVERWRITE {} SELECT * FROM {}")  # the same rows again
    zone.publish()
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_replaced_table_is_a_different_table(published: Zone) -> None:
    """Versions and the feed continue, but the table id is different."""
    published.table.sql(
        "CREATE OR REPLACE TABLE {} USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        " AS SELECT 5 AS id, 'five' AS v"
    )
    assert published.table.latest == 2
    words = "was replaced, or dropped and created again, after version 1 was published"
    with pytest.raises(SourceRecreatedError, match=words):
        published.publish()


@pytest.mark.slow
def test_snapshot_checks_keys_unless_disabled(spark: SparkSession, tmp_path: Path) -> None:
    """`publish/test_source` covers the message for each fault, and the messages of a range."""
    table = DeltaTable(spark, tmp_path / "orders")
    table.sql("INSERT INTO {} VALUES (NULL, 'x'), (1, 'x'), (1, 'y')")
    with pytest.raises(RowsRefusedError, match=re.escape("at version 1 a key is NULL (id = NULL)")):
        Zone(tmp_path / "zone", table).publish()
    zone = Zone(tmp_path / "unchecked", table, validate_keys="none")
    zone.publish()
    assert sum(part.num_rows for part in zone.files) == 3


@pytest.mark.slow
def test_table_without_keys_accepts_only_inserts_and_checks_keys_added_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable(spark, tmp_path / "orders")
    table.insert(1, 1)
    zone = Zone(tmp_path / "zone", table, keys=())
    zone.publish()
    table.insert(2)
    zone.publish()
    assert zone.last == [{"id": 2, "v": "v2"}]
    assert (zone.folder / "_metadata.json").read_text() == "{}"
    table.sql("DELETE FROM {} WHERE id = 1")
    with pytest.raises(RowsRefusedError, match=r"a table without keys accepts only inserts"):
        zone.publish()
    with pytest.raises(RowsRefusedError, match=r"at version 2 a key is not unique \(id = 1\)"):
        Zone(tmp_path / "zone", table).publish()
    assert (zone.folder / "_metadata.json").read_text() == "{}"
