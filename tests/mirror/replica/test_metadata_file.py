"""What `_metadata.json` declares."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirrorfeed.mirror.replica.metadata_file import BadMetadata, DeclaredColumn, Delimited, Metadata, parse_metadata

TEXT = {"FileFormat": "DelimitedText", "FileExtension": "psv"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Metadata()),
        ({"keyColumns": ["a", "b"]}, Metadata(keys=("a", "b"))),
        ({"KeyColumns": ["a"]}, Metadata(keys=("a",))),
        ({"keyColumns": []}, Metadata()),
        ({"keyColumns": None}, Metadata()),
        ({"keyColumns": ["a"], "KeyColumns": ["a"]}, Metadata(keys=("a",))),
        ({"fileDetectionStrategy": "LastUpdateTimeFileDetection"}, Metadata(by_time=True)),
        ({"isUpsertDefaultRowMarker": True}, Metadata(upsert_by_default=True)),
        ({"isUpsertDefaultRowMarker": False}, Metadata()),
        (
            {"isUpsertDefaultRowMarker": True, "fileDetectionStrategy": "LastUpdateTimeFileDetection"},
            Metadata(by_time=True, upsert_by_default=True),
        ),
        ({"FileFormat": "Parquet"}, Metadata()),
        ({"FileFormat": "CSV"}, Metadata()),
        ({"somethingNew": 1}, Metadata()),
        ({"FileExtension": ".tsv"}, Metadata(delimited=Delimited(extension="tsv"))),
        (TEXT, Metadata(delimited=Delimited(extension="psv"))),
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
            Metadata(delimited=Delimited("psv", "\n", "\t", "", "/", "N/A", "windows-1252")),
        ),
        (
            {**TEXT, "FileFormatTypeProperties": {"RowSeparator": "\\n", "ColumnSeparator": "\\t"}},
            Metadata(delimited=Delimited("psv", "\n", "\t")),
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
            Metadata(
                delimited=Delimited(
                    "psv", columns=(DeclaredColumn("a", "Int32"), DeclaredColumn("b", "IDate", nullable=False))
                )
            ),
        ),
    ],
)
def test_what_is_declared_is_understood(fields: dict[str, Any], expected: Metadata) -> None:
    assert parse_metadata(json.dumps(fields).encode(), "t/_metadata.json") == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"[" * 200_000, "it is nested too deep"),
        ({"keyColumns": "a"}, "keyColumns is 'a', not a list of column names"),
        ({"keyColumns": [1]}, "keyColumns is [1], not a list of column names"),
        ({"keyColumns": ["a", "a"]}, "keyColumns ['a', 'a'] names a column twice"),
        ({"keyColumns": ["a"], "KeyColumns": ["b"]}, "keyColumns is ['a'], but KeyColumns is ['b']"),
        (
            {"fileDetectionStrategy": "Newest"},
            "fileDetectionStrategy is 'Newest', not 'LastUpdateTimeFileDetection'",
        ),
        ({"isUpsertDefaultRowMarker": 1}, "isUpsertDefaultRowMarker is 1, not true or false"),
        ({"FileFormat": "Avro"}, "FileFormat is 'Avro', not 'DelimitedText', 'CSV' or 'Parquet'"),
        ({"FileFormat": "DelimitedText"}, "FileFormat is 'DelimitedText', but FileExtension is missing"),
        ({"FileFormatTypeProperties": 1}, "FileFormatTypeProperties is 1, not an object"),
        ({"FileFormatTypeProperties": {"FirstRowAsHeader": False}}, "FirstRowAsHeader must be true"),
        ({"FileFormatTypeProperties": {"ColumnSeparator": "#"}}, "ColumnSeparator is '#', not one of ',', ';', '|'"),
        ({"FileFormatTypeProperties": {"RowSeparator": ";"}}, "RowSeparator is ';', not one of '\\r\\n', '\\n', '\\r'"),
        ({"FileFormatTypeProperties": {"QuoteCharacter": "`"}}, "QuoteCharacter is '`', not one of"),
        ({"FileFormatTypeProperties": {"EscapeCharacter": "^"}}, "EscapeCharacter is '^', not one of"),
        ({"FileFormatTypeProperties": {"NullValue": 0}}, "NullValue is 0, not a text"),
        ({"FileFormatTypeProperties": {"Encoding": "utf-99"}}, "Encoding is 'utf-99', which is not known"),
        ({"FileFormatTypeProperties": {"Encoding": "hex"}}, "Encoding is 'hex', which is not known"),
        ({"FileFormatTypeProperties": {"Encoding": "idna"}}, "Encoding is 'idna', which is not known"),
        ({"FileFormatTypeProperties": {"Encoding": "a\0b"}}, "Encoding is 'a\\x00b', which is not known"),
        ({"SchemaDefinition": {"Columns": []}}, "SchemaDefinition has no list of Columns"),
        ({"SchemaDefinition": {"Columns": [{"DataType": "Int32"}]}}, "which has no Name"),
        (
            {"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "Decimal"}]}},
            "column a is declared as 'Decimal', not as one of Boolean, ByteArray, DateTime, Double,",
        ),
        (
            {"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "Int32"}] * 2}},
            "SchemaDefinition declares a column twice",
        ),
    ],
)
def test_what_cannot_be_used_is_named(content: bytes | dict[str, Any], reason: str) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(BadMetadata) as caught:
        parse_metadata(data, "t/_metadata.json")
    assert str(caught.value).startswith("Cannot use t/_metadata.json: ")
    assert reason in str(caught.value)
    assert str(caught.value).endswith("Correct the file; the table goes on with the next pass.")
