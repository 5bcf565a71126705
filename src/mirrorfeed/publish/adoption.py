"""Continue the table folder of another publisher: record which version of the source its files contain.

The record has no files. It is the first one of the table's log, and the next publication continues after its version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorfeed.config.model import Table
from mirrorfeed.landing import names
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.schema import MARKER, Column
from mirrorfeed.landing.selection import source_types
from mirrorfeed.publish.adoption_errors import AdoptionRefusedError
from mirrorfeed.publish.change_sources import ChangeSource
from mirrorfeed.publish.errors import (
    FileNumberConflictError,
    RowsRefusedError,
    concurrent_changes,
    foreign_file,
)
from mirrorfeed.publish.files.spark_files import schema_difference
from mirrorfeed.publish.files.staging_job import arrow_schema
from mirrorfeed.publish.next_publication import next_columns
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import discard
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.errors import PublicationBlockedError
from mirrorfeed.source.snapshot_or_range import PublishedVersion, Snapshot, decide
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import PathMissingError


def adopt(
    source: ChangeSource, store: Store, table: Table, version: int, prove: Callable[[Record], None] = lambda _: None
) -> Record:
    """Create the log of a folder that another publisher has filled up to `version` of the source. Return its record.

    Checks first that the publication can continue without a reload, and calls `prove` with the record to add. If a
    check fails or `prove` raises an error, nothing is written. Raises `AdoptionRefusedError` with the reason, or the
    error that a publication after `version` would raise.
    """
    log = TableLog(store, table.target.folder)
    files = _check_folder(log)
    record = _new_record(source, log, table, version, files)
    prove(record)
    view = log.confirm(log.read_view() or log.create_log(adopts=True))
    if view is None or view.newest or tuple(sorted(view.data)) != files:
        raise concurrent_changes(address=store.address(log.folder))
    record = replace(record, batch=log.create_start_marker(view), time=_now())
    try:
        after = log.add_record(view, record)
    except Exception:
        discard(log, view, record.batch)
        raise
    if after is None or not log.contains(after, record):
        raise concurrent_changes(address=store.address(log.folder))
    return record


def _check_folder(log: TableLog) -> tuple[str, ...]:
    """Return the sorted names of the files that the other publisher wrote. Those that Fabric moved have a subfolder.

    Raises an error if mirrorfeed publishes this folder already, or if the next file number is not certain.
    """
    address = log.store.address(log.folder)
    view = log.read_view()
    if view and view.newest:
        raise AdoptionRefusedError(
            reason="published", address=address, detail=str(view.newest.to_version_inclusive), table=view.newest.source
        )
    if view is None:
        with suppress(FileNumberConflictError):  # the files of the other publisher
            log.check_unclaimed()
    files = view.data if view else log.visible_files()
    numbers = {file: names.data_number(file.rpartition("/")[2], None) for file in files}
    if unnumbered := [file for file, number in numbers.items() if number is None]:
        raise foreign_file(address=f"{address}/{unnumbered[0]}")
    in_place = sorted(file for file in files if "/" not in file)
    if not in_place:
        raise AdoptionRefusedError(reason="empty", address=address)
    found = sorted({number for number in numbers.values() if number})
    if missing := sorted(set(range(found[0], found[-1])) - set(found)):
        raise AdoptionRefusedError(reason="gap", address=address, detail=str(missing[0]))
    if len(in_place) > 1 or numbers[in_place[0]] != found[-1]:
        raise AdoptionRefusedError(reason="waiting", address=address, detail=str(len(in_place)))
    return tuple(sorted(files))


def _new_record(source: ChangeSource, log: TableLog, table: Table, version: int, files: Sequence[str]) -> Record:
    """Return the record for `version`, without a batch. Raises an error if no publication can follow it."""
    name, address = str(table.source), log.store.address(log.folder)
    for option, is_set in (
        ("changes: compare", table.changes == "compare"),
        (f"delivery: {table.delivery}", bool(table.delivery.columns) or table.delivery.appends),
        ("format: delimited", table.output.delimited is not None),
        ("file_order: modified_time", table.output.by_time),
    ):
        if is_set:
            raise AdoptionRefusedError(reason="option", table=name, address=address, detail=option)
    latest = source.facts(None, table.max_versions_per_publication)
    if version > latest.latest:
        raise AdoptionRefusedError(
            reason="version", table=name, address=address, version=version, detail=str(latest.latest)
        )
    published = PublishedVersion(latest.table_id, version, latest.partitions)
    facts = source.facts(published, table.max_versions_per_publication)
    replaced = next((each for each in facts.commits if "REPLACE TABLE" in each.operation), None)
    if replaced:
        raise AdoptionRefusedError(
            reason="replaced", table=name, address=address, version=version, detail=str(replaced.version)
        )
    if isinstance(
        decision := decide(name, published, facts, table.max_versions_per_publication), PublicationBlockedError
    ):
        raise decision
    columns = next_columns(source, table, None, facts, version)
    _check_metadata(log, table, columns)
    newest = next(file for file in files if "/" not in file)
    _check_columns(log, name, newest, columns)
    if table.target_keys and table.validate_keys != "none" and (bad := source.bad_keys(version, table)):
        raise RowsRefusedError(table=name, range=Snapshot(version), rows=bad)
    committed = (latest if version == latest.latest else facts).commit_time(version)
    return Record(
        number=1,
        batch="0",
        time=_now(),
        source=name,
        source_id=facts.table_id,
        from_version_exclusive=None,
        to_version_inclusive=version,
        columns=columns,
        keys=table.target_keys,
        next_file_number=(names.data_number(newest) or 0) + 1,
        extension=table.output.extension,
        partitions=facts.partitions,
        build=this_build(),
        selection=table.selection,
        source_columns=source_types(source.schema(version, facts)) if table.selection else None,
        committed=None if committed is None else committed.isoformat(timespec="milliseconds"),
        key_digest=table.selection.key_digest if table.selection else None,
    )


def _check_metadata(log: TableLog, table: Table, columns: tuple[Column, ...]) -> None:
    """Raise an error if the keys or settings in `_metadata.json` are not those of the configuration."""
    if not metadata_files.check(log.store, log.folder, table.metadata(columns)) and table.target_keys:
        raise AdoptionRefusedError(
            reason="keys",
            table=str(table.source),
            address=log.store.address(f"{log.folder}/{names.METADATA}"),
            detail=", ".join(table.target_keys),
        )


def _check_columns(log: TableLog, table: str, file: str, columns: tuple[Column, ...]) -> None:
    """Raise an error if the newest file of the other publisher has other columns than the next file would have."""
    path = f"{log.folder}/{file}"
    address = log.store.address(path)
    try:
        with log.store.open_read(path) as data:
            parquet = pq.ParquetFile(data, coerce_int96_timestamp_unit="us")
            found = [name for name in parquet.schema_arrow.names if name != MARKER]
            wanted = [column.name for column in columns]
            if set(found) != set(wanted):
                parts = [f"without {name!r}" for name in wanted if name not in found]
                parts += [f"with {name!r}" for name in found if name not in wanted]
                difference = ", ".join(parts)
            else:
                difference = schema_difference(parquet, arrow_schema(columns, with_marker=False))
    except PathMissingError as error:  # the folder was deleted, or another publisher goes on
        raise concurrent_changes(address=address) from error
    except (pa.ArrowException, OSError) as error:
        raise AdoptionRefusedError(reason="unreadable", table=table, address=address, detail=str(error)) from error
    if difference:
        raise AdoptionRefusedError(reason="columns", table=table, address=address, detail=difference)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
