"""OPTIMIZE, REORG, ANALYZE and VACUUM of active files, and a check that active files exist.

On Databricks these statements skip archived files. Open source Delta would read them, so each statement is limited to
the partitions without archived files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession

from mirrorfeed.archive.archived_files import LogFile, archived_of
from mirrorfeed.archive.data_skipping import check_columns
from mirrorfeed.archive.engines import ClassicEngine
from mirrorfeed.archive.errors import CannotCheckFiles
from mirrorfeed.archive.guard import missing_among
from mirrorfeed.archive.interval import parse_policy
from mirrorfeed.display.rows import Row, row
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tiers import TierStore

EARLY_DELETION = "VACUUM deletes files. Files that were archived for less than 180 days cost an early deletion fee."
Partition = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The statements to run, in this order."""

    optimize: bool = True
    zorder: tuple[str, ...] = ()
    purge: bool = False
    analyze: bool = False
    vacuum: bool = False


@row
class Maintained(Row):
    """The result of maintenance."""

    table: str
    statements: tuple[str, ...]
    left_out: tuple[Mapping[str, str | None], ...]
    """Partitions that contain archived files."""
    notes: tuple[str, ...]

    def remarks(self) -> Sequence[str]:
        names = (", ".join(f"{name}={value}" for name, value in each.items()) for each in self.left_out)
        left_out = [f"Not rewritten, because it contains archived files: {each or 'the whole table'}" for each in names]
        return (*self.statements, *left_out, *self.notes)


@row
class FileCheck(Row):
    """Active files that do not exist."""

    table: str
    missing: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.missing

    def remarks(self) -> Sequence[str]:
        return [f"Missing: {uri}" for uri in self.missing] or [f"{self.table}: all active files exist."]


def maintain(spark: SparkSession, source: Source, what: Maintenance, now: datetime) -> Maintained:
    check_columns(spark, source, what.zorder)
    left_out: tuple[Partition, ...] = ()
    notes: list[str] = []
    if is_databricks(spark):
        statements = _statements(source, what, "")
        any_archived = True
    else:
        files, archived = _files(spark, source, now)
        any_archived = bool(archived)
        active, left_out = split(files, archived)
        statements = _local(spark, source, what, active, left_out)
        if what.analyze:
            notes.append("ANALYZE is not supported on open source Delta, which collects statistics when it writes.")
        if not (what.optimize or what.zorder or what.purge):  # VACUUM leaves nothing out
            left_out = ()
        elif left_out and not active:
            notes.append("Every partition contains archived files, so nothing is rewritten.")
    if what.vacuum and any_archived:
        notes.insert(0, EARLY_DELETION)
    for statement in statements:
        spark.sql(statement)
    return Maintained(str(source), tuple(statements), tuple(map(dict, left_out)), tuple(notes))


def _files(spark: SparkSession, source: Source, now: datetime) -> tuple[list[LogFile], list[LogFile]]:
    """All files of the newest version, and the archived ones."""
    found, files = read_table_info(spark, source), list(ClassicEngine(spark).files(source).values())
    return files, archived_of(
        spark, str(source), found.location, files, parse_policy(str(source), found.properties), now
    )


def split(files: Sequence[LogFile], archived: Sequence[LogFile]) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """The partitions without and with archived files. A table without partitions is one partition."""
    with_archived = {_partition(file) for file in archived}
    every = {_partition(file) for file in files}
    return tuple(sorted(every - with_archived, key=str)), tuple(sorted(with_archived, key=str))


def _partition(file: LogFile) -> Partition:
    return tuple(sorted((file.partition or {}).items()))


def _local(
    spark: SparkSession, source: Source, what: Maintenance, active: Sequence[Partition], left_out: Sequence[Partition]
) -> list[str]:
    if not left_out:
        where = ""
    elif active:
        types = {field.name: field.dataType.simpleString() for field in spark.table(source.sql).schema}
        where = f" WHERE {condition(active, types)}"
    else:
        return [f"VACUUM {source.sql}"] if what.vacuum else []
    return [statement for statement in _statements(source, what, where) if not statement.startswith("ANALYZE")]


def condition(partitions: Sequence[Partition], types: Mapping[str, str]) -> str:
    """True for rows in these partitions, whose values are spelled as in the log."""
    return " OR ".join(
        "(" + " AND ".join(_equals(name, value, types[name]) for name, value in partition) + ")"
        for partition in partitions
    )


def _equals(name: str, value: str | None, type_: str) -> str:
    if value is None:
        return f"{quote(name)} IS NULL"
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{quote(name)} = CAST('{text}' AS {type_})"


def _statements(source: Source, what: Maintenance, where: str) -> list[str]:
    found = []
    if what.optimize or what.zorder:
        by = f" ZORDER BY ({', '.join(map(quote, what.zorder))})" if what.zorder else ""
        found.append(f"OPTIMIZE {source.sql}{where}{by}")
    if what.purge:
        found.append(f"REORG TABLE {source.sql}{where} APPLY (PURGE)")
    if what.analyze:
        found.append(f"ANALYZE TABLE {source.sql} COMPUTE DELTA STATISTICS")
    if what.vacuum:
        found.append(f"VACUUM {source.sql}")
    return found


def check_files(spark: SparkSession, source: Source, now: datetime, tiers: TierStore | None = None) -> FileCheck:
    """The active files that do not exist. Databricks runs FSCK without changing anything; otherwise every file is
    looked up in `tiers` or on this machine."""
    if is_databricks(spark):
        rows = spark.sql(f"FSCK REPAIR TABLE {source.sql} DRY RUN").collect()
        return FileCheck(str(source), tuple(str(row[0]) for row in rows))
    files, archived = _files(spark, source, now)
    away = {file.uri for file in archived}
    active = [file for file in files if file.uri not in away]
    if tiers is None and (elsewhere := [file.uri for file in active if not file.uri.startswith("file:")]):
        raise CannotCheckFiles(table=str(source), uri=elsewhere[0])
    return FileCheck(str(source), tuple(missing_among(active, tiers)))
