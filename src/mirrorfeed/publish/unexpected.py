"""What is said of a failure that has no name here: of which versions, by which operations, and what helps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.landing.selection import BadCondition, Selection
from mirrorfeed.source.ranges import Commit, Range

_OF_VALUES = re.compile(r"\[(?:CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|ARITHMETIC_OVERFLOW)\b.*")
"""What a condition meets in the values of a row, for the other expressions of a publication hold for every value."""


@contextmanager
def unknown_faults(
    table: str, what: Range | int, commits: Sequence[Commit], selection: Selection | None = None
) -> Iterator[None]:
    """Whatever is no error of ours becomes one, in publishing a range, or a snapshot's version, of what is selected
    of the table."""
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
        where = selection.where if selection else None
        if where is not None and (met := _OF_VALUES.search(str(error))):
            raise BadCondition(table, where, met.group().partition(" SQLSTATE")[0].rstrip(".")) from error
        if isinstance(what, int):
            raise named(f"Publishing version {what} of {table}", error) from error
        doing = f"Publishing {what} of {table} ({operations_in(what, commits)})"
        helps = "`mirrorfeed rebuild` starts the table again from a snapshot, which reads none of these changes."
        raise named(doing, error, helps) from error


def operations_in(range_: Range, commits: Sequence[Commit]) -> str:
    """Each in the order of its first time, and with how often it stands there, where more than once."""
    inside = range(range_.from_version_exclusive + 1, range_.to_version_inclusive + 1)
    counts = Counter(commit.operation for commit in commits if commit.version in inside)
    return ", ".join(f"{count} {operation}" if count > 1 else operation for operation, count in counts.items())
