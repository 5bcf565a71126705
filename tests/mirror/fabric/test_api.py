"""The operations of `feed.fabric`."""

from __future__ import annotations

from pathlib import Path

import pytest

import mirrorfeed
from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed import Feed
from tests.mirror.fabric.test_endpoint import READ, SYNCS


@pytest.fixture
def feed(tmp_path: Path, onelake: OneLake) -> Feed:
    text = f"{onelake.configuration(f'onelake://{WORKSPACE}/{DATABASE}')}fabric: {{retention_days: 30}}\n"
    file = tmp_path / "mirrorfeed.yml"
    file.write_text(f"{text}tables: [{{source: ./orders, target: sales.orders, keys: [id]}}]\n", encoding="utf-8")
    return mirrorfeed.load(file)


def test_definition_is_compared_and_changed_if_it_differs(feed: Feed, onelake: OneLake) -> None:
    (planned,) = feed.fabric.plan()
    assert (planned.field, planned.current, planned.wanted, planned.changes) == ("retention_days", None, 30, True)
    assert "retentionInDays" not in onelake.fabric.databases[DATABASE].target
    assert feed.fabric.apply().rows == (planned,)
    assert onelake.fabric.databases[DATABASE].target["retentionInDays"] == 30
    assert repr(feed.fabric.plan()).startswith(
        "The settings in Fabric match the configuration.\nIn Fabric: retention_days: 30"
    )
    assert repr(feed.fabric.apply()) == "No setting had to change."


def test_fabric_status_has_a_row_per_table(feed: Feed, onelake: OneLake) -> None:
    onelake.fabric.databases[DATABASE].tables = {
        ("sales", "orders"): {"status": "Failed", "error": "broken"},
        ("sales", "lines"): {"status": "Failed"},
        ("dbo", "all"): {"status": "Replicating", "metrics": {"processedRows": 7}},
    }
    found = feed.fabric.status()
    assert found.notes == ("The mirrored database is Initialized.",)
    assert {row.table: (row.status, row.rows, row.error, row.ok) for row in found} == {
        "sales.orders": ("Failed", None, "broken", False),
        "sales.lines": ("Failed", None, None, False),
        "dbo.all": ("Replicating", 7, None, True),
    }


def test_fabric_refresh_returns_the_sync_of_each_table(feed: Feed, onelake: OneLake) -> None:
    onelake.fabric.syncs = SYNCS
    found = feed.fabric.refresh()
    assert [(row.table, row.synced, row.error) for row in found] == [(e.table, e.synced, e.error) for e in READ]
    assert [row.ok for row in found] == [True, True, False]
