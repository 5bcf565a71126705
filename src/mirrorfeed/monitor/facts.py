"""Gathers the facts about a table, from where `publish --dry-run`, `status` and Fabric have them; and carries out what
is safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.fabric import TableState, database_of
from mirrorfeed.feed import history
from mirrorfeed.feed.detail import detail_of
from mirrorfeed.feed.errors import Finding
from mirrorfeed.feed.keys import Workspace
from mirrorfeed.feed.ranges import Facts
from mirrorfeed.feed.retention import FILES, LOG, seconds_of
from mirrorfeed.feed.source import Source
from mirrorfeed.landing.log import Record
from mirrorfeed.landing.names import LOG as LOGS
from mirrorfeed.landing.names import LOG_ID, data_number, is_log_id
from mirrorfeed.monitor.rules import TableFacts, ZoneFacts
from mirrorfeed.monitor.text_lengths import CHEAP, longest_text
from mirrorfeed.publish.commit import TableLog
from mirrorfeed.publish.errors import LastFileGone
from mirrorfeed.publish.kept import feed_for
from mirrorfeed.publish.plan import plan_of
from mirrorfeed.publish.table import look_ahead, preflight
from mirrorfeed.publish.view import View
from mirrorfeed.stores import Store
from mirrorfeed.workspace import default_workspace


def look_at_table(
    spark: SparkSession,
    config: Config,
    store: Store,
    table: Table,
    states: Sequence[TableState] | None = None,
    *,
    workspace: Callable[[], Workspace] = default_workspace,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> TableFacts:
    """`states` are what Fabric says about its tables, where it could be asked."""
    facts = dict[str, object](table=str(table.target), source=table.source.sql, source_name=str(table.source))
    trouble: MirrorfeedError | None = None
    view: View | None = None
    log = TableLog(store, table.target.folder)
    try:
        facts |= of_folder(store, table.target.folder, now())
        view = log.look()
        facts |= of_log(view, store, table.target.folder)
    except Exception as error:
        trouble = named(f"Looking at the landing zone of {table.target}", error)
    try:
        plan, feed = plan_of(table, workspace), feed_for(spark, config, table)
        ahead, decision = look_ahead(feed, plan, view)
        if table.changes != "compare":  # of which nothing is known but its rows
            facts |= _of_time(spark, table.source, ahead, list(log.records(view)) if view else [], now())
        if isinstance(decision, Finding):
            raise decision
        if trouble is None:
            preflight(feed, store, plan, view, ahead, decision)
    except Exception as error:
        trouble = trouble or named(f"Looking at {table.target}", error)
    with suppress(Exception):  # what cannot be read was found above
        facts["longest_text"] = _longest_text(spark, table)
    facts |= of_service(table, states)
    return TableFacts(**facts, trouble=trouble)  # type: ignore[arg-type]


def look_at_zone(config: Config, store: Store) -> tuple[ZoneFacts, Sequence[TableState] | None]:
    """What Fabric says of the mirrored database and its tables; nothing where the landing zone is not in Fabric."""
    if config.onelake is None:
        return ZoneFacts(), None
    try:
        database = database_of(config)
        status, states = database.status(), database.tables()
        published = sum(any(data_number(each.name, None) for each in store.list(table.target.folder))
                        for table in config.tables)  # fmt: skip
    except Exception as error:
        return ZoneFacts(trouble=named("Asking Fabric", error)), None
    return ZoneFacts(status, None, {each.table: each.status for each in states}, published), states


def mend(store: Store, table: Table) -> None:
    """Renames what is left of the newest record, and removes what can never be published: with that every run begins.
    Or what stands in the way."""
    log = TableLog(store, table.target.folder)
    view = log.settle()
    if view and (trouble := log.tidy(view, table.keep_records, others=True)):
        raise trouble


def of_folder(store: Store, folder: str, now: datetime) -> dict[str, object]:
    parent, _, name = folder.rpartition("/")
    entries = store.list(folder)
    files = [entry for entry in entries if not entry.is_folder and data_number(entry.name, None)]
    ages = [(now - entry.modified).total_seconds() for entry in files]
    return {
        "folder": bool(entries) or any(entry.name == name for entry in store.list(parent)),
        "data_files": len(files),
        "empty_files": tuple(store.address(f"{folder}/{entry.name}") for entry in files if entry.size == 0),
        "newest_file_age": min(ages, default=None),
    }


def of_log(view: View | None, store: Store, folder: str) -> dict[str, object]:
    if view is None:
        return {}
    entries = store.list(f"{folder}/{LOGS}")
    logs = [entry.name for entry in entries if entry.is_folder and is_log_id(entry.name)]
    lost = TableLog(store, folder).lost(view)
    return {
        "begun": next((entry.modified for entry in entries if f"{LOGS}/{entry.name}" == LOG_ID), None),
        "published": view.newest.to_version_inclusive if view.newest else None,
        "unfinished": len(view.unfinished),
        "last_gone": lost if isinstance(lost, LastFileGone) else None,
        "orphans": (*view.leftovers(), *(name for name in logs if name != view.log_id)),
    }


def _of_time(
    spark: SparkSession, source: Source, ahead: Facts, newest_first: Sequence[Record], now: datetime
) -> dict[str, object]:
    told: dict[str, object] = {
        "retention": seconds_of(ahead.properties, FILES),
        "log_retention": seconds_of(ahead.properties, LOG),
        "cloned_from": history.cloned_from(spark, source),
    }
    if not newest_first:
        return told
    told["lag_seconds"] = (now - ahead.commits[0].timestamp).total_seconds() if ahead.commits else 0.0
    oldest = newest_first[-1]
    known = {each.version: each.timestamp for each in history.commits(spark, source, oldest.to_version_inclusive - 1)}
    told["longest_wait"] = waits(newest_first, known)
    if ahead.commits and len(newest_first) > 1 and (committed := known.get(oldest.to_version_inclusive)):
        told["lag_before"] = (now - oldest.at).total_seconds(), max(0.0, (oldest.at - committed).total_seconds())
    return told


def waits(newest_first: Sequence[Record], committed: Mapping[int, datetime]) -> float:
    """Seconds from a commit to the record that published it, the longest of these records but the oldest."""
    firsts = {record.at: committed.get((record.from_version_exclusive or 0) + 1) for record in newest_first[:-1]}
    return max(((at - first).total_seconds() for at, first in firsts.items() if first), default=0.0)


def _longest_text(spark: SparkSession, table: Table) -> tuple[str, int] | None:
    few = detail_of(spark, table.source, counted=True).bytes <= CHEAP
    return longest_text(spark, table.source, table.selection) if few else None


def of_service(table: Table, states: Sequence[TableState] | None) -> dict[str, object]:
    if states is None:
        return {}
    state = next((each for each in states if each.is_of(table.target)), None)
    if state is None:
        return {"service": ""}
    return {"service": state.status, "service_error": state.error, "service_rows": state.rows}
