"""Selected rows of a snapshot and of the feed. `verify` selects the same rows with its own code."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.landing.errors import invalid_condition
from mirrorfeed.landing.schema import FEED_COLUMNS, Column
from mirrorfeed.landing.selection import Selection, TagRules
from mirrorfeed.landing.tag_rules import column_tags_unknown
from mirrorfeed.mirror.verify.expected_rows import select_rows as expected
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source.reader import apply_selection, without_collations
from tests.publish.test_rows_and_markers import DELETE, SHARED, UPSERT, Event, full, landed, net
from tests.raised import raises

pytestmark = pytest.mark.connect

CASES: dict[str, tuple[list[Event], list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    # Events of a table that does not select rows starting with 'x'; rows with net, rows with full
    "a row that moves out is a delete": (
        [(1, "<", 1, "a"), (1, ">", 1, "xa")],
        [(1, None, DELETE)],
        [(1, None, DELETE)],
    ),
    "a row that moves in is an upsert": ([(1, "<", 1, "xa"), (1, ">", 1, "a")], [(1, "a", UPSERT)], [(1, "a", UPSERT)]),
    "a row that stays out is nothing": ([(1, "<", 1, "xa"), (1, ">", 1, "xb"), (2, "-", 1, "xb")], [], []),
    "a row that moves out and in again": (
        [(1, "<", 1, "a"), (1, ">", 1, "xa"), (2, "<", 1, "xa"), (2, ">", 1, "b")],
        [(1, "b", UPSERT)],
        [(1, None, DELETE), (1, "b", UPSERT)],
    ),
    "a row that moves in and out again": (
        [(1, "<", 1, "xa"), (1, ">", 1, "a"), (2, "<", 1, "a"), (2, ">", 1, "xa")],
        [],
        [(1, "a", UPSERT), (1, None, DELETE)],
    ),
    "NULL is not selected": ([(1, "<", 1, "a"), (1, ">", 1, None)], [(1, None, DELETE)], [(1, None, DELETE)]),
    "one that came, and went once it was out": (
        [(1, "+", 1, "a"), (2, "<", 1, "a"), (2, ">", 1, "xa"), (3, "-", 1, "xa")],
        [],
        [(1, "a", UPSERT), (1, None, DELETE)],
    ),
    "a key that changes on the way out": (
        [(1, "<", 1, "a"), (1, ">", 2, "xa")],
        [(1, None, DELETE)],
        [(1, None, DELETE)],
    ),
    "a key that changes on the way in": ([(1, "<", 1, "xa"), (1, ">", 2, "a")], [(2, "a", UPSERT)], [(2, "a", UPSERT)]),
    "two rows that change places, one of them out": (
        [(1, "<", 1, "a"), (1, ">", 2, "a"), (1, "<", 2, "xb"), (1, ">", 1, "xb")],
        [(1, None, DELETE), (2, "a", UPSERT)],
        [(1, None, DELETE), (2, "a", UPSERT)],
    ),
    "a key that an older row has as well, which is out": (
        [(1, "<", 1, "a"), (1, ">", 1, "xa"), (1, "+", 1, "b")],
        [(1, "b", UPSERT)],
        [(1, "b", UPSERT)],
    ),
    "a NULL key that is out": ([(1, "+", None, "xa")], [], []),
    "two live rows of one key": (
        [(1, "+", 1, "b"), (1, "+", 1, "xa"), (2, "<", 1, "xa"), (2, ">", 1, "b")],
        [(1, "b", UPSERT, SHARED)],
        [(1, "b", UPSERT, SHARED)],
    ),
}


@pytest.fixture(scope="module")
def translated(spark: SparkSession) -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    kinds = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}
    rows = [(case, key, v, kinds[kind], at) for case, (events, _, _) in CASES.items() for at, kind, key, v in events]
    events = spark.createDataFrame(rows, "case string, id int, v string, _change_type string, _commit_version long")
    selected = apply_selection("t", events, Selection(where="v NOT LIKE 'x%'"), ["_change_type", "_commit_version"])
    columns = (Column("case", "string"), Column("id", "integer"), Column("v", "string"))
    found: dict[str, dict[str, list[tuple[Any, ...]]]] = {}
    for translate in (net, full):
        by_case = found.setdefault(translate.__name__, {case: [] for case in CASES})
        for case, *row in landed(translate(selected, columns, ["case", "id"])):
            by_case[case].append(tuple(row))
    return found


@pytest.mark.parametrize("translate", ["net", "full"])
@pytest.mark.parametrize("case", CASES)
def test_update_images_are_selected_independently(
    translated: dict[str, dict[str, list[tuple[Any, ...]]]], case: str, translate: str
) -> None:
    _, in_range, by_version = CASES[case]
    found = translated[translate][case]
    if translate == "net":
        assert sorted(found, key=repr) == sorted(in_range, key=repr)
    else:
        assert found == by_version


@pytest.fixture(params=[("UTC", "true"), ("Europe/Oslo", "false")], ids=["in UTC", "in Oslo, as before ANSI"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    names = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
    before = {name: spark.conf.get(name) for name in names}
    for name, value in zip(names, request.param, strict=True):
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


VALUES = """SELECT * FROM VALUES
    (1, 'it\\'s Łódź', 0.0000000001BD, 1.50BD, true, DATE '1582-10-10', TIMESTAMP '2026-10-25 00:30:00Z', 5S),
    (2, 'x', -0.0000000001BD, -0.01BD, false, DATE '9999-12-31', TIMESTAMP '2026-10-25 01:30:00Z', -3S),
    (3, '', 12345678.0000000000BD, 999.99BD, NULL, NULL, TIMESTAMP '1850-01-01 00:00:00.000001Z', NULL),
    (4, NULL, NULL, NULL, true, DATE '0001-01-01', TIMESTAMP '9999-12-31 23:59:59.999999Z', 0S),
    (5, 'X', 0.0000000000BD, 0.00BD, true, DATE '2024-02-29', NULL, 1S)
    AS t(id, text, small, price, flag, day, at, short)"""

ALL = {"id": "bigint", "text": "string(4)", "small": "string", "price": "string", "flag": "string", "day": "string"}


def test_values_are_cast_equally_in_every_session_and_in_verification(session: SparkSession) -> None:
    rows = session.sql(VALUES)
    selection = Selection(
        exclude_columns=("at",), rename={"text": "id", "id": "text"}, cast={**ALL, "short": "decimal(7,2)"}
    )
    found = apply_selection("t", rows, selection)
    assert found.columns == ["text", "id", "small", "price", "flag", "day", "short"]
    assert [tuple(map(str, row)) for row in found.orderBy("text").collect()] == [
        ("1", "it's", "0.0000000001", "1.50", "true", "1582-10-10", "5.00"),
        ("2", "x", "-0.0000000001", "-0.01", "false", "9999-12-31", "-3.00"),
        ("3", "", "12345678.0000000000", "999.99", "None", "None", "None"),
        ("4", "None", "None", "None", "true", "0001-01-01", "0.00"),
        ("5", "X", "0.0000000000", "0.00", "true", "2024-02-29", "1.00"),
    ]
    other = expected(rows, selection)
    assert other.schema.simpleString() == found.schema.simpleString()
    assert other.exceptAll(found).isEmpty()
    assert found.exceptAll(other).isEmpty()


HASHED = ("id", "text", "small", "price", "flag", "day", "short")


def test_values_are_hashed_equally_in_every_session_and_in_verification(session: SparkSession) -> None:
    rows, key = session.sql(VALUES), "a secret of 23 letters"
    selection = Selection(
        HASHED, where="id < 5", rename={"id": "text", "text": "id"}, transform=dict.fromkeys(HASHED, "hash"),
        hash_key=lambda: key,
    )  # fmt: skip
    found, plain = apply_selection("t", rows, selection), Selection(HASHED, cast=dict.fromkeys(HASHED, "string"))
    texts = apply_selection("t", rows.where("id < 5"), plain)
    hashes = {None: None} | {
        text: hmac.new(key.encode(), text.encode(), "sha256").hexdigest() for row in texts.collect() for text in row
        if text is not None
    }  # fmt: skip
    wanted = [tuple(hashes[value] for value in row) for row in texts.orderBy("id").collect()]
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(wanted, key=repr)
    other = expected(rows, selection)
    assert other.schema.simpleString() == found.schema.simpleString()
    assert other.exceptAll(found).isEmpty()
    assert found.exceptAll(other).isEmpty()


def test_values_are_masked_and_truncated_equally_in_verification(session: SparkSession) -> None:
    rows = session.sql(VALUES)
    transform = {"text": "mask('-')", "small": "mask", "price": "mask", "at": "mask", "day": "truncate(month)"}
    selection = Selection(rename={"text": "t"}, cast={"price": "string"}, transform=transform)
    found = apply_selection("t", rows, selection)
    assert [
        tuple(map(str, row)) for row in found.select("t", "small", "price", "at", "day").orderBy("id").collect()
    ] == [
        ("-", "None", "None", "None", day) for day in ("1582-10-01", "9999-12-01", "None", "0001-01-01", "2024-02-01")
    ]
    other = expected(rows, selection)
    assert other.schema.simpleString() == found.schema.simpleString()
    assert other.exceptAll(found).isEmpty()
    years = apply_selection("t", rows, Selection(("day",), transform={"day": "truncate(year)"}))
    assert {str(row.day) for row in years.collect()} == {"1582-01-01", "9999-01-01", "None", "0001-01-01", "2024-01-01"}
    assert years.exceptAll(expected(rows, Selection(("day",), transform={"day": "truncate(year)"}))).isEmpty()


SELECTED = {
    "at >= '2026-10-25 01:00:00'": [2, 4],  # in UTC, in any session time zone
    "at < TIMESTAMP_NTZ '2026-10-25 00:30:00.000001'": [1, 3],
    "hour(at) = 23": [4],
    "Text = 'x'": [2],
    "flag": [1, 4, 5],
    "NOT flag OR day IS NULL": [2, 3],
    "text LIKE 'it\\'s%' OR price BETWEEN 0 AND 0.00": [1, 5],
    "year(day) IN (1582, 9999)": [1, 2],
    "CASE WHEN short > 0 THEN id < 5 ELSE `id` = 4 END": [1, 4],
    "at - at IS NULL AND id > 1 OR coalesce(small, 1) <=> 1": [4, 5],
}


def test_condition_selects_same_rows_in_every_session_and_verification(session: SparkSession) -> None:
    rows = session.sql(VALUES)

    def selected(select: Callable[[DataFrame, Selection], DataFrame]) -> dict[str, list[int]]:
        """Ids by condition, in one query."""
        parts = [
            select(rows, Selection(where=where)).select(F.lit(where).alias("condition"), "id") for where in SELECTED
        ]
        found = reduce(DataFrame.union, parts).groupBy("condition").agg(F.sort_array(F.collect_list("id"))).collect()
        return dict(map(tuple, found))

    assert selected(partial(apply_selection, "t")) == SELECTED
    assert selected(expected) == SELECTED


def test_numbers_are_compared_with_text_equally_in_every_session(session: SparkSession) -> None:
    rows = session.sql("SELECT * FROM VALUES (1, '01'), (2, '3') AS t(id, code)")
    selection = Selection(where="code IN (1, 2)")
    with lossless_settings(session):
        assert [row["id"] for row in apply_selection("t", rows, selection).collect()] == [1]
        assert [row["id"] for row in expected(rows, selection).collect()] == [1]


def test_conditions_ignore_collations(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, collate(t, 'UTF8_LCASE') AS t FROM VALUES (1, 'a'), (2, 'A') AS v(id, t)")
    selection = Selection(where="t = 'a'")
    assert [row["id"] for row in apply_selection("t", without_collations(rows), selection).collect()] == [1]
    assert [row["id"] for row in expected(rows, selection).collect()] == [1]


@pytest.mark.parametrize(("where", "ids"), [("c = 'ab'", []), ("c = 'ab   '", [1]), ("c IN ('ab', 'cd   ')", [2])])
def test_char_columns_are_compared_by_bytes(spark: SparkSession, tmp_path: Path, where: str, ids: list[int]) -> None:
    """In a condition on the column itself, Spark pads the shorter text."""
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (id int, c char(5)) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'ab'), (2, 'cd')")
    with lossless_settings(spark):
        rows, selection = without_collations(spark.read.table(table)), Selection(where=where)
        assert [row["id"] for row in apply_selection("t", rows, selection).collect()] == ids
        assert [row["id"] for row in expected(rows, selection).collect()] == ids


def test_negative_zero_equals_zero_in_conditions(spark: SparkSession, tmp_path: Path) -> None:
    """The Parquet reader uses the dictionary of a file, in which -0.0 is less than 0.0, and skips the file."""
    spark.sql("SELECT id, double('-0.0') AS f, float('-0.0') AS g FROM range(3)").write.parquet(str(tmp_path / "t"))
    rows = spark.read.parquet(str(tmp_path / "t"))
    for where in ("f = 0", "f >= 0", "g IN (0, 1)", "NOT g < 0"):
        selection = Selection(where=where)
        assert apply_selection("t", rows, selection).count() == 3, where
        assert expected(rows, selection).count() == 3, where


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("id", "is not a boolean"),
        ("id = 1 OR", "Syntax error"),
        ("id + 'x' BETWEEN", "Syntax error"),
        ("lower(id, id)", "requires 1 parameter"),
        ("at > flag", "incompatible types"),
    ],
)
def test_invalid_condition_is_rejected(spark: SparkSession, where: str, reason: str) -> None:
    with raises(invalid_condition) as caught:
        apply_selection("main.sales.orders", spark.sql(VALUES), Selection(where=where))
    assert f"The condition {where!r} is not valid for the rows of main.sales.orders: " in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("select", [lambda *given: apply_selection("t", *given), expected])
def test_no_row_is_read_with_rules_for_tags_that_were_not_read(spark: SparkSession, select: Any) -> None:
    """A column that was dropped or added since they were read has unknown tags."""
    rows = spark.createDataFrame([(1, "a", "b")], "id int, email string, own string")
    rules = TagRules({"pii": "mask"}, ("own",))
    for columns, unknown in ((None, "'id', 'email'"), (frozenset({"id"}), "'email'")):
        selection = Selection(transform={"own": "mask"}, tags=replace(rules, columns=columns))
        with raises(column_tags_unknown, match=f"values: {unknown}"):
            select(rows, selection)
    read = Selection(transform={"own": "mask"}, tags=replace(rules, columns=frozenset({"id", "email"})))
    assert select(rows, read).collect() == [(1, "a", None)]


def test_rows_without_a_selection_are_unchanged(spark: SparkSession) -> None:
    rows = spark.sql(VALUES)
    assert apply_selection("t", rows, None, FEED_COLUMNS) is rows
    assert expected(rows, None) is rows
