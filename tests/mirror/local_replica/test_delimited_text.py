"""Delimited text with all options that a table can declare."""

from __future__ import annotations

import gzip
import io
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

from mirrorfeed.errors import MirrorError
from mirrorfeed.lint.column_rules import REQUIRED_GONE, UNDECLARED
from mirrorfeed.lint.delimited_text import NULL, VALUE, decompress
from mirrorfeed.lint.specification import Dialect, FileColumn, LintRule, Settings
from mirrorfeed.mirror.errors import file_breaks_rule
from mirrorfeed.mirror.local_replica import State
from mirrorfeed.mirror.local_replica.file_reader import read_rows
from tests.mirror.local_replica.conftest import World, is_error, plain

MARKER = "__rowMarker__"


def read(text: str | bytes, *, declared: tuple[FileColumn, ...] | None = None, **options: Any) -> list[Any]:
    data = text.encode() if isinstance(text, str) else text
    found = read_rows(data, "1.csv", "1.csv", Settings(dialect=Dialect(**options), declared=declared))
    columns = [*found.rows.columns, *([] if found.markers is None else [found.markers])]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        pytest.param("a,b\r\n1,x\r\n2,y\r\n", {}, [("1", "x"), ("2", "y")], id="defaults"),
        pytest.param("a,b\r\n1,x", {}, [("1", "x")], id="no separator at the end"),
        pytest.param("a,b\r\n", {}, [], id="a header and no rows"),
        pytest.param("a,b", {}, [], id="a header and nothing else"),
        pytest.param("a;b\r\n1,5;x\r\n", {"column": ";"}, [("1,5", "x")], id="semicolon"),
        pytest.param("a|b\r\n1|x\r\n", {"column": "|"}, [("1", "x")], id="bar"),
        pytest.param("a\tb\r\n1\tx\r\n", {"column": "\t"}, [("1", "x")], id="tab"),
        pytest.param("a,b\n1,x\n", {"row": "\n"}, [("1", "x")], id="line feed"),
        pytest.param("a,b\r1,x\r", {"row": "\r"}, [("1", "x")], id="carriage return"),
        pytest.param('a,b\r\n"1,\r\n2","x"\r\n', {}, [("1,\r\n2", "x")], id="separators in quotes"),
        pytest.param("a,b\r\n1\n2,x\ry\r\n", {}, [("1\n2", "x\ry")], id="other breaks without quotes"),
        pytest.param('a,b\n"1\r\n2\n3",x\r\n', {"row": "\n"}, [("1\r\n2\n3", "x\r")], id="breaks in quotes"),
        pytest.param('a,b\r\n"1\r\n2\n",x\ny\r\n', {}, [("1\r\n2\n", "x\ny")], id="all kinds of breaks"),
        pytest.param("a,b\r\n'1,2',\"x\"\r\n", {"quote": "'"}, [("1,2", '"x"')], id="single quotes"),
        pytest.param('a,b\r\n\'1","x\r\n', {"quote": ""}, [("'1\"", '"x')], id="no quotes"),
        pytest.param('a,b\r\n"1\\"2",x\\,y\r\n', {}, [('1"2', "x,y")], id="backslash"),
        pytest.param('a,b\r\n"1/"2",x\\y\r\n', {"escape": "/"}, [('1"2', "x\\y")], id="slash"),
        pytest.param('a,b\r\n"1""2",x\\y\r\n', {"escape": '"'}, [('1"2', "x\\y")], id="a quote is written twice"),
        pytest.param('a,b\r\n"1",x\\y\r\n', {"escape": ""}, [("1", "x\\y")], id="no escape"),
        pytest.param('a,b\r\n,""\r\n', {}, [(None, "")], id="empty is NULL, and an empty text is in quotes"),
        pytest.param('a,b\r\nN/A,"N/A"\r\n', {"null": "N/A"}, [(None, "N/A")], id="another word for NULL"),
        pytest.param("a,b\r\n,null\r\n", {"null": "null"}, [("", None)], id="then empty is a text"),
        pytest.param("a\r\n\r\n1\r\n", {}, [(None,), ("1",)], id="an empty line is a row of one column"),
        pytest.param("\ufeffa,b\r\n1,ä\r\n", {}, [("1", "ä")], id="byte order mark"),
        pytest.param("a,b\r\n1,ä\r\n".encode("utf-16"), {"encoding": "utf-16"}, [("1", "ä")], id="utf-16"),
        pytest.param("a,b\r\n1,€\r\n".encode("cp1252"), {"encoding": "windows-1252"}, [("1", "€")], id="windows-1252"),
        pytest.param(b"a,b\r\n1,x\r\n", {"encoding": "ascii"}, [("1", "x")], id="ascii"),
        pytest.param(f"a,{MARKER}\r\n1,4\r\n", {}, [("1", 4)], id="the marker is a number"),
        pytest.param('"a,b","c\\"d"\r\n1,2\r\n', {}, [("1", "2")], id="quotes in the header"),
        pytest.param(
            '"a\n",b\r\n1,2\r\n',
            {"declared": (FileColumn("a\n", "Int32"), FileColumn("b", "String"))},
            [(1, "2")],
            id="a break in a name",
        ),
        pytest.param("a,b\r\n" + "x" * 3_000_000 + ",y\r\n", {}, [("x" * 3_000_000, "y")], id="a long value"),
    ],
)
def test_text_is_parsed_with_its_options(
    text: str | bytes, options: dict[str, Any], rows: list[tuple[Any, ...]]
) -> None:
    assert read(text, **options) == rows


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", {}, "the file is empty"),
        ("a,b\r\n1\r\n", {}, "Row 2: it has 1 value, and the header has 2"),
        ('a,b\r\n1,"x', {}, "Row 2: it ends inside a quoted value"),
        ('a,b\r\n1,"x\r\n', {}, "it ends inside a quoted value"),
        ("a,b\n1,x\n", {}, r"Row 1: it ends in '\\n', and RowSeparator is '\\r\\n'"),
        (b"a\r\n\xff\r\n", {}, "Row 2: it is not utf-8 .*can't decode byte 0xff"),
        (f"a,{MARKER}\r\n1,x\r\n", {}, "__rowMarker__ is 'x' in 1 row, first in row 1"),
        (gzip.compress(b"a\r\n1\r\n", mtime=0)[:-9], {}, "Truncated compressed stream"),
    ],
)
def test_broken_text_is_refused_with_its_reason(text: str | bytes, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(MirrorError, match=reason):
        read(text, **options)


def test_quoted_value_may_end_with_a_line_break_at_end_of_file() -> None:
    assert read('a,b\r\n1,"x\r\n"\r\n') == [("1", "x\r\n")]
    assert read('a,b\r\n1,"x\r\n"') == [("1", "x\r\n")]


def decompressed(data: bytes) -> bytes:
    return b"".join(decompress(io.BytesIO(data), "1.csv"))


def framed(content: bytes) -> bytes:
    """Snappy framing format: one compressed chunk, one chunk to skip, one uncompressed chunk."""
    codec = pa.Codec("snappy")
    first, second = content[: len(content) // 2], content[len(content) // 2 :]
    chunks = [(0x00, bytes(4) + codec.compress(first, asbytes=True)), (0xFE, b"padding"), (0x01, bytes(4) + second)]
    frames = b"".join(bytes([kind]) + len(body).to_bytes(3, "little") + body for kind, body in chunks)
    return b"\xff\x06\x00\x00sNaPpY" + frames


@pytest.mark.parametrize(
    "compress", [gzip.compress, lambda data: pa.Codec("zstd").compress(data, asbytes=True), framed]
)
def test_compressed_text_is_recognized_by_its_content(compress: Any) -> None:
    text = b"a,b\r\n" + b"1,xxxxxxxxxxxxxxxxxxxxxx\r\n" * 500
    assert read(compress(text)) == read(text)
    assert decompressed(text) == text


@pytest.mark.parametrize("cut", [12, 15, 40])
def test_truncated_compressed_text_is_refused(cut: int) -> None:
    with pytest.raises(OSError, match="Snappy"):
        decompressed(framed(b"a,b\r\n" * 100)[:cut])


def declared(world: World, *columns: tuple[str, str], key: str | None = None, **fields: Any) -> None:
    world.metadata(
        KeyColumns=[key] if key else [],
        FileFormat="DelimitedText",
        FileExtension="psv",
        FileFormatTypeProperties={"FirstRowAsHeader": True, "RowSeparator": "\n", "ColumnSeparator": "|"},
        SchemaDefinition={"Columns": [{"Name": name, "DataType": kind, **fields} for name, kind in columns]},
    )


FIRST = f"{1:020}.psv"
SECOND = f"{2:020}.psv"


@pytest.mark.parametrize(
    ("kind", "text", "value", "column"),
    [
        ("Double", "1.5e300", 1.5e300, pa.float64()),
        ("Single", "1.5", 1.5, pa.float32()),
        ("Int16", "-32768", -32768, pa.int16()),
        ("Int32", "2147483647", 2147483647, pa.int32()),
        ("Int64", "9223372036854775807", 9223372036854775807, pa.int64()),
        ("DateTime", "2026-09-01 10:11:12.123456", datetime(2026, 9, 1, 10, 11, 12, 123456), pa.timestamp("us")),
        ("DateTime", "2026-09-01T10:11:12", datetime(2026, 9, 1, 10, 11, 12), pa.timestamp("us")),
        ("DateTime", "2026-09-01T10:11:12+02:00", datetime(2026, 9, 1, 8, 11, 12), pa.timestamp("us")),
        ("DateTime", "2026-09-01T10:11:12.5Z", datetime(2026, 9, 1, 10, 11, 12, 500000), pa.timestamp("us")),
        ("DateTime", "2026-09-01T10:11:12.1234567Z", datetime(2026, 9, 1, 10, 11, 12, 123456), pa.timestamp("us")),
        ("DateTime", "2026-09-01", datetime(2026, 9, 1), pa.timestamp("us")),
        ("ITime", "2026-09-01 10:11:12", datetime(2026, 9, 1, 10, 11, 12), pa.timestamp("us")),
        ("ITime", "10:11:12", datetime(1970, 1, 1, 10, 11, 12), pa.timestamp("us")),
        ("IDate", "2026-09-01", date(2026, 9, 1), pa.date32()),
        ("String", "007", "007", pa.string()),
        ("Boolean", "true", True, pa.bool_()),
        ("Boolean", "False", False, pa.bool_()),
        ("ByteArray", "", None, pa.binary()),
        ("ByteArray", '""', b"", pa.binary()),
        ("ByteArray", "/w==", b"\xff", pa.binary()),
        ("ByteArray", "AP8=", b"\x00\xff", pa.binary()),
        ("ByteArray", "YWJj", b"abc", pa.binary()),
    ],
)
def test_declared_types_become_column_types(
    world: World, kind: str, text: str, value: Any, column: pa.DataType
) -> None:
    declared(world, ("n", "Int32"), ("v", kind))
    world.put("orders", FIRST, f"n|v\n1|{text}\n2|\n".encode())
    report = world.step()
    assert (report.state, report.message) == (State.REPLICATING, "")
    assert world.rows() == [(1, value), (2, None)]
    assert pa.schema(world.delta().schema().to_arrow()).field("v").type == column


def test_binary_and_time_values_of_many_rows_are_in_their_rows(world: World) -> None:
    declared(world, ("b", "ByteArray"), ("t", "DateTime"))
    text = 'b|t\nYQ==|2026-01-01T00:00:00Z\n|\nYWI=|2026-01-02\n""|\nYWJj|2026-01-03 00:00:00+01:00\n'
    world.put("orders", FIRST, text.encode())
    world.step()
    assert world.delta().to_pyarrow_table().to_pydict() == {
        "b": [b"a", None, b"ab", b"", b"abc"],
        "t": [datetime(2026, 1, 1), None, datetime(2026, 1, 2), None, datetime(2026, 1, 2, 23)],
    }


def test_delimited_text_supports_the_same_changes_as_parquet(world: World) -> None:
    declared(world, ("id", "Int64"), ("name", "String"), key="id")
    world.put("orders", FIRST, b"id|name\n1|a\n2|b\n")
    world.put("orders", SECOND, f"{MARKER}|name|id\n4|c|1\n2||2\n".encode())
    world.put("orders", f"{3:020}.psv", f"id|{MARKER}\n3|0\n".encode())
    assert world.step().rows == {0: 3, 2: 1, 4: 1}
    assert world.rows() == [(1, "c"), (3, None)]


@pytest.mark.parametrize(
    ("text", "rule", "values"),
    [
        ("id|extra\n1|x\n", UNDECLARED, {"columns": ["extra"]}),
        ("name\nYQ==\n", REQUIRED_GONE, {"column": "id"}),
        ("id|name\n1|YQ==\n2|x\n", VALUE, {"row": 3, "detail": "'name' is 'x', which is not of type ByteArray"}),
        ("id|name\n1|\n", NULL, {"row": 2, "detail": "'name' is NULL, and is declared as not nullable"}),
    ],
)
def test_text_that_differs_from_its_schema_stops_the_table_until_replaced(
    world: World, text: str, rule: LintRule, values: dict[str, Any]
) -> None:
    declared(world, ("id", "Int64"), ("name", "ByteArray"), IsNullable=False)
    path = world.put("orders", FIRST, text.encode())
    report = world.step()
    assert report.state is State.FAILED
    assert is_error(report, file_breaks_rule, finding=rule.finding(str(path), **values))
    world.put("orders", FIRST, b"id|name\n1|YQ==\n")
    assert world.step().files == 1


def test_csv_without_a_schema_contains_text_and_accepts_new_columns(world: World) -> None:
    world.put("orders", f"{1:020}.csv", b"id,name\r\n007,a\r\n")
    world.put("orders", f"{2:020}.csv", f'id,name,note,{MARKER}\r\n007,,"",4\r\n8,b,,4\r\n'.encode())
    world.step()
    assert world.rows() == [("007", None, ""), ("8", "b", None)]


def test_table_may_have_files_of_both_formats(world: World) -> None:
    world.metadata(keyColumns=["name"])
    world.put("orders", f"{1:020}.csv", b"name\r\na\r\n")
    world.put("orders", 2, plain((1, "b")).drop_columns(["id"]))
    world.step()
    assert world.rows() == [("a",), ("b",)]
