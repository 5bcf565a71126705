"""Files that crash the process that reads them: `lint` continues and names the file."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.landing.names import data_name
from mirrorfeed.lint import linter
from mirrorfeed.lint.file_rules import TRUNCATED, UNSAFE
from mirrorfeed.lint.isolated_parquet_reader import IsolatedParquetReader, parquet_reader_not_started
from mirrorfeed.lint.landing_zone import Contents, Unreadable
from mirrorfeed.lint.linter import lint
from mirrorfeed.storage.errors import StorageUnavailableError
from tests.raised import raises
from tests.support.damaged_parquet import damaged, whole_files
from tests.support.zones import customers, parquet, write_clean_zone

pytestmark = pytest.mark.process

HARMFUL = b"harmful"
WHOLE = customers((1, "Ann", None), (None, "Ben", None))


def _program(statement: str) -> str:
    """A child process that runs `harm` when it opens certain files."""
    return f"""
import os, sys
from mirrorfeed.lint import file_contents, isolated_parquet_reader
opened, seen = file_contents.pq.ParquetFile, []
def open_(file, **options):
    seen.append(file.read())
    file.seek(0)
    if {HARMFUL!r} in seen[-1]:
        {statement}
    return opened(file, **options)
file_contents.pq.ParquetFile = open_
isolated_parquet_reader.serve()
"""


def _read(process: IsolatedParquetReader, data: bytes) -> Contents | Unreadable:
    return process.read(io.BytesIO(data), len(data), ("id",))


@pytest.fixture(scope="module")
def process() -> Iterator[IsolatedParquetReader]:
    with IsolatedParquetReader(seconds=10) as process:
        yield process


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("os.abort()", "MF314 The file cannot be read safely: reading it ends the process with SIGABRT."),
        ("os._exit(3)", "MF314 The file cannot be read safely: reading it ends the process with exit code 3."),
        ("while True: pass", "MF314 The file cannot be read safely: reading it takes too long."),
        (
            "import signal; os.kill(os.getpid(), signal.SIGXCPU)",
            "MF314 The file cannot be read safely: reading it takes too long.",
        ),
        ("bytearray(1 << 40)", "MF314 The file cannot be read safely: reading it takes too much memory."),
        ("print('{', flush=True)", "MF314 The file cannot be read safely: reading it ends the process with SIGKILL."),
        ("b'\\xff'.decode()", "MF307 The file cannot be read: a text in its footer is not UTF-8."),
        ("{}['BOOLEAN']", "MF307 The file cannot be read: 'BOOLEAN'."),
    ],
)
def test_file_that_crashes_the_reader_is_a_finding_and_the_rest_is_checked(
    statement: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linter, "IsolatedParquetReader", partial(IsolatedParquetReader, 1.5, _program(statement)))
    store = MemoryStore()
    write_clean_zone(store)
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    store.create(f"t/{data_name(1)}", customers((1, HARMFUL.decode(), None), compression="none"))
    store.create(f"t/{data_name(2)}", WHOLE)
    assert [(found.file, f"{found.code} {found.what}") for found in lint(store)[0]] == [
        (f"t/{data_name(1)}", message),
        (f"t/{data_name(2)}", "MF408 The key column 'id' is NULL in 1 of 2 rows."),
    ]


def test_crash_counts_only_in_a_fresh_child_process() -> None:
    statement = "if len(seen) > 1: os.abort()"
    with IsolatedParquetReader(program=_program(statement)) as process:
        first, second = (_read(process, customers((key, HARMFUL.decode(), None))) for key in (1, 2))
    assert isinstance(first, Contents)
    assert first == second


def test_large_file_is_read_in_parts(process: IsolatedParquetReader) -> None:
    fields = [pa.field("id", pa.string()), pa.field("other", pa.string())]
    rows = [(f"{key:0500}", f"{key:0500}") for key in range(4000)] + [(None, None)]
    data = parquet(fields, *rows, compression="none", use_dictionary=False)
    assert len(data) > 3 << 20
    found = _read(process, data)
    assert isinstance(found, Contents)
    assert (found.rows, found.null_keys, found.widest_keys) == (4001, {"id": 1}, {"id": 500})


def test_store_error_is_raised_and_the_next_file_is_read(process: IsolatedParquetReader) -> None:
    class Lost(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise StorageUnavailableError(action="read", address="zone/t", reason="no answer")

    with pytest.raises(StorageUnavailableError):
        process.read(Lost(), 1 << 30, ())
    assert isinstance(_read(process, WHOLE), Contents)


def test_no_process_is_started_without_parquet_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linter, "IsolatedParquetReader", partial(IsolatedParquetReader, program="raise SystemExit"))
    store = MemoryStore()
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    store.create(f"t/{data_name(1, 'csv')}", b"id\r\n1\r\n")
    assert all(finding.ok for finding in lint(store)[0])


def test_reader_that_does_not_start_is_an_error() -> None:
    with (
        IsolatedParquetReader(program="raise SystemExit(3)") as process,
        raises(parquet_reader_not_started, match="exit code 3"),
    ):
        _read(process, WHOLE)


def test_overlapping_column_data_is_refused(process: IsolatedParquetReader) -> None:
    """Otherwise a footer of a few bytes per column could cause the whole file to be read once for each column."""
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    data = parquet([pa.field("id", pa.int64())], *((key,) for key in range(300)), row_group_size=100, **options)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    second, third = (metadata.row_group(at).column(0).data_page_offset for at in (1, 2))
    same_place = data[footer:].replace(_varint(third), _varint(second))
    assert same_place != data[footer:]
    assert isinstance(_read(process, data), Contents)
    found = _read(process, data[:third] + same_place)
    assert found == Unreadable(TRUNCATED, "its footer refers to data after its end")


def _varint(number: int) -> bytes:
    """A number from 64 to 8191 in Thrift encoding."""
    return bytes([(number << 1 & 0x7F) | 0x80, number >> 6])


def _damage(process: IsolatedParquetReader, seeds: range, counted: Counter[str]) -> None:
    files = whole_files()
    whole = [_read(process, file) for file in files]
    assert all(isinstance(each, Contents) for each in whole)
    for seed in seeds:
        found = _read(process, damaged(files, seed))
        counted["damaged Parquet files through lint"] += 1
        if isinstance(found, Unreadable) and found.rule == UNSAFE:
            counted["damaged Parquet files that crash the Parquet library"] += 1
            assert [_read(process, file) for file in files] == whole
    assert [_read(process, file) for file in files] == whole


def test_damaged_file_is_read_or_refused(process: IsolatedParquetReader, counted: Counter[str]) -> None:
    _damage(process, range(600), counted)


@pytest.mark.soak
def test_many_damaged_files_are_read_or_refused(process: IsolatedParquetReader, counted: Counter[str]) -> None:
    """Like `test_damaged_file_is_read_or_refused`, with more files."""
    _damage(process, range(600, 20_000), counted)
