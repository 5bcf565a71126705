"""Change feed of a table with an archive: the files of a range are known before they are read."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.api.feed import Feed
from mirrorfeed.archive import archive_interval, guard, restore, restore_planner
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError, lookup_needs_archived_files
from mirrorfeed.archive.errors import archived_feed_unknown
from mirrorfeed.config.model import Config, Table
from mirrorfeed.landing.names import Target
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.table_reload import clear
from mirrorfeed.publish.change_sources import source_for
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.errors import FeedGapError, GapReason, SnapshotFilesDeletedError, VersionExpiredError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range, Snapshot
from mirrorfeed.storage.local_folder import FolderStore
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders, days
from tests.raised import raises
from tests.support.commits import commit
from tests.support.delta import SPARK_4_0, Zone
from tests.support.entries import changed

EARLIER = NOW - timedelta(days=50)
"""No file counts as archived at this time."""
LATER = NOW + timedelta(days=90)
"""Every file counts as archived at this time."""


def check(table: Orders, what: Range | Snapshot, tiers: FolderTiers | None = None, now: datetime = NOW) -> None:
    guard.check(table.spark, table.source, what, lambda _: tiers, now)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    """Versions: 1 adds the data, of which days 1 and 2 are old; 2 sets the interval; 3 changes a row of an active day;
    4 deletes day 1."""
    orders = Orders(spark, tmp_path_factory.mktemp("feed") / "orders", interval=60)
    orders.sql("UPDATE {} SET v = 'x' WHERE id = 35")
    assert commit(orders.path, "DELETE FROM {} WHERE day = 1")
    return orders


def test_range_with_archived_files_is_refused_and_names_them(spark: SparkSession, table: Orders) -> None:
    with pytest.raises(ArchivedFilesNeededError) as caught:
        check(table, Range(0, 1), now=NOW)
    assert days(caught.value.files) == ["1", "2"]
    assert "The change data feed (version 1) needs 2 archived files" in str(caught.value)
    assert f"`mirrorfeed archive plan {table.path} --feed-from 1 --feed-to 1 --to PLAN`" in str(caught.value)


def test_removed_file_counts_by_its_own_age(spark: SparkSession, table: Orders) -> None:
    with pytest.raises(ArchivedFilesNeededError) as caught:
        check(table, Range(3, 4), now=NOW)
    assert days(caught.value.files) == ["1"]  # it is no longer part of the table


def test_change_files_count_by_the_age_of_their_commit(spark: SparkSession, table: Orders) -> None:
    check(table, Range(2, 3), now=NOW)
    with pytest.raises(ArchivedFilesNeededError, match="/_change_data/"):
        check(table, Range(2, 3), now=LATER)


def test_plan_covers_a_range_that_is_readable_after_the_restore(
    spark: SparkSession, table: Orders, tmp_path: Path
) -> None:
    clock = Clock(LATER)
    tiers = FolderTiers(tmp_path / "aside", clock)
    plan = restore_planner.plan_feed(spark, Priority.HIGH, LATER, source=table.source, first=1)
    assert (plan.feed_from, plan.version) == (1, 4)
    assert sum("/_change_data/" in file.uri for file in plan.files) == 1
    assert sum("/day=1/" in file.uri for file in plan.files) == 1
    tiers.archive(file.uri for file in plan.files)
    with pytest.raises(ArchivedFilesNeededError):
        check(table, Range(0, 4), tiers, LATER)
    assert not restore.request_files(plan, tiers).done
    clock.pass_(1)
    assert restore.read_progress(plan, tiers).done
    check(table, Range(0, 4), tiers, LATER)


@pytest.mark.skipif(SPARK_4_0, reason="its Delta looks back as far as there are files")
def test_plan_excludes_versions_that_delta_no_longer_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Restoring their files would cost money without any use."""
    table = Orders(spark, tmp_path / "t", interval=60)
    weeks_ago = (NOW - timedelta(days=20)).timestamp()
    for version in range(3):
        os.utime(table.commit_file(version), (weeks_ago, weeks_ago))
    with pytest.raises(FeedGapError, match=f"at version 1 {re.escape(GapReason.EXPIRED)}"):
        restore_planner.plan_feed(spark, Priority.HIGH, NOW, source=table.source, first=1)
    orders = restore_planner.plan_query(spark, Priority.HIGH, NOW, source=table.source, where="day = 1")
    table.sql("INSERT INTO {} VALUES (99, 'new', 9)")
    tiers = FolderTiers(tmp_path / "aside", Clock(NOW))
    with pytest.raises(VersionExpiredError):
        restore.run_query(spark, orders, tiers, NOW)
    table.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 30 days')")
    rows = restore.run_query(spark, orders, tiers, NOW)
    assert rows is not None
    assert rows.count() == 10


def test_publication_detects_archived_files_before_it_starts(
    spark: SparkSession, table: Orders, tmp_path: Path
) -> None:
    zone = Zone(tmp_path, table)
    with pytest.raises(ArchivedFilesNeededError) as caught:
        zone.publish()
    assert days(caught.value.files) == ["2"]
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Zone:
    """A landing zone whose table gets its interval, in version 2, after the first publication."""
    folder = tmp_path_factory.mktemp("published")
    table = Orders(spark, folder / "t")
    zone = Zone(folder / "zone", table)
    zone.publish()
    archive_interval.set_first(spark, table.source, 60, NOW)
    return zone


@pytest.mark.slow
def test_deleted_keys_are_looked_up_if_no_archived_file_is_needed(published: Zone, tmp_path: Path) -> None:
    zone = Zone.copied(published, tmp_path)
    folder = zone.table.path
    assert commit(folder, "DELETE FROM {} WHERE id = 35")
    assert commit(folder, "INSERT INTO {} VALUES (15, 'second', 4)")
    assert zone.publish().rows == {"upsert": 1, "delete": 1}
    assert commit(folder, "DELETE FROM {} WHERE id = 15 AND day = 4")
    with raises(lookup_needs_archived_files) as caught:
        zone.publish()
    assert days(caught.value.files) == ["1"]
    zone.plan = changed(zone.plan, validate_keys="range")
    assert zone.publish().rows == {"delete": 1}


@pytest.mark.usefixtures("all_rows_are_many")
def test_many_deleted_keys_in_an_archived_table_are_not_looked_up(published: Zone, tmp_path: Path) -> None:
    zone = Zone.copied(published, tmp_path)
    assert commit(zone.table.path, "DELETE FROM {} WHERE id = 35")
    with raises(lookup_needs_archived_files) as caught:
        zone.publish()
    assert days(caught.value.files) == ["1", "2"]


@pytest.fixture
def all_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)
    monkeypatch.setattr(row_staging, "MAX_COLLECTED_KEYS", 0)


def test_dry_run_considers_archived_files_and_a_refused_publication_creates_nothing(
    table: Orders, tmp_path: Path
) -> None:
    orders = Table(source=table.source, target=Target.parse("orders"), keys=("id",))
    config = Config(landing_zone=str(tmp_path / "zone"), tables=(orders,))
    (found,) = plan_next_steps(table.spark, config)
    assert isinstance(found.error, ArchivedFilesNeededError)
    with pytest.raises(ArchivedFilesNeededError):
        Zone(tmp_path / "zone", table).publish()
    assert not (tmp_path / "zone").exists()


@pytest.mark.slow
def test_first_publication_with_a_condition_needs_only_the_files_in_which_rows_may_match(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Orders(spark, tmp_path / "t", properties={"delta.enableDeletionVectors": "true"}, interval=60)
    table.sql("DELETE FROM {} WHERE id = 35")
    FolderTiers(tmp_path / "aside", Clock(NOW)).archive(file.uri for file in table.files("1", "2"))
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 5)
    zone = Zone(tmp_path / "zone", table, where="day > 2", target_file_size=1)
    assert zone.publish().rows == {"insert": 19}
    with pytest.raises(ArchivedFilesNeededError) as caught:
        Zone(tmp_path / "other", table, where="day > 1 AND id > 20").publish()
    assert days(caught.value.files) == ["2"]
    assert "A snapshot needs 1 archived file" in str(caught.value)
    assert "--where 'day > 1 AND id > 20' --to PLAN" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("is_view", [False, True], ids=["table", "view"])
def test_comparison_of_archived_files_is_refused_in_a_dry_run_and_before_it_starts(
    spark: SparkSession, tmp_path: Path, is_view: bool
) -> None:
    table = Orders(spark, tmp_path / "t", interval=60)
    source = Source(("archived_view",)) if is_view else table.source
    if is_view:
        spark.sql(f"CREATE OR REPLACE TEMP VIEW archived_view AS SELECT * FROM {table.source.sql} WHERE day > 1")
    compared = Table(source=source, target=Target.parse("orders"), keys=("id",), changes="compare")
    config = Config(
        landing_zone=str(tmp_path / "zone"), ledger=Source(path=str(tmp_path / "ledger")), tables=(compared,)
    )
    (found,) = plan_next_steps(spark, config)
    assert isinstance(found.error, ArchivedFilesNeededError)
    assert days(found.error.files) == (["2"] if is_view else ["1", "2"])
    assert f"`mirrorfeed archive plan --sql 'SELECT * FROM {source.sql}' --to PLAN`" in str(found.error)
    with pytest.raises(ArchivedFilesNeededError, match="A comparison of all rows needs"):
        publish(source_for(spark, config, compared), FolderStore(str(tmp_path / "zone")), compared)
    assert not (tmp_path / "zone").exists()


def test_changes_in_archived_files_are_refused_with_the_command_that_restores_them(
    table: Orders, tmp_path: Path
) -> None:
    feed = Feed(Config(landing_zone=str(tmp_path), tables=()), table.spark)
    with pytest.raises(ArchivedFilesNeededError, match=r"archive plan .* --feed-from 1 --feed-to 1"):
        feed.changes(str(table.path), 1, 1)
    assert feed.changes(str(table.path), 3, 3).counts()[0].updates == 1


def test_table_is_not_cleared_if_its_snapshot_needs_archived_files(spark: SparkSession, published: Zone) -> None:
    before = published.everything()
    with pytest.raises(ArchivedFilesNeededError):
        clear(DeltaFeed(spark, published.table.source), published.store, published.plan)
    assert published.everything() == before


def test_files_removed_by_vacuum_are_named(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "t", interval=60)
    assert commit(table.path, "DELETE FROM {} WHERE day = 1")
    (removed,) = table.changed_files(3, 3)
    Path(removed.uri.removeprefix("file:")).unlink()
    with pytest.raises(FeedGapError) as caught:
        check(table, Range(2, 3), now=EARLIER)
    assert (caught.value.published, caught.value.reason) == (2, f"files are gone, {removed.uri}")
    with pytest.raises(SnapshotFilesDeletedError) as lost:
        check(table, Snapshot(2), now=EARLIER)
    assert list(lost.value.uris) == [removed.uri]


def test_feed_plan_error_on_databricks_suggests_the_path() -> None:
    assert "path of the table" in str(archived_feed_unknown(table="t"))
