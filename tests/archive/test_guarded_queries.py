"""Random queries of a table whose old files are moved away, in which Delta could select files again at run time.

A query is either refused before it reads anything, or has the same result as on a complete table. It would fail if it
opened a file that is moved away."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.runtime.spark_session import setting
from tests.archive.archived_table import NOW
from tests.archive.test_guarded_writes import SKIPPING, Cut, condition


def draw_query(rng: random.Random) -> tuple[str, int | None]:
    """A query of the table `{}`, and its LIMIT. Python functions are on the partition column or on any column."""
    where = rng.choice(
        [
            condition(rng),
            f"day >= {rng.choice([3, 4])} AND {condition(rng)}",
            f"is_day(day, {rng.choice([3, 4, 4])})",
            f"is_day(day, 4) AND {condition(rng)}",
            f"NOT is_day(day, 3) AND day > {rng.choice([2, 3])}",
            f"is_day(a DIV 20 + 1, 4) AND {condition(rng)}",
            f"coalesce(is_day(day + 1, 5), false) = (b > {rng.randrange(80)})",
        ]
    )
    match rng.randrange(6):
        case 0:
            limit = rng.randrange(1, 30)
            return f"SELECT a, b, v, day FROM {{}} LIMIT {limit}", limit
        case 1:
            limit = rng.randrange(1, 15)
            return f"SELECT a, b, v, day FROM {{}} WHERE {where} LIMIT {limit}", limit
        case 2:
            return "SELECT x.a, y.b, x.v, y.day FROM {} x JOIN {} y USING (a) WHERE x.day = 4 AND y.a > 55", None
        case 3:
            return f"SELECT a, b, v, day FROM {{}} WHERE {where} AND a > (SELECT min(a) FROM {{}} WHERE day = 4)", None
        case _:
            return f"SELECT a, b, v, day FROM {{}} WHERE {where}", None


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(6, 3, id="few", marks=pytest.mark.slow),
        pytest.param(200, None, id="many", marks=pytest.mark.soak),
    ],
)
def test_random_queries_are_refused_or_correct(
    spark: SparkSession, tmp_path: Path, counted: Counter[str], count: int, seed: int | None
) -> None:
    seed = random.randrange(2**32) if seed is None else seed
    rng = random.Random(seed)
    cut = Cut(spark, tmp_path, vectors=True)
    for table in (cut.table, cut.whole):
        table.sql("DELETE FROM {} WHERE day = 4 AND b % 5 = 0")  # makes deletion vectors
    spark.udf.register("is_day", lambda day, wanted: day == wanted, "boolean")
    guarded = Guarded(spark, lambda _: cut.tiers, lambda: NOW)
    for _ in range(count):
        (query, limit), skips = draw_query(rng), rng.random() < 0.6
        try:
            with setting(spark, SKIPPING, str(skips).lower()):
                try:
                    found = rows_of(guarded.sql(query.replace("{}", cut.table.source.sql)))
                except ArchivedFilesNeededError:
                    counted["guarded queries that were refused"] += 1
                    continue
            counted["guarded queries that ran"] += 1
            all_rows = query.partition(" LIMIT ")[0]
            expected = rows_of(spark.sql(all_rows.replace("{}", cut.whole.source.sql)))
            assert set(found) <= set(expected)
            assert len(found) == (len(expected) if limit is None else min(limit, len(expected)))
        except Exception as error:
            raise AssertionError(f"{query} with skipping {skips}, seed {seed}") from error


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)
