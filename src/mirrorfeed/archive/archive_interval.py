"""Read and change the archive interval of a table: the age from which its files count as archived.

The interval is the table property `delta.timeUntilArchived`. Only this module changes the property. Every file that the
cloud moved to the archive tier must be at least as old as the interval, because younger files count as active. A
decrease applies immediately. An increase waits until all files in the archive tier are as old as the new interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from mirrorfeed.archive import PROPERTY
from mirrorfeed.archive.errors import InvalidIntervalError, interval_increase_too_early, no_archive_interval
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.runtime.spark_session import is_databricks, setting
from mirrorfeed.source.errors import IntervalTextError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo, parse_days, read_table_info

_MOVED, _SINCE, _RULE, _MODE = (
    f"mirrorfeed.archive.{name}" for name in ("movedFrom", "movedFromSince", "rule", "mode")
)
_ALL = (PROPERTY, _MOVED, _SINCE, _RULE, _MODE)
_ANY_PROPERTY = "spark.databricks.delta.allowArbitraryProperties.enabled"


@dataclass(frozen=True, slots=True)
class SafeInterval:
    """Longest safe archive interval of a table: every file that the cloud has archived is at least this old.

    With a longer interval, files in the archive tier would count as active. At the time `since`, the safe interval is
    `days` days. Then the safe interval grows by one day each day, up to the `rule` days of the lifecycle rule.
    """

    days: int
    since: datetime
    rule: int

    def days_at(self, now: datetime) -> int:
        """Return the safe interval at `now` in days. All files in the archive tier are at least this old."""
        passed = max(timedelta(0), now - self.since) // timedelta(days=1)
        return min(self.rule, self.days + passed)

    def under(self, rule: int, now: datetime) -> SafeInterval:
        """Return the new `SafeInterval` of the table if the lifecycle rule changes to `rule` days at `now`."""
        days = self.days_at(now)
        # While the safe interval grows, keep `since`, and so the part of a day.
        return SafeInterval(days, now, rule) if rule > days == self.rule else replace(self, rule=rule)

    def done_at(self) -> datetime:
        """Return the time from which all files in the archive tier are at least `self.rule` days old."""
        return self.since + timedelta(days=max(0, self.rule - self.days))


@dataclass(frozen=True, slots=True)
class Policy:
    """Archive interval of a table, and the limit for an increase. Both are saved as table properties."""

    days: int
    safe_interval: SafeInterval | None = None
    """Limit up to which `days` can increase at a given time. None if the interval was never changed."""
    exact: bool = False
    """True to increase the interval by one day each day. False to wait, and then increase the interval in one step."""

    @property
    def rule(self) -> int:
        """Number of days after which the lifecycle rule must archive files."""
        return self.safe_interval.rule if self.safe_interval else self.days

    def counts_as_archived(self, created: datetime | None, now: datetime) -> bool:
        """Return whether a file that was created at `created` (None: unknown) counts as archived at `now`."""
        return created is None or now - created >= timedelta(days=self.days)


@row
class Interval(Row):
    """Archive interval of a table: the age from which its files count as archived."""

    table: str = shown("table")
    days: int | None = shown("archived after", lambda days: counted(days, "day"), right=True)
    """Interval in days. None if the table has no interval, so that no file counts as archived."""
    rule: int | None = shown("lifecycle rule", lambda days: counted(days, "day"), right=True)
    """Number of days after which the lifecycle rule must archive files. None if the table has no interval."""
    until: datetime | None = shown("changing until", lambda time: f"{time:%Y-%m-%d}", default=None)
    """Time at which an increase of the interval is complete. None if the interval is not being increased."""
    exact: bool | None = None
    """True if the interval increases daily, False if in one step at `until`. None if it is not being increased."""
    archived: Row | None = None
    """Archived share of the table. None, except in the result of `ArchiveAwareTable.step`."""
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, source: Source, policy: Policy, *, moved: bool = True) -> Interval:
        """Return the `Interval` of the table `source`. Its values come from `policy`.

        If `moved` is False, the lifecycle rule of the cloud does not have `policy.rule` days yet. Then the field
        `notes` contains the instruction to set the rule to this number of days.
        """
        table, notes = str(source), []
        safe_interval = policy.safe_interval if policy.days < policy.rule else None
        if safe_interval:
            command = f"mirrorfeed archive step {shell_argument(table)}"
            time = "every day" if policy.exact else "when the new value is safe"
            notes.append(f"The interval increases {time}. Until then, run `{command}` daily.")
        if not moved:
            days = counted(policy.rule, "day")
            notes.append(
                f"This moved no files. Also set the lifecycle rule to {days} after creation. To print the rule, run"
                f" `mirrorfeed archive rule {shell_argument(table)}`."
            )
        until, exact = (safe_interval.done_at(), policy.exact) if safe_interval else (None, None)
        return cls(table, policy.days, policy.rule, until, exact, notes=tuple(notes))

    def remarks(self) -> Sequence[str]:
        return self.notes


def days_of(interval: str | int) -> int:
    """Return the number of days of an interval such as "60 days" or 60. Raises `IntervalTextError` if it is invalid."""
    return parse_days(interval if isinstance(interval, str) else f"{interval} days")


def change_rule(policy: Policy, rule: int, exact: bool, now: datetime) -> Policy:
    """Return the new archive interval of a table whose lifecycle rule changes to `rule` days at the time `now`.

    A decrease of the interval to `rule` days applies immediately. For an increase, call `advance` later. If `exact` is
    True, `advance` then increases the interval by one day each day. If `exact` is False, `advance` increases the
    interval in one step, when all files in the archive tier are at least `rule` days old.
    """
    safe_interval = policy.safe_interval or SafeInterval(policy.days, now, policy.days)
    return advance(Policy(policy.days, safe_interval.under(rule, now), exact), now)


def advance(policy: Policy, now: datetime) -> Policy:
    """Return the policy with the archive interval that applies at `now`.

    An interval below `policy.rule` days increases to this value. If `policy.exact` is True, the interval increases by
    one day each day. If `policy.exact` is False, it increases in one step at the time `policy.safe_interval.done_at()`.
    """
    if policy.safe_interval is None:
        return policy
    safe = policy.safe_interval.days_at(now)
    return replace(policy, days=safe if policy.exact or safe == policy.rule else min(policy.days, safe))


def to_properties(policy: Policy) -> dict[str, str]:
    listed = {PROPERTY: f"{policy.days} days"}
    if safe_interval := policy.safe_interval:
        listed |= {
            _MOVED: f"{safe_interval.days} days",
            _SINCE: safe_interval.since.isoformat(),
            _RULE: f"{safe_interval.rule} days",
            _MODE: "exact" if policy.exact else "keep",
        }
    return listed


def parse_policy(table: str, properties: Mapping[str, str]) -> Policy | None:
    """Return the archive interval in a table's properties, or None if there is none.

    Raises `InvalidIntervalError` if the properties are invalid.
    """
    if PROPERTY not in properties:
        return None
    try:
        days = parse_days(properties[PROPERTY])
        if _MOVED not in properties:
            return Policy(days)
        since = datetime.fromisoformat(properties[_SINCE])
        if since.tzinfo is None:
            raise ValueError(since)
        safe_interval = SafeInterval(parse_days(properties[_MOVED]), since, parse_days(properties[_RULE]))
        return Policy(days, safe_interval, properties[_MODE] == "exact")
    except (IntervalTextError, KeyError, ValueError) as error:
        own_properties = {name: properties[name] for name in _ALL if name in properties}
        raise InvalidIntervalError(table=table, properties=own_properties) from error


def read(spark: SparkSession, source: Source) -> Policy | None:
    return parse_policy(str(source), read_table_info(spark, source).properties)


def required(spark: SparkSession, source: Source, table: TableInfo | None = None) -> Policy:
    if policy := parse_policy(str(source), (table or read_table_info(spark, source)).properties):
        return policy
    raise no_archive_interval(table=str(source))


def set_first(spark: SparkSession, source: Source, days: int, now: datetime) -> Policy:
    """Set the archive interval of a table to `days`, and return the policy that was set.

    Replaces an invalid or longer interval. Raises `interval_increase_too_early` if `days` is longer than the existing
    interval.
    """
    try:
        before = read(spark, source)
    except InvalidIntervalError:
        policy = Policy(days)
        _write(spark, source, policy)
        _unset(spark, source, _ALL[1:])
        return policy
    if before is not None and days > before.days:
        raise interval_increase_too_early(table=str(source), now=before.days, rule=before.rule, wanted=days)
    policy = change_rule(before, days, exact=True, now=now) if before else Policy(days)
    _write(spark, source, policy)
    return policy


def change_interval(
    spark: SparkSession, source: Source, days: int, exact: bool, now: datetime, *, rule_changed: bool = True
) -> Interval:
    """Shorten the archive interval to `days` immediately, or start to increase it to `days`, and return the new state.

    To continue an increase, call `step` daily. If `exact` is True, the interval increases by one day each day. If
    `exact` is False, the interval increases in one step when all files that the cloud has archived are at least `days`
    days old. For an increase, first set the lifecycle rule of the cloud to `days` days, and confirm the change with
    `rule_changed`. For a decrease, set the rule after the call.

    Raises `no_archive_interval` if the table has no interval. Raises `interval_increase_too_early` if `days` is greater
    than the previous number of days of the lifecycle rule, but `rule_changed` is False.
    """
    before = required(spark, source)
    if days > before.rule and not rule_changed:
        raise interval_increase_too_early(table=str(source), now=before.days, rule=before.rule, wanted=days)
    policy = change_rule(before, days, exact, now)
    _write(spark, source, policy)
    return Interval.of(source, policy, moved=days >= before.rule)


def step(spark: SparkSession, source: Source, now: datetime) -> Policy:
    """Continue an increase of the archive interval, if one is in progress. Return the policy of the table at `now`."""
    before = required(spark, source)
    policy = advance(before, now)
    if policy != before:
        _write(spark, source, policy)
    return policy


def unset(spark: SparkSession, source: Source) -> None:
    """Remove the archive interval of a table, so that all files count as active. Raises `no_archive_interval` if it has
    none.

    Call this function only if no file of the table is in the archive tier.
    """
    with suppress(InvalidIntervalError):
        required(spark, source)
    _unset(spark, source, _ALL)


def _unset(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    listed = ", ".join(f"'{name}'" for name in names)
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} UNSET TBLPROPERTIES IF EXISTS ({listed})")


def _write(spark: SparkSession, source: Source, policy: Policy) -> None:
    # One statement sets all properties. With two statements, a crash between them could lose the longest safe interval.
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in to_properties(policy).items())
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES ({listed})")


def any_property(spark: SparkSession) -> AbstractContextManager[None]:
    """Context manager that lets statements set table properties that open source Delta does not know."""
    return nullcontext() if is_databricks(spark) else setting(spark, _ANY_PROPERTY, "true")
