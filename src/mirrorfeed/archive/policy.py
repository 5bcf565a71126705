"""What a table says about its archive, in its own properties; and the only place that changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession

from mirrorfeed.archive.engine import is_databricks, setting
from mirrorfeed.archive.interval import BadInterval, Frontier, parse_days, property_days, spell
from mirrorfeed.errors import Terminal
from mirrorfeed.feed import history
from mirrorfeed.feed.source import Source

PROPERTY = "delta.timeUntilArchived"
_OURS = "mirrorfeed.archive."
_MOVED, _SINCE, _RULE, _MODE = (_OURS + name for name in ("movedFrom", "movedFromSince", "rule", "mode"))
_ALL = (PROPERTY, _MOVED, _SINCE, _RULE, _MODE)
_ANY_PROPERTY = "spark.databricks.delta.allowArbitraryProperties.enabled"


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
    listed = {PROPERTY: spell(policy.days)}
    if policy.change:
        frontier = policy.change.frontier
        listed |= {
            _MOVED: spell(frontier.days),
            _SINCE: frontier.since.isoformat(),
            _RULE: spell(frontier.rule),
            _MODE: "exact" if policy.change.exact else "keep",
        }
    return listed


def from_properties(properties: Mapping[str, str]) -> Policy | None:
    """None where the table has no archive."""
    if PROPERTY not in properties:
        return None
    change = None
    if _MOVED in properties:
        frontier = Frontier(
            parse_days(properties[_MOVED]), datetime.fromisoformat(properties[_SINCE]), parse_days(properties[_RULE])
        )
        change = Change(frontier, properties[_MODE] == "exact")
    return Policy(parse_days(properties[PROPERTY]), change)


def read(spark: SparkSession, source: Source) -> Policy | None:
    """Or `NotUnderstood`."""
    return understood(str(source), history.detail(spark, source).properties)


def understood(table: str, properties: Mapping[str, str]) -> Policy | None:
    """What the properties of a table say, or `NotUnderstood`, where somebody wrote what no interval is."""
    try:
        return from_properties(properties)
    except (BadInterval, KeyError, ValueError) as error:
        ours = {name: properties[name] for name in _ALL if name in properties}
        raise NotUnderstood(table, ours) from error


def required(spark: SparkSession, source: Source) -> Policy:
    """The policy, or `NoPolicy`."""
    if policy := read(spark, source):
        return policy
    raise NoPolicy(str(source))


def set_first(spark: SparkSession, source: Source, days: int, now: datetime) -> Policy:
    """Gives a table its interval, or a shorter one; a longer one is refused, for it takes its time. What is not
    understood is replaced."""
    try:
        found = read(spark, source)
    except NotUnderstood:
        policy = Policy(days)
        _write(spark, source, policy)
        _unset(spark, source, _ALL[1:])
        return policy
    if found is not None and days > found.days:
        raise LongerInterval(str(source), found.days, days)
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
    _unset(spark, source, _ALL)


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


class NotUnderstood(Terminal):
    def __init__(self, table: str, properties: Mapping[str, str]) -> None:
        self.table, self.properties = table, dict(properties)

    def what(self) -> str:
        said = ", ".join(f"{name} = {value!r}" for name, value in self.properties.items())
        return f"What the properties of {self.table} say of its archive is not understood: {said}."

    def next(self) -> str:
        return (
            f"Run `mirrorfeed archive set {self.table} 'X days'` with the days of the cloud's rule, or, if nothing of"
            f" it is in the archive, `mirrorfeed archive unset {self.table} --nothing-archived`."
        )


class NoPolicy(Terminal):
    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"{self.table} has no archive: {PROPERTY} is not set."

    def next(self) -> str:
        return f"Run `mirrorfeed archive set {self.table} 'X days'` with the days of the cloud's lifecycle rule."


class LongerInterval(Terminal):
    def __init__(self, table: str, now: int, asked: int) -> None:
        self.table, self.now, self.asked = table, now, asked

    def what(self) -> str:
        return (
            f"{self.table} counts files as archived from {self.now} days. To say {self.asked} days at once would make"
            " hot files of those that the cloud has moved already, for it brings none back."
        )

    def next(self) -> str:
        return (
            f"Change the cloud's rule, then run `mirrorfeed archive change-interval {self.table} --to"
            f" '{self.asked} days'`."
        )
