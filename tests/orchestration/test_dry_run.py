"""The next decision of a publication. `monitor/test_status` shows it for tables in every state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config
from mirrorfeed.config.options import Pause
from mirrorfeed.orchestration.dry_run import plan_next_steps
from tests.delta import DeltaTable


def test_dry_run_skips_a_paused_table(spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]) -> None:
    DeltaTable(spark, tmp_path / "new")
    config = configured("new")
    pause = Pause(reason="its source is loaded anew", until="2999-01-31")
    tables = tuple(table.model_copy(update={"paused": pause}) for table in config.tables)
    (found,) = plan_next_steps(spark, config.model_copy(update={"entries": tables}))
    assert found.next == "paused until 2999-01-31 00:00 UTC: its source is loaded anew"
