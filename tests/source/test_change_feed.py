from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from mirrorfeed.landing.errors import reserved_columns
from mirrorfeed.source import change_feed, feed_activation, versions
from mirrorfeed.source.change_feed import is_feed_on, read_facts
from mirrorfeed.source.change_preview import changes_between
from mirrorfeed.source.errors import DeltaLogDamagedError, GapReason, NotDeltaError, no_computed_feed
from mirrorfeed.source.feed_activation import (
    DEFAULT_LINE,
    FeedKind,
    enable_feed,
    enable_feed_without_spark,
    feed_kind,
    first_version_with_feed,
)
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Commit
from mirrorfeed.source.table_info import TableInfo, read_table_info
from mirrorfeed.source.versions import read_commits
from tests.raised import raises
from tests.support.delta import DeltaTable

NO_SPARK: Any = None
ROW_TRACKING = {"delta.enableRowTracking": "true"}


@pytest.mark.parametrize(
    ("feed", "properties", "found"),
    [
        (True, {}, FeedKind.RECORDED),
        (False, {}, FeedKind.OFF),
        (False, ROW_TRACKING, FeedKind.OFF),
        (True, ROW_TRACKING, FeedKind.RECORDED),
    ],
)
def test_feed_needs_recorded_changes_without_row_tracking_support(
    spark: SparkSession, tmp_path: Path, feed: bool, properties: dict[str, str], found: FeedKind
) -> None:
    table = DeltaTable(spark, tmp_path / "t", feed=feed, properties=properties)
    assert feed_kind(spark, table.source, read_table_info(spark, table.source)) is found


def test_table_with_computed_changes_needs_no_action(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Response of an engine that computes changes: reading changes of the newest version succeeds."""
    for module in (change_feed, feed_activation):
        monkeypatch.setattr(module, "is_feed_on", lambda *_: True)
    table = DeltaTable(spark, tmp_path / "t", feed=False, properties=ROW_TRACKING)
    assert feed_kind(spark, table.source, read_table_info(spark, table.source)) is FeedKind.COMPUTED
    assert enable_feed(spark, table.source) == "computed from row tracking when it is read: no action is needed"
    assert not read_table_info(spark, table.source).records_changes

    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: zone\ntables: [{source: ./t, target: t, keys: [id]}]\n")
    messages = {
        command: " ".join(
            CliRunner().invoke(main, [*command.split(), "--config", str(tmp_path / "mirrorfeed.yml")]).output.split()
        )
        for command in ("enable-cdf", "setup check", "status")
    }
    assert "computed from row tracking when it is read: no action is needed" in messages["enable-cdf"]
    assert "computed from row tracking when it is read" in messages["setup check"]
    assert "computed" in messages["status"]


@pytest.mark.parametrize("computed", [True, False])
def test_iceberg_table_needs_a_computed_feed_and_gets_no_property(
    monkeypatch: pytest.MonkeyPatch, computed: bool
) -> None:
    """Responses of an engine for an Iceberg table, because open source Spark has none."""
    spark = MagicMock()
    spark.table.return_value.columns = ["id"]
    info = TableInfo("id-1", "", {}, (), 0, 0, format="iceberg")
    monkeypatch.setattr(feed_activation, "read_table_info", lambda *_: info)
    monkeypatch.setattr(feed_activation, "newest_version", lambda *_: 3)
    monkeypatch.setattr(feed_activation, "is_feed_on", lambda *_: computed)
    if computed:
        assert enable_feed(spark, Source(("one",))) == "computed from row tracking when it is read: no action is needed"
    else:
        with raises(no_computed_feed):
            enable_feed(spark, Source(("one",)))
    spark.sql.assert_not_called()


def test_feed_state_is_known_for_every_version(spark: SparkSession, table: DeltaTable) -> None:
    on = [version for version in range(9) if is_feed_on(spark, table.source, version)]
    assert on == [0, 1, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("after", "off"), [(0, 2), (1, 2), (4, None), (8, None)])
def test_first_version_without_the_feed_is_found(
    spark: SparkSession, table: DeltaTable, after: int, off: int | None
) -> None:
    found = read_facts(spark, table.source, after, limit=100)
    assert found.unreadable == ({} if off is None else {off: GapReason.FEED_OFF})
    assert [commit.version for commit in found.commits] == list(range(after + 1, 9))
    assert found.latest == 8


def test_unpublished_table_is_checked_at_its_newest_version(
    spark: SparkSession, table: DeltaTable, tmp_path: Path
) -> None:
    found = read_facts(spark, table.source, None, limit=100)
    assert (found.latest, [commit.version for commit in found.commits], found.unreadable) == (8, [8], {})
    off = DeltaTable(spark, tmp_path / "off", feed=False)
    assert read_facts(spark, off.source, None, limit=100).unreadable == {0: GapReason.FEED_OFF}


def test_history_is_not_read_without_new_versions(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requests(*_: object) -> None:
        raise AssertionError("the history was asked")

    monkeypatch.setattr(versions, "read_history", requests)
    for _ in ("here", "by Spark"):
        found = read_facts(spark, table.source, 8, limit=100)
        assert (found.latest, found.commits, found.breaks, found.unreadable) == (8, (), (), {})
        with pytest.raises(AssertionError, match="the history was asked"):
            read_facts(spark, table.source, 7, limit=100)
        with pytest.raises(AssertionError, match="the history was asked"):  # the clock went back
            read_facts(spark, table.source, 9, limit=100)
        for module in (change_feed, versions):
            monkeypatch.setattr(module, "open_local_table", lambda _: None)


def test_history_is_read_if_the_engine_does_not_report_the_newest_version(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (change_feed, versions):
        monkeypatch.setattr(module, "open_local_table", lambda _: None)
    monkeypatch.setattr(versions, "find_parameter", lambda *_: None)
    found = read_facts(spark, table.source, 8, limit=100)
    assert (found.latest, found.commits) == (8, ())


def test_added_columns_do_not_split_a_range(spark: SparkSession, table: DeltaTable) -> None:
    assert read_facts(spark, table.source, 4, limit=100).breaks == ()


def test_other_column_changes_split_a_range(spark: SparkSession, tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    table = DeltaTable(spark, tmp_path / "t", "id int NOT NULL, v string", properties=mapped)
    for change, (statement, operation) in enumerate(
        [
            ("ALTER TABLE {} RENAME COLUMN v TO w", "RENAME COLUMN"),
            ("ALTER TABLE {} ALTER COLUMN id DROP NOT NULL", "CHANGE COLUMN"),
            ("ALTER TABLE {} DROP COLUMN w", "DROP COLUMNS"),
        ],
        1,
    ):
        table.sql(statement)
        assert read_commits(spark, table.source)[-1].operation == operation
        assert read_facts(spark, table.source, 0, limit=100).breaks == tuple(range(1, change + 1))
        assert read_facts(spark, table.source, change - 1, limit=100).breaks == (change,)


def test_schemas_and_the_feed_are_checked_up_to_the_limit(spark: SparkSession, table: DeltaTable) -> None:
    assert read_facts(spark, table.source, 0, limit=1).unreadable == {}
    assert read_facts(spark, table.source, 0, limit=2).unreadable == {2: GapReason.FEED_OFF}


@pytest.mark.parametrize(
    ("after", "existing", "damaged_at"), [(2, [3, 5, 6, 7, 8], None), (3, [5, 6, 7, 8], None), (4, [5, 6, 7, 8], 5)]
)
def test_missing_version_is_not_an_error(
    spark: SparkSession, holed: DeltaTable, after: int, existing: list[int], damaged_at: int | None
) -> None:
    found = read_facts(spark, holed.source, after, limit=100)
    assert [commit.version for commit in found.commits] == existing
    assert found.unreadable == ({} if damaged_at is None else {damaged_at: GapReason.LOG_HOLE})


def test_commit_that_was_deleted_since_it_was_read_is_missing(
    spark: SparkSession, holed: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_MARGIN", 1)
    existing = {each.version: each for each in read_commits(spark, holed.source)}
    earlier = [replace(existing.get(version, existing[5]), version=version) for version in range(3, 9)]
    found = read_facts(spark, holed.source, 2, limit=3, earlier=earlier)
    assert [commit.version for commit in found.commits] == [3, 5, 6, 7, 8]
    later = read_facts(spark, holed.source, 4, limit=3, earlier=earlier)
    assert [commit.version for commit in later.commits] == [5, 6, 7, 8]
    assert later.commits[0] is earlier[2]


def test_unreadable_log_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    for i in range(3):
        table.insert(i)
    table.commit_file(2).unlink()
    with pytest.raises(DeltaLogDamagedError) as caught:
        read_facts(spark, table.source, 1, limit=100)
    assert caught.value.table == f"{tmp_path}/t"


@pytest.mark.parametrize(
    ("operations", "on", "expected"),
    [
        (["CREATE TABLE", "WRITE", "WRITE"], [0, 1, 2], 0),
        (["CREATE TABLE", "WRITE", "SET TBLPROPERTIES", "WRITE"], [2, 3], 2),
        (["CREATE TABLE", "SET TBLPROPERTIES", "SET TBLPROPERTIES", "WRITE"], [0, 2, 3], 2),
        (["CREATE TABLE", "WRITE"], [], None),
    ],
    ids=["from the first on", "switched on later", "off in between", "off"],
)
def test_feed_starts_after_the_last_version_without_it(
    operations: list[str], on: list[int], expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [Commit(n, datetime(2026, 1, 1, tzinfo=UTC), operation) for n, operation in enumerate(operations)]
    requests: list[int] = []

    def on_at(_: object, __: object, version: int) -> bool:
        requests.append(version)
        return version in on

    def start(history: list[Commit]) -> int | None:
        monkeypatch.setattr(feed_activation, "read_commits", lambda *_: history)
        return first_version_with_feed(NO_SPARK, Source.parse("t"))

    monkeypatch.setattr(feed_activation, "is_feed_on", on_at)
    assert start(known) == expected
    assert 1 not in requests or operations[2:3] != ["WRITE"]  # a write changes no setting
    holed = [known[0], *(replace(each, version=each.version + 5) for each in known[1:])]
    monkeypatch.setattr(feed_activation, "is_feed_on", lambda *_: True)
    assert start(holed) == 6


def test_newly_enabled_feed_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    quiet = DeltaTable(spark, tmp_path / "quiet", feed=False)
    quiet.insert(1)
    assert first_version_with_feed(spark, quiet.source) is None
    quiet.set_feed(True)
    assert first_version_with_feed(spark, quiet.source) == 2
    assert changes_between(spark, quiet.source, 2)[1].isEmpty()


def test_feed_is_enabled_once_on_an_existing_table(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", feed=False)
    assert enable_feed(spark, table.source) == "switched on"
    assert read_table_info(spark, table.source).records_changes
    assert enable_feed(spark, table.source) == "on already"
    assert table.latest == 1


def test_feed_is_enabled_without_spark_as_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table, by_spark = (DeltaTable(spark, tmp_path / name, "id int, c char(3)", feed=False) for name in "ab")
    assert enable_feed_without_spark(table.source) == "switched on"
    assert enable_feed(spark, by_spark.source) == "switched on"
    assert enable_feed_without_spark(table.source) == "on already" == enable_feed(spark, table.source)
    actions, expected = _actions(table), _actions(by_spark)
    for name in ("configuration", "schemaString", "partitionColumns", "format"):
        assert actions["metaData"][name] == expected["metaData"][name]
    assert actions["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 4}
    assert actions["commitInfo"]["operation"] == expected["commitInfo"]["operation"]
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
    table.sql("DELETE FROM {} WHERE id = 1")
    rows = changes_between(spark, table.source, 2)[1].select("id", "_change_type").collect()
    assert sorted(map(tuple, rows)) == [(1, "delete"), (1, "insert"), (2, "insert")]
    assert first_version_with_feed(spark, table.source) == 1


@pytest.mark.parametrize("properties", [ROW_TRACKING, {"delta.enableDeletionVectors": "true"}])
def test_feed_of_a_table_with_features_is_enabled_by_spark(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = DeltaTable(spark, tmp_path / "t", feed=False, properties=properties)
    assert enable_feed_without_spark(table.source) is None
    assert table.latest == 0


def test_default_feed_setting_applies_to_new_tables(spark: SparkSession, tmp_path: Path) -> None:
    setting, value = DEFAULT_LINE.split()
    spark.conf.set(setting, value)
    try:
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (id int) USING DELTA")
    finally:
        spark.conf.unset(setting)
    assert read_table_info(spark, Source(path=str(tmp_path / "t"))).records_changes
    assert DEFAULT_LINE == "spark.databricks.delta.properties.defaults.enableChangeDataFeed true"


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_COMMIT_TIMESTAMP", "__rowMarker__"])
def test_reserved_column_names_are_refused_by_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = DeltaTable(spark, tmp_path / "t", f"id int, `{name}` int", feed=False)
    with raises(reserved_columns, match=f": '{name}'."):
        enable_feed(spark, table.source)
    with raises(reserved_columns, match=f": '{name}'."):
        enable_feed_without_spark(table.source)
    assert table.latest == 0


def test_feed_of_a_view_cannot_be_enabled(spark: SparkSession) -> None:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW one AS SELECT 1 AS id")
    with pytest.raises(NotDeltaError, match="one is a view, not a Delta table, so it has no change data feed"):
        enable_feed(spark, Source(("one",)))


def _actions(table: DeltaTable) -> dict[str, Any]:
    """Return the actions of the newest commit by their names."""
    lines = table.commit_file(table.latest).read_text(encoding="utf-8").splitlines()
    return {name: action for line in lines for name, action in json.loads(line).items()}
