"""Files that comparisons skip, using only partition values and statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from mirrorfeed.archive.data_files import TableMetadata
from mirrorfeed.archive.data_skipping import UncertainFiles, may_match, to_comparison

FIELDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "id": ("integer", {}),
    "at": ("date", {"delta.columnMapping.physicalName": "col-1"}),
    "v": ("string", {}),
    "day": ("date", {}),
    "price": ("double", {}),
    "code": ("string", {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}),
    "grown": ("long", {"delta.typeChanges": []}),
    "nested": ({"type": "struct", "fields": [{"type": "long"}] * 30}, {}),
    "late": ("long", {}),
}
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": n, "type": t, "metadata": m} for n, (t, m) in FIELDS.items()]}
)


def table(partitions: Sequence[str] = ("day",), properties: Mapping[str, str] | None = None) -> TableMetadata:
    return TableMetadata("t-1", SCHEMA, tuple(partitions), properties or {})


def stats(**others: Any) -> str:
    ends: Mapping[str, Any] = (
        {"id": 10, "col-1": "2026-01-10", "v": "k"},
        {"id": 20, "col-1": "2026-01-20", "v": "p\ufffd"},
    )
    found = {"numRecords": 5, "nullCount": {"id": 0, "col-1": 1, "v": 5}, "minValues": ends[0], "maxValues": ends[1]}
    return json.dumps(found | others)


NO_NULLS = {"id": 0, "col-1": 0, "v": 0}


@pytest.mark.parametrize(
    ("comparisons", "statistics", "retained"),
    [
        ([("id", "=", 10)], stats(), True),
        ([("id", "=", 20)], stats(), True),
        ([("id", "=", 9)], stats(), False),
        ([("id", "=", 21)], stats(), False),
        ([("id", "<", 10)], stats(), False),
        ([("id", "<=", 10)], stats(), True),
        ([("id", ">", 20)], stats(), False),
        ([("id", ">=", 20)], stats(), True),
        ([("id", ">", 12), ("id", "<", 5)], stats(), False),
        ([("at", "=", date(2026, 1, 9))], stats(), False),
        ([("AT", ">=", date(2026, 1, 20))], stats(), True),
        ([("v", "=", "p and more")], stats(nullCount=NO_NULLS), True),
        ([("v", "<", "k")], stats(nullCount=NO_NULLS), False),
        ([("v", "IS NOT NULL", None)], stats(), False),
        ([("at", "IS NOT NULL", None)], stats(), True),
        # All values are NULL, so there are no bounds, and nothing can match.
        ([("id", "=", 15)], stats(nullCount={"id": 5}, minValues={}, maxValues={}), False),
        # A missing statistic keeps the file, whatever the other statistics contain.
        ([("id", "=", 9)], None, True),
        ([("id", "=", 9)], stats(minValues={}), True),
        ([("id", "<", 9)], stats(maxValues={}), False),
        ([("id", "=", 9)], stats(nullCount={}), True),
        ([("id", "=", 9)], stats(numRecords=None), True),
        ([("id", "=", 9), ("at", "=", date(2026, 1, 15))], stats(nullCount={"id": 0}), True),
        ([("day", "=", date(2026, 1, 1))], None, True),
        ([("day", ">", date(2026, 1, 1))], None, False),
        ([("day", "IS NOT NULL", None)], None, True),
        ([], None, True),
    ],
)
def test_file_is_retained_unless_a_match_is_ruled_out(
    comparisons: list[Any], statistics: str | None, retained: bool
) -> None:
    found = [to_comparison(table(), *each) for each in comparisons]
    # Next to a file without useful statistics, in a slice that does not start at the beginning of its array.
    texts = pa.array([stats(), statistics, None]).slice(1)
    days = pa.array(["2026-01-01", "2026-01-01"])
    assert may_match(found, lambda _: days, texts)[0].as_py() is retained


def test_file_with_null_partition_matches_no_comparison() -> None:
    days = pa.array([None, "2026-01-01"], pa.string())
    for found in (to_comparison(table(), "day", "<=", date(2026, 1, 1)), to_comparison(table(), "day", "IS NOT NULL")):
        assert may_match([found], lambda _: days, pa.array([None, None], pa.string())).to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("column", "properties"),
    [
        ("price", {}),
        ("code", {}),
        ("grown", {}),
        ("nested", {}),
        ("late", {}),
        ("gone", {}),
        ("id", {"delta.dataSkippingNumIndexedCols": "0"}),
        ("id", {"delta.dataSkippingStatsColumns": "v"}),
    ],
)
def test_unsupported_columns_are_left_to_delta(column: str, properties: dict[str, str]) -> None:
    with pytest.raises(UncertainFiles):
        to_comparison(table(properties=properties), column, "IS NOT NULL")


@pytest.mark.parametrize("spelled", ["", "x"])
def test_invalid_partition_value_is_left_to_delta(spelled: str) -> None:
    with pytest.raises((UncertainFiles, pa.ArrowInvalid)):
        may_match([to_comparison(table(), "day", "IS NOT NULL")], lambda _: pa.array([spelled]), pa.array([None]))


@pytest.mark.parametrize("statistics", ["", "{\n}", "{} {}", "5", '{"numRecords": 1.5}', '{"minValues": {"id": "x"}}'])
def test_invalid_statistics_are_left_to_delta(statistics: str) -> None:
    found = [to_comparison(table([], {}), "id", "=", 5)]
    with pytest.raises((UncertainFiles, pa.ArrowInvalid)):
        may_match(found, lambda _: pa.array([None]), pa.array([statistics]))
