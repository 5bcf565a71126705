"""Set `changes: compare` for a table that was published from its change data feed, and set it back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.publish.change_sources.errors import GONE, NO_KEYS, NOT_DELTA, OTHER_TABLE, first_comparison_impossible
from mirrorfeed.publish.table_log.audit import audit_log
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import Recreation, SourceRecreatedError
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable, Zone


def a_config(folder: Path, changes: str = "compare", keys: str = "[id]", more: str = "") -> Config:
    text = f"landing_zone: ./landing\nledger: ./ledger\n{more}\n"
    text += f"tables: [{{source: ./t, target: sales.orders, keys: {keys}, changes: {changes}}}]\n"
    (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    return load(str(folder / "mirrorfeed.yml"))


def published(spark: SparkSession, config: Config) -> tuple[TableResult, list[MirrorfeedError]]:
    errors: list[MirrorfeedError] = []
    (outcome,) = publish_tables(RunContext(spark, config, Callbacks(on_problem=errors.append), clock=FakeClock()))
    return outcome, errors


def a_published_table(spark: SparkSession, folder: Path, keys: str = "[id]") -> Zone:
    table = DeltaTable(spark, folder / "t")
    table.insert(1, 2, 3, 4)
    zone = Zone(folder / "landing", table)
    published(spark, a_config(folder, "net", keys))
    return zone


def data_and_log(zone: Zone) -> dict[str, bytes]:
    return {name: content for name, content in zone.everything().items() if not name.startswith("_mirrorfeed/")}


def test_switched_table_publishes_the_rows_that_differ_and_continues_by_comparison(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone, config = a_published_table(spark, tmp_path), a_config(tmp_path)
    table, feed = zone.table, zone.record
    table.replace((1, "v1"), (2, "other"), (4, "v4"), (5, "new"))
    assert [row.next for row in plan_next_steps(spark, config)] == ["row hashes of version 1, then a comparison"]
    outcome, errors = published(spark, config)
    assert (outcome.error, errors, outcome.what) == (None, [], "1")
    assert outcome.rows == {"upsert": 2, "delete": 1}
    assert zone.mirrors_the_table()
    newest, start, first = audit_log(zone.store, config.tables[0].target)[0]  # type: ignore[index]
    assert [each.what for each in (first, start, newest)] == [
        "snapshot at version 1",
        "version 0, row hashes of 4 rows",
        "version 1, 4 rows compared",
    ]
    assert (start.files, start.from_version_exclusive, start.to_version_inclusive) == (0, 0, 0)
    assert "read" not in feed
    assert zone.record["source_id"] != feed["source_id"]

    back = a_config(tmp_path, "net")
    before = data_and_log(zone)
    (step,), (outcome, _) = plan_next_steps(spark, back), published(spark, back)
    for error in (step.error, outcome.error):
        assert isinstance(error, SourceRecreatedError)
        assert error.case == Recreation.COMPARED
        assert "was published by comparison (`changes: compare`) until now" in error.problem
        assert "Set `changes: compare` again to continue without a reload" in error.solution
    assert data_and_log(zone) == before


@pytest.mark.slow
def test_table_can_be_switched_to_comparison_back_with_a_reload_and_again(spark: SparkSession, tmp_path: Path) -> None:
    zone, config = a_published_table(spark, tmp_path), a_config(tmp_path)
    for statement, rows in (
        ("DELETE FROM {} WHERE id = 4", {"delete": 1}),
        ("", {}),
        ("UPDATE {} SET v = 'other' WHERE id = 3", {"upsert": 1}),
    ):
        if statement:
            zone.table.sql(statement)
        outcome, errors = published(spark, config)
        assert (outcome.error, errors, outcome.rows) == (None, [], rows)
        assert zone.mirrors_the_table()
    outcome, _ = published(spark, a_config(tmp_path, "net", more="on_replace: reseed"))
    assert (outcome.error, outcome.rows) == (None, {"insert": 3})
    # The row hashes of the time before are older than the published version, so they are never compared with it.
    zone.table.sql("UPDATE {} SET v = 'v3' WHERE id = 3")
    outcome, errors = published(spark, config)
    assert (outcome.error, errors, outcome.rows) == (None, [], {"upsert": 1})
    assert zone.mirrors_the_table()


def vacuum(table: DeltaTable) -> None:
    old = table.live_files()
    table.replace((1, "v1"), (7, "v7"))
    for file in old:
        file.unlink()


def drop_and_create(table: DeltaTable) -> None:
    shutil.rmtree(table.path)
    table.spark.catalog.clearCache()
    again = DeltaTable(table.spark, table.path)
    again.insert(1)
    again.insert(2)


def become_parquet(table: DeltaTable) -> None:
    shutil.rmtree(table.path)
    table.spark.catalog.clearCache()
    table.path.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "v": ["v1"]}), table.path / "one.parquet")


def nothing(_: DeltaTable) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "keys", "reason"),
    [
        (vacuum, "[id]", GONE),
        (drop_and_create, "[id]", OTHER_TABLE),
        (become_parquet, "[id]", NOT_DELTA),
        (nothing, "[]", NO_KEYS),
    ],
)
def test_switch_is_refused_without_the_rows_of_the_published_version(
    spark: SparkSession, tmp_path: Path, harm: Callable[[DeltaTable], None], keys: str, reason: str
) -> None:
    zone = a_published_table(spark, tmp_path, keys)
    harm(zone.table)
    before, config = data_and_log(zone), a_config(tmp_path)
    for _ in range(2):
        outcome, _errors = published(spark, config)
        assert first_comparison_impossible.matches(outcome.error)
        assert f"requires the rows of the published version 1, but {reason}" in outcome.error.problem
        assert "with `on_gap: reseed` this happens automatically" in outcome.error.solution
        assert data_and_log(zone) == before
    if harm is vacuum:
        outcome, _errors = published(spark, a_config(tmp_path, more="on_gap: reseed"))
        assert first_comparison_impossible.matches(outcome.reseeded)
        assert outcome.rows == {"insert": 2}
