"""Rules that find problems in the facts about tables and the mirrored database.

`table_findings` and `database_findings` return the findings of the rules, and one for each error that the facts have.
A rule returns no finding if the facts that it tests could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.monitor.findings import (
    DatabaseFacts,
    Finding,
    Rule,
    Severity,
    TableFacts,
    Values,
    error_finding,
    is_long_lag,
)
from mirrorfeed.monitor.freshness import Step
from mirrorfeed.source.table_info import FILES, LOG, MIN_FACTOR

NOTHING = "No problem was found. Some problems can be found only by `mirrorfeed publish`."
_HANGING_SECONDS = 3600.0
"""Seconds since the newest data file was written, after which it is a problem if Fabric has not loaded the table."""
_SOON_SECONDS = 7 * 86_400.0
"""A growing lag is reported if it will exceed the source's retention within this number of seconds."""
_LONGEST_TEXT = 16 * 2**20
"""Maximum bytes of a text in Fabric."""
_ERROR_WORDS = {
    "EMPTY_FILE": r"zero.?byte|empty file|not a parquet file|magic bytes",
    "EMPTY_TABLE": r"no (data )?files?\b.*(found|landing)|folder is empty",
    "THROTTLED": r"throttl|too many requests|capacity.*(limit|exceeded)|\b429\b",
    "OWNER_LEFT": r"owner|disabled (user|account)|user.*(not found|deleted)",
    "TEXT_TOO_LONG": r"truncat|string.*too long|exceeds.*(8000|8 ?kb|16 ?mb|length)|maximum length",
}
"""Maps the name of a problem to a regular expression for Fabric's messages about the problem.

Microsoft documents only "throttled".
"""


def _fabric_error(name: str) -> Callable[[TableFacts], Values | None]:
    """Return a function for `Rule.test` that returns None if Fabric does not report the problem `name` for a table.

    `name` is a key of `_ERROR_WORDS`. An empty `name` means errors that match no expression in `_ERROR_WORDS`.
    """

    def test(facts: TableFacts) -> Values | None:
        reason = facts.service.error if facts.service else None
        if not reason:
            return None
        first = next((each for each, words in _ERROR_WORDS.items() if re.search(words, reason, re.IGNORECASE)), "")
        return {"reason": reason} if first == name else None

    return test


def _too_long(facts: TableFacts) -> Values | None:
    name, length = facts.source_facts.longest_text or ("", 0)
    return {"column": name, "bytes": length, "most": _LONGEST_TEXT} if length > _LONGEST_TEXT else None


def _retention_rules(code: str, name: str, option: str, days: int) -> tuple[Rule[TableFacts], ...]:
    """Return two rules about a retention of the source.

    The first rule reports a retention that is shorter than the lag. The second rule reports a retention that can be too
    short if one run fails. `option` is the table property with the retention. `days` is the recommended value.
    """
    fix = f"ALTER TABLE {{source}} SET TBLPROPERTIES ({option} = 'interval {days} days')"

    def exceeded(facts: TableFacts) -> Values | None:
        retention, lag = facts.source_facts.retentions.get(option), facts.source_facts.lag_seconds or 0.0
        return {"retention": retention, "lag": lag} if retention is not None and retention < lag else None

    def short(facts: TableFacts) -> Values | None:
        retention, waited = facts.source_facts.retentions.get(option), facts.source_facts.longest_wait
        if retention is None or retention < (facts.source_facts.lag_seconds or 0.0) or retention >= MIN_FACTOR * waited:
            return None
        return {"retention": retention, "waited": waited}

    lost = f"{option} is {{retention:duration}}, but the lag is {{lag:duration}}: changes may already be lost."
    may_lose = (
        f"{option} is {{retention:duration}}, and a change waited {{waited:duration}} until it was published:"
        " one failed run may lose changes."
    )
    return Rule(code, name, exceeded, lost, fix), Rule(code, name, short, may_lose, fix, Severity.SOON)


def seconds_left(retention: float, lag: float, before: tuple[float, float] | None) -> float | None:
    """Return the seconds until a growing lag exceeds the retention, or None if the lag does not grow.

    `before` is the seconds since an earlier publication, and the lag at that time. If it is None, the lag is assumed to
    grow by one second per second.
    """
    ago, lag_then = before or (lag, 0.0)
    if lag <= 0 or ago <= 0 or (rate := (lag - lag_then) / ago) <= 0:
        return None
    return max(0.0, retention - lag) / rate


def _falls_behind(facts: TableFacts) -> Values | None:
    source, lag = facts.source_facts, facts.source_facts.lag_seconds or 0.0
    shortest = min((each for each in source.retentions.values() if each is not None), default=None)
    if shortest is None or not is_long_lag(lag, source.retentions) or lag > shortest:
        return None
    seconds = seconds_left(shortest, lag, source.lag_before)
    if seconds is None or seconds > _SOON_SECONDS:
        return None
    return {"lag": lag, "retention": shortest, "hours": seconds / 3600}


def _waits_for_fabric(status: str | None) -> Callable[[TableFacts], Values | None]:
    """Return a function for `Rule.test` that finds a table with `status` an hour after its newest file was written.

    The function returns None for all other tables. `status` is the status in Fabric. If `status` is None, the function
    finds a table that Fabric still does not have.
    """

    def test(facts: TableFacts) -> Values | None:
        log, service = facts.log_facts, facts.service
        if not facts.read_service or (log.newest_file_age or 0.0) < _HANGING_SECONDS:
            return None
        if (service.status if service else None) != status or (service and service.error):
            return None
        return {"age": log.newest_file_age} if service or log.data_files else None

    return test


def _is_unpublished(facts: TableFacts) -> Values | None:
    log = facts.log_facts
    return {} if log.is_read and log.published is None and log.load is None and not facts.errors else None


def _is_empty(facts: TableFacts) -> Values | None:
    log = facts.log_facts
    return {} if log.exists and log.published is None and log.load is None and not log.data_files else None


def _stopped(facts: TableFacts) -> Values | None:
    service = facts.service
    if service is None or service.error or service.status not in ("Failed", "Stopped"):
        return None
    return {"status": service.status}


def _is_unverified(facts: TableFacts) -> Values | None:
    log, limit = facts.log_facts, facts.max_verification_age
    if limit is None or log.published is None:
        return None
    at = log.mark.at if log.mark else None
    if at is not None and (facts.at - at).total_seconds() <= limit:
        return None
    last = "never" if at is None else f"last at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return {"last": last, "limit": limit}


def _lag_rule(code: str, step: Step, problem: str, fix: str) -> Rule[TableFacts]:
    """Return a rule that reports a table if the lag of `step` is longer than the configured limit.

    The text of the finding begins with `problem`.
    """

    def test(facts: TableFacts) -> Values | None:
        limit, freshness = facts.limits.get(step), facts.freshness
        waited = freshness.lag(step, facts.at) if freshness else None
        if freshness is None or limit is None or waited is None or waited <= limit:
            return None
        return {"since": freshness.since[step].astimezone(UTC), "waited": waited}

    text = f"{problem} for {{waited:duration}}, since {{since:%Y-%m-%d %H:%M:%S}} UTC."
    return Rule(code, f"LAG_{step.name}", test, text, fix)


_REBUILD = "mirrorfeed rebuild {table:argument}"
_PUBLISH = "mirrorfeed publish {table:argument}"
_FIX = "mirrorfeed doctor {table:argument} --fix"
_SHORTEN = f"Shorten values of more than 16 MiB, or list the column in `exclude_columns`. Then run `{_REBUILD}`."
_REPORTED = "Fabric reports: {reason}"

DATABASE_RULES: tuple[Rule[DatabaseFacts], ...] = (
    Rule(
        "MF826",
        "MIRRORING_PAUSED",
        lambda facts: {} if facts.status == "Paused" else None,
        "The capacity was paused, and mirroring is still Paused. `fabric resume` continues it; `fabric start` would"
        " load every table again.",
        "mirrorfeed fabric resume",
    ),
    Rule(
        "MF825",
        "MIRRORING_OFF",
        lambda facts: {"status": facts.status} if facts.status in ("Stopped", "Initialized") else None,
        "Mirroring is {status}, so published changes do not arrive in Fabric.",
        "mirrorfeed fabric start",
    ),
)
TABLE_RULES: tuple[Rule[TableFacts], ...] = (
    Rule("MF822", "NOT_PUBLISHED", _is_unpublished, "Nothing is published yet.", _PUBLISH, Severity.NOTE),
    Rule(
        "MF838",
        "PAUSED",
        lambda facts: {"pause": facts.paused} if facts.paused else None,
        "The table is {pause}. To publish the table sooner, remove `paused` from the configuration.",
        "",
        Severity.NOTE,
    ),
    Rule(
        "MF839",
        "NOT_FROM_FEED",
        lambda facts: {"step": facts.special_step} if facts.special_step else None,
        "The next run does not read all changes from the change data feed. Next step: {step}",
        _PUBLISH,
        Severity.NOTE,
    ),
    Rule(
        "MF807",
        "UNFINISHED",
        lambda facts: {"files": facts.log_facts.unfinished} if facts.log_facts.unfinished else None,
        "A run ended before it renamed {files:count file} of the newest record. The next run of `publish` also renames"
        " these files.",
        _FIX,
        is_temporary=True,
    ),
    Rule(
        "MF808",
        "ORPHANS",
        lambda facts: {"files": facts.log_facts.orphans} if facts.log_facts.orphans else None,
        "Files next to the log belong to no record: {files:few}. They do no harm, and the next run of `publish`"
        " deletes them.",
        _FIX,
        Severity.NOTE,
    ),
    Rule(
        "MF820",
        "EMPTY_FILE",
        lambda facts: {"files": facts.log_facts.empty_files} if facts.log_facts.empty_files else None,
        "Fabric cannot read data files of 0 bytes, and reads no later file: {files:few}.",
        _REBUILD,
    ),
    Rule("MF820", "EMPTY_FILE", _fabric_error("EMPTY_FILE"), _REPORTED, _REBUILD),
    Rule(
        "MF821",
        "EMPTY_TABLE",
        _is_empty,
        "The folder of the table has no data file. After some days, Fabric reports such a table as failed and pauses"
        " the database. If you cannot publish the table soon, remove it from the configuration and run `mirrorfeed"
        " drop`.",
        _PUBLISH,
        is_temporary=True,
    ),
    Rule("MF821", "EMPTY_TABLE", _fabric_error("EMPTY_TABLE"), _REPORTED, _PUBLISH, is_temporary=True),
    Rule(
        "MF815",
        "CLONED",
        lambda facts: {"original": facts.source_facts.cloned_from} if facts.source_facts.cloned_from else None,
        "The source is a clone of {original}. A clone has a separate history and feed, so the first publication is a"
        " snapshot.",
        "",
        Severity.NOTE,
    ),
    Rule(
        "MF829",
        "TEXT_TOO_LONG",
        _too_long,
        "Column {column!r} has a value of {bytes:,} bytes, but a text column in Fabric can store at most {most:,}.",
        _SHORTEN,
    ),
    Rule("MF829", "TEXT_TOO_LONG", _fabric_error("TEXT_TOO_LONG"), _REPORTED, _SHORTEN),
    *_retention_rules("MF804", "RETENTION_SHORT", FILES, 30),
    *_retention_rules("MF806", "LOG_RETENTION_SHORT", LOG, 90),
    Rule(
        "MF805",
        "FALLS_BEHIND",
        _falls_behind,
        "The lag is {lag:duration}. At the current rate, the lag exceeds the retention of the source"
        " ({retention:duration}) in {hours:.1f} hours. Later changes are then lost.",
        "mirrorfeed publish {table:argument} --follow",
        Severity.SOON,
    ),
    Rule("MF827", "THROTTLED", _fabric_error("THROTTLED"), _REPORTED, "mirrorfeed fabric status", is_temporary=True),
    Rule("MF828", "OWNER_LEFT", _fabric_error("OWNER_LEFT"), _REPORTED, "mirrorfeed fabric create NAME"),
    Rule("MF830", "TABLE_FAILED", _fabric_error(""), _REPORTED, "mirrorfeed lint {zone:argument}"),
    Rule(
        "MF830",
        "TABLE_FAILED",
        _stopped,
        "The status of the table in Fabric is {status}, but Fabric reports no reason.",
        "mirrorfeed lint {zone:argument}",
    ),
    Rule(
        "MF823",
        "STUCK_SNAPSHOTTING",
        _waits_for_fabric("Snapshotting"),
        "The status of the table in Fabric is still Snapshotting, {age:duration} after the newest file was published.",
        _REBUILD,
    ),
    Rule(
        "MF824",
        "NEVER_SYNCS",
        _waits_for_fabric(None),
        "Fabric still does not have the table, {age:duration} after the newest file was published.",
        "mirrorfeed fabric stop && mirrorfeed fabric start",
    ),
    _lag_rule("MF835", Step.CONSUMED, "Fabric has not consumed published files", "mirrorfeed fabric status"),
)
ALERT_RULES: tuple[Rule[TableFacts], ...] = (
    _lag_rule("MF834", Step.PUBLISHED, "Commits have not been published", "mirrorfeed doctor {table:argument}"),
    Rule(
        "MF840",
        "NOT_VERIFIED",
        _is_unverified,
        "No verification of the last {limit:duration} found source and mirror equal: {last}.",
        "mirrorfeed verify {table:argument}",
    ),
    _lag_rule("MF836", Step.MIRRORED, "Published changes have not reached the mirror", "mirrorfeed fabric status"),
    _lag_rule(
        "MF837",
        Step.QUERYABLE,
        "The SQL endpoint has not shown changes of the mirror",
        "mirrorfeed status {table:argument} --fabric",
    ),
)
"""Rules that alerts check, but `doctor` does not."""
RULES: tuple[Rule[Any], ...] = (*DATABASE_RULES, *TABLE_RULES, *ALERT_RULES)
SAFE = frozenset(rule.name for rule in RULES if rule.fix == _FIX)
"""Names of the problems that `doctor --fix` can fix. Every run of `publish` also fixes them."""


def table_findings(facts: TableFacts, rules: Sequence[Rule[TableFacts]] = TABLE_RULES) -> list[Finding]:
    """Return the findings of a table: its errors or, if there are none, its last failure, then those of `rules`."""
    errors: tuple[MirrorfeedError, ...] = facts.errors
    if facts.last_failure and not errors:
        errors = (facts.last_failure,)
    lost = facts.log_facts.lost
    if lost and type(lost) not in map(type, errors):
        errors = (*errors, lost)
    findings = [error_finding(facts.table, error) for error in errors]
    return findings + [each for rule in rules if (each := rule.find(facts))]


def database_findings(facts: DatabaseFacts) -> list[Finding]:
    findings = [error_finding("", facts.error)] if facts.error else []
    return findings + [each for rule in DATABASE_RULES if (each := rule.find(facts))]
