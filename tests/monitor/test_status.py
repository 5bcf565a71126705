"""How far each table is, told without touching anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, load
from mirrorfeed.feed.errors import SourceRecreated
from mirrorfeed.monitor.status import statuses
from mirrorfeed.publish.fleet import Fleet, publish_tables
from tests.delta import DeltaTable
from tests.publish.conftest import everything, never


def test_a_status_is_told_for_each_table(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    tables = {name: DeltaTable(spark, tmp_path / name) for name in ("new", "behind", "done")}
    config = configured("new", "behind", "done", "nowhere")
    publish_tables(Fleet(spark, config, sleep=never), ["behind", "done"])
    for i in range(2):
        tables["behind"].insert(i)
    before = everything(tmp_path)
    new, behind, done, nowhere = statuses(spark, config)
    assert (new.published_version, new.newest_version, new.lag_versions, new.lag_seconds) == (None, 0, None, None)
    assert (behind.published_version, behind.newest_version, behind.lag_versions) == (0, 2, 2)
    assert behind.lag_seconds is not None
    assert 0 <= behind.lag_seconds < 3600
    assert (done.lag_versions, done.lag_seconds, done.not_renamed, done.not_consumed) == (0, 0.0, 0, 0)
    assert str(nowhere.error).startswith(f"There is no Delta table at {tmp_path}/nowhere")
    assert everything(tmp_path) == before


def test_the_status_of_a_table_that_was_created_again_is_no_negative_lag(
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
        publish_tables(Fleet(spark, config, sleep=never))
        spark.sql(f"DROP TABLE {source}")
        spark.sql(create)
        (outcome,) = publish_tables(Fleet(spark, config, sleep=never))
        assert isinstance(outcome.error, SourceRecreated)
        (found,) = statuses(spark, config)
        assert "was replaced, or dropped and created again" in str(found.error)
        assert (found.lag_versions, found.lag_seconds) == (None, None)
        assert (found.published_version, found.newest_version) == (1, None)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {source}")
