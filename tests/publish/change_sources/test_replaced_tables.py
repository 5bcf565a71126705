"""Tables that CREATE OR REPLACE TABLE replaces: the published version is compared with the newest."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.monitor.doctor import diagnose
from mirrorfeed.monitor.status import read_status
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.change_sources.errors import feed_off_after_replacement
from mirrorfeed.publish.change_sources.feed_gap import SnapshotDiff, bridge_gap
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import FeedGapError, Recreation, SourceRecreatedError
from mirrorfeed.source.snapshot_or_range import Commit, PublishedVersion, is_published_version
from tests.support.clock import FakeClock
from tests.support.commits import write_checksum
from tests.support.delta import FEED, DeltaTable, Zone

AT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("committed", "commit", "table_id", "expected"),
    [
        (AT, Commit(4, AT, "WRITE"), "id-1", True),
        (AT, Commit(4, AT + timedelta(milliseconds=3), "WRITE"), "id-1", True),
        (AT, Commit(4, AT, "WRITE"), None, True),  # the id at a version cannot be read in Unity Catalog
        (AT, Commit(4, AT, "WRITE"), "id-2", False),
        (AT, Commit(4, AT + timedelta(seconds=1), "WRITE"), None, False),  # a new log
        (AT, Commit(4, AT + timedelta(hours=5), "WRITE"), "id-1", False),  # a folder restored from a copy
        (AT, Commit(4, AT - timedelta(seconds=1), "WRITE"), "id-1", False),
        (AT, None, None, False),  # no longer in the log, or not yet
        (None, Commit(4, AT, "WRITE"), "id-1", False),  # a record of an earlier release
    ],
)
def test_published_version_is_recognized_by_its_commit_time_and_table_id(
    committed: datetime | None, commit: Commit | None, table_id: str | None, expected: bool
) -> None:
    assert is_published_version(PublishedVersion("id-1", 4, (), committed), commit, table_id) is expected


def a_config(folder: Path, more: str = "", keys: str = "[id]") -> Config:
    text = f"landing_zone: ./landing\n{more}\ntables: [{{source: ./t, target: sales.orders, keys: {keys}}}]\n"
    (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    return load(str(folder / "mirrorfeed.yml"))


def recreated(reason: Recreation = Recreation.NOT_COMPARED, found: str = "id-2") -> SourceRecreatedError:
    return SourceRecreatedError(table="t", published_id="id-1", found_id=found, published=4, latest=7, reason=reason)


@pytest.mark.parametrize(
    ("option", "keys", "finding", "compares"),
    [
        ("", "[id]", recreated(), True),
        ("on_replace: compare", "[id]", recreated(), True),
        ("on_replace: compare", "[]", recreated(), False),
        ("on_replace: compare", "[id]", recreated(found="id-1"), False),  # fewer versions than were published
        ("on_replace: stop", "[id]", recreated(), False),
        ("on_replace: reseed", "[id]", recreated(), False),
        ("on_replace: stop\non_gap: compare", "[id]", recreated(), False),
        (
            "on_replace: compare",
            "[id]",
            FeedGapError(table="t", published=4, where=5, reason="a file is missing"),
            False,
        ),
    ],
)
def test_on_replace_decides_whether_a_replaced_table_is_compared(
    tmp_path: Path, option: str, keys: str, finding: FeedGapError | SourceRecreatedError, compares: bool
) -> None:
    (table,) = a_config(tmp_path, option, keys).tables
    source = DeltaFeed(None, table.source)  # type: ignore[arg-type]  # nothing is read
    assert isinstance(bridge_gap(source, table, finding), SnapshotDiff) is compares


def published(spark: SparkSession, config: Config) -> tuple[TableResult, list[MirrorfeedError]]:
    errors: list[MirrorfeedError] = []
    (outcome,) = publish_tables(RunContext(spark, config, Callbacks(on_problem=errors.append), clock=FakeClock()))
    return outcome, errors


ROWS = [(number, f"v{number}") for number in range(1, 9)]


@pytest.fixture
def replaced(spark: SparkSession, tmp_path: Path) -> Zone:
    """A table with eight published rows. It has unpublished changes, and was then replaced twice."""
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(*(number for number, _ in ROWS))
    zone = Zone(tmp_path / "landing", table)
    published(spark, a_config(tmp_path))
    table.sql("DELETE FROM {} WHERE id > 2")
    table.replace((1, "other"))
    table.sql("UPDATE {} SET v = 'another' WHERE id = 1")
    table.replace(*ROWS[:6], (7, "new"), (9, "v9"))
    return zone


def test_replaced_table_continues_with_the_rows_that_differ(
    spark: SparkSession, tmp_path: Path, replaced: Zone
) -> None:
    config = a_config(tmp_path)
    assert [row.next for row in plan_next_steps(spark, config)] == ["versions 2 to 5, by comparison"]
    (status,), _, _ = read_status(lambda: spark, config)
    assert (status.state, status.error) == ("behind", None)
    assert status.remarks() == ("sales.orders: Next step: versions 2 to 5, by comparison",)
    (finding,), _, _ = diagnose(lambda: spark, config)
    assert (finding.name, finding.ok) == ("NOT_FROM_FEED", True)
    assert finding.what.endswith("Next step: versions 2 to 5, by comparison")
    outcome, errors = published(spark, config)
    assert (outcome.error, errors) == (None, [])
    assert outcome.rows == {"upsert": 2, "delete": 1}
    assert replaced.mirrors_the_table()
    replaced.table.insert(10)  # the feed continues, with the new id of the table
    assert [row.next for row in plan_next_steps(spark, config)] == ["version 6"]
    assert published(spark, config)[0].rows == {"upsert": 1}
    replaced.table.replace(*ROWS)
    replaced.table.sql("RESTORE TABLE {} TO VERSION AS OF 1")  # the first id of the table
    outcome, errors = published(spark, config)
    assert (outcome.error, errors, outcome.rows) == (None, [], {"upsert": 2, "delete": 2})
    assert replaced.mirrors_the_table()


@pytest.mark.slow
def test_replaced_table_with_column_mapping_continues(spark: SparkSession, tmp_path: Path) -> None:
    """The replacement gives the columns other physical names, so files of both tables have no column in common."""
    mapped = {"delta.columnMapping.mode": "name"}
    table = DeltaTable(spark, tmp_path / "t", properties=mapped)
    table.sql("ALTER TABLE {} RENAME COLUMN v TO w")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    zone, config = Zone(tmp_path / "landing", table), a_config(tmp_path)
    assert published(spark, config)[0].rows == {"insert": 3}
    table.sql(
        f"CREATE OR REPLACE TABLE {{}} USING DELTA TBLPROPERTIES ({FEED} = true, 'delta.columnMapping.mode' = 'name')"
        " AS SELECT * FROM VALUES ('b', 2, true), ('d', 3, false), ('e', 4, NULL) AS (w, id, added)"
    )
    outcome, errors = published(spark, config)
    assert (outcome.error, errors, outcome.rows) == (None, [], {"upsert": 3, "delete": 1})
    assert zone.mirrors_the_table()
    table.sql("UPDATE {} SET w = 'f' WHERE id = 4")
    assert published(spark, config)[0].rows == {"upsert": 1}
    assert zone.mirrors_the_table()


def data_and_log(zone: Zone) -> dict[str, bytes]:
    """All files of the table. The landing zone also has a file with the last failure of each table."""
    return {name: content for name, content in zone.everything().items() if not name.startswith("_mirrorfeed/")}


def drop_and_create(table: DeltaTable) -> None:
    """The new log has more versions than were published. Its first commits come directly after the drop."""
    shutil.rmtree(table.path)
    table.spark.catalog.clearCache()
    again = DeltaTable(table.spark, table.path)
    again.insert(1)
    again.insert(2)


def restore_an_older_copy(table: DeltaTable) -> None:
    """The table keeps its id, but version 1 has other rows than were published."""
    for version in range(1, table.latest + 1):
        table.commit_file(version).unlink()
        table.commit_file(version).with_suffix(".crc").unlink(missing_ok=True)
    table.spark.catalog.clearCache()
    time.sleep(1.0)
    table.insert(1)
    table.replace(*ROWS)


@pytest.mark.parametrize("harm", [drop_and_create, restore_an_older_copy])
def test_version_of_another_log_is_never_compared(
    spark: SparkSession, tmp_path: Path, replaced: Zone, harm: Callable[[DeltaTable], None]
) -> None:
    harm(replaced.table)
    before = data_and_log(replaced)
    (step,) = plan_next_steps(spark, a_config(tmp_path))
    outcome, _ = published(spark, a_config(tmp_path))
    for error in (step.error, outcome.error):
        assert isinstance(error, SourceRecreatedError)
        assert error.case == Recreation.UNPROVEN
        assert "nothing proves that its log contains the published version" in error.problem
    assert data_and_log(replaced) == before


def test_published_version_that_vacuum_deleted_is_reported_or_reseeded(
    spark: SparkSession, tmp_path: Path, replaced: Zone
) -> None:
    for file in set(replaced.table.path.glob("*.parquet")) - replaced.table.live_files():
        file.unlink()
    outcome, _ = published(spark, a_config(tmp_path))
    assert isinstance(outcome.error, SourceRecreatedError)
    assert outcome.error.case == Recreation.UNREADABLE
    assert "Version 1 can no longer be read" in outcome.error.problem
    assert "with `on_replace: reseed` this happens automatically" in outcome.error.solution
    outcome, _ = published(spark, a_config(tmp_path, "on_replace: reseed"))
    assert isinstance(outcome.reseeded, SourceRecreatedError)
    assert outcome.rows == {"insert": 8}
    assert replaced.mirrors_the_table()


def test_archived_files_of_the_published_version_are_named(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(*(number for number, _ in ROWS))
    commit = table.commit_file(1)
    commit.write_text(re.sub(r'"modificationTime":\d+', '"modificationTime":1', commit.read_text()))
    write_checksum(commit)
    zone = Zone(tmp_path / "landing", table)
    published(spark, a_config(tmp_path))
    table.replace(*ROWS[2:])
    archive_interval.set_first(spark, table.source, 60, datetime.now(UTC))
    before, config = data_and_log(zone), a_config(tmp_path)
    (step,), outcome = plan_next_steps(spark, config), published(spark, config)[0]
    for error in (step.error, outcome.error):
        assert isinstance(error, ArchivedFilesNeededError)
        assert " of " in error.problem
        assert "at version 1: " in error.problem
        assert "mirrorfeed archive plan " in error.solution
    assert data_and_log(zone) == before
    outcome, _ = published(spark, a_config(tmp_path, "on_replace: reseed"))
    assert isinstance(outcome.reseeded, SourceRecreatedError)
    assert outcome.rows == {"insert": 6}
    assert zone.mirrors_the_table()


def test_feed_that_is_off_after_a_replacement_is_reported(spark: SparkSession, tmp_path: Path, replaced: Zone) -> None:
    replaced.table.replace(*ROWS, feed=False)
    outcome, (note,) = published(spark, a_config(tmp_path))
    assert (outcome.error, outcome.rows) == (None, {})
    assert feed_off_after_replacement.matches(note)
    replaced.table.replace(*ROWS[1:], feed=False)
    outcome, errors = published(spark, a_config(tmp_path, "on_gap: compare"))
    assert (outcome.error, errors, outcome.rows) == (None, [], {"delete": 1})
    assert replaced.mirrors_the_table()
