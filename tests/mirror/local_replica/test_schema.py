"""Columns that are added, removed and changed."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from mirrorfeed.lint.column_rules import NULL_VALUE, OTHER_CASE, REQUIRED_GONE
from mirrorfeed.mirror.errors import TypeChangedError, file_breaks_rule
from mirrorfeed.mirror.local_replica import State
from tests.mirror.local_replica.conftest import MARKER, World, is_error, marked, plain


def test_new_column_is_added_and_null_in_old_rows(world: World) -> None:
    world.put("orders", 1, plain((1, "a"), (2, "b")))
    new = pa.array([datetime(2026, 1, 1), None], pa.timestamp("us"))
    rows = marked((2, "c", 4), (3, "d", 4)).add_column(2, "at", new)
    world.put("orders", 2, rows)
    assert world.step().state is State.REPLICATING
    assert world.rows() == [(1, "a", None), (2, "c", datetime(2026, 1, 1)), (3, "d", None)]


def test_column_missing_in_new_files_remains_and_is_null_in_new_rows(world: World) -> None:
    world.put("orders", 1, plain((1, "a"), (2, "b")))
    world.put("orders", 2, marked((2, "", 4), (3, "", 4)).drop_columns(["name"]))
    world.put("orders", 3, plain((4, "d")))
    assert world.step().state is State.REPLICATING
    assert world.rows() == [(1, "a"), (2, None), (3, None), (4, "d")]


REQUIRED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])


def test_missing_column_that_is_not_nullable_fails_the_table(world: World) -> None:
    world.put("orders", 1, plain((1, "a")).cast(REQUIRED))
    path = world.put("orders", 2, plain((2, "b")).drop_columns(["name"]))
    report = world.step()
    assert (report.state, report.files) == (State.FAILED, 1)
    assert is_error(report, file_breaks_rule, finding=REQUIRED_GONE.finding(str(path), column="name"))


def test_null_in_a_column_that_is_not_nullable_fails_the_table(world: World) -> None:
    world.put("orders", 1, plain((1, "a")).cast(REQUIRED))
    path = world.put("orders", 2, marked((2, None, 4)))
    report = world.step()
    assert (report.state, report.files) == (State.FAILED, 1)
    assert is_error(report, file_breaks_rule, finding=NULL_VALUE.finding(str(path), column="name", count=1))


def test_a_column_that_becomes_not_nullable_in_a_later_file_may_still_be_left_out(world: World) -> None:
    world.put("orders", 1, plain((1, "a")))
    world.put("orders", 2, plain((2, "b")).cast(REQUIRED))
    world.put("orders", 3, plain((3, "c")).drop_columns(["name"]))
    assert world.step().state is State.REPLICATING
    assert world.rows() == [(1, "a"), (2, "b"), (3, None)]


def test_a_column_that_becomes_nullable_in_a_later_file_still_holds_no_null(world: World) -> None:
    world.put("orders", 1, plain((1, "a")).cast(REQUIRED))
    world.put("orders", 2, plain((2, "b")))
    path = world.put("orders", 3, plain((3, None)))
    report = world.step()
    assert (report.state, report.files) == (State.FAILED, 2)
    assert is_error(report, file_breaks_rule, finding=NULL_VALUE.finding(str(path), column="name", count=1))


def test_delete_needs_only_its_key(world: World) -> None:
    world.put("orders", 1, plain((1, "a"), (2, "b")).cast(REQUIRED))
    world.put("orders", 2, marked((1, None, 2)))
    assert world.step().state is State.REPLICATING
    assert world.rows() == [(2, "b")]
    assert not pa.schema(world.delta().schema().to_arrow()).field("name").nullable


def test_changed_type_stops_only_its_table_until_the_folder_is_recreated(world: World) -> None:
    world.put("orders", 1, plain((1, "a")))
    path = world.put("orders", 2, plain((2, "b")).set_column(1, "name", pa.array([2], pa.int32())))
    world.put("items", 1, plain((1, "a")))
    items, orders = world.replica.run_pass()
    assert (items.table, items.state) == ("items", State.REPLICATING)
    assert (orders.table, orders.state, orders.files) == ("orders", State.FAILED, 1)
    assert is_error(orders, TypeChangedError, table="orders", address=str(path), changed={"name": ("string", "int32")})
    message = orders.message

    world.put("orders", 2, plain((2, "b")))  # a file with correct types comes too late
    world.put("items", 2, plain((2, "b")))
    items, orders = world.replica.run_pass()
    assert (items.files, orders.files, orders.message) == (1, 0, message)
    assert world.rows() == [(1, "a")]

    world.recreate(keyColumns=["id"])
    world.put("orders", 1, pa.table({"id": [1], "name": pa.array([2], pa.int32())}))
    _, orders = world.replica.run_pass()
    assert orders.state is State.REPLICATING
    assert world.rows() == [(1, 2)]


@pytest.mark.parametrize(("old", "new"), [("int32", "int64"), ("float", "double"), ("timestamp[us]", "date32[day]")])
def test_wider_type_counts_as_a_changed_type(world: World, old: str, new: str) -> None:
    kinds = {str(kind): kind for kind in (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32())}
    kinds["timestamp[us]"] = pa.timestamp("us")
    world.put("orders", 1, pa.table({"id": pa.nulls(1, kinds[old])}))
    world.put("orders", 2, pa.table({"id": pa.nulls(1, kinds[new])}))
    assert f"changes the type of id from {old} to {new}." in world.step().message


def test_names_that_differ_in_case_only_are_refused(world: World) -> None:
    world.put("orders", 1, plain((1, "a")))
    path = world.put("orders", 2, plain((2, "b")).rename_columns(["id", "Name"]))
    finding = OTHER_CASE.finding(str(path), column="Name", before="name")
    assert is_error(world.step(), file_breaks_rule, finding=finding)


def test_names_with_special_characters_are_valid_columns_and_keys(world: World) -> None:
    world.metadata(keyColumns=["the id; `quoted`"])
    file = pa.table({"the id; `quoted`": [1, 1], "a.b": ["x", "y"], MARKER: pa.array([4, 4], pa.int32())})
    world.put("orders", 1, file)
    world.step()
    assert world.rows() == [(1, "y")]


def test_names_with_characters_that_need_column_mapping_are_replicated(world: World) -> None:
    world.put("orders", 1, pa.table({"id": [1], "a b,;{}()\n\t=": ["x"]}))
    assert world.step().state is State.REPLICATING
    assert world.rows() == [(1, "x")]
