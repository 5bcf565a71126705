"""Schema changes of a history, decided by pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mirrorfeed.history.append import last_equal
from mirrorfeed.history.errors import HistoryColumnsError
from mirrorfeed.history.history_record import (
    HistoryColumn,
    can_widen,
    have_same_columns,
    next_columns,
    stored_columns,
    unreadable_columns,
)
from mirrorfeed.history.history_table import find_foreign_write
from mirrorfeed.source.snapshot_or_range import renamed_columns
from tests.history.test_history_record import records


def schema(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in types.items()]
    return {"type": "struct", "fields": fields}


def struct(**types: str) -> dict[str, Any]:
    return schema(**types)


def snapshot_columns(schema: Mapping[str, Any], version: int, existing: Mapping[str, str]) -> tuple[HistoryColumn, ...]:
    return next_columns("t", version, (), schema, existing)


FIRST = snapshot_columns(schema(id="integer", v="string"), 3, {})


def described(columns: tuple[HistoryColumn, ...]) -> list[tuple[str, str, str]]:
    return [(column.name, column.stored_as, column.origin) for column in columns]


@pytest.mark.parametrize(
    ("now", "options", "expected"),
    [
        (schema(id="integer", v="string"), {}, [("id", "id", "id@3"), ("v", "v", "v@3")]),
        (
            schema(id="integer", v="string", w="long", no_type="void"),
            {},
            [("id", "id", "id@3"), ("v", "v", "v@3"), ("w", "w", "w@7")],
        ),
        (schema(id="integer", w="string"), {"renamed": {"v": "w"}}, [("id", "id", "id@3"), ("w", "w", "v@3")]),
        (schema(id="integer", V="string"), {"renamed": {"v": "V"}}, [("id", "id", "id@3"), ("V", "v", "v@3")]),
        (schema(id="integer"), {"renamed": {"v": None}}, [("id", "id", "id@3")]),
        (schema(id="integer", v="char(5)"), {}, [("id", "id", "id@3"), ("v", "v", "v@3")]),
        (schema(id="integer", v="string collate UNICODE_CI"), {}, [("id", "id", "id@3"), ("v", "v", "v@3")]),
    ],
    ids=["the same", "added", "renamed", "renamed in case", "dropped", "of fixed length", "collated"],
)
def test_columns_are_continued_or_added_in_the_next_version(
    now: dict[str, Any], options: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    types = {"id": '"integer"', "v": '"string"'}
    assert described(next_columns("t", 7, FIRST, now, types, **options)) == expected


def test_name_with_another_type_gets_a_new_column() -> None:
    types = {"ID": '"integer"', "v": '"string"'}
    assert described(snapshot_columns(schema(id="long", v="string"), 9, types)) == [
        ("id", "id__v9", "id@9"),
        ("v", "v", "v@9"),
    ]
    renamed = next_columns(
        "t", 7, FIRST, schema(id="integer", w="string"), {**types, "w": '"date"'}, renamed={"v": "w"}
    )
    assert described(renamed)[1] == ("w", "w__v7", "v@3")
    again = next_columns(
        "t",
        8,
        next_columns("t", 7, FIRST, schema(id="integer"), types, renamed={"v": None}),
        schema(id="integer", v="string"),
        types,
    )
    assert described(again)[1] == ("v", "v", "v@8")


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (schema(id="integer"), "'v' is gone."),
        (schema(id="short", v="string"), "'id' was integer and is short."),
        (schema(id="integer", v=struct(a="string")), "'v' was string and is struct."),
    ],
)
def test_incompatible_columns_are_named(now: dict[str, Any], words: str) -> None:
    with pytest.raises(HistoryColumnsError) as caught:
        next_columns("main.sales.orders", 7, FIRST, now, {})
    assert caught.value.version == 7
    assert caught.value.problem.endswith(f": {words}")


@pytest.mark.parametrize(
    ("operation", "parameters", "renamed"),
    [
        ("RENAME COLUMN", {"oldColumnPath": "a", "newColumnPath": "`b.c`"}, {"a": "b.c"}),
        ("RENAME COLUMN", {"oldColumnPath": "s.a", "newColumnPath": "s.b"}, {}),
        ("DROP COLUMNS", {"columns": '["a","s.b","`c.d`"]'}, {"a": None, "c.d": None}),
        ("WRITE", {}, {}),
    ],
)
def test_renamed_and_dropped_columns_of_a_commit_are_parsed(
    operation: str, parameters: Mapping[str, str], renamed: Mapping[str, str | None]
) -> None:
    assert renamed_columns(operation, parameters) == renamed


def test_values_are_read_from_the_column_of_their_version() -> None:
    types = {"id": '"integer"', "v": '"string"', "w": '"string"'}
    renamed = next_columns("t", 6, FIRST, schema(id="integer", w="string"), types, renamed={"v": "w"})
    added = next_columns("t", 7, renamed, schema(id="integer", w="string", v="string"), types)
    columns = [FIRST, FIRST, renamed, added]
    commits = records((None, 3), (3, 5), (5, 6), (6, 9))
    segment = [replace(record, columns=now) for record, now in zip(commits, columns, strict=True)]
    found = {column.name: spans for column, spans in stored_columns(segment, 8)}
    assert found == {"id": [(9, "id")], "w": [(5, "v"), (9, "w")], "v": [(6, None), (9, "v")]}
    assert [column.name for column, _ in stored_columns(segment, 5)] == ["id", "v"]


@pytest.mark.parametrize(
    ("narrow", "wide", "others"),
    [
        ("byte", "short integer long double decimal(10,0)", "float decimal(9,0) string"),
        ("long", "decimal(20,0) decimal(22,2)", "integer double decimal(21,2)"),
        ("float", "double", "decimal(38,10)"),
        ("date", "timestamp_ntz", "timestamp string"),
        ("decimal(6,2)", "decimal(8,2) decimal(8,4)", "decimal(7,4) decimal(6,3) decimal(9,1) double"),
        ("string", "", "long"),
    ],
)
def test_a_widened_type_can_hold_the_values_of_the_narrower_one(narrow: str, wide: str, others: str) -> None:
    found = [each for each in (*wide.split(), *others.split()) if can_widen(f'"{each}"', f'"{narrow}"')]
    assert found == wide.split()


def test_a_widened_column_is_stored_in_a_column_of_its_own() -> None:
    widened = next_columns("t", 7, FIRST, schema(id="long", v="string"), {"id": '"integer"', "v": '"string"'})
    assert described(widened)[0] == ("id", "id__v7", FIRST[0].origin)


def test_unreadable_columns_are_named() -> None:
    assert unreadable_columns(FIRST, schema(id="integer", v="string", w="long")) == []
    assert unreadable_columns(FIRST, schema(id="long", v="string")) == []
    assert unreadable_columns(FIRST, schema(id="short")) == ["'v' is gone", "'id' was integer and is short"]
    assert have_same_columns(schema(a="integer"), schema(a="integer", b="void"))
    assert not have_same_columns(schema(a="integer", b="long"), schema(b="long", a="integer"))


@pytest.mark.parametrize("changed_at", range(6, 12))
def test_range_ends_before_its_columns_change(changed_at: int) -> None:
    assert last_equal(5, 10, lambda version: version < changed_at) == min(changed_at - 1, 10)


def commit(version: int, operation: str, note: str | None = None, /, **parameters: str) -> dict[str, Any]:
    found = {"version": version, "operation": operation, "userMetadata": note}
    return {**found, "operationParameters": parameters or None}


OURS = commit(4, "WRITE", "batch")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ([], None),
        ([OURS], None),
        (
            [OURS, commit(5, "OPTIMIZE"), commit(6, "VACUUM END"), commit(7, "SET TBLPROPERTIES")],
            None,
        ),
        ([OURS, commit(5, "WRITE")], 5),
        ([commit(3, "DELETE"), OURS], 3),
        ([OURS, commit(5, "WRITE", "another note"), commit(6, "MERGE")], 5),
        ([OURS, commit(5, "DELETE"), commit(6, "RESTORE", version="4")], None),
        ([OURS, commit(5, "DELETE"), commit(6, "RESTORE", version="5")], 5),
        ([OURS, commit(5, "RESTORE", version="1")], 5),
        ([OURS, commit(5, "RESTORE", timestamp="2026-01-01")], 5),
        ([OURS, commit(5, "CREATE OR REPLACE TABLE AS SELECT")], 5),
    ],
)
def test_foreign_write_is_found_unless_it_was_reverted(changes: list[dict[str, Any]], found: int | None) -> None:
    change = find_foreign_write(changes, "batch")
    assert (change["version"] if change else None) == found


def test_nested_types_are_compared_without_metadata() -> None:
    one = {"type": "array", "elementType": struct(a="integer"), "containsNull": False}
    other = {"containsNull": True, "elementType": struct(a="integer"), "type": "array"}
    assert snapshot_columns(schema(n=one), 1, {})[0].type == snapshot_columns(schema(n=other), 1, {})[0].type
    assert json.loads(snapshot_columns(schema(n=one), 1, {})[0].type)["containsNull"] is True
