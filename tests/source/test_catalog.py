from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import deltalake
import pyarrow as pa
import pytest
from databricks.sdk import errors as sdk
from databricks.sdk.errors import InternalError, NotFound
from databricks.sdk.service.catalog import (
    ColumnInfo,
    ColumnMask,
    DataSourceFormat,
    ForeignKeyConstraint,
    NamedTableConstraint,
    PrimaryKeyConstraint,
    SchemaInfo,
    TableConstraint,
    TableInfo,
    TableRowFilter,
    TableType,
)
from pyspark.sql import SparkSession

from fixtures.fakes import RecordingWorkspace
from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, TerminalError, TransientError
from mirrorfeed.landing.names import Target
from mirrorfeed.publish.next_publication import with_keys
from mirrorfeed.source import catalog as catalog_module
from mirrorfeed.source.catalog import (
    check_policies,
    list_tables,
    primary_key,
    read_catalog_table,
    read_column_tags,
    read_tags,
)
from mirrorfeed.source.errors import CatalogRefusedError, CatalogUnavailableError, policies_not_excluded, rows_protected
from mirrorfeed.source.identifier import FoundTable, Pattern, Source
from tests.raised import Expected, raises

ORDERS = Source.parse("main.sales.orders")


def key_of(workspace: RecordingWorkspace, source: Source) -> tuple[str, ...]:
    return primary_key(read_catalog_table(workspace, source))


def key(*columns: str) -> TableConstraint:
    return TableConstraint(primary_key_constraint=PrimaryKeyConstraint(name="pk", child_columns=list(columns)))


FOREIGN = TableConstraint(
    foreign_key_constraint=ForeignKeyConstraint(
        name="fk", child_columns=["customer_id"], parent_table="main.sales.customers", parent_columns=["id"]
    )
)


NAMED = TableConstraint(named_table_constraint=NamedTableConstraint(name="checked"))


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (TableInfo(table_constraints=[key("order_id")]), ("order_id",)),
        (TableInfo(table_constraints=[key("shop", "order_id")]), ("shop", "order_id")),
        (TableInfo(table_constraints=[FOREIGN, NAMED, key("order_id")]), ("order_id",)),
        (TableInfo(table_constraints=[FOREIGN, NAMED]), ()),
        (TableInfo(table_constraints=[]), ()),
        (TableInfo(), ()),
    ],
)
def test_primary_key_constraint_gives_the_keys(table: TableInfo, columns: tuple[str, ...]) -> None:
    workspace = RecordingWorkspace({"main.sales.orders": table})
    assert key_of(workspace, ORDERS) == columns
    assert workspace.tables.requests == ["main.sales.orders"]


def test_response_of_unity_catalog_is_parsed() -> None:
    answer = {
        "name": "orders",
        "table_constraints": [
            {"foreign_key_constraint": {"name": "fk", "child_columns": ["a"], "parent_table": "b"}},
            {"primary_key_constraint": {"name": "pk", "child_columns": ["shop", "order_id"]}},
        ],
    }
    workspace = RecordingWorkspace({"main.sales.orders": TableInfo.from_dict(answer)})
    assert key_of(workspace, ORDERS) == ("shop", "order_id")


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "sales.orders",
        "/data/orders",
        "abfss://lake@account.dfs.core.windows.net/orders",
        "hive_metastore.sales.orders",
        "spark_catalog.sales.orders",
    ],
)
def test_source_outside_of_unity_catalog_has_no_key_and_needs_no_request(text: str) -> None:
    workspace = RecordingWorkspace({})
    assert not Source.parse(text).is_in_unity_catalog
    assert with_keys(Table(source=Source.parse(text), target=Target.parse("orders")), lambda: workspace).keys == ()
    assert workspace.tables.requests == []


@pytest.mark.parametrize(
    ("text", "list_pattern"),
    [
        ("main.sales.`orders #1?`", "main.sales.orders%20%231%3F"),
        ("main.sales.`100%`", "main.sales.100%25"),
        ("main.läger.orders", "main.l%C3%A4ger.orders"),
        ("main.sales.`a.b`", "main.sales.a.b"),
    ],
)
def test_table_name_cannot_redirect_the_request(text: str, list_pattern: str) -> None:
    workspace = RecordingWorkspace({list_pattern: TableInfo(table_constraints=[key("id")])})
    assert key_of(workspace, Source.parse(text)) == ("id",)
    assert workspace.tables.requests == [list_pattern]


@pytest.mark.parametrize(
    ("answer", "kind", "root"),
    [
        (sdk.NotFound("Table 'main.sales.orders' does not exist."), CatalogRefusedError, TerminalError),
        (sdk.PermissionDenied("User lacks SELECT"), CatalogRefusedError, TerminalError),
        (sdk.Unauthenticated("Token expired"), CatalogRefusedError, TerminalError),
        (sdk.InvalidParameterValue("Not a name"), CatalogRefusedError, TerminalError),
        (sdk.TooManyRequests("Slow down"), CatalogUnavailableError, TransientError),
        (sdk.InternalError("Oops"), CatalogUnavailableError, TransientError),
        (sdk.TemporarilyUnavailable("Later"), CatalogUnavailableError, TransientError),
        (TimeoutError("Timed out after 0:05:00"), CatalogUnavailableError, TransientError),
        (ConnectionResetError("Connection reset by peer"), CatalogUnavailableError, TransientError),
    ],
)
def test_refused_request_is_terminal_and_a_failed_one_transient(
    answer: Exception, kind: Expected, root: type[MirrorfeedError]
) -> None:
    with raises(kind) as caught:
        key_of(RecordingWorkspace({"main.sales.orders": answer}), ORDERS)
    assert isinstance(caught.value, root)
    assert caught.value.__cause__ is answer


FILTER = TableRowFilter(function_name="main.rules.own_region", input_column_names=["region"])


MASKED = ColumnInfo(name="card", mask=ColumnMask(function_name="main.rules.last_four"))


PLAIN = ColumnInfo(name="id")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (TableInfo(row_filter=FILTER, columns=[PLAIN]), "the row filter main.rules.own_region"),
        (TableInfo(columns=[PLAIN, MASKED]), "column masks on card"),
        (
            TableInfo(row_filter=FILTER, columns=[MASKED]),
            "the row filter main.rules.own_region and column masks on card",
        ),
    ],
)
@pytest.mark.parametrize("keys", [None, ("id",)])
def test_table_with_row_filter_or_column_mask_is_refused_by_name(
    table: TableInfo, words: str, keys: tuple[str, ...] | None
) -> None:
    orders = Table(source=ORDERS, target=Target.parse("orders"), keys=keys)
    with raises(rows_protected) as caught:
        with_keys(orders, lambda: RecordingWorkspace({"main.sales.orders": table}))
    assert caught.value.computed["protection"] == words


@pytest.mark.parametrize("table", [TableInfo(), TableInfo(columns=[PLAIN])])
def test_tables_without_row_filters_and_masks_are_accepted(table: TableInfo) -> None:
    check_policies(ORDERS, table)


QUALIFIES = {"delta.columnMapping.mode": "name", "delta.feature.catalogManaged": "supported"}


def managed(properties: dict[str, str] | None, form: str = "DELTA", kind: str = "MANAGED") -> TableInfo:
    table_type, format_ = getattr(TableType, kind), getattr(DataSourceFormat, form)
    return TableInfo(properties=properties, table_type=table_type, data_source_format=format_)


def policy(name: str, kind: str = "ROW_FILTER", exempt: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"name": name, "policy_type": f"POLICY_TYPE_{kind}", "except_principals": list(exempt)}


def policies_of(table: TableInfo, *pages: Any, changes: str = "net", policies: str = "check") -> RecordingWorkspace:
    workspace = RecordingWorkspace({"main.sales.orders": table}, pages)
    orders = Table.model_validate(
        {"source": ORDERS, "target": Target.parse("orders"), "keys": ("id",), "changes": changes, "policies": policies}
    )
    with_keys(orders, lambda: workspace)
    return workspace


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([sdk.PermissionDenied("no MANAGE")], "this identity cannot see its policies (no MANAGE)"),
        ([{"policies": [policy("eu", exempt=("other",))]}], "EXCEPT of eu does not name this identity"),
        (
            [{"next_page_token": "2"}, {"policies": [policy("eu"), policy("cards", "COLUMN_MASK")]}],
            "EXCEPT of eu, cards does not name this identity",
        ),
    ],
)
def test_policies_that_cannot_be_excluded_stop_the_table(pages: list[Any], reason: str) -> None:
    with raises(policies_not_excluded) as caught:
        policies_of(managed(QUALIFIES), *pages)
    assert caught.value.reason == reason
    assert policies_of(managed(QUALIFIES), policies="accept").policy_requests == []


@pytest.mark.parametrize(
    "page",
    [
        {},
        {"policies": [policy("eu", exempt=("publisher",)), policy("cards", "COLUMN_MASK", ("a", "publishers"))]},
        {"policies": [policy("more", "GRANT")]},
    ],
)
def test_policies_that_do_not_apply_are_accepted(page: dict[str, Any]) -> None:
    workspace = policies_of(managed(QUALIFIES), page)
    assert workspace.policy_requests == [("policies/TABLE/main.sales.orders", None)]


@pytest.mark.parametrize(
    ("table", "requests"),
    [
        (managed(QUALIFIES), 1),
        (managed({**QUALIFIES, "delta.feature.catalogManaged-preview": "supported"}), 1),
        (managed(None), 1),
        (managed({"a": "b"}, "ICEBERG"), 1),
        (managed({"delta.columnMapping.mode": "name"}), 0),
        (managed({"delta.feature.catalogManaged": "supported"}), 0),
        (managed({**QUALIFIES, "delta.columnMapping.mode": "none"}), 0),
        (managed(QUALIFIES, kind="EXTERNAL"), 0),
        (TableInfo(), 0),
    ],
)
def test_policies_are_read_only_where_old_versions_can_be_filtered(table: TableInfo, requests: int) -> None:
    assert len(policies_of(table, {}).policy_requests) == requests


def test_unavailable_policies_are_a_transient_error() -> None:
    with pytest.raises(CatalogUnavailableError, match="access policies"):
        policies_of(managed(QUALIFIES), sdk.InternalError("Oops"))


@pytest.mark.parametrize("answer", [sdk.PermissionDenied("no"), sdk.InternalError("Oops")])
def test_configured_keys_need_no_catalog_response(answer: Exception) -> None:
    orders = Table(source=ORDERS, target=Target.parse("orders"), keys=("id",))
    assert with_keys(orders, lambda: RecordingWorkspace({"main.sales.orders": answer})).keys == ("id",)


class Catalog:
    """A workspace that returns the given tables and records the requests."""

    def __init__(self, tables: dict[str, Sequence[TableInfo]], error: Exception | None = None) -> None:
        self._tables, self._error, self.requests = tables, error, list[str]()

    @property
    def schemas(self) -> Catalog:
        return self

    tables = schemas

    def list(self, catalog_name: str, schema_name: str | None = None) -> Iterator[Any]:
        self.requests.append(".".join(filter(None, [catalog_name, schema_name])))
        if self._error:
            raise self._error
        if schema_name is None:
            return iter([SchemaInfo(name=name) for name in self._tables])
        return iter(self._tables[schema_name])


def table(name: str, kind: TableType = TableType.MANAGED, form: str | None = "DELTA", *columns: str) -> TableInfo:
    return TableInfo(
        name=name,
        table_type=kind,
        data_source_format=getattr(DataSourceFormat, form, None) if form else None,  # older clients have fewer fields
        columns=[ColumnInfo(name=each) for each in columns],
    )


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked")


def list_pattern(pattern: str, workspace: Callable[[], Any], *, columns: bool = False) -> list[FoundTable]:
    return list_tables(Pattern.parse(pattern), lambda _: columns, no_spark, workspace)


def test_unity_catalog_lists_tables_of_a_schema_with_and_without_a_feed() -> None:
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
    found = list_pattern("main.sales.*", lambda: catalog)
    assert {each.source.parts[-1]: each.unsupported for each in found} == {
        "events": "a streaming table",
        "lines": "",
        "orders": "",
        "raw": "a table in the format parquet",
        "seen": "a view",
        "sums": "a materialized view",
        "theirs": "a foreign table",
    }
    assert next(each.columns for each in found if each.source == Source(("main", "sales", "orders"))) == ("id", "v")
    assert catalog.requests == ["main.sales"]


def test_all_schemas_of_a_catalog_are_listed_except_information_schema() -> None:
    catalog = Catalog({"sales": [table("b"), table("a")], "crm": [table("a")], "information_schema": [table("tables")]})
    assert [str(each.source) for each in list_pattern("main.*.*", lambda: catalog)] == [
        "main.crm.a", "main.sales.a", "main.sales.b",
    ]  # fmt: skip
    assert catalog.requests == ["main", "main.sales", "main.crm"]
    assert [str(each.source) for each in list_pattern("main.c*.*", lambda: catalog)] == ["main.crm.a"]


def test_tags_are_added_to_the_tables_of_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {("main", "sales", "orders"): {("mirror", "fabric")}, ("main", "sales", "other"): {("mirror", "x")}}
    monkeypatch.setattr(catalog_module, "read_tags", lambda *arguments: arguments == ("s", "main", ["mirror"]) and tags)
    catalog = Catalog({"sales": [table("Orders"), table("lines")]})
    found = list_tables(
        Pattern.parse("main.*.*"), lambda _: False, cast("Any", lambda: "s"), lambda: catalog, ["mirror"]
    )
    tags_of = {each.source.parts[2]: set(each.tags) for each in found}
    assert tags_of == {"Orders": {("mirror", "fabric")}, "lines": set()}


def test_errors_of_unity_catalog_are_reported() -> None:
    with pytest.raises(CatalogRefusedError) as caught:
        list_pattern("main.sales.*", lambda: Catalog({}, NotFound("Schema 'main.sales' does not exist.")))
    assert caught.value.name == "The list of tables main.sales.*"
    assert caught.value.reason == "Schema 'main.sales' does not exist."
    with pytest.raises(CatalogUnavailableError) as failed:
        list_pattern("main.sales.*", lambda: Catalog({}, InternalError("try again")))
    assert (failed.value.name, failed.value.reason) == ("The list of tables main.sales.*", "try again")
    with pytest.raises(CatalogUnavailableError, match=r": Timed out after 0:05:00\."):
        list_pattern("main.sales.*", lambda: Catalog({}, TimeoutError("Timed out after 0:05:00")))


def test_folders_are_listed_without_spark(tmp_path: Path) -> None:
    for name in ("orders", "lines"):
        deltalake.write_deltalake(tmp_path / "lake/sales" / name, pa.table({"id": [1], "v": ["a"]}))
    (tmp_path / "lake/sales/no table").mkdir()
    (tmp_path / "lake/loose").write_text("")
    found = list_pattern(f"{tmp_path}/lake/sales/*", no_spark, columns=True)
    assert found == [
        FoundTable(Source(path=f"{tmp_path}/lake/sales/{name}"), "", ("id", "v")) for name in ("lines", "orders")
    ]
    assert [each.source.path for each in list_pattern(f"{tmp_path}/lake/*/o*", no_spark)] == [
        f"{tmp_path}/lake/sales/orders"
    ]
    with pytest.raises(CatalogRefusedError, match=r"cannot be read: .*/nowhere: No such file or directory\."):
        list_pattern(f"{tmp_path}/nowhere/*", no_spark)


def test_schemas_that_spark_lists_in_backticks_are_listed() -> None:
    """Response of Spark with the connector of Unity Catalog's open-source server."""
    table = {"tableName": "orders", "isTemporary": False, "information": "Type: EXTERNAL\nProvider: delta"}
    responses: dict[str, list[Any]] = {
        "SHOW SCHEMAS IN `main`": [("`Odd-Name`",), ("sales",)],
        "SHOW TABLE EXTENDED IN `main`.`Odd-Name` LIKE '*'": [table],
        "SHOW TABLE EXTENDED IN `main`.`sales` LIKE '*'": [table],
    }
    spark: Any = SimpleNamespace(sql=lambda text: SimpleNamespace(collect=lambda: responses[text]))
    found = list_tables(Pattern.parse("main.*.*"), lambda _: False, lambda: spark, _unconfigured)
    assert [each.source.parts for each in found] == [("main", "Odd-Name", "orders"), ("main", "sales", "orders")]


def test_sparks_catalog_is_listed_if_no_workspace_is_configured(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA wide_sales")
    try:
        spark.sql("CREATE TABLE wide_sales.orders (id int, v string) USING DELTA COMMENT 'Orders\nType: facts'")
        spark.sql("CREATE TABLE wide_sales.raw (id int) USING PARQUET")
        spark.sql("CREATE VIEW wide_sales.seen AS SELECT 1 AS id")
        spark.sql("CREATE TABLE wide_sales.base (id int) USING DELTA")
        spark.sql("CREATE VIEW wide_sales.baseless AS SELECT id FROM wide_sales.base")
        spark.sql("DROP TABLE wide_sales.base")
        spark.sql("CREATE TABLE wide_sales.gone (id int) USING DELTA")
        location = spark.sql("DESCRIBE DETAIL wide_sales.gone").first()["location"]
        shutil.rmtree(Path(location.removeprefix("file:")) / "_delta_log")
        for pattern, above in (
            ("wide_sales.*", ()),
            ("wide_*.*", ()),
            ("spark_catalog.wide_sales.*", ("spark_catalog",)),
        ):
            assert list_tables(Pattern.parse(pattern), lambda _: True, lambda: spark, no_spark) == [
                FoundTable(Source((*above, "wide_sales", "baseless")), "a view", None),
                FoundTable(Source((*above, "wide_sales", "gone")), columns=None),
                FoundTable(Source((*above, "wide_sales", "orders")), columns=("id", "v")),
                FoundTable(Source((*above, "wide_sales", "raw")), "a table in the format parquet", ("id",)),
                FoundTable(Source((*above, "wide_sales", "seen")), "a view", ("id",)),
            ]
        for pattern in ("no_such_schema.*", "no_such_catalog.sales.*"):
            with pytest.raises(CatalogRefusedError, match="Check the name and your privileges"):
                list_tables(Pattern.parse(pattern), lambda _: False, lambda: spark, _unconfigured)
    finally:
        spark.sql("DROP SCHEMA wide_sales CASCADE")


def test_tags_are_read_from_the_information_schema(spark: SparkSession) -> None:
    with pytest.raises(CatalogRefusedError, match="The tags in spark_catalog cannot be read"):
        read_tags(spark, "spark_catalog", ["mirror"])
    spark.sql("CREATE SCHEMA information_schema")
    try:
        columns = "catalog_name string, schema_name string, table_name string, tag_name string, tag_value string"
        spark.sql(f"CREATE TABLE information_schema.table_tags ({columns}) USING PARQUET")
        rows = [("orders", "mirror", "it's"), ("orders", "tier", "1"), ("lines", "pii", ""), ("lines", "other", "x")]
        for row in rows:
            spark.sql(f"INSERT INTO information_schema.table_tags VALUES {('spark_catalog', 'sales', *row)}")
        assert read_tags(spark, "spark_catalog", ["mirror", "pii", "no ' such"]) == {
            ("spark_catalog", "sales", "orders"): {("mirror", "it's")},
            ("spark_catalog", "sales", "lines"): {("pii", "")},
        }
        spark.sql(
            "CREATE TABLE information_schema.column_tags (catalog_name string, schema_name string, table_name string,"
            " column_name string, tag_name string, tag_value string) USING PARQUET"
        )
        rows = [("orders", "eMail", "pii", "mail"), ("orders", "note", "other", ""), ("lines", "email", "pii", "x")]
        values = ", ".join(str(("spark_catalog", "sales", *row)) for row in rows)
        spark.sql(f"INSERT INTO information_schema.column_tags VALUES {values}")
        orders = Source(("spark_catalog", "Sales", "ORDERS"))
        assert read_column_tags(spark, orders, ["pii", "level"]) == {"email": {("pii", "mail")}}
    finally:
        spark.sql("DROP SCHEMA information_schema CASCADE")


def _unconfigured() -> Any:
    raise ValueError("no workspace is configured")
