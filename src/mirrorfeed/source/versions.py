"""The versions of a Delta table: commits, schemas, and how much was committed after a version."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirrorfeed.errors import Terminal
from mirrorfeed.runtime.spark_errors import EXPIRED, NOT_THERE, first_of, parameter
from mirrorfeed.source.delta_protocol import changed, commit_name, said_by, versions_in
from mirrorfeed.source.errors import LogDamaged, NoVersions, VersionExpired
from mirrorfeed.source.identifier import URI, Source
from mirrorfeed.source.ranges import Commit, Waiting
from mirrorfeed.source.table_info import opened, refusals

_FEW = 16
"""So many more than the versions that are missed are asked for, as more may be committed meanwhile."""


def commits(spark: SparkSession, source: Source, after: int | None = None) -> list[Commit]:
    """The commits after a version (all without one), ascending. Never empty: the newest is always among them."""
    if after is None:
        found = _newest(spark, source)
    else:
        found, limit = _newest(spark, source, _FEW), _FEW
        while (lag := found[-1].version - after) > limit:  # more than asked for, and more may be committed meanwhile
            limit = lag + _FEW
            found = _newest(spark, source, limit)
    return [commit for commit in found if after is None or commit.version > after] or found[-1:]


def cloned_from(spark: SparkSession, source: Source) -> str | None:
    """The table that this one began as a clone of, as long as its history tells."""
    with refusals(source):
        told = spark.sql(f"DESCRIBE HISTORY {source.sql}").where("operation = 'CLONE'")
        first = told.orderBy("version").select("operationParameters").first()
    return (first["operationParameters"] or {}).get("source") or "another table" if first else None


def parameters(spark: SparkSession, source: Source, version: int) -> Mapping[str, str]:
    """What the history tells of how a version was made; nothing where it tells nothing of it."""
    with refusals(source):
        told = spark.sql(f"DESCRIBE HISTORY {source.sql}").where(f"version = {int(version)}")
        found = told.select("operationParameters").first()
    return (found["operationParameters"] or {}) if found else {}


def newest_version(spark: SparkSession, source: Source) -> int:
    """Spark is asked where the table is not in a folder of this machine."""
    table = opened(source)
    return _newest(spark, source, 1)[-1].version if table is None else table.version()


def newest_or_next(spark: SparkSession, source: Source, after: int) -> int | None:
    """The newest version, or the next after this one if that is there; None where the engine does not tell. For that
    Spark makes a plan, where the history takes a job; of a table in a folder of this machine it is not asked."""
    if (table := opened(source)) is not None:
        return min(table.version(), after + 1)
    try:
        _ = spark.read.option("versionAsOf", after + 1).table(source.sql).schema
    except Exception as error:
        newest = parameter(error, "latest") if first_of(error, (NOT_THERE,)) else None
        return int(newest) if newest and newest.isdigit() else None
    return after + 1


def since(
    spark: SparkSession, source: Source, after: int | None, meanwhile: Callable[[], object] = lambda: None
) -> tuple[int, list[Commit]]:
    """The newest version, and the commits after this one; the newest commit where there is none to go on from. Where
    one is new, something else is done while the history takes its time."""
    if after is None:
        found = _newest(spark, source, 1)
        return found[-1].version, found
    if newest_or_next(spark, source, after) == after:
        return after, []
    with ThreadPoolExecutor(1) as beside:
        beside.submit(meanwhile)
        found = commits(spark, source, after)
    return found[-1].version, [commit for commit in found if commit.version > after]


def described(spark: SparkSession, source: Source, limit: int | None = None) -> list[Mapping[str, Any]]:
    """The newest commits as DESCRIBE HISTORY has them, ascending, with times in UTC. For that Spark runs a job, so
    it is asked only where the table is not in a folder of this machine."""
    found = _told_here(source, limit) or _told_by_spark(spark, source, limit)
    if not found:
        raise NoVersions(table=str(source))
    return sorted(found, key=lambda row: int(row["version"]))


def _newest(spark: SparkSession, source: Source, limit: int | None = None) -> list[Commit]:
    """The newest commits, ascending."""
    return [_commit(row) for row in described(spark, source, limit)]


def _told_here(source: Source, limit: int | None) -> list[dict[str, Any]]:
    """Nothing where only Spark tells."""
    if source.path is None or (table := opened(source)) is None:
        return []
    newest = table.version()
    first = 0 if limit is None else newest - limit + 1
    log, found, last = os.path.join(source.path, "_delta_log"), list[dict[str, Any]](), -1
    try:
        for version in versions_in(log):
            if first <= version <= newest:
                file = os.path.join(log, commit_name(version))
                told = said_by(file)
                if "inCommitTimestamp" in told:
                    return []
                last = max(os.stat(file).st_mtime_ns // 1_000_000, last + 1)  # as Delta has it where clocks went back
                texts = {name: _texts(told.get(name) or {}) for name in ("operationParameters", "operationMetrics")}
                about = {"version": version, "timestamp": _at(last * 1000), "operation": told["operation"]}
                found.append(about | texts | {"userMetadata": told.get("userMetadata")})
    except (OSError, ValueError, KeyError):  # gone meanwhile, or it says nothing of itself
        return []
    return found


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: json.dumps(v) if isinstance(v, (bool, int, float, list, dict)) else v for name, v in values.items()}


def _told_by_spark(spark: SparkSession, source: Source, limit: int | None) -> list[dict[str, Any]]:
    statement = f"DESCRIBE HISTORY {source.sql}" + ("" if limit is None else f" LIMIT {limit}")
    with refusals(source):
        answer = spark.sql(statement)
        # Times come as those of this machine's clocks. To ask Spark for others is a job of its own, which is needed
        # only for the hours that clocks show twice, as Connect does not say which of the two is meant.
        rows = answer.collect()
        if any(shown_twice(row["timestamp"]) for row in rows):
            rows = answer.withColumn("micros", F.unix_micros("timestamp")).collect()
            return [row.asDict() | {"timestamp": _at(row["micros"])} for row in rows]
        return [row.asDict() | {"timestamp": row["timestamp"].astimezone(UTC)} for row in rows]


def _commit(row: Mapping[str, Any]) -> Commit:
    rows, _ = changed(row["operation"], row["operationMetrics"] or {})
    return Commit(row["version"], row["timestamp"], row["operation"], rows)


def shown_twice(local: datetime) -> bool:
    """Whether the clocks of this machine show a time without a zone a second time, an hour later."""
    return local.replace(fold=0).astimezone(UTC) != local.replace(fold=1).astimezone(UTC)


def _at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


KEEPS_SCHEMA = frozenset(
    {"UPDATE", "DELETE", "OPTIMIZE", "TRUNCATE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "ADD CONSTRAINT"}
)
"""Operations that are known to leave the schema as it was. Any other is looked at."""
_AT_ONCE = 4
"""Questions about schemas; each takes some milliseconds of waiting."""


def schema_at(spark: SparkSession, source: Source, version: int) -> dict[str, Any]:
    """The table's schema at a version, as Spark spells schemas in JSON."""
    try:
        with refusals(source):
            frame = spark.read.option("versionAsOf", version).table(source.sql)
            schema: dict[str, Any] = json.loads(frame.schema.json())
    except Exception as error:
        if first_of(error, (EXPIRED,)):
            raise VersionExpired(table=str(source), version=version) from error
        raise
    return schema


def breaks(
    schema: Callable[[int], dict[str, Any]], after: int, first: list[Commit], doubtful: list[Commit]
) -> tuple[list[int], int | None, type[Terminal] | None]:
    """The versions at which the schema changed by more than added columns, the first also where the schema before it
    is not known any more; and the first version whose schema cannot be known, where this ends, with the reason."""
    looked_at = sorted({commit.version for commit in (*first, *doubtful)})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {version: pool.submit(schema, version) for version in (after, *looked_at) if first}
    found: list[int] = []
    before: dict[str, Any] | None = None
    with suppress(Exception):  # the log may begin later, or have a hole there
        before = asked[after].result() if first else None
    for version in looked_at:
        try:
            now = asked[version].result()
        except (LogDamaged, VersionExpired) as error:
            return found, version, type(error)
        if before is None or not only_adds(before, now):
            found.append(version)
        before = now
    return found, None, None


def only_adds(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether every column of `before` is in `now` with the same type and nullability."""
    kept = {field["name"]: (field["type"], field["nullable"]) for field in now["fields"]}
    return all(kept.get(field["name"]) == (field["type"], field["nullable"]) for field in before["fields"])


_MOST_READ = 64
"""Commits more than these are not measured."""

Measured = tuple[str, Mapping[str, str]]
"""A commit's operation and metrics."""


def waiting(spark: SparkSession, source: Source, after: int, *, measured: bool) -> Waiting:
    """What is committed after a version; not measured, several may be told as one. Of a table whose folder is on this
    machine, or mounted, its log is listed and Spark is not asked at all."""
    if source.path is not None and not URI.match(source.path) and os.path.isdir(_log_of(source.path)):
        return waiting_in_folder(source.path, after, measured=measured)
    there = newest_or_next(spark, source, after)
    if there == after or (there is not None and not measured):
        return Waiting(abs(there - after))
    return _told(spark, source, after, measured=measured)


def waiting_in_folder(path: str, after: int, *, measured: bool) -> Waiting:
    log = _log_of(path)
    found = versions_in(log)
    new = [version for version in found if version > after]
    newest = max(found, default=after)
    paths = [os.path.join(log, commit_name(version)) for version in (new[:_MOST_READ] if measured else [])]
    return _of(newest - after, [_read(path) for path in paths], measured=measured)


def _log_of(path: str) -> str:
    return os.path.join(path, "_delta_log")


def _told(spark: SparkSession, source: Source, after: int, *, measured: bool) -> Waiting:
    """By the history, for which Spark runs a job."""
    columns = "version", *(("operation", "operationMetrics") if measured else ())
    asked = spark.sql(f"DESCRIBE HISTORY {source.sql} LIMIT {_MOST_READ if measured else 1}")
    rows = asked.select(*columns).collect()
    newest = max((row["version"] for row in rows), default=after)
    new = [(row["operation"], row["operationMetrics"] or {}) for row in rows if measured and row["version"] > after]
    return _of(newest - after, new, measured=measured)


def _of(versions: int, new: Sequence[Measured], *, measured: bool) -> Waiting:
    """Below 0 the table went back, which the run finds out."""
    if not measured or versions == 0:
        return Waiting(abs(versions))
    rows: int | None = 0
    size: int | None = 0
    for operation, metrics in new:
        more_rows, more_bytes = changed(operation, metrics)
        rows = None if rows is None or more_rows is None else rows + more_rows
        size = None if size is None or more_bytes is None else size + more_bytes
    whole = len(new) == versions
    return Waiting(abs(versions), rows if whole else None, size if whole else None)


def _read(path: str) -> Measured:
    info = said_by(path)
    return info.get("operation") or "", info.get("operationMetrics") or {}
