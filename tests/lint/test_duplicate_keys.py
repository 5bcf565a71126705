"""Rows that insert a key twice are found without holding all keys in memory."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.landing.names import data_name
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.lint import duplicate_keys, linter
from mirrorfeed.lint.duplicate_keys import KeyIndex, key_rows
from mirrorfeed.lint.linter import lint
from tests.support.zones import parquet

_ID, _MARK = pa.field("id", pa.int64()), pa.field(MARKER, pa.int32())
_PARTNER = b'{"partnerName": "x", "sourceInfo": {"sourceType": "Delta", "sourceVersion": "4"}}'


def _plain(*keys: int | None) -> bytes:
    return parquet([_ID], *((key,) for key in keys))


def _marked(*rows: tuple[int, int]) -> bytes:
    return parquet([_ID, _MARK], *rows)


def _zone(*files: bytes | None, extension: str = "parquet", **metadata: Any) -> MemoryStore:
    store = MemoryStore()
    store.create("_partnerEvents.json", _PARTNER)
    store.create("t/_metadata.json", json.dumps({"keyColumns": ["id"], **metadata}).encode())
    for number, data in enumerate(files, 1):
        if data is not None:
            store.create(f"t/{data_name(number, extension)}", data)
    return store


def _found(store: MemoryStore, **options: Any) -> list[str]:
    found = [each for each in lint(store, **options)[0] if each.code == "MF412"]
    return [f"{int(each.file[2:22])}: {each.what}" for each in found]


def _text(file: int, count: str, row: int) -> str:
    verb = "inserts" if count == "1 row" else "insert"
    return (
        f"{file}: {count} {verb} a key that the table already has, first in row {row}. The mirror then has the key"
        f" twice."
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([_plain(1, 2, 3)], []),
        ([_plain(1, 2, 1, 2)], [_text(1, "2 rows", 3)]),
        ([_plain(1), _plain(2, 1)], [_text(2, "1 row", 2)]),
        ([_plain(1), _marked((1, 0))], [_text(2, "1 row", 1)]),
        ([_marked((1, 4), (1, 0))], [_text(1, "1 row", 2)]),
        ([_marked((1, 1)), _plain(1)], [_text(2, "1 row", 1)]),
        ([_plain(1), _marked((1, 4), (1, 1))], []),
        ([_plain(1), _marked((1, 2), (1, 0))], []),
        ([_plain(1), _marked((1, 2)), _plain(1)], []),
        ([_plain(None, None)], []),
        ([_plain(1), b"PAR1 damaged", _plain(1)], []),
        ([_plain(1), None, _plain(1)], []),
        ([_plain(1), _marked((1, 3)), _plain(1)], []),
    ],
)
def test_an_insert_of_a_key_that_is_there_is_a_finding(files: list[bytes | None], expected: list[str]) -> None:
    assert _found(_zone(*files)) == expected


def test_text_is_checked_like_parquet() -> None:
    assert _found(_zone(b"id,v\r\n1,a\r\n2,b\r\n1,c\r\n", extension="csv")) == [_text(1, "1 row", 3)]
    assert _found(_zone(f"id,{MARKER}\r\n1,4\r\n1,0\r\n".encode(), extension="csv")) == [_text(1, "1 row", 2)]


def test_rows_that_are_upserts_by_default_never_insert_a_key_again() -> None:
    assert _found(_zone(_plain(1, 1), isUpsertDefaultRowMarker=True)) == []


def test_tables_without_keys_have_no_duplicates() -> None:
    assert _found(_zone(_plain(1, 1), keyColumns=[])) == []


def test_large_tables_are_checked_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linter, "MAX_BYTES_BY_DEFAULT", 10)
    store = _zone(_plain(1, 1))
    assert _found(store) == []
    assert lint(store)[1] == [
        "Duplicate keys were not checked in 1 table with more than 10 B: t. Use --check-keys to check all tables."
    ]
    assert _found(store, check_keys=True) == [_text(1, "1 row", 2)]
    assert lint(store, check_keys=True)[1] == []


def test_a_missing_partner_file_is_a_note() -> None:
    store = _zone(_plain(1))
    store.remove("_partnerEvents.json")
    findings, notes, _ = lint(store)
    assert (findings, notes) == ([], ["The landing zone has no _partnerEvents.json that describes the publisher."])


@pytest.mark.process
def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_keys, "_IN_MEMORY", 4096)
    rows = [key_rows(((key,) for key in range(start, start + 10_000)), None) for start in range(0, 300_000, 10_000)]
    tracemalloc.start()
    try:
        with KeyIndex(upserts=False) as index:
            for part in rows:
                index.add(part)
            index.end("file", 300_000)
            assert index.findings() == []
            assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
