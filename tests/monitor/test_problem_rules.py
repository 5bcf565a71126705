"""Each rule, with the smallest facts that cause its finding and with facts that cause none."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from mirrorfeed.cli import main
from mirrorfeed.errors import MirrorfeedError, TerminalError, TransientError, UnexpectedError, error_name
from mirrorfeed.mirror.fabric.status_and_settings import TableState
from mirrorfeed.monitor.findings import DatabaseFacts, LogFacts, Severity, SourceFacts, TableFacts
from mirrorfeed.monitor.freshness import Freshness, Step
from mirrorfeed.monitor.problem_rules import (
    ALERT_RULES,
    DATABASE_RULES,
    RULES,
    SAFE,
    TABLE_RULES,
    database_findings,
    seconds_left,
    table_findings,
)
from mirrorfeed.publish.errors import LastFileMissingWarning, PublishedFilesLostError
from mirrorfeed.publish.table_log.verification_mark import different_at, equal_at
from mirrorfeed.source.table_info import FILES, LOG

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
HOUR, DAY = 3600.0, 86_400.0


class Refused(TerminalError):
    code = "MF0000"
    what = "Login at {place} was refused."
    fix = "Renew the secret."
    place: str


class Silent(TransientError):
    code = "MF0001"
    what = "No response."


def table(**facts: Any) -> TableFacts:
    return TableFacts("s.t", "a.b.c", "a.b.c", at=NOW, **facts)


def log(**facts: Any) -> TableFacts:
    return table(log_facts=LogFacts(**{"published": 7, **facts}))


def source(retention: float | None = None, log_retention: float | None = None, **facts: Any) -> TableFacts:
    return table(source_facts=SourceFacts("on", retentions={FILES: retention, LOG: log_retention}, **facts))


def fabric(status: str | None = None, error: str | None = None, age: float = 2 * HOUR, files: int = 1) -> TableFacts:
    state = None if status is None else TableState("s.t", status, error=error)
    files_there = LogFacts(published=7, data_files=files, newest_file_age=age)
    return table(service=state, read_service=True, log_facts=files_there)


def text(length: int) -> TableFacts:
    return replace(log(), source_facts=SourceFacts("on", longest_text=("v", length)))


def waiting(step: Step, minutes: float, limit: float | None = 1800.0) -> TableFacts:
    freshness = Freshness(since={step: NOW - timedelta(minutes=minutes)})
    return table(freshness=freshness, limits={step: limit})


KEEPS = {"retention": 7 * DAY, "log_retention": 30 * DAY}
LAGS: dict[str, Any] = {**KEEPS, "lag_seconds": DAY}
CASES: dict[str, tuple[list[TableFacts], list[TableFacts]]] = {
    "NOT_PUBLISHED": (
        [log(published=None)],
        [log(), table(), replace(log(published=None), errors=(Refused(place="x"),))],
    ),
    "PAUSED": ([table(paused="paused until 2999-01-01 00:00 UTC: migration")], [table(), log()]),
    "NOT_FROM_FEED": ([table(special_step="versions 2 to 5, by comparison")], [table(), log()]),
    "NOT_VERIFIED": (
        [
            replace(log(), max_verification_age=DAY),
            replace(log(mark=equal_at(7, "id", NOW - timedelta(days=2))), max_verification_age=DAY),
            replace(log(mark=different_at(7, "id", NOW)), max_verification_age=DAY),
        ],
        [
            log(),
            replace(log(published=None), max_verification_age=DAY),
            replace(log(mark=equal_at(7, "id", NOW - timedelta(hours=2))), max_verification_age=DAY),
        ],
    ),
    "UNFINISHED": ([log(unfinished=2)], [log(), table()]),
    "ORPHANS": ([log(orphans=("a", "b"))], [log(), table()]),
    "EMPTY_FILE": (
        [log(empty_files=("zone/7.parquet",)), fabric("Failed", "Invalid file: zero byte file 7")],
        [log(), table(), fabric("Failed", "Unknown")],
    ),
    "EMPTY_TABLE": (
        [log(exists=True, published=None), fabric("Failed", "No data files found in the folder")],
        [log(published=None), log(exists=True), log(exists=True, published=None, data_files=1), table()],
    ),
    "CLONED": ([source(cloned_from="a.b.original")], [source(), table()]),
    "TEXT_TOO_LONG": (
        [text(2**24 + 1), fabric("Failed", "String or binary data would be truncated")],
        [text(2**24), table()],
    ),
    "RETENTION_SHORT": (
        [source(retention=7 * DAY, lag_seconds=8 * DAY), source(retention=7 * DAY, longest_wait=4 * DAY)],
        [source(retention=7 * DAY, longest_wait=3 * DAY), source(longest_wait=9 * DAY), table()],
    ),
    "LOG_RETENTION_SHORT": (
        [source(log_retention=30 * DAY, lag_seconds=31 * DAY), source(log_retention=30 * DAY, longest_wait=16 * DAY)],
        [source(log_retention=30 * DAY, longest_wait=14 * DAY), table()],
    ),
    "FALLS_BEHIND": (
        [source(**LAGS), source(**{**LAGS, "lag_seconds": 2 * DAY, "lag_before": (2 * DAY, HOUR)})],
        [
            source(**{**LAGS, "lag_seconds": HOUR}),
            source(**LAGS, lag_before=(DAY, DAY)),  # the lag does not grow
            source(**LAGS, lag_before=(10 * DAY, 0.9 * DAY)),  # the limit is months away
            source(lag_seconds=DAY),
            table(),
        ],
    ),
    "THROTTLED": (
        [
            fabric("Stopped", "Request was throttled"),
            fabric("Replicating", "The replication is being throttled and expected to continue at 2026-11-25T00:00."),
        ],
        [fabric("Stopped", "Unknown"), table()],
    ),
    "OWNER_LEFT": ([fabric("Stopped", "The item owner is disabled")], [fabric("Stopped", "Unknown"), table()]),
    "TABLE_FAILED": (
        [fabric("Failed"), fabric("Stopped"), fabric("Failed", "A column changed its type")],
        [fabric("Replicating"), fabric("Failed", "Request was throttled"), table()],
    ),
    "STUCK_SNAPSHOTTING": ([fabric("Snapshotting")], [fabric("Snapshotting", age=60), fabric("Replicating"), table()]),
    "NEVER_SYNCS": (
        [fabric()],
        [fabric(age=60), fabric(files=0), fabric("Replicating"), replace(fabric(), read_service=False)],
    ),
    **{
        f"LAG_{step.name}": ([waiting(step, 31)], [waiting(step, 30), waiting(step, 999, None), table()])
        for step in list(Step)[1:]
    },
}
DATABASES = {
    "MIRRORING_PAUSED": ([DatabaseFacts(status="Paused")], [DatabaseFacts(status="Running"), DatabaseFacts()]),
    "MIRRORING_OFF": (
        [DatabaseFacts(status="Stopped"), DatabaseFacts(status="Initialized")],
        [DatabaseFacts(status="Running", states=[]), DatabaseFacts()],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_table_rule_finds_only_its_own_problem(name: str) -> None:
    found_in, not_found_in = CASES[name]
    rules = (*TABLE_RULES, *ALERT_RULES)
    found = [[each.name for each in table_findings(facts, rules)] for facts in found_in]
    beside = {"NOT_PUBLISHED"} - {name}  # an empty table is not published either
    assert [[each for each in names if each not in beside] for names in found] == [[name]] * len(found_in)
    assert [facts for facts in not_found_in for each in table_findings(facts, rules) if each.name == name] == []


@pytest.mark.parametrize("name", DATABASES)
def test_database_rule_finds_its_problem(name: str) -> None:
    found_in, not_found_in = DATABASES[name]
    assert [[each.name for each in database_findings(facts)] for facts in found_in] == [[name]] * len(found_in)
    assert [each for facts in not_found_in for each in database_findings(facts) if each.name == name] == []


def test_statements_in_sql_and_incomplete_commands_are_no_commands_of_a_shell() -> None:
    found = [
        each for found_in, _ in CASES.values() for facts in found_in for each in table_findings(facts, TABLE_RULES)
    ]
    commands = {each.name: each.command for each in found if not each.command.startswith("mirrorfeed ")}
    names = ("PAUSED", "CLONED", "TEXT_TOO_LONG", "RETENTION_SHORT", "LOG_RETENTION_SHORT", "OWNER_LEFT")
    assert commands == dict.fromkeys(names, "")
    assert not [each for each in found if "NAME" in each.command]


def test_every_rule_has_cases_and_an_existing_command() -> None:
    assert {rule.name for rule in (*TABLE_RULES, *ALERT_RULES)} == CASES.keys()
    assert {rule.name for rule in DATABASE_RULES} == DATABASES.keys()
    assert isinstance(main, click.Group)
    for words in {words for rule in RULES for words in re.findall(r"mirrorfeed ([a-z-]+)(?: ([a-z-]+))?", rule.fix)}:
        group: click.Command = main
        for word in words:
            if isinstance(group, click.Group):
                group = group.commands[word]
        assert not isinstance(group, click.Group)
    assert {"UNFINISHED", "ORPHANS"} == SAFE


@pytest.mark.parametrize(
    ("error", "is_temporary"),
    [
        (Refused(place="OneLake"), False),
        (Silent(), True),
        (UnexpectedError(doing="Checking", kind="KeyError", reason="x"), True),
    ],
)
def test_error_is_a_finding_with_its_own_code_text_and_fix(error: MirrorfeedError, is_temporary: bool) -> None:
    for found in (*table_findings(table(errors=(error,))), *database_findings(DatabaseFacts(error=error))):
        assert (found.code, found.name, found.severity) == (error.code, error_name(error), Severity.WRONG)
        assert (found.what, found.fix, found.is_temporary) == (error.problem, error.solution, is_temporary)


def test_unreadable_facts_have_no_other_findings() -> None:
    found = table_findings(table(errors=(Refused(place="OneLake"), Silent())), (*TABLE_RULES, *ALERT_RULES))
    assert [each.name for each in found] == ["Refused", "Silent"]


def test_lost_files_are_found_once() -> None:
    last_missing, lost = (
        LastFileMissingWarning(address="zone/t", numbers=[4]),
        PublishedFilesLostError(address="zone/t", numbers=[3]),
    )
    assert [(each.name, each.severity) for each in table_findings(log(lost=last_missing))] == [
        ("LastFileMissing", Severity.SOON)
    ]
    found = table_findings(replace(log(lost=lost), errors=(lost,)))
    assert [(each.name, each.severity) for each in found] == [("PublishedFilesLost", Severity.WRONG)]


@pytest.mark.parametrize(
    ("facts", "what", "severity"),
    [
        (
            text(2**25),
            "Column 'v' has a value of 33,554,432 bytes, but a text column in Fabric can store at most 16,777,216.",
            Severity.WRONG,
        ),
        (
            source(**{**KEEPS, "lag_seconds": 6 * DAY}),
            "The lag is 6.0 d. At the current rate, the lag exceeds the retention of the source (7.0 d) in 24.0 hours."
            " Later changes are then lost.",
            Severity.SOON,
        ),
        (
            waiting(Step.PUBLISHED, 45),
            "Commits have not been published for 45.0 min, since 2026-03-14 08:45:00 UTC.",
            Severity.WRONG,
        ),
        (fabric("Failed", "A {brace}"), "Fabric reports: A {brace}", Severity.WRONG),
    ],
)
def test_finding_has_text_and_severity(facts: TableFacts, what: str, severity: Severity) -> None:
    (found,) = table_findings(facts, (*TABLE_RULES, *ALERT_RULES))
    assert (found.what, found.severity) == (what, severity)


def test_fix_quotes_hostile_names() -> None:
    names = TableFacts("s.`x;touch PWNED`", "delta.`/lake/$(id)`", "/lake/$(id)", zone="a b")
    facts = replace(names, log_facts=LogFacts(), service=TableState("s.t", "Failed"), read_service=True)
    assert [each.fix for each in table_findings(facts)] == [
        "mirrorfeed publish 's.`x;touch PWNED`'",
        "mirrorfeed lint 'a b'",
    ]
    short = replace(names, source_facts=SourceFacts("on", retentions={FILES: 1.0}, lag_seconds=2.0))
    assert [each.fix for each in table_findings(short)] == [
        "ALTER TABLE delta.`/lake/$(id)` SET TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 30 days')"
    ]


@pytest.mark.parametrize(
    ("lag", "before", "left"),
    [
        (0.0, None, None),
        (2 * DAY, None, 5 * DAY),  # one second per second
        (2 * DAY, (4 * DAY, DAY), 20 * DAY),  # a quarter of that
        (2 * DAY, (DAY, 2 * DAY), None),
        (2 * DAY, (DAY, 3 * DAY), None),
        (9 * DAY, None, 0.0),
    ],
)
def test_seconds_until_retention_is_exceeded_are_estimated(
    lag: float, before: tuple[float, float] | None, left: float | None
) -> None:
    found = seconds_left(7 * DAY, lag, before)
    assert found == (left if left is None else pytest.approx(left))
