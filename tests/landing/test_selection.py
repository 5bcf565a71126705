"""The published columns of a selection, and whether a published table can continue with another selection."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorfeed.landing.errors import IncompatibleSchemaError, invalid_condition, invalid_selection, selection_changed
from mirrorfeed.landing.log_record import Record, unselected_columns
from mirrorfeed.landing.schema import Column
from mirrorfeed.landing.selection import (
    Cast,
    Selection,
    check_names,
    selected_schema,
    source_types,
    target_keys,
)
from mirrorfeed.landing.selection_changes import check_source_columns
from tests.raised import raises

TYPES = {
    "id": "long",
    "price": "decimal(10,2)",
    "note": "string",
    "at": "timestamp",
    "part": {"type": "struct", "fields": []},
    "nothing": "void",
}
SCHEMA: dict[str, Any] = {"fields": [{"name": name, "type": type_, "nullable": True} for name, type_ in TYPES.items()]}


def names_and_types(selection: Selection) -> list[tuple[str, Any]]:
    return [(each["name"], each["type"]) for each in selected_schema("t", selection, SCHEMA)["fields"]]


def test_columns_are_selected_renamed_and_cast_in_source_order() -> None:
    selection = Selection(("note", "id", "price"), rename={"id": "order id"}, cast={"price": "string", "id": "bigint"})
    assert names_and_types(selection) == [("order id", "long"), ("price", "string"), ("note", "string")]
    left = Selection(exclude_columns=("part", "at", "nothing"), cast={"note": "string(20)"})
    assert names_and_types(left) == [("id", "long"), ("price", "decimal(10,2)"), ("note", "string")]
    hidden = Selection(("id", "price", "part"), transform={"id": "hash", "price": "mask", "part": "mask"})
    assert names_and_types(hidden) == [("id", "string"), ("price", "decimal(10,2)"), ("part", TYPES["part"])]
    exchanged = Selection(("id", "note"), rename={"id": "note", "note": "id"})
    assert names_and_types(exchanged) == [("note", "long"), ("id", "string")]
    assert selected_schema("t", None, SCHEMA) is SCHEMA


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(("a", "b", "c", "d")), "a, b, c and 1 more"),
        (Selection(exclude_columns=("a",), where="b > 1"), "all except a; where b > 1"),
        (Selection(rename={"a": "b"}, cast={"a": "string(9)", "c": "int"}), "a as b; a: string(9), c: int"),
        (Selection(transform={"a": "hash", "b": "mask('-')"}), "a: hash, b: mask('-')"),
    ],
)
def test_selection_has_a_short_description(selection: Selection, words: str) -> None:
    assert selection.summary == words


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (Selection(rename={"id": "Note"}), "two columns would have the name 'Note'"),
        (Selection(cast={"at": "string"}), "'at' is timestamp, and not all its values can be cast to string exactly"),
        (Selection(cast={"note": "int"}), "'note' is string, and not all its values can be cast to int exactly"),
        (
            Selection(transform={"at": "hash"}),
            "'at' is timestamp, and only values that can be cast to string exactly can be hashed",
        ),
        (
            Selection(transform={"id": "hash"}, cast={"id": "double"}),
            "'id' is double, and only values that can be cast to string exactly can be hashed",
        ),
        (Selection(transform={"at": "truncate(month)"}), "'at' is timestamp, and only dates can be truncated"),
        (
            Selection(transform={"id": "mask('*')"}),
            "'id' is long, and only texts can be replaced by a text; use `mask` without a text",
        ),
        (Selection(where="gone = 1"), "`where` names 'gone', which is not a column of the table"),
        (Selection(where="part IS NULL"), "`where` names 'part', which is nested"),
        (
            Selection(where="at >= '2026-01-01T00:00:00+05:00'"),
            "`where` has the time '2026-01-01T00:00:00+05:00' with a time zone: write the time in UTC, without a time"
            " zone",
        ),
        (
            Selection(where="hour( NOTE ) = 1"),
            "`where` takes the hour, minute or second of the text 'NOTE': cast it to timestamp_ntz",
        ),
        *(
            (
                Selection(where=f"note > '' OR {call} = 1"),
                "`where` takes the hour, minute or second of an expression: cast it to timestamp_ntz",
            )
            for call in (
                "hour(lower(note))",
                "minute('2026-01-01 00:00:00Z')",
                "second(cast(note AS string))",
                "hour((at))",
                "hour(cast(note AS timestamp_ntz) || cast(note AS timestamp_ntz))",
            )
        ),
    ],
)
def test_invalid_selection_is_refused(selection: Selection, reason: str) -> None:
    with raises(invalid_selection) as caught:
        selected_schema("main.sales.orders", selection, SCHEMA)
    assert caught.value.reasons == (reason,)


def test_unknown_column_names_are_refused_with_their_field() -> None:
    selection = Selection(("id", "Price"), rename={"nope": "x"}, cast={"gone": "string"})
    with raises(invalid_selection) as caught:
        check_names("t", selection, source_types(SCHEMA))
    assert caught.value.reasons == (
        "`columns` names 'Price', which the table spells 'price'",
        "`rename` names 'nope', which is not a column of the table",
        "`cast` names 'gone', which is not a column of the table",
    )
    check_names("t", Selection(("id",), where="ID = 1"), source_types(SCHEMA))


def test_condition_refused_by_the_engine_is_reported_with_the_table() -> None:
    assert invalid_condition(table="t", condition="a +", reason="syntax error").problem == (
        "The condition 'a +' is not valid for the rows of t: syntax error."
    )


def test_keys_use_target_names_and_are_never_excluded_or_cut() -> None:
    assert target_keys("t", Selection(rename={"id": "order"}), ("id", "note")) == ("order", "note")
    assert target_keys("t", None, ("id",)) == ("id",)
    assert target_keys("t", Selection(cast={"id": "string"}), ("id",)) == ("id",)
    for selection, reason in (
        (Selection(("note",)), "'id' is a key and cannot be excluded"),
        (Selection(exclude_columns=("id",)), "'id' is a key and cannot be excluded"),
        (Selection(cast={"id": "double"}), "'id' is a key, and different keys could become the same double"),
        (Selection(cast={"id": "string(3)"}), "'id' is a key, and different keys could become the same string(3)"),
    ):
        with raises(invalid_selection) as caught:
            target_keys("t", selection, ("id",))
        assert caught.value.reasons == (reason,)


@pytest.mark.parametrize(
    ("cast", "fit", "not_fit"),
    [
        ("string", ["decimal(38,10)", "long", "boolean", "date", "timestamp_ntz"], ["timestamp", "double", "binary"]),
        ("string(5)", ["string"], ["long", "decimal(3,1)", "struct"]),
        ("INT", ["byte", "short", "integer"], ["long", "decimal(3,0)", "string", "double"]),
        ("double", ["long", "float", "decimal(38,10)"], ["string", "boolean"]),
        ("decimal(12,2)", ["decimal(12,2)", "decimal(10,0)", "integer"], ["decimal(12,1)", "decimal(12,3)", "long"]),
    ],
)
def test_cast_is_allowed_only_if_no_value_is_lost_in_any_session(cast: str, fit: list[str], not_fit: list[str]) -> None:
    assert [type_ for type_ in (*fit, *not_fit) if Cast.parse(cast).keeps_values(type_)] == fit


@pytest.mark.parametrize("text", ["varchar(3)", "string(0)", "decimal(39,2)", "decimal(3,4)", "timestamp", ""])
def test_unsupported_cast_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a type to cast to; use one such as string, string\(20\)"):
        Cast.parse(text)


WAS = {"id": "long", "price": "decimal(10,2)", "note": "string", "secret": "string"}
BEFORE = Selection(exclude_columns=("secret",), where="price > 1", rename={"price": "cost"}, cast={"price": "string"})


def record(columns: tuple[Column, ...], selection: Selection | None, types: dict[str, str] | None) -> Record:
    return Record(1, "b", "2026-11-21", "t", "id", None, 0, columns, (), 2, selection=selection, source_columns=types)


PUBLISHED = record((Column("id", "long"), Column("cost", "string"), Column("note", "string")), BEFORE, WAS)


@pytest.mark.parametrize(
    ("now", "dropped"),
    [
        (BEFORE, []),
        (Selection(("id", "price", "note"), (), "price\n> 1", {"price": "cost"}, {"price": "string"}), []),
        (Selection(("id", "price"), (), "price > 1", {"price": "cost"}, {"price": "string"}), ["note"]),
        (Selection((), ("secret", "price"), "price > 1"), ["id", "cost", "note"]),
        (Selection(None, ("secret", "new"), "price > 1", {"price": "cost"}, {"price": "string"}), []),
    ],
)
def test_newly_excluded_columns_are_dropped_and_others_continue(now: Selection, dropped: list[str]) -> None:
    assert unselected_columns("t", PUBLISHED, now) == dropped


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        (
            None,
            (
                "`where` was 'price > 1' and is none",
                "'price' was published as 'cost' and would be 'price'",
                "the cast of 'price' was 'string' and is none",
                "'secret' was excluded, so its values were never published",
            ),
        ),
        (
            Selection(None, ("secret",), "price > 2", {"price": "cost"}, {"price": "string"}),
            ("`where` was 'price > 1' and is 'price > 2'",),
        ),
        (
            Selection(None, ("secret",), "price > 1", {"price": "cost", "note": "text"}, {"price": "string"}),
            ("'note' was published as 'note' and would be 'text'",),
        ),
        (
            Selection(None, ("secret",), "price > 1", {"price": "cost"}, {"price": "string", "note": "string(2)"}),
            ("the cast of 'note' was none and is 'string(2)'",),
        ),
    ],
)
def test_selection_that_changes_rows_needs_a_new_snapshot(now: Selection | None, changes: tuple[str, ...]) -> None:
    with raises(selection_changed) as caught:
        unselected_columns("main.sales.orders", PUBLISHED, now)
    assert caught.value.changes == changes
    assert "; ".join(changes) in caught.value.problem


def test_new_selection_may_exclude_columns_but_not_rows() -> None:
    columns = (Column("id", "long"), Column("note", "string"), Column("old", "string", dropped=True))
    published = record(columns, None, None)
    assert unselected_columns("t", published, Selection(("id",))) == ["note"]
    with raises(selection_changed, match=r"`where` was none and is 'id > 1'"):
        unselected_columns("t", published, Selection(where="id > 1"))


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        (WAS, None),
        (WAS | {"added": "string"}, None),
        (WAS | {"secret": "binary", "note": "binary"}, None),  # `evolve` reports published columns
        ({name: WAS[name] for name in ("id", "price", "note")}, None),
        ({"id": "long", "price": "decimal(10,2)", "note": "string", "leaked": "string"}, ("'secret' is missing",)),
        (WAS | {"price": "decimal(12,4)"}, ("'price' was decimal(10,2) and is decimal(12,4)",)),
    ],
)
def test_incompatible_source_columns_of_a_selection_are_refused(
    now: dict[str, str], changes: tuple[str, ...] | None
) -> None:
    if changes is None:
        check_source_columns("t", 7, BEFORE, WAS, now, drops=False)
        return
    with pytest.raises(IncompatibleSchemaError) as caught:
        check_source_columns("t", 7, BEFORE, WAS, now, drops=False)
    assert caught.value.changes == changes


def test_new_column_with_the_target_name_of_a_missing_column_is_refused() -> None:
    now = {"id": "long", "cost": "decimal(10,2)", "secret": "string", "note": "string"}
    selection = Selection(rename={"price": "cost"})
    with pytest.raises(IncompatibleSchemaError) as caught:
        check_source_columns("t", 7, selection, WAS, now, drops=False)
    assert caught.value.changes == ("'price' is missing, and 'cost' would be published under its name",)
    check_source_columns("t", 7, selection, WAS, now, drops=False, compared=True)


def test_missing_excluded_column_can_be_renamed_between_two_compared_versions() -> None:
    now = {"id": "long", "price": "decimal(10,2)", "note": "string", "leaked": "string"}
    with pytest.raises(IncompatibleSchemaError, match="'secret' is missing"):
        check_source_columns("t", 7, BEFORE, WAS, now, drops=False, compared=True)


def test_dropped_excluded_column_is_not_a_rename() -> None:
    now = {"id": "long", "price": "decimal(10,2)", "note": "string", "added": "string"}
    check_source_columns("t", 7, BEFORE, WAS, now, drops=True)
