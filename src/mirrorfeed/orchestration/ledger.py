"""The ledger: a Delta table with a row for every publication, every failure, every verification and every look at how
much of a table is archived. For people and dashboards.

It is written after the fact, and nothing is decided by it: losing it, or failing to write it, harms nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import SparkSession, Window
from pyspark.sql.functions import col, expr, row_number

from mirrorfeed.display.printable import shell_argument
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.publish.errors import LedgerNotWritten
from mirrorfeed.publish.result import Publication, TableResult
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.errors import Finding
from mirrorfeed.source.identifier import Source, quote

if TYPE_CHECKING:
    from mirrorfeed.archive.archived_share import Share
    from mirrorfeed.mirror.verify import Comparison
    from mirrorfeed.storage.prices import Prices

PUBLISHED, WELL, FINDING, FAILED, RESEEDED = "published", "well", "finding", "failed", "reseeded"
VERIFIED, DIFFERENT, UNVERIFIED = "verified", "different", "unverified"
ARCHIVE, WATCHED = "archive", "watched"

STOPPED = (FINDING, FAILED)
STANDS = (PUBLISHED, WELL, *STOPPED)
"""The newest of these says whether a table is being published, or what stopped it."""
COMPARED = (VERIFIED, DIFFERENT)
"""The newest of these says whether its mirror was right: no publication in between takes a difference back."""
WRONG = (FINDING, FAILED, RESEEDED, DIFFERENT, UNVERIFIED)

COLUMNS = (
    ("time", "timestamp", "When it was recorded, or when it failed"),
    ("table", "string", "The target; for archive the table itself"),
    (
        "outcome",
        "string",
        "published, well (nothing stands in its way any more, and nothing is new), finding (the history forbids to go"
        " on), failed, reseeded (started again from a snapshot), verified (the mirror is equal), different (it is not),"
        " unverified (it cannot be compared), archive or watched (how far what was committed has come)",
    ),
    (
        "from_version",
        "bigint",
        "The range is after this version of the source; NULL for a snapshot, to_version for a repair",
    ),
    ("to_version", "bigint", "The last version of the range, or the one that was compared"),
    ("inserts", "bigint", "Rows by marker"),
    ("updates", "bigint", "Rows by marker"),
    ("upserts", "bigint", "Rows by marker"),
    ("deletes", "bigint", "Rows by marker"),
    ("files", "bigint", "Data files"),
    ("bytes", "bigint", "Of these files"),
    ("stage_seconds", "double", "For reading the feed and writing the files"),
    ("record_seconds", "double", "For the record that commits them"),
    ("rename_seconds", "double", "For giving them their final names; NULL if the run ended before"),
    ("lag_versions", "bigint", "Versions of the source that were not published then"),
    ("lag_seconds", "double", "From the commit of the first published version to the record"),
    ("tries", "bigint", "How often the run had to try"),
    ("retries", "bigint", "How often calls to the landing zone were repeated for its files"),
    ("archived_share", "double", "Of its bytes, or of its files where bytes are not told"),
    ("archived_files", "bigint", "Its files that count as archived"),
    ("archived_bytes", "bigint", "Of these files; NULL where they are not told"),
    ("restored_bytes", "bigint", "Of those among them that were brought back; NULL where no storage was asked"),
    ("hot_bytes", "bigint", "Of its other files, and of those that were brought back"),
    ("bytes_by_age", "map<string, bigint>", "Its bytes by the age of their files; NULL on Databricks"),
    ("month_cost", "double", "For a month of storing them, by the prices in the configuration"),
    ("month_saving", "double", "Of what a month would cost if all were hot"),
    ("currency", "string", "Of these prices"),
    ("committed_at", "timestamp", "When the newest version of the source was committed"),
    ("published_at", "timestamp", "When the newest files were published"),
    ("consumed_at", "timestamp", "When the newest files that Fabric has consumed were published"),
    ("mirrored_at", "timestamp", "When the mirror was last written"),
    ("queryable_at", "timestamp", "When the SQL endpoint last loaded new changes"),
    (
        "published_lag_seconds",
        "double",
        "Seconds for which changes waited for this step: 0 if none did, NULL if unknown",
    ),
    ("consumed_lag_seconds", "double", "As published_lag_seconds"),
    ("mirrored_lag_seconds", "double", "As published_lag_seconds"),
    ("queryable_lag_seconds", "double", "As published_lag_seconds"),
    (
        "freshness_target_minutes",
        "double",
        "Minutes in which a commit was to be visible, as the table says; NULL where it does not",
    ),
    ("error", "string", "The kind of the failure"),
    ("message", "string", "What happened, and what to do next"),
    ("build", "string", "The mirrorfeed that wrote the row"),
)
_WHICH_END = {"from_version": "from_version_exclusive", "to_version": "to_version_inclusive"}
_ALWAYS = ("time", "table", "outcome")
"""Every ledger has these."""


def _ddl(columns: Iterable[tuple[str, str, str]] = COLUMNS) -> str:
    return ", ".join(f"{quote(name)} {type_} COMMENT '{comment}'" for name, type_, comment in columns)


class PublicationKey(NamedTuple):
    """By which a publication is known in the ledger, beside its table."""

    time: datetime
    from_version: int | None
    to_version: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """As the columns above, in their order."""

    time: datetime
    table: str
    outcome: str
    from_version: int | None = None
    to_version: int | None = None
    inserts: int = 0
    updates: int = 0
    upserts: int = 0
    deletes: int = 0
    files: int = 0
    bytes: int = 0
    stage_seconds: float | None = None
    record_seconds: float | None = None
    rename_seconds: float | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    tries: int = 1
    retries: int = 0
    archived_share: float | None = None
    archived_files: int | None = None
    archived_bytes: int | None = None
    restored_bytes: int | None = None
    hot_bytes: int | None = None
    bytes_by_age: Mapping[str, int] | None = None
    month_cost: float | None = None
    month_saving: float | None = None
    currency: str | None = None
    committed_at: datetime | None = None
    published_at: datetime | None = None
    consumed_at: datetime | None = None
    mirrored_at: datetime | None = None
    queryable_at: datetime | None = None
    published_lag_seconds: float | None = None
    consumed_lag_seconds: float | None = None
    mirrored_lag_seconds: float | None = None
    queryable_lag_seconds: float | None = None
    freshness_target_minutes: float | None = None
    error: str | None = None
    message: str | None = None
    build: str | None = None

    @property
    def told(self) -> PublicationKey:
        return PublicationKey(self.time, self.from_version, self.to_version)


@dataclass
class Known:
    """What the ledger tells of a table."""

    stopped: bool = False
    publications: list[PublicationKey] = field(default_factory=list)
    """The newest, the oldest first."""


def rows(outcomes: Iterable[TableResult], now: datetime) -> list[Row]:
    """What a run did, table by table: its publications, then what stopped it. Nothing new is no row."""
    found: list[Row] = []
    for outcome in outcomes:
        found += [_published(outcome, publication) for publication in outcome.progress.made]
        if outcome.reseeded:
            found.append(_trouble(outcome, RESEEDED, outcome.reseeded, now))
        if outcome.error:
            kind = FINDING if isinstance(outcome.error, Finding) else FAILED
            found.append(_trouble(outcome, kind, outcome.error, now))
    return found


def told(row: Row, error: MirrorfeedError | None = None) -> dict[str, Any]:
    """A row of this build, with its error whole."""
    return {**named(replace(row, build=this_build())), "error": error}


def named(row: Row) -> dict[str, Any]:
    """Under the names of the columns, but that those of the versions say which end is included."""
    return {_WHICH_END.get(name, name): value for name, value in asdict(row).items()}


def verified(table: str, found: Comparison | MirrorfeedError, now: datetime) -> Row:
    """What a comparison with the mirror found, or why there was none. Counts alone: whoever may read the ledger may not
    be one who may read the rows."""
    if isinstance(found, MirrorfeedError):
        return Row(now, table, UNVERIFIED, error=type(found).__name__, message=str(found))
    if found.equal:
        return Row(now, table, VERIFIED, to_version=found.version, message=f"{found}.")
    message = f"{found}. `mirrorfeed verify {shell_argument(table)}` shows the first of them."
    return Row(now, table, DIFFERENT, to_version=found.version, message=message)


def archived(table: str, found: Share, now: datetime, rates: Prices | None = None) -> Row:
    hot, cold = found.active_bytes, found.cold_bytes
    month = (
        rates.monthly_cost(hot, cold, found.copied_bytes) if rates and hot is not None and cold is not None else None
    )
    return Row(
        now,
        table,
        ARCHIVE,
        archived_share=found.archived,
        archived_files=found.archived_files,
        archived_bytes=found.archived_bytes,
        restored_bytes=found.restored_bytes,
        hot_bytes=hot,
        bytes_by_age=dict(found.bytes_by_age) if found.bytes_by_age is not None else None,
        month_cost=month.cost if month else None,
        month_saving=month.saving if month else None,
        currency=rates.currency if rates and month else None,
        message=f"{found.summary}.",
    )


def _trouble(outcome: TableResult, kind: str, error: MirrorfeedError, now: datetime) -> Row:
    return Row(
        time=now,
        table=outcome.table,
        outcome=kind,
        from_version=outcome.progress.published,
        lag_versions=outcome.lag_versions,
        tries=outcome.tries,
        error=type(error).__name__,
        message=str(error),
    )


def _published(outcome: TableResult, publication: Publication) -> Row:
    record, seconds, oldest = publication.record, publication.seconds, publication.oldest

    def count(marker: str) -> int:
        return sum(file.rows.get(marker, 0) for file in record.files)

    return Row(
        time=record.at,
        table=outcome.table,
        outcome=PUBLISHED,
        from_version=record.from_version_exclusive,
        to_version=record.to_version_inclusive,
        inserts=count("insert"),
        updates=count("update"),
        upserts=count("upsert"),
        deletes=count("delete"),
        files=len(record.files),
        bytes=sum(file.bytes for file in record.files),
        stage_seconds=seconds.get("stage"),
        record_seconds=seconds.get("record"),
        rename_seconds=seconds.get("rename"),
        lag_versions=None if publication.latest is None else publication.latest - record.to_version_inclusive,
        lag_seconds=None if oldest is None else max(0.0, (record.at - oldest).total_seconds()),
        tries=outcome.tries,
        retries=publication.retries,
        freshness_target_minutes=outcome.freshness_target_minutes,
    )


def prepare(spark: SparkSession, ledger: Source) -> None:
    """Makes the table, or the columns that the ledger of an older release lacks, so that all that is asked of it has an
    answer; or `LedgerNotWritten`."""
    try:
        spark.sql(f"CREATE TABLE IF NOT EXISTS {ledger.sql} ({_ddl()}) USING DELTA")
        there = spark.read.table(ledger.sql).columns
        _check(there)  # or any table that is named by mistake would be given columns
        if lacking := [column for column in COLUMNS if column[0] not in there]:
            spark.sql(f"ALTER TABLE {ledger.sql} ADD COLUMNS ({_ddl(lacking)})")
    except Exception as error:
        raise LedgerNotWritten(ledger=str(ledger), reason=first_line(str(error))) from error


def begin(spark: SparkSession, ledger: Source | None) -> None:
    """Before a run, for who looks meanwhile. What stands in its way is told of the rows that are lost by it."""
    if ledger is not None:
        with suppress(MirrorfeedError):
            prepare(spark, ledger)


def append(spark: SparkSession, ledger: Source, new: Sequence[Row]) -> None:
    """Adds the rows in one commit, as those of this build; or `LedgerNotWritten`."""
    if not new:
        return
    prepare(spark, ledger)
    try:
        # By name, for the ledger of a later release may have more columns.
        frame = spark.createDataFrame([astuple(replace(row, build=this_build())) for row in new], _ddl())
        frame.writeTo(ledger.sql).append()
    except Exception as error:
        raise LedgerNotWritten(ledger=str(ledger), reason=first_line(str(error))) from error


def _check(columns: Sequence[str]) -> None:
    if lacking := [name for name in _ALWAYS if name not in columns]:
        raise ValueError(f"it is no ledger, for it has no column {lacking[0]!r}")


def as_of_this_release(spark: SparkSession, ledger: Source) -> str:
    """Return a query for all rows. Columns that the ledger of an older release does not have are NULL."""
    there = spark.read.table(ledger.sql).columns
    columns = (
        quote(name) if name in there else f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_, _ in COLUMNS
    )
    return f"SELECT {', '.join(columns)} FROM {ledger.sql}"


def known(spark: SparkSession, ledger: Source, tables: Iterable[str], most: int, since: datetime) -> dict[str, Known]:
    """What the ledger tells of each of the tables that it knows: of publications so many, and all since then."""
    stands = spark.read.table(ledger.sql).where(col("table").isin(*tables) & col("outcome").isin(*STANDS))
    of_a_kind = Window.partitionBy("table", col("outcome") == PUBLISHED).orderBy(col("time").desc())
    newest = stands.withColumn("nth", row_number().over(of_a_kind)).where((col("nth") <= most) | (col("time") >= since))
    return known_in(newest.select("table", "outcome", *PublicationKey._fields).orderBy("time").toArrow().to_pylist())


def known_in(rows: Iterable[dict[str, Any]]) -> dict[str, Known]:
    """By rows of their publications and of what stopped them, the oldest first."""
    found: dict[str, Known] = {}
    for row in rows:
        there = found.setdefault(row.pop("table"), Known())
        there.stopped = (outcome := row.pop("outcome")) in STOPPED
        if outcome == PUBLISHED:
            there.publications.append(PublicationKey(**row))
    return found


def changed_since(spark: SparkSession, ledger: Source, tables: Iterable[str], since: datetime) -> int:
    """The bytes of the files that were published of these tables since then, without those of snapshots."""
    of_changes = (col("outcome") == PUBLISHED) & col("from_version").isNotNull() & (col("time") >= since)
    row = spark.read.table(ledger.sql).where(of_changes & col("table").isin(*tables)).agg(expr("sum(bytes)")).first()
    return int(row[0] or 0) if row else 0


def well(outcome: TableResult, now: datetime) -> Row:
    return Row(
        time=now,
        table=outcome.table,
        outcome=WELL,
        from_version=outcome.progress.published,
        lag_versions=outcome.lag_versions,
        tries=outcome.tries,
        message="Nothing stands in its way, and nothing is new.",
    )


def keep(spark: SparkSession, ledger: Source | None, new: Sequence[Row]) -> MirrorfeedError | None:
    """Adds the rows, where a ledger is named. What went wrong is told, never raised."""
    if ledger is None:
        return None
    try:
        append(spark, ledger, new)
    except MirrorfeedError as error:
        return error
    return None
