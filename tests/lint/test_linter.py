"""`lint` on whole landing zones: no finding in a clean one, and exactly one for each seeded defect."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.names import data_name, record_name
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.lint.linter import lint
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.errors import PathMissingError
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.defects import DEFECTS, Defect
from tests.support.entries import entry
from tests.support.tables import Table, TableFeed
from tests.support.zones import CARTS, LOG_ID, write_clean_zone


@pytest.fixture(scope="module")
def _clean() -> MemoryStore:
    store = MemoryStore()
    write_clean_zone(store)
    return store


@pytest.fixture
def zone(_clean: MemoryStore) -> MemoryStore:
    return _clean.copy()


def test_clean_zone_has_no_findings(zone: MemoryStore) -> None:
    assert lint(zone)[0] == []


@pytest.mark.parametrize("mode", ["soft_delete", "append"])
def test_table_of_each_delivery_mode_has_no_findings(mode: Any) -> None:
    store = MemoryStore()
    publish(TableFeed(Table({"id": "long"}, ("id",))), store, entry(delivery=Delivery(mode)))
    assert lint(store)[0] == []


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_defect_is_the_only_finding(defect: Defect, zone: MemoryStore) -> None:
    defect.seed(zone)
    assert [(found.code, found.file) for found in lint(zone)[0]] == [(defect.code, defect.file)]


_ROWS = 'id,name\r\n1,"a\r\nb"\r\n,x\r\n'


def _framed(data: bytes) -> bytes:
    body = b"\0\0\0\0" + pa.compress(data, "snappy", asbytes=True)
    return b"\xff\x06\x00\x00sNaPpY\x00" + len(body).to_bytes(3, "little") + body


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue())


def _hadoop(data: bytes) -> bytes:
    part = pa.compress(data, "snappy", asbytes=True)
    return len(data).to_bytes(4, "big") + len(part).to_bytes(4, "big") + part


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("", lambda data: data),
        ("", lambda data: b"\xef\xbb\xbf" + data),
        ("", gzip.compress),
        (".gz", gzip.compress),
        (".zst", _zstd),
        ("", _framed),
        (".snappy", _framed),
        (".snappy", _hadoop),
    ],
)
def test_text_is_read_in_every_compression(suffix: str, pack: Callable[[bytes], bytes]) -> None:
    store = MemoryStore()
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    store.create(f"t/{data_name(1, 'csv')}{suffix}", pack(_ROWS.encode()))
    messages = [f"{found.code} {found.what}" for found in lint(store)[0]]
    assert messages == ["MF408 The key column 'id' is NULL in 1 of 2 rows."]


@pytest.mark.parametrize("size", [1 << 20, (1 << 35) - 1])
def test_snappy_block_with_an_impossible_size_is_a_finding(size: int) -> None:
    declared = bytes((size >> shift & 0x7F) | 0x80 for shift in range(0, 28, 7)) + bytes([size >> 28])
    store = MemoryStore()
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    store.create(f"t/{data_name(1, 'csv')}", b"\xff\x06\x00\x00sNaPpY\x00\x09\x00\x00" + b"\0\0\0\0" + declared)
    messages = [f"{found.code} {found.what}" for found in lint(store)[0]]
    assert messages == ["MF307 The file cannot be read: a Snappy block declares more bytes than it can hold."]


def test_file_consumed_during_the_check_is_skipped() -> None:
    class Taken(MemoryStore):
        def open_read(self, path: str) -> BinaryIO:
            raise PathMissingError(address=self.address(path))

    store = Taken()
    write_clean_zone(store)
    assert lint(store)[0] == []


def test_symlinks_and_special_files_are_findings(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.create("t/_mirrorfeed/a/b.begun", b"")
    for name in ("_partnerEvents.json", "t/_metadata.json", "t/_mirrorfeed/log.json"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "t" / data_name(1)).symlink_to("/dev/zero")
    store.create("u/_mirrorfeed/log.json", b'{"log_id": "a"}')
    for name in ("u/_mirrorfeed/a", "u/_ProcessedFiles", "v/_mirrorfeed"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(tmp_path / "t")
    assert {(found.code, found.file) for found in lint(store)[0]} >= {
        ("MF107", "_partnerEvents.json"),
        ("MF203", "t/_metadata.json"),
        ("MF314", f"t/{data_name(1)}"),
        ("MF707", "t/_mirrorfeed/log.json"),
        ("MF707", "u/_mirrorfeed/a"),
        ("MF707", "v/_mirrorfeed/log.json"),
    }


def test_folder_with_the_name_of_a_metadata_file_does_not_stop_lint(tmp_path: Path) -> None:
    for name in ("_partnerEvents.json", "t/_metadata.json"):
        (tmp_path / name).mkdir(parents=True)
    findings, notes, _ = lint(FolderStore(str(tmp_path)))
    assert [(found.code, found.file) for found in findings] == [
        ("MF310", "t"),
        ("MF201", "t/_metadata.json"),
    ]
    assert notes == ["The landing zone has no _partnerEvents.json that describes the publisher."]


def test_damaged_record_hides_no_other_finding_of_the_log(zone: MemoryStore) -> None:
    zone.create(f"{CARTS}/_mirrorfeed/0ld/{record_name(1)}", b"{}")
    zone.create(f"{CARTS}/_mirrorfeed/{LOG_ID}/{record_name(99)}", b"{}")
    assert {found.code for found in lint(zone)[0]} == {"MF706", "MF707"}


@pytest.mark.parametrize("path", ["log.json", f"a/{record_name(1)}"])
def test_damaged_log_is_no_late_start(path: str) -> None:
    store = MemoryStore()
    store.create("t/_metadata.json", b"{}")
    store.create("t/_mirrorfeed/log.json", b'{"log_id": "a"}')
    store.replace(f"t/_mirrorfeed/{path}", b"damaged")
    for number in (5, 6):
        store.create(f"t/{data_name(number)}", _parquet_of(id=pa.array([number])))
    assert [found.code for found in lint(store)[0]] == ["MF707"]


def test_files_ordered_by_time_have_any_name_and_are_checked_in_order(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    metadata = b'{"keyColumns": ["id"], "fileDetectionStrategy": "LastUpdateTimeFileDetection"}'
    store.create("orders/_metadata.json", metadata)
    for name, value, seconds in (("a.parquet", 1, 2), ("b.parquet", "x", 1)):
        store.create(f"orders/{name}", _parquet_of(id=pa.array([seconds]), name=pa.array([value])))
        os.utime(tmp_path / "orders" / name, (seconds, seconds))
    expected = (
        "MF404 a.parquet: The type of column 'name' changes from string to int64 in this file. This stops replication"
        " of the table."
    )
    found = [f"{each.code} {each.file.removeprefix('orders/')}: {each.what}" for each in lint(store)[0]]
    assert found == [expected]


def test_invalid_row_is_named_by_its_number() -> None:
    store = MemoryStore()
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    store.create(f"t/{data_name(1, 'csv')}", b"id,name\r\n" + b"1,a\r\n" * 70_000 + b"2,\xff\r\n")
    assert [found.what.partition(" (")[0] for found in lint(store)[0]] == ["Row 70,002: it is not utf-8"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_unknown_row_marker_is_named_by_its_first_row(suffix: str) -> None:
    store = MemoryStore()
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    markers = [4] * 70_000 + [3, 4, 9, 3]
    text = "".join(f"{key},{marker}\r\n" for key, marker in enumerate(markers))
    parquet = _parquet_of(id=pa.array(range(len(markers))), **{MARKER: pa.array(markers, pa.int32())})
    store.create(f"t/{data_name(1, suffix)}", f"id,{MARKER}\r\n{text}".encode() if suffix == "csv" else parquet)
    expected = [f"{MARKER} is '3', '9' in 3 rows, first in row 70,001. It must be 0, 1, 2 or 4."]
    assert [found.what for found in lint(store)[0]] == expected


def _strings(*values: bytes | None) -> pa.Array:
    data = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(data), data.buffers())


def _parquet_of(**columns: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


_PLAIN_TEXT, _NOT_UTF_8 = _strings(b"a", b"b", None), _strings(b"a", b"a\xffb", None)
_LATE = _strings(*[b"x"] * 70_000, b"\xff")


@pytest.mark.parametrize(
    ("columns", "messages"),
    [
        ({"id": _PLAIN_TEXT, "v": _PLAIN_TEXT}, []),
        ({"id": _PLAIN_TEXT, "v": _NOT_UTF_8.cast(pa.binary())}, []),
        ({"id": _PLAIN_TEXT, "v": _NOT_UTF_8}, ["'v' has a value that is not valid UTF-8, first in row 2"]),
        (
            {"id": _PLAIN_TEXT, "v": _NOT_UTF_8.dictionary_encode()},
            ["'v' has a value that is not valid UTF-8, first in row 2"],
        ),
        (
            {"id": _NOT_UTF_8, "v": _NOT_UTF_8},
            [
                "'id' has a value that is not valid UTF-8, first in row 2",
                "'v' has a value that is not valid UTF-8, first in row 2",
            ],
        ),
        (
            {"id": pa.array(range(70_001)), "v": _LATE},
            ["'v' has a value that is not valid UTF-8, first in row 70,001"],
        ),
    ],
)
def test_invalid_utf8_text_is_named_by_column_and_row(columns: dict[str, pa.Array], messages: list[str]) -> None:
    store = MemoryStore()
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    store.create(f"t/{data_name(1)}", _parquet_of(**columns))
    found = [f"{finding.code} {finding.what}" for finding in lint(store)[0] if finding.code != "MF408"]
    assert found == [f"MF315 The column {each}. Readers fail on such values." for each in messages]


def test_invalid_utf8_row_marker_is_a_finding() -> None:
    store = MemoryStore()
    store.create("t/_metadata.json", b'{"keyColumns": ["id"]}')
    marker = _strings(b"\xff")
    store.create(f"t/{data_name(1)}", _parquet_of(id=pa.array([1]), **{MARKER: marker}))
    assert "MF315" in [finding.code for finding in lint(store)[0]]
