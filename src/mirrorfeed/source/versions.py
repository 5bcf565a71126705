"""Read the versions of a Delta table: its commits and schemas."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirrorfeed.runtime.spark_errors import EXPIRED, NOT_THERE, find_condition, find_parameter
from mirrorfeed.source.errors import DeltaLogDamagedError, GapReason, VersionExpiredError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Commit
from mirrorfeed.source.table_info import (
    commit_name,
    count_changes,
    list_versions,
    open_local_table,
    read_commit_info,
    table_errors,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

KEEPS_SCHEMA = frozenset(
    {"UPDATE", "DELETE", "OPTIMIZE", "TRUNCATE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "ADD CONSTRAINT"}
)
"""Operations that never change the schema. The schema is read only after other operations."""
_MARGIN = 16
"""Number of commits to request in addition to the known ones, because other writers may have added commits."""
_PARALLEL_SCHEMAS = 4
SPARK_REQUIRED = "a Spark session is required"


def newest_version(spark: SparkSession, source: Source, after: int | None = None) -> int:
    """Return the newest version of a table. If `after` is given and a newer version exists, can return `after` + 1.
    Spark then usually runs no job. A table in a local folder needs no Spark."""
    if (table := open_local_table(source)) is not None:
        return table.version()
    if after is not None:
        try:
            _ = spark.read.option("versionAsOf", after + 1).table(source.sql).schema
            return after + 1
        except Exception as error:
            newest = find_parameter(error, "latest") if find_condition(error, (NOT_THERE,)) else None
            if newest and newest.isdigit():
                return int(newest)
    return read_newest_commit(spark, source).version


def read_newest_commit(spark: SparkSession, source: Source, local: DeltaTable | None = None) -> Commit:
    return _commit(read_history(spark, source, 1, local)[-1])


def read_commits(
    spark: SparkSession,
    source: Source,
    after: int | None = None,
    local: DeltaTable | None = None,
    earlier: Sequence[Commit] = (),
) -> list[Commit]:
    """Return the commits after version `after` (None: all commits), in ascending order.

    If there is no commit after `after`, returns only the newest commit. `local` is the result of `open_local_table` if
    the table is already open: later commits are then not read. `earlier` are commits that were read before, in
    ascending order. Only the newest of them is read again, to check that it is still in the log.
    """
    if after is None:
        return [_commit(row) for row in read_history(spark, source, local=local)]
    limit = _MARGIN
    rows = read_history(spark, source, limit, local)
    known = [commit for commit in earlier if commit.version > after]
    if rows[-1]["version"] - after <= limit or not (known and known[0].version == after + 1):
        known = []
    start = known[-1].version - 1 if known else after
    while (lag := rows[-1]["version"] - start) > limit:
        limit = lag + _MARGIN
        rows = read_history(spark, source, limit, local)
    new = [_commit(row) for row in rows if row["version"] > start]
    if known and known[-1:] != new[:1]:  # another table has replaced it
        return read_commits(spark, source, after, local)
    return [*known[:-1], *new] or [_commit(rows[-1])]


def read_history(
    spark: SparkSession, source: Source, limit: int | None = None, local: DeltaTable | None = None
) -> list[Mapping[str, Any]]:
    """Return the newest `limit` commits (None: all) in ascending order, as rows of DESCRIBE HISTORY, with UTC times.

    If possible, reads a table in a local folder without Spark: `local`, or if None, the newest version. Raises
    `DeltaLogDamagedError` if there are no commits.
    """
    rows = _read_local_history(source, limit, local or open_local_table(source)) or _describe_history(
        spark, source, limit
    )
    if not rows:
        raise DeltaLogDamagedError(table=str(source))
    return sorted(rows, key=lambda row: int(row["version"]))


def clone_source(spark: SparkSession, source: Source) -> str | None:
    """Return the name of the table from which `source` was cloned, or None if DESCRIBE HISTORY shows no clone.

    Returns "another table" if DESCRIBE HISTORY does not show the name.
    """
    clone = next((commit for commit in read_commits(spark, source) if commit.operation == "CLONE"), None)
    return None if clone is None else clone.parameters.get("source") or "another table"


def read_schema(
    spark: SparkSession | None, source: Source, version: int, schemas: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """Return the table's schema at a version, as the JSON of a Spark `StructType`.

    `schemas` is a cache with the schema of each version that was already read. If `spark` is None, reads the schema
    with delta-rs, and raises `ValueError` if that is not possible. Raises `VersionExpiredError` if the version is past
    its retention. Raises an error of `table_errors`, such as `DeltaLogDamagedError`, if Spark cannot read the version.
    """
    if version not in schemas and spark is None:
        if (table := open_local_table(source, version)) is None:
            raise ValueError(SPARK_REQUIRED)
        schemas[version] = json.loads(table.schema().to_json())
    if version not in schemas:
        assert spark is not None
        try:
            with table_errors(source):
                frame = spark.read.option("versionAsOf", version).table(source.sql)
                schemas[version] = json.loads(frame.schema.json())
        except Exception as error:
            if find_condition(error, (EXPIRED,)):
                raise VersionExpiredError(table=str(source), version=version) from error
            raise
    return schemas[version]


def find_schema_breaks(
    schema: Callable[[int], dict[str, Any]], after: int, versions: Sequence[int]
) -> tuple[tuple[int, ...], dict[int, GapReason]]:
    """Find the versions that change the schema of a table, except versions that only add columns.

    `schema` returns the schema at a version. `versions` lists the versions to check, in ascending order. Each schema is
    compared with the schema at the previous version in `versions`. The first schema is compared with the schema at
    `after`. If the schema at `after` cannot be read, the first version counts as a change.

    The check ends at the first version whose schema cannot be read. Returns the versions found so far, and a mapping of
    the unreadable version to the reason. The mapping is empty if all schemas can be read.
    """
    with ThreadPoolExecutor(_PARALLEL_SCHEMAS) as pool:
        schemas = {version: pool.submit(schema, version) for version in (after, *versions)}
    breaks: list[int] = []
    before: dict[str, Any] | None = None
    with suppress(Exception):  # the log may start later, or have a gap
        before = schemas[after].result()
    for version in versions:
        try:
            now = schemas[version].result()
        except (DeltaLogDamagedError, VersionExpiredError) as error:
            reason = GapReason.LOG_HOLE if isinstance(error, DeltaLogDamagedError) else GapReason.EXPIRED
            return tuple(breaks), {version: reason}
        if before is None or not only_adds_columns(before, now):
            breaks.append(version)
        before = now
    return tuple(breaks), {}


def only_adds_columns(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether every column of `before` is in `now` with the same type and nullability."""
    types = {field["name"]: (field["type"], field["nullable"]) for field in now["fields"]}
    return all(types.get(field["name"]) == (field["type"], field["nullable"]) for field in before["fields"])


def _read_local_history(source: Source, limit: int | None, table: DeltaTable | None) -> list[dict[str, Any]]:
    """Return the newest `limit` commits (None: all) of a table in a local folder. Empty if Spark must read the log."""
    if source.path is None or table is None:
        return []
    newest = table.version()
    log, rows, last = os.path.join(source.path, "_delta_log"), list[dict[str, Any]](), -1
    # A log can have 100,000 commits, so it is not listed for the newest ones.
    versions = list_versions(log) if limit is None else range(max(0, newest - limit + 1), newest + 1)
    try:
        for version in versions:
            file = os.path.join(log, commit_name(version))
            if version <= newest and (limit is None or os.path.exists(file)):
                info = read_commit_info(file)
                if "inCommitTimestamp" in info:
                    return []
                last = max(os.stat(file).st_mtime_ns // 1_000_000, last + 1)  # like Delta if clocks went back
                row = {"version": version, "timestamp": utc_time(last * 1000), "operation": info["operation"]}
                texts = {name: _texts(info.get(name) or {}) for name in ("operationParameters", "operationMetrics")}
                rows.append(row | texts | {"userMetadata": info.get("userMetadata")})
    except (OSError, ValueError, KeyError):  # deleted in the meantime, or without commitInfo
        return []
    return rows


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: json.dumps(v) if isinstance(v, (bool, int, float, list, dict)) else v for name, v in values.items()}


def _describe_history(spark: SparkSession, source: Source, limit: int | None) -> list[dict[str, Any]]:
    with table_errors(source):
        history = spark.sql(f"DESCRIBE HISTORY {source.sql}" + ("" if limit is None else f" LIMIT {limit}"))
        # Times are in the time zone of this machine. UTC costs another job, so UTC is requested only for the hour that
        # clocks show twice, because Spark Connect does not return which of the two is meant.
        rows = history.collect()
        if any(is_ambiguous(row["timestamp"]) for row in rows):
            rows = history.withColumn("micros", F.unix_micros("timestamp")).collect()
            return [row.asDict() | {"timestamp": utc_time(row["micros"])} for row in rows]
        return [row.asDict() | {"timestamp": row["timestamp"].astimezone(UTC)} for row in rows]


def _commit(row: Mapping[str, Any]) -> Commit:
    operation, metrics = row["operation"], row["operationMetrics"] or {}
    rows, _ = count_changes(operation, metrics)
    return Commit(row["version"], row["timestamp"], operation, rows, row["operationParameters"] or {}, metrics)


def is_ambiguous(local: datetime) -> bool:
    """Return whether a local time occurs twice on this machine, because the clocks are set back."""
    return local.replace(fold=0).astimezone(UTC) != local.replace(fold=1).astimezone(UTC)


def utc_time(micros: int) -> datetime:
    """Convert microseconds since 1970 to a time in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
