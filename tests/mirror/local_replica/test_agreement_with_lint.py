"""`lint` reports an error in exactly the tables that the replica fails, as far as NULL and columns are concerned."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

from mirrorfeed.lint.linter import lint
from mirrorfeed.lint.specification import LintSeverity
from mirrorfeed.storage.local_folder import FolderStore
from tests.mirror.local_replica.conftest import MARKER, World

_ID = pa.field("id", pa.int64())
_REQUIRED, _NULLABLE = pa.field("v", pa.string(), nullable=False), pa.field("v", pa.string())
_MARK = pa.field(MARKER, pa.int32())


def _file(value: pa.Field | None, *rows: tuple[str | None, int | None]) -> pa.Table:
    """Rows of (v, marker) with keys of their own; no marker column if the markers are None."""
    is_marked = any(marker is not None for _, marker in rows)
    fields = [_ID, *([value] if value else []), *([_MARK] if is_marked else [])]
    values = {"id": range(len(rows)), "v": [row[0] for row in rows], MARKER: [row[1] for row in rows]}
    return pa.table([pa.array(values[field.name], field.type) for field in fields], schema=pa.schema(fields))


_FIRST = {
    "required": _file(_REQUIRED, ("a", None), ("b", None)),
    "nullable": _file(_NULLABLE, ("a", None), ("b", None)),
    "absent": _file(None, (None, None), (None, None)),
    "without type": _file(pa.field("v", pa.null()), (None, None), (None, None)),
    "without rows": _file(_REQUIRED),
}
_LATER = {
    "required": _file(_REQUIRED, ("c", 4)),
    "a value": _file(_NULLABLE, ("c", 4)),
    "NULL in an upsert": _file(_NULLABLE, ("c", 4), (None, 4)),
    "NULL in an update": _file(_NULLABLE, (None, 1), (None, 2)),
    "NULL in a delete": _file(_NULLABLE, (None, 2), ("c", 4)),
    "absent": _file(None, (None, 4)),
    "absent in deletes": _file(None, (None, 2)),
    "without type": _file(pa.field("v", pa.null()), (None, 4)),
    "deletes without type": _file(pa.field("v", pa.null()), (None, 2)),
    "without rows": _file(_NULLABLE),
    "dictionary with NULL": pa.table({"id": [1], "v": pa.array([None], pa.string()).dictionary_encode()}),
}
_BETWEEN = [_LATER["required"], _LATER["absent"], _LATER["without type"]]


def _lint_errors(world: World) -> set[str]:
    findings = lint(FolderStore(str(world.zone)))[0]
    return {found.file.split("/")[0] for found in findings if found.severity is LintSeverity.ERROR}


def test_lint_reports_the_tables_that_fail_because_of_null(world: World) -> None:
    cases = [(first, later) for first in _FIRST.values() for later in _LATER.values()]
    cases += [(first, second, _LATER["NULL in an upsert"]) for first in _FIRST.values() for second in _BETWEEN]
    for at, files in enumerate(cases):
        world.metadata(f"t{at}", keyColumns=["id"], isUpsertDefaultRowMarker=True)
        for number, rows in enumerate(files, 1):
            world.put(f"t{at}", number, rows)
    failed = {report.table for report in world.replica.run_pass() if not report.ok}
    assert 10 < len(failed) < len(cases) - 10
    assert _lint_errors(world) == failed


def test_lint_reports_the_texts_that_fail_because_of_null(world: World) -> None:
    for nullable, text in product((True, False), ("id,v\n1,\n", "id\n1\n", f"id,v,{MARKER}\n1,,2\n", "id,v\n1,a\n")):
        table = f"{nullable}_{text.encode().hex()}"
        columns = [{"Name": name, "DataType": "Int32", "IsNullable": nullable} for name in ("id",)]
        columns.append({"Name": "v", "DataType": "String", "IsNullable": nullable})
        world.metadata(
            table,
            keyColumns=["id"],
            FileFormatTypeProperties={"FirstRowAsHeader": True, "RowSeparator": "\n"},
            SchemaDefinition={"Columns": columns},
        )
        world.put(table, f"{1:020}.csv", text.encode())
    failed = {report.table for report in world.replica.run_pass() if not report.ok}
    assert len(failed) == 2
    assert _lint_errors(world) == failed


@pytest.mark.parametrize("name", ["the total", "a,b", "a;b", "{a}", "(a)", "a\nb", "a\tb", "a=b", "a.b", "`a`"])
def test_special_characters_in_names_are_neither_an_error_nor_a_failure(world: World, name: str) -> None:
    world.metadata(keyColumns=[name])
    world.put("orders", 1, pa.table({name: [1], f"{name} too": ["x"]}))
    world.put("orders", 2, pa.table({name: [1], f"{name} too": ["y"], MARKER: pa.array([4], pa.int32())}))
    assert world.step().ok
    assert world.rows() == [(1, "y")]
    assert lint(FolderStore(str(world.zone)))[0] == []
