"""A Delta table published through Spark: the content of the files."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fixtures.mirror import Mirror, canonical
from mirrorfeed.landing.errors import invalid_key, reserved_columns
from mirrorfeed.landing.schema import Problem
from mirrorfeed.lint.linter import lint
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files import duplicate_keys, row_staging
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.source.identifier import quote
from mirrorfeed.storage.local_folder import FolderStore
from tests.conftest import ADAPTIVE
from tests.raised import raises
from tests.support.delta import DeltaTable, SparkTable, Zone
from tests.support.entries import FOLDER, entry
from tests.support.tables import Table, TableFeed

TYPES = {
    "b": ("boolean", "true", pa.bool_(), True),
    "i8": ("tinyint", "-8Y", pa.int8(), -8),
    "i16": ("smallint", "-16S", pa.int16(), -16),
    "i64": ("bigint", "9223372036854775807", pa.int64(), 2**63 - 1),
    "f": ("float", "CAST(1.5 AS float)", pa.float32(), 1.5),
    "d": ("double", "2.5D", pa.float64(), 2.5),
    "price": ("decimal(38,9)", "1234567890123456789.5BD", pa.decimal128(38, 9), Decimal("1234567890123456789.5")),
    "s": ("string", "'Łódź'", pa.string(), "Łódź"),
    "c": ("char(3)", "'ab'", pa.string(), "ab "),
    "vc": ("varchar(9)", "'ab'", pa.string(), "ab"),
    "bin": ("binary", "X'00FF'", pa.binary(), b"\x00\xff"),
    "day": ("date", "date'0001-01-01'", pa.date32(), datetime.date(1, 1, 1)),
    "ts": (
        "timestamp",
        "timestamp'2026-07-01 10:00:00.123456+02:00'",
        pa.timestamp("us", "UTC"),
        datetime.datetime(2026, 7, 1, 8, 0, 0, 123456, datetime.UTC),
    ),
    "ntz": (
        "timestamp_ntz",
        "timestamp_ntz'2026-07-01 10:00:00.123456'",
        pa.timestamp("us"),
        datetime.datetime(2026, 7, 1, 10, 0, 0, 123456),
    ),
    "arr": ("array<int>", "array(1, NULL)", pa.string(), "[1,null]"),
    "m": ("map<string, int>", "map('k', 1)", pa.string(), '{"k":1}'),
    "st": ("struct<a: int, t: timestamp>", "named_struct('a', 1, 't', timestamp'2026-07-01 10:00:00.123456+00:00')",
           pa.string(), '{"a":1,"t":"2026-07-01T10:00:00.123456Z"}'),
}  # fmt: skip


def test_every_type_has_its_parquet_type_in_snapshot_and_range(spark: SparkSession, tmp_path: Path) -> None:
    spelled = ", ".join(f"{name} {type_}" for name, (type_, *_) in TYPES.items())
    table = DeltaTable(
        spark, tmp_path / "t", f"id int NOT NULL, {spelled}", properties={"delta.feature.timestampNtz": "supported"}
    )
    zone = Zone(tmp_path / "zone", table)
    values = ", ".join(literal for _, literal, *_ in TYPES.values())
    table.sql(f"INSERT INTO {{}} SELECT 1, {values}")
    zone.publish()
    table.sql(f"INSERT INTO {{}} SELECT 2, {values}")
    zone.publish()

    columns = [pa.field("id", pa.int32()), *(pa.field(name, form) for name, (_, _, form, _) in TYPES.items())]
    snapshot, range_ = zone.files
    assert snapshot.schema.remove_metadata() == pa.schema(columns)  # all columns nullable, no marker
    assert range_.schema.remove_metadata() == pa.schema([*columns, pa.field("__rowMarker__", pa.int32())])
    expected = {name: value for name, (*_, value) in TYPES.items()}
    assert snapshot.to_pylist() == [{"id": 1, **expected}]
    assert range_.to_pylist() == [{"id": 2, **expected, "__rowMarker__": 4}]


ODD = [
    "a.b",
    "with space",
    "tab\tand\nline",
    "ti`ck",
    "quo'te\"d",
    "Łódź→注文",
    "select",
    "a,b;c{x}()=",
    "__live__",
    "__problem__",
]


@pytest.mark.parametrize("changes", ["net", pytest.param("full", marks=pytest.mark.slow)])
def test_columns_and_keys_with_special_characters_are_published(
    spark: SparkSession, tmp_path: Path, changes: str
) -> None:
    spelled = ", ".join(f"{quote(name)} string" for name in ODD)
    table = DeltaTable(spark, tmp_path / "o'dd `t` ü.x", spelled, properties={"delta.columnMapping.mode": "name"})
    zone = Zone(tmp_path / "zone", table, keys=("a.b", "ti`ck"), changes=changes)
    table.sql("INSERT INTO {} VALUES (" + ", ".join(f"'{i}'" for i in range(len(ODD))) + ")")
    zone.publish()
    assert zone.files[0].column_names == ODD
    assert list(zone.last[0].values()) == [str(i) for i in range(len(ODD))]
    table.sql("DELETE FROM {}")
    table.sql("INSERT INTO {} VALUES (" + ", ".join(f"'new {i}'" for i in range(len(ODD))) + ")")
    zone.publish()
    assert sorted(zone.last, key=str) == [
        dict.fromkeys(ODD) | {"a.b": "0", "ti`ck": str(ODD.index("ti`ck")), "__rowMarker__": 2},
        {name: f"new {i}" for i, name in enumerate(ODD)} | {"__rowMarker__": 4},
    ]
    assert json.loads((zone.folder / "_metadata.json").read_text()) == {"keyColumns": ["a.b", "ti`ck"]}
    assert zone.mirrors_the_table()


NO_KEYS = {
    ("ID",): "Column 'ID' cannot be a key of {}: it does not exist; the table has 'id'.",
    ("no",): "Column 'no' cannot be a key of {}: it does not exist; the table has 'id', 'd', 'n'.",
    ("d",): "Column 'd' cannot be a key of {}: values of the type double have no reliable equality.",
    ("id", "n"): "Column 'n' cannot be a key of {}: values of the type json have no reliable equality.",
}


def test_invalid_key_columns_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, d double, n array<int>")
    for keys, words in NO_KEYS.items():
        with raises(invalid_key) as caught:
            Zone(tmp_path / "zone", table, keys=keys).publish()
        assert caught.value.problem == words.format(table.source)


def test_reserved_column_is_refused_in_any_case(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, __ROWMARKER__ int")
    with raises(reserved_columns, match="'__ROWMARKER__'"):
        Zone(tmp_path / "zone", table).publish()


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """A file ends after the batch that fills it. A small number of rows comes from one task."""
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "100"), setting(spark, ADAPTIVE, "true"):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_large_publication_has_several_key_ordered_files_in_one_record(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, v string, w string")
    zone = Zone(tmp_path / "zone", table, keys=("v", "id"), target_file_size=20_000, compression="none")
    table.sql("INSERT INTO {} SELECT -id, concat('v', id % 7), 'old' FROM range(1, 2001) WHERE id % 5 = 0")
    zone.publish()
    table.sql("INSERT INTO {} SELECT id, concat('v', id % 7), repeat(uuid(), 4) FROM range(1, 2001) ORDER BY hash(id)")
    table.sql("DELETE FROM {} WHERE id < 0")
    progress = zone.publish()
    assert progress.files > 3
    assert progress.files == len(zone.record["files"]) == len(zone.files) - 1
    assert progress.bytes == sum(path.stat().st_size for path in sorted(zone.folder.glob("*.parquet"))[1:])
    assert progress.rows == {"upsert": 2000, "delete": 400}
    for part in zone.files[1:]:
        keys = [(row["v"], row["id"]) for row in part.to_pylist()]
        assert keys == sorted(keys)
    assert zone.mirrors_the_table()


def test_tasks_of_a_first_load_leave_no_small_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)
    table = SparkTable(spark, tmp_path / "t", "id int, v string")
    table.sql("INSERT INTO {} SELECT cast(id AS int), uuid() FROM range(0, 4000, 1, 2)")
    sizes = [path.stat().st_size for path in table.path.glob("*.parquet")]
    assert len(sizes) == 2
    # Each source file has slightly more rows than fit into one file of the target size.
    zone = Zone(tmp_path / "zone", table, target_file_size=int(sum(sizes) / 2.05), compression="snappy")
    with setting(spark, "spark.sql.files.maxPartitionBytes", str(max(sizes))):
        zone.publish()
    assert [file.num_rows for file in zone.files] == [2000, 2000]


def test_files_use_the_configured_compression(tmp_path: Path) -> None:
    table = Table({"id": "integer", "v": "string"}, ["id"])
    table.insert({"id": 1, "v": "v1"})
    for compression, called in {"none": "uncompressed", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd"}.items():
        publish(TableFeed(table), FolderStore(str(tmp_path / compression)), entry(compression=compression))
        file = pq.ParquetFile(tmp_path / compression / FOLDER / f"{1:020d}.parquet")
        assert file.metadata.row_group(0).column(0).compression.lower() == called


@pytest.mark.slow  # `test_staging_area` follows the same changes in Spark's files
@pytest.mark.usefixtures("small_batches")
def test_full_changes_are_in_commit_order_across_files(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1, 2, 3)
    zone = Zone(tmp_path / "zone", table, changes="full", target_file_size=1024)
    zone.publish()
    table.sql("UPDATE {} SET id = id + 1")  # all keys except the first move to another row
    table.sql("UPDATE {} SET v = 'later' WHERE id = 3")
    table.sql("DELETE FROM {} WHERE id = 4")
    table.sql("INSERT INTO {} SELECT id + 4, repeat(uuid(), 4) FROM range(300)")
    progress = zone.publish()
    assert progress.files > 1
    changes = [row for part in zone.files for row in part.to_pylist() if "__rowMarker__" in row]
    assert [(row["id"], row["v"], row["__rowMarker__"]) for row in changes[:6]] == [
        (1, None, 2),
        (2, "v1", 4),
        (3, "v2", 4),
        (4, "v3", 4),
        (3, "later", 4),
        (4, None, 2),
    ]
    assert len(changes) == 306
    assert zone.mirrors_the_table()


def test_partitioned_tables_and_changed_partition_keys_are_mirrored(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, day int, v int", by="day")
    table.sql("INSERT INTO {} VALUES (1, 1, 1), (1, 2, 2), (2, 2, 3)")
    zone = Zone(tmp_path / "zone", table, keys=("id", "day"))
    zone.publish()
    table.sql("DELETE FROM {} WHERE day = 2")  # a whole partition: nothing is written to the feed
    table.sql("UPDATE {} SET day = 3")
    zone.publish()
    assert not list(table.path.glob("_change_data/day=2/*"))
    assert zone.mirrors_the_table()
    assert {(row["id"], row["day"], row["__rowMarker__"]) for row in zone.last} == {
        (1, 1, 2), (1, 2, 2), (2, 2, 2), (1, 3, 4)
    }  # fmt: skip


def test_range_is_split_into_records_at_its_version_limit(tmp_path: Path) -> None:
    table, store = Table({"id": "integer", "v": "string"}, ["id"]), FolderStore(str(tmp_path))
    plan = entry(max_versions_per_publication=2)
    publish(TableFeed(table), store, plan)
    for i in range(3):
        table.insert({"id": i, "v": f"v{i}"})
    progress = publish(TableFeed(table), store, plan)
    assert (len(progress.records), progress.from_version_exclusive, progress.to_version_inclusive) == (2, 0, 3)
    mirror = Mirror(store, FOLDER)
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.rows)


@pytest.mark.slow
@pytest.mark.parametrize("changes", ["net", pytest.param("full", marks=pytest.mark.slow)])
def test_range_is_published_after_its_invalid_keys_are_corrected(
    spark: SparkSession, tmp_path: Path, changes: str
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone = Zone(tmp_path / "zone", table, changes=changes)
    zone.publish()
    table.sql("INSERT INTO {} VALUES (NULL, 'x'), (1, 'y'), (11, 'a'), (11, 'b'), (12, 'c')")
    with pytest.raises(RowsRefusedError, match="in version 1 a key is ") as caught:
        zone.publish()
    found = {(row.problem, row.key) for row in caught.value.rows}
    assert found == {(Problem.NULL_KEY, "id = NULL"), (Problem.DUPLICATE_KEY, "id = 11")}
    assert zone.record["to_version_inclusive"] == 0
    table.sql("UPDATE {} SET id = 2 WHERE id IS NULL")
    table.sql("DELETE FROM {} WHERE v = 'b'")
    table.sql("UPDATE {} SET v = 'a again' WHERE id = 11")
    zone.publish()
    assert zone.mirrors_the_table()
    zone.publish()  # cleans up
    assert list(zone.folder.glob("_mirrorfeed/*/*.parquet")) == []


def test_snapshot_with_invalid_keys_is_refused_and_leaves_no_files_or_lint_errors(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'a'), (1, 'a'), (NULL, 'a')")
    zone = Zone(tmp_path / "zone", table, keys=("id", "v"))
    with pytest.raises(RowsRefusedError, match=r"at version 1 a key is NULL \(id = NULL, v = 'a'\)"):
        zone.publish()
    table.sql("DELETE FROM {} WHERE id IS NULL")
    with pytest.raises(RowsRefusedError, match=r"at version 2 a key is not unique \(id = 1, v = 'a'\)"):
        zone.publish()
    assert list(zone.folder.rglob("*.parquet")) == []
    assert [(found.code, found.severity) for found in lint(zone.store)[0]] == [("MF316", "warning")]


def test_hash_collision_of_different_keys_is_not_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)  # keys of small batches are compared without hashes
    monkeypatch.setattr(duplicate_keys, "has_duplicates", lambda _: True)
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1, 2)
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    assert zone.mirrors_the_table()
    assert zone.files[0].column_names == ["id", "v"]


@pytest.mark.slow  # as in `test_rows_and_markers`
def test_unchanged_rows_are_not_published(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, v string, d double, s struct<a: int>")
    rows = "SELECT cast(id AS int), concat('v', id), double('NaN'), named_struct('a', cast(id AS int)) FROM range(1000)"
    table.sql(f"INSERT INTO {{}} {rows}")
    zones = [Zone(tmp_path / changes, table, changes=changes) for changes in ("net", "full")]
    for zone in zones:
        zone.publish()
    net, full = zones
    for statement in ("UPDATE {} SET v = v", f"INSERT OVERWRITE {{}} {rows}", "RESTORE {} TO VERSION AS OF 1"):
        table.sql(statement)
        assert net.publish().rows == {}, statement
    assert full.publish().rows == {}  # which reads every commit
    table.sql("INSERT OVERWRITE {} " + rows.replace("double('NaN')", "if(id = 7, 0D, double('NaN'))"))
    for zone in zones:
        assert zone.publish().rows == {"upsert": 1}
        assert [row["id"] for row in zone.last] == [7]
