"""Find the next step of a run for a table, and the error that would stop the run, without changing anything.

`publish --dry-run`, `status`, `doctor` and `check-alerts` use the result. A run makes the same decisions and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, TerminalError
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.schema import Column, Problem
from mirrorfeed.landing.selection import source_types
from mirrorfeed.orchestration.retry_policy import needs_reload
from mirrorfeed.publish.change_sources import NO_SPARK, ChangeSource
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files.staging_job import BadRow
from mirrorfeed.publish.next_publication import (
    check_unchanged,
    decide_next,
    next_columns,
    prepare,
)
from mirrorfeed.publish.publication_errors import publication_errors
from mirrorfeed.publish.rebuild_hint import rebuild_hint
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.source.errors import FeedGapError, PublicationBlockedError, SourceRecreatedError
from mirrorfeed.source.snapshot_or_range import (
    BLOCKED,
    DROP,
    Commit,
    ComparisonStart,
    Decision,
    Facts,
    NothingNew,
    Publication,
    PublishRanges,
    Range,
    Snapshot,
)
from mirrorfeed.source.table_info import CHANGES_NO_ROWS, find_log_damage
from mirrorfeed.source.versions import SPARK_REQUIRED
from mirrorfeed.storage.local_folder import check_writable

_REMOVES_NO_ROWS = frozenset({*CHANGES_NO_ROWS, DROP, "COPY INTO", "ADD COLUMNS", "CHANGE COLUMN", "RENAME COLUMN"})
_MERGE_CHANGES = "matchedPredicates", "notMatchedBySourcePredicates"
"""Parameters with the clauses of a MERGE that update or delete rows. `[]` means that there are none."""
LARGEST_CHECKED = 64 * 2**20
"""Maximum size in bytes of sources whose keys and texts are checked, because the checks read all rows."""


@dataclass(frozen=True, slots=True)
class NextStep:
    text: str
    """Next step in words, such as "versions 4 to 7"."""
    facts: Facts
    decision: Decision | ComparisonStart
    error: MirrorfeedError | None = None
    """Error that would stop the run after it published something. None if no such error was found."""
    cause: MirrorfeedError | None = None
    """Error because of which the run reloads the table, or does not read all changes from the change data feed."""


def find_next_step(
    source: ChangeSource, log: TableLog, table: Table, view: View | None, known: Callable[[], Facts] | None = None
) -> NextStep:
    """Return what the next run would do for a table. Raises the error if the run would publish nothing.

    Reads no rows of the source, except to find updates and deletes in a table without keys. `table` is a result of
    `with_keys`. `view` is the state of the table's log. `known` returns the facts about the source, or is None to read
    all facts.
    """
    try:
        return _bridged_step(source, log, table, view, known)
    except MirrorfeedError as error:
        if _needs_spark(source) or not needs_reload(table, error):
            raise
        facts = check_snapshot(source, table)
        text = f"reload from a snapshot at version {facts.latest}. {error.problem}"
        return NextStep(text, facts, Snapshot(facts.latest), cause=error)


def check_source_keys(source: ChangeSource, table: Table, facts: Facts) -> bool:
    """Raise `RowsRefusedError` if keys of the source are NULL or not unique. Runs a query that reads the keys of all
    rows.

    Returns False, without the query, if the source is larger than `LARGEST_CHECKED`. Raises `ValueError` without Spark.
    """
    if (facts.bytes or 0) > LARGEST_CHECKED:
        return False
    if table.keys and table.validate_keys != "none" and table.changes != "compare":
        if _needs_spark(source):
            raise ValueError(SPARK_REQUIRED)
        with publication_errors(str(table.source), Snapshot(facts.latest), facts.commits, table.selection):
            bad = source.bad_keys(facts.latest, table)
        if bad:
            raise RowsRefusedError(table=str(table.source), range=Snapshot(facts.latest), rows=bad)
    return True


def find_certain_stop(table: Table, error: Exception) -> MirrorfeedError | None:
    """Return the error with which the next run certainly stops, although the table was read without Spark.

    `error` occurred in `find_next_step` with `NO_SPARK`. Returns None if only Spark can decide.
    """
    if damage := find_log_damage(table.source):
        return damage
    if not isinstance(error, TerminalError) or needs_reload(table, error):
        return None
    if isinstance(error, FeedGapError) and (table.history or table.on_gap == "compare"):
        return None
    if isinstance(error, SourceRecreatedError) and table.on_replace == "compare":
        return None
    return error


def _bridged_step(
    source: ChangeSource, log: TableLog, table: Table, view: View | None, known: Callable[[], Facts] | None
) -> NextStep:
    try:
        return _step(source, log, table, view, known)
    except (FeedGapError, SourceRecreatedError) as finding:
        from mirrorfeed.publish.change_sources.feed_gap import bridge_gap  # imported late: few feeds have a gap

        if _needs_spark(source) or (bridge := bridge_gap(source, table, finding)) is None:
            raise
        return replace(_step(bridge, log, table, view, None, ", from its history"), cause=finding)


def _step(
    source: ChangeSource,
    log: TableLog,
    table: Table,
    view: View | None,
    known: Callable[[], Facts] | None,
    origin: str = "",
) -> NextStep:
    facts, decision = decide_next(source, table, view, known and known())
    stop = check_next(source, log, table, view, facts, decision)
    compares = facts.is_comparison and not isinstance(decision, ComparisonStart)
    text = f"{decision}{', by comparison' if compares else origin}{_note(decision, table, facts, view)}"
    if stop is None:
        return NextStep(text, facts, decision)
    published, error = ", then ".join(map(str, stop.before)), stop.error
    if needs_reload(table, error):
        return NextStep(
            f"{published}{origin}, then a reload from a snapshot. {error.problem}", facts, decision, cause=error
        )
    return NextStep(f"{published}{origin}, then {BLOCKED}", facts, decision, error)


def _note(decision: Decision | ComparisonStart, table: Table, facts: Facts, view: View | None) -> str:
    """Return what to add to the text of a first load that has several parts, of one of its parts, or of ranges that
    change much of a large table."""
    if isinstance(decision, PublishRanges) and (hint := rebuild_hint(table, facts, decision)):
        return f". {hint}"
    if not isinstance(decision, Snapshot):
        return ""
    if view and view.newest and (done := view.newest.progress):
        return f", after {done.in_words}"
    parts = -(-(facts.bytes or 0) // table.load_part_size)
    return f", in up to {parts:,} parts" if parts > 1 else ""


def _needs_spark(source: ChangeSource) -> bool:
    """Return whether `source` was opened without Spark."""
    return getattr(source, "spark", None) is NO_SPARK


class LaterStop(NamedTuple):
    """Error that would stop a run after it published the ranges `before`."""

    before: Sequence[Range]
    error: MirrorfeedError


def check_next(
    source: ChangeSource,
    log: TableLog,
    table: Table,
    view: View | None,
    facts: Facts,
    decision: Decision | ComparisonStart,
) -> LaterStop | None:
    """Raise the error with which a run would stop that publishes `decision`, the next step of a table.

    If the run would stop after its first publication, the error is returned, and not raised. Makes the checks that a
    run makes before it reads rows. Reads rows only to find updates and deletes in a table without keys. So it does not
    find every error. Changes nothing.
    """
    newest = view.newest if view else None
    if view:
        log.check(view)
    else:
        log.check_unclaimed()
    if isinstance(decision, PublicationBlockedError):
        raise decision
    if isinstance(decision, NothingNew):
        check_unchanged(log, table, newest)
        if newest:
            metadata_files.check(log.store, log.folder, table.metadata(newest.columns))
        return None
    check_writable(log.store, log.folder)
    what: Publication = decision.first if isinstance(decision, PublishRanges) else decision
    columns = prepare(source, log, table, newest, facts, what).columns
    if not isinstance(decision, PublishRanges) or newest is None:
        return None
    stop = _later_schema_stop(source, log, table, newest, facts, decision.ranges, columns)
    if not (table.target_keys or table.delivery.appends) and isinstance(source, DeltaFeed):
        for at, range_ in enumerate(stop.before if stop else decision.ranges):
            if refused := _find_removed_rows(source, table, facts, range_):
                if at == 0:
                    raise refused
                return LaterStop(decision.ranges[:at], refused)
    return stop


def _later_schema_stop(
    source: ChangeSource,
    log: TableLog,
    table: Table,
    newest: Record,
    facts: Facts,
    ranges: Sequence[Range],
    columns: tuple[Column, ...],
) -> LaterStop | None:
    """Return the error at which a run would stop because of the schema of a range after the first.
    `columns` are the columns of the first range."""
    for before, range_ in pairwise(ranges):
        # Without a change of the schema, a range has the columns of the range before it.
        if not {before.to_version_inclusive, range_.to_version_inclusive}.isdisjoint(facts.breaks):
            types = source_types(source.schema(before.to_version_inclusive, facts)) if table.selection else None
            newest = replace(newest, columns=columns, selection=table.selection, source_columns=types)
            commits = tuple(each for each in facts.commits if each.version > range_.from_version_exclusive)
            try:
                columns = prepare(source, log, table, newest, replace(facts, commits=commits), range_).columns
            except MirrorfeedError as error:
                return LaterStop(ranges[: ranges.index(range_)], error)
    return None


def _find_removed_rows(source: DeltaFeed, table: Table, facts: Facts, range_: Range) -> MirrorfeedError | None:
    """Return the error with which a run would refuse the updates and deletes of a range in a table without keys.

    Reads the change data feed only if a commit of the range may have such changes. Returns None if there are none.
    """
    inside = range(range_.from_version_exclusive + 1, range_.to_version_inclusive + 1)
    if all(inserts_only(commit) for commit in facts.commits if commit.version in inside):
        return None
    if _needs_spark(source):
        raise ValueError(SPARK_REQUIRED)
    name = str(table.source)
    try:
        with publication_errors(name, range_, facts.commits, table.selection):
            found = source.removes_rows(range_, facts)
    except MirrorfeedError as error:
        return error
    return RowsRefusedError(table=name, range=range_, rows=[BadRow(Problem.CHANGE_WITHOUT_KEY, "")]) if found else None


def inserts_only(commit: Commit) -> bool:
    """Return whether a commit certainly updates and deletes no row, because of its operation and parameters."""
    match commit.operation:
        case "WRITE":
            return commit.parameters.get("mode") == "Append"
        case "STREAMING UPDATE":
            return commit.parameters.get("outputMode") == "Append"
        case "MERGE":
            return all(commit.parameters.get(name) == "[]" for name in _MERGE_CHANGES)
    return commit.operation in _REMOVES_NO_ROWS


def check_snapshot(source: ChangeSource, table: Table) -> Facts:
    """Raise an error if no snapshot of the source can be published. Reads no rows. Returns facts about the source."""
    facts, decision = decide_next(source, table, None)
    if isinstance(decision, PublicationBlockedError):
        raise decision
    next_columns(source, table, None, facts, facts.latest)
    source.check(Snapshot(facts.latest), facts)
    return facts
