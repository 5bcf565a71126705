from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from mirrorfeed.source import table_info
from mirrorfeed.source.change_feed import read_facts
from mirrorfeed.source.errors import (
    NoTableAtPathError,
    NotDeltaError,
    SourceMissingError,
    TableNotReadyError,
    no_table_id,
    unknown_table_features,
)
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info, unknown_features
from mirrorfeed.source.versions import read_commits
from tests.raised import raises
from tests.support.delta import DeltaTable

MAPPED = "delta.columnMapping.mode"


def test_local_table_has_the_same_info_with_and_without_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = (
        DeltaTable(spark, tmp_path / "a b é" / "empty", feed=False),
        DeltaTable(spark, tmp_path / "parts", "id int, `a day` int", properties={MAPPED: "name"}, by="`a day`"),
    )
    tables[1].sql("INSERT INTO {} VALUES (1, 2), (3, 4)")
    sources = [*(table.source for table in tables), Source(path=f"{tables[1].path}/../parts/")]
    with monkeypatch.context() as patched:
        patched.setattr(SparkSession, "sql", lambda *_: pytest.fail("Spark was asked"))
        infos = [read_table_info(spark, source, counted=True) for source in sources]
        assert read_table_info(spark, sources[1]) == replace(infos[1], files=0, bytes=0)
    monkeypatch.setattr(table_info, "open_local_table", lambda _: None)
    infos_without_counts = [read_table_info(spark, source) for source in sources]
    assert infos_without_counts[1].files == 2
    implied = set(infos_without_counts[0].features)  # by protocol version; it lists no features
    assert [{*each.features} | implied for each in infos] == [
        {*each.features} | implied for each in infos_without_counts
    ]
    assert [replace(each, features=()) for each in infos] == [
        replace(each, features=()) for each in infos_without_counts
    ]


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
    """A session that only answers DESCRIBE DETAIL."""
    row = Row(**DETAIL | answers)
    return SimpleNamespace(sql=lambda statement: SimpleNamespace(first=lambda: row))


ICEBERG = Source.parse("main.sales.orders")


def test_iceberg_tables_are_described_by_the_same_info() -> None:
    found = read_table_info(
        engine(format="iceberg", properties=None, partitionColumns=None, numFiles=None, sizeInBytes=None), ICEBERG
    )
    assert (found.table_id, found.properties, found.partition_columns, found.files) == ("a", {}, (), 0)
    assert found.tracks_rows
    assert not replace(found, format="delta").tracks_rows


@pytest.mark.parametrize("format_", ["parquet", "CSV", None])
def test_other_formats_have_no_change_feed(format_: str | None) -> None:
    with pytest.raises(
        NotDeltaError, match=r"orders is a table in the format (parquet|csv|unknown), not a Delta table"
    ):
        read_table_info(engine(format=format_), ICEBERG)


def test_table_without_an_id_is_rejected() -> None:
    with raises(no_table_id) as caught:
        read_table_info(engine(format="iceberg", id=None), ICEBERG)
    assert (caught.value.table, caught.value.format) == ("main.sales.orders", "iceberg")


@pytest.mark.parametrize(
    ("features", "found"),
    [
        ([], ()),
        (DETAIL["tableFeatures"], ()),
        (["catalogOwned-preview", "variantType-preview"], ()),
        (["timeMachine", "appendOnly", "clocks-preview"], ("clocks-preview", "timeMachine")),
    ],
)
def test_features_are_known_by_name_and_preview_name(features: list[str], found: tuple[str, ...]) -> None:
    assert unknown_features(features) == found


def test_unknown_features_are_rejected_by_name() -> None:
    with raises(unknown_table_features) as caught:
        read_table_info(engine(tableFeatures=["appendOnly", "timeMachine"]), ICEBERG)
    assert caught.value.names == ("timeMachine",)


def test_table_id_differs_from_that_of_a_replaced_table(spark: SparkSession, tmp_path: Path) -> None:
    """`monitor/test_status` covers a table that is dropped and created again."""
    table = DeltaTable(spark, tmp_path / "t")
    before = read_table_info(spark, table.source).table_id
    table.sql("CREATE OR REPLACE TABLE {} USING DELTA AS SELECT 1 AS id")
    assert read_table_info(spark, table.source).table_id != before


def test_restore_and_optimize_preserve_the_table_id(spark: SparkSession, tmp_path: Path) -> None:
    """`test_delta_cases` covers publication after Spark's own RESTORE and OPTIMIZE."""
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    before = read_table_info(spark, table.source).table_id
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    table.sql("OPTIMIZE {}")
    assert read_table_info(spark, table.source).table_id == before


def test_missing_table_is_reported(spark: SparkSession) -> None:
    for name in ("nowhere", "no_schema.nowhere", "no_catalog.no_schema.nowhere"):
        with pytest.raises(SourceMissingError) as caught:
            read_table_info(spark, Source.parse(name))
        assert caught.value.table == name
        assert ("For a folder, write `./nowhere`." in caught.value.solution) == (name == "nowhere")


@pytest.mark.parametrize("kind", ["nothing", "an empty folder", "Parquet files", "a file"])
@pytest.mark.parametrize("look", [read_table_info, read_commits], ids=["detail", "commits"])
def test_path_without_a_delta_table_is_reported(spark: SparkSession, tmp_path: Path, kind: str, look: Any) -> None:
    path = tmp_path / "orders"
    match kind:
        case "an empty folder":
            path.mkdir()
        case "Parquet files":
            spark.range(1).write.parquet(str(path))
        case "a file":
            path.write_text("id\n1\n")
    with pytest.raises(NoTableAtPathError) as caught:
        look(spark, Source(path=str(path)))
    assert caught.value.path == str(path)


@pytest.mark.parametrize("look", [read_table_info, read_commits], ids=["detail", "commits"])
def test_table_without_a_commit_is_not_ready(spark: SparkSession, tmp_path: Path, look: Any) -> None:
    """Delta creates the folder of the log before the first commit."""
    (tmp_path / "orders/_delta_log").mkdir(parents=True)
    with pytest.raises(TableNotReadyError) as caught:
        look(spark, Source(path=str(tmp_path / "orders")))
    assert caught.value.table == str(tmp_path / "orders")


def test_views_and_tables_of_other_formats_are_refused(spark: SparkSession, table: DeltaTable) -> None:
    spark.sql(f"CREATE VIEW a_view AS SELECT * FROM {table.source.sql}")
    spark.sql(f"CREATE TEMPORARY VIEW a_temporary_view AS SELECT * FROM {table.source.sql}")
    spark.sql("CREATE TABLE in_parquet (id int) USING PARQUET")
    expected = {
        "a_view": "a_view is a view, not a Delta table, so it has no change data feed.",
        "a_temporary_view": "a_temporary_view is a view, not a Delta table, so it has no change data feed.",
        "in_parquet": "in_parquet is a table in the format parquet, not a Delta table, so it has no change data feed.",
    }
    try:
        for name, words in expected.items():
            with pytest.raises(NotDeltaError) as caught:
                read_table_info(spark, Source.parse(name))
            assert caught.value.problem == words
    finally:
        spark.sql("DROP VIEW a_view")
        spark.sql("DROP VIEW a_temporary_view")
        spark.sql("DROP TABLE in_parquet")


@pytest.mark.parametrize(
    "folder", ["with space", "dotted.name", "tick`ed", "quo'te\"d", "Łódź-注文", "a%20b", "semi;colon--"]
)
def test_paths_with_special_characters_are_resolved(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    table = DeltaTable(spark, tmp_path / folder)
    table.insert(1)
    assert [commit.version for commit in read_commits(spark, table.source)] == [0, 1]
    assert read_facts(spark, table.source, 0, limit=10).table_id
    assert table.commit_file(1).exists()


@pytest.mark.parametrize("name", ["a.b", "it's; DROP TABLE x --", "two words", "ti`ck", "Łódź", "x` y"])
def test_names_with_special_characters_are_looked_up(spark: SparkSession, name: str) -> None:
    """Spark's own catalog has no such names; other catalogs may."""
    for source in (Source((name,)), Source(("default", name)), Source((name, name)), Source((name, name, name))):
        with pytest.raises(SourceMissingError) as caught:
            read_table_info(spark, source)
        assert str(source) in str(caught.value)
