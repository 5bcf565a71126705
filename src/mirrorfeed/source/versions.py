"""What the commits of a Delta table say, as DESCRIBE HISTORY has it: versions, times, operations."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirrorfeed.runtime.spark_errors import NOT_THERE, first_of, parameter
from mirrorfeed.source.commit_metrics import changed
from mirrorfeed.source.delta_protocol import commit_name, said_by, versions_in
from mirrorfeed.source.errors import NoVersions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.local_delta import opened
from mirrorfeed.source.ranges import Commit
from mirrorfeed.source.table_info import refusals

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
