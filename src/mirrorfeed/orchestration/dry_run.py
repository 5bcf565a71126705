"""List the selected tables (`mirrorfeed tables`) and their next steps (`mirrorfeed publish --dry-run`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from mirrorfeed.config.pattern_expansion import Candidate, Expansion
from mirrorfeed.display.progress import ProgressCounter, progress
from mirrorfeed.display.row_limit import MANY
from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.errors import MirrorfeedError, with_code, wrap_error
from mirrorfeed.landing import selection
from mirrorfeed.landing.names import table_limit_warning
from mirrorfeed.landing.schema import Column, check_key_names, check_keys
from mirrorfeed.orchestration.orphaned_targets import orphans_problem
from mirrorfeed.orchestration.scheduler import map_parallel
from mirrorfeed.publish.next_publication import with_keys, with_tags
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source.catalog import open_workspace, read_catalog_table
from mirrorfeed.source.snapshot_or_range import BLOCKED, Facts, NothingNew, PublishRanges, Snapshot
from mirrorfeed.source.table_info import newest_schema

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.orchestration.run_context import RunContext
    from mirrorfeed.publish.change_sources import ChangeSource


_KINDS = {NothingNew: "nothing new", Snapshot: "first load", PublishRanges: "new versions"}
NO_WORKSPACE = "the keys are in Unity Catalog, but no workspace is configured here"


@row
class Listed(Row):
    """A table that is in the configuration or matches a pattern in it. `selected` is True if runs publish the table."""

    table: str | None = shown("table")
    """Target. None if the table is not selected."""
    source: str = shown("source")
    selected: bool = shown("selected")
    keys: tuple[str, ...] | None = shown("keys", default=None)
    """Key columns. None if they are unknown."""
    takes: str | None = shown("takes", default=None)
    """Changes that can be published, such as "inserts, updates, deletes". None if the keys are unknown."""
    part: str | None = shown("part", default=None)
    """Configured filter, columns, new names and casts in words. None if the whole source is published."""
    delivery: str | None = shown("delivery", default=None)
    """Delivery mode and the columns that it adds. None if the mirror equals the source (`upsert`)."""
    why: str = shown("why", default="")
    """Configuration entry that selects the table, or the reason why it is not selected."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        return () if self.error is None else (f"{self.table or self.source}: {with_code(self.error)}",)


@row
class Decision(Row):
    """Next step for a table, as shown by a dry run."""

    table: str = shown("table")
    next: str = shown("next")
    """Next step in words, such as "snapshot at version 3", or `blocked` if publishing would fail."""
    error: MirrorfeedError | None = None
    """Error that would stop the next run or, if none is found, the error that stopped the last run."""
    delivery: str | None = shown("delivery", default=None)
    """Delivery mode and the columns that it adds. None if the mirror equals the source (`upsert`)."""
    kind: str = field(default="", repr=False)
    """Kind of the next step, to count tables. Empty if the table needs attention."""

    @property
    def QUIET(self) -> str:  # type: ignore[override]
        return self.kind and f"{{tables}}: {self.kind}."


def list_configured_tables(
    expansion: Expansion, spark: SparkSession | None, workspace: Callable[[], WorkspaceClient] = default_workspace
) -> tuple[tuple[Listed, ...], tuple[str, ...]]:
    """Return a row for each table in `expansion.candidates`, and notes about orphaned tables and about many tables.

    If the keys or columns of a table cannot be read or published, the row of the table has the error. If `spark` is
    None, the columns are checked only for sources in Unity Catalog and in local folders.
    """
    in_catalog = any(row.table and row.source.is_in_unity_catalog for row in expansion.candidates)
    client = open_workspace(workspace) if in_catalog else None
    progress.info("Reading keys and columns")
    rows = tuple(map_parallel(partial(list_table, client, spark), expansion.candidates))
    orphans, warning = orphans_problem(expansion.config), table_limit_warning(len(expansion.config.tables))
    return rows, (*([with_code(orphans)] if orphans else []), *([warning] if warning else []))


def list_table(client: WorkspaceClient | None, spark: SparkSession | None, candidate: Candidate) -> Listed:
    """Return the row of one candidate. `client` is None if no workspace is configured."""
    table, source = candidate.table, str(candidate.source)
    if table is None:
        return Listed(None, source, False, why=candidate.why)
    part = table.selection.summary if table.selection else None
    delivery = table.delivery.other_mode
    row = Listed(str(table.target), source, True, why=candidate.why, part=part, delivery=delivery)
    if client is None and table.source.is_in_unity_catalog:
        if table.keys is None:
            return replace(row, why=f"{candidate.why}; {NO_WORKSPACE}")
        return replace(row, keys=table.keys, takes=_takes(table, table.keys))

    try:
        if spark and table.transform_tags:
            table = with_tags(table, spark)
            row = replace(row, part=table.selection.summary if table.selection else None)
        keys = with_keys(table, lambda: cast("WorkspaceClient", client)).target_keys
        _check_columns(client, spark, table, keys)
    except Exception as error:
        return replace(row, error=wrap_error(f"Reading the keys and columns of {source}", error))
    return replace(row, keys=keys, takes=_takes(table, keys))


def _check_columns(
    client: WorkspaceClient | None, spark: SparkSession | None, table: Table, keys: Sequence[str]
) -> None:
    """Raise an error if the source does not exist, or if its columns cannot be published."""
    name, source = str(table.source), table.source
    if source.is_in_unity_catalog:
        if client and table.keys:  # other keys come from Unity Catalog
            columns = read_catalog_table(client, source).columns or ()
            check_keys(name, table.keys, [Column(str(each.name), each.type_text or "") for each in columns])
    elif table.changes != "compare" and (schema := newest_schema(source, spark)):
        if table.selection:
            types = selection.source_types(schema)
            selection.check_names(name, table.selection, types)
            check_key_names(name, table.keys or (), types)
        check_keys(name, keys, selection.selected_columns(name, table.selection, schema))


def _takes(table: Table, keys: Sequence[str]) -> str:
    takes_all = keys or table.delivery.appends
    return "inserts, updates, deletes" if takes_all else "inserts only, because the table has no keys"


def plan_next_steps(
    spark: SparkSession | Callable[..., SparkSession], config: Config, names: Sequence[str] = ()
) -> list[Decision]:
    """Return the next step of all tables or only of `names`, in the order of the configuration. Changes nothing.

    If publishing would fail, the step is `blocked`, with the error. Raises an error if the landing zone cannot be
    reached. `spark` is a session, or a function that starts a session. The function is called if tables need
    Spark: without arguments if one of these tables is published by comparing all rows (`changes: compare`), otherwise
    with the sources of these tables.
    """
    from mirrorfeed.orchestration.publish_run import delta_sources
    from mirrorfeed.orchestration.run_context import RunContext

    context, tables = RunContext(spark, config), config.select(names)
    progress.info("Reading what is published")
    _ = context.zone  # an error here affects all tables
    steps, counter = dict[str, Decision](), ProgressCounter("Decided", len(tables))

    def add(found: Sequence[Decision | None]) -> None:
        steps.update({step.table: step for step in found if step})
        counter.show(len(steps))

    map_parallel(partial(known_step, context), tables, add)
    if left := [table for table in tables if str(table.target) not in steps]:
        if callable(spark):
            context.spark = spark(*delta_sources(left))
        map_parallel(partial(_next_step, context), left, add)
    return [steps[str(table.target)] for table in tables]


def summarize(steps: Sequence[Decision]) -> str:
    """Return the number of tables for each kind of next step, if there are many tables. Otherwise return no text."""
    if len(steps) <= MANY:
        return ""
    counts = Counter("blocked" if not each.ok else each.kind or "other" for each in steps)
    return f"{counted(len(steps), 'table')}: {', '.join(f'{count:,} {kind}' for kind, count in counts.most_common())}."


def note_variables(config: Config) -> tuple[str, ...]:
    """Return a note about the variables of the configuration. Empty if it uses none."""
    variables = ", ".join(map(str, config.variables))
    return (f"Variables of {config.path}: {variables}.",) if variables else ()


def known_step(context: RunContext, table: Table) -> Decision | None:
    """Return what the next run would do for a table, without Spark. None if the answer needs a Spark query."""
    from mirrorfeed.orchestration.next_step import find_certain_stop  # imports Spark
    from mirrorfeed.publish.change_sources import NO_SPARK, needs_no_spark

    if pause := table.pause_at(datetime.now(UTC)):
        return _decision(table, str(pause))
    if not needs_no_spark(table):
        return None
    try:
        return _decide(context, table, NO_SPARK)
    except Exception as error:  # if Spark may decide otherwise, `_next_step` reports the error
        stop = find_certain_stop(table, error)
        return _decision(table, BLOCKED, stop) if stop else None


def _next_step(context: RunContext, table: Table) -> Decision:
    try:
        return _decide(context, table, context.session)
    except Exception as error:
        return _decision(table, BLOCKED, wrap_error(f"Deciding the next step of {table.target}", error))


def _decision(table: Table, step: str, error: MirrorfeedError | None = None, kind: str = "") -> Decision:
    return Decision(str(table.target), step, error, table.delivery.other_mode, kind)


def _decide(context: RunContext, table: Table, spark: SparkSession) -> Decision:
    from mirrorfeed.orchestration.next_step import find_next_step  # imports Spark, which `mirrorfeed tables` may lack
    from mirrorfeed.publish.change_sources import source_for
    from mirrorfeed.publish.change_sources.local_feed import LocalFeed

    table = with_keys(with_tags(table, lambda: context.session), lambda: context.client)
    log = TableLog(context.zone, table.target.folder)
    view = log.read_view()
    source = source_for(spark, context.config, table)
    if spark is None:
        source = LocalFeed(spark, table.source, selection=table.selection)
    step = find_next_step(source, log, table, view)
    is_new = isinstance(step.decision, Snapshot) and not step.decision.continues
    keys = _key_note(source, table, step.facts) if is_new else ""
    after = f", after renaming {len(view.unfinished)} recorded files" if view and view.unfinished else ""
    error = step.error
    if not (error or isinstance(step.decision, NothingNew)):
        error = context.failures.read(table.target, view.newest.complete_version if view and view.newest else None)
    kind = "" if step.cause or after else _KINDS.get(type(step.decision), "")
    return _decision(table, f"{step.text}{keys}{after}", error, kind)


def _key_note(source: ChangeSource, table: Table, facts: Facts) -> str:
    """Check the keys of a first load, and return what `publish --dry-run` adds about them."""
    from mirrorfeed.orchestration.next_step import check_source_keys  # imports Spark

    if not table.target_keys:
        return f", {_takes(table, ())}"
    is_checked = check_source_keys(source, table, facts)
    return "" if is_checked else ", whose keys are checked when it is published"
