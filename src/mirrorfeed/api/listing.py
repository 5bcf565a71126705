"""List the tables of the configuration: whether each is selected and why, its keys, and the changes it accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mirrorfeed.api.results import Result
from mirrorfeed.config.expansion import Expansion
from mirrorfeed.config.expansion import Listed as Decided
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import MirrorfeedError, coded, named
from mirrorfeed.landing import selection
from mirrorfeed.landing.names import table_limit_warning
from mirrorfeed.landing.schema import Column, check_keys, columns_of
from mirrorfeed.orchestration.scheduler import map_parallel
from mirrorfeed.publish.next_publication import with_keys
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source.catalog import Workspace, read_catalog_table
from mirrorfeed.source.table_info import newest_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Table

_NO_WORKSPACE = "the keys are in Unity Catalog, but no workspace is configured here"


@row
class Listed(Row):
    """A table that is configured or matches a pattern, and whether it is published."""

    table: str | None = shown("table")
    """Target. None if the table is not selected."""
    source: str = shown("source")
    included: bool = shown("published")
    keys: tuple[str, ...] | None = shown("keys", default=None)
    """Key columns. None if they are unknown."""
    takes: str | None = shown("takes", default=None)
    """Kinds of changes that can be published, in words."""
    part: str | None = shown("part", default=None)
    """Published part of the source, in short. None if the whole source is published."""
    why: str = shown("why", default="")
    """Entry that selects the table, or the reason why it is not selected."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        return () if self.error is None else (f"{self.source}: {coded(self.error)}",)


def listed(
    expansion: Expansion, spark: SparkSession | None, workspace: Callable[[], Workspace] = default_workspace
) -> Result[Listed]:
    """Return a row for each table, with the keys and columns that can be read without starting Spark.

    These are the keys and columns of tables in Unity Catalog and in local folders and, with a session, of all Delta
    tables.
    """
    in_catalog = any(row.table and row.source.is_in_unity_catalog for row in expansion.listed)
    client = _client(workspace) if in_catalog else None
    progress.info("Reading keys and columns")
    rows = tuple(map_parallel(partial(_row, client, spark), expansion.listed))
    warning = table_limit_warning(len(expansion.config.tables))
    return Result(rows, (warning,) if warning else ())


def _client(workspace: Callable[[], Workspace]) -> Workspace | None:
    try:
        return workspace()
    except ValueError:  # no workspace is configured
        return None


def _row(client: Workspace | None, spark: SparkSession | None, decided: Decided) -> Listed:
    table, source = decided.table, str(decided.source)
    if table is None:
        return Listed(None, source, False, why=decided.why)
    part = table.selection.summary if table.selection else None
    row = Listed(str(table.target), source, True, why=decided.why, part=part)
    if client is None and table.source.is_in_unity_catalog:
        if table.keys is None:
            return replace(row, why=f"{decided.why}; {_NO_WORKSPACE}")
        return replace(row, keys=table.keys, takes=_takes(table.keys))

    def opened() -> Workspace:
        assert client  # called for tables in Unity Catalog only
        return client

    try:
        keys = with_keys(table, opened).target_keys
        _check_columns(client, spark, table, keys)
    except Exception as error:
        return replace(row, error=named(f"Reading the keys and columns of {source}", error))
    return replace(row, keys=keys, takes=_takes(keys))


def _check_columns(client: Workspace | None, spark: SparkSession | None, table: Table, keys: Sequence[str]) -> None:
    """Raise an error if the source is missing, or if its columns cannot be published."""
    name, source = str(table.source), table.source
    if source.is_in_unity_catalog:
        if client and table.keys:  # other keys come from Unity Catalog
            found = read_catalog_table(client, source).columns or ()
            check_keys(name, table.keys, [Column(str(each.name), each.type_text or "") for each in found])
    elif table.changes != "compare" and (schema := newest_schema(source, spark)):
        if table.selection:
            selection.check(name, table.selection, selection.source_types(schema))
        check_keys(name, keys, columns_of(name, selection.selected_schema(name, table.selection, schema)))


def _takes(keys: Sequence[str]) -> str:
    return "inserts, updates, deletes" if keys else "inserts only, because the table has no keys"
