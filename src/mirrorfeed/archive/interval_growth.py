"""How old a file is when it counts as archived, and how that age may grow: pure decisions.

The cloud's rule moves files that are older than it says; the table's property says from which age files count as
archived. The one promise here: no file that the cloud has moved ever counts as hot. Lowering the property keeps it at
any time. Raising it needs care, for the cloud brings no file back: the property may never be more than the age of the
youngest file that was moved, and that age grows by a day each day.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta


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
