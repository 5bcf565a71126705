from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError
from mirrorfeed.landing.load_part import LoadPart, LoadProgress, Slice
from mirrorfeed.landing.log_record import FORMAT, PART_FORMAT, File, PreviousRecord, Record, parse
from mirrorfeed.landing.names import staged_name
from mirrorfeed.landing.schema import Column
from mirrorfeed.landing.selection import Selection

RECORD = Record(
    number=9,
    batch="ba7c4",
    time="2026-11-21T04:00:00.000+00:00",
    source="main.sales.orders",
    source_id="7c1a",
    from_version_exclusive=41,
    to_version_inclusive=44,
    columns=(Column("id", "long"), Column("größe", "decimal(12,2)")),
    keys=("id",),
    next_file_number=18,
    files=(
        File(staged_name(9, "ba7c4", "a"), 16, {"upsert": 3, "delete": 1}, 812, "aa"),
        File(staged_name(9, "ba7c4", "b"), 17, {"upsert": 2}, 640, "bb"),
    ),
)
SELECTION = Selection(None, ("ssn",), "id > 1", {"id": "order"}, {"id": "string"})
SPELLED: dict[str, Any] = json.loads(RECORD.to_json())
PART = LoadPart(2, "id", (Slice("7", 3, 90), Slice("12", 4, 110), Slice(None, 2, 50)))
LOADING = replace(RECORD, from_version_exclusive=None, load=PART, format=PART_FORMAT)
ADDRESS = "zone/orders/_mirrorfeed/abc/9.json"


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, files=()),
        replace(RECORD, from_version_exclusive=None, keys=(), columns=()),
        replace(RECORD, partitions=("day",)),
        replace(RECORD, follows=PreviousRecord(8, "ba7c3", "0x8DD")),
        replace(RECORD, build="0.1.0+g0123456789ab"),
        LOADING,
        replace(RECORD, selection=SELECTION, source_columns={"id": "long", "ssn": "string"}),
        replace(
            RECORD,
            selection=replace(SELECTION, transform={"a": "hash"}, hash_key=lambda: "secret"),
            source_columns={"id": "long"},
            key_digest="00ff",
        ),
    ],
    ids=[
        *("a range", "without rows", "no keys", "a partitioned table", "one that follows", "its build"),
        *("a part of a load", "a selection"),
        "hashes",
    ],
)
def test_record_round_trips_through_json(record: Record) -> None:
    assert parse(record.to_json(), ADDRESS) == record


def test_record_does_not_contain_the_secret_for_hashes() -> None:
    selection = replace(SELECTION, transform={"a": "hash"}, hash_key=lambda: "secret")
    text = replace(RECORD, selection=selection, source_columns={}).to_json().decode()
    assert "secret" not in text
    assert "hash_key" not in text
    assert "transform" not in replace(RECORD, selection=SELECTION, source_columns={}).to_json().decode()


def _of_load(**fields: Any) -> dict[str, Any]:
    spelled: dict[str, Any] = json.loads(LOADING.to_json())
    return {**spelled, "load": {**spelled["load"], "number": 1, **fields}}


def test_record_is_human_readable() -> None:
    text = RECORD.to_json().decode()

    assert '"name": "größe"' in text
    assert text.count("\n") > 20
    assert SPELLED["format"] == 1


def test_part_of_a_load_has_the_format_that_earlier_releases_refuse() -> None:
    assert json.loads(LOADING.to_json())["format"] == PART_FORMAT == FORMAT > 1
    assert (LOADING.complete_version, replace(LOADING, load=PART.next).complete_version) == (None, 44)


def test_progress_of_a_load_is_a_share_of_its_size() -> None:
    assert PART.progress == LoadProgress(2, 3, 200, 250)
    assert PART.progress.in_words == "2 of 3 parts (80 %)"
    assert (PART.after, PART.slice.up_to, PART.next.after, PART.next.slice.up_to) == ("7", "12", "12", None)


def test_record_time_has_a_time_zone() -> None:
    assert RECORD.at == datetime(2026, 11, 21, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not valid JSON (EOF while parsing"),
        (RECORD.to_json()[:-5], "it is not valid JSON ("),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"[" * 200_000, "it is not valid JSON (recursion limit exceeded"),
        (b'{"format": 1, "files": ' + b"[" * 200_000, "it is not valid JSON (recursion limit exceeded"),
        (b"[]", "it has no format number"),
        (b"{}", "it has no format number"),
        (b'{"format": "1"}', "it has no format number"),
        (b'{"format": true}', "it has no format number"),
        (b'{"format": 1}', "number: Field required"),
        ({**SPELLED, "columns": None}, "columns: Input should be a valid array"),
        ({**SPELLED, "format": 2}, "only a part of a load has format 2"),
        ({**SPELLED, "load": json.loads(LOADING.to_json())["load"]}, "only a part of a load has format 2"),
        (_of_load(number=4), "its load has fewer parts than the number of its part"),
        (_of_load(slices=[{"up_to": "7", "rows": 3, "bytes": 90}]), "exactly the last part of its load must have no"),
        ({**json.loads(LOADING.to_json()), "from_version_exclusive": 3}, "it has a load, and is not a snapshot"),
        ({**SPELLED, "more": 1}, "more: Unexpected keyword argument"),
        ({**SPELLED, "number": True}, "number: Input should be a valid integer"),
        ({**SPELLED, "number": 2**63}, "a number has more than 64 bits"),
        ({**SPELLED, "time": "2026-11-21T04:00:00"}, "time: is a time without a zone"),
        ({**SPELLED, "keys": ["id", "id"]}, "keys: has a duplicate entry"),
        ({**SPELLED, "batch": "../x"}, "batch: String should match pattern"),
        ({**SPELLED, "files": [{"staged": "a"}]}, "files.0.number: Field required"),
        ({**SPELLED, "files": [SPELLED["files"][1] | {"staged": "../a"}]}, "'../a' is not the name of a staged file"),
        ({**SPELLED, "columns": [{"name": "a", "type": "json", "nested": "[{}"}]}, "it is not valid JSON ("),
        ({**SPELLED, "columns": [{"name": "a", "type": "json", "nested": "{}"}]}, "a type that is not valid in Spark"),
        ({**SPELLED, "next_file_number": 19}, "the numbers of its files do not end before next_file_number"),
        ({**SPELLED, "files": SPELLED["files"][::-1]}, "the numbers of its files do not end before next_file_number"),
        ({key: value for key, value in SPELLED.items() if key != "batch"}, "batch: Field required"),
    ],
)
def test_invalid_record_is_refused_with_its_reason(content: bytes | dict[str, Any], reason: str) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()

    with pytest.raises(DamagedFileError) as caught:
        parse(data, ADDRESS)

    assert caught.value.problem.startswith(f"{ADDRESS} is damaged, or mirrorfeed did not write it: ")
    assert reason in caught.value.problem
    assert caught.value.kind == "table"


def test_record_of_a_newer_format_is_refused() -> None:
    with pytest.raises(RecordTooNewError) as caught:
        parse(b'{"format": 3, "all": "is different"}', ADDRESS)

    assert caught.value.facts == {"address": ADDRESS, "found": 3, "known": FORMAT}


def test_record_without_a_selection_does_not_mention_it() -> None:
    assert not {"selection", "source_columns"} & SPELLED.keys()


def test_unreadable_selection_is_refused() -> None:
    record = replace(RECORD, selection=replace(SELECTION, cast={"id": "text"}))
    with pytest.raises(DamagedFileError, match="is not a type to cast to"):
        parse(record.to_json(), ADDRESS)
