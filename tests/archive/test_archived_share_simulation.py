"""What would be: questions are planned against an interval that nobody set, and nothing is carried out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from mirrorfeed.archive.archived_share import Need, Outcome, Question, Simulation, asked, conditions_in, simulate
from mirrorfeed.archive.errors import CannotSimulate, NoConditions, NoHistory
from mirrorfeed.source.identifier import Source
from tests.archive.scenes import NOW, Orders, data_moved_away


def test_questions_are_planned_and_none_is_carried_out(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "orders")
    other = Orders(spark, tmp_path / "other")
    name, joined = table.source.sql, other.source.sql
    questions = [
        Question("id = 15"),
        Question("id = 35"),
        Question(f"SELECT count(id) FROM {name} WHERE day = 1 AND v LIKE '%1' -- old", True, 40),
        Question(f"WITH new AS (SELECT * FROM {name} WHERE day > 2) SELECT * FROM new JOIN {joined} USING (id);", True),
        Question(f"DELETE FROM {name}", True),
        Question(f"DROP TABLE {name}", True),
        Question("SELECT * FROM nowhere", True, 2),
    ]  # fmt: skip
    with data_moved_away(table.path):
        found = simulate(spark, table.source, [60, 120], questions, NOW)
    assert table.latest == found.version
    assert [outcome.needs[60].files if outcome.needs else None for outcome in found.outcomes] == [
        1, 0, 1, 0, None, None, None,
    ]  # fmt: skip
    assert found.outcomes[0].needs[60].bytes == next(file.size for file in table.files())
    assert [outcome.fails(120) for outcome in found.outcomes if outcome.needs] == [False] * 4
    assert (found.failing(60), found.failing(120)) == ((41, 43), (0, 43))
    assert {days: share.archived_files for days, share in found.shares.items()} == {60: 2, 120: 0}
    assert all(outcome.error for outcome in found.outcomes[4:])


def test_questions_count_as_often_as_they_were_asked() -> None:
    fails, runs = {60: Need(1, 10)}, {60: Need(0, 0)}
    outcomes = (
        Outcome(Question("a", times=3), fails),
        Outcome(Question("b", times=7), runs),
        Outcome(Question("c", times=100), {}, "why"),
    )
    assert Simulation(4, {}, outcomes).failing(60) == (3, 10)


def test_the_history_is_asked_for_queries_that_name_the_table() -> None:
    statements: list[str] = []

    def sql(statement: str) -> Any:
        statements.append(" ".join(statement.split()))
        return SimpleNamespace(collect=lambda: [("SELECT 1", 7)])

    spark: Any = SimpleNamespace(sql=sql)
    assert asked(spark, Source.parse("main.sales.`Ord'ers`"), 30) == [Question("SELECT 1", True, 7)]
    assert statements == [
        "SELECT statement_text, count(*) AS times FROM system.query.history WHERE start_time >= current_timestamp() -"
        " INTERVAL 30 DAYS AND execution_status = 'FINISHED' AND statement_type = 'SELECT' AND"
        " contains(lower(statement_text), 'ord\\'ers') GROUP BY statement_text ORDER BY times DESC LIMIT 1000"
    ]


def test_without_a_history_it_is_said_what_helps() -> None:
    def sql(_: str) -> Any:
        raise AnalysisException("no such catalog.")

    with pytest.raises(NoHistory) as caught:
        asked(SimpleNamespace(sql=sql), Source.parse("main.t"), 7)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "The query history (system.query.history) does not tell what main.t was asked: no such catalog. On Databricks,"
        " name the table as in the catalog, and let an administrator give the right to read that system table;"
        " elsewhere give conditions with --where or --predicates."
    )


def test_conditions_stand_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "asked"
    path.write_text("\ufeffa = 1\n\n  -- why\n  b = 'é'  \n")
    assert conditions_in(str(path)) == [Question("a = 1"), Question("b = 'é'")]
    path.write_bytes(b"\xff\xff\xff")
    with pytest.raises(NoConditions) as caught:
        conditions_in(str(path))
    assert str(caught.value).startswith(f"{path} is no list of conditions (")
    assert str(caught.value).endswith("Write a condition a line, as after WHERE, in UTF-8.")


def test_where_plans_are_not_shown_it_is_said() -> None:
    assert str(CannotSimulate(table="main.t", reason="not supported")) == (
        "An interval for main.t cannot be tried out here: not supported. It takes Spark that shows which files a query"
        " reads (not Connect, not serverless) and the right to read the table's _delta_log: name the table by its path,"
        " on a cluster that may read there."
    )
