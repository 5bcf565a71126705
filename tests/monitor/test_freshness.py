"""Which steps changes wait for, since when, and which waits are unknown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from mirrorfeed.config.model import Config
from mirrorfeed.landing.log_record import File, Record
from mirrorfeed.monitor.alerts import ledger_rows
from mirrorfeed.monitor.fact_collector import Collector
from mirrorfeed.monitor.findings import TableFacts
from mirrorfeed.monitor.freshness import (
    LAG_STEPS,
    NO_COMMITS,
    NOTHING_PUBLISHED,
    Freshness,
    Step,
    freshness_of,
    mirror_freshness,
)
from mirrorfeed.orchestration import ledger
from mirrorfeed.source.identifier import Source
from tests.support.entries import entry

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def record(number: int, minutes: float, *files: int, next_: int = 0) -> Record:
    """Record `number`, created `minutes` ago, with these file numbers. Without file numbers, the next number is
    `next_`."""
    data_files = tuple(File(f"s{n}", n, {"upsert": 1}, 10, "") for n in files)
    following = files[-1] + 1 if files else next_
    return Record(number, "b", ago(minutes).isoformat(), "s", "id", number - 1, number, (), (), following, data_files)


RECORDS = [record(3, 10, 4), record(2, 20, 2, 3), record(1, 30, 1)]
"""Newest first. Their files are 4; 2 and 3; 1."""


def waits(found: Freshness) -> dict[str, float]:
    """Lag of each step in minutes."""
    return {step.value: seconds / 60 for step in LAG_STEPS if (seconds := found.lag(step, NOW))}


@pytest.mark.parametrize(
    ("records", "left", "published", "consumed", "expected"),
    [
        pytest.param(RECORDS, [4], 10, 10, {}, id="Fabric leaves the last file"),
        pytest.param(RECORDS, [], 10, 10, {}, id="nothing is left"),
        pytest.param(RECORDS, [3, 4], 10, 20, {"consumed": 10}, id="the oldest of two may be the last consumed"),
        pytest.param(RECORDS, [2, 3, 4], 10, 30, {"consumed": 20}, id="a partly consumed record waits"),
        pytest.param(RECORDS, [1, 2, 3, 4], 10, None, {"consumed": 20}, id="no file is gone"),
        pytest.param(RECORDS[:1], [3, 4], 10, None, {"consumed": 10}, id="older records are gone"),
        pytest.param([record(4, 5, next_=5), *RECORDS], [4], 10, 10, {}, id="a range without rows is no file"),
        pytest.param([record(4, 5, next_=5)], [4], None, None, {}, id="only records without files are kept"),
        pytest.param([record(4, 5, next_=5)], [3, 4], None, None, {"consumed": 5}, id="which wait so long at least"),
    ],
)
def test_remaining_files_show_the_consumed_version(
    records: list[Record], left: list[int], published: float | None, consumed: float | None, expected: dict[str, float]
) -> None:
    found = freshness_of(records, left, ago(12), None)
    assert (found.times.get(Step.PUBLISHED), found.times.get(Step.CONSUMED)) == tuple(
        None if each is None else ago(each) for each in (published, consumed)
    )
    assert waits(found) == expected
    assert set(found.unknown) == {Step.MIRRORED, Step.QUERYABLE}


@pytest.mark.parametrize(
    ("has_consumed", "mirrored", "consumed"), [(False, None, None), (True, None, ago(30)), (False, ago(29), ago(30))]
)
def test_first_file_is_consumed_only_with_evidence(
    has_consumed: bool, mirrored: datetime | None, consumed: datetime | None
) -> None:
    found = freshness_of(RECORDS[2:], [1], ago(40), None, has_consumed=has_consumed, mirror=mirror_freshness(mirrored))
    assert (found.times[Step.PUBLISHED], found.times.get(Step.CONSUMED)) == (ago(30), consumed)
    assert (Step.CONSUMED in found.unknown) is (consumed is None)
    assert found.lag(Step.CONSUMED, NOW) == (None if consumed is None else 0)


@pytest.mark.parametrize(
    ("unpublished", "unfinished", "published", "expected"),
    [
        (None, False, 10, {}),
        (ago(7), False, 10, {"published": 7}),
        (ago(7), True, 20, {"published": 10}),
        (None, True, 20, {"published": 10}),
    ],
)
def test_commits_wait_until_their_files_are_renamed(
    unpublished: datetime | None, unfinished: bool, published: float, expected: dict[str, float]
) -> None:
    found = freshness_of(RECORDS, [3], ago(5), unpublished, unfinished=unfinished)
    assert found.times[Step.PUBLISHED] == ago(published)
    assert waits(found) == expected


def test_commit_time_is_unknown_if_publications_compare_all_rows() -> None:
    found = freshness_of(RECORDS, [3], None, None, reads_commits=False)
    assert (found.unknown[Step.COMMITTED], found.times[Step.PUBLISHED]) == (NO_COMMITS, ago(10))


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        pytest.param(mirror_freshness(ago(9), ago(8)), {}, id="through"),
        pytest.param(mirror_freshness(ago(15), ago(14)), {"mirrored": 10}, id="the newest is not in the mirror"),
        pytest.param(mirror_freshness(ago(25), ago(24)), {"mirrored": 20}, id="since the oldest that is not"),
        pytest.param(mirror_freshness(None, None), {"mirrored": 30}, id="no such table yet"),
        pytest.param(mirror_freshness(ago(9), None), {}, id="an endpoint without a time"),
        pytest.param(mirror_freshness(ago(9), ago(11)), {}, id="and found nothing new since"),
        pytest.param(mirror_freshness(ago(9), None, refresh_failed=True), {"queryable": 9}, id="never queryable"),
        pytest.param(mirror_freshness(ago(9), ago(11), refresh_failed=True), {"queryable": 9}, id="queryable before"),
        pytest.param(mirror_freshness(ago(9), ago(8), refresh_failed=True), {}, id="a failure with nothing new"),
        pytest.param(mirror_freshness(ago(9), unknown={Step.QUERYABLE: "no"}), {}, id="the endpoint is unknown"),
    ],
)
def test_published_changes_wait_for_the_mirror_and_then_its_endpoint(
    mirror: Freshness, expected: dict[str, float]
) -> None:
    assert waits(freshness_of(RECORDS, [4], ago(12), None, mirror=mirror)) == expected


@pytest.mark.parametrize("unfinished", [False, True])
def test_freshness_of_an_unpublished_table_is_unknown(unfinished: bool) -> None:
    found = freshness_of(RECORDS[:1] if unfinished else [], [], ago(5), None, unfinished=unfinished)
    known = {Step.PUBLISHED} if unfinished else set()
    assert {step for step in LAG_STEPS if found.lag(step, NOW) is not None} == known
    assert found.unknown[Step.CONSUMED] == NOTHING_PUBLISHED
    assert found.to_dict()["published"] is None


def test_only_needed_records_are_read() -> None:
    read: list[int] = []

    def records() -> Iterator[Record]:
        for each in RECORDS:
            read.append(each.number)
            yield each

    freshness_of(records(), [4], ago(12), None)
    assert read == [3]


def test_freshness_json_has_every_time_and_the_unknown_steps() -> None:
    freshness: dict[str, Any] = freshness_of(RECORDS, [3, 4], None, ago(7)).to_dict()
    assert (freshness["committed"], freshness["consumed"], freshness["queryable"]) == (None, ago(20).isoformat(), None)
    waiting = {"published": ago(7).isoformat(), "consumed": ago(10).isoformat(), "mirrored": None, "queryable": None}
    assert freshness["waiting_since"] == waiting
    assert set(freshness["unknown"]) == {"committed", "mirrored", "queryable"}


def test_clock_differences_cause_no_negative_lag() -> None:
    assert freshness_of(RECORDS, [4], NOW, NOW + timedelta(seconds=3)).lag(Step.PUBLISHED, NOW) == 0


def test_ledger_row_has_times_and_lags() -> None:
    found = freshness_of(
        RECORDS, [3, 4], ago(12), None, mirror=mirror_freshness(ago(15), unknown={Step.QUERYABLE: "no"})
    )
    facts = TableFacts("sales.orders", "a.b.c", freshness=found, at=NOW)
    (row,) = ledger_rows(Config(landing_zone="zone", tables=()), [facts, replace(facts, freshness=None)])
    assert (row.time, row.table, row.outcome) == (NOW, "sales.orders", ledger.WATCHED)
    assert (row.committed_at, row.published_at, row.consumed_at) == (ago(12), ago(10), ago(20))
    assert (row.mirrored_at, row.queryable_at) == (ago(15), None)
    lags = (row.published_lag_seconds, row.consumed_lag_seconds, row.mirrored_lag_seconds, row.queryable_lag_seconds)
    assert lags == (0, 600, 600, None)


@pytest.mark.parametrize(
    ("option", "expected"), [(None, 120 * 60.0), (15.0, 15 * 60.0), (math.inf, None)], ids=["omitted", "15", "never"]
)
def test_freshness_target_of_a_table_limits_the_time_until_it_is_published(
    tmp_path: Path, option: float | None, expected: float | None
) -> None:
    table = entry(Source(path=str(tmp_path / "missing")), freshness_target_minutes=option)
    config = Config(landing_zone=str(tmp_path / "zone"), tables=(table,))
    (facts,) = Collector(config, cast(Any, object)).collect([table])
    assert facts.limits[Step.PUBLISHED] == expected
    assert facts.limits[Step.CONSUMED] == 30 * 60.0
