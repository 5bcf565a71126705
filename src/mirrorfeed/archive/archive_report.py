"""Measure which share of a table is archived, and simulate other archive intervals.

A simulation plans queries without running them. It reads no data file and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorfeed.archive.archive_interval import Policy
from mirrorfeed.archive.archived_files import select_archived
from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.archive.data_skipping import apply_condition
from mirrorfeed.archive.engines.databricks import DatabricksEngine
from mirrorfeed.archive.engines.open_source import OpenSourceEngine, all_and_archived
from mirrorfeed.archive.engines.open_source import files_of as files_read_by
from mirrorfeed.archive.errors import invalid_conditions_file, simulation_impossible
from mirrorfeed.display.rows import Row, counted, row, shown, size
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo, read_table_info
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tier_store import TierFacts, TierStore

_AGES = (0, 7, 30, 90, 180, 365)
_UNKNOWN = "unknown"


@row
class Share(Row):
    """Number and bytes of a table's files, number and bytes of its archived files, and the table's monthly costs."""

    table: str = shown("table")
    files: int = shown("files", default=0)
    bytes: int = shown("size", size, right=True, default=0)
    archived_files: int = shown("archived files", default=0)
    archived_bytes: int | None = shown("archived", size, right=True, default=None)
    """Bytes in archived files. None if the size of an archived file is unknown, as it can be on Databricks."""
    restored_files: int | None = shown("restored files", default=None)
    """Number of archived files that were restored. None if the access tiers of the files were not read."""
    restored_bytes: int | None = None
    bytes_by_age: Mapping[str, int] | None = None
    """Bytes of all files by age group, such as "30-90 d", youngest first. None on Databricks."""
    copies: bool = False
    """True if restoring a file creates a copy, so that both the file and its copy are charged."""
    month_cost: float | None = shown("cost per month", lambda cost: f"{cost:,.2f}", right=True, default=None)
    month_saving: float | None = shown("saving", lambda saving: f"{saving:,.2f}", right=True, default=None)
    currency: str | None = shown("currency", default=None)
    error: MirrorfeedError | None = None

    @property
    def archived(self) -> float | None:
        """Archived share of the bytes, or of the files if bytes are unknown, from 0 to 1. None for an empty table."""
        part, total = self.archived_files, self.files
        if self.archived_bytes is not None and self.bytes:
            part, total = self.archived_bytes, self.bytes
        return part / total if total else None

    @property
    def active_bytes(self) -> int | None:
        """Bytes outside the archive tier: active files plus restored files. None if the archived bytes are unknown."""
        if self.archived_bytes is None:
            return None
        return max(0, self.bytes - self.archived_bytes) + (self.restored_bytes or 0)

    @property
    def cold_bytes(self) -> int | None:
        """Bytes in the archive tier. None if the archived bytes are unknown."""
        if self.archived_bytes is None or self.copies:
            return self.archived_bytes
        return self.archived_bytes - (self.restored_bytes or 0)

    @property
    def copied_bytes(self) -> int:
        """Bytes of restored copies whose originals are still in the archive tier. 0 if a restore creates no copies."""
        return (self.restored_bytes or 0) if self.copies else 0

    @property
    def summary(self) -> str:
        """Text such as "2 of 8 files archived, 1.5 MiB of 9.0 MiB; 1 restored"."""
        bytes_ = "" if self.archived_bytes is None else f", {size(self.archived_bytes)} of {size(self.bytes)}"
        restored = f"; {self.restored_files:,} restored" if self.restored_files else ""
        return f"{self.archived_files:,} of {counted(self.files, 'file')} archived{bytes_}{restored}"

    def priced(self, rates: Prices | None) -> Share:
        """Return a copy with monthly costs, or the object itself if storage prices or archived bytes are unknown."""
        active, cold = self.active_bytes, self.cold_bytes
        if rates is None or active is None or cold is None:
            return self
        month = rates.monthly_cost(active, cold, self.copied_bytes)
        if month is None:
            return self
        cost, saving = month
        return replace(self, month_cost=cost, month_saving=saving, currency=rates.currency)


def share(
    spark: SparkSession,
    source: Source,
    now: datetime,
    tiers: TierStore | None = None,
    table: TableInfo | None = None,
) -> Share:
    """Return the number and bytes of all files of a table, and of the files that count as archived at `now`.

    If `tiers` is None, the fields for restored files are None. On Databricks, `archived_bytes` also needs `tiers`.
    """
    if is_databricks(spark):
        archived = list(DatabricksEngine(spark).needed(source, None, now).files)
        table = read_table_info(spark, source, counted=True)
        # The table may have changed between these two statements.
        count = max(table.files, len(archived))
        measured = Share(str(source), count, table.bytes, len(archived), None if archived else 0)
    else:
        files, archived = all_and_archived(spark, source, now, table)
        measured = replace(share_of(source, files, archived), bytes_by_age=ages_of(files, now))
    if tiers is None:
        return measured
    facts = tiers.facts([file.uri for file in archived]).values()
    restored = [each for each in facts if each.tier.is_readable]
    return replace(
        measured,
        archived_bytes=_known_bytes(facts) if measured.archived_bytes is None else measured.archived_bytes,
        restored_files=len(restored),
        restored_bytes=_bytes(restored),
        copies=tiers.restores_copies,
    )


def share_of(source: Source, files: Collection[DataFile], archived: Collection[DataFile]) -> Share:
    return Share(str(source), len(files), _bytes(files), len(archived), _known_bytes(archived))


def _bytes(files: Iterable[DataFile | TierFacts]) -> int:
    return sum(file.bytes or 0 for file in files)


def _known_bytes(files: Collection[DataFile | TierFacts]) -> int | None:
    """Return the total size of files, or None if the size of a file is unknown."""
    return None if any(file.bytes is None for file in files) else _bytes(files)


def ages_of(files: Iterable[DataFile], now: datetime) -> dict[str, int]:
    """Return the bytes of `files` in each age group, such as "30-90 d", youngest first.

    Empty groups have 0 bytes. If the ages of files are unknown, these files are in the last group.
    """
    labels = [*(f"{first}-{end} d" for first, end in pairwise(_AGES)), f"{_AGES[-1]} d on"]
    bytes_by_label = dict.fromkeys(labels, 0)
    for file in files:
        days = None if file.created is None else max(0, (now - file.created) // timedelta(days=1))
        label = _UNKNOWN if days is None else labels[bisect_right(_AGES, days) - 1]
        bytes_by_label[label] = bytes_by_label.get(label, 0) + (file.bytes or 0)
    return bytes_by_label


@dataclass(frozen=True, slots=True)
class FailingQuery:
    """Query that would fail with a simulated interval, and number and bytes of the archived files that it needs."""

    query: str
    """SQL condition on the rows of the table."""
    files: int
    bytes: int

    def __str__(self) -> str:
        return f"{' '.join(self.query.split())} needs {counted(self.files, 'archived file')}, {size(self.bytes)}"


@row
class Simulation(Row):
    """Effect that an archive interval would have on a table: archived files, failing queries and monthly costs."""

    table: str
    days: int = shown("interval", lambda days: counted(days, "day"), right=True)
    version: int
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    archived_files: int = shown("archived files")
    archived_bytes: int | None = shown("archived", size, right=True)
    queries: int | None = shown("queries")
    """Number of queries that Spark could plan. None if no queries were given."""
    failing: int | None = shown("failing")
    """Number of queries that would fail, because they need archived files. None if no queries were given."""
    failing_queries: tuple[FailingQuery, ...]
    month_cost: float | None = shown("cost per month", lambda cost: f"{cost:,.2f}", right=True)
    month_saving: float | None = shown("saving", lambda saving: f"{saving:,.2f}", right=True)
    currency: str | None = shown("currency")

    def remarks(self) -> Sequence[str]:
        return [f"{counted(self.days, 'day')}: {query}" for query in self.failing_queries]


def simulate(
    spark: SparkSession,
    source: Source,
    intervals: Sequence[int],
    queries: Sequence[str],
    rates: Prices | None,
    now: datetime,
) -> tuple[list[Simulation], list[str]]:
    """Return the effect of archive intervals (in days) on a table, and a note for each query that cannot be planned.

    `queries` are SQL conditions on the rows of the table.

    Raises `simulation_impossible` on Databricks, or if the Delta log or the query plans cannot be read, and
    `no_query_plan` with Spark Connect.
    """
    if is_databricks(spark):
        raise simulation_impossible(table=str(source), reason="Databricks does not show which files a query reads")
    version = versions.newest_version(spark, source)
    try:
        known = OpenSourceEngine(spark).files(source, version)
        # Planning one read shows whether this Spark shows plans at all.
        files_read_by(reader.read_version(spark, source, version).where("false"))
    except MirrorfeedError:
        raise
    except Exception as error:
        raise simulation_impossible(table=str(source), reason=first_line(str(error))) from error
    planned: list[tuple[str, list[str]]] = []
    notes = []
    for query in queries:
        try:
            rows_at_version = reader.read_version(spark, source, version)
            planned.append((query, files_read_by(apply_condition(rows_at_version, str(source), query))))
        except (PySparkException, MirrorfeedError) as error:
            notes.append(f"{' '.join(query.split())} cannot be planned: {first_line(str(error))}")
    rows = []
    for days in intervals:
        archived = {file.uri: file for file in select_archived(known.values(), Policy(days), now)}
        failing = tuple(
            FailingQuery(query, len(files), _bytes(files))
            for query, needed in planned
            if (files := [archived[uri] for uri in needed if uri in archived])
        )
        measured = share_of(source, known.values(), archived.values()).priced(rates)
        rows.append(
            Simulation(
                str(source),
                days,
                version,
                measured.files,
                measured.bytes,
                measured.archived_files,
                measured.archived_bytes,
                len(planned) if queries else None,
                len(failing) if queries else None,
                failing,
                measured.month_cost,
                measured.month_saving,
                measured.currency,
            )
        )
    return rows, notes


def read_conditions(path: str) -> list[str]:
    """Return the SQL conditions in a UTF-8 file, one per line. Raises `invalid_conditions_file` if the file cannot be
    read.
    """
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise invalid_conditions_file(path=path, reason=str(error)) from error
    return [line for line in lines if line and not line.startswith("--")]
