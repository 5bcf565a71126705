"""Read what `mirrorfeed init --from` needs to know about the tables of a schema, a catalog or a folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Config, Sources
from mirrorfeed.config.pattern_expansion import Candidate, select_matches
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, row, shown, size
from mirrorfeed.errors import ConfigurationError, MirrorfeedError, problem, wrap_error
from mirrorfeed.orchestration.dry_run import NO_WORKSPACE, list_table
from mirrorfeed.orchestration.scheduler import map_parallel
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.runtime.spark_session import Kind, kind
from mirrorfeed.source.catalog import list_tables, open_workspace, read_catalog_table
from mirrorfeed.source.identifier import URI, Pattern, Source
from mirrorfeed.source.table_info import FEED, local_table_info, open_local_table, read_table_info

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from pyspark.sql import SparkSession

NO_KEYS = "has no known key. Set the columns that identify a row, or [] if rows are only inserted"


@problem(ConfigurationError, "MF1115")
def no_tables_found(*, place: str) -> None:
    """There is no Delta table that matches {place}.

    Check the name and your privileges. `--from` is a schema such as main.sales, a catalog, a folder, or a pattern.
    """


@row
class SurveyedTable(Row):
    """A table that `mirrorfeed init --from` found."""

    source: str = shown("source")
    target: str | None = shown("target", default=None)
    """Proposed target. None if the table cannot be published with a change data feed."""
    feed: str | None = shown("feed", default=None)
    """State of the change data feed: "on" or "off". None if it is unknown."""
    bytes: int | None = shown("size", size, right=True, default=None)
    """Size of the newest version. None if it is unknown."""
    keys: tuple[str, ...] | None = shown("keys", default=None)
    """Key columns. None if a person must choose them."""
    decision: str = shown("to decide", default="")
    """What a person must decide before the table can be published. Empty if nothing."""
    columns: tuple[str, ...] = ()

    @property
    def lacks_only_keys(self) -> bool:
        """True if the table can be published after a person has chosen its key columns."""
        return self.decision == NO_KEYS


def parse_place(text: str) -> Pattern:
    """Return the pattern for a schema such as `main.sales`, a catalog, or a folder of Delta tables.

    A text with `*` is a pattern itself. Raises `ValueError` if `text` is not valid.
    """
    if "*" in text:
        pattern = Pattern.parse(text)
    elif "/" in text or text in (".", "..") or Path(text).is_dir():
        pattern = Pattern.parse(f"{text.rstrip('/')}/*")
    else:
        count = len(Source.parse(text).parts)
        if count > 2:
            raise ValueError(f"{text!r} is a single table: name its schema")
        pattern = Pattern.parse(f"{text}{'.*' * (3 - count)}")
    if pattern.path is None:
        return pattern
    return Pattern(path=pattern.path if URI.match(pattern.path) else str(Path(pattern.path).absolute()))


def survey_tables(
    pattern: Pattern,
    keys: tuple[str, ...] | None,
    spark: Callable[[], SparkSession],
    workspace: Callable[[], WorkspaceClient] = default_workspace,
) -> tuple[SurveyedTable, ...]:
    """Return a row for each table and view that matches a pattern, sorted by name. Changes nothing.

    `keys` are the key columns of the tables that have these columns. The keys of other tables are the primary keys in
    Unity Catalog. Raises `no_tables_found` if nothing matches, and the errors of `list_tables`.
    """
    found = list_tables(pattern, lambda _: True, spark, workspace)
    if not found:
        raise no_tables_found(place=str(pattern))
    target = "{table}" if pattern.path and "*" not in Path(pattern.path).parent.name else "{schema}.{table}"
    entry = Sources(sources=pattern, target=target, keys=keys)
    candidates = select_matches(Config(landing_zone=".", tables=(entry,)), [found]).candidates
    in_catalog = any(each.source.is_in_unity_catalog for each in candidates)
    client = open_workspace(workspace) if in_catalog else None
    session = None if in_catalog or pattern.path else spark()
    columns = {each.source: each.columns or () for each in found}
    progress.info("Reading keys and feeds of %d tables", len(candidates))

    def survey(candidate: Candidate) -> SurveyedTable:
        listed = list_table(client, session, candidate)
        if candidate.table is None:
            return SurveyedTable(listed.source, decision=listed.why)
        error, feed, count = listed.error, None, None
        try:
            feed, count = _read_feed_and_size(client, spark, candidate.source)
        except Exception as caught:
            error = error or wrap_error(f"Reading {listed.source}", caught)
        without_keys = NO_KEYS if listed.keys == () else NO_WORKSPACE
        decision = error.problem if error else "" if listed.keys else without_keys
        return SurveyedTable(
            listed.source, listed.table, feed, count, listed.keys or None, decision, columns[candidate.source]
        )

    return tuple(map_parallel(survey, candidates))


def _read_feed_and_size(
    client: WorkspaceClient | None, spark: Callable[[], SparkSession], source: Source
) -> tuple[str | None, int | None]:
    if client and not _has_databricks_compute():
        properties = read_catalog_table(client, source).properties
        return _state(properties.get(FEED, "").lower() == "true") if properties else None, None
    table = open_local_table(source)
    info = (table and local_table_info(table, source, counted=True)) or read_table_info(spark(), source, counted=True)
    return _state(info.records_changes), info.bytes


def _has_databricks_compute() -> bool:
    """Return whether Spark runs in Databricks, so that it can read the tables of a workspace."""
    with suppress(MirrorfeedError):  # Databricks Connect is installed, but no compute is configured
        return kind() is not Kind.LOCAL
    return False


def _state(is_on: bool) -> str:
    return "on" if is_on else "off"
