from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.archive.archive_interval import Policy, SafeInterval, advance

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def test_file_counts_as_archived_exactly_at_the_interval() -> None:
    assert not Policy(60).counts_as_archived(START, START + 60 * DAY - timedelta(microseconds=1))
    assert Policy(60).counts_as_archived(START, START + 60 * DAY)


@pytest.mark.parametrize(
    ("passed", "exact", "days"),
    [
        (0, True, 60),
        (7, True, 67),
        (7.99, True, 67),
        (30, True, 90),
        (31, True, 90),
        (0, False, 60),
        (29.99, False, 60),
        (30, False, 90),
    ],
)
def test_property_from_60_to_90_days_grows_daily_or_at_the_end(passed: float, exact: bool, days: int) -> None:
    safe_interval = SafeInterval(60, START, 60).under(90, START)
    assert advance(Policy(60, safe_interval, exact), START + passed * DAY).days == days
    assert safe_interval.done_at() == START + 30 * DAY


@pytest.mark.parametrize(("shorter", "days"), [(30, 30), (60, 60), (65, 65), (70, 70)])
def test_shorter_interval_takes_effect_at_once(shorter: int, days: int) -> None:
    now = START + 10 * DAY
    assert advance(Policy(60, SafeInterval(60, START, 90).under(shorter, now), exact=True), now).days == days


def test_shorter_target_during_growth_is_reached_on_the_way() -> None:
    safe_interval = SafeInterval(60, START, 90).under(80, START + 10.5 * DAY)
    assert safe_interval.days_at(START + 19.9 * DAY) == 79  # not even a part of a day was lost
    assert safe_interval.days_at(START + 20 * DAY) == safe_interval.days_at(START + 99 * DAY) == 80


def test_clock_going_back_makes_no_file_active() -> None:
    assert SafeInterval(60, START, 90).days_at(START - 5 * DAY) == 60


@dataclass
class World:
    """A table that gets a file every few hours, a cloud that archives files by its rule at any time, and a job that may
    miss days.

    Times are in hours."""

    rule: int
    safe_interval: SafeInterval
    days: int
    exact: bool
    hour: int = 0
    files: list[int] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)

    @property
    def now(self) -> datetime:
        return START + timedelta(hours=self.hour)

    def wait(self, hours: int) -> None:
        """Every hour, add a file and let the cloud archive files by its rule."""
        for _ in range(hours):
            self.hour += 1
            self.files.append(self.hour)
            self.moved |= {file for file in self.files if self.hour - file > self.rule * 24}
            self.check()

    def change(self, days: int) -> None:
        self.safe_interval = self.safe_interval.under(days, self.now)
        self.rule = days
        self.step()

    def step(self) -> None:
        self.days = advance(Policy(self.days, self.safe_interval, self.exact), self.now).days
        self.check()

    def check(self) -> None:
        policy, now = Policy(self.days), self.now
        assert all(policy.counts_as_archived(START + timedelta(hours=file), now) for file in self.moved)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 60)),
        st.tuples(st.just("change"), st.integers(1, 8)),
        st.tuples(st.just("step"), st.just(0)),
    ),
    max_size=30,
)


@given(first=st.integers(1, 6), exact=st.booleans(), actions=ACTIONS)
def test_file_moved_by_the_cloud_never_counts_as_active(
    first: int, exact: bool, actions: list[tuple[str, int]]
) -> None:
    world = World(first, SafeInterval(first, START, first), first, exact)
    for action, number in actions:
        {"wait": world.wait, "change": world.change, "step": lambda _: world.step()}[action](number)


@given(first=st.integers(1, 6), then=st.lists(st.integers(1, 8), min_size=1, max_size=4), exact=st.booleans())
def test_property_finally_equals_the_rule(first: int, then: list[int], exact: bool) -> None:
    world = World(first, SafeInterval(first, START, first), first, exact)
    for days in then:
        world.change(days)
        world.wait(30)
    world.wait(8 * 24)
    world.step()
    assert world.days == then[-1]
