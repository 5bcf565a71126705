"""Publication settings of a table, from the configuration and from Unity Catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirrorfeed.config.model import Table
from mirrorfeed.landing.errors import BadKey, BadSelection
from mirrorfeed.publish.next_publication import next_columns, with_keys
from mirrorfeed.source.snapshot_or_range import Facts


class Catalog:
    """Unity Catalog as databricks-sdk returns it, with one primary key for all tables."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.tables = self

    def get(self, full_name: str) -> Any:
        self.requests.append(full_name)
        key = SimpleNamespace(primary_key_constraint=SimpleNamespace(child_columns=["order_id", "line"]))
        return SimpleNamespace(table_constraints=[key], row_filter=None, columns=None)


@pytest.mark.parametrize(
    ("source", "keys", "expected", "requests"),
    [
        ("main.sales.orders", None, ("order_id", "line"), ["main.sales.orders"]),
        ("main.sales.orders", ["id"], ("id",), ["main.sales.orders"]),  # because of its row filter
        ("main.sales.orders", [], (), ["main.sales.orders"]),
        ("sales.orders", None, (), []),
        ("/tables/orders", None, (), []),
    ],
)
def test_missing_keys_are_read_from_unity_catalog(
    source: str, keys: list[str] | None, expected: tuple[str, ...], requests: list[str]
) -> None:
    catalog = Catalog()
    given = {} if keys is None else {"keys": keys}
    table = Table.model_validate({"source": source, "target": "sales.orders", **given})
    assert with_keys(table, lambda: catalog).keys == expected
    assert catalog.requests == requests


def test_unity_catalog_keys_use_target_names_and_cannot_be_excluded() -> None:
    def keys(**selection: Any) -> tuple[str, ...]:
        table = Table.model_validate({"source": "main.sales.orders", "target": "sales.orders", **selection})
        return with_keys(table, Catalog).target_keys

    assert keys(rename={"line": "position"}, cast={"line": "string"}) == ("order_id", "position")
    with pytest.raises(BadSelection, match="'line' is a key and cannot be excluded"):
        keys(exclude_columns=["line"])


@pytest.mark.parametrize("key", ["quantity", "skuu"])
def test_keys_must_be_names_of_source_columns(key: str) -> None:
    fields = [{"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in ("sku", "qty")]
    source: Any = SimpleNamespace(schema=lambda *_: {"fields": fields})
    options = {"keys": [key], "rename": {"qty": "quantity"}}
    table = Table.model_validate({"source": "sales.orders", "target": "sales.orders", **options})
    with pytest.raises(BadKey, match=f"'{key}' cannot be a key of .*: it does not exist; the table has 'sku', 'qty'"):
        next_columns(source, table, None, Facts("id", 1, ()), 1)
