"""Publication across a gap in the feed, with the missing versions from a history."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.source.errors import FeedGapError
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable, Zone
from tests.support.json_output import JsonResult, run_json


def run(folder: Path, *arguments: str, status: int = 0) -> str:
    found = CliRunner().invoke(main, [*arguments, "--config", str(folder / "mirrorfeed.yml")], catch_exceptions=False)
    assert found.exit_code == status, found.output
    return found.output


def run_in(folder: Path, *arguments: str, status: int = 0) -> JsonResult:
    return run_json(*arguments, "--config", str(folder / "mirrorfeed.yml"), code=status)


@pytest.mark.soak  # the gap test below also reads the history
def test_publish_reads_missing_feed_versions_from_history(spark: SparkSession, tmp_path: Path) -> None:
    """Slow, because all steps are commands: versions are stored in the history, removed from the feed, and
    published."""
    table = DeltaTable(spark, tmp_path / "t")
    zone = Zone(tmp_path / "landing", table)
    text = "landing_zone: ./landing\nhistory: ./histories\ntables: [{source: ./t, target: sales.orders, keys: [id]}]\n"
    (tmp_path / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    config = load(str(tmp_path / "mirrorfeed.yml"))
    table.insert(1, 2, 3)
    zone.publish()
    assert "version 1" in run(tmp_path, "history", "append")
    table.sql("UPDATE {} SET v = 'new' WHERE id = 2")
    table.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    table.sql("DELETE FROM {} WHERE id = 1")
    (appended,) = run_in(tmp_path, "history", "append").rows
    assert (appended["from_version_exclusive"], appended["to_version_inclusive"], appended["rows"]) == (1, 4, 3)
    assert (appended["newest_version"], appended["began_again"], appended["error"]) == (4, [], None)
    table.sql("UPDATE {} SET w = 7 WHERE id = 3")
    shutil.rmtree(table.path / "_change_data")  # as VACUUM would
    (stopped,) = publish_tables(RunContext(spark, config, Callbacks(on_problem=lambda _: None), clock=FakeClock()))
    assert isinstance(stopped.error, FeedGapError)  # version 5 is lost and not in the history
    assert stopped.published_version == 4
    assert zone.record["to_version_inclusive"] == 4

    (failed,) = run_in(tmp_path, "history", "append", "sales.orders", status=1).rows
    assert "ends at version 4. The changes of" in failed["error"]["what"]
    assert (failed["error"]["code"], failed["error"]["facts"]["finding"]["code"]) == ("MF6002", "MF2102")
    began = run(tmp_path, "history", "append", "--reseed")
    assert "The changes of" in began
    assert "1 to 4, 5 to 5" in run(tmp_path, "history", "status")
    (row,) = run_in(tmp_path, "history", "status").rows
    assert (row["versions"], row["newest_version"], row["error"]) == ([[1, 4], [5, 5]], 5, None)


@pytest.mark.slow
def test_gap_is_published_from_history_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone = Zone(tmp_path / "landing", table)
    text = "landing_zone: ./landing\ntables: [{source: ./t, target: sales.orders, keys: [id], history: ./kept}]\n"
    (tmp_path / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    table.insert(1, 2, 3)
    zone.publish()
    run(tmp_path, "history", "append")
    table.sql("UPDATE {} SET v = 'new' WHERE id = 2")
    table.sql("UPDATE {} SET v = 'newer' WHERE id = 2")
    run(tmp_path, "history", "append")
    table.insert(4)
    table.checkpoint()
    for version in range(4):  # as log cleanup would
        table.commit_file(version).unlink()
    shutil.rmtree(table.path / "_change_data")
    table.sql("INSERT INTO {} VALUES (5, 'v5')")
    assert "versions 2 to 3, from its history" in run(tmp_path, "publish", "--dry-run")
    words = run(tmp_path, "publish")
    assert "mirrorfeed read these changes from the history" in words
    assert zone.mirrors_the_table()
    into = tmp_path / "then"
    arguments = ["history", "replay", "sales.orders", "--to-version", "2", "--into", str(into)]
    (replayed,) = run_in(tmp_path, *arguments).rows
    assert (replayed["into"], replayed["version"], replayed["created"]) == (str(into), 2, True)
    assert sorted(row["v"] for row in DeltaTable.at(spark, into).rows()) == ["new", "v1", "v3"]
