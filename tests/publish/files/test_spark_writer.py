"""Files of an engine that differ from the required format: each file is checked, and rewritten with bounded memory."""

from __future__ import annotations

import datetime
import io
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.landing.output_format import Delimited, Output
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.errors import StagingFilesLostError
from mirrorfeed.publish.files import spark_files
from mirrorfeed.publish.files.file_sizes import Piece
from mirrorfeed.publish.files.spark_files import check_file, upload_pieces
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import StagingJob, arrow_schema
from mirrorfeed.storage.errors import StorageUnavailableError

COLUMNS = (Column("id", "long"), Column("at", "timestamp"), Column("price", "decimal(9,2)"))
EARLY, LATE = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
ROWS = [
    {"id": 1, "at": EARLY, "price": Decimal("1.50"), "__rowMarker__": 4},
    {"id": 2, "at": LATE, "price": None, "__rowMarker__": 4},
    {"id": 3, "at": None, "price": None, "__rowMarker__": 2},
]
SCHEMA = arrow_schema(COLUMNS, with_marker=True)


def job(store: MemoryStore, **other: Any) -> StagingJob:
    created = StagingJob(store, "t/_mirrorfeed/log", 1, "ab", COLUMNS, ("id",), True)
    return replace(created, **other)


def written(path: Path, rows: list[dict[str, Any]] = ROWS, schema: pa.Schema = SCHEMA, **options: Any) -> str:
    """Write a file as an engine with these options does."""
    pq.write_table(pa.Table.from_pylist(rows, schema), path / "made.parquet", **options)
    return f"{path}/made.parquet"


def test_conforming_file_is_uploaded_unchanged(tmp_path: Path) -> None:
    store, path = MemoryStore(), written(tmp_path, compression="zstd", version="2.6")
    (receipt,), _, _, differed, *_ = upload_pieces(job(store), StagingArea(str(tmp_path)), [Piece(path)])
    assert store.read(f"t/_mirrorfeed/log/{receipt.staged}") == Path(path).read_bytes()
    assert (receipt.rows, differed) == ({"upsert": 2, "delete": 1}, "")
    assert receipt.bytes == Path(path).stat().st_size


REQUIRED = pa.schema([SCHEMA.field("id").with_nullable(False), *list(SCHEMA)[1:]])
NANOSECONDS = SCHEMA.set(1, pa.field("at", pa.timestamp("ns", "UTC")))
NEAR = [ROWS[0] | {"at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, *ROWS[2:]]


@pytest.mark.parametrize(
    ("rows", "schema", "options", "differs"),
    [
        (ROWS, SCHEMA, {"use_deprecated_int96_timestamps": True}, "column 'at' as OPTIONAL INT96"),
        (ROWS, REQUIRED, {}, "column 'id' as REQUIRED INT64"),
        (ROWS, SCHEMA, {"store_decimal_as_integer": True},
         "column 'price' as OPTIONAL INT32 Decimal (precision 9, scale 2)"),
        (NEAR, NANOSECONDS, {},
         "column 'at' as OPTIONAL INT64 Timestamp (isAdjustedToUTC True, timeUnit nanoseconds)"),
    ],
)  # fmt: skip
def test_nonconforming_file_is_rewritten_with_equal_values(
    tmp_path: Path, rows: list[dict[str, Any]], schema: pa.Schema, options: dict[str, Any], differs: str
) -> None:
    store, path = MemoryStore(), written(tmp_path, rows, schema, row_group_size=1, **options)
    (receipt,), _, _, differed, *_ = upload_pieces(job(store), StagingArea(str(tmp_path)), [Piece(path)])
    sent = io.BytesIO(store.read(f"t/_mirrorfeed/log/{receipt.staged}"))
    assert differed == differs
    assert pq.read_table(sent).to_pylist() == rows
    assert not check_file(sent, job(store)).needs_rewrite


def two_files(path: Path, **options: Any) -> list[Piece]:
    for at in range(2):
        pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), path / f"{at}", row_group_size=1, **options)
    return [Piece(f"{path}/0"), Piece(f"{path}/1", 0, 2)]


def test_row_groups_of_several_files_are_uploaded_as_one_file(tmp_path: Path) -> None:
    store = MemoryStore()
    (receipt,), _, _, differed, *_ = upload_pieces(job(store), StagingArea(str(tmp_path)), two_files(tmp_path))
    sent = store.read(f"t/_mirrorfeed/log/{receipt.staged}")
    assert pq.read_table(io.BytesIO(sent)).to_pylist() == [*ROWS, *ROWS[:2]]
    assert pq.read_metadata(io.BytesIO(sent)).num_row_groups == 5
    assert (receipt.rows, differed, receipt.bytes) == ({"upsert": 4, "delete": 1}, "", len(sent))


def test_row_groups_of_nonconforming_files_are_rewritten_together(tmp_path: Path) -> None:
    store, pieces = MemoryStore(), two_files(tmp_path, store_decimal_as_integer=True)
    (receipt,), _, _, differed, *_ = upload_pieces(job(store), StagingArea(str(tmp_path)), pieces)
    sent = io.BytesIO(store.read(f"t/_mirrorfeed/log/{receipt.staged}"))
    assert pq.read_table(sent).to_pylist() == [*ROWS, *ROWS[:2]]
    assert (receipt.rows, differed) == (
        {"upsert": 4, "delete": 1},
        "column 'price' as OPTIONAL INT32 Decimal (precision 9, scale 2)",
    )


def test_files_that_cannot_be_joined_are_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_files, "join", lambda _: None)
    store, pieces = MemoryStore(), two_files(tmp_path)
    (receipt,), _, _, differed, *_ = upload_pieces(job(store), StagingArea(str(tmp_path)), pieces)
    sent = io.BytesIO(store.read(f"t/_mirrorfeed/log/{receipt.staged}"))
    assert (pq.read_table(sent).to_pylist(), differed) == ([*ROWS, *ROWS[:2]], "")


def test_rows_per_marker_are_counted_in_all_row_groups(tmp_path: Path) -> None:
    store = MemoryStore()
    for options in ({}, {"write_statistics": False}, {"row_group_size": 2}):
        with open(written(tmp_path, **options), "rb") as file:
            assert check_file(file, job(store)).rows == {4: 2, 2: 1}


def test_spark_file_is_converted_to_delimited_text(tmp_path: Path) -> None:
    store, path = MemoryStore(), written(tmp_path)
    text = job(store, output=Output(Delimited(), compression="none"))
    (receipt,), _, _, differed, *_ = upload_pieces(text, StagingArea(str(tmp_path)), [Piece(path)])
    lines = store.read(f"t/_mirrorfeed/log/{receipt.staged}").decode().splitlines()
    assert lines[0] == "id,at,price,__rowMarker__"
    assert lines[3] == "3,,,2"
    assert (receipt.rows, differed) == ({"upsert": 2, "delete": 1}, "")


def test_upsert_only_file_omits_the_marker_when_upsert_is_default(tmp_path: Path) -> None:
    store, path = MemoryStore(), written(tmp_path, ROWS[:2])
    (receipt,), _, _, differed, *_ = upload_pieces(
        job(store, output=Output(upserts_by_default=True)), StagingArea(str(tmp_path)), [Piece(path)]
    )
    sent = pq.read_table(io.BytesIO(store.read(f"t/_mirrorfeed/log/{receipt.staged}")))
    assert sent.column_names == ["id", "at", "price"]
    assert (receipt.rows, differed) == ({"upsert": 2}, "")


def test_file_without_rows_is_not_uploaded(tmp_path: Path) -> None:
    store = MemoryStore()
    assert upload_pieces(job(store), StagingArea(str(tmp_path)), [Piece(written(tmp_path, []))]).files == ()
    assert store.list("t/_mirrorfeed/log") == []


@pytest.mark.parametrize("end", [-1, 4, 0])
def test_truncated_file_is_reported_as_lost(tmp_path: Path, end: int) -> None:
    path = Path(written(tmp_path))
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(
        StagingFilesLostError, match=r"made\.parquet changed or disappeared before they were uploaded: "
    ):
        upload_pieces(job(MemoryStore()), StagingArea(str(tmp_path)), [Piece(str(path))])


def test_failed_upload_is_retried_once_under_a_new_name(tmp_path: Path) -> None:
    path, failing = written(tmp_path), [1]

    class Breaking(MemoryStore):
        def open_write(self, path: str) -> Any:
            sink = super().open_write(path)
            if failing:
                failing.pop()
                sink.write = lambda _: self._broken(path)  # type: ignore[method-assign, assignment]
            return sink

        def _broken(self, path: str) -> int:
            raise StorageUnavailableError(action="write", address=path, reason="it broke off")

    store = Breaking()
    (receipt,), *_ = upload_pieces(job(store), StagingArea(str(tmp_path)), [Piece(path)])
    assert store.read(f"t/_mirrorfeed/log/{receipt.staged}") == Path(path).read_bytes()
    assert len(store.list("t/_mirrorfeed/log")) == 2  # the name of the first attempt is never reused
    failing.extend([1, 1])
    with pytest.raises(StorageUnavailableError):
        upload_pieces(job(store), StagingArea(str(tmp_path)), [Piece(path)])
