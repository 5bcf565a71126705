"""What a table's properties say of its archive, and what they should say next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mirrorfeed.archive.errors import NotUnderstood
from mirrorfeed.archive.interval_growth import Frontier, property_days
from mirrorfeed.source.retention import BadInterval, parse_days, spell

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
