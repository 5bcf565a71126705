"""Whether anything was committed to a table, and how much: one light question, which nothing is decided by but when to
look in earnest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from mirrorfeed.source.commit_metrics import changed
from mirrorfeed.source.delta_protocol import commit_name, said_by, versions_in
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Waiting
from mirrorfeed.source.versions import newest_or_next

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MOST_READ = 64
"""Commits more than these are not measured."""

Measured = tuple[str, Mapping[str, str]]
"""A commit's operation and metrics."""


def waiting(spark: SparkSession, source: Source, after: int, *, measured: bool) -> Waiting:
    """What is committed after a version; not measured, several may be told as one. Of a table whose folder is on this
    machine, or mounted, its log is listed and Spark is not asked at all."""
    if source.path is not None and not _URI.match(source.path) and os.path.isdir(_log_of(source.path)):
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
