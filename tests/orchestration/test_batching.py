"""When a followed table is published, and what a failure puts off."""

from __future__ import annotations

import pytest

from mirrorfeed.config.schedule import FollowLimits
from mirrorfeed.errors import MirrorfeedError, SessionLost
from mirrorfeed.orchestration.batching import LOOK_ANYWAY, PERSONS_PAUSE, State, after, due
from mirrorfeed.publish.errors import NothingPublished
from mirrorfeed.source.ranges import PendingCommits

STANDS = State(published=7, at=100.0, looked=100.0)
ONE, NONE = PendingCommits(1, 10, 2_000), PendingCommits(0)
EVERY_15, ROWS, BYTES = (
    FollowLimits(),
    FollowLimits(max_delay_seconds=None, max_rows=50),
    FollowLimits(max_delay_seconds=60, max_bytes=10_000),
)


@pytest.mark.parametrize(
    ("policy", "state", "waiting", "now", "expected"),
    [
        (EVERY_15, State(), None, 0.0, True),  # nothing is known yet
        (EVERY_15, STANDS, NONE, 500.0, False),
        (EVERY_15, STANDS, NONE, 100.0 + LOOK_ANYWAY, True),
        (EVERY_15, State(7, None, 100.0), ONE, 100.1, True),  # the first after a quiet time goes at once
        (EVERY_15, STANDS, ONE, 114.9, False),
        (EVERY_15, STANDS, ONE, 115.0, True),
        (EVERY_15, STANDS, None, 101.0, True),  # nobody could say
        (FollowLimits(max_delay_seconds=0), STANDS, ONE, 100.0, True),
        (ROWS, STANDS, PendingCommits(3, 49, 0), 500.0, False),
        (ROWS, STANDS, PendingCommits(3, 50, 0), 101.0, True),
        (ROWS, STANDS, PendingCommits(3, None, 0), 101.0, True),  # a commit that does not tell how much it changed
        (BYTES, STANDS, PendingCommits(3, None, 9_999), 159.0, False),
        (BYTES, STANDS, PendingCommits(3, None, 10_000), 101.0, True),
        (BYTES, STANDS, PendingCommits(3, 0, 1), 160.0, True),
        (EVERY_15, State(7, 100.0, 100.0, 2, 120.0), ONE, 119.9, False),
        (EVERY_15, State(7, 100.0, 100.0, 2, 120.0), NONE, 120.0, True),  # what failed is tried again, new or not
    ],
)
def test_a_table_is_due(
    policy: FollowLimits, state: State, waiting: PendingCommits | None, now: float, expected: bool
) -> None:
    assert due(policy, state, waiting, now) is expected


@pytest.mark.parametrize(("seconds", "poll"), [(15.0, 3.0), (5.0, 1.0), (0.0, 0.2), (3600.0, 3.0), (None, 3.0)])
def test_questions_are_asked_often_enough_for_the_policy(seconds: float | None, poll: float) -> None:
    assert FollowLimits(max_delay_seconds=seconds, max_rows=1).poll == poll


@pytest.mark.parametrize(
    ("failures", "error", "pause"),
    [
        (0, SessionLost(), 2.0),
        (1, SessionLost(), 4.0),
        (9, SessionLost(), 60.0),
        (500, SessionLost(), 60.0),
        (0, NothingPublished(table="t"), PERSONS_PAUSE),
    ],
)
def test_a_failure_puts_the_next_try_off(failures: int, error: MirrorfeedError, pause: float) -> None:
    state = after(State(7, 100.0, 100.0, failures), None, False, error, 200.0, 210.0)
    assert state == State(7, 100.0, 200.0, failures + 1, 210.0 + pause)


def test_a_run_that_did_well_forgets_failures() -> None:
    assert after(State(7, 100.0, 100.0, 3, 190.0), 9, True, None, 200.0, 210.0) == State(9, 200.0, 200.0)
    assert after(State(7, 100.0, 100.0), 7, False, None, 200.0, 210.0) == State(7, 100.0, 200.0)
