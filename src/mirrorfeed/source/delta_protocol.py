"""The Delta log: names and contents of its files, metrics of commits, and table features."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_COMMIT = re.compile(r"([0-9]{20})\.json")
_METADATA = "metaData struct<id string>"
_PATH_PATTERN = frozenset("*?[]{}\\")
"""Characters with which Spark takes a path for a pattern, so that it might find the log of another table."""
_MERGED_ROWS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
"""Metrics of a MERGE, whose `numOutputRows` also counts rows that were only copied."""
_CHANGED_ROWS = ("numUpdatedRows", "numDeletedRows", "numOutputRows")
_BYTES = ("numTargetBytesAdded", "numAddedBytes", "numOutputBytes")
_CHANGES_NO_ROWS = ("OPTIMIZE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "SET TBLPROPERTIES", "CLUSTER BY")
_EXTERNAL_COMMITS = frozenset({"catalogManaged", "catalogOwned", "coordinatedCommits"})
_KNOWN_FEATURES = _EXTERNAL_COMMITS | {
    *("adaptiveMetadata", "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints"),
    *("checkpointProtection", "clustering", "collations", "columnMapping", "deletionVectors", "domainMetadata"),
    *("generatedColumns", "geospatial", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
    *("identityColumns", "inCommitTimestamp", "invariants", "materializePartitionColumns", "rowTracking"),
    *("timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantType"),
}


def commit_name(version: int) -> str:
    """Name of the log file of a version."""
    return f"{version:020d}.json"


def commit_version(name: str) -> int | None:
    """The version of a log file; None if the name is not that of a commit."""
    found = _COMMIT.fullmatch(name)
    return int(found[1]) if found else None


def list_versions(log: str) -> list[int]:
    """All versions in a local log folder, ascending."""
    return sorted(version for version in map(commit_version, os.listdir(log)) if version is not None)


def read_commit_info(path: str) -> Mapping[str, Any]:
    """The `commitInfo` of a local commit file, which may be empty."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if '"commitInfo"' in line and (info := json.loads(line).get("commitInfo")) is not None:
                found: dict[str, Any] = info
                return found
    return {}


def find_metadata_changes(spark: SparkSession, location: str, versions: Collection[int]) -> frozenset[int] | None:
    """Those of the versions that changed the table's metadata: no other commit changes schema or settings.

    None if not all of the log can be read, for example because only the catalog may open the table's files.
    """
    from pyspark.sql import functions as F

    if _PATH_PATTERN.intersection(location):
        return None
    names = {commit_name(version): version for version in versions}
    reader = spark.read.schema(_METADATA).options(
        mode="FAILFAST", ignoreMissingFiles="false", ignoreCorruptFiles="false"
    )
    has_metadata = F.max(F.col("metaData").isNotNull()).alias("has_metadata")
    try:
        commits = reader.json([f"{location.rstrip('/')}/_delta_log/{name}" for name in names])
        rows = commits.groupBy(F.col("_metadata.file_name").alias("name")).agg(has_metadata).collect()
    except Exception as error:
        _log.info("The log at %s cannot be read directly, so the engine is asked: %s", location, error)
        return None
    found = {row["name"]: row["has_metadata"] for row in rows}
    return frozenset(names[name] for name in names if found[name]) if found.keys() == names.keys() else None


def count_changes(operation: str, metrics: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The rows that a commit changed and the bytes that it wrote, each None if its metrics do not tell.

    This is a hint: it decides only when and how the commit is read. Rows that an overwrite replaces are counted only if
    the engine counts them.
    """
    if operation in _CHANGES_NO_ROWS:
        return 0, 0
    names = _MERGED_ROWS if any(name in metrics for name in _MERGED_ROWS) else _CHANGED_ROWS
    counts = [int(metrics[name]) for name in names if name in metrics]
    sizes = [int(metrics[name]) for name in _BYTES if name in metrics]
    # Rows of files that are removed as a whole may not have been counted.
    is_uncounted = not any(counts) and metrics.get("numRemovedFiles", "0") != "0"
    return None if is_uncounted or not counts else sum(counts), max(sizes, default=None)


def unknown_features(features: Iterable[str]) -> tuple[str, ...]:
    """Features that mirrorfeed does not know, so that they may change what is read."""
    return tuple(sorted(name for name in features if _released_name(name) not in _KNOWN_FEATURES))


def external_commit_features(features: Iterable[str]) -> tuple[str, ...]:
    """Features with which the newest commits may be outside of the table's log."""
    return tuple(sorted(name for name in features if _released_name(name) in _EXTERNAL_COMMITS))


def _released_name(feature: str) -> str:
    return feature.removesuffix("-preview").removesuffix("-dev")
