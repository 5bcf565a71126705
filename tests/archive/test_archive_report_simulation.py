"""Simulation: plan queries for an archive interval that is not set, and change nothing."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from fixtures.databricks import RecordingDatabricks
from mirrorfeed.archive.archive_report import read_conditions, simulate
from mirrorfeed.archive.errors import invalid_conditions_file, simulation_impossible
from mirrorfeed.source.identifier import Source
from tests.archive.archived_table import NOW, Orders, data_moved_away
from tests.raised import raises


def test_queries_are_planned_but_not_executed(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "orders")
    questions = ["id = 15", "id = 35", "day = 1 AND v LIKE '%1' -- old", "gone = 1", "id IN (SELECT 15)"]
    with data_moved_away(table.path):
        (first, second), notes = simulate(spark, table.source, [60, 120], questions, None, NOW)
    assert (first.version, first.days, second.days) == (table.latest, 60, 120)
    assert [(each.query, each.files) for each in first.failing_queries] == [(questions[0], 1), (questions[2], 1)]
    assert first.failing_queries[0].bytes == next(file.bytes for file in table.files())
    assert (first.failing, first.queries, second.failing, second.queries) == (2, 3, 0, 3)
    assert (first.archived_files, second.archived_files, second.failing_queries) == (2, 0, ())
    assert [note.partition(" cannot be planned: ")[0] for note in notes] == questions[3:]


def test_conditions_are_read_one_per_line(tmp_path: Path) -> None:
    path = tmp_path / "asked"
    path.write_text("\ufeffa = 1\n\n  -- why\n  b = 'é'  \n")
    assert read_conditions(str(path)) == ["a = 1", "b = 'é'"]
    path.write_bytes(b"\xff\xff\xff")
    with raises(invalid_conditions_file) as caught:
        read_conditions(str(path))
    assert caught.value.path == str(path)


def test_databricks_shows_no_plans(spark: SparkSession) -> None:
    session = RecordingDatabricks(spark, {})
    with raises(simulation_impossible, match="Databricks does not show which files a query reads"):
        simulate(session, Source(path="/t"), [60], [], None, NOW)  # type: ignore[arg-type]
    assert session.statements == []
