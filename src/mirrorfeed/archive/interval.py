"""The archive interval of a table: from which age files count as archived, and how it changes safely.

The lifecycle rule of the cloud moves files that are older than its number of days; the table property says from which
age files count as archived. No file that the cloud has moved may count as active. Decreasing the property is always
safe. Increasing it is not, because the cloud moves no file back: the property must never exceed the age of the youngest
file that was moved, and that age grows by a day each day.

Only this module changes the table property.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import LongerInterval, NoPolicy, NotUnderstood
from mirrorfeed.runtime.engine import is_databricks, setting
from mirrorfeed.source.errors import BadInterval
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.retention import parse_days
from mirrorfeed.source.table_info import read_table_info


def counts_as_archived(created: datetime, days: int, now: datetime) -> bool:
    """Whether a file of this age counts as archived, be it moved or not."""
    return now - created >= timedelta(days=days)


@dataclass(frozen=True, slots=True)
class Frontier:
    """What is known of the youngest file that the cloud may have moved: at `since` it was `days` old, and since then
    the cloud's rule says `rule` days. Its age never is more than the rule, for the rule goes on moving files."""

    days: int
    since: datetime
    rule: int

    def age(self, now: datetime) -> int:
        """In whole days, rounded down: the most that the property may say now."""
        passed = max(timedelta(0), now - self.since) // timedelta(days=1)
        return min(self.rule, self.days + passed)

    def under(self, rule: int, now: datetime) -> Frontier:
        """From now on the cloud's rule is another."""
        age = self.age(now)
        if rule <= age:
            return Frontier(rule, now, rule)  # the cloud moves everything down to there itself
        if age < self.rule:
            return replace(self, rule=rule)  # still growing, and not a part of a day is lost
        return Frontier(age, now, rule)

    def done_at(self) -> datetime:
        """When the property may say what the rule says."""
        return self.since + timedelta(days=max(0, self.rule - self.days))


def property_days(frontier: Frontier, current: int, exact: bool, now: datetime) -> int:
    """What the property should say now. Exact: as much as is safe, so that it changes daily; otherwise it stays until
    the rule's value itself is safe, and some hot files count as archived meanwhile."""
    safe = frontier.age(now)
    if exact or safe == frontier.rule:
        return safe
    return min(current, safe)


PROPERTY = "delta.timeUntilArchived"
_OURS = "mirrorfeed.archive."
_MOVED, _SINCE, _RULE, _MODE = (_OURS + name for name in ("movedFrom", "movedFromSince", "rule", "mode"))
ALL = (PROPERTY, _MOVED, _SINCE, _RULE, _MODE)


@dataclass(frozen=True, slots=True)
class Change:
    """How the interval came, or comes, to what the cloud's rule says. It stays in the properties when it is done, for
    it is written together with the interval, in one statement."""

    frontier: Frontier
    exact: bool


@dataclass(frozen=True, slots=True)
class Policy:
    days: int
    change: Change | None = None

    @property
    def rule(self) -> int:
        """What the cloud's rule must say."""
        return self.change.frontier.rule if self.change else self.days


def changed(policy: Policy, to: int, exact: bool, now: datetime) -> Policy:
    """The policy once the cloud's rule says `to` days; a shorter interval holds at once, a longer one begins."""
    frontier = policy.change.frontier if policy.change else Frontier(policy.days, now, policy.days)
    return _at(Change(frontier.under(to, now), exact), policy.days, now)


def stepped(policy: Policy, now: datetime) -> Policy:
    """The policy as it should be now: what a daily job sets. Days on which it did not run do no harm."""
    return _at(policy.change, policy.days, now) if policy.change else policy


def _at(change: Change, current: int, now: datetime) -> Policy:
    return Policy(property_days(change.frontier, current, change.exact, now), change)


def to_properties(policy: Policy) -> dict[str, str]:
    listed = {PROPERTY: f"{policy.days} days"}
    if policy.change:
        frontier = policy.change.frontier
        listed |= {
            _MOVED: f"{frontier.days} days",
            _SINCE: frontier.since.isoformat(),
            _RULE: f"{frontier.rule} days",
            _MODE: "exact" if policy.change.exact else "keep",
        }
    return listed


def from_properties(properties: Mapping[str, str]) -> Policy | None:
    """None where the table has no archive."""
    if PROPERTY not in properties:
        return None
    change = None
    if _MOVED in properties:
        since = datetime.fromisoformat(properties[_SINCE])
        if since.tzinfo is None:
            raise ValueError(since)
        frontier = Frontier(parse_days(properties[_MOVED]), since, parse_days(properties[_RULE]))
        change = Change(frontier, properties[_MODE] == "exact")
    return Policy(parse_days(properties[PROPERTY]), change)


def understood(table: str, properties: Mapping[str, str]) -> Policy | None:
    """What the properties of a table say, or `NotUnderstood`, where somebody wrote what no interval is."""
    try:
        return from_properties(properties)
    except (BadInterval, KeyError, ValueError) as error:
        ours = {name: properties[name] for name in ALL if name in properties}
        raise NotUnderstood(table=table, properties=ours) from error


_ANY_PROPERTY = "spark.databricks.delta.allowArbitraryProperties.enabled"


def read(spark: SparkSession, source: Source) -> Policy | None:
    """Or `NotUnderstood`."""
    return understood(str(source), read_table_info(spark, source).properties)


def required(spark: SparkSession, source: Source) -> Policy:
    """The policy, or `NoPolicy`."""
    if policy := read(spark, source):
        return policy
    raise NoPolicy(table=str(source))


def set_first(spark: SparkSession, source: Source, days: int, now: datetime) -> Policy:
    """Gives a table its interval, or a shorter one; a longer one is refused, for it takes its time. What is not
    understood is replaced."""
    try:
        found = read(spark, source)
    except NotUnderstood:
        policy = Policy(days)
        _write(spark, source, policy)
        _unset(spark, source, ALL[1:])
        return policy
    if found is not None and days > found.days:
        raise LongerInterval(table=str(source), now=found.days, asked=days)
    policy = changed(found, days, exact=True, now=now) if found else Policy(days)
    _write(spark, source, policy)
    return policy


def change_interval(spark: SparkSession, source: Source, days: int, exact: bool, now: datetime) -> Policy:
    """To be called once the cloud's rule says so many days, if they are more; before that, if they are fewer."""
    policy = changed(required(spark, source), days, exact, now)
    _write(spark, source, policy)
    return policy


def step(spark: SparkSession, source: Source, now: datetime) -> Policy:
    found = required(spark, source)
    policy = stepped(found, now)
    if policy != found:
        _write(spark, source, policy)
    return policy


def unset(spark: SparkSession, source: Source) -> None:
    """From here on all files count as hot: only for a table of which nothing is in the archive."""
    with suppress(NotUnderstood):
        required(spark, source)
    _unset(spark, source, ALL)


def _unset(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    listed = ", ".join(f"'{name}'" for name in names)
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} UNSET TBLPROPERTIES IF EXISTS ({listed})")


def _write(spark: SparkSession, source: Source, policy: Policy) -> None:
    # One statement sets all: after a crash between two, a value would lack what makes it safe to raise.
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in to_properties(policy).items())
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES ({listed})")


def any_property(spark: SparkSession) -> AbstractContextManager[None]:
    """Open source Delta does not know the property and refuses it, unless told to take any."""
    return nullcontext() if is_databricks(spark) else setting(spark, _ANY_PROPERTY, "true")
