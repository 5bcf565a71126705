"""The same for many tables, some of them at a time."""

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
    """How many tables are published at once unless the configuration says it. They wait for Spark and for storage most
    of their time: two for each core of the driver, and at least two GiB of its memory for four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return bearable_by(cores, _memory_gib())


def bearable_by(cores: int, gib: float) -> int:
    return max(_FEWEST, min(2 * cores, int(2 * gib), _MOST))


def _memory_gib() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):  # where it is not told
        return _FEWEST


def each_of(
    one: Callable[[Item], Result], tables: Sequence[Item], hear: Callable[[Sequence[Result]], None] = lambda _: None
) -> list[Result]:
    """What `one` gives for each, in their order. This thread hears of what has come since it heard last, now and then
    of nothing."""
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
