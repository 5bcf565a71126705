"""The log of workspace monitoring, from a simulated KQL database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fixtures.onelake import DATABASE, OneLake
from fixtures.onelake.fabric import MONITORING
from mirrorfeed import Feed
from mirrorfeed.mirror.errors import fabric_response_invalid, untrusted_monitoring_host, workspace_monitoring_off
from tests.mirror.fabric.test_api import feed as feed
from tests.raised import raises


def entry(
    table: str, latency: int | None = 21, error: str | None = None, schema: str | None = "sales"
) -> dict[str, Any]:
    return {
        "SourceSchemaName": schema, "SourceTableName": table, "Timestamp": "2026-11-28T10:00:00Z",
        "OperationName": "Replicating", "ProcessedRows": 7, "ProcessedBytes": 2048, "ReplicatorBatchLatency": latency,
        "ErrorType": "UserError" if error else "", "ErrorMessage": error,
    }  # fmt: skip


def test_newest_batch_of_each_table_is_read_with_its_latency_and_error(feed: Feed, onelake: OneLake) -> None:
    onelake.fabric.monitoring_address = f"https://{onelake.address}"
    onelake.fabric.executions = [entry("orders"), entry("all", None, "broken", schema=None)]
    found = feed.fabric.log(2)
    time = datetime(2026, 11, 28, 10, tzinfo=UTC)
    assert [(row.table, row.operation, row.time, row.rows, row.bytes) for row in found] == [
        ("dbo.all", "Replicating", time, 7, 2048),
        ("sales.orders", "Replicating", time, 7, 2048),
    ]
    assert [(row.latency_seconds, row.error, row.ok) for row in found] == [
        (None, "UserError: broken", False),
        (21, None, True),
    ]
    (query,) = onelake.fabric.queries
    assert query["db"] == MONITORING
    assert f"Timestamp > ago(120m) and ItemId == '{DATABASE}'" in query["csl"]


def test_empty_log_is_reported(feed: Feed, onelake: OneLake) -> None:
    onelake.fabric.monitoring_address = f"https://{onelake.address}"
    assert repr(feed.fabric.log()) == "The log has no entry of the last 24 hours."


def test_missing_monitoring_is_reported(feed: Feed) -> None:
    with raises(workspace_monitoring_off):
        feed.fabric.log()


def test_token_is_not_sent_to_an_unknown_host(feed: Feed, onelake: OneLake) -> None:
    onelake.fabric.monitoring_address = "https://kusto.example.org"
    with raises(untrusted_monitoring_host, match=r"kusto\.example\.org"):
        feed.fabric.log()


def test_log_with_unexpected_types_is_one_error(feed: Feed, onelake: OneLake) -> None:
    onelake.fabric.monitoring_address = f"https://{onelake.address}"
    onelake.fabric.executions = [entry("orders") | {"ProcessedRows": "seven"}]
    with raises(fabric_response_invalid):
        feed.fabric.log()
