from __future__ import annotations

import json
from typing import Any

import pytest

from mirrorfeed.landing.errors import DamagedFileError, keys_changed, setting_changed
from mirrorfeed.landing.output_format import Output, is_up_to_date, parse_metadata, to_json
from tests.raised import raises


@pytest.mark.parametrize(
    ("keys", "spelled"),
    [((), {}), (("id",), {"keyColumns": ["id"]}), (("größe", "day"), {"keyColumns": ["größe", "day"]})],
)
def test_keys_round_trip_through_metadata(keys: tuple[str, ...], spelled: dict[str, list[str]]) -> None:
    assert json.loads(to_json(Output().metadata(keys, ()))) == spelled
    assert parse_metadata(to_json(Output().metadata(keys, ())), "m") == spelled


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ('{"KeyColumns": ["C1"]}', ("C1",)),
        ('{"keyColumns": []}', ()),
        ('{"keyColumns": ["a"], "isUpsertDefaultRowMarker": true}', ("a",)),
        ('{"fileDetectionStrategy": "LastUpdateTimeFileDetection"}', ()),
    ],
)
def test_both_key_spellings_and_unknown_fields_are_accepted(content: str, keys: tuple[str, ...]) -> None:
    assert tuple(parse_metadata(content.encode(), "m").get("keyColumns", ())) == keys


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not valid JSON ("),
        (b"\xff", "it is not UTF-8"),
        (b"[]", "Input should be an object"),
        (b"[" * 200_000, "it is not valid JSON (recursion limit exceeded"),
        (b'{"keyColumns": "id"}', "keyColumns: Input should be a valid array"),
        (b'{"keyColumns": [1]}', "keyColumns.0: Input should be a valid string"),
        (b'{"keyColumns": null}', "keyColumns: Input should be a valid array"),
        (b'{"keyColumns": ["id", "id"]}', "keyColumns: has a duplicate entry"),
        (b'{"keyColumns": ["id"], "keyColumns": []}', "an object has a duplicate name"),
        (b'{"isUpsertDefaultRowMarker": 1}', "isUpsertDefaultRowMarker: Input should be a valid boolean"),
    ],
)
def test_unreadable_metadata_is_refused_with_its_reason(content: bytes, reason: str) -> None:
    with pytest.raises(DamagedFileError) as caught:
        parse_metadata(content, "orders/_metadata.json")

    assert caught.value.problem.startswith("orders/_metadata.json is damaged, or mirrorfeed did not write it: ")
    assert reason in caught.value.problem
    assert caught.value.kind == "table"


def test_changed_keys_error_has_old_and_new_keys() -> None:
    assert keys_changed(address="orders/_metadata.json", published=["a"], wanted=["a", "b"]).problem == (
        "The table has the keys 'a', 'b', but was published with the keys 'a' (orders/_metadata.json)."
    )


BY_TIME = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}
TEXT = {"FileFormat": "DelimitedText", "FileExtension": "csv", "FileFormatTypeProperties": {"NullValue": "N/A"}}


@pytest.mark.parametrize(
    ("found", "wanted", "all_given"),
    [
        ({}, {}, True),
        ({}, {"keyColumns": ["id"]}, False),
        ({"keyColumns": ["id"]}, {"keyColumns": ["id"]}, True),
        ({"keyColumns": []}, {}, True),
        ({"keyColumns": ["id"], "note": "of another tool"}, {"keyColumns": ["id"]}, True),
        ({"FileFormat": "Parquet", "isUpsertDefaultRowMarker": False}, {}, True),
        ({**BY_TIME, **TEXT}, {"keyColumns": ["id"], **BY_TIME, **TEXT}, False),
    ],
)
def test_metadata_may_only_gain_keys(found: dict[str, Any], wanted: dict[str, Any], all_given: bool) -> None:
    assert is_up_to_date(found, wanted, "m") is all_given


@pytest.mark.parametrize(
    ("found", "wanted", "stored_text"),
    [
        (
            {},
            BY_TIME,
            "does not set fileDetectionStrategy, but the configuration of the table needs"
            ' "LastUpdateTimeFileDetection"',
        ),
        (
            BY_TIME,
            {},
            'sets fileDetectionStrategy to "LastUpdateTimeFileDetection", but the configuration of the table has no'
            " such setting",
        ),
        (
            {},
            {"isUpsertDefaultRowMarker": True},
            "does not set isUpsertDefaultRowMarker, but the configuration of the table needs true",
        ),
        ({}, TEXT, 'does not set FileFormat, but the configuration of the table needs "DelimitedText"'),
        (
            TEXT,
            {**TEXT, "FileExtension": ("tsv")},
            'sets FileExtension to "csv", but the configuration of the table needs "tsv"',
        ),
        (
            TEXT,
            {**TEXT, "FileFormatTypeProperties": {"NullValue": ""}},
            'sets FileFormatTypeProperties to {"NullValue": "N/A"}, but the configuration of the table needs'
            ' {"NullValue": ""}',
        ),
    ],
)
def test_file_format_cannot_change(found: dict[str, Any], wanted: dict[str, Any], stored_text: str) -> None:
    with raises(setting_changed) as caught:
        is_up_to_date(found, wanted, "orders/_metadata.json")

    assert caught.value.problem == f"orders/_metadata.json {stored_text}."
