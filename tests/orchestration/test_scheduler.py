"""Whose turn it is, by a clock of the test's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from mirrorfeed.orchestration.scheduler import QueuedTable, Scheduler

A, B, C = QueuedTable("a"), QueuedTable("b"), QueuedTable("c")


@pytest.mark.parametrize(
    ("waiting", "max_parallel_tables", "begin"),
    [
        ([], 4, []),
        ([A, B, C], 2, ["a", "b"]),  # as they stand in the configuration
        ([A, QueuedTable("b", due=5), QueuedTable("c", due=4)], 2, ["c", "b"]),  # what was never published comes last
        ([QueuedTable("a", due=1), QueuedTable("b", 1, due=9)], 1, ["b"]),
        ([QueuedTable("a", -1, due=1), QueuedTable("b"), QueuedTable("c", due=9)], 3, ["c", "b", "a"]),
        ([QueuedTable("a", again=11), B], 2, ["b"]),
        ([QueuedTable("a", 9, again=11), B], 1, ["b"]),
        ([QueuedTable("a", again=10), B], 1, ["a"]),
    ],
)
def test_who_begins(waiting: Sequence[QueuedTable], max_parallel_tables: int, begin: Sequence[str]) -> None:
    assert [turn.name for turn in Scheduler(max_parallel_tables, list(waiting)).begin(10)] == begin


def names(turns: Sequence[QueuedTable]) -> list[str]:
    return [turn.name for turn in turns]


def test_what_waits_for_its_next_try_leaves_its_place_to_others() -> None:
    turns = Scheduler(1, [A, B])
    assert names(turns.begin(0)) == ["a"]
    assert names(turns.begin(1)) == []
    assert turns.until(1) == math.inf
    turns.ended("a", QueuedTable("a", again=4))
    assert (turns.until(2), names(turns.begin(2))) == (2, ["b"])
    assert names(turns.begin(4)) == []  # its pause is over, and the place is taken
    turns.ended("b")
    assert names(turns.begin(4)) == ["a"]


def test_what_is_over_its_limit_keeps_nobody_waiting() -> None:
    turns = Scheduler(1, [QueuedTable("a", limit=10), B, C])
    assert names(turns.begin(5)) == ["a"]
    assert (turns.until(6), names(turns.begin(14.9))) == (9, [])
    assert names(turns.begin(15)) == ["b"]
    assert names(turns.begin(99)) == []  # b has no limit, and a is still at it
    turns.ended("a")
    assert names(turns.begin(99)) == []
    turns.ended("b")
    assert names(turns.begin(99)) == ["c"]
