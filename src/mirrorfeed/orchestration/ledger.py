"""The ledger: a Delta table with a row per publication, failure, verification and check. It is optional."""

# `_column` returns a field:
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, astuple, dataclass, field, fields, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

from mirrorfeed.display.redact import shell_argument
from mirrorfeed.display.rows import MARKERS
from mirrorfeed.errors import MirrorfeedError, error_name, first_line
from mirrorfeed.landing.log_record import Record
from mirrorfeed.orchestration.errors import LedgerNotWrittenError
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.errors import PublicationBlockedError
from mirrorfeed.source.identifier import Source, quote

if TYPE_CHECKING:
    from mirrorfeed.archive.archive_report import Share
    from mirrorfeed.mirror.verify.row_comparison import RowComparison

PUBLISHED, RECOVERED, BLOCKED, FAILED, RESEEDED = "published", "recovered", "blocked", "failed", "reseeded"
UNCHANGED, ADOPTED = "unchanged", "adopted"
VERIFIED, DIFFERENT, UNVERIFIED = "verified", "different", "unverified"
ARCHIVE, WATCHED = "archive", "watched"

STOPPED = (BLOCKED, FAILED)
RECORD_OUTCOMES = (PUBLISHED, ADOPTED)
"""Outcomes of rows for a record of a table's log."""
STATE_OUTCOMES = (*RECORD_OUTCOMES, RECOVERED, UNCHANGED, *STOPPED)
"""Outcomes of publishing. The newest row of a table with one of them shows whether an error stopped publishing."""
COMPARISON_OUTCOMES = (VERIFIED, DIFFERENT)
"""Outcomes of a verification. The newest row of a table with one of them shows whether mirror and source are equal."""
ATTENTION_OUTCOMES = (BLOCKED, FAILED, RESEEDED, DIFFERENT, UNVERIFIED)


def any_of(outcomes: Iterable[str]) -> str:
    """Return the SQL condition that an outcome is one of `outcomes`. The name of the column must precede it."""
    return "IN ({})".format(", ".join(f"'{outcome}'" for outcome in outcomes))


_PROPERTIES = "'delta.dataSkippingNumIndexedCols' = '3', 'delta.logRetentionDuration' = 'interval 7 days'"
"""A run adds a commit to the ledger every minute, so the log keeps few commits, and few statistics of each file."""
_ALWAYS = ("time", "table", "outcome")
"""Columns that every ledger has. A table without them is not a ledger."""


class PublicationKey(NamedTuple):
    """Time and versions of a ledger row, which identify a publication of a table."""

    time: datetime
    from_version: int | None
    to_version: int | None


def _column(type_: str, comment: str, default: Any = None) -> Any:
    return field(default=default, metadata={"type": type_, "comment": comment})


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Row of the ledger. The fields are the columns of the Delta table."""

    time: datetime = _column("timestamp", "Time of the record, or of the failure", MISSING)
    table: str = _column("string", "The target; for archive the table itself", MISSING)
    outcome: str = _column(
        "string",
        "Of publishing: published, failed, recovered (no error any more, and nothing new), blocked (the state of the"
        " source prevents publishing) or reseeded (reloaded from a snapshot). Files of another publisher are continued:"
        " adopted. Nothing new for a month: unchanged."
        " Of a comparison: verified (source and mirror are equal), different or unverified (they cannot be compared)."
        " Otherwise: archive (archived files of the table) or watched (lag of each step)",
        MISSING,
    )
    from_version: int | None = _column(
        "bigint", "The range starts after this source version; NULL for a snapshot, to_version for a repair"
    )
    to_version: int | None = _column("bigint", "The last version of the range, or the compared one")
    verified_through: int | None = _column(
        "bigint",
        "After a comparison: the newest version at which source and mirror are verified; NULL if there is none",
    )
    part: int | None = _column("bigint", "Number of the part of a first load in parts; NULL for other publications")
    parts: int | None = _column("bigint", "Number of parts of this load")
    delivery: str | None = _column("string", "Delivery mode of a published table: upsert, soft_delete or append")
    inserts: int = _column("bigint", "Rows by marker", 0)
    updates: int = _column("bigint", "Rows by marker", 0)
    upserts: int = _column("bigint", "Rows by marker", 0)
    deletes: int = _column("bigint", "Rows by marker", 0)
    files: int = _column("bigint", "Data files", 0)
    bytes: int = _column("bigint", "Size of these files", 0)
    stage_seconds: float | None = _column("double", "Time for reading the feed and writing the files")
    record_seconds: float | None = _column("double", "Time for the record that commits them")
    rename_seconds: float | None = _column("double", "Time for the renames; NULL if the run ended earlier")
    lag_versions: int | None = _column("bigint", "Source versions that were not published at that time")
    lag_seconds: float | None = _column("double", "Time from the commit of the first published version to the record")
    tries: int = _column("bigint", "Attempts of the run", 1)
    retries: int = _column("bigint", "Repeated calls to the landing zone for its files", 0)
    archived_share: float | None = _column("double", "Share of bytes, or of files if bytes are unknown")
    archived_files: int | None = _column("bigint", "Files that count as archived")
    archived_bytes: int | None = _column("bigint", "Size of these files; NULL if unknown")
    restored_bytes: int | None = _column(
        "bigint", "Size of restored files among them; NULL if the storage was not read"
    )
    hot_bytes: int | None = _column("bigint", "Size of all other files and of restored files")
    bytes_by_age: Mapping[str, int] | None = _column(
        "map<string, bigint>", "Bytes by the age of the files; NULL on Databricks"
    )
    month_cost: float | None = _column("double", "Storage cost of a month, by the configured prices")
    month_saving: float | None = _column("double", "Saving compared with a month without archived files")
    currency: str | None = _column("string", "Currency of these prices")
    committed_at: datetime | None = _column("timestamp", "Commit time of the newest source version")
    published_at: datetime | None = _column("timestamp", "Publication time of the newest files")
    consumed_at: datetime | None = _column("timestamp", "Publication time of the newest files that Fabric has consumed")
    mirrored_at: datetime | None = _column("timestamp", "Time of the last write to the mirror")
    queryable_at: datetime | None = _column("timestamp", "Time when the SQL endpoint last loaded new changes")
    published_lag_seconds: float | None = _column(
        "double", "Seconds that the oldest change waited for this step; 0 if none waits, NULL if unknown"
    )
    consumed_lag_seconds: float | None = _column("double", "As published_lag_seconds")
    mirrored_lag_seconds: float | None = _column("double", "As published_lag_seconds")
    queryable_lag_seconds: float | None = _column("double", "As published_lag_seconds")
    freshness_target_minutes: float | None = _column(
        "double", "Freshness target of the table in minutes; NULL if it has none"
    )
    error: str | None = _column("string", "Class of the error")
    message: str | None = _column("string", "What happened, and what to do next")
    build: str | None = _column("string", "Version of mirrorfeed that wrote the row")
    utc_day: date | None = _column("date", "UTC day of the time. New ledgers are partitioned by it; NULL in older rows")

    @property
    def key(self) -> PublicationKey:
        return PublicationKey(self.time, self.from_version, self.to_version)


COLUMNS = tuple((each.name, each.metadata["type"], each.metadata["comment"]) for each in fields(LedgerRow))


def _ddl(columns: Iterable[tuple[str, str, str]] = COLUMNS) -> str:
    return ", ".join(f"{quote(name)} {type_} COMMENT '{comment}'" for name, type_, comment in columns)


@dataclass
class Known:
    """Publications of a table that the ledger has, and whether an error stopped publishing."""

    stopped: bool = False
    """True if the newest outcome of publishing is `blocked` or `failed`."""
    publications: list[PublicationKey] = field(default_factory=list)
    """Publications, oldest first. Publications before the first one are not known."""
    reported_at: datetime | None = None
    """Time of the newest row with an outcome of publishing. None if unknown."""


def rows(results: Iterable[TableResult], now: datetime) -> list[LedgerRow]:
    """Return a ledger row for each publication, and one with the time `now` for each automatic reload and error."""
    new: list[LedgerRow] = []
    for result in results:
        new += [_publication_row(result, record) for record in result.records]
        failed = BLOCKED if isinstance(result.error, PublicationBlockedError) else FAILED
        for outcome, error in ((RESEEDED, result.reseeded), (failed, result.error)):
            if error:
                new.append(state_row(result, outcome, now, str(error), error_name(error)))
    return new


def comparison_row(table: str, comparison: RowComparison | MirrorfeedError, now: datetime) -> LedgerRow:
    """Return the ledger row of a verification or its failure. The row contains no values of the compared tables."""
    if isinstance(comparison, MirrorfeedError):
        return LedgerRow(now, table, UNVERIFIED, error=error_name(comparison), message=str(comparison))
    if comparison.equal:
        return LedgerRow(now, table, VERIFIED, to_version=comparison.version, message=f"{comparison}.")
    message = f"{comparison}. `mirrorfeed verify {shell_argument(table)}` shows the first of them."
    return LedgerRow(now, table, DIFFERENT, to_version=comparison.version, message=message)


def archive_row(share: Share, now: datetime) -> LedgerRow:
    return LedgerRow(
        now,
        share.table,
        ARCHIVE,
        archived_share=share.archived,
        archived_files=share.archived_files,
        archived_bytes=share.archived_bytes,
        restored_bytes=share.restored_bytes,
        hot_bytes=share.active_bytes,
        bytes_by_age=dict(share.bytes_by_age) if share.bytes_by_age is not None else None,
        month_cost=share.month_cost,
        month_saving=share.month_saving,
        currency=share.currency,
        message=f"{share.summary}.",
    )


def state_row(result: TableResult, outcome: str, now: datetime, message: str, error: str | None = None) -> LedgerRow:
    return LedgerRow(
        now,
        result.table,
        outcome,
        from_version=result.published_version,
        lag_versions=result.lag_versions,
        tries=result.tries,
        error=error,
        message=message,
    )


def _publication_row(result: TableResult, record: Record) -> LedgerRow:
    measured: dict[str, Any] = {f"{marker}s": record.rows[marker] for marker in MARKERS}
    for name, value in result.measured.get(record.batch, {}).items():
        if name in LedgerRow.__dataclass_fields__:
            measured[name] = value
    return LedgerRow(
        time=record.at,
        table=result.table,
        outcome=ADOPTED if record.is_adoption else PUBLISHED,
        from_version=record.from_version_exclusive,
        to_version=record.to_version_inclusive,
        part=record.load.number if record.load else None,
        parts=len(record.load.slices) if record.load else None,
        delivery=record.delivery.mode,
        files=len(record.files),
        bytes=record.size,
        tries=result.tries,
        freshness_target_minutes=result.freshness_target_minutes,
        **measured,
    )


def prepare(spark: SparkSession, ledger: Source, on_create: Callable[[], None] = lambda: None) -> None:
    """Create the ledger or add missing columns. Calls `on_create` first if the ledger cannot be read.

    Raises `LedgerNotWrittenError` on failure, or if the table is no ledger.
    """
    try:
        try:
            columns = spark.read.table(ledger.sql).columns
        except Exception:  # usually because it does not exist. Otherwise the next statements raise the error.
            on_create()
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {ledger.sql} ({_ddl()}) USING DELTA PARTITIONED BY (`utc_day`)"
                f" TBLPROPERTIES ({_PROPERTIES})"
            )
            columns = spark.read.table(ledger.sql).columns
        if missing_names := [name for name in _ALWAYS if name not in columns]:  # another table, configured by mistake
            raise ValueError(f"it is not a ledger, because it has no column {missing_names[0]!r}")
        if missing := [column for column in COLUMNS if column[0] not in columns]:
            spark.sql(f"ALTER TABLE {ledger.sql} ADD COLUMNS ({_ddl(missing)})")
    except Exception as error:
        raise LedgerNotWrittenError(ledger=str(ledger), reason=first_line(str(error))) from error


def append(spark: SparkSession, ledger: Source | None, new: Sequence[LedgerRow]) -> LedgerNotWrittenError | None:
    """Append the rows `new` in one commit. Does nothing if `ledger` is None. Returns an error instead of raising it."""
    if ledger is None or not new:
        return None
    try:
        prepare(spark, ledger)
        # Append by name, because a ledger of a later release may have more columns.
        values = [replace(row, build=this_build(), utc_day=row.time.astimezone(UTC).date()) for row in new]
        frame = spark.createDataFrame([astuple(row) for row in values], _ddl()).coalesce(1)  # one file for each day
        frame.writeTo(ledger.sql).append()
    except LedgerNotWrittenError as error:
        return error
    except Exception as error:
        return LedgerNotWrittenError(ledger=str(ledger), reason=first_line(str(error)))
    return None


def all_rows_query(spark: SparkSession, ledger: Source, *, in_one_task: bool) -> str:
    """Return a SQL query for all rows of the ledger. Columns that an older ledger does not have are NULL.

    With `in_one_task`, one task reads the ledger, so that queries on it shuffle nothing.
    """
    existing = spark.read.table(ledger.sql).columns
    columns = (
        quote(name) if name in existing else f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_, _ in COLUMNS
    )
    hint = "/*+ COALESCE(1) */ " if in_one_task else ""
    return f"SELECT {hint}{', '.join(columns)} FROM {ledger.sql}"


def read_states(spark: SparkSession, ledger: Source, tables: Collection[str], since: datetime) -> dict[str, Known]:
    """Return for each of `tables` its newest publication since `since`, and whether an error stopped publishing.

    A table has no entry if the ledger has no row of publishing of the table since then.
    """
    key = ", ".join(map(quote, PublicationKey._fields))
    rows = spark.read.table(ledger.sql).where(
        (col("time") >= since) & col("outcome").isin(*STATE_OUTCOMES) & col("table").isin(*tables)
    )
    newest = rows.groupBy("table").agg(
        expr("max_by(outcome, `time`) AS outcome"),
        expr("max(`time`) AS reported_at"),
        expr(f"max_by(struct({key}), `time`) FILTER (WHERE outcome {any_of(RECORD_OUTCOMES)}) AS publication"),
    )
    return {
        row["table"]: Known(
            row["outcome"] in STOPPED,
            [PublicationKey(**row["publication"])] if row["publication"] else [],
            row["reported_at"],
        )
        for row in newest.toArrow().to_pylist()
    }


def find_publications(
    spark: SparkSession, ledger: Source, wanted: Iterable[LedgerRow]
) -> set[tuple[str, PublicationKey]]:
    """Return table and key of those of the `wanted` publications that the ledger has."""
    times = {row.time for row in wanted}
    key = list(PublicationKey._fields)
    rows = spark.read.table(ledger.sql).where(
        (col("time") >= min(times)) & col("outcome").isin(*RECORD_OUTCOMES) & col("time").isin(*times)
    )
    found = rows.select("table", *key).toArrow().to_pylist()
    return {(row.pop("table"), PublicationKey(**row)) for row in found}


def changed_since(spark: SparkSession, ledger: Source, tables: Iterable[str], since: datetime) -> int:
    """Return the number of bytes published for `tables` since the time `since`, without the bytes of snapshots."""
    is_range = (col("outcome") == PUBLISHED) & col("from_version").isNotNull() & (col("time") >= since)
    row = spark.read.table(ledger.sql).where(is_range & col("table").isin(*tables)).agg(expr("sum(bytes)")).first()
    return int(row[0] or 0) if row else 0
