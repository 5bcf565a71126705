"""The next publication of a table: the decision, its keys and columns, and the checks before anything is staged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirrorfeed.config.model import Table
from mirrorfeed.landing.errors import ColumnsDropped
from mirrorfeed.landing.metadata_files import metadata_content
from mirrorfeed.landing.output_format import check_output
from mirrorfeed.landing.record import Record
from mirrorfeed.landing.schema import Column, check_keys, evolve
from mirrorfeed.landing.selection import check as check_names
from mirrorfeed.landing.selection import check_source_columns, target_keys, unselected_columns
from mirrorfeed.publish.errors import KeysRequired, NothingPublished
from mirrorfeed.publish.log import metadata_files
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.log.view import View
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source.catalog import Workspace, check_policies, is_in_unity_catalog, primary_key, read_catalog_table
from mirrorfeed.source.errors import CatalogRefused, CatalogUnavailable, Finding, SourceRecreated
from mirrorfeed.source.next_step import (
    Decision,
    Facts,
    Published,
    PublishRanges,
    Range,
    Repair,
    TakeSnapshot,
    decide,
    recreated,
)
from mirrorfeed.storage import Store

if TYPE_CHECKING:
    from mirrorfeed.publish.sources.change_source import ChangeSource


def with_keys(table: Table, workspace: Callable[[], Workspace] = default_workspace) -> Table:
    """Return the table with its keys. Keys that are not configured are read from Unity Catalog."""
    keys, source = table.keys, str(table.source)
    if is_in_unity_catalog(table.source):
        try:
            found = read_catalog_table(workspace(), table.source)
        except (CatalogRefused, CatalogUnavailable, ValueError):
            if keys is None:
                raise
            # With configured keys, no workspace is needed. Then the engine reports a row filter or a mask.
        else:
            if table.changes != "compare":
                check_policies(table.source, found)
            keys = primary_key(found) if keys is None else keys
    if not target_keys(source, table.selection, keys or ()) and table.changes == "compare":
        raise KeysRequired(table=source)
    return table.model_copy(update={"keys": keys or ()})


def metadata_of(table: Table, columns: Sequence[Column]) -> dict[str, Any]:
    """The content of `_metadata.json`."""
    return metadata_content(table.target_keys, table.output.settings(columns))


def next_columns(
    source: ChangeSource, table: Table, newest: Record | None, facts: Facts, version: int
) -> tuple[Column, ...]:
    """Return the columns of a publication up to a version. Raises if they do not fit the published ones."""
    name, selection, keys = str(table.source), table.selection, table.target_keys
    if selection and (newest is None or newest.selection != selection):
        check_names(name, selection, source.source_columns(facts.latest, facts))
    columns = source.columns(version, facts)
    if newest is not None:
        before = newest.columns
        deselected = deselected_columns(table, newest)
        # A change that breaks the schema is a range of its own. In a comparison, a missing column counts as dropped.
        drops = facts.compared or facts.commits[0].operation == "DROP COLUMNS"
        if newest.source_columns and selection:
            now = source.source_columns(version, facts)
            check_source_columns(name, version, selection, newest.source_columns, now, drops=drops)
        if (drops or deselected) and table.on_dropped_column != "keep":
            there = {column.name for column in columns}
            if gone := [each.name for each in before if not (each.dropped or each.name in there)]:
                raise ColumnsDropped(table=name, version=version, columns=gone)
        may_drop = [column.name for column in before if column.name not in keys] if drops else deselected
        columns = evolve(name, version, before, columns, may_drop=may_drop, fixed=table.output.fixes_columns)
    check_keys(name, keys, [column for column in columns if not column.dropped])
    check_output(name, table.output, columns, keys)
    return columns


def repair_columns(table: Table, newest: Record, version: int) -> tuple[Column, ...]:
    """Return the columns of the newest record, of which deselected ones count as dropped."""
    gone = deselected_columns(table, newest)
    if gone and table.on_dropped_column != "keep":
        raise ColumnsDropped(table=str(table.source), version=version, columns=gone)
    return tuple(replace(each, dropped=each.dropped or each.name in gone) for each in newest.columns)


def deselected_columns(table: Table, newest: Record) -> list[str]:
    """Return published columns that are not selected any more. Raises `SelectionChanged`."""
    return unselected_columns(
        str(table.source), newest.selection, newest.source_columns, newest.columns, table.selection
    )


def decide_next(source: ChangeSource, table: Table, view: View | None) -> tuple[Facts, Decision]:
    """Decide what to publish next. Changes nothing."""
    newest = view.newest if view else None
    published = Published(newest.source_id, newest.to_version_inclusive, newest.partitions) if newest else None
    facts = source.facts(published.version if published else None, table.max_versions_per_publication)
    return facts, decide(str(table.source), published, facts, table.max_versions_per_publication)


def decide_repair(
    source: ChangeSource, table: Table, view: View | None, keys: Any
) -> tuple[Facts, Repair | SourceRecreated]:
    if view is None or view.newest is None:
        raise NothingPublished(table=str(table.target))
    published = Published(view.newest.source_id, view.newest.to_version_inclusive)
    facts = source.facts(published.version, 0)
    gone = recreated(str(table.source), published, facts.table_id, facts.latest)
    return facts, gone or Repair(published.version, keys)


def check_snapshot(source: ChangeSource, table: Table) -> None:
    """Raise if the source cannot be published from the start."""
    facts, decision = decide_next(source, table, None)
    if isinstance(decision, Finding):
        raise decision
    next_columns(source, table, None, facts, facts.latest)
    source.check(facts.latest, facts)


def check_decision(
    source: ChangeSource, store: Store, table: Table, view: View | None, facts: Facts, decision: Decision
) -> None:
    """Raise if it is known beforehand that a decision cannot be carried out. Changes nothing."""
    log = TableLog(store, table.target.folder)
    if view:
        log.check(view)
    else:
        log.check_unclaimed()
    if isinstance(decision, PublishRanges | TakeSnapshot):
        what = decision.ranges[0] if isinstance(decision, PublishRanges) else decision.version
        columns = next_columns(source, table, view.newest if view else None, facts, last_version(what))
        source.check(what, facts)
    elif view is not None and view.newest is not None:
        columns = view.newest.columns
        deselected_columns(table, view.newest)
    else:
        return
    metadata_files.check(store, log.folder, metadata_of(table, columns))


def last_version(what: Range | int | Repair) -> int:
    """The version of the source that is published."""
    return what if isinstance(what, int) else what.to_version_inclusive
