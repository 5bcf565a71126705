"""How a table is published, by the configuration and by Unity Catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirrorfeed.config import Table
from mirrorfeed.publish.plan import plan_of


class Catalog:
    """Unity Catalog as databricks-sdk shows it, with one primary key for all tables."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tables = self

    def get(self, full_name: str) -> Any:
        self.asked.append(full_name)
        key = SimpleNamespace(primary_key_constraint=SimpleNamespace(child_columns=["order_id", "line"]))
        return SimpleNamespace(table_constraints=[key], row_filter=None, columns=None)


@pytest.mark.parametrize(
    ("source", "keys", "expected", "asked"),
    [
        ("main.sales.orders", None, ("order_id", "line"), ["main.sales.orders"]),
        ("main.sales.orders", ["id"], ("id",), ["main.sales.orders"]),  # for its row filter
        ("main.sales.orders", [], (), ["main.sales.orders"]),
        ("sales.orders", None, (), []),
        ("/tables/orders", None, (), []),
    ],
)
def test_keys_left_out_are_asked_of_unity_catalog(
    source: str, keys: list[str] | None, expected: tuple[str, ...], asked: list[str]
) -> None:
    catalog = Catalog()
    given = {} if keys is None else {"keys": keys}
    table = Table.model_validate({"source": source, "target": "sales.orders", **given})
    assert plan_of(table, lambda: catalog).keys == expected
    assert catalog.asked == asked
