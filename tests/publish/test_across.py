"""Across a gap in a feed by comparing its two ends, with no moment at which the mirror is not there."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from fixtures.mirror import Mirror, canonical
from mirrorfeed.config import Config, load
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.publish.across import ByComparison, NotComparable
from mirrorfeed.publish.decisions import decisions
from mirrorfeed.publish.fleet import Fleet, publish_tables
from mirrorfeed.publish.outcome import Outcome
from mirrorfeed.stores import FolderStore
from tests.delta import DeltaTable, Zone


def a_config(folder: Path, more: str = "on_gap: compare", part: str = "") -> Config:
    text = f"landing_zone: ./landing\n{more}\ntables: [{{source: ./t, target: sales.orders, keys: [id]{part}}}]\n"
    (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    return load(str(folder / "mirrorfeed.yml"))


def published(spark: SparkSession, config: Config) -> tuple[Outcome, list[MirrorfeedError]]:
    told: list[MirrorfeedError] = []
    (outcome,) = publish_tables(Fleet(spark, config, sleep=lambda _: None, on_trouble=told.append))
    return outcome, told


def test_a_gap_is_crossed_without_a_new_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone, config = Zone(tmp_path / "landing", table), a_config(tmp_path, "on_gap: compare\nversions_per_range: 2")
    table.insert(1, 2, 3)
    zone.publish()
    table.set_feed(False)
    table.sql("UPDATE {} SET v = 'new' WHERE id = 2")
    table.sql("UPDATE {} SET v = 'v2' WHERE id = 2")  # as before
    table.sql("DELETE FROM {} WHERE id = 3")
    table.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    table.sql("INSERT INTO {} VALUES (4, 'v4', 4)")
    table.set_feed(True)
    assert decisions(spark, config) == [("sales.orders", "versions 2 to 8, by comparison")]
    outcome, told = published(spark, config)
    assert outcome.error is None
    assert outcome.progress.rows == {"upsert": 1, "delete": 1}
    (note,) = told
    assert isinstance(note, ByComparison)
    assert str(note) == (
        f"The changes of {table.source} after version 1 cannot be read: at version 2 the change data feed is off."
        " What differs was found by a comparison with version 1. Nothing is lost. Publish oftener, or let the source"
        " keep its changes for longer."
    )
    assert zone.mirrors_the_table()
    table.sql("UPDATE {} SET v = 'newer' WHERE id = 1")
    outcome, told = published(spark, config)
    assert (outcome.progress.rows, told) == ({"upsert": 1}, [])
    assert zone.mirrors_the_table()


def test_of_a_part_only_what_differs_in_it_is_published(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, v string, w string, secret string")
    config = a_config(
        tmp_path, part=", except_columns: [secret], where: v <> 'out', rename: {w: W}, cast: {w: string(2)}"
    )
    mirror = Mirror(FolderStore(str(tmp_path / "landing")), "sales.schema/orders")
    table.sql(
        "INSERT INTO {} VALUES (1, 'a', 'xyz', 's'), (2, 'a', 'x', 's'), (3, 'out', 'x', 's'), (4, 'a', 'x', 's'),"
        " (5, NULL, 'x', 's'), (6, 'a', 'x', 's')"
    )
    published(spark, config)
    table.set_feed(False)
    table.sql("UPDATE {} SET secret = 'other'")  # of which nothing is published
    table.sql("UPDATE {} SET w = 'xyw' WHERE id = 1")  # nor of this
    table.sql("UPDATE {} SET v = 'out' WHERE id = 2")
    table.sql("UPDATE {} SET v = 'in' WHERE id IN (3, 5)")
    table.sql("UPDATE {} SET w = 'new' WHERE id = 4")
    table.set_feed(True)
    outcome, (note,) = published(spark, config)
    assert isinstance(note, ByComparison)
    assert (outcome.error, outcome.progress.rows) == (None, {"upsert": 3, "delete": 1})
    table.sql("DELETE FROM {} WHERE id = 6")
    assert published(spark, config)[0].progress.rows == {"delete": 1}
    mirror.take()
    wanted = [(1, "a", "xy"), (3, "in", "x"), (4, "a", "ne"), (5, "in", "x")]
    assert canonical(mirror.rows) == canonical({"id": id_, "v": v, "W": w} for id_, v, w in wanted)


def test_a_published_version_that_is_gone_is_told(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone, config = Zone(tmp_path / "landing", table), a_config(tmp_path)
    table.insert(1, 2, 3)
    zone.publish()
    before = set(table.path.glob("*.parquet"))
    table.sql("UPDATE {} SET v = 'new'")
    for file in before:  # as VACUUM would
        file.unlink()
    shutil.rmtree(table.path / "_change_data", ignore_errors=True)
    outcome, told = published(spark, config)
    assert isinstance(outcome.error, NotComparable)
    assert str(outcome.error) == (
        f"The feed of {table.source} has a gap, and version 1, which is published, is gone as well. Only a new snapshot"
        " helps: start the table again with `mirrorfeed rebuild`."
    )
    assert told == []


def test_columns_that_went_within_the_gap_are_dropped_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", properties={"delta.columnMapping.mode": "name"})
    original = Zone(tmp_path / "landing", table)
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, NULL)")
    original.publish()
    table.set_feed(False)
    table.sql("ALTER TABLE {} RENAME COLUMN v TO w")
    table.set_feed(True)
    for dropped, rows in {"keep": {"upsert": 1}, "reseed": {"insert": 2}}.items():
        zone = Zone.copied(original, tmp_path / dropped)
        outcome, _ = published(spark, a_config(tmp_path / dropped, f"on_gap: compare\non_dropped_column: {dropped}"))
        assert outcome.error is None
        assert outcome.progress.rows == rows
        assert zone.mirrors_the_table()
