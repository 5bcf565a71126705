from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.source.errors import (
    FeedGapError,
    FeedUnreadableError,
    FilesArchivedError,
    SnapshotFilesDeletedError,
    source_file_damaged,
)
from mirrorfeed.source.reader import read_changes, read_errors, read_snapshot
from mirrorfeed.source.snapshot_or_range import Range, Snapshot
from tests.raised import raises
from tests.support.delta import DeltaTable

MAPPED = {"delta.columnMapping.mode": "name"}
WAYS: dict[str, Callable[[DataFrame], object]] = {
    "collect": lambda rows: rows.collect(),
    "isEmpty": lambda rows: rows.isEmpty(),
    "mapInArrow": lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema).toArrow(),
}
"""Each of them reports a failure in another form."""

every_way = pytest.mark.parametrize("reader", WAYS.values(), ids=WAYS)
any_way = pytest.mark.parametrize(
    "reader",
    [pytest.param(read, id=name, marks=[] if name == "collect" else pytest.mark.slow) for name, read in WAYS.items()],
)
"""Of a failure that others show to be recognized in every form."""


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "orders")
    created.insert(1, 2)
    created.sql("UPDATE {} SET v = 'new' WHERE id = 1")
    created.sql("DELETE FROM {} WHERE id = 2")
    return created


def read(table: DeltaTable, after: int, to: int) -> set[tuple[int, str, str, int]]:
    found = read_changes(table.spark, table.source, Range(after, to)).collect()
    return {(row["id"], row["v"], row["_change_type"], row["_commit_version"]) for row in found}


def test_range_excludes_its_start_and_includes_its_end(
    table: DeltaTable,
) -> None:
    assert read(table, 1, 2) == {(1, "v1", "update_preimage", 2), (1, "new", "update_postimage", 2)}
    assert read(table, 2, 3) == {(2, "v2", "delete", 3)}
    assert len(read(table, -1, 3)) == 5


def test_snapshot_has_rows_of_its_version(table: DeltaTable) -> None:
    assert [row["id"] for row in read_snapshot(table.spark, table.source, 0).collect()] == []
    assert sorted(row["v"] for row in read_snapshot(table.spark, table.source, 2).collect()) == ["new", "v2"]


@pytest.mark.slow
def test_many_versions_of_deletion_vectors_are_read_by_few_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrorfeed.source.reader.TASKS_PER_CORE", 1)
    table = DeltaTable(spark, tmp_path / "t", properties={"delta.enableDeletionVectors": "true"})
    table.sql("INSERT INTO {} SELECT id, 'v' FROM range(0, 100, 1, 1)")
    most = spark.sparkContext.defaultParallelism
    for i in range(most + 1):
        table.sql(f"DELETE FROM {{}} WHERE id = {i}")
    plain = spark.read.options(readChangeFeed="true", startingVersion="2").table(table.source.sql)
    found = read_changes(spark, table.source, Range(1, most + 2))
    assert plain.rdd.getNumPartitions() > found.rdd.getNumPartitions() == most
    assert sorted(found.collect()) == sorted(plain.collect())


def test_range_does_not_grow_with_later_commits(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    rows = read_changes(spark, table.source, Range(0, 1))
    table.insert(2)
    assert [row["id"] for row in rows.collect()] == [1]


@pytest.fixture(scope="module")
def bare(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """A table without any data files and feed files."""
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "bare")
    created.insert(1, 2)
    created.sql("UPDATE {} SET v = 'new' WHERE id = 1")
    for file in [*created.path.glob("*.parquet"), *created.path.glob("_change_data/*.parquet")]:
        file.unlink()
    return created


@every_way
@pytest.mark.parametrize(
    "range_",
    [pytest.param(Range(0, 1), id="rows", marks=pytest.mark.slow), pytest.param(Range(1, 2), id="feed")],
)
def test_missing_files_of_a_range_are_a_gap(
    bare: DeltaTable, reader: Callable[[DataFrame], object], range_: Range
) -> None:
    with pytest.raises(FeedGapError) as caught, read_errors("sales.orders", range_):
        reader(read_changes(bare.spark, bare.source, range_))
    assert (caught.value.published, caught.value.where) == (range_.from_version_exclusive, range_)
    assert caught.value.reason == "a file is missing"


@any_way
def test_missing_files_of_a_snapshot_are_no_gap_yet(bare: DeltaTable, reader: Callable[[DataFrame], object]) -> None:
    with pytest.raises(SnapshotFilesDeletedError) as caught, read_errors("sales.orders", Snapshot(2)):
        reader(read_snapshot(bare.spark, bare.source, 2))
    assert (caught.value.version, caught.value.uris) == (2, ())


@pytest.fixture(scope="module")
def truncated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """The file of version 1 is truncated."""
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "truncated")
    created.insert(1, 2)
    for file in created.path.glob("*.parquet"):
        os.truncate(file, 100)
    return created


@any_way
def test_damaged_file_is_named(truncated: DeltaTable, reader: Callable[[DataFrame], object]) -> None:
    (file,) = truncated.path.glob("*.parquet")
    for what, rows in {
        Snapshot(1): read_snapshot(truncated.spark, truncated.source, 1),
        Range(0, 1): read_changes(truncated.spark, truncated.source, Range(0, 1)),
    }.items():
        with raises(source_file_damaged) as caught, read_errors("sales.orders", what):
            reader(rows)
        assert caught.value.problem.startswith(
            f"A file of sales.orders cannot be read: file:{file} (java.lang.RuntimeException: is not a Parquet file."
        )


@pytest.fixture(scope="module")
def holed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Version 2 of 0 to 3 is missing."""
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "holed")
    for i in range(3):
        created.insert(i)
    created.commit_file(2).unlink()
    return created


@any_way
def test_log_with_a_missing_commit_is_a_gap(holed: DeltaTable, reader: Callable[[DataFrame], object]) -> None:
    with (
        pytest.raises(FeedGapError, match="after version 2 cannot be read: in version 3 the log has a hole"),
        read_errors("sales.orders", Range(2, 3)),
    ):
        reader(read_changes(holed.spark, holed.source, Range(2, 3)))


@pytest.fixture(scope="module")
def switched_off(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """The feed is switched off at version 2."""
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "off")
    created.insert(1)
    created.set_feed(False)
    return created


@any_way
def test_disabled_feed_is_a_gap_at_its_version(switched_off: DeltaTable, reader: Callable[[DataFrame], object]) -> None:
    with pytest.raises(FeedGapError) as caught, read_errors("sales.orders", Range(0, 2)):
        reader(read_changes(switched_off.spark, switched_off.source, Range(0, 2)))
    assert caught.value.problem == (
        "The changes of sales.orders after version 0 cannot be read: at version 2 the change data feed is off."
    )


@pytest.fixture(scope="module")
def mapped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """A row at version 1, with column mapping."""
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "mapped", properties=MAPPED)
    created.insert(1)
    return created


@pytest.fixture(scope="module", params=["RENAME COLUMN v TO w", "DROP COLUMN v"])
def changed(mapped: DeltaTable, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> DeltaTable:
    """The same table, with a column replaced or dropped at version 2."""
    created = DeltaTable.copied(mapped, tmp_path_factory.mktemp("delta") / "changed")
    created.sql(f"ALTER TABLE {{}} {request.param}")
    return created


@any_way
def test_range_across_a_changed_column_is_refused(changed: DeltaTable, reader: Callable[[DataFrame], object]) -> None:
    with pytest.raises(FeedUnreadableError) as caught, read_errors("sales.orders", Range(0, 2)):
        reader(read_changes(changed.spark, changed.source, Range(0, 2)))
    assert (caught.value.version, caught.value.read_version) == ("1", "2")


def test_ranges_before_and_after_a_changed_column_are_read(changed: DeltaTable) -> None:
    before = read_changes(changed.spark, changed.source, Range(0, 1))
    assert before.columns[:2] == ["id", "v"]  # columns of the range's end
    assert before.first()["v"] == "v1"
    assert read_changes(changed.spark, changed.source, Range(1, 2)).isEmpty()


def test_overwritten_columns_without_mapping_make_older_changes_unreadable(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    new = spark.sql("SELECT 1 AS id, 2.5D AS v").write.format("delta").mode("overwrite")
    new.option("overwriteSchema", "true").save(str(table.path))
    with (
        pytest.raises(FeedUnreadableError, match="columns of version 2, and the columns of version 1 do not match"),
        read_errors("sales.orders", Range(0, 1)),
    ):
        read_changes(spark, table.source, Range(0, 1)).collect()


@pytest.mark.parametrize("kind", ["plain", "mapped"])
def test_added_column_is_null_in_changes_before_it(
    spark: SparkSession, mapped: DeltaTable, tmp_path: Path, kind: str
) -> None:
    if kind == "mapped":
        table = DeltaTable.copied(mapped, tmp_path / "t")
    else:
        table = DeltaTable(spark, tmp_path / "t")
        table.insert(1)
    table.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    table.sql("INSERT INTO {} VALUES (2, 'v2', 2)")
    found = read_changes(spark, table.source, Range(0, 3)).collect()
    assert {(row["id"], row["w"]) for row in found} == {(1, None), (2, 2)}


@pytest.mark.parametrize("text", ["java.io.{}: {}", "(java.io.{}) {}"], ids=["classic Spark", "over Connect"])
@pytest.mark.parametrize(
    ("failure", "words", "reason"),
    [
        ("UTFDataFormatException", "encoded string too long: 471530 bytes", "a deletion vector is too large"),
        (
            "FileNotFoundException",
            f"File file:/t/deletion_vector_{UUID(int=7)}.bin does not exist",
            "a file is missing",
        ),
        ("FileNotFoundException", "/tmp/blockmgr-1/0c/shuffle_0_0_0.data (No such file or directory)", None),
    ],
)
def test_errors_without_a_condition_are_recognized_by_their_text(
    text: str, failure: str, words: str, reason: str | None
) -> None:
    error = RuntimeError(text.format(failure, words))
    expected = f"cannot be read: in versions 1 to 2 {reason}" if reason else str(error)
    with (
        pytest.raises(FeedGapError if reason else RuntimeError, match=re.escape(expected)),
        read_errors("sales.orders", Range(0, 2)),
    ):
        raise error


def test_other_errors_are_not_translated(table: DeltaTable) -> None:
    with pytest.raises(ZeroDivisionError), read_errors("sales.orders", Range(0, 1)):
        raise ZeroDivisionError
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"), read_errors("sales.orders", Range(0, 1)):
        read_changes(table.spark, table.source, Range(0, 1)).selectExpr("1 / (id - id)").collect()


@pytest.mark.parametrize(
    "error",
    [
        SnapshotFilesDeletedError(table="t", version=4),
        FeedUnreadableError(table="t", range=Range(1, 2), version="1", read_version=None),
    ],
)
def test_errors_can_be_pickled(error: Exception) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


AZURE = '"This operation is not permitted on an archived blob.", 409, GET, https://acct/c/t/part-0, BlobArchived'
S3 = "The operation is not valid for the object's access tier (Service: S3, Status Code: 403): InvalidObjectState"


@pytest.mark.parametrize("refused", [AZURE, S3])
@pytest.mark.parametrize(
    ("what", "words"), [(Snapshot(7), "version 7"), (Range(3, 5), "the change feed in versions 4 to 5")]
)
def test_archived_files_are_reported(what: Range | Snapshot, words: str, refused: str) -> None:
    with pytest.raises(FilesArchivedError) as caught, read_errors("main.orders", what):
        raise OSError(f"Operation failed: {refused}")
    assert f"main.orders cannot be read: {words} needs files in the archive tier" in caught.value.problem
