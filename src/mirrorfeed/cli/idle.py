"""Answers about tables, for which Spark is started only where they need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from mirrorfeed.display.progress import waiting

if TYPE_CHECKING:
    from mirrorfeed.config import Config, Table
    from mirrorfeed.publish.up_to_date_check import UpToDateCheck

Found = TypeVar("Found")


def told(
    config: Config,
    tables: Sequence[Table],
    ask_log: Callable[[UpToDateCheck, Table], Found | None],
    ask_spark: Callable[[Sequence[str]], Sequence[Found]],
) -> list[Found]:
    """One answer a table, in their order; Spark is asked about those alone of which the log does not tell."""
    with waiting("Looking at what is published"):
        from mirrorfeed.publish.up_to_date_check import UpToDateCheck

        idle = UpToDateCheck(config)
        found = {str(table.target): ask_log(idle, table) for table in tables}
    left = [name for name, answer in found.items() if answer is None]
    answers = {**found, **dict(zip(left, ask_spark(left) if left else (), strict=True))}
    return [answer for answer in answers.values() if answer is not None]
