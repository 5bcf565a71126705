"""What can be told of a table without Spark: that nothing is new, or that nothing was published yet.

The newest version of a table in a folder is read by delta-rs, where that is installed. Whatever it cannot read,
whatever only the engine or a catalog knows, and whatever is new, is left to Spark.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.orchestration.ledger import COLUMNS, PUBLISHED, STANDS, Known, PublicationKey, known_in
from mirrorfeed.publish.log import metadata_files
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.log.view import View
from mirrorfeed.publish.plan import plan_of
from mirrorfeed.publish.result import Progress, TableResult
from mirrorfeed.source.delta_protocol import commit_name
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import NothingNew
from mirrorfeed.source.table_info import TableInfo, local_table_info, open_local_table
from mirrorfeed.storage import Store


def newest_of(table: Table) -> tuple[TableInfo, int] | None:
    """As `newest`; None if the table is published by comparison, so that its own versions are not published."""
    return None if table.changes == "compare" else newest(table.source)


def newest(source: Source) -> tuple[TableInfo, int] | None:
    """A table in a folder of this machine as its metadata says, and its newest version; None where only Spark tells."""
    if (table := open_local_table(source)) is None or (told := local_table_info(table, source)) is None:
        return None
    return told, table.version()


def known_here(place: Source, most: int) -> dict[str, Known] | None:
    """What a ledger in a folder of this machine tells of each table, as `ledger.known` does; None where it cannot be
    read without Spark, or has to be made or given columns."""
    columns, stands = ", ".join(PublicationKey._fields), ", ".join(f"'{each}'" for each in STANDS)
    try:
        if (table := open_local_table(place)) is None:
            return None
        if not {name for name, _, _ in COLUMNS} <= {field.name for field in table.schema().fields}:
            return None
        import pyarrow as pa
        from deltalake import QueryBuilder

        rows = (
            QueryBuilder()
            .register("ledger", table)
            .execute(f"""
            SELECT "table", outcome, {columns} FROM (
                SELECT *, row_number() OVER (PARTITION BY "table", outcome = '{PUBLISHED}' ORDER BY time DESC) AS nth
                FROM ledger WHERE outcome IN ({stands}))
            WHERE nth <= {most} ORDER BY time""")
            .read_all()
        )
        return known_in(pa.table(rows).to_pylist())
    except Exception:  # as above
        return None


@dataclass(frozen=True)
class UpToDateCheck:
    """The tables of a configuration, over one landing zone, which may ask for a login."""

    config: Config
    store: Store | None = None
    """The landing zone, where a run has it open; None: the configuration's."""

    @cached_property
    def zone(self) -> Store:
        return self.store or zone_of(self.config)

    def decision(self, table: Table) -> NothingNew | None:
        """That nothing is new in a table, where nothing is left to do for what is published either."""
        found = self.at_rest(table)
        return NothingNew(found[1]) if found else None

    def outcome(self, table: Table) -> TableResult | None:
        """What publishing comes to where there is nothing to publish, and nothing to tidy."""
        begun = time.monotonic()
        if (found := self.at_rest(table)) is None:
            return None
        view, version = found
        if view.staged or view.old_records(table.log_retention_records):
            return None
        progress = Progress(str(NothingNew(version)), published=version, latest=version)
        return TableResult(str(table.target), progress, time.monotonic() - begun, table.validate_keys != "none")

    def at_rest(self, table: Table) -> tuple[View, int] | None:
        """A table that is published up to its newest version."""
        try:
            if (found := newest_of(table)) is None:
                return None
            plan = plan_of(table)
            log = TableLog(self.zone, plan.folder)
            view = log.read_view()
            if view is None or view.newest is None or view.unfinished or not is_up_to_date(view, *found):
                return None
            if view.newest.selection != plan.selection:
                return None
            log.check(view)
            metadata_files.check(self.zone, plan.folder, plan.metadata(view.newest.columns))
        except Exception:  # of any finding Spark's way tells
            return None
        return view, found[1]


def waits_since(store: Store, table: Table) -> datetime | None:
    """When the first version was committed that is not published, where a file tells, or else when the table was
    published last; None where it never was, or that cannot be told."""
    try:
        view = TableLog(store, table.target.folder).read_latest()
    except Exception:  # the run says what it is
        return None
    if view is None or view.newest is None:
        return None
    path = table.source.path
    first = committed(path, view.newest.to_version_inclusive + 1) if path else None
    return first or view.newest.at


def committed(folder: str, version: int) -> datetime | None:
    """When a version was committed, by its file in the log, to the millisecond as Delta tells it; None where that is
    gone already."""
    with suppress(OSError):
        file = Path(folder) / "_delta_log" / commit_name(version)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=file.stat().st_mtime_ns // 1_000_000)
    return None


def is_up_to_date(view: View, detail: TableInfo, version: int) -> bool:
    """Whether what is published is this very table, up to this version."""
    newest = view.newest
    return newest is not None and (newest.source_id, newest.to_version_inclusive) == (detail.table_id, version)
