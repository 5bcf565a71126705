"""What is said of a failure that has no name here: of which versions, by which operations, and what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.feed.ranges import Commit, Range


@contextmanager
def unknown_faults(table: str, what: Range | int, commits: Sequence[Commit]) -> Iterator[None]:
    """Whatever is no error of ours becomes one, in publishing a range, or a snapshot's version."""
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
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
