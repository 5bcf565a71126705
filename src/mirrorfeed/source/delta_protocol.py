"""The commits in a table's log: their names, what one says of itself; and which of them changed its metadata, by one
read: no other changes schema or settings."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_log = logging.getLogger(__name__)
_COMMIT = re.compile(r"([0-9]{20})\.json")
_METADATA = "metaData struct<id string>"
_NOT_LITERAL = frozenset("*?[]{}\\")
"""What Spark takes for a pattern in a path: it might find another table's log."""


def commit_name(version: int) -> str:
    """Of the file in the log that is this version."""
    return f"{version:020d}.json"


def commit_version(name: str) -> int | None:
    """The version that a file of the log is; None for any other file."""
    found = _COMMIT.fullmatch(name)
    return int(found[1]) if found else None


def versions_in(log: str) -> list[int]:
    """Of all commits in a log's folder on this machine, ascending."""
    return sorted(version for version in map(commit_version, os.listdir(log)) if version is not None)


def said_by(commit: str) -> Mapping[str, Any]:
    """What the commit in a file on this machine says of itself, which may be nothing."""
    with open(commit, encoding="utf-8") as lines:
        for line in lines:
            if '"commitInfo"' in line and (info := json.loads(line).get("commitInfo")) is not None:
                found: dict[str, Any] = info
                return found
    return {}


def metadata_changes(spark: SparkSession, location: str, versions: Collection[int]) -> frozenset[int] | None:
    """Those of these versions whose commits hold metadata; None where the log cannot be read here, or not all of it,
    as that of a table whose files only its catalog may open."""
    if _NOT_LITERAL.intersection(location):
        return None
    names = {commit_name(version): version for version in versions}
    reader = spark.read.schema(_METADATA).options(
        mode="FAILFAST", ignoreMissingFiles="false", ignoreCorruptFiles="false"
    )
    held = F.max(F.col("metaData").isNotNull()).alias("held")
    try:
        commits = reader.json([f"{location.rstrip('/')}/_delta_log/{name}" for name in names])
        rows = commits.groupBy(F.col("_metadata.file_name").alias("name")).agg(held).collect()
    except Exception as error:
        _log.info("The log at %s cannot be read from here, so Delta is asked: %s", location, error)
        return None
    found = {row["name"]: row["held"] for row in rows}
    return frozenset(names[name] for name in names if found[name]) if found.keys() == names.keys() else None
