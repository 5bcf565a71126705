"""Count the unpublished commits of a table, and their rows and bytes, to decide when to publish."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.source.identifier import URI, Source
from mirrorfeed.source.table_info import commit_name, count_changes, list_versions, read_commit_info
from mirrorfeed.source.versions import newest_version, read_history

_MAX_MEASURED = 64
"""Maximum number of unpublished commits whose rows and bytes are counted. If there are more, both are unknown."""


@dataclass(frozen=True, slots=True)
class PendingCommits:
    """Number and size of the commits after the published version."""

    versions: int
    rows: int | None = 0
    """Number of changed rows. None if unknown, for example because a commit does not report its rows."""
    bytes: int | None = 0
    """Bytes that the commits wrote. None if unknown."""


def pending_commits(spark: SparkSession, source: Source, after: int, *, measured: bool) -> PendingCommits:
    """Return the number of commits after version `after`, with their changed rows and bytes.

    If `measured` is False, rows and bytes are 0, and several commits may be counted as one.
    """
    commits: Sequence[Mapping[str, Any]]
    log = os.path.join(source.path or "", "_delta_log")
    if source.path is not None and not URI.match(source.path) and os.path.isdir(log):
        versions = list_versions(log)
        newest = max(versions, default=after)
        new = [version for version in versions if version > after][: _MAX_MEASURED if measured else 0]
        commits = [read_commit_info(os.path.join(log, commit_name(version))) for version in new]
    else:
        newest = newest_version(spark, source, after)
        if newest == after or not measured:
            return PendingCommits(abs(newest - after))
        history = read_history(spark, source, _MAX_MEASURED)
        newest, commits = history[-1]["version"], [row for row in history if row["version"] > after]
    count = abs(newest - after)  # the source may be restored to an older version
    if not measured or not count:
        return PendingCommits(count)
    sizes = [count_changes(each.get("operation") or "", each.get("operationMetrics") or {}) for each in commits]
    if len(sizes) != newest - after:
        return PendingCommits(count, None, None)
    rows, size = (None if None in each else sum(filter(None, each)) for each in zip(*sizes, strict=True))
    return PendingCommits(count, rows, size)
