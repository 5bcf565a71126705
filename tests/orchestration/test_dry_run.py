"""The next decision of a publication, shown without changing anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config
from mirrorfeed.config.options import Pause
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.table_task import RunContext
from mirrorfeed.source.errors import FeedOff
from tests.delta import DeltaTable
from tests.publish.conftest import everything, never


def test_dry_run_returns_a_decision_per_table_and_changes_nothing(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    tables = {name: DeltaTable(spark, tmp_path / name) for name in ("new", "behind", "done")}
    DeltaTable(spark, tmp_path / "switched_off", feed=False)
    config = configured("new", "behind", "done", "switched_off", "nowhere")
    publish_tables(RunContext(spark, config, sleep=never), ["behind", "done"])
    tables["behind"].insert(1)
    before = everything(tmp_path)
    found = plan_next_steps(spark, config)
    assert [(row.table, row.next) for row in found[:3]] == [
        ("new", "snapshot at version 0"),
        ("behind", "version 1"),
        ("done", "nothing new, version 0 is published"),
    ]
    assert isinstance(found[3].error, FeedOff)
    assert "There is no Delta table at" in str(found[4].error)
    assert everything(tmp_path) == before


def test_dry_run_skips_a_paused_table(spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]) -> None:
    DeltaTable(spark, tmp_path / "new")
    config = configured("new")
    pause = Pause(reason="its source is loaded anew", until="2999-01-31")
    tables = tuple(table.model_copy(update={"paused": pause}) for table in config.tables)
    (found,) = plan_next_steps(spark, config.model_copy(update={"entries": tables}))
    assert found.next == "paused until 2999-01-31 00:00 UTC: its source is loaded anew"
