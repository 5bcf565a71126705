"""The archive interval of a table: the age from which files count as archived, and how to change it safely.

The lifecycle rule of the cloud archives files that are older than its number of days. The table property is the age
from which files count as archived. No file that the cloud has archived may count as active. Decreasing the property is
always safe. Increasing it is not, because the cloud does not restore files: the property must never exceed the age of
the youngest archived file, and that age grows by a day each day.

Only this module changes the table property.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from mirrorfeed.archive import PROPERTY
from mirrorfeed.archive.errors import InvalidInterval, LongerInterval, NoInterval, RuleFirst
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.runtime.spark_session import is_databricks, setting
from mirrorfeed.source.errors import BadInterval
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo, parse_days, read_table_info

_OURS = "mirrorfeed.archive."
_MOVED, _SINCE, _RULE, _MODE = (_OURS + name for name in ("movedFrom", "movedFromSince", "rule", "mode"))
ALL = (PROPERTY, _MOVED, _SINCE, _RULE, _MODE)
_ANY_PROPERTY = "spark.databricks.delta.allowArbitraryProperties.enabled"


def counts_as_archived(created: datetime, days: int, now: datetime) -> bool:
    return now - created >= timedelta(days=days)


@dataclass(frozen=True, slots=True)
class Frontier:
    """Age of the youngest file that the cloud may have archived: `days` at the time `since`.

    From then on the lifecycle rule has `rule` days. The age never exceeds the rule, because the rule continues to
    archive files.
    """

    days: int
    since: datetime
    rule: int

    def age(self, now: datetime) -> int:
        """Return the age in whole days, rounded down: the maximum of the property now."""
        passed = max(timedelta(0), now - self.since) // timedelta(days=1)
        return min(self.rule, self.days + passed)

    def under(self, rule: int, now: datetime) -> Frontier:
        """Return the frontier if the lifecycle rule changes now."""
        age = self.age(now)
        if rule <= age:
            return Frontier(rule, now, rule)  # the cloud moves all files of that age
        if age < self.rule:
            return replace(self, rule=rule)  # still growing: keep the part of a day
        return Frontier(age, now, rule)

    def done_at(self) -> datetime:
        """Return the time at which the property may equal the rule."""
        return self.since + timedelta(days=max(0, self.rule - self.days))


def property_days(frontier: Frontier, current: int, exact: bool, now: datetime) -> int:
    """Return the value that the property should have now.

    With `exact`, this is the maximum, which changes daily. Otherwise it is the current value until the value of the
    rule is safe. Until then, some active files count as archived.
    """
    safe = frontier.age(now)
    if exact or safe == frontier.rule:
        return safe
    return min(current, safe)


@dataclass(frozen=True, slots=True)
class Policy:
    """Interval of a table as stored in its properties.

    `frontier` and `exact` remain there after an increase is complete, because one statement writes all values.
    """

    days: int
    frontier: Frontier | None = None
    exact: bool = False

    @property
    def rule(self) -> int:
        """Number of days in the lifecycle rule."""
        return self.frontier.rule if self.frontier else self.days


@row
class Interval(Row):
    """Age from which files of a table count as archived."""

    table: str = shown("table")
    days: int | None = shown("archived after", lambda days: counted(days, "day"), right=True)
    """Interval in days. None if no file counts as archived."""
    rule: int | None = shown("lifecycle rule", lambda days: counted(days, "day"), right=True)
    """Number of days that the lifecycle rule must have."""
    until: datetime | None = shown("changing until", lambda time: f"{time:%Y-%m-%d}", default=None)
    """Time at which the interval equals the rule, if the interval is being increased."""
    exact: bool | None = None
    """True if the interval is increased daily."""
    archived: Row | None = None
    """Archived share, as written to the ledger."""
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, source: Source, policy: Policy, *, moved: bool = True) -> Interval:
        """Return the interval of a policy. `moved` is False if the lifecycle rule may have another number of days."""
        table, notes = str(source), []
        frontier = policy.frontier if policy.days < policy.rule else None
        if frontier:
            how = (
                ("The interval increases every day")
                if policy.exact
                else ("The interval increases when the new value is safe")
            )
            notes.append(f"{how}. Until then, run `mirrorfeed archive step {shell_argument(table)}` daily.")
        if not moved:
            days = counted(policy.rule, "day")
            notes.append(
                f"This moved no files. Also set the lifecycle rule to {days} after creation. To print the rule, run"
                f" `mirrorfeed archive rule {shell_argument(table)}`."
            )
        until, exact = (frontier.done_at(), policy.exact) if frontier else (None, None)
        return cls(table, policy.days, policy.rule, until, exact, notes=tuple(notes))

    def remarks(self) -> Sequence[str]:
        return self.notes


def days_of(interval: str | int) -> int:
    """Parse an interval such as "60 days" and return the days."""
    return parse_days(interval) if isinstance(interval, str) else parse_days(f"{interval} days")


def changed(policy: Policy, to: int, exact: bool, now: datetime) -> Policy:
    """Return the policy after the lifecycle rule has changed to `to` days.

    A shorter interval applies immediately. A longer interval is reached step by step.
    """
    frontier = policy.frontier or Frontier(policy.days, now, policy.days)
    return stepped(Policy(policy.days, frontier.under(to, now), exact), now)


def stepped(policy: Policy, now: datetime) -> Policy:
    """Return the policy that a daily job should set. Skipped days do no harm."""
    if policy.frontier is None:
        return policy
    return replace(policy, days=property_days(policy.frontier, policy.days, policy.exact, now))


def to_properties(policy: Policy) -> dict[str, str]:
    listed = {PROPERTY: f"{policy.days} days"}
    if frontier := policy.frontier:
        listed |= {
            _MOVED: f"{frontier.days} days",
            _SINCE: frontier.since.isoformat(),
            _RULE: f"{frontier.rule} days",
            _MODE: "exact" if policy.exact else "keep",
        }
    return listed


def from_properties(properties: Mapping[str, str]) -> Policy | None:
    """Return the policy, or None without an archive."""
    if PROPERTY not in properties:
        return None
    days = parse_days(properties[PROPERTY])
    if _MOVED not in properties:
        return Policy(days)
    since = datetime.fromisoformat(properties[_SINCE])
    if since.tzinfo is None:
        raise ValueError(since)
    frontier = Frontier(parse_days(properties[_MOVED]), since, parse_days(properties[_RULE]))
    return Policy(days, frontier, properties[_MODE] == "exact")


def parse_policy(table: str, properties: Mapping[str, str]) -> Policy | None:
    """Return the policy in the properties of a table. Raises `InvalidInterval` for invalid values."""
    try:
        return from_properties(properties)
    except (BadInterval, KeyError, ValueError) as error:
        own_properties = {name: properties[name] for name in ALL if name in properties}
        raise InvalidInterval(table=table, properties=own_properties) from error


def read(spark: SparkSession, source: Source) -> Policy | None:
    return parse_policy(str(source), read_table_info(spark, source).properties)


def required(spark: SparkSession, source: Source, table: TableInfo | None = None) -> Policy:
    if policy := parse_policy(str(source), (table or read_table_info(spark, source)).properties):
        return policy
    raise NoInterval(table=str(source))


def set_first(spark: SparkSession, source: Source, days: int, now: datetime) -> Policy:
    """Set the first interval, or a shorter one. Replaces invalid properties. Raises `LongerInterval`."""
    try:
        found = read(spark, source)
    except InvalidInterval:
        policy = Policy(days)
        _write(spark, source, policy)
        _unset(spark, source, ALL[1:])
        return policy
    if found is not None and days > found.days:
        raise LongerInterval(table=str(source), now=found.days, wanted=days)
    policy = changed(found, days, exact=True, now=now) if found else Policy(days)
    _write(spark, source, policy)
    return policy


def change_interval(
    spark: SparkSession, source: Source, days: int, exact: bool, now: datetime, *, rule_changed: bool = True
) -> Interval:
    """Change the interval. Raises `RuleFirst` for a longer interval unless the lifecycle rule was changed.

    Change the lifecycle rule before the call if the number of days increases, and after the call if it decreases.
    """
    before = required(spark, source)
    if days > before.rule and not rule_changed:
        raise RuleFirst(table=str(source), rule=before.rule, wanted=days)
    policy = changed(before, days, exact, now)
    _write(spark, source, policy)
    return Interval.of(source, policy, moved=days >= before.rule)


def step(spark: SparkSession, source: Source, now: datetime) -> Policy:
    found = required(spark, source)
    policy = stepped(found, now)
    if policy != found:
        _write(spark, source, policy)
    return policy


def unset(spark: SparkSession, source: Source) -> None:
    """Remove the interval, so that all files count as active. Only for a table without files in the archive tier."""
    with suppress(InvalidInterval):
        required(spark, source)
    _unset(spark, source, ALL)


def _unset(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    listed = ", ".join(f"'{name}'" for name in names)
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} UNSET TBLPROPERTIES IF EXISTS ({listed})")


def _write(spark: SparkSession, source: Source, policy: Policy) -> None:
    # One statement sets all: after a crash between two, the interval could grow without the values that make it safe.
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in to_properties(policy).items())
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES ({listed})")


def any_property(spark: SparkSession) -> AbstractContextManager[None]:
    """Allow table properties that open source Delta does not know, such as the interval."""
    return nullcontext() if is_databricks(spark) else setting(spark, _ANY_PROPERTY, "true")
