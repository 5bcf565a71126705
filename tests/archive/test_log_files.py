"""Paths and files in the Delta log, compared with another reader."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as OtherReader
from pyspark.sql import Row, SparkSession

from mirrorfeed.archive import guard
from mirrorfeed.archive.data_files import DataFile, deletion_vector_uri, normalize_uri, to_uri
from mirrorfeed.archive.data_skipping import UncertainFiles
from mirrorfeed.archive.delta_log_reader import ColumnarLog, LogFiles, require_own_commits, select_log_files
from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.archive.errors import commits_outside_log
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range, Snapshot
from mirrorfeed.source.table_info import commit_name, read_table_info
from tests.archive.archived_table import Orders, days
from tests.raised import raises
from tests.support import commits
from tests.support.delta import SPARK_4_0


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("part-0.parquet", "abfss://c@a.net/t/part-0.parquet"),
        ("day=a%20b/part-0.parquet", "abfss://c@a.net/t/day=a b/part-0.parquet"),
        ("day=c%2525d/part-0.parquet", "abfss://c@a.net/t/day=c%25d/part-0.parquet"),
        ("abfss://c@a.net/other/a%20b", "abfss://c@a.net/other/a b"),
        ("file:///tmp/other", "file:/tmp/other"),
    ],
)
def test_paths_in_the_log_are_decoded_once(path: str, uri: str) -> None:
    assert to_uri("abfss://c@a.net/t/", path) == uri


@pytest.mark.parametrize("uri", ["file:/tmp/t", "file:///tmp/t"])
def test_local_uris_are_normalized(uri: str) -> None:
    assert normalize_uri(uri) == "file:/tmp/t"


@pytest.mark.parametrize(
    ("kind", "text", "file"),
    [
        ("u", "okd*IM=ID1H!W^dC4Tgk", "file:/t/deletion_vector_4b69616b-97c8-410a-884d-fbe57667439d.bin"),
        ("u", "aBokd*IM=ID1H!W^dC4Tgk", "file:/t/aB/deletion_vector_4b69616b-97c8-410a-884d-fbe57667439d.bin"),
        ("p", "file:///u/deletion%20vector.bin", "file:/u/deletion vector.bin"),
        ("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None),
    ],
)
def test_deletion_vector_file_is_resolved(kind: str, text: str, file: str | None) -> None:
    assert deletion_vector_uri("file:/t", {"storageType": kind, "pathOrInlineDv": text}) == file


UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def commit(*versions: int) -> tuple[str, ...]:
    return tuple(f"{version:020d}.json" for version in versions)


def checkpoint(version: int, rest: str = "checkpoint.parquet") -> str:
    return f"{version:020d}.{rest}"


def part(version: int, number: int, of: int) -> str:
    return checkpoint(version, f"checkpoint.{number:010d}.{of:010d}.parquet")


@pytest.mark.parametrize(
    ("names", "version", "expected"),
    [
        (commit(0, 1, 2), 2, LogFiles((), commit(0, 1, 2))),
        (commit(0, 1, 2), 1, LogFiles((), commit(0, 1))),
        ((*commit(1, 2, 3), checkpoint(1)), 3, LogFiles((checkpoint(1),), commit(2, 3))),
        ((*commit(1, 2, 3), checkpoint(1), checkpoint(3)), 3, LogFiles((checkpoint(3),), ())),
        ((*commit(1, 2, 3), checkpoint(1), checkpoint(3)), 2, LogFiles((checkpoint(1),), commit(2))),
        ((*commit(2), part(1, 1, 2), part(1, 2, 2)), 2, LogFiles((part(1, 1, 2), part(1, 2, 2)), commit(2))),
        ((*commit(0, 1, 2), part(1, 1, 2)), 2, LogFiles((), commit(0, 1, 2))),
        ((*commit(2), part(1, 1, 2), checkpoint(1)), 2, LogFiles((checkpoint(1),), commit(2))),
        (
            (*commit(2), checkpoint(1, f"checkpoint.{UUID}.json")),
            2,
            LogFiles((checkpoint(1, f"checkpoint.{UUID}.json"),), commit(2)),
        ),
        ((*commit(0), "00000000000000000000.crc", "x.json", f"{checkpoint(9)}.tmp"), 0, LogFiles((), commit(0))),
    ],
)
def test_version_is_read_from_newest_complete_checkpoint_and_commits(
    names: tuple[str, ...], version: int, expected: LogFiles
) -> None:
    assert select_log_files(names, version) == expected


@pytest.mark.parametrize(
    ("names", "version"),
    [((), 0), (commit(1, 2), 2), (commit(0, 2), 2), (commit(0, 1), 2), ((*commit(3), checkpoint(1)), 3)],
)
def test_log_with_a_missing_commit_is_refused(names: tuple[str, ...], version: int) -> None:
    with pytest.raises(UncertainFiles, match="incomplete"):
        select_log_files(names, version)


def engine(*features: str) -> Any:
    """A session that only answers DESCRIBE DETAIL."""
    row = Row(format="delta", id="a", location="s3://b/t", properties={}, tableFeatures=features)
    return SimpleNamespace(sql=lambda statement: SimpleNamespace(first=lambda: row))


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogManaged-preview", "catalogOwned", "coordinatedCommits"])
def test_log_with_commits_in_the_catalog_is_refused_by_feature(feature: str) -> None:
    spark, orders = engine("appendOnly", feature), Source.parse("main.sales.orders")
    for what in (Snapshot(3), Range(0, 3)):
        with raises(commits_outside_log) as caught:
            guard.files_to_read(spark, orders, read_table_info(spark, orders), what)
        assert (caught.value.table, caught.value.feature) == ("main.sales.orders", feature)
    with raises(commits_outside_log):
        OpenSourceEngine(spark).files(orders)


def test_log_that_is_complete_in_its_folder_is_read(tmp_path: Path) -> None:
    features = ["inCommitTimestamp", "rowTracking"]
    require_own_commits("main.sales.orders", features)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    metadata = {"id": "a", "schemaString": '{"type": "struct", "fields": []}', "partitionColumns": []}
    added = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    actions = [{"protocol": protocol}, {"metaData": metadata}, {"add": added}]
    name = commit_name(0)
    (tmp_path / name).write_text("\n".join(map(json.dumps, actions)))
    log = ColumnarLog("file:/t", [name], 0, tmp_path.joinpath)
    assert log.metadata.table_id == "a"
    assert [file.uri for file in log.files()[1]] == ["file:/t/a.parquet"]


COLUMNS = "delta.checkpoint.writeStatsAsJson = false, delta.checkpoint.writeStatsAsStruct = true"


@pytest.mark.parametrize(
    ("properties", "then_as_columns"),
    [
        pytest.param({}, False, id="classic"),
        pytest.param({}, True, id="classic, then with statistics as columns", marks=pytest.mark.slow),
        pytest.param(
            {"delta.checkpointPolicy": "v2", "delta.columnMapping.mode": "name"},
            False,
            id="v2 and column mapping",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_files_equal_those_of_another_reader_for_all_checkpoints(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], then_as_columns: bool
) -> None:
    given = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "2", **properties}
    table = Orders(spark, tmp_path / "a b é" / "t", properties=given)
    table.sql("DELETE FROM {} WHERE id IN (13, 14) OR day = 2")
    table.sql("UPDATE {} SET v = 'other' WHERE id = 33")
    found = files_as_another_reader_has_them(table, 3, after=2)
    assert sum(file.rows or 0 for file in found) == 28  # without deleted files
    if then_as_columns:
        table.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({COLUMNS})")
        found = files_as_another_reader_has_them(table, 4, after=4)
        assert sum(file.rows or 0 for file in found) == (0 if SPARK_4_0 else 28)  # Delta 4.0 writes none as columns


def files_as_another_reader_has_them(table: Orders, version: int, after: int) -> list[DataFile]:
    """Compare the files of a version with another reader, from a checkpoint and the commits after it."""
    assert any(path.name.startswith(f"{after:020d}.checkpoint.") for path in (table.path / "_delta_log").iterdir())
    found = [*OpenSourceEngine(table.spark).files(table.source, version).values()]
    assert {file.uri: file.bytes for file in found} == {
        to_uri(f"file:{table.path}", row["path"]): row["size_bytes"]
        for row in pa.table(OtherReader(str(table.path), version).get_add_actions()).to_pylist()
    }
    with_vector = [file for file in found if file.deletion_vector]
    assert days(with_vector) == ["1", "3"]
    uris = [file.uri for file in found] + [str(file.deletion_vector) for file in with_vector]
    assert all(Path(uri.removeprefix("file:")).is_file() for uri in uris)
    return found


def test_feed_range_uses_change_files_or_added_and_removed_files(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "t")
    table.sql("UPDATE {} SET v = 'x' WHERE id = 11")  # 2: changes are written to the feed
    assert commits.commit(table.path, "DELETE FROM {} WHERE day = 2")  # 3: a whole file is deleted
    assert commits.commit(table.path, "INSERT INTO {} VALUES (39, 'x', 3)")  # 4
    table.sql("OPTIMIZE {}")  # 5: no row changes
    (recorded,) = table.changed_files(2, 2)
    assert "/_change_data/" in recorded.uri
    assert recorded.created is not None  # from its commit
    (removed,) = table.changed_files(3, 3)
    assert (removed.partition, removed.rows) == ({"day": "2"}, 10)
    assert removed.created is not None  # from the version before
    assert table.changed_files(5, 5) == []
    assert days(table.changed_files(1, 5)) == ["1", "1", "2", "3", "3", "4"]  # the feed file has a partition, too
