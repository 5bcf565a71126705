"""Find and drop orphaned targets: published tables that the configuration no longer selects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import field

from mirrorfeed.config.model import Config, hashes_of, zone_of
from mirrorfeed.display.rows import Row, counted, row
from mirrorfeed.errors import MirrorfeedError, MirrorfeedWarning
from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError, TargetNameError
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.names import LOG, METADATA, Target
from mirrorfeed.orchestration.errors import not_published_here, orphaned_tables, still_configured
from mirrorfeed.orchestration.last_failure import LastFailures
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import SymbolicLinkError, UnreadableFileError

_SCHEMA = ".schema"


def find_orphans(store: Store, config: Config) -> list[Target]:
    """Return the published tables in the landing zone that the configuration does not contain.

    If other configurations share the landing zone, returns only tables whose source has an entry with another target.
    Lists the landing zone once, and reads only the logs of tables without an entry.
    """
    configured = {table.target.fold() for table in config.tables}
    sources = {str(table.source) for table in config.tables} if config.shared_landing_zone else None
    others = (target for target in _folders(store) if target.fold() not in configured)
    return [target for target in others if _is_published(store, target, sources)]


def orphans_problem(config: Config, store: Store | None = None) -> MirrorfeedWarning | None:
    """Return a warning about all orphaned tables, as in `find_orphans`.

    Returns None if there are none, or if the landing zone cannot be read. `store` is the landing zone, if it is open.
    """
    with suppress(MirrorfeedError):
        if orphans := find_orphans(store or zone_of(config), config):
            return orphaned_tables(targets=tuple(map(str, orphans)), path=config.path)
    return None


@row
class DroppedTable(Row):
    """A table whose folder in the landing zone is deleted, so that Fabric drops the table."""

    table: str
    address: str
    """Address of the deleted folder."""
    files: int
    """Number of data files that Fabric had not consumed."""
    rows: int
    """Number of rows in the publications that are still in the log."""
    publications: int
    newest: Record | None = field(repr=False)
    """Newest log record, or None if no publication was completed."""
    hashes: Source | None = None
    """Table with the row hashes, which is not deleted. None if mirrorfeed stored no row hashes."""

    @property
    def consequences(self) -> str:
        """Text to show before the deletion: the folder that is deleted, and how much data it contains."""
        content = "The folder contains an unfinished first load, but no data."
        if self.newest is not None:
            content = (
                f"It holds {counted(self.files, 'data file')}. mirrorfeed published {self.newest.source} there, up to"
                f" version {self.newest.to_version_inclusive} on {self.newest.at:%Y-%m-%d %H:%M %Z}; the last"
                f" {counted(self.publications, 'publication')} had {counted(self.rows, 'row')}."
            )
        return f"The folder {self.address} is deleted with all its contents, and Fabric drops the table. {content}"

    def remarks(self) -> Sequence[str]:
        lines = [f"{self.table} was deleted from the landing zone."]
        if self.hashes:
            remove = "Delete that folder" if self.hashes.path else f"DROP TABLE {self.hashes.sql}"
            lines.append(
                f"The row hashes of the table, some with source rows, remain in {self.hashes}. To delete them:"
                f" {remove}."
            )
        return lines


def drop_table(config: Config, name: str, confirm: Callable[..., None] | None = None) -> DroppedTable:
    """Delete the folder of a table in the landing zone, and return what was deleted.

    Before the deletion, calls `confirm` with a description of the consequences. If `confirm` raises an error, nothing
    is deleted. Raises `still_configured` if the configuration contains the table, and `not_published_here` if
    mirrorfeed did not publish the table.
    """
    from mirrorfeed.publish.files.staging_area import clear_staging  # imported late: slow to import

    target, zone = Target.parse(name), zone_of(config)
    address = zone.address(target.folder)
    if target.fold() in {table.target.fold() for table in config.tables}:
        raise still_configured(table=str(target), path=config.path)
    log = TableLog(zone, target.folder)
    view = log.read_view()
    if view is None or not _is_of_mirrorfeed(zone, target, view):
        raise not_published_here(table=str(target), place=address)
    records = list(log.records(view))
    rows = sum(record.rows.total() for record in records)
    was_compared = view.newest and view.newest.read
    hashes = hashes_of(config.ledger, target) if was_compared and config.ledger else None
    dropped = DroppedTable(str(target), address, len(view.data), rows, len(records), view.newest, hashes)
    if confirm:
        confirm(dropped.consequences)
    zone.remove_folder(target.folder)
    LastFailures(zone).remove(target)
    clear_staging(config.staging_path, zone, address)
    return dropped


def _is_of_mirrorfeed(store: Store, target: Target, view: View) -> bool:
    """Return True if the table's log has a log record, or if the folder has only files of an unfinished first load."""
    return view.newest is not None or {entry.name for entry in store.list(target.folder)} <= {LOG, METADATA}


def _folders(store: Store) -> Iterator[Target]:
    """Yield a target for each folder in the landing zone that has a valid table name."""
    for entry in store.list(""):
        if not entry.is_folder:
            continue
        schema, tables = None, [entry.name]
        if entry.name.endswith(_SCHEMA):
            schema = entry.name.removesuffix(_SCHEMA)
            tables = [below.name for below in store.list(entry.name) if below.is_folder]
        for table in tables:
            with suppress(TargetNameError):
                yield Target(schema, table)


def _is_published(store: Store, target: Target, sources: Collection[str] | None) -> bool:
    """Return whether mirrorfeed created the folder of a target and, unless `sources` is None, from one of `sources`.

    Returns False if the log in the folder cannot be read.
    """
    try:
        view = TableLog(store, target.folder).read_latest()
        if view is None or sources is None:
            return view is not None and _is_of_mirrorfeed(store, target, view)
        return view.newest is not None and view.newest.source in sources
    except (DamagedFileError, RecordTooNewError, SymbolicLinkError, UnreadableFileError):
        return False
