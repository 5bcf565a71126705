"""Which feed a table has: one that Delta records, one that the engine computes, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import Row, SparkSession

from mirrorfeed.cli import main
from mirrorfeed.source import change_feed, table_info
from mirrorfeed.source.change_feed import Enabled, Feed, enable, feed_of
from mirrorfeed.source.delta_protocol import unknown_features
from mirrorfeed.source.errors import NoIdentity, NotDelta, UnknownFeatures
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import detail_of
from tests.delta import DeltaTable

MAPPED = "delta.columnMapping.mode"
ROW_TRACKING = {"delta.enableRowTracking": "true"}


@pytest.mark.parametrize(
    ("feed", "properties", "found"),
    [
        (True, {}, Feed.RECORDED),
        (False, {}, Feed.OFF),
        (False, ROW_TRACKING, Feed.OFF),
        (True, ROW_TRACKING, Feed.RECORDED),
    ],
)
def test_an_engine_that_computes_no_changes_has_those_that_are_recorded(
    spark: SparkSession, tmp_path: Path, feed: bool, properties: dict[str, str], found: Feed
) -> None:
    table = DeltaTable(spark, tmp_path / "t", feed=feed, properties=properties)
    assert feed_of(spark, table.source, detail_of(spark, table.source)) is found


def test_a_table_in_a_folder_of_this_machine_is_told_without_spark_as_spark_tells_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = (
        DeltaTable(spark, tmp_path / "a b é" / "empty", feed=False),
        DeltaTable(spark, tmp_path / "parts", "id int, `a day` int", properties={MAPPED: "name"}, by="`a day`"),
    )
    tables[1].sql("INSERT INTO {} VALUES (1, 2), (3, 4)")
    sources = [*(table.source for table in tables), Source(path=f"{tables[1].path}/../parts/")]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(SparkSession, "sql", lambda *_: pytest.fail("Spark was asked"))
        told = [detail_of(spark, source, counted=True) for source in sources]
        assert detail_of(spark, sources[1]) == replace(told[1], files=0, bytes=0)
    monkeypatch.setattr(table_info, "opened", lambda _: None)
    asked = [detail_of(spark, source) for source in sources]
    assert asked[1].files == 2
    implied = set(asked[0].features)  # by the protocol's numbers; it names none
    assert [{*each.features} | implied for each in told] == [{*each.features} | implied for each in asked]
    assert [replace(each, features=()) for each in told] == [replace(each, features=()) for each in asked]


def test_a_table_whose_changes_the_engine_computes_needs_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an engine answers that does so: reading changes of the newest version is no error."""
    monkeypatch.setattr(change_feed, "feed_on_at", lambda *_: True)
    table = DeltaTable(spark, tmp_path / "t", feed=False, properties=ROW_TRACKING)
    assert feed_of(spark, table.source, detail_of(spark, table.source)) is Feed.COMPUTED
    assert enable(spark, table.source) is Enabled.COMPUTED
    assert not detail_of(spark, table.source).records_changes

    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: zone\ntables: [{source: ./t, target: t, keys: [id]}]\n")
    said = {
        command: " ".join(
            CliRunner().invoke(main, [*command.split(), "--config", str(tmp_path / "mirrorfeed.yml")]).output.split()
        )
        for command in ("enable", "doctor --setup", "status")
    }
    assert "computed from row tracking when it is read: nothing is to be done" in said["enable"]
    assert "computed from row tracking when it is read" in said["doctor --setup"]
    assert "computed" in said["status"]


DETAIL = {
    "format": "delta",
    "id": "a",
    "location": "s3://b/t",
    "properties": {},
    "partitionColumns": [],
    "numFiles": 1,
    "sizeInBytes": 10,
    "tableFeatures": ["appendOnly", "catalogManaged", "rowTracking", "typeWidening-preview"],
}


def engine(**answers: Any) -> Any:
    """As much of a session as answers DESCRIBE DETAIL."""
    row = Row(**DETAIL | answers)
    return SimpleNamespace(sql=lambda statement: SimpleNamespace(first=lambda: row))


ICEBERG = Source.parse("main.sales.orders")


def test_iceberg_comes_through_the_same_interface() -> None:
    found = detail_of(
        engine(format="iceberg", properties=None, partitionColumns=None, numFiles=None, sizeInBytes=None), ICEBERG
    )
    assert (found.table_id, found.properties, found.partition_columns, found.files) == ("a", {}, (), 0)
    assert found.tracks_rows
    assert not replace(found, format="delta").tracks_rows


@pytest.mark.parametrize("format_", ["parquet", "CSV", None])
def test_other_formats_have_no_changes(format_: str | None) -> None:
    with pytest.raises(NotDelta, match=r"orders is a table in the format (parquet|csv|unknown), not a Delta table"):
        detail_of(engine(format=format_), ICEBERG)


def test_a_table_without_an_identity_is_refused_for_it_could_be_another_tomorrow() -> None:
    with pytest.raises(NoIdentity) as refused:
        detail_of(engine(format="iceberg", id=None), ICEBERG)
    assert (refused.value.table, refused.value.format) == ("main.sales.orders", "iceberg")


@pytest.mark.parametrize(
    ("features", "found"),
    [
        ([], ()),
        (DETAIL["tableFeatures"], ()),
        (["catalogOwned-preview", "variantType-preview"], ()),
        (["timeMachine", "appendOnly", "clocks-preview"], ("clocks-preview", "timeMachine")),
    ],
)
def test_features_are_known_by_name_and_so_are_their_previews(features: list[str], found: tuple[str, ...]) -> None:
    assert unknown_features(features) == found


def test_a_feature_that_nobody_looked_at_is_refused_by_its_name() -> None:
    with pytest.raises(UnknownFeatures) as refused:
        detail_of(engine(tableFeatures=["appendOnly", "timeMachine"]), ICEBERG)
    assert refused.value.names == ("timeMachine",)
