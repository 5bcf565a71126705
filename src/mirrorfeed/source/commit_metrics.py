"""How much a commit changed, by its own metrics: a hint, which decides only when and how the commit is read."""

from __future__ import annotations

from collections.abc import Mapping

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
