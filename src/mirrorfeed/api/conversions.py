"""What came of it, in the values of `mirrorfeed.api.results`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorfeed.api import results
from mirrorfeed.api.results import (
    Publication,
    Repair,
    Result,
)
from mirrorfeed.errors import MirrorfeedError

if TYPE_CHECKING:
    from mirrorfeed.config import Table
    from mirrorfeed.mirror.verify import Comparison
    from mirrorfeed.orchestration.repair import RepairResult
    from mirrorfeed.publish.result import TableResult

_MARKERS = ("insert", "update", "upsert", "delete")


def publications(outcomes: Sequence[TableResult], notes: Sequence[MirrorfeedError]) -> Result[Publication]:
    return Result(tuple(map(_publication, outcomes)), tuple(map(str, notes)))


def _publication(outcome: TableResult) -> Publication:
    from mirrorfeed.cli.output import versions

    progress = outcome.progress
    inserts, updates, upserts, deletes = (progress.rows.get(marker, 0) for marker in _MARKERS)
    return Publication(
        table=outcome.table,
        what=versions(outcome),
        from_version_exclusive=progress.from_version_exclusive,
        to_version_inclusive=progress.to_version_inclusive,
        published_version=progress.published,
        lag_versions=outcome.lag_versions,
        inserts=inserts,
        updates=updates,
        upserts=upserts,
        deletes=deletes,
        files=progress.files,
        bytes=progress.bytes,
        seconds=outcome.seconds,
        tries=outcome.tries,
        reseeded=outcome.reseeded,
        error=outcome.error,
    )


def comparison(table: str, found: Comparison, published: int) -> results.Comparison:
    differences = [results.Difference(each.key, each.column, each.source, each.mirror) for each in found.first]
    return results.Comparison(
        table=table,
        what=str(found),
        equal=found.equal,
        version=found.version,
        published_version=published,
        source_rows=found.source_rows,
        mirror_rows=found.mirror_rows,
        differing=found.differing,
        differences=Result(tuple(differences)),
    )


def not_compared(table: str, published: int | None, error: MirrorfeedError) -> results.Comparison:
    nothing: Result[results.Difference] = Result(())
    return results.Comparison(table, str(error), None, None, published, None, None, None, nothing, error)


def repair(table: Table, found: RepairResult) -> Repair:
    from mirrorfeed.orchestration.repair import words

    rows = found.outcome.progress.rows if found.outcome else {}
    error = (found.outcome.error if found.outcome else None) or found.left
    said = [line.removeprefix(f"{table.target}: ") for line in words(found, str(table.target))]
    published = found.outcome.progress.published if found.outcome else None
    return Repair(str(table.target), " ".join(said), rows.get("upsert", 0), rows.get("delete", 0), published, error)
