"""Find tables with nothing new without Spark.

delta-rs, if installed, reads the newest version of a table in a local folder. Everything else is left to Spark: what
delta-rs cannot read, what only the engine or a catalog knows, and everything new.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.publish.log import metadata_files
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.log.view import View
from mirrorfeed.publish.next_publication import metadata_of, with_keys
from mirrorfeed.publish.result import TableResult
from mirrorfeed.source.next_step import NothingNew
from mirrorfeed.source.table_info import TableInfo, commit_name, local_table_info, open_local_table
from mirrorfeed.storage import Store


def newest_of(table: Table) -> tuple[TableInfo, int] | None:
    """Return metadata and newest version of a table in a local folder.

    None if only Spark can read it, or if the table is compared, so that other versions than its own are published.
    """
    if table.changes == "compare" or (found := open_local_table(table.source)) is None:
        return None
    detail = local_table_info(found, table.source)
    return None if detail is None else (detail, found.version())


@dataclass(frozen=True)
class UpToDateCheck:
    """Checks the tables of a configuration over one landing zone, which may ask for a login."""

    config: Config
    store: Store | None = None
    """None: the configured landing zone."""

    @cached_property
    def zone(self) -> Store:
        return self.store or zone_of(self.config)

    def decision(self, table: Table) -> NothingNew | None:
        """Return that nothing is new, if publishing would change nothing."""
        found = self.published_view(table)
        return NothingNew(found[1]) if found else None

    def outcome(self, table: Table) -> TableResult | None:
        """Return the result of publishing, if there is nothing to publish and nothing to clean up."""
        begun = time.monotonic()
        if (found := self.published_view(table)) is None:
            return None
        view, version = found
        if view.staged or view.old_records(table.log_retention_records):
            return None
        seconds = time.monotonic() - begun
        return TableResult(str(table.target), published_version=version, latest=version, seconds=seconds)

    def published_view(self, table: Table) -> tuple[View, int] | None:
        """Return the view and the version of a table that is published up to its newest version."""
        try:
            if (found := newest_of(table)) is None:
                return None
            table = with_keys(table)
            log = TableLog(self.zone, table.target.folder)
            view = log.read_view()
            if view is None or view.newest is None or view.unfinished or not is_up_to_date(view, *found):
                return None
            if view.newest.selection != table.selection:
                return None
            log.check(view)
            metadata_files.check(self.zone, log.folder, metadata_of(table, view.newest.columns))
        except Exception:  # the run with Spark reports it
            return None
        return view, found[1]


def waits_since(store: Store, table: Table) -> datetime | None:
    """Return the time of the first unpublished commit if a file shows it, else of the last publication.

    None if the table was never published, or if that cannot be read.
    """
    try:
        view = TableLog(store, table.target.folder).read_latest()
    except Exception:  # the run reports it
        return None
    if view is None or view.newest is None:
        return None
    path = table.source.path
    first = committed(path, view.newest.to_version_inclusive + 1) if path else None
    return first or view.newest.at


def committed(folder: str, version: int) -> datetime | None:
    """Return the time of a commit, to the millisecond as Delta shows it. None if its log file is gone."""
    with suppress(OSError):
        file = Path(folder) / "_delta_log" / commit_name(version)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=file.stat().st_mtime_ns // 1_000_000)
    return None


def is_up_to_date(view: View, detail: TableInfo, version: int) -> bool:
    """Whether this very table is published, up to this version."""
    newest = view.newest
    return newest is not None and (newest.source_id, newest.to_version_inclusive) == (detail.table_id, version)
