"""The status of tables, and the next decision for each. Neither changes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.api.results import Result
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.display.grid import grid_of
from mirrorfeed.display.terminal import draw, text_from
from mirrorfeed.mirror.fabric.status_and_settings import TableState
from mirrorfeed.monitor.findings import LogFacts, SourceFacts, TableFacts
from mirrorfeed.monitor.freshness import Freshness, Step
from mirrorfeed.monitor.status import read_status, status_of, summary_of, unknown_consumption
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.source.errors import SourceRecreatedError, feed_off
from mirrorfeed.storage.errors import PathMissingError
from tests.publish.conftest import everything, never
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)


def test_status_and_dry_run_have_a_row_per_table_and_change_nothing(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    DeltaTable(spark, tmp_path / "switched_off", feed=False)
    with_stopped = configured("new", "behind", "done", "switched_off", "nowhere")
    tables = {name: DeltaTable(spark, tmp_path / name) for name in ("new", "behind", "done")}
    config = configured("new", "behind", "done", "nowhere")
    publish_tables(RunContext(spark, config, clock=FakeClock(never)), ["behind", "done"])
    for i in range(2):
        tables["behind"].insert(i)
    before = everything(tmp_path)
    (nowhere, behind, new, done), _, _ = read_status(lambda: spark, config)
    assert (new.published_version, new.newest_version, new.lag_versions, new.lag_seconds) == (None, 0, None, None)
    assert (behind.published_version, behind.newest_version, behind.lag_versions) == (0, 2, 2)
    assert behind.lag_seconds is not None
    assert 0 <= behind.lag_seconds < 3600
    assert (done.lag_versions, done.lag_seconds, done.not_renamed) == (0, 0.0, 0)
    assert (done.not_consumed, done.has_consumed) == (1, False)
    assert done.freshness
    assert Step.CONSUMED not in done.freshness.times
    assert str(nowhere.error).startswith(f"There is no Delta table at {tmp_path}/nowhere")
    decisions = plan_next_steps(spark, with_stopped)
    assert [(row.table, row.next) for row in decisions[:3]] == [
        ("new", "snapshot at version 0"),
        ("behind", "versions 1 to 2"),
        ("done", "nothing new, version 0 is published"),
    ]
    assert feed_off.matches(decisions[3].error)
    assert "There is no Delta table at" in str(decisions[4].error)
    assert everything(tmp_path) == before


UNREAD_LOG, UNREAD_SOURCE = LogFacts(is_read=False), SourceFacts(is_read=False)


def facts(name: str, log: LogFacts = UNREAD_LOG, source: SourceFacts = UNREAD_SOURCE, **more: Any) -> TableFacts:
    return TableFacts(name, "s", log_facts=log, source_facts=source, at=NOW, **more)


def test_many_tables_are_counted_by_state() -> None:
    three = SourceFacts("on", newest_version=3, lag_seconds=0.0)
    rows = [
        facts("done", LogFacts(published=3), three),
        facts("new", LogFacts(), three),
        facts("late", LogFacts(published=2), replace(three, lag_seconds=60.0)),
        facts("renaming", LogFacts(published=3, unfinished=1), three),
        facts("broken", errors=(PathMissingError(address="x"),)),
        facts("unread"),
        facts("view", LogFacts(published=3), SourceFacts("none")),
    ]
    found = [status_of(each) for each in rows]
    assert [each.state for each in found] == [
        "up to date", "never published", "behind", "behind", "failing", "failing", "compared",
    ]  # fmt: skip
    assert summary_of(found) == "7 tables: 1 up to date, 1 compared, 1 never published, 2 behind, 2 failing"
    assert summary_of(found[:1]) == "1 table: 1 up to date"


def test_many_tables_are_one_line_for_each_that_needs_attention() -> None:
    three = SourceFacts("on", newest_version=3, lag_seconds=0.0)
    done = [status_of(facts(f"done_{n}", LogFacts(published=3), three)) for n in range(297)]
    late = [status_of(facts(f"late_{n}", LogFacts(published=2), replace(three, lag_seconds=60.0))) for n in range(3)]
    found = Result((*late, *done), summary=summary_of([*late, *done]))
    lines = text_from(lambda out: draw(out, found.rows, found.notes, found.summary)).splitlines()
    assert lines[:2] == ["300 tables: 297 up to date, 3 behind", "297 tables: nothing to publish."]
    assert [line.split()[1] for line in lines if "_" in line] == ["late_0", "late_1", "late_2"]
    assert len(lines) == 9
    assert sum("done_" in line for line in repr(replace(found, every=True)).splitlines()) == 297
    waiting = status_of(facts("done", LogFacts(published=3, data_files=3, has_consumed=True), three))
    assert (done[0].quiet, waiting.quiet, replace(done[0], service="Failed").quiet) == (True, False, False)


def test_unknown_consumption_is_reported_of_tables_that_are_not_listed() -> None:
    one = LogFacts(published=3, data_files=1)
    rows = [status_of(facts(f"t{n}", one, SourceFacts("on", newest_version=3))) for n in range(21)]
    (note,) = unknown_consumption(rows)
    assert note.startswith("21 tables: nothing shows that Fabric has consumed a file.")
    assert unknown_consumption(rows[1:]) == ()
    assert unknown_consumption([replace(each, has_consumed=True) for each in rows]) == ()


@pytest.mark.parametrize(
    ("known", "files", "shown"),
    [
        ({}, 1, "at most 1"),
        ({}, 3, "at most 3"),
        ({"log_facts": {"has_consumed": True}}, 3, 2),
        ({"log_facts": {"has_consumed": True}}, 1, None),
        ({"service": TableState("done", "Replicating", rows=5)}, 1, None),
        ({"service": TableState("done", "Snapshotting", rows=0)}, 1, "at most 1"),
        ({"freshness": Freshness({Step.MIRRORED: NOW})}, 1, None),
    ],
)
def test_remaining_file_is_consumed_only_with_evidence(known: dict[str, Any], files: int, shown: object) -> None:
    log = LogFacts(published=3, data_files=files, **known.pop("log_facts", {}))
    found = status_of(facts("done", log, SourceFacts("on", newest_version=3), **known))
    assert found.cells()["not consumed"].value == shown


def test_each_step_shows_its_age_or_waiting_time() -> None:
    ago = [NOW - timedelta(minutes=minutes) for minutes in range(8)]
    times = {Step.COMMITTED: ago[2], Step.PUBLISHED: ago[3], Step.CONSUMED: ago[3]}
    freshness = Freshness(times, {Step.CONSUMED: ago[7]}, {Step.QUERYABLE: "no"})
    times = {Step.COMMITTED: ago[2], Step.MIRRORED: ago[1], Step.QUERYABLE: ago[0]}
    complete = Freshness(times, unknown={Step.PUBLISHED: "no"})
    grid = grid_of(
        [status_of(facts(name, freshness=each)) for name, each in (("a", freshness), ("b", None), ("c", complete))]
    )
    assert grid.header == ["table", "state", "committed", "published at", "consumed up to", "mirrored", "queryable"]
    assert [list(line)[2:] for line in grid.lines] == [
        ["2.0 min ago", "3.0 min ago", "waits 7.0 min", "-", "-"],
        ["-"] * 5,
        ["2.0 min ago", "-", "-", "1.0 min ago", "0 s ago"],
    ]


@pytest.mark.slow
def test_recreated_table_has_no_negative_lag(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    name = "made_again"
    source = f"spark_catalog.default.{name}"
    (tmp_path / "mirrorfeed.yml").write_text(
        f"landing_zone: ./zone\ntables:\n  - {{source: default.{name}, target: {name}, keys: [id]}}\n"
    )
    config = load(tmp_path / "mirrorfeed.yml")
    create = f"CREATE TABLE {source} (id int) USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    try:
        spark.sql(create)
        spark.sql(f"INSERT INTO {source} VALUES (1)")
        publish_tables(RunContext(spark, config, clock=FakeClock(never)))
        spark.sql(f"DROP TABLE {source}")
        spark.sql(create)
        (outcome,) = publish_tables(RunContext(spark, config, clock=FakeClock(never)))
        assert isinstance(outcome.error, SourceRecreatedError)
        (found,), _, _ = read_status(lambda: spark, config)
        assert "was dropped and created again" in str(found.error)
        assert (found.lag_versions, found.lag_seconds) == (None, None)
        assert (found.published_version, found.newest_version) == (1, None)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {source}")
