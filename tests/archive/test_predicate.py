from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.data_skipping import apply_condition
from mirrorfeed.archive.errors import InvalidPredicateError


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(20).selectExpr("id", "concat('v', id) AS v", "named_struct('b', id) AS a")


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (None, 20),
        ("id < 5", 5),
        ("v LIKE 'v1%' AND a.b <> 10 -- a comment", 10),
        ("id = 1) OR (id = 2", None),
        ("current_date() > DATE '2020-01-01'", 20),
        ("exists(array(id), x -> x > 17)", 2),
        ("CAST(NULL AS boolean)", 0),
    ],
)
def test_condition_on_a_row_is_accepted(frame: DataFrame, predicate: str | None, rows: int | None) -> None:
    if rows is None:
        with pytest.raises(InvalidPredicateError, match="cannot be parsed"):
            apply_condition(frame, "t", predicate)
    else:
        assert apply_condition(frame, "t", predicate).count() == rows


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        ("id = = 1", "cannot be parsed"),
        ("", "cannot be parsed"),
        ("id = 1; DROP TABLE t", "cannot be parsed"),
        ("id = 1 /* never closed", "cannot be parsed"),
        ("nope = 1", "names `nope`, which is not a column of the table"),
        ("id IN (SELECT 1)", "contains a subquery"),
        ("EXISTS (SELECT 1)", "contains a subquery"),
        ("id = (SELECT max(id) FROM range(3))", "contains a subquery"),
        ("rand() > 0.5", "contains a nondeterministic function"),
        ("v = uuid()", "contains a nondeterministic function"),
        ("id = monotonically_increasing_id()", "contains a nondeterministic function"),
        ("input_file_name() = 'x'", "contains a nondeterministic function"),
        ("id", "is not a condition on a row (DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN)"),
        ("count(*) > 1", "is not a condition on a row (INVALID_WHERE_CONDITION)"),
        ("nope(id)", "is not a condition on a row (UNRESOLVED_ROUTINE)"),
        (";", "cannot be parsed"),
    ],
)
def test_invalid_predicate_is_refused(frame: DataFrame, predicate: str, reason: str) -> None:
    with pytest.raises(InvalidPredicateError) as caught:
        apply_condition(frame, "main.sales.orders", predicate)
    assert (caught.value.predicate, caught.value.table, caught.value.reason) == (predicate, "main.sales.orders", reason)


@pytest.mark.parametrize("given", ["5", "*", "'a'", "id AS x", "explode(array(true))", "sum(id) OVER () > 1"])
def test_expression_that_is_not_a_row_condition_is_refused(frame: DataFrame, given: str) -> None:
    with pytest.raises(InvalidPredicateError, match=r"is not a condition on a row \([A-Z_.\d]+\)"):
        apply_condition(frame, "t", given)
