"""The same for many tables, some of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_TABLES_AT_ONCE = 4


def each_of(one: Callable[[Item], Result], tables: Sequence[Item]) -> list[Result]:
    """What `one` gives for each, in their order."""
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        return list(pool.map(one, tables))
