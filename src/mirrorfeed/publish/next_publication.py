"""Decide the next publication of a table, and its keys and columns, before anything is staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mirrorfeed.config.model import Table
from mirrorfeed.landing.errors import ColumnsDroppedError, delivery_changed, keys_changed
from mirrorfeed.landing.log_record import Record, unselected_columns
from mirrorfeed.landing.names import METADATA
from mirrorfeed.landing.output_format import check_output
from mirrorfeed.landing.schema import Column, check_key_names, check_keys, evolve
from mirrorfeed.landing.selection import (
    check_names,
    selected_columns,
    source_types,
    target_keys,
)
from mirrorfeed.publish.errors import RowsRefusedError, keys_required, soft_delete_without_keys
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source.errors import CatalogRefusedError, CatalogUnavailableError
from mirrorfeed.source.snapshot_or_range import (
    DROP,
    ComparisonStart,
    Decision,
    Facts,
    Publication,
    PublishedVersion,
    Snapshot,
    WithinVersion,
    decide,
    renamed_columns,
)
from mirrorfeed.source.table_info import commit_name
from mirrorfeed.storage import Store

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from pyspark.sql import SparkSession

    from mirrorfeed.publish.change_sources import ChangeSource, ComparisonSource


def with_keys(table: Table, workspace: Callable[[], WorkspaceClient] = default_workspace) -> Table:
    """Return a copy of the table with its keys: the configured keys, or the primary key in Unity Catalog, if any.
    Raises an error if the keys cannot be read. With `changes: compare` or `delivery: soft_delete`, raises an error if
    the table has no keys. With another value of `changes`, raises an error if Unity Catalog reports a row filter or a
    column mask, or if a policy may filter or mask rows for this identity and `policies` is `check`."""
    keys, source = table.keys, str(table.source)
    if table.source.is_in_unity_catalog:
        from mirrorfeed.source.catalog import check_access_policies, check_policies, primary_key, read_catalog_table

        try:
            client = workspace()
            catalog_table = read_catalog_table(client, table.source)
        except (CatalogRefusedError, CatalogUnavailableError, ValueError):
            if keys is None:
                raise
            # With configured keys, no workspace is needed. Then the engine reports row filters and column masks.
        else:
            if table.changes != "compare":
                check_policies(table.source, catalog_table)
                if table.policies == "check":
                    check_access_policies(client, table.source, catalog_table)
            keys = primary_key(catalog_table) if keys is None else keys
    if not target_keys(source, table.selection, keys or ()):
        if table.changes == "compare":
            raise keys_required(table=source)
        if table.delivery.marks_deletes:
            raise soft_delete_without_keys(table=source)
    return table.model_copy(update={"keys": keys or ()})


def with_tags(table: Table, spark: SparkSession | Callable[[], SparkSession]) -> Table:
    """Return a copy of the table with the transformations that `transform_tags` selects by the tags of its columns.

    Without `transform_tags`, returns the table, and reads nothing. `spark` is a session, or a function that returns
    it. Raises an error if the columns or their tags cannot be read.
    """
    if not table.transform_tags:
        return table
    from mirrorfeed.publish.column_tags import read_transformations  # imported late: few tables need it

    return read_transformations(table, spark() if callable(spark) else spark)


def next_columns(
    source: ChangeSource, table: Table, newest: Record | None, facts: Facts, version: int
) -> tuple[Column, ...]:
    """Return the columns of the data files for a publication that ends at `version`. Raises an error if the
    columns of the source do not fit the configuration `table`, or do not fit `newest` (the newest log record)."""
    name, selection, keys = str(table.source), table.selection, table.target_keys
    if selection and (newest is None or newest.selection != selection):
        check_names(name, selection, source_types(source.schema(facts.latest, facts)))
    schema = source.schema(version, facts)
    columns = selected_columns(name, selection, schema)
    if newest is not None:
        check_delivery(table, newest)
        before = newest.columns
        deselected = unselected_columns(name, newest, selection)
        # A change that breaks the schema is a separate range.
        drops = facts.commits[0].operation == DROP
        if newest.source_columns and selection:
            from mirrorfeed.landing.selection_changes import check_source_columns  # imported late: few tables need it

            now, compared = source_types(schema), facts.is_comparison
            check_source_columns(name, version, selection, newest.source_columns, now, drops=drops, compared=compared)
        drops = drops or facts.is_comparison  # a missing column counts as dropped
        if (drops or deselected) and table.on_dropped_column != "keep":
            names = {column.name for column in columns}
            if dropped := [each.name for each in before if not (each.dropped or each.name in names)]:
                raise ColumnsDroppedError(table=name, version=version, columns=dropped)
        may_drop = [column.name for column in before if column.name not in keys] if drops else deselected
        first = facts.commits[0]
        renamed = {} if selection or newest.selection else renamed_columns(first.operation, first.parameters)
        fixed = table.output.fixes_columns
        columns = evolve(name, version, before, columns, keys=keys, may_drop=may_drop, fixed=fixed, renamed=renamed)
    if selection:
        check_key_names(name, table.keys or (), source_types(schema))
    check_keys(name, keys, [column for column in columns if not column.dropped])
    if table.delivery.columns:
        from mirrorfeed.landing.delivery_checks import check_column_names  # imported late: few tables need it

        check_column_names(name, table.delivery, columns)
    check_output(name, table.output, (*columns, *table.delivery.columns), keys)
    return columns


class Prepared(NamedTuple):
    """Columns and content of `_metadata.json` for a publication that passed all checks before rows are read."""

    columns: tuple[Column, ...]
    metadata: Mapping[str, Any]
    is_described: bool
    """True if `_metadata.json` exists and has this content."""


def prepare(
    source: ChangeSource,
    log: TableLog,
    table: Table,
    newest: Record | None,
    facts: Facts,
    what: Publication,
) -> Prepared:
    """Check everything about a publication that can be checked before its rows are read. Changes nothing.

    `newest` is the newest log record, or None.
    """
    if isinstance(what, WithinVersion) or (isinstance(what, Snapshot) and what.continues):
        assert newest is not None
        columns = repair_columns(table, newest, what.version)
    else:
        columns = next_columns(source, table, newest, facts, what.to_version_inclusive)
    if isinstance(what, ComparisonStart):
        cast("ComparisonSource", source).check_start(what)
    else:
        source.check(what.reads, facts)
    gets_keys = newest and table.target_keys and not newest.keys and table.validate_keys != "none"
    if newest and gets_keys and (bad := source.bad_keys(newest.to_version_inclusive, table)):
        raise RowsRefusedError(table=str(table.source), range=Snapshot(newest.to_version_inclusive), rows=bad)
    wanted = table.metadata(columns)
    return Prepared(columns, wanted, metadata_files.check(log.store, log.folder, wanted))


def check_delivery(table: Table, newest: Record) -> None:
    """Check that the delivery mode matches the newest record. Raises `delivery_changed` if not."""
    if newest.delivery != table.delivery:
        raise delivery_changed(table=str(table.source), published=str(newest.delivery), wanted=str(table.delivery))


def check_unchanged(log: TableLog, table: Table, newest: Record | None) -> None:
    """Check that delivery mode, keys and selection match the newest record.
    Raises `delivery_changed`, `keys_changed` or `selection_changed` if not."""
    if newest is None:
        return
    check_delivery(table, newest)
    if newest.keys and newest.keys != (wanted := table.target_keys):
        address = log.store.address(f"{log.folder}/{METADATA}")
        raise keys_changed(address=address, published=newest.keys, wanted=wanted)
    unselected_columns(str(table.source), newest, table.selection)


def repair_columns(table: Table, newest: Record, version: int) -> tuple[Column, ...]:
    """Return the columns for a publication at the version of the record `newest`: the columns of this record.
    `version` is only for error messages.

    Columns that are no longer selected have `dropped=True`. If there are any, raises `ColumnsDroppedError` unless the
    table has `on_dropped_column: keep`. Raises `selection_changed` if anything else in the selection differs from
    `newest`.
    """
    deselected = unselected_columns(str(table.source), newest, table.selection)
    if deselected and table.on_dropped_column != "keep":
        raise ColumnsDroppedError(table=str(table.source), version=version, columns=deselected)
    return tuple(replace(each, dropped=each.dropped or each.name in deselected) for each in newest.columns)


def published_version(newest: Record) -> PublishedVersion:
    """Return the source version that the newest record of a log published."""
    return PublishedVersion(
        newest.source_id,
        newest.to_version_inclusive,
        newest.partitions,
        committed=None if newest.committed is None else datetime.fromisoformat(newest.committed),
        is_compared=newest.read is not None,
        load=newest.load,
    )


def decide_next(
    source: ChangeSource, table: Table, view: View | None, facts: Facts | None = None
) -> tuple[Facts, Decision | ComparisonStart]:
    """Return facts about the source, and the decision: a snapshot, ranges of versions, nothing new, or a problem.

    `view` is the table's log, or None if the table has no log. Reads the facts if `facts` is None. A problem is
    returned as a `PublicationBlockedError`, and not raised. Returns a `ComparisonStart` if the table has `changes:
    compare`, but its newest publication is from the change data feed. Raises `first_comparison_impossible` if this
    publication has no keys, or if it is a part of a first load and parts are missing.
    """
    newest = view.newest if view else None
    published = published_version(newest) if newest else None
    if newest and published and table.changes == "compare" and not published.is_compared:
        if published.next_part or not newest.keys:
            from mirrorfeed.publish.change_sources.errors import NO_KEYS, UNFINISHED, first_comparison_impossible

            version, reason = published.version, UNFINISHED if published.next_part else NO_KEYS
            raise first_comparison_impossible(table=str(table.source), published=version, where=version, reason=reason)
        facts = source.facts(None, table.max_versions_per_publication)
        return facts, ComparisonStart(facts.latest, published)
    facts = facts or source.facts(published, table.max_versions_per_publication)
    return facts, decide(str(table.source), published, facts, table.max_versions_per_publication)


def unpublished_since(store: Store, table: Table) -> datetime | None:
    """Return the time of the first unpublished commit of a table's source, or the time of the last publication.

    Finds the commit only if the source is in a local folder. If no commit is found, returns the time of the last
    publication. Returns None if the table was never published, or if its log cannot be read.
    """
    try:
        view = TableLog(store, table.target.folder).read_latest()
    except Exception:  # the run reports the error, and one table must not end it before it starts
        return None
    if view is None or view.newest is None:
        return None
    if table.source.path:
        file = Path(table.source.path) / "_delta_log" / commit_name(view.newest.to_version_inclusive + 1)
        with suppress(OSError):  # there is no such commit, or its file was deleted
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=file.stat().st_mtime_ns // 1_000_000)
    return view.newest.at
