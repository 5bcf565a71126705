"""The net effect of a file, against the same file applied row by row."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorfeed.mirror.local_replica.mirrored_table import net_change

Row = tuple[Any, ...]
UTC = ZoneInfo("UTC")  # as Arrow returns it


def row_by_row(present: list[Row], rows: list[tuple[int, Row]], width: int) -> list[Row]:
    """Apply rows as the table in the specification says. The first `width` values of a row are its key."""
    table = list(present)
    for marker, row in rows:
        key = row[:width]
        matching = [at for at, other in enumerate(table) if None not in key and _same(other[:width], key)]
        if marker == 2:
            table = [other for at, other in enumerate(table) if at not in matching]
        elif marker == 0 or not matching:
            table.append(row)
        else:
            table = [row if at in matching else other for at, other in enumerate(table)]
    return table


def _same(one: Row, other: Row) -> bool:
    return all(a == b or (_nan(a) and _nan(b)) for a, b in zip(one, other, strict=True))


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def net(present: list[Row], rows: list[tuple[int, Row]], schema: pa.Schema, width: int) -> list[Row]:
    keys = schema.names[:width]
    table, file = _table(present, schema), _table([row for _, row in rows], schema)
    markers = pa.chunked_array([[marker for marker, _ in rows]], pa.int32())
    change = net_change(table.select(keys), file, markers, keys)
    result = pa.concat_tables([table.filter(change.remaining), change.added])
    assert change.removes == (table.filter(change.remaining).num_rows < len(present))
    return list(zip(*(column.to_pylist() for column in result.columns), strict=True))


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)], schema=schema)


def bag(rows: list[Row]) -> Counter[str]:
    """Rows in any order. 0.0 equals -0.0, and times are equal if only the time zone type differs."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat()
        return value + 0.0 if isinstance(value, float) else value

    return Counter(repr(tuple(map(plain, row))) for row in rows)


KEY_VALUE = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.mark.parametrize(
    ("marker", "absent", "matching"),
    [
        (0, [(1, "new")], [(1, "old"), (1, "new")]),
        (1, [(1, "new")], [(1, "new")]),
        (2, [], []),
        (4, [(1, "new")], [(1, "new")]),
    ],
)
def test_each_row_marker_has_its_effect_with_and_without_the_key(
    marker: int, absent: list[Row], matching: list[Row]
) -> None:
    assert net([], [(marker, (1, "new"))], KEY_VALUE, 1) == absent
    assert net([(1, "old")], [(marker, (1, "new"))], KEY_VALUE, 1) == matching


@pytest.mark.parametrize(
    ("present", "rows", "expected"),
    [
        pytest.param([], [(0, (1, "a")), (2, (1, None)), (0, (1, "b"))], [(1, "b")], id="insert-delete-insert"),
        pytest.param([], [(2, (1, None)), (0, (1, "a")), (2, (1, None))], [], id="a delete at the end empties the key"),
        pytest.param([(1, "a"), (1, "b")], [(1, (1, "c"))], [(1, "c"), (1, "c")], id="an update takes every row"),
        pytest.param([(1, "a"), (1, "b")], [(2, (1, None))], [], id="a delete takes every row"),
        pytest.param([], [(0, (1, "a")), (0, (1, "b")), (4, (1, "c"))], [(1, "c")] * 2, id="also rows of this file"),
        pytest.param([(1, "a")], [(4, (1, "b")), (0, (1, "c"))], [(1, "b"), (1, "c")], id="an insert after an update"),
        pytest.param([(1, "a")], [(2, (1, None)), (1, (1, "b"))], [(1, "b")], id="an update after a delete inserts"),
        pytest.param([], [(1, (1, "a")), (1, (1, "b"))], [(1, "b")], id="the second update finds the first"),
        pytest.param([(None, "a")], [(4, (None, "b"))], [(None, "a"), (None, "b")], id="a NULL key duplicates"),
        pytest.param([(None, "a")], [(2, (None, "a"))], [(None, "a")], id="a NULL key is not deleted"),
        pytest.param([(2, "z")], [(2, (1, None))], [(2, "z")], id="other keys stay"),
        pytest.param([(1, "a")], [], [(1, "a")], id="no rows, no change"),
    ],
)
def test_rows_are_applied_in_order(present: list[Row], rows: list[tuple[int, Row]], expected: list[Row]) -> None:
    assert net(present, rows, KEY_VALUE, 1) == expected


VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [0, 1, -128],
    pa.int64(): [0, 1, 2**62],
    pa.string(): ["", "a", "ä\x00b"],
    pa.binary(): [b"", b"\xff", b"a"],
    pa.bool_(): [True, False],
    pa.date32(): [date(1970, 1, 1), date(2026, 9, 1)],
    pa.timestamp("us"): [datetime(2026, 1, 1, 0, 0, 0, 1), datetime(1, 1, 1)],
    pa.timestamp("us", "UTC"): [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)],
    pa.decimal128(38, 10): [
        Decimal("0E-10"),
        Decimal("1.1000000000"),
        Decimal("-9999999999999999999999999999.0000000000"),
    ],
    pa.float64(): [0.0, -0.0, float("nan"), 1.5],
    pa.float32(): [0.0, -0.0, float("nan"), float("inf")],
}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row], list[tuple[int, Row]], pa.Schema, int]:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    key = st.tuples(*(st.sampled_from([*VALUES[kind], None]) for kind in types))
    count = st.integers(0, 12)
    present = [(*draw(key), f"old {at}") for at in range(draw(count))]
    rows = [(draw(st.sampled_from([0, 1, 2, 4])), (*draw(key), f"new {at}")) for at in range(draw(count))]
    schema = pa.schema([*((f"k{at}", kind) for at, kind in enumerate(types)), ("v", pa.string())])
    return present, rows, schema, len(types)


@settings(max_examples=max(300, settings().max_examples))
@given(histories())
def test_net_effect_of_a_file_equals_its_rows_one_by_one(
    history: tuple[list[Row], list[tuple[int, Row]], pa.Schema, int],
) -> None:
    present, rows, schema, width = history
    assert bag(net(present, rows, schema, width)) == bag(row_by_row(present, rows, width))
