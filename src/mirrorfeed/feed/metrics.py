"""How much a commit changed, by its own account: a hint, by which nothing is decided but when and how to read it."""

from __future__ import annotations

from collections.abc import Mapping

_ROWS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numUpdatedRows", "numDeletedRows")
_WRITTEN_ROWS = "numOutputRows"
_BYTES = ("numTargetBytesAdded", "numAddedBytes", "numOutputBytes")
_NOTHING = ("OPTIMIZE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "SET TBLPROPERTIES", "CLUSTER BY")
"""Operations that change no row."""


def changed(operation: str, metrics: Mapping[str, str]) -> tuple[int | None, int | None]:
    """How many rows a commit changed and how many bytes it wrote, each None where its metrics do not tell."""
    if operation in _NOTHING:
        return 0, 0
    told = [int(metrics[name]) for name in _ROWS if name in metrics]
    rows = sum(told) if told else int(metrics[_WRITTEN_ROWS]) if _WRITTEN_ROWS in metrics else None
    sizes = [int(metrics[name]) for name in _BYTES if name in metrics]
    return rows, max(sizes, default=None)


def rows_at_most(operation: str, parameters: Mapping[str, str], metrics: Mapping[str, str]) -> int | None:
    """The same of rows alone; None also where what was there before is not counted, as of what a commit replaced."""
    rows, _ = changed(operation, metrics)
    counted = rows == 0 or any(name in metrics for name in _ROWS)
    appended = "append" in (parameters.get("mode", "").lower(), parameters.get("outputMode", "").lower())
    # Of files that a DELETE drops whole the rows need not have been counted.
    uncounted = operation == "DELETE" and rows == 0 and metrics.get("numRemovedFiles", "0") != "0"
    return rows if (counted or appended) and not uncounted else None
