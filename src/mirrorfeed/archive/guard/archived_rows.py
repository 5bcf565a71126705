"""Archived files that are needed, as people and programs want to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mirrorfeed.archive.file_index.log_file import LogFile

if TYPE_CHECKING:
    from mirrorfeed.storage.tiers import TierStore

DESCRIBED = (
    "uri string, bytes bigint, rows bigint, age_days int, partition map<string, string>, deletion_vector string,"
    " why string, tier string"
)


def described(
    files: Sequence[LogFile], predicate: str | None, now: datetime, tiers: TierStore | None = None
) -> list[dict[str, Any]]:
    """What people and programs want to know of archived files that are needed, in the columns of `DESCRIBED`."""
    seen = tiers.look([file.uri for file in files]) if tiers else {}
    return [
        {
            "uri": file.uri,
            "bytes": file.size,
            "rows": file.rows,
            "age_days": (now - file.created).days if file.created else None,
            "partition": dict(file.partition) if file.partition is not None else None,
            "deletion_vector": file.vector,
            "why": why(file, predicate),
            "tier": seen[file.uri].value if seen else None,
        }
        for file in files
    ]


def why(file: LogFile, predicate: str | None) -> str:
    """Why an archived file is needed, for people."""
    if predicate is None:
        needed = "all rows are asked for"
    elif file.rows is None:
        needed = "it has no statistics, or they are not known here"
    else:
        needed = "neither its partition nor its statistics rule out a match"
    return needed if file.created else f"{needed}; its age is not known"
