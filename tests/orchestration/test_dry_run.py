"""The next decision of a publication. `monitor/test_status` shows it for tables in every state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.config.options import Pause
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.next_step import inserts_only
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.source.snapshot_or_range import Commit
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable


def test_dry_run_skips_a_paused_table(spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]) -> None:
    DeltaTable(spark, tmp_path / "new")
    config = configured("new")
    pause = Pause(reason="its source is loaded anew", until="2999-01-31")
    changes = {"paused": pause, "delivery": Delivery("append")}
    tables = tuple(table.model_copy(update=changes) for table in config.tables)
    (found,) = plan_next_steps(spark, config.model_copy(update={"entries": tables}))
    assert (found.next, found.delivery) == ("paused until 2999-01-31 00:00 UTC: its source is loaded anew", "append")


@pytest.mark.slow
def test_dry_run_finds_the_first_range_with_a_change_that_a_table_without_keys_rejects(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {
        "merged": "",
        "unselected": "where: id < 5",
        "overwritten": "",
        "later": "max_versions_per_publication: 1",
    }
    tables = {name: DeltaTable(spark, tmp_path / name) for name in options}
    lines = [f"  - {{source: ./{name}, target: {name}, keys: [], {each}}}" for name, each in options.items()]
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables:\n" + "\n".join(lines))
    config = load(str(tmp_path / "mirrorfeed.yml"))
    for each in tables.values():
        each.insert(1, 9)
    context = RunContext(spark, config, clock=FakeClock())
    assert [outcome.error for outcome in publish_tables(context)] == [None] * 4
    tables["merged"].sql(
        "MERGE INTO {} t USING (SELECT 2 AS id, 'a' AS v) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    tables["unselected"].sql("DELETE FROM {} WHERE id = 9")
    tables["overwritten"].sql("INSERT OVERWRITE {} VALUES (3, 'c')")
    tables["later"].insert(2)
    tables["later"].sql("DELETE FROM {} WHERE id = 2")
    steps = {step.table: step for step in plan_next_steps(spark, config)}
    outcomes = {outcome.table: outcome for outcome in publish_tables(context)}
    assert [step.next for step in steps.values()] == ["version 2", "version 2", "blocked", "version 2, then blocked"]
    for name, step in steps.items():
        assert str(step.error) == str(outcomes[name].error), name


@pytest.mark.parametrize(
    ("operation", "parameters", "expected"),
    [
        ("WRITE", {"mode": "Append"}, True),
        ("WRITE", {"mode": "Overwrite"}, False),
        ("WRITE", {}, False),  # another writer
        ("STREAMING UPDATE", {"outputMode": "Append"}, True),
        ("STREAMING UPDATE", {"outputMode": "Complete"}, False),
        ("MERGE", {"matchedPredicates": "[]", "notMatchedBySourcePredicates": "[]"}, True),
        ("MERGE", {"matchedPredicates": '[{"actionType":"update"}]', "notMatchedBySourcePredicates": "[]"}, False),
        ("MERGE", {"matchedPredicates": "[]"}, False),
        ("OPTIMIZE", {}, True),
        ("ADD COLUMNS", {}, True),
        ("COPY INTO", {}, True),
        ("DELETE", {}, False),
        ("RESTORE", {}, False),
        ("LATER OPERATION", {}, False),
    ],
)
def test_commits_that_certainly_only_insert_are_recognized(
    operation: str, parameters: Mapping[str, str], expected: bool
) -> None:
    assert inserts_only(Commit(1, datetime(2026, 1, 1, tzinfo=UTC), operation, parameters=parameters)) is expected
