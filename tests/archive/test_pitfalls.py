"""Known ways in which file statistics mislead planners.

The matching rows are in the file `odd`. The file `even` has none, and shows that files are skipped at all."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.archive.data_skipping import apply_condition
from mirrorfeed.archive.engines.open_source import files_of
from tests.support.delta import SparkTable

LONG = "x" * 32
slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkTable:
    """A table with the files `odd` and `even`. A deletion vector hides every row of `odd` except one, the row with
    values in v."""
    created = SparkTable.at(spark, tmp_path_factory.mktemp("pitfalls") / "t")
    odd = f"""'odd' AS k, double('NaN') AS f, '{LONG}\U0010ffff!' AS s,
        TIMESTAMP '2026-01-01 00:00:00.999999' AS t, named_struct('a', 7) AS n"""
    created.sql(f"""
        CREATE TABLE {{}} USING DELTA TBLPROPERTIES (delta.enableDeletionVectors = true)
        AS SELECT /*+ REPARTITION(1) */ {odd}, if(id = 0, NULL, cast(id AS int)) AS v FROM range(10)""")
    even = "'even', 1D, 'a', TIMESTAMP '2025-01-01 00:00:00', named_struct('a', 1), 5"
    created.sql(f"INSERT INTO {{}} SELECT /*+ REPARTITION(1) */ {even}")
    created.sql("DELETE FROM {} WHERE k = 'odd' AND v IS NOT NULL")
    return created


@pytest.fixture(scope="module")
def held(table: SparkTable) -> dict[str, str]:
    """Kind of each of the two files, by URI."""
    frame = table.spark.table(table.source.sql)
    found = {kind: files_of(frame.where(f"k = '{kind}'")) for kind in ("odd", "even")}
    return {uri: kind for kind, (uri,) in found.items()}


def needed(table: SparkTable, held: dict[str, str], predicate: str) -> set[str]:
    """Which of the two files are needed."""
    return {held[uri] for uri in files_of(apply_condition(table.spark.table(table.source.sql), "t", predicate))}


@pytest.mark.parametrize(
    "predicate",
    [
        "f > 1e300D",
        f"s > '{LONG}'",
        "t > TIMESTAMP '2026-01-01 00:00:00.9991'",
        "n.a = 7",
        "v IS NULL",
        slow("f = double('NaN')"),
        slow("isnan(f)"),
        slow("NOT (f <= 1e300D)"),
        slow(f"s = '{LONG}\U0010ffff!'"),
        slow(f"s >= '{LONG}\U0010ffff'"),
        slow("t = TIMESTAMP '2026-01-01 00:00:00.999999'"),
        slow("NOT (v > 0) IS NOT NULL"),
        slow("coalesce(v, -1) = -1"),
    ],
)
def test_file_is_retained_if_statistics_do_not_prove_absence(
    table: SparkTable, held: dict[str, str], predicate: str
) -> None:
    assert "odd" in needed(table, held, predicate)


@pytest.mark.parametrize(
    "predicate", ["s < 'b'", "f < 2D", slow("t < TIMESTAMP '2025-06-01 00:00:00'"), slow("n.a = 1")]
)
def test_file_with_bounds_that_exclude_a_match_is_left_out(
    table: SparkTable, held: dict[str, str], predicate: str
) -> None:
    assert needed(table, held, predicate) == {"even"}


@pytest.mark.slow
def test_every_file_is_retained_without_statistics(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        created = SparkTable.at(spark, tmp_path / "t")
        created.sql("CREATE TABLE {} USING DELTA AS SELECT id FROM range(1, 3, 1, 2)")
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
    frame = spark.table(created.source.sql)
    both = files_of(frame)
    assert len(both) == 2
    assert files_of(frame.where("id = 1")) == both
    assert files_of(frame.groupBy().count()) == both  # the log cannot count them either
