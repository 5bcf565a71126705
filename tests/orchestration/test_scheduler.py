"""Which table is published next, and when a followed table is due, with a clock that the test controls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from threading import Event

import pytest

from mirrorfeed.config.options import FollowLimits
from mirrorfeed.orchestration.follow_limits import FULL_READ_INTERVAL, is_due
from mirrorfeed.orchestration.scheduler import QueuedTable, Scheduler, map_parallel
from mirrorfeed.source.pending_commits import PendingCommits

A, B, C = QueuedTable("a"), QueuedTable("b"), QueuedTable("c")


@pytest.mark.parametrize(
    ("waiting", "max_parallel_tables", "begin"),
    [
        ([], 4, []),
        ([A, B, C], 2, ["a", "b"]),  # in the order of the configuration
        ([A, QueuedTable("b", due=5), QueuedTable("c", due=4)], 2, ["c", "b"]),  # unpublished tables come last
        ([QueuedTable("a", due=1), QueuedTable("b", 1, due=9)], 1, ["b"]),
        ([QueuedTable("a", -1, due=1), QueuedTable("b"), QueuedTable("c", due=9)], 3, ["c", "b", "a"]),
        ([QueuedTable("a", not_before=11), B], 2, ["b"]),
        ([QueuedTable("a", 9, not_before=11), B], 1, ["b"]),
        ([QueuedTable("a", not_before=10), B], 1, ["a"]),
    ],
)
def test_scheduler_starts_queued_tables(
    waiting: Sequence[QueuedTable], max_parallel_tables: int, begin: Sequence[str]
) -> None:
    assert [turn.name for turn in Scheduler(max_parallel_tables, list(waiting)).begin(10)] == begin


def names(turns: Sequence[QueuedTable]) -> list[str]:
    return [turn.name for turn in turns]


def test_table_waiting_for_a_retry_leaves_its_slot_to_others() -> None:
    turns = Scheduler(1, [A, B])
    assert names(turns.begin(0)) == ["a"]
    assert names(turns.begin(1)) == []
    assert turns.seconds_to_wait(1) == math.inf
    turns.ended("a", QueuedTable("a", not_before=4))
    assert (turns.seconds_to_wait(2), names(turns.begin(2))) == (2, ["b"])
    assert names(turns.begin(4)) == []  # its pause is over, but no slot is free
    turns.ended("b")
    assert names(turns.begin(4)) == ["a"]


def test_checks_do_not_wait_for_publications_and_start_in_their_order() -> None:
    checks = [QueuedTable(f"c{number}", not_before=-number, is_check=True) for number in range(6)]
    turns = Scheduler(1, [A, B, *checks])
    assert names(turns.begin(0)) == ["c5", "c4", "c3", "c2", "a"]
    turns.ended("c4", QueuedTable("c4", due=9, since=3))
    turns.ended("c5", QueuedTable("c5", due=9, since=2))
    assert names(turns.begin(0)) == ["c1", "c0"]
    turns.ended("a")
    assert names(turns.begin(0)) == ["c5"]  # it waits longer than c4, and b has no target


def test_table_over_its_timeout_does_not_block_others() -> None:
    turns = Scheduler(1, [QueuedTable("a", limit=10), B, C])
    assert names(turns.begin(5)) == ["a"]
    assert (turns.seconds_to_wait(6), names(turns.begin(14.9))) == (9, [])
    assert names(turns.begin(15)) == ["b"]
    assert names(turns.begin(99)) == []  # b has no timeout, and a is still running
    turns.ended("a")
    assert names(turns.begin(99)) == []
    turns.ended("b")
    assert names(turns.begin(99)) == ["c"]


def test_stopped_map_returns_what_is_known() -> None:
    known, go_on = list[int](), Event()

    def call(number: int) -> int:
        return number if number < 3 else go_on.wait(30) * number

    try:
        assert map_parallel(call, range(9), known.extend, lambda: len(known) == 3) == [0, 1, 2]
    finally:
        go_on.set()


ONE, NONE = PendingCommits(1, 10, 2_000), PendingCommits(0)
EVERY_15 = FollowLimits()
ROWS, BYTES = FollowLimits(max_delay_seconds=None, max_rows=50), FollowLimits(max_delay_seconds=60, max_bytes=10_000)


@pytest.mark.parametrize(
    ("policy", "waiting", "since_publication", "expected"),
    [
        (EVERY_15, NONE, 400.0, False),
        (EVERY_15, NONE, FULL_READ_INTERVAL, True),
        (EVERY_15, ONE, None, True),  # the first commit after a quiet time is due immediately
        (EVERY_15, ONE, 14.9, False),
        (EVERY_15, ONE, 15.0, True),
        (EVERY_15, None, 1.0, True),  # size unknown
        (FollowLimits(max_delay_seconds=0), ONE, 0.0, True),
        (ROWS, PendingCommits(3, 49, 0), 400.0, False),
        (ROWS, PendingCommits(3, 50, 0), 1.0, True),
        (ROWS, PendingCommits(3, None, 0), 1.0, True),  # a commit without row and byte counts
        (BYTES, PendingCommits(3, None, 9_999), 59.0, False),
        (BYTES, PendingCommits(3, None, 10_000), 1.0, True),
        (BYTES, PendingCommits(3, 0, 1), 60.0, True),
    ],
)
def test_followed_table_is_due(
    policy: FollowLimits, waiting: PendingCommits | None, since_publication: float | None, expected: bool
) -> None:
    assert is_due(policy, waiting, since_publication, since_publication or 0.1) is expected


@pytest.mark.parametrize(("seconds", "poll"), [(15.0, 3.0), (5.0, 1.0), (0.0, 0.2), (3600.0, 3.0), (None, 3.0)])
def test_poll_interval_fits_the_follow_limits(seconds: float | None, poll: float) -> None:
    assert FollowLimits(max_delay_seconds=seconds, max_rows=1).poll == poll
