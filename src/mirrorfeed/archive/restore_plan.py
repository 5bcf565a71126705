"""Create the restore plan of a query or of a range of the change data feed, as a value and as a file.

A plan names its query, the tables and their versions, so that several runs can execute it.

Azure and S3 restore differently. In Azure a file leaves the archive, which costs a fee within its first 180 days, and
the lifecycle rule archives the file again. S3 keeps the archived file and adds a temporary copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter
from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval, guard
from mirrorfeed.archive.archived_files import DataFile, NeededFiles, archived_of
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.errors import (
    BadPlan,
    FeedOnDatabricks,
    NoSuchRange,
    NothingToRestore,
    PlanExists,
    PlanNotWritten,
)
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.relative_times import fix_relative_times, moment
from mirrorfeed.display.humanize import size
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.landing.strict_json import CONFIG, Count, format_of, parse_json, validate
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source import reader, versions
from mirrorfeed.source.errors import Gap
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tiers import Priority

FORMAT: Literal[4] = 4
_STANDARD_HOURS = 15.0
_HIGH_HOURS = 1.0
_HIGH_BYTES_AN_HOUR = 10 * 2**30
"""Bytes that an account restores per hour with high priority. A smaller restore takes less than an hour."""


@dataclass(frozen=True, slots=True)
class Plan:
    __pydantic_config__: ClassVar = CONFIG
    tables: Annotated[tuple[NeededFiles, ...], Field(min_length=1)]
    priority: Literal["STANDARD", "HIGH"]
    where: str | None = None
    """Condition on the first table. Relative times such as current_date() are replaced."""
    feed_from: Count | None = None
    """First version of a range of the change data feed. The range ends with the version of the first table."""
    sql: str | None = None
    """Query, unless the plan is for a query on one table."""
    files_alone: bool = False
    """True if the plan restores files without running a query."""
    zone: str | None = None
    """Session time zone of the query."""
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    currency: str | None = None
    readable: tuple[str, ...] = ()
    """Files that were not archived when the plan was created, such as new deletion vectors. They are restored only if
    they are archived later."""
    format: Literal[4] = FORMAT

    @property
    def table(self) -> str:
        """First table, for messages."""
        return self.tables[0].table

    @property
    def version(self) -> int:
        return self.tables[0].version

    @property
    def files(self) -> tuple[DataFile, ...]:
        """Files of all tables and their deletion vectors, each once."""
        sizes: dict[str, int | None] = {}
        for file in (file for each in self.tables for file in each.files):
            sizes[file.uri] = file.bytes
            if file.deletion_vector:
                sizes.setdefault(file.deletion_vector, None)
        return tuple(DataFile(uri, sizes[uri]) for uri in sorted(sizes))

    @property
    def archived(self) -> tuple[DataFile, ...]:
        """Files that were archived when the plan was created."""
        return tuple(file for file in self.files if file.uri not in self.readable)

    @property
    def has_rows(self) -> bool:
        return self.feed_from is None and not self.files_alone

    @property
    def bytes(self) -> int:
        """Number of known bytes. Deletion vectors have no size in the log, and Databricks returns only file names."""
        return sum(file.bytes or 0 for file in self.archived)

    @property
    def hours(self) -> float:
        """Maximum hours, according to the storage service."""
        if not self.archived:
            return 0.0
        if self.priority == Priority.STANDARD.name:
            return _STANDARD_HOURS
        return max(_HIGH_HOURS, self.bytes / _HIGH_BYTES_AN_HOUR)

    def save(self, path: str) -> None:
        """Save the plan to a new file. Never replaces another plan, which may be in progress."""
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                file.write(_PLAN.dump_json(self, indent=1, exclude_none=True).decode())
        except FileExistsError as error:
            raise PlanExists(path=path) from error
        except OSError as error:
            raise PlanNotWritten(path=path, reason=error.strerror or type(error).__name__) from error

    @classmethod
    def load(cls, path: str) -> Plan:
        try:
            value = parse_json(Path(path).read_bytes())
            if (found := format_of(value)) != FORMAT:
                raise ValueError(f"its format is {found}, and this version reads {FORMAT}")
            return validate(_PLAN, value)
        except (OSError, ValueError) as error:
            raise BadPlan(path=path, reason=getattr(error, "strerror", None) or str(error)) from error


_PLAN = TypeAdapter(Plan)


@row
class RestorePlan(Row):
    """Plan to restore the archived files that a query needs."""

    tables: tuple[str, ...] = shown("tables")
    versions: tuple[int, ...]
    query: str | None = shown("query")
    """Condition or statement. Relative times such as current_date() are replaced."""
    zone: str | None
    """Session time zone of the query."""
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    """Number of known bytes."""
    hours: float = shown("max hours")
    """Maximum hours, according to the storage service."""
    cost: float | None = shown("cost", lambda cost: f"{cost:,.2f}", right=True)
    currency: str | None = shown("currency")
    path: str | None
    """File of the saved plan."""
    _plan: Plan = field(repr=False)
    _costs: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, plan: Plan, path: str | None = None, costs: str | None = None) -> RestorePlan:
        """Return the row of a plan. `costs` describes its costs."""
        tables, versions = (tuple(getattr(each, name) for each in plan.tables) for name in ("table", "version"))
        query = plan.sql or plan.where
        return cls(
            tables, versions, query, plan.zone, len(plan.archived), plan.bytes, plan.hours, plan.cost, plan.currency,
            path, plan, costs,
        )  # fmt: skip

    def save(self, path: str) -> RestorePlan:
        """Save the plan as a file for `mirrorfeed archive restore`."""
        self._plan.save(path)
        return RestorePlan.of(self._plan, path, self._costs)

    def remarks(self) -> Sequence[str]:
        how = f"The plan is saved. Carry it out with `mirrorfeed archive restore {shell_argument(self.path or '')}`."
        return (*([self._costs] if self._costs else []), *([how] if self.path else []))


def check_place(path: str | None) -> None:
    """Raise an error if a plan cannot be saved to this path. Call it before the plan is created."""
    if path and Path(path).exists():
        raise PlanExists(path=path)
    if path and not Path(path).parent.is_dir():
        raise PlanNotWritten(path=path, reason=f"the folder {Path(path).parent} does not exist")


def make(
    needed: Sequence[NeededFiles],
    priority: Priority | None = None,
    *,
    where: str | None = None,
    feed_from: int | None = None,
    sql: str | None = None,
    files_alone: bool = False,
    zone: str | None = None,
) -> Plan:
    """Create a plan for the archived files that a query needs of one or more tables."""
    tables = tuple(
        replace(
            each,
            files=tuple(DataFile(file.uri, file.bytes, deletion_vector=file.deletion_vector) for file in each.files),
            active=None,
        )
        for each in needed
    )
    named: Literal["STANDARD", "HIGH"] = "HIGH" if priority is Priority.HIGH else "STANDARD"
    return Plan(tables, named, where, feed_from, sql, files_alone, zone)


def plan_statement(spark: SparkSession, priority: Priority, now: datetime, *, sql: str) -> Plan:
    """Return the plan for any query."""
    at = moment(spark, now)
    asked = fix_relative_times(sql, at)
    if needed := Guarded(spark, now=lambda: now).needed(asked):
        return make(needed, priority, sql=asked, zone=at.zone)
    raise NothingToRestore(statement=sql)


def plan_query(
    spark: SparkSession, priority: Priority, now: datetime, *, source: Source, where: str | None = None
) -> Plan:
    """Return the plan for a query on a table at its newest version."""
    at = moment(spark, now)
    archive_interval.required(spark, source)
    where = where and fix_relative_times(where, at, spark.table(source.sql).columns)
    return make([engine_of(spark).needed(source, where, now)], priority, where=where, zone=at.zone)


def plan_feed(
    spark: SparkSession, priority: Priority, now: datetime, *, source: Source, first: int, last: int | None = None
) -> Plan:
    """Return the plan for a range of the change data feed of a table. The default for `last` is the newest version."""
    table = read_table_info(spark, source)
    policy = archive_interval.required(spark, source, table)
    if is_databricks(spark):
        raise FeedOnDatabricks(table=str(source))
    newest = versions.newest_version(spark, source)
    end = newest if last is None else last
    if not 0 <= first <= end <= newest:
        raise NoSuchRange(table=str(source), first=first, last=last, newest=newest)
    range_ = Range(first - 1, end)
    try:
        changed = guard.needed(spark, source, table, range_)
    except Gap as error:
        raise NoSuchRange(table=str(source), first=first, last=end, newest=newest) from error
    check_readable(spark, source, range_)
    files = archived_of(spark, str(source), table.location, changed, policy, now)
    needed = NeededFiles(str(source), table.table_id, table.location, end, tuple(files))
    return make([needed], priority, feed_from=first)


def check_readable(spark: SparkSession, source: Source, range_: Range) -> None:
    """Raise `Gap` if Delta cannot read the range even after a restore, for example after the retention."""
    with reader.read_errors(str(source), range_):
        reader.changes(spark, source, range_)
