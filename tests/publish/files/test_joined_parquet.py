"""Row groups of several Parquet files in one file: the same rows, without decoding them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.publish.files.joined_parquet import NotJoinableError, RowGroups, decode, encode, join, read_footer

ROWS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "v": [f"text {number % 7}" if number % 3 else None for number in range(1000)],
        "x": [number / 3 for number in range(1000)],
        "yes": [number % 2 == 0 for number in range(1000)],
    }
)


def write(path: Path, rows: pa.Table, **options: Any) -> Path:
    pq.write_table(rows, path, row_group_size=100, **options)
    return path


def row_groups(path: Path, numbers: Sequence[int] | None = None) -> RowGroups:
    metadata = pq.read_metadata(path)
    with open(path, "rb") as file:
        return RowGroups(str(path), read_footer(file), metadata, numbers or range(metadata.num_row_groups))


def open_file(path: str) -> BinaryIO:
    return open(path, "rb")


def joined(*pieces: RowGroups) -> pq.ParquetFile:
    result, sink = join(pieces), io.BytesIO()
    assert result is not None
    result.write(sink, open_file)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "use_dictionary": False},
        {"compression": "none", "data_page_version": "2.0"},
        {"write_statistics": False},
        {"write_page_index": True, "write_page_checksum": True},
        {"store_schema": False},
    ],
)
def test_joined_file_has_the_rows_of_all_row_groups_in_order(tmp_path: Path, options: dict[str, Any]) -> None:
    first, second = (write(tmp_path / f"{at}", ROWS.slice(at * 400, 400), **options) for at in range(2))
    found = joined(row_groups(first), row_groups(second, [1, 2]), row_groups(first, [0]))
    assert found.read(use_threads=False).equals(
        pa.concat_tables([ROWS.slice(0, 400), ROWS.slice(500, 200), ROWS.slice(0, 100)])
    )
    assert found.metadata.num_row_groups == 7
    assert found.read_row_group(5).equals(ROWS.slice(600, 100))


def test_spark_reads_a_joined_file_and_skips_row_groups(spark: SparkSession, tmp_path: Path) -> None:
    first, second = (write(tmp_path / f"{at}", ROWS.slice(at * 500, 500)) for at in range(2))
    result = join([row_groups(first), row_groups(second)])
    assert result is not None
    with open(tmp_path / "joined.parquet", "wb") as file:
        result.write(file, open_file)
    found = spark.read.parquet(str(tmp_path / "joined.parquet")).where("id >= 250 AND yes")
    assert found.selectExpr("count(*)", "sum(id)", "count(v)").collect() == [(375, 234_000, 250)]


OTHER_TYPE = ROWS.set_column(2, "x", ROWS.column("x").cast(pa.float32()))


@pytest.mark.parametrize("other", [OTHER_TYPE, ROWS.drop_columns(["x"])])
def test_files_with_different_schemas_are_not_joined(tmp_path: Path, other: pa.Table) -> None:
    pieces = row_groups(write(tmp_path / "a", ROWS)), row_groups(write(tmp_path / "b", other))
    assert join(pieces) is None


@pytest.mark.parametrize("offset", range(3))
def test_footer_that_contradicts_the_file_is_found(tmp_path: Path, offset: int) -> None:
    """The check compares what Arrow reads with the originals."""
    piece, other = row_groups(write(tmp_path / "a", ROWS)), row_groups(write(tmp_path / "b", ROWS.slice(offset + 1)))
    assert join([piece._replace(metadata=other.metadata)]) is None


def test_damaged_footer_is_not_joined(tmp_path: Path) -> None:
    piece = row_groups(write(tmp_path / "a", ROWS))
    for data in (piece.footer[:-1], piece.footer[: len(piece.footer) // 2], b"", b"\xff" * 40, b"\x1b\0\0"):
        assert join([piece._replace(footer=data)]) is None


def test_shortened_file_is_found_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a", ROWS)
    result = join([row_groups(path)])
    assert result is not None
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(EOFError):
        result.write(io.BytesIO(), open_file)


def test_integers_of_any_size_are_encoded_as_they_were() -> None:
    for number in (0, -1, 63, -64, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)):
        fields = {1: (6, number), 20: (5, number), 21: (1, None), 22: (9, (5, [number] * 20)), 23: (9, (1, [1, 2]))}
        assert decode(encode(fields)) == fields  # type: ignore[arg-type]
    with pytest.raises(NotJoinableError):
        decode(encode({1: (6, 1)}) + b"\0")
