"""Which findings cause an alert, and which problems a check cannot detect."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mirrorfeed.config.connections import Alerts, MaxLagMinutes
from mirrorfeed.errors import MirrorfeedError, TerminalError, TransientError
from mirrorfeed.monitor.alerts import SentAlert, due_channels
from mirrorfeed.monitor.doctor import Check, check_of
from mirrorfeed.monitor.findings import DatabaseFacts, LogFacts, SourceFacts, TableFacts
from mirrorfeed.monitor.freshness import Freshness, Step
from mirrorfeed.source.table_info import FILES

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
WELL = TableFacts(
    "a",
    "a",
    log_facts=LogFacts(published=7),
    source_facts=SourceFacts("on", is_measured=True),
    are_keys_checked=True,
    freshness=Freshness(),
    at=NOW,
)
LATE = Freshness(since={Step.PUBLISHED: NOW - timedelta(minutes=45)})
LIMITS = {Step.PUBLISHED: 1800.0}
ALERTS = Alerts(max_lag_minutes=MaxLagMinutes(published=30.0))


class Broken(TerminalError):
    code = "MF0000"
    what = "The keys changed."


class Silent(TransientError):
    code = "MF0001"
    what = "No response."


class CapacityPaused(TerminalError):
    code = "MF0002"
    what = "The capacity is paused."


def check(*tables: TableFacts, database: DatabaseFacts | None = None) -> Check:
    return check_of(database or DatabaseFacts(), tables, ALERTS)


def facts(**changes: Any) -> TableFacts:
    return replace(WELL, **changes)


def test_healthy_table_has_no_problem_and_hides_none() -> None:
    assert check(WELL) == Check({}, frozenset(), ALERTS)


def test_lag_over_its_limit_is_a_problem_since_the_first_waiting_change() -> None:
    (found,) = check(facts(freshness=LATE, limits=LIMITS)).problems.values()
    assert (found.key, found.since) == (("a", "LAG_PUBLISHED"), NOW - timedelta(minutes=45))


def test_paused_table_has_no_problem_and_resolves_none() -> None:
    late = facts(freshness=LATE, limits=LIMITS, errors=(Broken(),))
    found = check(replace(late, paused="until noon"), replace(late, table="b"))
    assert [*found.problems] == [("b", "Broken"), ("b", "LAG_PUBLISHED")]
    assert (found.is_unknown(("a", "FeedGap")), found.is_unknown(("b", "FeedGap"))) == (True, False)


@pytest.mark.parametrize(
    ("table", "delay"),
    [
        (facts(errors=(Broken(),)), 0.0),
        (facts(errors=(Silent(),)), 1800.0),
        (facts(log_facts=LogFacts(published=7, unfinished=1)), 1800.0),
        (facts(log_facts=LogFacts(published=7, empty_files=("a",))), 0.0),
        (facts(source_facts=SourceFacts("on", retentions={FILES: 1.0}, longest_wait=1.0)), 0.0),
    ],
)
def test_alert_is_immediate_unless_the_problem_may_pass(table: TableFacts, delay: float) -> None:
    found = check(table)
    (problem,) = found.problems.values()
    sent = SentAlert(*problem.key, NOW)
    assert due_channels(sent, found, ["ops"], NOW + timedelta(seconds=delay)) == ["ops"]
    assert not delay or due_channels(sent, found, ["ops"], NOW + timedelta(seconds=delay - 1)) == []


def test_notes_are_not_problems() -> None:
    assert check(facts(source_facts=SourceFacts("on", cloned_from="b"))).problems == {}


@pytest.mark.parametrize(
    ("table", "database", "hidden"),
    [
        (WELL, None, set()),
        (facts(freshness=None), None, {"LAG_PUBLISHED", "LAG_QUERYABLE"}),
        (facts(freshness=Freshness(unknown={Step.QUERYABLE: "no"})), None, {"LAG_QUERYABLE"}),
        (facts(log_facts=LogFacts(is_read=False)), None, {"LAG_PUBLISHED", "LAG_QUERYABLE", "FeedGap"}),
        (facts(source_facts=SourceFacts(is_read=False)), None, {"LAG_PUBLISHED", "LAG_QUERYABLE", "FeedGap"}),
        (facts(errors=(Silent(),)), None, {"LAG_PUBLISHED", "LAG_QUERYABLE", "FeedGap"}),
        (facts(errors=(Broken(),)), None, set()),
        (facts(errors=(CapacityPaused(),)), None, {"LAG_PUBLISHED", "LAG_QUERYABLE", "FeedGap"}),
        (WELL, Broken(), {"LAG_PUBLISHED", "LAG_QUERYABLE", "FeedGap"}),
    ],
)
def test_problem_that_cannot_be_checked_is_not_resolved(
    table: TableFacts, database: MirrorfeedError | None, hidden: set[str]
) -> None:
    found = check(table, database=DatabaseFacts(error=database))
    assert {name for name in ("LAG_PUBLISHED", "LAG_QUERYABLE", "FeedGap") if found.is_unknown(("a", name))} == hidden
    assert not found.is_unknown(("b", "FeedGap")) or database


def test_paused_database_hides_all_problems() -> None:
    found = check(WELL, database=DatabaseFacts(status="Paused"))
    assert [each.name for each in found.problems.values()] == ["MIRRORING_PAUSED"]
    assert found.is_unknown(("a", "FeedGap"))
