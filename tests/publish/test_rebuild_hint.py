"""When a rebuild is offered instead of ranges."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.orchestration.next_step import find_next_step
from mirrorfeed.publish.rebuild_hint import REBUILD_SHARE, changed_share, rebuild_hint
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.snapshot_or_range import Commit, Facts, PublishedVersion, PublishRanges, Range
from tests.support.entries import FOLDER, entry
from tests.support.tables import Table as FedTable
from tests.support.tables import TableFeed

Metrics = dict[str, str | None]
RANGES = PublishRanges((Range(3, 4), Range(4, 5)))
NONE: Metrics = {"numAddedBytes": "9999"}
"""Metrics of an OPTIMIZE."""


def facts(operation: str, metrics: Metrics, size: int | None = 1000) -> Facts:
    """Facts about a table of this size with an OPTIMIZE and another commit."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = None if operation == "TRUNCATE" else 1
    commits = Commit(4, at, "OPTIMIZE", 0, {}, NONE), Commit(5, at, operation, rows, {}, metrics)
    return Facts("id", 5, commits, bytes=size)


@pytest.mark.parametrize(
    ("operation", "metrics", "share"),
    [
        ("WRITE", {"numOutputRows": "5", "numOutputBytes": "700"}, 0.7),
        ("UPDATE", {"numUpdatedRows": "2", "numCopiedRows": "98", "numAddedBytes": "1000"}, 0.02),
        ("UPDATE", {"numUpdatedRows": "2", "numCopiedRows": "0", "numAddedBytes": "500"}, 0.5),  # deletion vectors
        ("MERGE", {"numTargetRowsUpdated": "5", "numTargetRowsCopied": "5", "numTargetBytesAdded": "1000"}, 0.5),
        ("DELETE", {"numDeletedRows": "30", "numCopiedRows": "60", "numAddedBytes": "600"}, 0.3),
        ("DELETE", {"numDeletedRows": "30", "numCopiedRows": "0", "numAddedBytes": "0"}, None),
        ("WRITE", {"numOutputRows": "10", "numDeletedRows": "10", "numOutputBytes": "1000"}, 2.0),  # each row replaced
        ("WRITE", {"numOutputRows": "5"}, None),
        ("TRUNCATE", {"numRemovedFiles": "1"}, None),
        ("OPTIMIZE", NONE, 0.0),
    ],
)
def test_changed_share_is_estimated_from_the_metrics_of_commits(
    operation: str, metrics: Metrics, share: float | None
) -> None:
    assert changed_share(facts(operation, metrics), RANGES) == share


@pytest.mark.parametrize("size", [None, 0])
def test_changed_share_is_unknown_without_the_size_of_the_table(size: int | None) -> None:
    assert changed_share(facts("WRITE", {"numOutputRows": "5", "numOutputBytes": "700"}, size), RANGES) is None


def test_changed_share_is_unknown_if_a_commit_is_missing() -> None:
    known = facts("WRITE", {"numOutputRows": "5", "numOutputBytes": "700"})
    assert changed_share(known, PublishRanges((Range(2, 5),))) is None


def changes(share: float, size: int = 2**40) -> Facts:
    return facts("WRITE", {"numOutputRows": "5", "numOutputBytes": str(round(share * size))}, size)


def test_rebuild_is_offered_if_most_of_a_large_table_changed() -> None:
    assert rebuild_hint(entry(), changes(0.62), RANGES) == (
        "The changes are about 62 % of the table, so `mirrorfeed rebuild sales.orders` may take less time. Fabric then"
        " drops the table and loads it again."
    )
    assert "about 100 % of the table" in rebuild_hint(entry(), changes(3), RANGES)


def test_rebuild_is_not_offered_otherwise() -> None:
    assert rebuild_hint(entry(), changes(REBUILD_SHARE - 0.01), RANGES) == ""
    assert rebuild_hint(entry(), changes(0.9, size=2**20), RANGES) == ""
    assert rebuild_hint(entry(delivery=Delivery("append")), changes(0.9), RANGES) == ""


class LargeTable(TableFeed):
    """A source whose commits each replace the whole table, which is large."""

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        found = super().facts(published, limit)
        metrics: Metrics = {"numOutputRows": "9", "numOutputBytes": str(2**40)}
        commits = tuple(replace(each, operation="WRITE", rows=9, metrics=metrics) for each in found.commits)
        return replace(found, commits=commits, bytes=2**40)


def test_run_and_dry_run_give_the_same_hint() -> None:
    table, store, plan = FedTable({"id": "long", "v": "string"}, ("id",)), MemoryStore(), entry()
    table.insert({"id": 1, "v": "a"})
    assert publish(LargeTable(table), store, plan).rebuild_hint == ""
    table.update(1, v="b")
    log = TableLog(store, FOLDER)

    step = find_next_step(LargeTable(table), log, plan, log.read_view())
    result = publish(LargeTable(table), store, plan)

    assert result.rebuild_hint.startswith("The changes are about 100 % of the table")
    assert step.text == f"version {table.latest}. {result.rebuild_hint}"
    assert list(result.remarks()) == [f"sales.orders: {result.rebuild_hint}"]
