"""The same for many tables, some of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_TABLES_AT_ONCE = 4
_NOW_AND_THEN = 0.5
"""In seconds."""


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
