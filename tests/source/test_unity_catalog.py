"""Names and patterns of tables, read from Unity Catalog's open-source server instead of simulated responses.

The server has no row filters, column masks, tags, keys and access policies. Names are case-sensitive in it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient

import mirrorfeed
from mirrorfeed.config.loader import load
from mirrorfeed.config.pattern_expansion import expand_patterns
from mirrorfeed.source.catalog import list_tables, primary_key, read_catalog_table
from mirrorfeed.source.errors import CatalogRefusedError
from mirrorfeed.source.identifier import Pattern, Source

URL = os.environ.get("UNITY_CATALOG_URL", "")
pytestmark = pytest.mark.skipif(
    not URL, reason="UNITY_CATALOG_URL is not set to the address of an open-source Unity Catalog server"
)
MORE_THAN_A_PAGE = 120
COLUMN = {
    "name": "id", "type_name": "INT", "type_text": "int", "position": 0,
    "type_json": json.dumps({"name": "id", "type": "integer", "nullable": True, "metadata": {}}),
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> WorkspaceClient:
    return WorkspaceClient(host=URL, token="not needed", auth_type="pat")


@pytest.fixture(scope="module")
def catalog(client: WorkspaceClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the name of a catalog with tables of several kinds."""
    name, root = f"c{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("tables")
    client.catalogs.create(name)

    def create(schema: str, table: str, kind: str = "EXTERNAL", format_: str | None = "DELTA") -> None:
        place = {"data_source_format": format_, "storage_location": (root / schema / table).as_uri()}
        table_body = {
            "catalog_name": name,
            "schema_name": schema,
            "name": table,
            "table_type": kind,
            "columns": [COLUMN],
        }
        body = {**table_body, **(place if format_ else {"view_definition": "SELECT 1 AS id"})}
        client.api_client.do("POST", "/api/2.1/unity-catalog/tables", body=body)

    for schema in ("sales", "sales_eu", "Odd-Name"):
        client.schemas.create(schema, name)
    for table in ("orders", "Customers"):
        create("sales", table)
    create("sales", "raw", format_="PARQUET")
    create("sales", "recent", "VIEW", None)
    create("Odd-Name", "orders")
    for number in range(MORE_THAN_A_PAGE):
        create("sales_eu", f"t{number:03}")
    yield name
    path = f"/api/2.1/unity-catalog/catalogs/{name}"
    client.api_client.do("DELETE", path, query={"force": "true"}, raw=True)  # the response is no JSON


def listed(client: WorkspaceClient, pattern: str) -> list[str]:
    found = list_tables(Pattern.parse(pattern), lambda _: True, lambda: pytest.fail("Spark"), lambda: client)
    assert all(each.columns == ("id",) for each in found)
    return [".".join(each.source.parts[1:]) for each in found]


def test_patterns_select_tables_of_all_schemas(client: WorkspaceClient, catalog: str) -> None:
    sales = ["sales.Customers", "sales.orders", "sales.raw", "sales.recent"]
    european = [f"sales_eu.t{number:03}" for number in range(MORE_THAN_A_PAGE)]
    assert listed(client, f"{catalog}.sales.*") == sales
    assert listed(client, f"{catalog}.sales_eu.*") == european
    assert listed(client, f"{catalog}.*.*") == ["Odd-Name.orders", *sales, *european]
    assert listed(client, f"{catalog}.*.ORDERS") == ["Odd-Name.orders", "sales.orders"]
    assert listed(client, f"{catalog}.S*.c*") == ["sales.Customers"]
    assert listed(client, f"{catalog}.nothing*.*") == []


def test_configuration_selects_tables_and_says_why_not_others(
    catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", URL)
    monkeypatch.setenv("DATABRICKS_TOKEN", "not needed")
    (tmp_path / "mirrorfeed.yml").write_text(
        f"landing_zone: ./zone\ntables:\n"
        f"  - {{source: {catalog}.sales.orders, target: orders, keys: [id]}}\n"
        f"  - {{sources: {catalog}.sales.*, target: '{{table}}', keys: [id]}}\n"
        f"  - {{sources: {catalog}.*.*, target: '{{schema}}.{{table}}', keys: [id], exclude: ['t*']}}\n"
    )
    expansion = expand_patterns(load(tmp_path / "mirrorfeed.yml"), lambda: pytest.fail("Spark"))
    reasons = {".".join(each.source.parts[1:]): each.why for each in expansion.candidates}
    assert {str(table.target) for table in expansion.config.tables} == {"orders", "Customers", "Odd-Name.orders"}
    assert "a table in the format parquet" in reasons["sales.raw"]
    assert "a view" in reasons["sales.recent"]
    assert len(reasons) == MORE_THAN_A_PAGE + 5
    assert set(mirrorfeed.load(tmp_path / "mirrorfeed.yml").tables) == {"orders", "Customers", "Odd-Name.orders"}


def test_table_without_a_key_and_missing_names(client: WorkspaceClient, catalog: str) -> None:
    assert primary_key(read_catalog_table(client, Source((catalog, "Odd-Name", "orders")))) == ()
    for parts in (("sales", "missing"), ("missing", "orders"), ("sales", "a#b"), ("sales", "a?b%c ü")):
        with pytest.raises(CatalogRefusedError, match="not found"):
            read_catalog_table(client, Source((catalog, *parts)))
    for pattern in (f"{catalog}.missing.*", "missing.*.*"):
        with pytest.raises(CatalogRefusedError, match=r"The list of tables .* cannot be read: .* not found"):
            listed(client, pattern)
