"""What came of it, in the values of `mirrorfeed.api.results`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorfeed.api import results
from mirrorfeed.api.results import (
    Finding,
    History,
    Kept,
    Mirrored,
    Publication,
    Record,
    Repair,
    Result,
    Setting,
    Status,
)
from mirrorfeed.errors import MirrorfeedError

if TYPE_CHECKING:
    from mirrorfeed.config import Table
    from mirrorfeed.fabric import MirroredDatabase, TableSync
    from mirrorfeed.fabric.definition import Difference
    from mirrorfeed.keep import fleet as keeping
    from mirrorfeed.landing import log
    from mirrorfeed.monitor import findings
    from mirrorfeed.monitor import status as asking
    from mirrorfeed.publish.examine import Examined
    from mirrorfeed.publish.outcome import Outcome
    from mirrorfeed.repair import Repaired
    from mirrorfeed.verify import Comparison

_MARKERS = ("insert", "update", "upsert", "delete")


def publications(outcomes: Sequence[Outcome], notes: Sequence[MirrorfeedError]) -> Result[Publication]:
    return Result(tuple(map(_publication, outcomes)), tuple(map(str, notes)))


def _publication(outcome: Outcome) -> Publication:
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


def status(found: asking.Status) -> Status:
    return Status(
        table=found.table,
        source=found.source,
        feed=found.feed,
        published_version=found.published_version,
        newest_version=found.newest_version,
        lag_versions=found.lag_versions,
        lag_seconds=found.lag_seconds,
        not_renamed=found.not_renamed,
        not_consumed=found.not_consumed,
        error=found.error,
        paused=found.paused,
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


def records(table: str, found: Examined | None) -> Result[Record]:
    if found is None:
        return Result((), summary=f"{table} has no log: nothing of it is published.")
    newest, *older = found.records or (None,)
    wrong = [] if found.follows_on else ["The record that the newest one follows is not there."]
    wrong += [f"{place.address}: {place.found}" for place in found.places if place.found and not place.is_the_file]
    rows = [_record(table, newest, " ".join(wrong) or None)] if newest else []
    files = [f"{place.address}: {place.found}" for place in found.places if place.is_the_file]
    return Result((*rows, *(_record(table, each) for each in older if each)), (f"In {found.log}.", *files))


def _record(table: str, record: log.Record, wrong: str | None = None) -> Record:
    from mirrorfeed.publish.examine import published

    inserts, updates, upserts, deletes = (sum(file.rows.get(marker, 0) for file in record.files) for marker in _MARKERS)
    return Record(
        table=table,
        record=record.number,
        time=record.time,
        what=published(record),
        from_version_exclusive=record.from_version_exclusive,
        to_version_inclusive=record.to_version_inclusive,
        inserts=inserts,
        updates=updates,
        upserts=upserts,
        deletes=deletes,
        files=len(record.files),
        bytes=sum(file.bytes for file in record.files),
        build=record.build,
        error=wrong,
    )


def finding(found: findings.Finding) -> Finding:
    return Finding(found.code.value, found.weight.value, found.table, found.what, found.remedy)


def repair(table: Table, found: Repaired) -> Repair:
    from mirrorfeed.repair import words

    rows = found.outcome.progress.rows if found.outcome else {}
    error = (found.outcome.error if found.outcome else None) or found.left
    said = [line.removeprefix(f"{table.target}: ") for line in words(found, str(table.target))]
    published = found.outcome.progress.published if found.outcome else None
    return Repair(str(table.target), " ".join(said), rows.get("upsert", 0), rows.get("delete", 0), published, error)


def kept(outcome: keeping.Outcome) -> Kept:
    from mirrorfeed.keep.fleet import words

    said = [line.removeprefix(f"{outcome.table}: ") for line in words(outcome)]
    rows = sum(record.rows for record in outcome.kept.made)
    return Kept(outcome.table, "; ".join(said), rows, outcome.kept.version, outcome.error)


def history(found: keeping.Status) -> History:
    return History(
        table=found.table,
        history=found.history,
        kept=found.kept,
        since=found.since,
        newest_version=found.newest_version,
        lag_versions=found.lag_versions,
        rows=found.rows,
        error=found.error,
    )


def mirrored(database: MirroredDatabase) -> Result[Mirrored]:
    """The tables of a mirrored database, and its own status."""
    rows = tuple(
        Mirrored(f"{each.schema}.{each.table}", each.status, each.rows, each.synced, each.error or _failed(each.status))
        for each in database.tables()
    )
    return Result(rows, (f"The mirrored database is {database.status()}.",), "" if rows else "No table is there.")


def _failed(status: str) -> str | None:
    return "Fabric does not say why." if status == "Failed" else None


def synced(found: Sequence[TableSync]) -> Result[Mirrored]:
    rows = tuple(
        Mirrored(each.name, each.status, None, each.synced, each.error or (each.status if each.failed else None))
        for each in found
    )
    return Result(rows, summary="" if rows else "No table is there.")


def settings(found: Sequence[Difference], nothing: str) -> Result[Setting]:
    rows = tuple(Setting(each.field, each.there, each.wanted, each.changes, each.note) for each in found)
    return Result(rows, summary="" if rows else nothing)
