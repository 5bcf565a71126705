"""What `_metadata.json` declares."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.lint.metadata_file import read_metadata
from mirrorfeed.lint.specification import Dialect, FileColumn, Settings
from mirrorfeed.mirror.errors import file_breaks_rule
from mirrorfeed.mirror.local_replica.landing_zone import parse_settings
from tests.raised import raises

TEXT = {"FileFormat": "DelimitedText", "FileExtension": "psv"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Settings()),
        ({"keyColumns": ["a", "b"]}, Settings(keys=("a", "b"))),
        ({"KeyColumns": ["a"]}, Settings(keys=("a",))),
        ({"keyColumns": []}, Settings()),
        ({"keyColumns": None}, Settings()),
        ({"isUpsertDefaultRowMarker": "True", "keyColumns": ["a"]}, Settings(keys=("a",), upserts=True)),
        ({"FileFormatTypeProperties": {"FirstRowAsHeader": "true", "Encoding": "UTF-8 without BOM"}}, Settings()),
        ({"keyColumns": ["a"], "KeyColumns": ["a"]}, Settings(keys=("a",))),
        ({"fileDetectionStrategy": "LastUpdateTimeFileDetection"}, Settings(by_time=True)),
        ({"isUpsertDefaultRowMarker": True}, Settings(upserts=True)),
        ({"isUpsertDefaultRowMarker": False}, Settings()),
        (
            {"isUpsertDefaultRowMarker": True, "fileDetectionStrategy": "LastUpdateTimeFileDetection"},
            Settings(by_time=True, upserts=True),
        ),
        ({"FileFormat": "Parquet"}, Settings(text=False)),
        ({"FileFormat": "CSV"}, Settings(text=True)),
        ({"somethingNew": 1}, Settings()),
        ({"FileExtension": ".tsv"}, Settings(extension="tsv")),
        (TEXT, Settings(text=True, extension="psv")),
        (
            {
                **TEXT,
                "FileFormatTypeProperties": {
                    "FirstRowAsHeader": True,
                    "RowSeparator": "\n",
                    "ColumnSeparator": "\t",
                    "QuoteCharacter": "",
                    "EscapeCharacter": "/",
                    "NullValue": "N/A",
                    "Encoding": "windows-1252",
                },
            },
            Settings(text=True, extension="psv", dialect=Dialect("\n", "\t", "", "/", "N/A", "windows-1252")),
        ),
        (
            {**TEXT, "FileFormatTypeProperties": {"RowSeparator": "\\n", "ColumnSeparator": "\\t"}},
            Settings(text=True, extension="psv", dialect=Dialect("\n", "\t")),
        ),
        (
            {
                **TEXT,
                "SchemaDefinition": {
                    "Columns": [
                        {"Name": "a", "DataType": "Int32"},
                        {"Name": "b", "DataType": "IDate", "IsNullable": False},
                    ]
                },
            },
            Settings(
                text=True,
                extension="psv",
                declared=(FileColumn("a", "Int32"), FileColumn("b", "IDate", nullable=False)),
            ),
        ),
    ],
)
def test_metadata_is_parsed_to_settings(fields: dict[str, Any], expected: Settings) -> None:
    assert parse_settings(json.dumps(fields).encode(), "t/_metadata.json") == expected


def test_many_properties_are_read_in_linear_time() -> None:
    content = json.dumps({f"property {number}": 1 for number in range(20_000)}).encode()
    started = time.process_time()
    assert parse_settings(content, "t/_metadata.json") == Settings()
    assert time.process_time() - started < 1  # 0.2 s, but over 3 s if each name is compared with all others


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"", "it is empty."),
        (b"[]", "it holds a list, not an object."),
        (b"[" * 200_000, "values are nested too deep"),
        (b'{"keyColumns": ["a"], "keyColumns": ["b"]}', "it has the property 'keyColumns' twice."),
        (b'{"": 1, "": 2}', "it has the property '' twice."),
        ({"keycolumns": ["a"]}, "The property 'keyColumns' is spelled 'keycolumns', so Fabric ignores it."),
        (
            {"FileFormatTypeProperties": {"Encoding": "a\0b"}},
            'Encoding is the text "a\\u0000b", but the specification does not allow this value.',
        ),
        ({"keyColumns": "a"}, 'keyColumns is the text "a", not a list.'),
        ({"keyColumns": [1]}, "keyColumns lists the value 1, which is not a column's name."),
        ({"keyColumns": ["a", "A"]}, "keyColumns lists 'A' twice."),
        ({"keyColumns": ["a"], "KeyColumns": ["b"]}, "It has both 'keyColumns' and 'KeyColumns'. Remove KeyColumns,"),
        (
            {"fileDetectionStrategy": "Newest"},
            'fileDetectionStrategy is the text "Newest", but the specification does not allow this value. Allowed'
            ' values: "LastUpdateTimeFileDetection". Set "LastUpdateTimeFileDetection", or remove the property to read'
            " files by number.",
        ),
        (
            {"isUpsertDefaultRowMarker": 1},
            "isUpsertDefaultRowMarker is the value 1, but the specification does not allow this value. Allowed values:"
            " true, false. Set `true` or `false`, without quotes.",
        ),
        (
            {"FileFormat": "Avro"},
            'FileFormat is the text "Avro", but the specification does not allow this value. Allowed values:'
            ' "DelimitedText", "CSV", "Parquet". Set "DelimitedText", or remove the property if files are Parquet or'
            " plain CSV.",
        ),
        (
            {"FileFormat": "DelimitedText"},
            "FileExtension is not set, but FileFormat is DelimitedText. A file suffix without its dot is expected.",
        ),
        ({"FileFormatTypeProperties": 1}, "FileFormatTypeProperties is the value 1. Set an object"),
        (
            {"FileFormatTypeProperties": {"FirstRowAsHeader": False}},
            "FirstRowAsHeader is the value false, but must be true: Fabric needs the column names",
        ),
        (
            {"FileFormatTypeProperties": {"ColumnSeparator": "#"}},
            'ColumnSeparator is the text "#", but the specification does not allow this value. Allowed values: ",",'
            ' ";",',
        ),
        (
            {"FileFormatTypeProperties": {"RowSeparator": ";"}},
            r'RowSeparator is the text ";", but the specification does not allow this value. Allowed values:'
            r' "\r\n", "\n",',
        ),
        (
            {"FileFormatTypeProperties": {"QuoteCharacter": "`"}},
            'QuoteCharacter is the text "`", but the specification does not allow this value. Allowed values:',
        ),
        (
            {"FileFormatTypeProperties": {"EscapeCharacter": "^"}},
            'EscapeCharacter is the text "^", but the specification does not allow this value. Allowed values:',
        ),
        (
            {"FileFormatTypeProperties": {"NullValue": 0}},
            "NullValue is the value 0, but the specification does not allow this value.",
        ),
        (
            {"FileFormatTypeProperties": {"Encoding": "utf-99"}},
            'Encoding is the text "utf-99", but the specification does not allow this value.',
        ),
        ({"SchemaDefinition": {"Columns": []}}, "SchemaDefinition has no list of Columns"),
        ({"SchemaDefinition": {"Columns": [{"DataType": "Int32"}]}}, "Column 1 of SchemaDefinition has no Name."),
        (
            {"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "Decimal"}]}},
            "The DataType of column 'a' is the text \"Decimal\", which is not in the specification. Set",
        ),
        (
            {"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "Int32"}] * 2}},
            "SchemaDefinition declares 'a' twice.",
        ),
    ],
)
def test_invalid_metadata_is_refused_with_the_reason(content: bytes | dict[str, Any], reason: str) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    with raises(file_breaks_rule) as caught:
        parse_settings(data, "t/_metadata.json")
    assert str(caught.value).startswith("Cannot apply t/_metadata.json (MF2")
    assert reason in str(caught.value)
    assert str(caught.value).endswith(caught.value.finding.next)


_TEXTS = st.sampled_from(["", "a", "A", "true", ".tsv", ",", "\\n", "CSV", "DelimitedText", "utf-8", "Int32"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.floats() | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["Columns", "Name", "DataType", "IsNullable", "FirstRowAsHeader", "RowSeparator", "Encoding"]
            ),
            inner,
        )
    ),
    max_leaves=5,
)
_NAMES = ["keyColumns", "KeyColumns", "keycolumns", "fileDetectionStrategy", "isUpsertDefaultRowMarker", "FileFormat"]
_NAMES += ["FileExtension", "FileFormatTypeProperties", "SchemaDefinition", "more"]


@given(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=4))
def test_any_json_object_is_parsed_and_unclear_deviations_are_refused(found: dict[str, Any]) -> None:
    data = json.dumps(found).encode()
    settings, deviations = read_metadata(data)
    if all(deviation.is_clear for deviation in deviations):
        assert parse_settings(data, "m") == settings
    else:
        with raises(file_breaks_rule):
            parse_settings(data, "m")
