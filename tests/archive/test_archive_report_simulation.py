"""Simulation: plan queries for an archive interval that is not set, and change nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from mirrorfeed.archive.archive_report import Query, query_history, read_conditions, simulate
from mirrorfeed.archive.errors import CannotSimulate, NoConditions, NoQueryHistory
from mirrorfeed.source.identifier import Source
from tests.archive.archived_table import NOW, Orders, data_moved_away


def test_queries_are_planned_but_not_executed(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "orders")
    other = Orders(spark, tmp_path / "other")
    name, joined = table.source.sql, other.source.sql
    questions = [
        Query("id = 15"),
        Query("id = 35"),
        Query(f"SELECT count(id) FROM {name} WHERE day = 1 AND v LIKE '%1' -- old", True, 40),
        Query(f"WITH new AS (SELECT * FROM {name} WHERE day > 2) SELECT * FROM new JOIN {joined} USING (id);", True),
        Query(f"DELETE FROM {name}", True),
        Query(f"DROP TABLE {name}", True),
        Query("SELECT * FROM nowhere", True, 2),
    ]  # fmt: skip
    with data_moved_away(table.path):
        (first, second), notes = simulate(spark, table.source, [60, 120], questions, None, NOW)
    assert (first.version, first.days, second.days) == (table.latest, 60, 120)
    assert [(each.query, each.times, each.files) for each in first.failing_queries] == [
        ("id = 15", 1, 1), (questions[2].text, 40, 1),
    ]  # fmt: skip
    assert first.failing_queries[0].bytes == next(file.bytes for file in table.files())
    assert (first.failing, first.queries, second.failing, second.queries) == (41, 43, 0, 43)
    assert (first.archived_files, second.archived_files, second.failing_queries) == (2, 0, ())
    assert [note.partition(" cannot be planned: ")[0] for note in notes] == [each.text for each in questions[4:]]


def test_history_is_searched_for_queries_that_name_the_table() -> None:
    statements: list[str] = []

    def sql(statement: str) -> Any:
        statements.append(" ".join(statement.split()))
        return SimpleNamespace(collect=lambda: [("SELECT 1", 7)])

    spark: Any = SimpleNamespace(sql=sql)
    assert query_history(spark, Source.parse("main.sales.`Ord'ers`"), 30) == [Query("SELECT 1", True, 7)]
    assert statements == [
        "SELECT statement_text, count(*) AS times FROM system.query.history WHERE start_time >= current_timestamp() -"
        " INTERVAL 30 DAYS AND execution_status = 'FINISHED' AND statement_type = 'SELECT' AND"
        " contains(lower(statement_text), 'ord\\'ers') GROUP BY statement_text ORDER BY times DESC LIMIT 1000"
    ]


def test_missing_query_history_is_reported_with_a_fix() -> None:
    def sql(_: str) -> Any:
        raise AnalysisException("no such catalog.")

    with pytest.raises(NoQueryHistory) as caught:
        query_history(SimpleNamespace(sql=sql), Source.parse("main.t"), 7)  # type: ignore[arg-type]
    assert (caught.value.table, caught.value.reason) == ("main.t", "no such catalog")


def test_conditions_are_read_one_per_line(tmp_path: Path) -> None:
    path = tmp_path / "asked"
    path.write_text("\ufeffa = 1\n\n  -- why\n  b = 'é'  \n")
    assert read_conditions(str(path)) == [Query("a = 1"), Query("b = 'é'")]
    path.write_bytes(b"\xff\xff\xff")
    with pytest.raises(NoConditions) as caught:
        read_conditions(str(path))
    assert caught.value.path == str(path)


def test_unsupported_plans_are_reported() -> None:
    assert "Spark Connect and serverless compute do not" in str(CannotSimulate(table="main.t", reason="not supported"))
