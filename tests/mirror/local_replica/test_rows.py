"""How data files change the mirror of a table, end to end."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mirrorfeed.lint import column_rules as columns
from mirrorfeed.lint.specification import LintRule
from mirrorfeed.mirror.errors import file_breaks_rule, mirror_keys_changed, year_out_of_range
from mirrorfeed.mirror.local_replica import State
from tests.mirror.local_replica.conftest import MARKER, World, is_error, marked, plain


@pytest.mark.parametrize(
    ("marker", "absent", "present"),
    [
        (0, [(1, "new")], [(1, "new"), (1, "old")]),
        (1, [(1, "new")], [(1, "new")]),
        (2, [], []),
        (4, [(1, "new")], [(1, "new")]),
    ],
)
def test_each_row_marker_has_its_documented_effect(
    world: World, marker: int, absent: list[tuple[int, str]], present: list[tuple[int, str]]
) -> None:
    world.put("orders", 1, marked((1, "new", marker)))
    assert world.step().rows == {marker: 1}
    assert world.rows() == absent

    world.recreate(keyColumns=["id"])
    world.put("orders", 1, plain((1, "old")))
    world.put("orders", 2, marked((1, "new", marker)))
    assert world.step().rows == ({0: 2} if marker == 0 else {0: 1, marker: 1})
    assert world.rows() == present


def test_rows_and_files_are_applied_in_order(world: World) -> None:
    world.put("orders", 1, marked((1, "a", 0), (1, None, 2), (1, "b", 0), (2, "x", 0)))
    world.put("orders", 2, marked((2, None, 2), (1, "c", 1)))
    world.put("orders", 3, marked((2, "y", 4)))
    report = world.step()
    assert (report.state, report.files, report.rows) == (State.REPLICATING, 3, {0: 3, 1: 1, 2: 2, 4: 1})
    assert world.rows() == [(1, "c"), (2, "y")]


@pytest.mark.parametrize(
    ("days", "applied"), [(-719_163, False), (-719_162, True), (2_932_896, True), (2_932_897, False)]
)
def test_unsupported_year_stops_only_its_table(world: World, days: int, applied: bool) -> None:
    """The engine can write a year outside 1 to 9999, but cannot read the table afterwards."""
    due = pa.array([0, days], pa.int32()).cast(pa.date32())
    file = world.put("orders", 1, plain((1, "a"), (2, "b")).append_column("due", due))
    world.put("others", 1, plain((1, "a")))
    orders, others = world.replica.run_pass()
    assert (orders.state, others.state) == (State.REPLICATING if applied else State.FAILED, State.REPLICATING)
    if not applied:
        assert is_error(orders, year_out_of_range, address=str(file), column="due")
    world.put("orders", 1 if not applied else 2, marked((1, "c", 4)))
    assert world.replica.run_pass()[0].state is State.REPLICATING


@pytest.mark.parametrize("place", ["first", "last"])
def test_marker_may_be_the_first_or_the_last_column(world: World, place: str) -> None:
    rows = marked((1, "a", 4), (1, "b", 4))
    world.put("orders", 1, rows.select([MARKER, "id", "name"]) if place == "first" else rows)
    world.step()
    assert world.rows() == [(1, "b")]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint8()])
def test_marker_may_have_any_integer_type(world: World, kind: pa.DataType) -> None:
    world.put("orders", 1, plain((1, "a"), (1, "b")).append_column(MARKER, pa.array([4, 4], kind)))
    world.step()
    assert world.rows() == [(1, "b")]


def test_file_without_markers_inserts_even_after_files_with_them(world: World) -> None:
    world.put("orders", 1, marked((1, "a", 4)))
    world.put("orders", 2, plain((1, "b")))
    world.step()
    assert world.rows() == [(1, "a"), (1, "b")]


def test_file_without_markers_upserts_if_configured(world: World) -> None:
    world.metadata(keyColumns=["id"], isUpsertDefaultRowMarker=True)
    world.put("orders", 1, plain((1, "a"), (2, "x")))
    world.put("orders", 2, plain((1, "b")))
    world.put("orders", 3, marked((2, "y", 0)))
    assert world.step().rows == {0: 1, 4: 3}
    assert world.rows() == [(1, "b"), (2, "x"), (2, "y")]


def test_null_keys_insert_duplicates_instead_of_updating(world: World) -> None:
    world.put("orders", 1, marked((None, "a", 4)))
    world.put("orders", 2, marked((None, "b", 1), (None, None, 2)))
    world.step()
    assert world.rows() == [(None, "a"), (None, "b")]


def test_all_columns_of_a_composite_key_must_match(world: World) -> None:
    world.metadata(keyColumns=["day", "id"])

    def file(marker: int, *rows: tuple[int, date, str | None]) -> pa.Table:
        ids, days, names = zip(*rows, strict=True)
        markers = pa.array([marker] * len(ids), pa.int32())
        return pa.table({"id": ids, "day": days, "name": pa.array(names, pa.string()), MARKER: markers})

    one, two = date(2026, 1, 1), date(2026, 1, 2)
    world.put("orders", 1, file(4, (1, one, "a"), (1, two, "b"), (2, one, "c")))
    world.put("orders", 2, file(4, (1, two, "B")))
    world.put("orders", 3, file(2, (2, one, None), (2, two, None)))
    world.step()
    assert world.rows() == [(1, one, "a"), (1, two, "B")]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.string(), "a", "A"),
        (pa.binary(), b"\x00", b""),
        (pa.decimal128(20, 4), Decimal("1.0000"), Decimal("1.0001")),
        (pa.date32(), date(2026, 1, 1), date(2026, 1, 2)),
        (pa.timestamp("us"), datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (pa.float64(), 0.1, 0.2),
        (pa.bool_(), True, False),
    ],
)
def test_keys_of_every_type_are_compared_by_value(world: World, kind: pa.DataType, one: Any, other: Any) -> None:
    def file(*rows: tuple[Any, str, int]) -> pa.Table:
        keys, names, markers = zip(*rows, strict=True)
        return pa.table({"id": pa.array(keys, kind), "name": names, MARKER: pa.array(markers, pa.int32())})

    world.put("orders", 1, file((one, "a", 0), (other, "b", 0)))
    world.put("orders", 2, file((one, "c", 4), (other, "", 2)))
    world.step()
    assert [name for _, name in world.rows()] == ["c"]
    assert world.delta().schema().to_arrow().field("id").type == kind


@pytest.mark.parametrize(
    ("kind", "value", "becomes", "shows"),
    [
        (pa.uint8(), 255, pa.int16(), 255),
        (pa.uint64(), 2**64 - 1, pa.decimal128(20), Decimal(2**64 - 1)),
        (pa.large_string(), "a", pa.string(), "a"),
        (pa.large_binary(), b"a", pa.binary(), b"a"),
        (pa.dictionary(pa.int32(), pa.string()), "a", pa.string(), "a"),
        (pa.timestamp("ns"), datetime(2026, 1, 1, 1), pa.timestamp("us"), datetime(2026, 1, 1, 1)),
        (pa.timestamp("ms", "Europe/Berlin"), datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"), None),
        (pa.binary(2), b"ab", pa.binary(), b"ab"),
    ],
)
def test_unsupported_types_become_the_next_larger_delta_type(
    world: World, kind: pa.DataType, value: Any, becomes: pa.DataType, shows: Any
) -> None:
    world.metadata()
    world.put("orders", 1, pa.table({"v": pa.array([value], kind)}))
    assert world.step().message == ""
    assert pa.schema(world.delta().schema().to_arrow()).field("v").type == becomes
    assert world.rows() == [(value if shows is None else shows,)]


def test_file_with_a_schema_and_no_rows_creates_the_table(world: World) -> None:
    world.put("orders", 1, plain())
    report = world.step()
    assert (report.state, report.files, report.rows) == (State.REPLICATING, 1, {})
    assert world.delta().schema().to_arrow().names == ["id", "name"]
    world.put("orders", 2, plain((1, "a")))
    assert world.step().files == 1
    assert world.rows() == [(1, "a")]


def test_table_without_keys_accepts_inserts(world: World) -> None:
    world.metadata()
    world.put("orders", 1, marked((1, "a", 0)))
    world.put("orders", 2, plain((1, "a")))
    world.step()
    assert world.rows() == [(1, "a"), (1, "a")]


@pytest.mark.parametrize("marker", [1, 2, 4])
def test_changes_of_a_table_without_keys_wait_for_keys(world: World, marker: int) -> None:
    world.metadata()
    world.put("orders", 1, plain((1, "a")))
    path = world.put("orders", 2, marked((1, "b", marker)))
    report = world.step()
    assert (report.state, report.files) == (State.FAILED, 1)
    finding = columns.KEYLESS.finding(str(path), kinds="updates, deletes or upserts")
    assert is_error(report, file_breaks_rule, finding=finding)
    world.metadata(keyColumns=["id"])
    assert world.step().state is State.REPLICATING
    assert world.rows() == ([] if marker == 2 else [(1, "b")])


def test_metadata_may_be_added_after_the_first_files(world: World) -> None:
    (world.zone / "orders/_metadata.json").unlink()
    world.put("orders", 1, plain((1, "a")))
    assert world.step().state is State.REPLICATING
    world.metadata(KeyColumns=["id"])
    world.put("orders", 2, marked((1, "b", 1)))
    world.step()
    assert world.rows() == [(1, "b")]


@pytest.mark.parametrize(("keys", "now"), [(["name"], ("name",)), (["id", "name"], ("id", "name")), ([], ("none",))])
def test_keys_cannot_change(world: World, keys: list[str], now: tuple[str, ...]) -> None:
    world.put("orders", 1, plain((1, "a")))
    world.step()
    world.metadata(keyColumns=keys)
    world.put("orders", 2, plain((2, "b")))
    report = world.step()
    assert (report.state, report.files) == (State.FAILED, 0)
    assert is_error(report, mirror_keys_changed, table="orders", before=("id",), now=now)
    world.metadata(keyColumns=["id"])
    assert world.step().files == 1


@pytest.mark.parametrize(
    ("rows", "rule", "values"),
    [
        (marked((1, "a", 4), (2, "b", 3)), columns.VALUE, {"values": ["3"], "count": 1, "first": 2}),
        (plain((1, "a")).append_column(MARKER, pa.array([None], pa.int32())), columns.NULL, {"count": 1, "rows": 1}),
        (plain((1, "a")).append_column(MARKER, pa.array(["4"])), columns.TYPE, {"type": "string"}),
        (
            marked((1, "a", 4)).select(["id", MARKER, "name"]),
            columns.NOT_LAST,
            {"problem": ("is column 2 of 3, not the last")},
        ),
        (plain((1, "a")).drop_columns(["id"]), columns.NO_KEY, {"key": "id", "hint": "it has 'name'"}),
        (pa.table([[1], [2]], names=["id", "id"]), columns.NAME_TWICE, {"column": "id", "how": "twice"}),
        (
            pa.table({"id": [1], "tags": [["a"]]}),
            columns.UNSUPPORTED,
            {"column": "tags", "type": "list<element: string>"},
        ),
    ],
)
def test_file_that_cannot_be_applied_stops_the_table_until_replaced(
    world: World, rows: pa.Table, rule: LintRule, values: dict[str, Any]
) -> None:
    path = world.put("orders", 1, rows)
    world.put("orders", 2, plain((2, "b")))
    report = world.step()
    assert (report.state, report.files) == (State.FAILED, 0)
    assert is_error(report, file_breaks_rule, finding=rule.finding(str(path), **values))
    world.put("orders", 1, plain((1, "a")))
    assert world.step().files == 2
    assert world.rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("content", "code", "reason"),
    [
        (b"", "MF203", "It cannot be read: it is empty. Write the file again as one JSON object"),
        (
            json.dumps({"keyColumns": "id"}).encode(),
            "MF206",
            'keyColumns is the text "id", not a list. Set a list of column names, each name once:'
            ' `"keyColumns": ["C1", "C2"]`',
        ),
    ],
)
def test_invalid_metadata_stops_the_table_until_corrected(world: World, content: bytes, code: str, reason: str) -> None:
    path = world.put("orders", "_metadata.json", content)
    world.put("orders", 1, plain((1, "a")))
    report = world.step()
    assert report.state is State.FAILED
    assert report.message == f"Cannot apply {path} ({code}): {reason}."
    world.metadata(keyColumns=["id"])
    assert world.step().files == 1
