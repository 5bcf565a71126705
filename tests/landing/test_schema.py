from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from mirrorfeed.landing.errors import (
    ColumnsDroppedError,
    IncompatibleSchemaError,
    invalid_key,
    reserved_columns,
    unsupported_type,
)
from mirrorfeed.landing.schema import Column, check_keys, columns_of, evolve
from mirrorfeed.publish.files.staging_job import arrow_schema, arrow_type
from tests.raised import raises

T = "main.sales.orders"
ID, NAME = Column("id", "long"), Column("name", "string")


def schema(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": type_, "nullable": False} for name, type_ in fields]}


@pytest.mark.parametrize(
    ("spark", "landing", "arrow"),
    [
        ("boolean", "boolean", pa.bool_()),
        ("byte", "byte", pa.int8()),
        ("short", "short", pa.int16()),
        ("integer", "integer", pa.int32()),
        ("long", "long", pa.int64()),
        ("float", "float", pa.float32()),
        ("double", "double", pa.float64()),
        ("string", "string", pa.string()),
        ("varchar(10)", "string", pa.string()),
        ("char(3)", "string", pa.string()),
        ("string collate UTF8_LCASE", "string", pa.string()),
        ("binary", "binary", pa.binary()),
        ("date", "date", pa.date32()),
        ("timestamp", "timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", "timestamp_ntz", pa.timestamp("us")),
        ("decimal(38,18)", "decimal(38,18)", pa.decimal128(38, 18)),
        ({"type": "array", "elementType": "long"}, "json", pa.string()),
        ({"type": "map", "keyType": "string"}, "json", pa.string()),
        ({"type": "struct", "fields": []}, "json", pa.string()),
        ("variant", "json", pa.string()),
        ("interval day to second", "interval day to second", pa.string()),
        ("interval month", "interval month", pa.string()),
        ("geometry(SRID:3857)", "geometry(SRID:3857)", pa.binary()),
        ("geography(OGC:CRS84, SPHERICAL)", "geography(OGC:CRS84, SPHERICAL)", pa.binary()),
    ],
)
def test_each_type_has_its_landing_zone_type(spark: Any, landing: str, arrow: pa.DataType) -> None:
    (column,) = columns_of(T, schema(("a", spark)))

    assert (column.name, column.type, column.dropped) == ("a", landing, False)
    assert json.loads(column.nested or "null") == (spark if landing == "json" else None)
    assert arrow_type(column) == arrow


@pytest.mark.parametrize(
    ("type_", "spelled"),
    [
        ("interval", "interval"),
        ("time(6)", "time(6)"),
        ({"type": "udt"}, "udt"),
    ],
)
def test_unsupported_type_is_refused(type_: Any, spelled: str) -> None:
    with raises(unsupported_type) as caught:
        columns_of(T, schema(("id", "long"), ("payload", type_)))

    assert caught.value.facts == {"table": T, "column": "payload", "type": spelled}


def test_reserved_column_names_are_refused_in_any_case() -> None:
    with raises(reserved_columns) as caught:
        columns_of(T, schema(("id", "long"), ("_Change_Type", "string"), ("__rowmarker__", "integer")))

    assert caught.value.facts == {"table": T, "columns": ["_Change_Type", "__rowmarker__"]}


def test_all_columns_are_nullable_and_the_marker_is_the_last_int32() -> None:
    found = arrow_schema((ID, NAME), with_marker=True)

    assert [(field.name, field.type, field.nullable) for field in found] == [
        ("id", pa.int64(), True),
        ("name", pa.string(), True),
        ("__rowMarker__", pa.int32(), True),
    ]
    assert arrow_schema((ID, NAME), with_marker=False).names == ["id", "name"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("ID", "it does not exist; the table has 'id'"),
        ("day", "it does not exist; the table has 'id', 'price', 'lines', 'place'"),
        ("price", "values of the type double have no reliable equality"),
        ("lines", "values of the type json have no reliable equality"),
        ("place", "values of the type geometry(SRID:0) have no reliable equality"),
    ],
)
def test_column_that_cannot_be_a_key_is_refused(key: str, reason: str) -> None:
    columns = (ID, Column("price", "double"), Column("lines", "json"), Column("place", "geometry(SRID:0)"))

    with raises(invalid_key) as caught:
        check_keys(T, ["id", key], columns)

    assert str(caught.value) == (
        f"Column {key!r} cannot be a key of {T}: {reason}. Correct `keys` in the configuration."
    )


@pytest.mark.parametrize("keys", [(), ("id",), ("name", "id")])
def test_comparable_columns_can_be_keys(keys: tuple[str, ...]) -> None:
    check_keys(T, keys, (ID, NAME))


def test_new_columns_are_appended_after_published_ones() -> None:
    added = Column("city", "string")

    assert evolve(T, 7, (ID, NAME), (NAME, added, ID)) == (ID, NAME, added)


def test_column_without_a_type_is_excluded_until_it_has_one() -> None:
    assert columns_of(T, schema(("id", "long"), ("nothing", "void"))) == (ID,)
    assert evolve(T, 7, (ID,), columns_of(T, schema(("id", "long"), ("nothing", "date")))) == (
        ID,
        Column("nothing", "date"),
    )


def test_dropped_column_remains_as_null() -> None:
    dropped = replace(NAME, dropped=True)
    city = Column("city", "string")

    assert evolve(T, 7, (ID, NAME), (ID,), may_drop=["name"]) == (ID, dropped)
    assert evolve(T, 8, (ID, dropped), (ID, city)) == (ID, dropped, city)


@pytest.mark.parametrize("again", ["name", "NAME"])
def test_dropped_column_cannot_be_added_again(again: str) -> None:
    with pytest.raises(IncompatibleSchemaError, match=f"'name' was dropped and added again as '{again}'"):
        evolve(T, 9, (ID, replace(NAME, dropped=True)), (ID, Column(again, "string")))


@pytest.mark.parametrize(
    ("before", "now", "goes_on"),
    [
        ({"a": "integer"}, {"a": "integer", "b": "string"}, True),
        ({"a": "integer", "b": "string"}, {"b": "string", "a": "integer"}, True),
        ({"a": "integer"}, {"b": "integer"}, False),
        ({"a": "integer", "b": "string"}, {"a": "integer"}, False),
        ({"a": "integer"}, {"a": "long"}, False),
        ({"a": {"b": "integer"}}, {"a": {"b": "integer", "c": "date"}}, True),
        ({"a": {"b": "integer"}}, {"a": {"c": "integer"}}, False),
        ({"a": {"b": "integer"}}, {"a": "string"}, False),
    ],
)
@pytest.mark.parametrize("wrapped", ["struct", "array", "map"])
def test_nested_columns_may_gain_but_not_lose_fields(
    before: dict[str, Any], now: dict[str, Any], goes_on: bool, wrapped: str
) -> None:
    old, new = (Column("s", "json", json.dumps(_wrapped(_struct(fields), wrapped))) for fields in (before, now))
    if goes_on:
        assert evolve(T, 7, (ID, old), (ID, new)) == (ID, new)
    else:
        with pytest.raises(IncompatibleSchemaError, match="'s' has different nested fields"):
            evolve(T, 7, (ID, old), (ID, new))


def _struct(fields: dict[str, Any]) -> dict[str, Any]:
    types = {name: _struct(type_) if isinstance(type_, dict) else type_ for name, type_ in fields.items()}
    spelled = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in types.items()]
    return {"type": "struct", "fields": spelled}


def _wrapped(type_: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind == "array":
        return {"type": "array", "elementType": type_, "containsNull": True}
    if kind == "map":
        return {"type": "map", "keyType": "string", "valueType": type_, "valueContainsNull": True}
    return type_


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        ((ID,), "'name' is missing"),
        ((Column("id", "integer"), NAME), "'id' was long and is integer"),
        ((ID, Column("name", "interval day")), "'name' was string and is interval day"),
        ((Column("id", "string"), Column("Name", "string")), "'id' was long and is string; 'name' is missing"),
    ],
)
def test_unsupported_schema_change_is_refused(now: tuple[Column, ...], changes: str) -> None:
    with pytest.raises(IncompatibleSchemaError) as caught:
        evolve(T, 7, (ID, NAME), now)

    assert "; ".join(caught.value.changes) == changes


def test_dropped_columns_are_named() -> None:
    assert ColumnsDroppedError(table=T, version=7, columns=["name", "city"]).problem == (
        "main.sales.orders lost columns at version 7: 'name', 'city'."
    )


def test_renamed_column_is_named_with_the_setting_that_continues() -> None:
    now = (ID, Column("title", "string"))
    with pytest.raises(IncompatibleSchemaError, match="'name' was renamed to 'title'") as stopped:
        evolve(T, 7, (ID, NAME), now, renamed={"name": "title"})
    assert "add `title: name` to `rename`" in stopped.value.solution
    with pytest.raises(
        IncompatibleSchemaError, match="'name' was renamed to 'title'; 'id' was long and is string"
    ) as both:
        evolve(T, 7, (NAME, ID), (replace(ID, type="string"), now[1]), renamed={"name": "title"})
    assert "Undo the change in the source" in both.value.solution
