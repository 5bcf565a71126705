from __future__ import annotations

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk import errors as sdk
from databricks.sdk.service.catalog import (
    ColumnInfo,
    ColumnMask,
    ForeignKeyConstraint,
    NamedTableConstraint,
    PrimaryKeyConstraint,
    TableConstraint,
    TableInfo,
    TableRowFilter,
)

from fixtures.fakes import RecordingWorkspace
from mirrorfeed.config import Table
from mirrorfeed.errors import MirrorfeedError, Terminal, Transient
from mirrorfeed.landing.names import Target
from mirrorfeed.publish.plan import plan_of
from mirrorfeed.source.catalog import Workspace, check_policies, in_unity_catalog, key_of, table_of
from mirrorfeed.source.errors import KeysNotReadable, KeysUnavailable, RowsProtected
from mirrorfeed.source.identifier import Source

ORDERS = Source.parse("main.sales.orders")


def primary_key(workspace: Workspace, source: Source) -> tuple[str, ...]:
    return key_of(table_of(workspace, source))


def key(*columns: str) -> TableConstraint:
    return TableConstraint(primary_key_constraint=PrimaryKeyConstraint(name="pk", child_columns=list(columns)))


FOREIGN = TableConstraint(
    foreign_key_constraint=ForeignKeyConstraint(
        name="fk", child_columns=["customer_id"], parent_table="main.sales.customers", parent_columns=["id"]
    )
)
NAMED = TableConstraint(named_table_constraint=NamedTableConstraint(name="checked"))


def the_real_client_fits(client: WorkspaceClient) -> Workspace:
    """For the type checker."""
    return client


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
def test_the_key_is_that_of_the_primary_key_constraint_if_there_is_one(
    table: TableInfo, columns: tuple[str, ...]
) -> None:
    workspace = RecordingWorkspace({"main.sales.orders": table})
    assert primary_key(workspace, ORDERS) == columns
    assert workspace.tables.asked == ["main.sales.orders"]


def test_the_answer_of_the_service_is_read_in_the_form_in_which_it_comes() -> None:
    answer = {
        "name": "orders",
        "table_constraints": [
            {"foreign_key_constraint": {"name": "fk", "child_columns": ["a"], "parent_table": "b"}},
            {"primary_key_constraint": {"name": "pk", "child_columns": ["shop", "order_id"]}},
        ],
    }
    workspace = RecordingWorkspace({"main.sales.orders": TableInfo.from_dict(answer)})
    assert primary_key(workspace, ORDERS) == ("shop", "order_id")


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
def test_a_source_outside_of_unity_catalog_has_no_key_there_and_nothing_is_asked(text: str) -> None:
    workspace = RecordingWorkspace({})
    assert not in_unity_catalog(Source.parse(text))
    assert plan_of(Table(source=Source.parse(text), target=Target.parse("orders")), lambda: workspace).keys == ()
    assert workspace.tables.asked == []


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("main.sales.`orders #1?`", "main.sales.orders%20%231%3F"),
        ("main.sales.`100%`", "main.sales.100%25"),
        ("main.läger.orders", "main.l%C3%A4ger.orders"),
        ("main.sales.`a.b`", "main.sales.a.b"),
    ],
)
def test_a_name_cannot_lead_the_request_to_another_address(text: str, asked: str) -> None:
    workspace = RecordingWorkspace({asked: TableInfo(table_constraints=[key("id")])})
    assert primary_key(workspace, Source.parse(text)) == ("id",)
    assert workspace.tables.asked == [asked]


@pytest.mark.parametrize(
    ("answer", "kind", "root"),
    [
        (sdk.NotFound("Table 'main.sales.orders' does not exist."), KeysNotReadable, Terminal),
        (sdk.PermissionDenied("User lacks SELECT"), KeysNotReadable, Terminal),
        (sdk.Unauthenticated("Token expired"), KeysNotReadable, Terminal),
        (sdk.InvalidParameterValue("Not a name"), KeysNotReadable, Terminal),
        (sdk.TooManyRequests("Slow down"), KeysUnavailable, Transient),
        (sdk.InternalError("Oops"), KeysUnavailable, Transient),
        (sdk.TemporarilyUnavailable("Later"), KeysUnavailable, Transient),
        (TimeoutError("Timed out after 0:05:00"), KeysUnavailable, Transient),
        (ConnectionResetError("Connection reset by peer"), KeysUnavailable, Transient),
    ],
)
def test_a_refusal_is_for_a_person_and_a_fault_is_for_another_try(
    answer: Exception, kind: type[MirrorfeedError], root: type[MirrorfeedError]
) -> None:
    with pytest.raises(kind) as caught:
        primary_key(RecordingWorkspace({"main.sales.orders": answer}), ORDERS)
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
def test_a_table_with_a_row_filter_or_a_mask_is_refused_by_name(
    table: TableInfo, words: str, keys: tuple[str, ...] | None
) -> None:
    orders = Table(source=ORDERS, target=Target.parse("orders"), keys=keys)
    with pytest.raises(RowsProtected) as refused:
        plan_of(orders, lambda: RecordingWorkspace({"main.sales.orders": table}))
    assert refused.value.protection == words


@pytest.mark.parametrize("table", [TableInfo(), TableInfo(columns=[PLAIN])])
def test_other_tables_hide_nothing(table: TableInfo) -> None:
    check_policies(ORDERS, table)


@pytest.mark.parametrize("answer", [sdk.PermissionDenied("no"), sdk.InternalError("Oops")])
def test_keys_that_a_person_wrote_do_without_the_catalogs_answer(answer: Exception) -> None:
    orders = Table(source=ORDERS, target=Target.parse("orders"), keys=("id",))
    assert plan_of(orders, lambda: RecordingWorkspace({"main.sales.orders": answer})).keys == ("id",)
