"""Compare the numbers of rows of a source and its mirror, from both Delta logs. Reads no data files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.archive import delta_log_reader
from mirrorfeed.config.connections import DEFAULT_SCHEMA
from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.landing.log_record import Record
from mirrorfeed.mirror import errors
from mirrorfeed.mirror.verify.row_comparison import Difference
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.reader import read_version
from mirrorfeed.source.table_info import commit_version, is_in_local_folder
from mirrorfeed.storage import Store
from mirrorfeed.storage.local_folder import FolderStore

Partition = tuple[tuple[str, str | None], ...]
"""Partition of a table: names of columns and values as in the Delta log."""


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows of a table at one version."""

    rows: int | None
    """None if they are not known."""
    partitions: Mapping[Partition, int] = field(default_factory=dict)
    unknown: str = ""
    """Reason why they are not known."""


@dataclass(frozen=True)
class CountComparison:
    """Comparison of the numbers of rows of a source and its mirror."""

    version: int
    source_rows: int | None
    mirror_rows: int | None
    unknown: str = ""
    """Reason why a number is not known. Empty if both are known."""
    differences: tuple[Difference, ...] = ()
    """Partitions with different numbers of rows, if both tables have the same partition columns."""

    @property
    def equal(self) -> bool | None:
        if self.source_rows is None or self.mirror_rows is None:
            return None
        return self.source_rows == self.mirror_rows and not self.differences

    def __str__(self) -> str:
        at_version = f"at version {self.version}"
        if self.equal is None:
            return f"not known {at_version}: {self.unknown}"
        if self.equal:
            return f"as many rows {at_version}, {self.source_rows:,} counted"
        where = f", {len(self.differences):,} partitions differ" if self.differences else ""
        counts = f"{self.source_rows:,} rows in the source, {self.mirror_rows:,} in the mirror"
        return f"DIFFERENT {at_version}: {counts}{where}"


def why_unknown(table: Table, record: Record) -> str:
    """Return why the logs cannot show whether a mirror has all rows. Empty if they can."""
    if record.delivery.appends or record.delivery.marks_deletes:
        return f"with `delivery: {record.delivery.mode}`, the mirror has other rows than the source"
    if table.selection and table.selection.where:
        return "the Delta log does not show how many rows match `where`"
    return "with `changes: compare`, the source has no versions" if record.read else ""


def count_rows(store: Store, folder: str, version: int | None = None) -> RowCounts:
    """Return the numbers of rows of the Delta table in a folder, at `version` or the newest version, from its log."""
    log = f"{folder}/_delta_log" if folder else "_delta_log"
    names = [entry.name for entry in store.list(log)]
    newest = max((number for name in names if (number := commit_version(name)) is not None), default=None)
    if newest is None:
        return RowCounts(None, unknown="no commits")
    with tempfile.TemporaryDirectory() as place:

        def local_path(name: str) -> Path:
            path = Path(place, name.replace("/", "-"))
            if not path.exists():
                with store.open_read(f"{log}/{name}") as source, path.open("wb") as copy:
                    shutil.copyfileobj(source, copy, 2**20)
            return path

        counts = delta_log_reader.count_rows(
            store.address(folder), names, newest if version is None else version, local_path
        )
    return RowCounts(None, unknown=counts) if isinstance(counts, str) else RowCounts(sum(counts.values()), counts)


def mirror_folder(config: Config, table: Table, mirror: str | None) -> tuple[Store, str] | None:
    """Return the store and the folder of a mirrored table: below `mirror` or, if it is not set, in OneLake.

    Returns None if only Spark can read `mirror`. Raises `mirror_not_named` if the mirror is in an unknown folder.
    """
    below = f"{table.target.schema or DEFAULT_SCHEMA}/{table.target.table}"
    if mirror and "://" in mirror:
        return None
    if mirror:
        store = FolderStore(str(Path(mirror).resolve()))
        return store, "" if store.list("_delta_log") else below
    if config.onelake is None or config.onelake[1] is None:
        raise errors.mirror_not_named(landing_zone=config.landing_zone)
    return zone_of(config, "Tables"), below


def compare_counts(
    spark: Callable[[], SparkSession], config: Config, table: Table, mirror: str | None, record: Record
) -> CountComparison:
    """Return the comparison of the numbers of rows, of the source at the version of `record` and of the mirror.

    Starts Spark only for a source that is not in a local folder, or for a mirror that only Spark can read.
    """
    version = record.to_version_inclusive
    if unknown := why_unknown(table, record):
        return CountComparison(version, None, None, unknown)
    source = _count_source(spark, table.source, version)
    mirrored = _count_mirror(spark, config, table, mirror)
    sides = (("source", source), ("mirror", mirrored))
    unknown = next((f"the log of the {side} has {counts.unknown}" for side, counts in sides if counts.rows is None), "")
    return CountComparison(version, source.rows, mirrored.rows, unknown, _differing(source, mirrored))


def _count_source(spark: Callable[[], SparkSession], source: Source, version: int) -> RowCounts:
    if source.path and is_in_local_folder(source):
        return count_rows(FolderStore(source.path), "", version)
    return RowCounts(read_version(spark(), source, version).count())  # Databricks counts from the log


def _count_mirror(spark: Callable[[], SparkSession], config: Config, table: Table, mirror: str | None) -> RowCounts:
    if place := mirror_folder(config, table, mirror):
        return count_rows(*place)
    from mirrorfeed.mirror.verify import mirror_of

    assert mirror
    return RowCounts(spark().read.table(mirror_of(mirror, table.target).sql).count())


def _differing(source: RowCounts, mirror: RowCounts) -> tuple[Difference, ...]:
    names = [{tuple(name for name, _ in each) for each in counts.partitions} for counts in (source, mirror)]
    if names[0] | names[1] <= {()} or len(names[0] | names[1]) > 1:
        return ()
    differences = []
    for partition in sorted({*source.partitions, *mirror.partitions}, key=str):
        rows = [counts.partitions.get(partition, 0) for counts in (source, mirror)]
        if rows[0] != rows[1]:
            key = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in partition)
            differences.append(Difference(key, "", *(f"{count:,} rows" for count in rows)))
    return tuple(differences)
