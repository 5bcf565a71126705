"""Convert the errors of one publication, for example of Spark, to errors that name its table and versions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mirrorfeed.errors import MirrorfeedError, wrap_error
from mirrorfeed.landing.errors import invalid_condition
from mirrorfeed.landing.selection import Selection
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files.staging_job import BadRows
from mirrorfeed.source.snapshot_or_range import Commit, ComparisonStart, KeyRepair, Publication, Range, Snapshot

_VALUE_ERROR = re.compile(r"\[(?:CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|ARITHMETIC_OVERFLOW)\b.*")
"""Spark errors that row values can cause in the condition `where`, but in no other expression of a publication."""


@contextmanager
def publication_errors(
    table: str, what: Publication, commits: Sequence[Commit], selection: Selection | None = None
) -> Iterator[None]:
    """Context manager for a block that publishes `what`. Converts all errors to `MirrorfeedError`."""
    try:
        yield
    except MirrorfeedError:
        raise
    except BadRows as error:
        raise RowsRefusedError(table=table, range=what.reads, rows=error.rows) from None
    except Exception as error:
        where = selection.where if selection else None
        if where is not None and (match := _VALUE_ERROR.search(str(error))):
            raise invalid_condition(
                table=table, condition=where, reason=match.group().partition(" SQLSTATE")[0].rstrip(".")
            ) from error
        if isinstance(what, Snapshot | KeyRepair):
            raise wrap_error(f"Publishing version {what.version} of {table}", error) from error
        if isinstance(what, ComparisonStart):
            doing, reading = f"Reading version {what.published.version} of {table}", "this version"
        else:
            doing, reading = f"Publishing {what} of {table} ({operations_in(what, commits)})", "these changes"
        helps = f"`mirrorfeed rebuild` reloads the table from a snapshot, without reading {reading}."
        raise wrap_error(doing, error, helps) from error


def operations_in(range_: Range, commits: Sequence[Commit]) -> str:
    """Return the operations in a range as text, such as `2 WRITE, MERGE`, sorted by the first commit of each."""
    inside = range(range_.from_version_exclusive + 1, range_.to_version_inclusive + 1)
    counts = Counter(commit.operation for commit in commits if commit.version in inside)
    return ", ".join(f"{count} {operation}" if count > 1 else operation for operation, count in counts.items())
