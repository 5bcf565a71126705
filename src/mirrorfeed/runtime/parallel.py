"""Parallel work: one call for many tables, and how many tables a driver can publish at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_TABLES_AT_ONCE = 4
_FEWEST, _MOST = 2, 32
_NOW_AND_THEN = 0.5
"""In seconds."""


def bearable() -> int:
    """The default number of tables that are published at the same time: two for each core of the driver, because they
    mostly wait for Spark and for storage, and at most two for each GiB of its memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):  # unknown on this system
        memory = _FEWEST
    return bearable_by(cores, memory)


def bearable_by(cores: int, gib: float) -> int:
    return max(_FEWEST, min(2 * cores, int(2 * gib), _MOST))


def each_of(
    one: Callable[[Item], Result], tables: Sequence[Item], hear: Callable[[Sequence[Result]], None] = lambda _: None
) -> list[Result]:
    """The results of `one` for all tables, in their order. `hear` gets new results in this thread, at times none."""
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        asked = [pool.submit(one, table) for table in tables]
        try:
            left = set(asked)
            while left:
                come, left = wait(left, _NOW_AND_THEN, FIRST_COMPLETED)
                hear([each.result() for each in come])
            return [each.result() for each in asked]
        finally:
            for each in asked:
                each.cancel()
