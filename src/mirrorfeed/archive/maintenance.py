"""OPTIMIZE, REORG, ANALYZE and VACUUM of active files, and a check that active files exist.

On Databricks these statements skip archived files. Open source Delta would read them, so each statement is limited to
the partitions without archived files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.archive import interval
from mirrorfeed.archive.errors import CannotLook
from mirrorfeed.archive.file_index.archived_files import archived_of
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.guard.local_engine import LocalIndex
from mirrorfeed.archive.guard.predicate import check_columns
from mirrorfeed.archive.guard.query import index_of
from mirrorfeed.source import versions
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.storage.tiers import Tier, TierStore

EARLY_DELETION = (
    "VACUUM deletes files, and those that are less than 180 days in the archive tier cost a fee for early deletion."
)
Partition = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What to do; each is a statement of its own, in this order."""

    optimize: bool = True
    zorder: tuple[str, ...] = ()
    purge: bool = False
    analyze: bool = False
    vacuum: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    statements: tuple[str, ...]
    left_out: tuple[Partition, ...]
    """Partitions that hold archived files."""
    notes: tuple[str, ...]


def maintain(spark: SparkSession, source: Source, what: Maintenance, now: datetime) -> Done:
    check_columns(spark, source, what.zorder)
    index = index_of(spark, source)
    if not isinstance(index, LocalIndex):
        statements = _statements(source, what, "")
        notes = [EARLY_DELETION] if what.vacuum else []
        left_out: tuple[Partition, ...] = ()
    else:
        at = versions.newest_version(spark, source)
        log = index.log()
        found = log.files(at).values()
        archived = archived_of(spark, str(source), log.location, found, interval.read(spark, source), now)
        hot, left_out = split(list(found), archived)
        statements = _local(spark, source, what, hot, left_out)
        notes = [EARLY_DELETION] if what.vacuum and archived else []
        if what.analyze:
            notes.append("ANALYZE is not supported on open source Delta, whose writes keep the statistics of files.")
        if left_out and not hot:
            notes.append("Every partition holds archived files, so nothing is rewritten.")
    for statement in statements:
        spark.sql(statement)
    return Done(tuple(statements), left_out, tuple(notes))


def split(files: Sequence[LogFile], archived: Sequence[LogFile]) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """The partitions without archived files, and those with some. A table without partitions is one."""
    with_archived = {_partition(file) for file in archived}
    every = {_partition(file) for file in files}
    return tuple(sorted(every - with_archived, key=str)), tuple(sorted(with_archived, key=str))


def _partition(file: LogFile) -> Partition:
    return tuple(sorted((file.partition or {}).items()))


def _local(
    spark: SparkSession, source: Source, what: Maintenance, hot: Sequence[Partition], left_out: Sequence[Partition]
) -> list[str]:
    if not left_out:
        where = ""
    elif hot:
        types = {field.name: field.dataType.simpleString() for field in spark.table(source.sql).schema}
        where = f" WHERE {condition(hot, types)}"
    else:
        return [f"VACUUM {source.sql}"] if what.vacuum else []
    return [statement for statement in _statements(source, what, where) if not statement.startswith("ANALYZE")]


def condition(partitions: Sequence[Partition], types: Mapping[str, str]) -> str:
    """That a row is in one of these partitions, whose values are spelled as in the log."""
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


def missing_files(spark: SparkSession, source: Source, now: datetime, tiers: TierStore | None = None) -> list[str]:
    """The table's hot files that are not there. On Databricks FSCK is asked, and changes nothing; elsewhere every file
    is looked at, through `tiers` or on this machine."""
    index = index_of(spark, source)
    if not isinstance(index, LocalIndex):
        return [str(row[0]) for row in spark.sql(f"FSCK REPAIR TABLE {source.sql} DRY RUN").collect()]
    at = versions.newest_version(spark, source)
    log = index.log()
    found = log.files(at).values()
    archived = archived_of(spark, str(source), log.location, found, interval.read(spark, source), now)
    away = {file.uri for file in archived}
    hot = [file for file in found if file.uri not in away]
    uris = sorted({uri for file in hot for uri in (file.uri, file.vector) if uri})
    if tiers is not None:
        return [uri for uri, tier in tiers.read_tiers(uris).items() if tier is Tier.MISSING]
    if elsewhere := [uri for uri in uris if not uri.startswith("file:")]:
        raise CannotLook(table=str(source), uri=elsewhere[0])
    return [uri for uri in uris if not Path(uri.removeprefix("file:")).exists()]
