from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from databricks.sdk.errors import InternalError, NotFound
from databricks.sdk.service.catalog import ColumnInfo, DataSourceFormat, SchemaInfo, TableInfo, TableType
from pyspark.sql import SparkSession

from mirrorfeed.source.catalog import found
from mirrorfeed.source.errors import SourcesUnavailable, SourcesUnknown
from mirrorfeed.source.identifier import Found, Pattern, Source


class Catalog:
    """A workspace that lists what it was given, and notes what it is asked."""

    def __init__(self, tables: dict[str, Sequence[TableInfo]], error: Exception | None = None) -> None:
        self._tables, self._error, self.asked = tables, error, list[str]()

    @property
    def schemas(self) -> Catalog:
        return self

    tables = schemas

    def list(self, catalog_name: str, schema_name: str | None = None) -> Iterator[Any]:
        self.asked.append(".".join(filter(None, [catalog_name, schema_name])))
        if self._error:
            raise self._error
        if schema_name is None:
            return iter([SchemaInfo(name=name) for name in self._tables])
        return iter(self._tables[schema_name])


def table(name: str, kind: TableType = TableType.MANAGED, form: str | None = "DELTA", *columns: str) -> TableInfo:
    return TableInfo(
        name=name,
        table_type=kind,
        data_source_format=getattr(DataSourceFormat, form, None) if form else None,  # older clients know fewer,
        columns=[ColumnInfo(name=each) for each in columns],
    )


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked")


def asked(pattern: str, workspace: Callable[[], Any], *, columns: bool = False) -> list[Found]:
    return found(Pattern.parse(pattern), columns, no_spark, workspace)


def test_unity_catalog_tells_the_tables_of_a_schema_and_what_has_no_feed() -> None:
    catalog = Catalog(
        {
            "sales": [
                table("orders", TableType.MANAGED, "DELTA", "id", "v"),
                table("lines", TableType.EXTERNAL, "ICEBERG"),
                table("seen", TableType.VIEW, None),
                table("sums", TableType.MATERIALIZED_VIEW, "DELTA"),
                table("events", TableType.STREAMING_TABLE, "DELTA"),
                table("theirs", TableType.FOREIGN, "POSTGRESQL_FORMAT"),
                table("raw", TableType.EXTERNAL, "PARQUET"),
            ]
        }
    )
    told = asked("main.sales.*", lambda: catalog)
    assert {each.source.parts[-1]: each.unfit for each in told} == {
        "events": "a streaming table",
        "lines": "",
        "orders": "",
        "raw": "a table in the format parquet",
        "seen": "a view",
        "sums": "a materialized view",
        "theirs": "a foreign table",
    }
    assert next(each.columns for each in told if each.source == Source(("main", "sales", "orders"))) == ("id", "v")
    assert catalog.asked == ["main.sales"]


def test_of_a_whole_catalog_each_schema_is_asked_but_the_one_that_tells_of_the_others() -> None:
    catalog = Catalog({"sales": [table("b"), table("a")], "crm": [table("a")], "information_schema": [table("tables")]})
    assert [str(each.source) for each in asked("main.*.*", lambda: catalog)] == [
        "main.crm.a", "main.sales.a", "main.sales.b",
    ]  # fmt: skip
    assert catalog.asked == ["main", "main.sales", "main.crm"]
    assert [str(each.source) for each in asked("main.c*.*", lambda: catalog)] == ["main.crm.a"]


def test_what_unity_catalog_does_not_tell_is_said() -> None:
    with pytest.raises(SourcesUnknown) as refused:
        asked("main.sales.*", lambda: Catalog({}, NotFound("Schema 'main.sales' does not exist.")))
    assert (refused.value.pattern, refused.value.reason) == ("main.sales.*", "Schema 'main.sales' does not exist")
    with pytest.raises(SourcesUnavailable) as failed:
        asked("main.sales.*", lambda: Catalog({}, InternalError("try again")))
    assert (failed.value.pattern, failed.value.reason) == ("main.sales.*", "try again")
    with pytest.raises(SourcesUnavailable, match=r": Timed out after 0:05:00\."):
        asked("main.sales.*", lambda: Catalog({}, TimeoutError("Timed out after 0:05:00")))


def test_folders_tell_their_tables_without_spark(tmp_path: Path) -> None:
    for name in ("orders", "lines"):
        deltalake.write_deltalake(tmp_path / "lake/sales" / name, pa.table({"id": [1], "v": ["a"]}))
    (tmp_path / "lake/sales/no table").mkdir()
    (tmp_path / "lake/loose").write_text("")
    told = asked(f"{tmp_path}/lake/sales/*", no_spark, columns=True)
    assert told == [
        Found(Source(path=f"{tmp_path}/lake/sales/{name}"), "", ("id", "v")) for name in ("lines", "orders")
    ]
    assert [each.source.path for each in asked(f"{tmp_path}/lake/*/o*", no_spark)] == [f"{tmp_path}/lake/sales/orders"]
    with pytest.raises(SourcesUnknown, match=r"cannot be listed: .*/nowhere: No such file or directory\."):
        asked(f"{tmp_path}/nowhere/*", no_spark)


def test_sparks_catalog_tells_where_no_workspace_is_configured(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA wide_sales")
    try:
        spark.sql("CREATE TABLE wide_sales.orders (id int, v string) USING DELTA")
        spark.sql("CREATE TABLE wide_sales.raw (id int) USING PARQUET")
        spark.sql("CREATE VIEW wide_sales.seen AS SELECT 1 AS id")
        for pattern, above in (
            ("wide_sales.*", ()),
            ("wide_*.*", ()),
            ("spark_catalog.wide_sales.*", ("spark_catalog",)),
        ):
            assert found(Pattern.parse(pattern), True, lambda: spark, no_spark) == [
                Found(Source((*above, "wide_sales", "orders")), columns=("id", "v")),
                Found(Source((*above, "wide_sales", "raw")), "a table in the format parquet", ("id",)),
                Found(Source((*above, "wide_sales", "seen")), "a view", ("id",)),
            ]
        for pattern in ("no_such_schema.*", "no_such_catalog.sales.*"):
            with pytest.raises(SourcesUnknown, match="Check the name of the schema or folder"):
                found(Pattern.parse(pattern), False, lambda: spark, _unconfigured)
    finally:
        spark.sql("DROP SCHEMA wide_sales CASCADE")


def _unconfigured() -> Any:
    raise ValueError("no workspace is configured")
