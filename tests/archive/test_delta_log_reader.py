"""Reading the Delta log in columns, from commits, checkpoints and multi-part checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorfeed.archive import delta_log_reader
from mirrorfeed.archive.data_files import TableMetadata
from mirrorfeed.archive.data_skipping import ColumnComparison, UncertainFiles, to_comparison
from mirrorfeed.archive.delta_log_reader import ColumnarLog

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "metadata": {}},
            {"name": "day", "type": "date", "metadata": {"delta.columnMapping.physicalName": "col-day"}},
        ],
    }
)
OPENING = [
    {"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "columnMapping"]}},
    {
        "metaData": {
            "id": "t-1",
            "schemaString": SCHEMA,
            "partitionColumns": ["day"],
            "configuration": {"delta.timeUntilArchived": "60 days"},
        }
    },
]


def file(path: str, low: int, **more: Any) -> dict[str, Any]:
    stats = {"numRecords": 3, "nullCount": {"id": 0}, "minValues": {"id": low}, "maxValues": {"id": low + 2}}
    return {
        "path": path,
        "partitionValues": {"col-day": "2026-01-01"},
        "size": 7,
        "modificationTime": low,
        "dataChange": True,
        "stats": json.dumps(stats),
    } | more


def add(path: str, low: int, **more: Any) -> dict[str, Any]:
    return {"add": file(path, low, **more)}


def vector(name: str) -> dict[str, Any]:
    return {"storageType": "i", "pathOrInlineDv": name, "offset": 1, "sizeInBytes": 1, "cardinality": 2}


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    lines = [json.dumps(each) for each in ({"commitInfo": {"timestamp": 1}}, *actions)]
    (folder / f"{version:020d}.json").write_text("\n".join(lines) + "\n")


def log(folder: Path, version: int) -> ColumnarLog:
    return ColumnarLog("file:/t", [path.name for path in folder.iterdir()], version, lambda name: folder / name)


TABLE = TableMetadata("t-1", SCHEMA, ("day",), {})


def found(table_log: ColumnarLog, *comparisons: ColumnComparison, until: int | None = None) -> tuple[int, list[str]]:
    count, files = table_log.files(comparisons, until)
    return count, sorted(each.uri for each in files)


def test_newest_action_of_each_file_counts(tmp_path: Path) -> None:
    commit(tmp_path, 0, *OPENING, *(add(f"{name}.parquet", low) for low, name in enumerate("abcd")))
    commit(tmp_path, 1, {"remove": {"path": "a.parquet"}}, add("b%20b.parquet", 10))
    deleted = {"deletionVector": vector("x")}
    commit(tmp_path, 2, {"remove": {"path": "c.parquet"}}, add("c.parquet", 2, **deleted))
    commit(tmp_path, 3, {"remove": {"path": "c.parquet", **deleted}}, add("a.parquet", 0))
    assert found(log(tmp_path, 0)) == (4, [f"file:/t/{name}.parquet" for name in "abcd"])
    assert found(log(tmp_path, 1)) == (4, [f"file:/t/{name}.parquet" for name in ("b b", "b", "c", "d")])
    assert found(log(tmp_path, 2)) == found(log(tmp_path, 1))
    assert found(log(tmp_path, 3)) == (4, [f"file:/t/{name}.parquet" for name in ("a", "b b", "b", "d")])


def test_files_are_returned_with_their_metadata(tmp_path: Path) -> None:
    commit(tmp_path, 0, *OPENING, add("a.parquet", 5, deletionVector=vector("x")))
    table_log = log(tmp_path, 0)
    table = table_log.metadata
    assert (table.table_id, table.partitions, table.properties) == (
        "t-1",
        ("day",),
        {"delta.timeUntilArchived": "60 days"},
    )
    _, (one,) = table_log.files((), 5)
    assert (one.uri, one.bytes, one.rows, one.partition) == ("file:/t/a.parquet", 7, 1, {"day": "2026-01-01"})
    assert one.created is not None
    assert one.created.timestamp() == 0.005


def test_only_old_enough_files_are_returned_and_all_are_counted(tmp_path: Path) -> None:
    commit(tmp_path, 0, *OPENING, add("a", 1), add("b", 2), add("c", 9))
    below = to_comparison(TABLE, "id", "<", 5)
    assert found(log(tmp_path, 0), below, until=1) == (2, ["file:/t/a"])
    assert found(log(tmp_path, 0), below, until=-1) == (2, [])
    commit(tmp_path, 1, add("d", 3, modificationTime=None))
    assert found(log(tmp_path, 1), below, until=1) == (3, ["file:/t/a", "file:/t/d"])  # d may have any age


_STRUCT = pa.struct(
    [
        *(("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string())), ("size", pa.int64())),
        *(("modificationTime", pa.int64()), ("stats", pa.string())),
        ("deletionVector", pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string())])),
    ]
)
_TABLE = pa.struct([("id", pa.string()), ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))])
_PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("readerFeatures", pa.list_(pa.string()))])


def checkpoint(path: Path, files: list[dict[str, Any]], sidecars: tuple[str, ...] = (), **more: Any) -> None:
    """Write a checkpoint that also contains tombstones and table metadata."""
    path.parent.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = [
        {"add": each | {"partitionValues": list(each["partitionValues"].items())}} for each in files
    ]
    rows += [*OPENING, {}, *({"sidecar": {"path": name}} for name in sidecars)]
    struct = pa.struct([*_STRUCT, *more.items()])
    kinds = {"add": struct, "metaData": _TABLE, "protocol": _PROTOCOL, "sidecar": pa.struct([("path", pa.string())])}
    pq.write_table(
        pa.table({kind: pa.array([row.get(kind) for row in rows], type_) for kind, type_ in kinds.items()}), path
    )


def test_checkpoint_is_read_before_later_commits(tmp_path: Path) -> None:
    checkpoint(tmp_path / f"{5:020d}.checkpoint.parquet", [file("a", 1), file("b", 2, deletionVector=None)])
    commit(tmp_path, 6, {"remove": {"path": "a"}}, add("c", 3))
    assert found(log(tmp_path, 6)) == (2, ["file:/t/b", "file:/t/c"])
    assert found(log(tmp_path, 6), to_comparison(TABLE, "id", "=", 4)) == (2, ["file:/t/b", "file:/t/c"])
    assert found(log(tmp_path, 6), to_comparison(TABLE, "id", "=", 5)) == (1, ["file:/t/c"])


def test_both_kinds_of_checkpoint_parts_are_read(tmp_path: Path) -> None:
    for part, name in enumerate("ab", 1):
        checkpoint(tmp_path / f"{5:020d}.checkpoint.{part:010d}.{2:010d}.parquet", [file(name, 1)])
    assert found(log(tmp_path, 5)) == (2, ["file:/t/a", "file:/t/b"])
    name = "0" * 36
    for side in "cd":
        checkpoint(tmp_path / f"_sidecars/{side}.parquet", [file(side, 1)])
    checkpoint(tmp_path / f"{6:020d}.checkpoint.{name}.parquet", [file("e", 1)], ("c.parquet", "d.parquet"))
    assert found(log(tmp_path, 6)) == (3, ["file:/t/c", "file:/t/d", "file:/t/e"])
    lines = [*OPENING, {"sidecar": {"path": "d.parquet"}}]
    (tmp_path / f"{7:020d}.checkpoint.{name}.json").write_text("\n".join(map(json.dumps, lines)))
    assert found(log(tmp_path, 7)) == (1, ["file:/t/d"])


def test_log_is_read_in_batches_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path / f"{5:020d}.checkpoint.parquet", [file(f"a{i}", i) for i in range(50)])
    commit(
        tmp_path, 6, *({"remove": {"path": f"a{i}"}} for i in range(0, 50, 2)), *(add(f"b{i}", i) for i in range(30))
    )
    all_files = found(log(tmp_path, 6), to_comparison(TABLE, "id", ">=", 20))
    assert all_files[0] == 16 + 12
    monkeypatch.setattr(delta_log_reader, "_CHUNK_SIZE", 200)
    monkeypatch.setattr(delta_log_reader, "_BATCH_ROWS", 7)
    assert found(log(tmp_path, 6), to_comparison(TABLE, "id", ">=", 20)) == all_files


def test_unknown_features_are_left_to_delta(tmp_path: Path) -> None:
    for features in ({"readerFeatures": ["catalogManaged"]}, {"writerFeatures": ["coordinatedCommits-preview"]}):
        commit(tmp_path, 0, {"protocol": {"minReaderVersion": 3, **features}}, OPENING[1])
        with pytest.raises(UncertainFiles, match="newer"):
            _ = log(tmp_path, 0).metadata
    checkpoint(tmp_path / f"{5:020d}.checkpoint.parquet", [file("a", 1, stats=None)], stats_parsed=pa.int64())
    with pytest.raises(UncertainFiles, match="statistics"):
        found(log(tmp_path, 5))
