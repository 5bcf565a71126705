"""Publication settings of a table, from the configuration and from Unity Catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from databricks.sdk.service.catalog import PrimaryKeyConstraint, TableConstraint, TableInfo, TableType

from mirrorfeed.config.model import Table
from mirrorfeed.landing.errors import invalid_key, invalid_selection
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.schema import Problem
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files.staging_job import BadRow
from mirrorfeed.publish.next_publication import next_columns, with_keys, with_tags
from mirrorfeed.publish.table_result import TableResult, add_record
from mirrorfeed.source.snapshot_or_range import Facts, Range, Snapshot
from mirrorfeed.storage.errors import LocationUnusableError
from mirrorfeed.storage.local_folder import FolderStore, check_writable
from tests.raised import raises


class Catalog:
    """Unity Catalog as databricks-sdk returns it, with one primary key for all tables."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.tables = self

    def get(self, full_name: str) -> Any:
        self.requests.append(full_name)
        key = TableConstraint(
            primary_key_constraint=PrimaryKeyConstraint(child_columns=["order_id", "line"], name="pk")
        )
        return TableInfo(table_constraints=[key], table_type=TableType.EXTERNAL)


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
    with raises(invalid_selection, match="'line' is a key and cannot be excluded"):
        keys(exclude_columns=["line"])


def test_tags_of_columns_are_read_only_with_rules_for_them() -> None:
    def no_session() -> Any:
        raise AssertionError("Spark is not needed.")

    table = Table.model_validate({"source": "main.sales.orders", "target": "sales.orders", "transform": {"a": "mask"}})
    assert with_tags(table, no_session) is table


@pytest.mark.parametrize("key", ["quantity", "skuu"])
def test_keys_must_be_names_of_source_columns(key: str) -> None:
    fields = [{"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in ("sku", "qty")]
    source: Any = SimpleNamespace(schema=lambda *_: {"fields": fields})
    options = {"keys": [key], "rename": {"qty": "quantity"}}
    table = Table.model_validate({"source": "sales.orders", "target": "sales.orders", **options})
    with raises(invalid_key, match=f"'{key}' cannot be a key of .*: it does not exist; the table has 'sku', 'qty'"):
        next_columns(source, table, None, Facts("id", 1, ()), 1)


def test_advice_for_bad_keys_of_a_snapshot_and_of_a_range_differs() -> None:
    rows = [BadRow(Problem.DUPLICATE_KEY, "id=1")]
    snapshot, part = (RowsRefusedError(table="t", range=what, rows=rows) for what in (Snapshot(3), Range(3, 7)))
    assert "max_versions_per_publication" in part.solution
    assert "max_versions_per_publication" not in snapshot.solution
    assert snapshot.solution.endswith("The next run publishes a snapshot of the version that is then the newest.")


@pytest.mark.parametrize("folder", ["sales.schema/new", "sales.schema/orders"])
def test_folder_without_write_permission_is_found_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    store = FolderStore(str(tmp_path / "zone"))
    (tmp_path / "zone/sales.schema/orders").mkdir(parents=True)
    check_writable(store, folder)
    asked: list[str] = []
    monkeypatch.setattr("os.access", lambda path, _: asked.append(str(path)))
    with pytest.raises(LocationUnusableError, match="this process has no permission to write to"):
        check_writable(store, folder)
    existing = tmp_path / "zone/sales.schema"
    assert asked == [str(existing / "orders" if folder.endswith("orders") else existing)]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["orders", "sales.schema", "zone"]


def test_first_load_of_a_table_without_configured_keys_names_the_consequence() -> None:
    def remarks(**options: Any) -> str:
        result = TableResult("t", **options)
        add_record(result, record)
        return " ".join(result.remarks())

    record = Record(1, "ab", "2026-03-14T09:30:00+00:00", "s", "id", None, 0, (), (), 1)
    assert "so it takes only inserts" in remarks(keys_configured=False)
    assert "so it takes only inserts" not in remarks(keys_configured=True)
    record = replace(record, from_version_exclusive=0, to_version_inclusive=1)
    assert "so it takes only inserts" not in remarks(keys_configured=False)
