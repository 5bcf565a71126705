"""How a table is published: its options, its keys, and the columns of the next publication."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirrorfeed.config import Table
from mirrorfeed.landing.errors import ColumnsDropped
from mirrorfeed.landing.metadata_files import metadata_content
from mirrorfeed.landing.output_format import AS_PARQUET, COMPRESSION, Output, check_output
from mirrorfeed.landing.record import Record
from mirrorfeed.landing.schema import Column, check_keys, evolve
from mirrorfeed.landing.selection import Selection, check_source_columns, target_keys, unselected_columns
from mirrorfeed.landing.selection import check as check_names
from mirrorfeed.publish.errors import KeysRequired
from mirrorfeed.publish.sources.base import COMPARISON, ChangeSource
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.source.catalog import Workspace, check_policies, is_in_unity_catalog, primary_key, read_catalog_table
from mirrorfeed.source.errors import CatalogRefused, CatalogUnavailable
from mirrorfeed.source.ranges import Facts

_DROPS = ("DROP COLUMNS", COMPARISON)
"""After these operations, a missing column was dropped and not renamed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a table, with resolved keys. `source` and `target` are for records and messages."""

    source: str
    target: str
    folder: str
    keys: tuple[str, ...]
    """Names in the target."""
    changes: str = "net"
    row_markers: str = "upsert"
    validate_keys: str = "source"
    output: Output = AS_PARQUET
    compression: str = COMPRESSION
    target_file_size: int = 128 * 2**20
    max_versions_per_publication: int = 500
    log_retention_records: int = 10
    keep_dropped: bool = True
    """Whether dropped columns are still published, as NULL."""
    selection: Selection | None = None

    def metadata(self, columns: Sequence[Column]) -> dict[str, Any]:
        """The content of `_metadata.json`."""
        return metadata_content(self.keys, self.output.settings(columns))


def plan_of(table: Table, workspace: Callable[[], Workspace] = default_workspace) -> Plan:
    """Return the plan of a configured table. Keys that are not configured are read from Unity Catalog."""
    keys = table.keys
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
    keys, compares = target_keys(str(table.source), table.selection, keys or ()), table.changes == "compare"
    if compares and not keys:
        raise KeysRequired(table=str(table.source))
    return Plan(
        source=str(table.source),
        target=str(table.target),
        folder=table.target.folder,
        keys=keys,
        changes=table.changes,
        row_markers=table.row_markers,
        output=table.output,
        validate_keys=table.validate_keys,
        compression=table.compression,
        target_file_size=table.target_file_size,
        max_versions_per_publication=sys.maxsize
        if compares
        else table.max_versions_per_publication,  # states are not read one by one
        log_retention_records=table.log_retention_records,
        keep_dropped=table.on_dropped_column == "keep",
        selection=table.selection,
    )


def next_columns(
    source: ChangeSource, plan: Plan, newest: Record | None, facts: Facts, version: int
) -> tuple[Column, ...]:
    """Return the columns of a publication up to a version. Raises if they do not fit the published ones."""
    selection = plan.selection
    if selection and (newest is None or newest.selection != selection):
        check_names(plan.source, selection, source.source_columns(facts.latest, facts))
    columns = source.columns(version, facts)
    if newest is not None:
        before = newest.columns
        deselected = deselected_columns(plan.source, newest, selection)
        # A change that breaks the schema is a range of its own.
        drops = facts.commits[0].operation in _DROPS
        if newest.source_columns and selection:
            now = source.source_columns(version, facts)
            check_source_columns(plan.source, version, selection, newest.source_columns, now, drops=drops)
        if (drops or deselected) and not plan.keep_dropped:
            there = {column.name for column in columns}
            if gone := [each.name for each in before if not (each.dropped or each.name in there)]:
                raise ColumnsDropped(table=plan.source, version=version, columns=gone)
        may_drop = [column.name for column in before if column.name not in plan.keys] if drops else deselected
        columns = evolve(plan.source, version, before, columns, may_drop=may_drop, fixed=plan.output.fixes_columns)
    check_keys(plan.source, plan.keys, [column for column in columns if not column.dropped])
    check_output(plan.source, plan.output, columns, plan.keys)
    return columns


def repair_columns(plan: Plan, newest: Record, version: int) -> tuple[Column, ...]:
    """Return the columns of the newest record, of which deselected ones count as dropped."""
    gone = deselected_columns(plan.source, newest, plan.selection)
    if gone and not plan.keep_dropped:
        raise ColumnsDropped(table=plan.source, version=version, columns=gone)
    return tuple(replace(each, dropped=each.dropped or each.name in gone) for each in newest.columns)


def deselected_columns(table: str, newest: Record, selection: Selection | None) -> list[str]:
    """Return published columns that are not selected any more. Raises `SelectionChanged`."""
    return unselected_columns(table, newest.selection, newest.source_columns, newest.columns, selection)
