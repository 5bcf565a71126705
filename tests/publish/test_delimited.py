"""Written delimited text, read by the replica, which shares no code with the writer."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.errors import TerminalError
from mirrorfeed.landing.errors import (
    IncompatibleSchemaError,
    column_name_not_writable,
    null_as_empty_line,
    setting_changed,
    type_not_declarable,
)
from mirrorfeed.landing.output_format import Delimited, Output, to_json
from mirrorfeed.landing.schema import Column
from mirrorfeed.lint.file_contents import read_text
from mirrorfeed.lint.landing_zone import Contents
from mirrorfeed.lint.linter import lint
from mirrorfeed.lint.metadata_file import read_metadata
from mirrorfeed.mirror.local_replica import Replica
from mirrorfeed.mirror.local_replica.file_reader import FileRows, read_rows
from mirrorfeed.mirror.local_replica.landing_zone import parse_settings
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files.rolling_writer import write_files
from mirrorfeed.publish.files.staging_job import BadRow, BadRows, StagingJob, arrow_schema
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import FOLDER, orders, plan, three_commits, two_orders
from tests.raised import Expected, raises
from tests.support.tables import Table, TableFeed

TEXTS = ["plain", None, "", " ", "a,b;c|d\te", 'say "hi"', "it's", "back\\slash/slash", "one\ntwo\rthree\r\nfour"]
TEXTS += ["\\", '"', "''", "N/A", "null", "\r\n", ",", "\\,", '"quoted"', "'x'", "end\\", "Łódź 東京 🦊", "﻿mark"]
AS_IS = ["plain", None, " ", "say ~ hi", "x" * 1000]
COLUMNS = (Column("id", "long"), Column("text", "string"), Column('other, "name" it\'s', "string"))


def written(form: Delimited, columns: Sequence[Column], rows: Sequence[tuple[Any, ...]], **other: Any) -> bytes:
    """Write one file of upserts and return its content. Raise `Refused` if a row cannot be written."""
    store = MemoryStore()
    job = StagingJob(store, "log", 1, "ba7c4", tuple(columns), ("id",), True, Output(form, compression="none"))
    schema = arrow_schema(columns, with_marker=True)
    data = [{field.name: value for field, value in zip(schema, (*row, 4), strict=True)} for row in rows]
    batches = [pa.RecordBatch.from_pylist(data[start : start + 3], schema) for start in range(0, len(data), 3)]
    try:
        receipts = write_files(replace(job, **other), batches)
    except BadRows as error:
        raise Refused(*error.rows) from error
    return store.read(f"log/{receipts[0].staged}")


class Refused(Exception):
    def __init__(self, row: BadRow) -> None:
        super().__init__(row.problem, row.key)


def read_back(data: bytes, form: Delimited, columns: Sequence[Column]) -> FileRows:
    metadata = parse_settings(to_json(Output(form).metadata(["id"], columns)), "m")
    return read_rows(data, f"{1:020}.{form.extension}", "the file", metadata)


def faults(data: bytes, form: Delimited, columns: Sequence[Column]) -> Any:
    """Findings of `mirrorfeed lint` for the file and its metadata."""
    settings, found = read_metadata(to_json(Output(form).metadata(["id"], columns)))
    contents = read_text(io.BytesIO(data), f"{1:020}.{form.extension}", settings)
    assert isinstance(contents, Contents)
    assert contents.markers == {"4": contents.rows}
    return (*found, *contents.faults)


def values(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


SEPARATORS = list(itertools.product(("\r\n", "\n", "\r"), (",", ";", "|", "\t")))


@pytest.mark.parametrize("separators", SEPARATORS, ids=repr)
@pytest.mark.parametrize("quote", ['"', "'", ""])
@pytest.mark.parametrize("escape", ["\\", "/", '"', ""])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "not declared"])
def test_texts_are_read_back_unchanged_with_every_option(
    separators: tuple[str, str], quote: str, escape: str, declared: bool
) -> None:
    row, column = separators
    form = Delimited("txt", row, column, quote, escape, "" if quote else "NULL", schema_definition=declared)
    texts = [text for text in TEXTS if _has_a_form(text, form)]
    columns = COLUMNS if quote == '"' and escape else (*COLUMNS[:2], Column("other", "string"))
    rows = [(n, text, texts[-n]) for n, text in enumerate(texts)]

    data = written(form, columns, rows)
    found = read_back(data, form, columns)

    assert faults(data, form, columns) == ()
    assert found.rows.column_names == [column.name for column in columns]
    assert values(found.rows) == [(n if declared else str(n), *rest) for n, *rest in rows]
    assert found.counts() == {4: len(rows)}


def _has_a_form(text: str | None, form: Delimited) -> bool:
    if text is None or form.escape:
        return text != form.null or bool(form.quote)
    return form.quote not in text if form.quote else not set(text) & {*"\r\n", form.column_separator}


@pytest.mark.parametrize("null", ["", "N/A", "null", "0"])
def test_null_differs_from_empty_text_and_from_its_own_representation(null: str) -> None:
    form = Delimited(null=null)
    rows = [(0, "", null), (1, None, None), (2, null, "")]

    assert values(read_back(written(form, COLUMNS, rows), form, COLUMNS).rows) == rows


LEAST, MOST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
TYPES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "byte": [-128, 127],
    "short": [-32768, 32767],
    "integer": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**63 - 1],
    "float": [0.1, 1.5, -3.4028234663852886e38, 1e-45, math.inf, -math.inf, math.nan, -0.0],
    "double": [0.1, 1e300, 5e-324, math.inf, -math.inf, math.nan, -0.0, 1e20, 123456789.123456789],
    "string": ["a", ""],
    "json": ['{"a":[1,null],"b":"x\\"y"}', "[]"],
    "binary": [b"", b"\x00", b"\xff\xfe\xfd", b"////", bytes(range(256))],
    "date": [date.min, date.max, date(2024, 2, 29)],
    "timestamp": [LEAST.replace(tzinfo=UTC), MOST.replace(tzinfo=UTC), datetime(2026, 7, 1, 10, tzinfo=UTC)],
    "timestamp_ntz": [LEAST, MOST, datetime(2026, 7, 1, 10, 0, 0, 1)],
}
AS_STRING: dict[str, list[Any]] = {
    "decimal(38,18)": [Decimal("0.000000000000000001"), Decimal("-99999999999999999999.999999999999999999")],
    "decimal(5,0)": [Decimal(0), Decimal(-99999)],
}


@pytest.mark.parametrize("escape", ["\\", "/"])
@pytest.mark.parametrize("type_", TYPES)
def test_declared_types_are_read_back_equal(type_: str, escape: str) -> None:
    form, columns = Delimited(escape=escape), (Column("id", "long"), Column("v", type_))
    rows = [(n, value) for n, value in enumerate([*TYPES[type_], None])]

    data = written(form, columns, rows)
    found = values(read_back(data, form, columns).rows)
    assert faults(data, form, columns) == ()

    # A DateTime has no time zone; a timestamp is written in UTC.
    expected = [(n, v.replace(tzinfo=None) if isinstance(v, datetime) else v) for n, v in rows]
    if type_ == "float":
        expected = [(n, None if v is None else pa.scalar(v, pa.float32()).as_py()) for n, v in expected]
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("type_", AS_STRING)
def test_undeclared_types_are_written_as_lossless_text_if_configured(type_: str) -> None:
    form = Delimited(undeclared_types="string")
    columns = (Column("id", "long"), Column("v", type_))

    found = values(read_back(written(form, columns, list(enumerate(AS_STRING[type_]))), form, columns).rows)

    assert found == [(n, f"{value:f}") for n, value in enumerate(AS_STRING[type_])]


@pytest.mark.parametrize("encoding", ["UTF-8", "utf-16", "utf-16le", "utf-32", "gb18030"])
def test_encodings_with_all_characters_are_supported(encoding: str) -> None:
    form = Delimited(encoding=encoding)
    rows = [(n, text, None) for n, text in enumerate(TEXTS)]

    assert values(read_back(written(form, COLUMNS, rows), form, COLUMNS).rows) == rows


@pytest.mark.parametrize(
    ("encoding", "text", "character"),
    [
        ("ascii", "plain ~", "é"),
        ("windows-1252", "€ é “x”", "Ł"),
        ("iso-8859-1", "é ÿ", "€"),
        ("shift_jis", "東京 ソ", "Ł"),
    ],
)
def test_unencodable_character_is_reported_with_key_and_column(encoding: str, text: str, character: str) -> None:
    form = Delimited(encoding=encoding)
    rows: list[tuple[Any, ...]] = [(n, text, None) for n in range(7)]
    assert values(read_back(written(form, COLUMNS, rows), form, COLUMNS).rows) == rows

    with pytest.raises(Refused) as caught:
        written(form, COLUMNS, [*rows, (7, f"{text}{character}{text}", None), (8, character, None)])
    assert caught.value.args == (4, f"id = 7, column 'text': {character!r}")


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        (Delimited(quote="", null="N/A"), "N/A", 5),
        (Delimited(quote="", escape="", null="N/A"), "a,b", 6),
        (Delimited(quote="", escape="", null="N/A"), "a\rb", 6),
        (Delimited(escape=""), 'say "hi"', 6),
    ],
)
def test_unrepresentable_text_is_reported_with_key_and_column(form: Delimited, text: str, problem: int) -> None:
    columns = COLUMNS[:2]
    with pytest.raises(Refused) as caught:
        written(form, columns, [(1, "x"), (2, text)])
    assert caught.value.args == (problem, f"id = 2, column 'text': {text!r}")


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "not declared"])
@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        ("date", -719163, "0000-12-31"),
        ("date", 2932897, "10000-01-01"),
        *[(type_, -62135596800_000001, "0000-12-31 23:59:59.999999") for type_ in ("timestamp", "timestamp_ntz")],
        *[(type_, 253402300800_000000, "10000-01-01 00:00:00.000000") for type_ in ("timestamp", "timestamp_ntz")],
    ],
)
def test_unrepresentable_year_is_reported_with_key_and_column(
    type_: str, value: int, shown: str, declared: bool
) -> None:
    form, columns = Delimited(schema_definition=declared), (Column("id", "long"), Column("v", type_))
    with pytest.raises(Refused) as caught:
        written(form, columns, [(1, None), (2, value)])
    assert caught.value.args == (7, f"id = 2, column 'v': {shown!r}")


def test_key_with_a_year_unknown_to_python_is_reported() -> None:
    with pytest.raises(Refused) as caught:
        written(Delimited(), (Column("id", "date"),), [(2932897,)])
    assert caught.value.args == (7, "id = 10000-01-01, column 'id': '10000-01-01'")


def test_unquoted_integer_equal_to_the_null_text_is_reported() -> None:
    with pytest.raises(Refused) as caught:
        written(Delimited(quote="", null="0"), COLUMNS[:1], [(0,)])
    assert caught.value.args == (5, "id = 0, column 'id': '0'")


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("encoding", ["UTF-8", "utf-16"])
def test_every_compression_is_read_back_also_with_many_batches(compression: str, encoding: str) -> None:
    form = Delimited(encoding=encoding)
    rows = [(n, f"text {n} " * 20, None) for n in range(2000)]

    data = written(form, COLUMNS, rows, output=Output(form, compression=compression, target_file_size=10**6))

    assert values(read_back(data, form, COLUMNS).rows) == rows
    assert (len(data) < 300_000) is (compression != "none")


# Whole publications


@pytest.mark.parametrize("changes", ["net", "full"])
@pytest.mark.parametrize(
    "output",
    [
        Output(Delimited()),
        Output(Delimited("tsv", "\n", "\t", encoding="utf-16")),
        Output(Delimited("psv", "\r", "|", "'", "/", "N/A", schema_definition=False), upserts_by_default=True),
    ],
    ids=["csv", "tsv", "psv"],
)
def test_table_published_as_text_is_mirrored_and_lints_clean(tmp_path: Path, output: Output, changes: str) -> None:
    store = FolderStore(str(tmp_path / "zone"))
    table = orders((1, 'a "quote", and\r\na break'), (2, ""), (3, "N/A"))
    chosen = plan(output=output, changes=changes, compression="gzip", target_file_size=100)
    publish(TableFeed(table), store, chosen)
    three_commits(table)
    publish(TableFeed(table, rows_per_batch=2), store, chosen)

    (report,) = Replica(store, str(tmp_path / "mirror")).run_pass()

    assert report.message == ""
    assert lint(store)[0] == []
    assert mirrored(tmp_path / "mirror" / "sales" / "orders") == sorted(
        (str(row["id"]), row["status"]) for row in table.at(table.latest)
    )


def test_rows_with_unrepresentable_years_are_refused_with_a_fix() -> None:
    table = Table({"id": "long", "due": "date"}, ("id",))
    table.insert({"id": 1, "due": 2932897})
    with pytest.raises(RowsRefusedError) as caught:
        publish(TableFeed(table), MemoryStore(), plan(output=Output(Delimited())))
    assert "(id = 1, column 'due': '10000-01-01')" in caught.value.problem
    assert "`format: parquet`" in caught.value.solution


@pytest.mark.parametrize("escape", ["\\", '"'])
def test_escaped_header_names_lint_clean(tmp_path: Path, escape: str) -> None:
    store, output = FolderStore(str(tmp_path)), Output(Delimited(quote="", escape=escape, null="N/A"))
    table = Table({"id,no": "long", f"a {escape}b{escape},": "string"}, ("id,no",))
    table.insert({"id,no": 1, f"a {escape}b{escape},": "x,y"})
    publish(TableFeed(table), store, plan(output=output, keys=("id,no",)))
    assert lint(store)[0] == []


def mirrored(path: Path) -> list[tuple[str, Any]]:
    from deltalake import DeltaTable

    return sorted((str(row["id"]), row["status"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def test_new_column_is_refused_only_with_a_declared_schema() -> None:
    for declared in (True, False):
        store, table = MemoryStore(), two_orders()
        chosen = plan(output=Output(Delimited(schema_definition=declared)))
        publish(TableFeed(table), store, chosen)
        table.add_column("city", "string")
        table.insert({"id": 9, "status": "new", "city": "Oslo"})
        if not declared:
            publish(TableFeed(table), store, chosen)
            continue
        with pytest.raises(IncompatibleSchemaError) as caught:
            publish(TableFeed(table), store, chosen)
        assert caught.value.problem == (
            "The columns of main.sales.orders at version 3 are incompatible with the published columns: 'city' was"
            " added, but SchemaDefinition does not allow new columns."
        )


def test_file_format_of_a_published_table_cannot_change() -> None:
    store, table = MemoryStore(), two_orders()
    publish(TableFeed(table), store, plan())
    table.insert({"id": 9, "status": "new"})
    with raises(setting_changed, match="does not set FileFormat, but the configuration"):
        publish(TableFeed(table), store, plan(output=Output(Delimited())))
    assert len(publish(TableFeed(table), store, plan()).records) == 1


def test_column_name_may_equal_the_null_text() -> None:
    store = MemoryStore()
    form = Delimited(quote="", null="-")
    publish(TableFeed(Table({"id": "long", "-": "long"}, ("id",))), store, plan(output=Output(form)))
    assert store.read(f"{FOLDER}/00000000000000000001.csv") == b"id,-\r\n"


def test_unencodable_rows_are_refused_with_a_fix_and_not_published() -> None:
    store, table = MemoryStore(), orders((1, "Łódź"))
    with pytest.raises(RowsRefusedError) as caught:
        publish(TableFeed(table), store, plan(output=Output(Delimited(encoding="ascii"))))
    assert "a value has a character that the encoding of the files does not contain" in caught.value.problem
    assert "(id = 1, column 'status': 'Ł')" in caught.value.problem
    assert "set another `encoding`" in caught.value.solution
    assert [entry.name for entry in store.list(FOLDER)] == ["_mirrorfeed"]


@pytest.mark.parametrize(
    ("columns", "keys", "form", "error", "column"),
    [
        (
            {"id": "long", "price": "decimal(12,2)"},
            ("id",),
            Delimited(),
            type_not_declarable,
            "price",
        ),
        (
            {"größe": "long"},
            (),
            Delimited(encoding="ascii", null="-"),
            column_name_not_writable,
            "größe",
        ),
        (
            {"id": "long", 'a "b"': "long"},
            ("id",),
            Delimited(escape=""),
            column_name_not_writable,
            'a "b"',
        ),
        (
            {"a, b": "long"},
            (),
            Delimited(quote="", escape="", null="-"),
            column_name_not_writable,
            "a, b",
        ),
        (
            {"note": "string"},
            (),
            Delimited(),
            null_as_empty_line,
            "note",
        ),
    ],
)
def test_unsupported_table_is_refused_before_anything_is_written(
    columns: dict[str, str], keys: tuple[str, ...], form: Delimited, error: Expected, column: str
) -> None:
    store = MemoryStore()
    with raises(error) as caught:
        publish(TableFeed(Table(columns, keys)), store, plan(keys=keys, output=Output(form)))
    assert isinstance(caught.value, TerminalError)
    assert caught.value.facts["column"] == column
    assert store.list("") == []


@pytest.mark.parametrize(
    ("form", "field", "reason"),
    [
        (Delimited(null="a,b"), "null", "'a,b' contains a separator, a quote, an escape character or a line break"),
        (Delimited(null="\\N"), "null", "'\\\\N' contains a separator, a quote, an escape character or a line break"),
        (Delimited(null="a\nb"), "null", "'a\\nb' contains a separator, a quote, an escape character or a line break"),
        (
            Delimited(quote=""),
            "null",
            "is empty, and without a quote an empty text would look like NULL: set another value",
        ),
    ],
)
def test_contradicting_format_options_are_refused(form: Delimited, field: str, reason: str) -> None:
    assert form.fault() == (field, reason)


def test_default_and_sample_format_options_are_valid() -> None:
    assert [form.fault() for form in (Delimited(), Delimited("tsv", "\n", "\t", "'", "", "N/A", "utf-16"))] == [
        None
    ] * 2
