"""Alert state: one message when a problem starts, one per interval while it lasts, and one when it ends."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.faults import Crash, FaultyStore, faults_at
from fixtures.memory import MemoryStore
from mirrorfeed.config.connections import Alerts, MaxLagMinutes
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.errors import DamagedFileError
from mirrorfeed.monitor.alert_channels import alert_channel_unavailable
from mirrorfeed.monitor.alerts import (
    Alert,
    SentAlert,
    alerts_not_recorded,
    due_channels,
    notify,
    parse,
    to_json,
    update_alerts,
)
from mirrorfeed.monitor.doctor import Check
from mirrorfeed.monitor.findings import Finding, Severity
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import LocationUnusableError
from mirrorfeed.storage.local_folder import FolderStore

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
ONE = Finding(Severity.WRONG, "MF2102", "GAP", "a", "What.", "mirrorfeed x")
TWO = Finding(Severity.WRONG, "MF837", "LAG_QUERYABLE", "b", "Late.", "mirrorfeed y")
BOTH = ["ops", "team"]
PATH = "_mirrorfeed/alerts.json"


def minutes(count: float) -> datetime:
    return NOW + timedelta(minutes=count)


class AlertRun:
    """Checks every ten minutes, and the messages after each."""

    def __init__(self) -> None:
        self.alerts: tuple[SentAlert, ...] = ()
        self.now = NOW

    def check(self, *problems: Finding, to: list[str] | None = None, failing: str = "", **check: Any) -> list[str]:
        names, seen = BOTH if to is None else to, Check({each.key: each for each in problems}, **check)
        self.alerts = update_alerts(self.alerts, seen, names, self.now)
        sent = [(to, each) for each in self.alerts for to in due_channels(each, seen, names, self.now) if to != failing]
        self.alerts = update_alerts(self.alerts, seen, names, self.now, [(to, each.key) for to, each in sent])
        assert parse(to_json(self.alerts), self.now) == self.alerts
        self.now += timedelta(minutes=10)
        return [f"{to} {each.kind}{' over' if each.resolved_at else ''}" for to, each in sent]


def test_each_problem_and_its_resolution_are_sent_once() -> None:
    run_ = AlertRun()
    assert run_.check(ONE) == ["ops GAP", "team GAP"]
    assert run_.check(ONE) == []
    assert run_.check(ONE, TWO) == ["ops LAG_QUERYABLE", "team LAG_QUERYABLE"]
    assert run_.check(TWO) == ["ops GAP over", "team GAP over"]
    assert run_.check(TWO) == []
    assert run_.check() == ["ops LAG_QUERYABLE over", "team LAG_QUERYABLE over"]
    assert run_.check() == []
    assert run_.alerts == ()
    assert run_.check(ONE) == ["ops GAP", "team GAP"]


def test_lasting_problem_is_sent_once_a_day() -> None:
    run_ = AlertRun()
    assert [bool(run_.check(ONE)) for _ in range(145)] == [True, *[False] * 143, True]


def test_lasting_problem_is_sent_once_per_configured_interval() -> None:
    run_, hourly = AlertRun(), Alerts(remind_after_hours=1)
    results = [run_.check(ONE, alerts=hourly) for _ in range(13)]
    assert results == [["ops GAP", "team GAP"] if at % 6 == 0 else [] for at in range(13)]
    assert run_.check(alerts=hourly) == ["ops GAP over", "team GAP over"]
    assert [run_.check(alerts=hourly) for _ in range(7)] == [[]] * 7


def test_reminder_interval_of_each_problem_and_channel_starts_with_its_own_message() -> None:
    run_, hourly = AlertRun(), Alerts(remind_after_hours=1)
    assert run_.check(ONE, failing="team", alerts=hourly) == ["ops GAP"]
    assert run_.check(ONE, TWO, alerts=hourly) == ["team GAP", "ops LAG_QUERYABLE", "team LAG_QUERYABLE"]
    assert [run_.check(ONE, TWO, alerts=hourly) for _ in range(4)] == [[]] * 4
    assert run_.check(ONE, TWO, alerts=hourly) == ["ops GAP"]
    assert run_.check(ONE, TWO, alerts=hourly) == ["team GAP", "ops LAG_QUERYABLE", "team LAG_QUERYABLE"]


def test_failed_channel_is_notified_later_and_of_known_resolutions_only() -> None:
    run_ = AlertRun()
    assert run_.check(ONE, failing="team") == ["ops GAP"]
    assert run_.check(ONE) == ["team GAP"]
    assert run_.check(failing="ops") == ["team GAP over"]
    assert run_.check() == ["ops GAP over"]
    assert run_.check(TWO, failing="team") == ["ops LAG_QUERYABLE"]
    assert run_.check() == ["ops LAG_QUERYABLE over"]
    assert run_.alerts == ()


def test_problem_returning_before_its_resolution_was_sent_is_the_same() -> None:
    run_ = AlertRun()
    run_.check(ONE, to=["ops"])
    assert run_.check(to=["ops"], failing="ops") == []
    assert run_.check(ONE, to=["ops"]) == []
    assert run_.check(to=["ops"]) == ["ops GAP over"]


def test_problem_that_cannot_be_checked_is_neither_resolved_nor_resent() -> None:
    run_ = AlertRun()
    run_.check(ONE, TWO)
    assert run_.check(TWO, unknown=frozenset({("a", "")})) == []
    assert run_.check(unknown=frozenset({("", "")})) == []
    assert run_.check(ONE, TWO) == []


def test_passing_problem_is_sent_only_after_it_has_lasted() -> None:
    run_, slow = AlertRun(), replace(ONE, is_temporary=True)

    def check(*problems: Finding) -> list[str]:
        return run_.check(*problems, alerts=Alerts(max_lag_minutes=MaxLagMinutes(published=17.0)))

    assert [check(slow), check(slow), check(slow)] == [[], [], ["ops GAP", "team GAP"]]
    assert check() == ["ops GAP over", "team GAP over"]
    assert [check(slow), check(), check(slow)] == [[], [], []]
    assert check(ONE) == ["ops GAP", "team GAP"]


def test_new_channel_gets_current_problems_and_a_removed_one_is_forgotten() -> None:
    run_ = AlertRun()
    run_.check(ONE, to=["ops"])
    assert run_.check(ONE) == ["team GAP"]
    assert run_.check(to=["team"]) == ["team GAP over"]
    assert run_.alerts == ()


# The state file


class Checks:
    """Several watchers that share a store."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.sent: list[str] = []
        self.rows: list[Alert] = []
        self.now = NOW

    def run(
        self, *problems: Finding, store: Store | None = None, send: Callable[[str, Alert], None] | None = None
    ) -> list[MirrorfeedError]:
        """Notify both channels, and return what is wrong with the state."""
        channels = {name: partial(send or self.keep, name) for name in BOTH}
        self.rows = notify(store or self.store, PATH, Check({each.key: each for each in problems}), channels, self.now)
        return [row.error for row in self.rows if row.error and not row.name]

    def keep(self, to: str, alert: Alert) -> None:
        self.sent.append(f"{to} {alert.name}{' over' if alert.resolved_at else ''}")

    @property
    def etag(self) -> str | None:
        return next((each.etag for each in self.store.list("_mirrorfeed")), None)


def test_state_is_not_written_without_changes() -> None:
    checks = Checks()
    checks.run()
    assert checks.etag is None
    checks.run(ONE)
    etag = checks.etag
    checks.run(ONE)
    assert (checks.sent, checks.etag) == (["ops GAP", "team GAP"], etag)
    checks.run()
    assert checks.sent[2:] == ["ops GAP over", "team GAP over"]


def test_two_concurrent_checks_lose_no_sent_alert() -> None:
    checks = Checks()
    checks.run(TWO)

    def check_meanwhile(to: str, alert: Alert) -> None:
        if to == "ops":
            checks.run(ONE, TWO)
        checks.keep(to, alert)

    checks.run(ONE, TWO, send=check_meanwhile)
    assert Counter(checks.sent[2:]) == {"ops GAP": 2, "team GAP": 2}
    checks.run(ONE, TWO)
    assert len(checks.sent) == 6


@pytest.mark.parametrize(
    "failure", [alert_channel_unavailable(channel="hook", response="503"), ValueError("unexpected")]
)
def test_failing_channel_does_not_delay_others_and_is_notified_later(failure: Exception) -> None:
    checks = Checks()

    def send(to: str, alert: Alert) -> None:
        if to == "ops":
            raise failure
        checks.keep(to, alert)

    checks.run(ONE, TWO, send=send)
    assert [row.name for row in checks.rows if row.error] == ["ops"]
    assert checks.sent == ["team GAP", "team LAG_QUERYABLE"]
    checks.run(ONE, TWO)
    assert checks.sent[2:] == ["ops GAP", "ops LAG_QUERYABLE"]


def test_after_any_failed_call_each_alert_is_sent_once_or_twice() -> None:
    played = 0
    for first in range(12):
        calls = Checks()
        watched = FaultyStore(calls.store)
        calls.run(ONE, store=watched)
        if first >= len(watched.verbs):
            break
        for fault in faults_at(first, watched.verbs[first], [0, 1, None]):
            checks = Checks()
            faulty = FaultyStore(checks.store, [fault])
            with suppress(MirrorfeedError, Crash):
                checks.run(ONE, store=faulty)
            faulty.deliver()
            for _ in range(3):
                checks.run(ONE)
            sent = Counter(checks.sent)
            assert set(sent) == {"ops GAP", "team GAP"}, fault
            assert max(sent.values()) <= 2, fault
            before = len(checks.sent)
            checks.run()
            assert sorted(checks.sent[before:]) == ["ops GAP over", "team GAP over"], fault
            played += 1
    assert played >= 10


def test_unwritable_state_is_a_warning() -> None:
    class ReadOnly(MemoryStore):
        def create(self, path: str, data: bytes) -> str | None:
            raise LocationUnusableError(action="create", address=path, reason="it is read-only")

    checks = Checks()
    (warning,) = checks.run(ONE, store=ReadOnly())
    assert checks.sent == ["ops GAP", "team GAP"]
    assert alerts_not_recorded.matches(warning)
    assert warning.address == "memory:/_mirrorfeed/alerts.json"


def entry(**changes: Any) -> dict[str, Any]:
    sent_at = dict.fromkeys(BOTH, minutes(-30).isoformat())
    return {
        "table": "a",
        "kind": "GAP",
        "since": minutes(-60).isoformat(),
        "resolved_at": None,
        "notified": sent_at,
    } | changes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        {"format": 2, "alerts": []},
        {"format": 1, "alerts": [], "until": "9999-12-31T00:00:00+00:00"},
        {"format": 1, "alerts": [entry(), entry()]},
        {"format": 1, "alerts": [entry(since="9999-12-31T00:00:00+00:00")]},
        {"format": 1, "alerts": [entry(resolved_at="9999-12-31T00:00:00+00:00")]},
        {"format": 1, "alerts": [entry(notified=dict.fromkeys(BOTH, "9999-12-31T00:00:00+00:00"))]},
        {"format": 1, "alerts": [entry(notified=dict.fromkeys(BOTH, minutes(-120).isoformat()))]},
        {"format": 1, "alerts": [entry(since="2026-03-14T09:00:00")]},
        {"format": 1, "alerts": [entry(lasting=1e18)]},
    ],
)
def test_damaged_state_is_reported_and_all_alerts_are_sent(content: bytes | dict[str, Any]) -> None:
    checks = Checks()
    checks.store.create(PATH, content if isinstance(content, bytes) else json.dumps(content).encode())
    (warning,) = checks.run(ONE)
    assert checks.sent == ["ops GAP", "team GAP"]
    assert isinstance(warning, DamagedFileError)
    assert str(warning).startswith(f"memory:/{PATH} is damaged, or mirrorfeed did not write it: ")
    assert "current problems are reported again" in str(warning)
    assert not checks.run(ONE)
    assert len(checks.sent) == 2


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_special_file_or_symlink_as_state_suppresses_no_alert(tmp_path: Path, kind: str) -> None:
    place = tmp_path / PATH
    place.parent.mkdir()
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    checks = Checks()
    warning, *_ = checks.run(ONE, store=FolderStore(str(tmp_path)))
    assert checks.sent == ["ops GAP", "team GAP"]
    assert isinstance(warning, DamagedFileError)
    assert place.is_symlink() == (kind == "link")


def test_forged_state_suppresses_an_alert_for_at_most_one_interval() -> None:
    checks = Checks()
    forged = entry(notified=dict.fromkeys(BOTH, NOW.isoformat()))
    checks.store.create(PATH, json.dumps({"format": 1, "alerts": [forged]}).encode())
    checks.run(ONE)
    assert checks.sent == []
    checks.now += timedelta(hours=Alerts().remind_after_hours)
    checks.run(ONE)
    assert checks.sent == ["ops GAP", "team GAP"]
