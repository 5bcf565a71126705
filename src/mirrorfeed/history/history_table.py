"""A history as a Delta table: what it holds, and the one commit that appends to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.interval import understood
from mirrorfeed.history.columns import places
from mirrorfeed.history.errors import HistoryChanged, NamesTaken, NotAHistory
from mirrorfeed.history.record import Change, Chapter, KeptColumn, Record, by_hand, disorder, parse
from mirrorfeed.landing.names import fold
from mirrorfeed.source.errors import NoTableAtPath, SourceMissing
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.ranges import Commit, Facts
from mirrorfeed.source.table_info import TableInfo, count_rows, open_local_table, read_table_info
from mirrorfeed.source.versions import read_history

_OWN = {
    "_commit_date": "date",
    "_change_type": "string",
    "_commit_version": "bigint",
    "_commit_timestamp": "timestamp",
    "_record_number": "bigint",
    "_record_time": "timestamp",
    "_record": "string",
}
"""A history's columns beside those of its source. Rows have the first four, records the other three and no date: they
stand in a partition of their own, which is read without any row."""
_RECORDS = "_commit_date IS NULL"
_RECORD = ["_record_number", "_record"]
_RUN = "mirrorfeed.history"
"""With a record's number Delta takes it once, whoever sends it how often."""
_MAPPING = "delta.columnMapping.mode"
_SECONDS_A_DAY = 86_400
_FEW = 16
"""Commits that are asked for at once: mostly they reach back to the newest record, and more may come meanwhile."""


@dataclass(frozen=True)
class Seen:
    """A history at one version of it."""

    version: int
    records: tuple[Record, ...]
    """In their order; of a history with archived files those alone that are read without them, if there are any."""
    columns: Mapping[str, str]
    """The names of its columns and their types, in JSON."""
    archive_days: int | None
    """From which age on its files count as archived; None where they never do."""
    mapped: bool
    """Whether its columns may have any names."""

    @property
    def newest(self) -> Record | None:
        return self.records[-1] if self.records else None

    @property
    def number(self) -> int:
        return self.newest.number if self.newest else 0

    @property
    def total(self) -> int:
        return self.newest.total if self.newest else 0


@dataclass(frozen=True)
class HistoryTable:
    spark: SparkSession
    place: Source

    def look(self) -> Seen | None:
        """What it holds; None where there is none yet. Or `HistoryChanged`, where that is not what was kept."""
        try:
            found = read_table_info(self.spark, self.place)
        except (SourceMissing, NoTableAtPath):
            return None
        changes = self._changes(_FEW)
        version = changes[-1].version
        columns = {each["name"]: json.dumps(each["type"], sort_keys=True) for each in _fields(self._at(version))}
        if missing := [name for name in _OWN if name not in columns]:
            raise NotAHistory(table=str(self.place), missing=missing[0])
        archived = understood(str(self.place), found.properties)
        archive_days = archived.days if archived else None
        mapped = maps_columns(found)
        count, records = self._held(version, archive_days, mapped=mapped)
        seen = Seen(version, records, columns, archive_days, mapped)
        if count != seen.total:
            raise HistoryChanged(
                history=str(self.place), reason=f"it has {count:,} rows, and its records account for {seen.total:,}"
            )
        if seen.newest:
            self._refuse_hands(changes, version, seen.newest)
        return seen

    def create(self, *, mapped: bool) -> None:
        """An empty history, if there is none."""
        listed = ", ".join(f"{name} {type_}" for name, type_ in _OWN.items())
        properties = {"delta.appendOnly": "true", **({_MAPPING: "name"} if mapped else {})}
        spelled = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.place.sql} ({listed}) USING DELTA PARTITIONED BY (_commit_date)"
            f" TBLPROPERTIES ({spelled})"
        )

    def map_columns(self) -> None:
        """For names that Delta takes no other way."""
        self.spark.sql(f"ALTER TABLE {self.place.sql} SET TBLPROPERTIES ('{_MAPPING}' = 'name')")

    def records(self, seen: Seen) -> Sequence[Record]:
        """All, in their order; or `HistoryChanged`."""
        found = seen.records if seen.archive_days is None else self._records(seen.version, None)
        if fault := disorder(found):
            raise HistoryChanged(history=str(self.place), reason=fault)
        return found

    def append(self, rows: DataFrame | None, record: Record) -> None:
        """One commit: the rows, as `kept_rows` spells them, and the record. Delta leaves out what it took before."""
        told = self.spark.range(1).select(
            F.lit(record.number).cast("bigint").alias("_record_number"),
            _moment(record.time).alias("_record_time"),
            F.lit(record.to_json()).alias("_record"),
            F.lit(None).cast("date").alias("_commit_date"),
        )
        whole = told if rows is None else rows.unionByName(told, allowMissingColumns=True)
        writer = whole.writeTo(self.place.sql).option("mergeSchema", "true").option("userMetadata", record.batch)
        writer.option("txnAppId", _RUN).option("txnVersion", str(record.number)).append()

    def rows(self, seen: Seen, chapter: Chapter, after: int, to: int) -> DataFrame:
        """The rows of the versions `after + 1` to `to` of a chapter, as the feed has them, in the columns of the last;
        or `HistoryChanged` where they are not those that were kept."""
        asked = [each for each in chapter if each.commits]
        asked = [each for each in asked if each.commits[-1].version > after and each.commits[0].version <= to]
        self._check(seen, asked)
        found = self._kept(seen, asked).where(F.col("_commit_version").between(after + 1, to))
        values = [_value(column, spans).alias(column.name) for column, spans in places(chapter, to)]
        return found.select(*values, "_change_type", "_commit_version", "_commit_timestamp")

    def _check(self, seen: Seen, records: Sequence[Record]) -> None:
        """Whether each of these records still has all of its rows, and no more."""
        counted = self._kept(seen, records).groupBy("_commit_version").count().collect()
        for record in records:
            versions = {commit.version for commit in record.commits}
            count = sum(row["count"] for row in counted if row["_commit_version"] in versions)
            if count != record.rows:
                reason = f"record {record.number} was kept with {record.rows:,} rows, and {count:,} are there"
                raise HistoryChanged(history=str(self.place), reason=reason)

    def _kept(self, seen: Seen, records: Sequence[Record]) -> DataFrame:
        """The rows of records that follow each other, or `ArchivedFilesNeeded` before any is read."""
        commits = [commit for record in records for commit in record.commits]
        days = [day_of(commit.timestamp) for commit in commits] or [date.min]
        versions = [commit.version for commit in commits] or [-1]
        where = (
            f"_commit_date BETWEEN DATE'{min(days)}' AND DATE'{max(days)}'"
            f" AND _commit_version BETWEEN {min(versions)} AND {max(versions)}"
        )
        if seen.archive_days is None:
            return self._at(seen.version).where(where)
        from mirrorfeed.archive.guard.table import GuardedTable  # brings the clients of stores, and few runs need it
        from mirrorfeed.storage.tiers import tiers_at

        tiers = tiers_at(read_table_info(self.spark, self.place).location)
        return GuardedTable(self.spark, self.place, tiers).query(where, version=seen.version)

    def _held(self, version: int, archive_days: int | None, *, mapped: bool) -> tuple[int, tuple[Record, ...]]:
        """How many rows, and the records. Spark takes two jobs for it, so it is asked only where the table is not in a
        folder of this machine, has files in an archive, or other names in its files."""
        here = None if mapped or archive_days is not None else open_local_table(self.place, version)
        if here is not None and (count := count_rows(here)) is not None:
            import pyarrow.dataset as ds

            with suppress(OSError):  # a file is not there: Spark will say which
                found = here.to_pyarrow_dataset().to_table(_RECORD, ds.field("_commit_date").is_null())
                return count, self._parsed(zip(*(found[name].to_pylist() for name in _RECORD), strict=True))
        return self._at(version).count(), self._hot(version, archive_days)

    def _hot(self, version: int, archive_days: int | None) -> tuple[Record, ...]:
        """The records, from hot files alone, where the table has archived ones and a record is among the hot."""
        hot: tuple[Record, ...] = ()
        if archive_days is not None:
            hot = self._records(version, datetime.now(UTC) - timedelta(days=archive_days))
        return hot or self._records(version, None)

    def _records(self, version: int, since: datetime | None) -> tuple[Record, ...]:
        rows = self._at(version).where(_RECORDS)
        if since is not None:
            rows = rows.where(F.col("_record_time") > _moment(since))
        return self._parsed(rows.select(_RECORD).collect())

    def _parsed(self, numbered: Iterable[tuple[int, str]]) -> tuple[Record, ...]:
        return tuple(parse(text, str(self.place)) for _, text in sorted(numbered))

    def _refuse_hands(self, told: Sequence[Change], version: int, newest: Record) -> None:
        """Raises `HistoryChanged` where anyone else changed rows since the newest record was made, as far as the log
        still tells of that; these commits are known of it already."""
        if told[0].version > newest.base + 1:
            told = self._changes(version - newest.base + _FEW)
        since = [change for change in told if newest.base < change.version <= version]
        if change := by_hand(since, newest.batch):
            raise HistoryChanged(
                history=str(self.place),
                reason=f"its version {change.version} was made by someone else's {change.operation}",
            )

    def _changes(self, most: int) -> list[Change]:
        """The newest commits, ascending."""
        return [
            Change(row["version"], row["operation"], row["userMetadata"], row["operationParameters"] or {})
            for row in read_history(self.spark, self.place, most)
        ]

    def _at(self, version: int) -> DataFrame:
        return self.spark.read.option("versionAsOf", version).table(self.place.sql)


def kept_rows(feed: DataFrame, columns: Sequence[KeptColumn]) -> DataFrame:
    """Rows of the feed under the names that they have in the history."""
    version, at = F.col("_commit_version").cast("bigint"), F.col("_commit_timestamp")
    day = F.date_from_unix_date(F.floor(F.unix_seconds(at) / _SECONDS_A_DAY).cast("int"))
    values = [F.col(quote(each.name)).alias(each.kept_as, metadata={}) for each in columns]
    return feed.select(day.alias("_commit_date"), "_change_type", version.alias("_commit_version"), at, *values)


def as_inserts(snapshot: DataFrame, commit: Commit) -> DataFrame:
    """The rows of a snapshot as the feed would have them, had its commit made them all."""
    return snapshot.select(
        "*",
        F.lit("insert").alias("_change_type"),
        F.lit(commit.version).cast("bigint").alias("_commit_version"),
        _moment(commit.timestamp).alias("_commit_timestamp"),
    )


def maps_columns(table: TableInfo | Facts) -> bool:
    """Whether its columns may have names that Delta takes no other way."""
    return table.properties.get(_MAPPING, "none") != "none"


def refuse_names(table: str, schema: Mapping[str, Any]) -> None:
    own = {fold(name) for name in _OWN}
    if taken := [field["name"] for field in schema["fields"] if fold(field["name"]) in own]:
        raise NamesTaken(table=table, columns=taken)


def day_of(moment: datetime) -> date:
    """As partitions are named: in UTC, whatever the session's time zone is."""
    return moment.astimezone(UTC).date()


def _fields(rows: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(rows.schema.json())["fields"]
    return found


def _moment(at: datetime) -> Column:
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return F.timestamp_micros(F.lit(micros).cast("bigint"))


def _value(column: KeptColumn, spans: Sequence[tuple[int, str | None]]) -> Column:
    """Where the values of a column are depends on the version of the row."""
    *earlier, (_, last) = spans
    found = F.lit(None) if last is None else F.col(quote(last))
    for to, name in reversed(earlier):
        value = F.lit(None) if name is None else F.col(quote(name))
        found = F.when(F.col("_commit_version") <= to, value).otherwise(found)
    return found
