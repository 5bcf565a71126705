"""The Delta log: names and contents of its files, metrics of commits, and table features."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
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


_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
"""Of a MERGE, whose `numOutputRows` also counts rows that it only copied."""
_CHANGED = ("numUpdatedRows", "numDeletedRows", "numOutputRows")
_BYTES = ("numTargetBytesAdded", "numAddedBytes", "numOutputBytes")
_NOTHING = ("OPTIMIZE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "SET TBLPROPERTIES", "CLUSTER BY")
"""Operations that change no row."""


def changed(operation: str, metrics: Mapping[str, str]) -> tuple[int | None, int | None]:
    """How many rows a commit changed and how many bytes it wrote, each None if its metrics do not say.

    Rows that an overwrite replaces are counted only if the engine counts them.
    """
    if operation in _NOTHING:
        return 0, 0
    names = _MERGED if any(name in metrics for name in _MERGED) else _CHANGED
    counted = [int(metrics[name]) for name in names if name in metrics]
    sizes = [int(metrics[name]) for name in _BYTES if name in metrics]
    # Rows of files that are removed whole may not have been counted.
    uncounted = not any(counted) and metrics.get("numRemovedFiles", "0") != "0"
    return None if uncounted or not counted else sum(counted), max(sizes, default=None)


_KNOWN = frozenset(
    {
        "adaptiveMetadata",
        "allowColumnDefaults",
        "appendOnly",
        "catalogManaged",
        "catalogOwned",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "collations",
        "columnMapping",
        "coordinatedCommits",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "geospatial",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "materializePartitionColumns",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantType",
    }
)
_COMMITS_ELSEWHERE = frozenset({"catalogManaged", "catalogOwned", "coordinatedCommits"})
_STAGES = ("-preview", "-dev")


def unknown_features(features: Iterable[str]) -> tuple[str, ...]:
    """Those that nobody looked at when this was written. Previews of known ones are known."""
    return tuple(sorted(name for name in features if _plain(name) not in _KNOWN))


def commits_elsewhere(features: Iterable[str]) -> tuple[str, ...]:
    """Those with which the newest commits may stand elsewhere than in the table's log."""
    return tuple(sorted(name for name in features if _plain(name) in _COMMITS_ELSEWHERE))


def _plain(name: str) -> str:
    for stage in _STAGES:
        name = name.removesuffix(stage)
    return name
