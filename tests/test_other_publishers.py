"""Landing zones of other publishers, built with their calls: the findings of `lint` and the result of the replica.

The two share no code, so each zone is given to both."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from rich.console import Console

from mirrorfeed.display.terminal import draw
from mirrorfeed.lint.linter import lint
from mirrorfeed.mirror.local_replica import Replica, State, TableReport
from mirrorfeed.storage.local_folder import FolderStore

MARKER = "__rowMarker__"
CHECKED_OUT = {"lineterminator": "\n"}


class Zone:
    """A landing zone with the table `orders`, and its mirror."""

    def __init__(self, root: Path) -> None:
        self.folder, self._target = root / "zone" / "orders", root / "mirror"
        self.folder.mkdir(parents=True)
        self._store = FolderStore(str(root / "zone"))

    def metadata(self, **fields: Any) -> None:
        (self.folder / "_metadata.json").write_text(json.dumps(fields))

    def parquet(self, number: int, rows: list[dict[str, Any]], columns: list[str] | None = None) -> None:
        """Write Parquet like publishers that pass rows and let Arrow infer types."""
        found = pa.Table.from_pylist(rows) if columns is None else pa.table({name: [] for name in columns})
        pq.write_table(found, self.folder / f"{number:020}.parquet")

    def text(self, number: int, rows: list[list[Any]], extension: str = "csv", **form: Any) -> None:
        out = io.StringIO()
        csv.writer(out, **form).writerows(rows)
        (self.folder / f"{number:020}.{extension}").write_bytes(out.getvalue().encode())

    @property
    def messages(self) -> list[str]:
        return [f"{found.code} {found.what}" for found in lint(self._store)[0]]

    @property
    def printed(self) -> str:
        out = Console(file=io.StringIO(), width=1000)
        draw(out, lint(self._store)[0])
        return re.sub(r"[\s│┃]+", " ", out.file.getvalue())  # type: ignore[attr-defined]

    def replicate(self) -> TableReport:
        (report,) = Replica(self._store, str(self._target)).run_pass()
        return report

    @property
    def mirror(self) -> list[dict[str, Any]]:
        rows = DeltaTable(self._target / "dbo" / "orders").to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: str(row["id"]))


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    zone = Zone(tmp_path)
    zone.metadata(keyColumns=["id"])
    return zone


def declared(*columns: tuple[str, str], **fields: Any) -> dict[str, Any]:
    listed = [{"Name": name, "DataType": type_, "IsNullable": True} for name, type_ in columns]
    return {
        "keyColumns": ["id"],
        "FileFormat": "DelimitedText",
        "FileExtension": "tsv",
        "FileFormatTypeProperties": {"FirstRowAsHeader": True, "ColumnSeparator": "\t"},
        "SchemaDefinition": {"Columns": listed},
        **fields,
    }


@pytest.mark.parametrize("place", [0, 2])
def test_marker_listed_in_a_schema_is_not_a_table_column(zone: Zone, place: int) -> None:
    columns = [("id", "Int64"), ("name", "String")]
    columns.insert(place, (MARKER, "Int32"))
    zone.metadata(**declared(*columns))
    zone.text(1, [["id", "name"], [1, "a"], [2, "b"]], "tsv", delimiter="\t")
    zone.text(2, [["id", "name", MARKER], [1, "c", 4], [2, "", 2]], "tsv", delimiter="\t")
    assert zone.messages == []
    report = zone.replicate()
    assert (report.state, report.message) == (State.REPLICATING, "")
    assert zone.mirror == [{"id": 1, "name": "c"}]


def test_csv_is_a_valid_file_format(zone: Zone) -> None:
    zone.metadata(keyColumns=["id"], FileFormat="CSV")
    zone.text(1, [["id", "name"], [1, "a,b"]])
    assert zone.messages == []
    assert zone.replicate().state is State.REPLICATING
    assert zone.mirror == [{"id": "1", "name": "a,b"}]


def test_csv_file_format_with_another_extension_is_a_finding(zone: Zone) -> None:
    zone.metadata(keyColumns=["id"], FileFormat="CSV", FileExtension="tsv")
    zone.text(1, [["id"], [1]], "tsv")
    assert zone.messages == ["MF219 The extension 'tsv' is set, but FileFormat is not DelimitedText."]


def test_int64_markers_are_accepted_with_a_warning(zone: Zone) -> None:
    zone.parquet(1, [{"id": 1, "name": "a", MARKER: 0}, {"id": 2, "name": "b", MARKER: 4}])
    assert zone.messages == [f"MF504 {MARKER} has the type int64 instead of int32."]
    assert "MF504 warning" in zone.printed
    assert zone.replicate().rows == {0: 1, 4: 1}


def test_text_markers_are_an_error(zone: Zone) -> None:
    zone.parquet(1, [{"id": 1, MARKER: "4"}])
    assert zone.messages == [f"MF508 {MARKER} has the type string instead of int32."]
    assert "MF508 error" in zone.printed


def test_empty_first_file_without_types_creates_no_table(zone: Zone) -> None:
    zone.parquet(1, [], columns=["id", "name", MARKER])
    first = zone.replicate()
    assert (first.state, first.files) == (State.REPLICATING, 0)
    assert first.message == (
        f"All values in {1:020}.parquet are NULL, so the column types are unknown. The mirrored table is not created"
        f" yet."
    )
    zone.parquet(2, [{"id": 1, "name": "a", MARKER: 4}])
    zone.parquet(3, [{"id": 1, "name": None, MARKER: 2}, {"id": 2, "name": None, MARKER: 4}])
    assert zone.messages == [
        "MF411 The column 'id' has no type in this file, because all its values are NULL.",
        "MF411 The column 'name' has no type in this file, because all its values are NULL.",
        f"MF411 The column '{MARKER}' has no type in this file, because all its values are NULL.",
        f"MF504 {MARKER} has the type int64 instead of int32.",
        f"MF504 {MARKER} has the type int64 instead of int32.",
    ]
    assert zone.replicate().files == 2
    assert zone.mirror == [{"id": 2, "name": None}]


def test_deletes_do_not_change_columns_without_a_type(zone: Zone) -> None:
    zone.parquet(1, [{"id": 1, "name": "a", "note": None}, {"id": 2, "name": "b", "note": None}])
    zone.parquet(2, [{"id": 1, "name": None, "note": None, MARKER: 2}])
    zone.parquet(3, [{"id": 3, "name": "c", "note": "n", MARKER: 4}])
    assert [findings for findings in zone.messages if "MF504" not in findings] == [
        "MF411 The column 'note' has no type in this file, because all its values are NULL.",
        "MF411 The column 'name' has no type in this file, because all its values are NULL.",
    ]
    report = zone.replicate()
    assert (report.state, report.files, report.message) == (State.REPLICATING, 3, "")
    assert zone.mirror == [{"id": 2, "name": "b", "note": None}, {"id": 3, "name": "c", "note": "n"}]


def test_rows_without_any_type_are_refused(zone: Zone) -> None:
    zone.metadata()
    zone.parquet(1, [{"note": None}])
    assert "The column 'note'" in zone.replicate().message
    assert "has the type null. A mirrored table cannot store this type." in zone.replicate().message


def test_changes_before_any_key_has_a_type_are_refused(zone: Zone) -> None:
    zone.parquet(1, [{"id": None, "name": "a", MARKER: 4}])
    assert "The column 'id'" in zone.replicate().message
    assert "has the type null. A mirrored table cannot store this type." in zone.replicate().message


def test_marker_without_a_type_counts_as_missing(zone: Zone) -> None:
    zone.parquet(1, [{"id": 1, MARKER: None}])
    assert f"MF506 {MARKER} is NULL in 1 of 1 row." in zone.messages
    assert f"{zone.folder}/{1:020}.parquet (MF506): {MARKER} is NULL in 1 of 1 row." in zone.replicate().message


def test_line_endings_changed_by_a_checkout_are_shown(zone: Zone) -> None:
    zone.text(1, [["id", "name"], [1, "a"]], **CHECKED_OUT)
    assert zone.messages == ["MF605 Row 1: it ends in '\\n', and RowSeparator is '\\r\\n'."]
    assert "checkout" in zone.printed
    message = zone.replicate().message
    assert "Row 1: it ends in '\\n', and RowSeparator is '\\r\\n'" in message
    assert "checkout" in message


def test_line_endings_with_a_carriage_return_are_shown(zone: Zone) -> None:
    zone.metadata(keyColumns=["id"], FileFormatTypeProperties={"FirstRowAsHeader": True, "RowSeparator": "\n"})
    zone.text(1, [["id", "name"], [1, "a"]])
    assert zone.messages == ["MF605 Row 1: it ends in '\\r\\n', and RowSeparator is '\\n'."]
    assert "Row 1: it ends in '\\r\\n', and RowSeparator is '\\n'" in zone.replicate().message


def test_carriage_return_in_a_column_name_is_visible_in_messages(zone: Zone) -> None:
    zone.metadata(**declared(("id", "Int64"), ("name\r", "String")))
    zone.text(1, [["id", "more\r"], [1, "a"]], "tsv", delimiter="\t")
    assert "\r" not in zone.printed
    message = zone.replicate().message
    assert "\r" not in message
    assert "SchemaDefinition does not declare 'more\\r'" in message


def test_carriage_return_in_a_value_is_visible_in_messages(zone: Zone) -> None:
    options = {"FirstRowAsHeader": True, "RowSeparator": "\n"}
    zone.metadata(**declared(("id", "Int64"), FileFormatTypeProperties=options))
    (zone.folder / f"{1:020}.tsv").write_bytes(b"id\n1\n2\r\n")
    message = zone.replicate().message
    assert "Row 3: 'id' is '2\\r'" in message
    assert message.isascii()


def test_carriage_return_in_a_refused_name_is_visible(zone: Zone) -> None:
    zone.parquet(1, [{"id\r": 1}])
    assert "it has 'id\\r'" in zone.printed
    zone.metadata(keyColumns=["id", "b\r"])
    message = zone.replicate().message
    assert "the key column 'id': it has 'id\\r'" in message
