"""Maintain active files (OPTIMIZE, REORG, ANALYZE, VACUUM), and check that active files exist.

VACUUM also deletes unused archived files. On Databricks, the other statements skip archived files. With open source
Delta, OPTIMIZE and REORG run only on partitions without archived files, and ANALYZE does not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import SparkSession

from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.archive.data_skipping import check_columns
from mirrorfeed.archive.engines.open_source import all_and_archived
from mirrorfeed.archive.errors import files_not_checkable
from mirrorfeed.archive.guard import missing_among
from mirrorfeed.display.rows import Row, row
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.storage.tier_store import TierStore

EARLY_DELETION = "VACUUM deletes files. Files that were archived for less than 180 days cost an early deletion fee."
Partition = tuple[tuple[str, str | None], ...]


@row
class Maintained(Row):
    """Statements that ran to maintain a table, and the partitions that they left out."""

    table: str
    statements: tuple[str, ...]
    left_out: tuple[Mapping[str, str | None], ...]
    """Partitions that were not rewritten, because they contain archived files."""
    notes: tuple[str, ...]

    def remarks(self) -> Sequence[str]:
        names = (", ".join(f"{name}={value}" for name, value in each.items()) for each in self.left_out)
        left_out = [f"Not rewritten, because of archived files: {each or 'the whole table'}" for each in names]
        return (*self.statements, *left_out, *self.notes)


@row
class FileCheck(Row):
    """Result of a check for missing active files. `missing` has the files that do not exist."""

    table: str
    missing: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.missing

    def remarks(self) -> Sequence[str]:
        return [f"Missing: {uri}" for uri in self.missing] or [f"{self.table}: all active files exist."]


def maintain(
    spark: SparkSession,
    source: Source,
    now: datetime,
    *,
    optimize: bool = True,
    zorder: Sequence[str] = (),
    purge: bool = False,
    analyze: bool = False,
    vacuum: bool = False,
) -> Maintained:
    check_columns(spark, source, zorder)
    rewrites, any_archived, where = optimize or purge or bool(zorder), True, ""
    left_out: tuple[Partition, ...] = ()
    notes: list[str] = []
    if not is_databricks(spark):
        files, archived = all_and_archived(spark, source, now)
        any_archived = bool(archived)
        if analyze:
            notes.append(
                "ANALYZE did not run: open source Delta does not support it, and collects statistics when it writes."
            )
            analyze = False
        if rewrites:  # VACUUM leaves nothing out
            active, left_out = split(files, archived)
            if left_out and active:
                types = {field.name: field.dataType.simpleString() for field in spark.table(source.sql).schema}
                where = f" WHERE {condition(active, types)}"
            elif left_out:
                notes.append("Every partition contains archived files, so nothing was rewritten.")
                rewrites = False
    statements = []
    if rewrites and (optimize or zorder):
        by = f" ZORDER BY ({', '.join(map(quote, zorder))})" if zorder else ""
        statements.append(f"OPTIMIZE {source.sql}{where}{by}")
    if rewrites and purge:
        statements.append(f"REORG TABLE {source.sql}{where} APPLY (PURGE)")
    if analyze:
        statements.append(f"ANALYZE TABLE {source.sql} COMPUTE DELTA STATISTICS")
    if vacuum:
        statements.append(f"VACUUM {source.sql}")
        if any_archived:
            notes.insert(0, EARLY_DELETION)
    for statement in statements:
        spark.sql(statement)
    return Maintained(str(source), tuple(statements), tuple(map(dict, left_out)), tuple(notes))


def split(
    files: Sequence[DataFile], archived: Sequence[DataFile]
) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """Return the partitions without and with archived files. An unpartitioned table counts as one partition."""
    with_archived = {_partition(file) for file in archived}
    every = {_partition(file) for file in files}
    return tuple(sorted(every - with_archived, key=str)), tuple(sorted(with_archived, key=str))


def _partition(file: DataFile) -> Partition:
    return tuple(sorted((file.partition or {}).items()))


def condition(partitions: Sequence[Partition], types: Mapping[str, str]) -> str:
    """Return a SQL condition that matches the rows in `partitions`. `types` maps partition columns to SQL types."""
    return " OR ".join(
        "(" + " AND ".join(_equals(name, value, types[name]) for name, value in partition) + ")"
        for partition in partitions
    )


def _equals(name: str, value: str | None, type_: str) -> str:
    if value is None:
        return f"{quote(name)} IS NULL"
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{quote(name)} = CAST('{text}' AS {type_})"


def check_files(spark: SparkSession, source: Source, now: datetime, tiers: TierStore | None = None) -> FileCheck:
    """Return the active files of a table that do not exist.

    On Databricks, runs FSCK without changing anything. Otherwise looks up each active file through `tiers`, or on this
    machine if `tiers` is None. Raises `files_not_checkable` if `tiers` is None and files are not on this machine.
    """
    if is_databricks(spark):
        rows = spark.sql(f"FSCK REPAIR TABLE {source.sql} DRY RUN").collect()
        return FileCheck(str(source), tuple(str(row[0]) for row in rows))
    files, archived = all_and_archived(spark, source, now)
    archived_uris = {file.uri for file in archived}
    active = [file for file in files if file.uri not in archived_uris]
    if tiers is None and (elsewhere := [file.uri for file in active if not file.uri.startswith("file:")]):
        raise files_not_checkable(table=str(source), uri=elsewhere[0])
    return FileCheck(str(source), tuple(missing_among(active, tiers)))
