"""The lint rules on facts alone. `test_linter.py` shows that each finds its defect in real files."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any

import pytest

from mirrorfeed import lint
from mirrorfeed.landing.names import TABLE_LIMITS, data_name
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.lint.folder_rules import check_folders
from mirrorfeed.lint.landing_zone import Contents, Folder, LandingFile, LandingTable, Log
from mirrorfeed.lint.linter import check_table
from mirrorfeed.lint.metadata_file import read_metadata
from mirrorfeed.lint.specification import Dialect, FileColumn, LintFinding, LintRule, LintSeverity, Settings

_ID, _NAME, _MARKER = FileColumn("id", "int64"), FileColumn("name", "string"), FileColumn(MARKER, "int32")
_PLAIN = Contents((_ID, _NAME), 1)
_NOT_A_NUMBER = "The file name must be a 20-digit number greater than 0 and an extension."
_NONE_LEFT = "Fabric consumed number 2, but the folder has no data file left that shows the next number."
_UPSERT = Contents((_ID, _NAME, _MARKER), 1, markers={"4": 1})


def _file(number: int, inside: Contents | None = _PLAIN) -> LandingFile:
    return LandingFile(data_name(number), 100, inside)


def _table(*files: LandingFile, metadata: dict[str, Any] | bytes | None = None, **facts: Any) -> LandingTable:
    spelled = {"keyColumns": ["id"]} if metadata is None else metadata
    data = spelled if isinstance(spelled, bytes) else json.dumps(spelled).encode()
    settings, deviations = read_metadata(data, "orders/_metadata.json")
    return LandingTable("orders", settings, tuple(each.finding for each in deviations), files, **facts)


def messages_of(table: LandingTable) -> list[str]:
    return [f"{found.code} {found.file.removeprefix('orders/')}: {found.what}" for found in check_table(table)]


def _rules() -> list[LintRule]:
    modules = [importlib.import_module(each.name) for each in pkgutil.walk_packages(lint.__path__, "mirrorfeed.lint.")]
    found = [rule for module in modules for rule in vars(module).values() if isinstance(rule, LintRule)]
    return list({id(rule): rule for rule in found}.values())


def test_codes_are_unique_and_every_rule_has_a_fix() -> None:
    rules = _rules()
    assert len({rule.code for rule in rules}) == len(rules)
    assert all(rule.fix.endswith(".") for rule in rules)


def test_advice_has_separate_codes_and_is_ok() -> None:
    assert all((rule.severity is LintSeverity.ADVICE) == (rule.code[3] == "5") for rule in _rules())
    assert LintFinding("MF251", LintSeverity.ADVICE, "orders", "", "").ok
    assert not LintFinding("MF205", LintSeverity.WARNING, "orders", "", "").ok


@pytest.mark.parametrize(
    ("numbers", "processed", "message"),
    [
        ((1, 2, 3), (), []),
        (
            (),
            (),
            [
                "MF310 orders: The folder of the table has no data file. After some time, Fabric reports such a table"
                " as failed."
            ],
        ),
        ((7,), (), []),
        ((3, 4), (1, 2), []),
        ((3,), (1, 2, 3), []),
        ((3, 4), (3,), []),
        ((10**19 + 1,), (10**19,), []),
        ((1, 3), (), [f"MF302 {data_name(3)}: Number 2 is missing before this file. The previous number is 1."]),
        (
            (1, 5, 6),
            (),
            [f"MF302 {data_name(5)}: The numbers 2 to 4 are missing before this file. The previous number is 1."],
        ),
        (
            (5,),
            (1, 2),
            [f"MF302 {data_name(5)}: The numbers 3 to 4 are missing before this file. The previous number is 2."],
        ),
        (
            (3, 4),
            (),
            [f"MF351 {data_name(3)}: The first number is 3, and nothing shows that Fabric consumed earlier numbers."],
        ),
        (
            (),
            (1, 2),
            [f"MF311 orders: {_NONE_LEFT}"],
        ),
        (
            (1, 3),
            (1, 2),
            [
                f"MF304 {data_name(1)}: Fabric already consumed the number 1, as _ProcessedFiles/{data_name(1)}, so it"
                f" never reads this file."
            ],
        ),
    ],
)
def test_file_numbers_increase_by_one_after_processed_files(
    numbers: tuple[int, ...], processed: tuple[int, ...], message: list[str]
) -> None:
    done = {data_name(number): "_ProcessedFiles" for number in processed}
    assert messages_of(_table(*map(_file, numbers), processed=done)) == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("00000000000000000001.parquet", None),
        ("00000000000000000001.csv", None),
        ("00000000000000000001.csv.gz", None),
        ("1.parquet", f"MF301 1.parquet: {_NOT_A_NUMBER}"),
        ("00000000000000000000.parquet", f"MF301 00000000000000000000.parquet: {_NOT_A_NUMBER}"),
        ("orders.parquet", f"MF301 orders.parquet: {_NOT_A_NUMBER}"),
        (
            "00000000000000000001.PARQUET",
            "MF308 00000000000000000001.PARQUET: The extension is 'PARQUET', and files are Parquet or CSV unless"
            " _metadata.json sets another format.",
        ),
        (
            "00000000000000000001.parquet.tmp",
            "MF703 00000000000000000001.parquet.tmp: The file has the name of an unfinished or temporary file.",
        ),
    ],
)
def test_data_file_name_has_20_digits_and_an_extension(name: str, message: str | None) -> None:
    assert messages_of(_table(LandingFile(name, 100))) == ([message] if message else [])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (_UPSERT, []),
        (Contents((_ID, _MARKER), 1, markers={"2": 1}), []),
        (Contents((_ID, _MARKER), 2, markers={"2": 1, "4": 1}), ["MF405: The column 'name' is missing in this file"]),
        (Contents((_ID,), 1), ["MF405: The column 'name' is missing in this file, but was in earlier files."]),
        (Contents((_NAME, _ID), 1), []),
        (Contents((_ID, _NAME, FileColumn("more", "date")), 1), []),
        (Contents((_ID, _NAME, FileColumn("a b,;{}()\n\t=", "string")), 1), []),
        (
            Contents((_ID, FileColumn("Name", "string")), 1),
            ["MF402: The column 'Name' is spelled 'name' in earlier files."],
        ),
        (
            Contents((FileColumn("id", "int32"), _NAME), 1),
            ["MF404: The type of column 'id' changes from int64 to int32"],
        ),
        (Contents((_NAME,), 1), ["MF407: The file does not have the key column 'id': it has 'name'."]),
        (
            Contents((FileColumn("ID", "int64"), _NAME), 1),
            ["MF407: The file does not have the key column 'id': it spells"],
        ),
        (Contents((_ID, _NAME), 9, null_keys={"id": 3}), ["MF408: The key column 'id' is NULL in 3 of 9 rows."]),
        (
            Contents((_ID, _NAME, FileColumn("x", "list"))),
            ["MF403: The column 'x' has the type list. A mirrored"],
        ),
        (Contents((_ID, _NAME, FileColumn("x", "decimal(38, 9)"))), []),
        (
            Contents((_ID, _NAME, FileColumn("x", "decimal(39, 9)"))),
            ["MF403: The column 'x' has the type decimal(39, 9)"],
        ),
        (Contents((_MARKER, _ID, _NAME)), [f"MF502: {MARKER} is the first of 3 columns, not the last."]),
        (Contents((_ID, _MARKER, _NAME)), [f"MF501: {MARKER} is column 2 of 3, not the last."]),
        (
            Contents((_ID, _NAME, FileColumn(MARKER, "string"))),
            [f"MF508: {MARKER} has the type string instead of int32."],
        ),
        (
            Contents((_ID, _NAME, _MARKER), 5, markers={"3": 2, "4": 1, "NULL": 2}, first_unknown_marker=4),
            [f"MF505: {MARKER} is '3' in 2 rows, first in row 4.", f"MF506: {MARKER} is NULL in 2 of 5 rows."],
        ),
    ],
)
def test_file_is_compared_with_earlier_files(second: Contents, message: list[str]) -> None:
    found = messages_of(_table(_file(1), _file(2, second)))
    assert len(found) == len(message)
    for one, expected in zip(found, message, strict=True):
        assert one.replace(f" {data_name(2)}", "").startswith(expected)


def test_schema_change_is_reported_once_at_its_file() -> None:
    changed = Contents((FileColumn("id", "string"),), 1)
    found = check_table(_table(_file(1), _file(2, changed), _file(3, changed)))
    assert [(one.code, one.file[-9:]) for one in found] == [("MF404", "2.parquet"), ("MF405", "2.parquet")]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (FileColumn("v", "string", False), FileColumn("v", "string"), "MF406"),
        (FileColumn("v", "string"), FileColumn("v", "string", False), "MF405"),
        (None, FileColumn("v", "string", False), "MF405"),
    ],
)
def test_a_column_stays_as_nullable_as_its_first_file_made_it(
    first: FileColumn | None, second: FileColumn, code: str
) -> None:
    files = [Contents((_ID, *([column] if column else [])), 1) for column in (first, second, None)]
    found = check_table(_table(*(_file(number, inside) for number, inside in enumerate(files, 1))))
    assert [(one.code, one.file) for one in found] == [(code, f"orders/{data_name(3)}")]


def test_updates_require_keys() -> None:
    expected = [f"MF507 {data_name(1)}: The table has no key columns, but the file has 1 row marked 4."]
    assert messages_of(_table(_file(1, _UPSERT), metadata={})) == expected


def test_valid_metadata_has_no_findings() -> None:
    metadata = {
        "KeyColumns": ["a", "b"],
        "fileDetectionStrategy": "LastUpdateTimeFileDetection",
        "isUpsertDefaultRowMarker": True,
        "FileFormat": "DelimitedText",
        "FileExtension": "psv",
        "FileFormatTypeProperties": {
            "FirstRowAsHeader": True,
            "RowSeparator": "\r",
            "ColumnSeparator": "|",
            "QuoteCharacter": "",
            "EscapeCharacter": "",
            "NullValue": "null",
            "Encoding": "windows-1252",
        },
    }
    dialect = Dialect("\r", "|", "", "", "null", "windows-1252")
    expected = Settings(("a", "b"), by_time=True, upserts=True, text=True, extension="psv", dialect=dialect)
    assert read_metadata(json.dumps(metadata).encode()) == (expected, [])
    assert read_metadata(b"{}") == (Settings(), [])


@pytest.mark.parametrize("name", ["hex", "rot13", "base64", "idna", "punycode", "unicode_escape", "utf-99", "a\0b"])
def test_unknown_encoding_is_a_finding_and_utf_8_is_used(name: str) -> None:
    settings, found = read_metadata(json.dumps({"FileFormatTypeProperties": {"Encoding": name}}).encode())
    assert settings.dialect.encoding == "utf-8"
    assert "MF214" in [each.finding.code for each in found]


def test_publisher_files_under_ignored_names_are_allowed() -> None:
    assert messages_of(_table(_file(1), ignored=("_progress.json", "_SUCCESS", "_delta_log", "_mirrorfeed"))) == []


def test_log_without_records_is_valid() -> None:
    assert messages_of(_table(_file(1), log=Log("ab"))) == []


def test_schema_folder_is_recognized_by_its_tables() -> None:
    table = Folder("sales/orders", ("_metadata.json",))
    root = Folder("", folders=(Folder("sales", (), (table,)), Folder("events", ("_metadata.json",))))
    found = list(check_folders(root))
    assert [(one.code, one.file) for one in found] == [("MF102", "sales")]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (449, []),
        (450, [("MF151", LintSeverity.ADVICE)]),
        (500, [("MF151", LintSeverity.ADVICE)]),
        (1001, [("MF151", LintSeverity.ADVICE)]),
    ],
)
def test_number_of_tables_is_advice_and_never_an_error(count: int, expected: list[tuple[str, LintSeverity]]) -> None:
    tables = tuple(Folder(f"sales.schema/t{n}", ("_metadata.json",)) for n in range(count))
    found = list(check_folders(Folder("", folders=(Folder("sales.schema", (), tables),))))
    assert [(each.code, each.severity) for each in found] == expected
    assert [each.what for each in found] == [f"The landing zone has {count:,} tables. {TABLE_LIMITS}"] * len(expected)
