"""Division of a first load into parts: pure plans in tables, and Delta tables whose parts are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.landing.load_part import LoadPart
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.source.load_plan import MAX_READ, FileRange, Plan, best_part, divide, first_part, rows_of_part
from mirrorfeed.source.reader import read_version
from tests.support.delta import DeltaTable


def files(*bounds: tuple[int, int], size: int = 10) -> list[FileRange]:
    """Files of `size` bytes and rows, with these least and greatest values."""
    return [FileRange(size, size, str(least), str(greatest)) for least, greatest in bounds]


def disjoint(count: int) -> list[FileRange]:
    return files(*((100 * at, 100 * at + 99) for at in range(count)))


def ends(plan: Plan) -> list[int | None]:
    return [None if each.up_to is None else int(each.up_to) for each in plan.slices]


@pytest.mark.parametrize(
    ("given", "part_bytes", "expected"),
    [
        (disjoint(4), 20, [199, None]),
        (disjoint(4), 10, [99, 199, 299, None]),
        (disjoint(4), 1, [99, 199, 299, None]),  # a file is never divided if its values are not known
        (disjoint(4), 40, [None]),
        (disjoint(5), 20, [199, 399, None]),
        (files((0, 10), (5, 20), (15, 30), (25, 40)), 20, [20, None]),  # neighbours overlap
        (files((0, 99), (0, 99), (0, 99), (0, 99)), 10, [None]),  # every part would read every file
        (files((0, 10), (10, 10), (10, 10), (11, 20)), 10, [10, None]),  # one value is in one part
        ([FileRange(10, 10, None, None, 10), *disjoint(2)], 10, [99, None]),  # NULL is in the first part
        (files((9, 9), (10, 10)), 10, [9, None]),  # in the order of numbers, not of texts
    ],
)
def test_plan_divides_files_between_their_values(
    given: list[FileRange], part_bytes: int, expected: list[int | None]
) -> None:
    plan = divide(given, part_bytes, int)

    assert ends(plan) == expected
    assert sum(each.bytes for each in plan.slices) == sum(each.bytes for each in given)
    assert sum(each.rows for each in plan.slices) == sum(each.rows for each in given)
    assert plan.read_bytes <= MAX_READ * sum(each.bytes for each in given)


def test_plan_has_fewer_parts_if_wide_files_are_read_for_each() -> None:
    narrow = disjoint(36)
    wide = files(*[(0, 3599)] * 4)

    plan = divide([*narrow, *wide], 10, int)

    assert 3 <= len(plan.slices) <= 6
    assert plan.read_bytes <= MAX_READ * 400


def test_nulls_of_a_file_are_read_for_the_first_part() -> None:
    later = FileRange(10, 10, "200", "299", nulls=3)

    assert divide([*disjoint(2), later], 10, int).read_bytes == 40


def test_first_of_the_columns_with_small_parts_is_chosen() -> None:
    coarse, fine, one = divide(disjoint(2), 10, int), divide(disjoint(4), 10, int), divide(disjoint(1), 10, int)

    def chosen(**plans: Plan) -> str | None:
        part = best_part(plans, part_bytes=2)
        return part and part.column

    assert chosen(key=coarse, day=coarse) == "key"
    assert chosen(key=one, day=fine) is None or chosen(key=one, day=fine) == "key"
    big = files((0, 9), (10, 19), size=100)
    assert chosen(key=divide(big, 100, int), day=divide([*big, *disjoint(1)], 100, int)) == "key"
    assert chosen(key=divide(files((0, 9), (0, 9), size=50), 10, int), day=divide(disjoint(10), 10, int)) == "day"
    assert chosen(key=one) is None
    assert chosen() is None


VALUES: dict[str, tuple[str, Sequence[str]]] = {
    "k": ("bigint", ["-3L", "0L", "2L", "10L", "9223372036854775807L"]),
    "d": ("decimal(20,4)", ["-1.5", "-0.0001", "0.00001", "2", "10.25"]),
    "s": ("string", ["''", "'A'", "'a''b\\\\'", "'ä'", "'\U0001f600'"]),
    "day": ("date", [f"DATE'{day}'" for day in ("1900-01-01", "1969-12-31", "1970-01-01", "2026-02-28", "9999-12-31")]),
    "ts": ("timestamp", [f"timestamp_micros({micros})" for micros in (-1_000_001, -1, 0, 1_000_001, 179 * 10**13 + 1)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Files in the order of their values, one with a deletion vector, and one with NULL in all columns."""
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in VALUES.items())
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "parts", f"n int, {columns}", properties=properties)
    for at in range(5):
        row = ", ".join(f"{values[at]}" for _, values in VALUES.values())
        created.sql(f"INSERT INTO {{}} SELECT id, {row} FROM range(0, 3, 1, 1)")
    created.sql("INSERT INTO {} (n) VALUES (7)")
    created.sql("DELETE FROM {} WHERE n = 1 AND k = 2")
    return created


def parts_of(part: LoadPart | None) -> list[LoadPart]:
    assert part is not None
    return [part, *([] if part.is_last else parts_of(part.next))]


@pytest.mark.parametrize(
    "column", ["k", *(pytest.param(each, marks=pytest.mark.slow) for each in ("s", "d", "day", "ts"))]
)
def test_parts_together_have_each_row_once(table: DeltaTable, column: str) -> None:
    version, zone = table.latest, "spark.sql.session.timeZone"
    rows = read_version(table.spark, table.source, version)
    with setting(table.spark, zone, "America/New_York"):
        parts = parts_of(first_part(rows, rows.columns, [column], (), part_bytes=1))

    assert {part.column for part in parts} == {column}
    assert [len(part.slices) for part in parts] == [5] * 5
    found = [rows_of_part(read_version(table.spark, table.source, version), part) for part in parts]
    counts = [Counter(map(str, each.collect())) for each in found]
    assert sum(counts, Counter[str]()) == Counter(map(str, rows.collect()))
    assert [each.total() for each in counts] == [4, 3, 2, 3, 3]
    assert [part.slice.rows for part in parts] == [4, 3, 2, 3, 3]
    # Delta itself skips the files of other parts. The first part also reads the file with NULL. Delta rounds the bounds
    # of times to milliseconds, so a neighbour is read too.
    read = [2, 1, 1, 1, 1] if column != "ts" else [2] * 5
    assert [len(each.inputFiles()) for each in found] == read


@pytest.mark.slow
def test_values_with_another_order_or_without_text_divide_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """For dates of October 1582, Delta wrongly skips files."""
    columns = "f double, b binary, s string, day date, at timestamp"
    table = DeltaTable(spark, tmp_path / "t", columns)
    for at in range(2):
        old = f"DATE'1582-10-0{at + 8}', TIMESTAMP'1582-10-0{at + 8} 00:00:00Z'"
        table.sql(f"INSERT INTO {{}} SELECT {at}.5D, X'0{at}', CAST(X'FF0{at}' AS string), {old}")

    rows = read_version(spark, table.source, table.latest)
    assert first_part(rows, rows.columns, rows.columns, (), 1) is None


@pytest.mark.slow
def test_partitions_and_times_divide_a_table_whose_keys_do_not(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, region string, at date", by="region")
    for day, region in enumerate(("eu", "eu", "us")):
        table.sql(f"INSERT INTO {{}} SELECT id, '{region}', date_from_unix_date({day}) FROM range(0, 9, 1, 1)")
    rows = read_version(spark, table.source, table.latest)

    def column(*partitions: str) -> str | None:
        part = first_part(rows, rows.columns, ["id"], partitions, part_bytes=1_500)
        return part and part.column

    assert column("region") == "region"
    assert column() == "at"


def test_decimal_bounds_keep_their_digits() -> None:
    plan = divide([FileRange(9, 9, "1E-7", "2.50"), FileRange(9, 9, "2.6", "1E+9")], 9, Decimal)

    assert plan.slices[0].up_to == "2.50"
