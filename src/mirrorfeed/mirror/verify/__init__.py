"""Compares a version of a source with its mirror, row by row. Shares no code with publishing."""

from mirrorfeed.mirror.verify.errors import (
    ConditionUnreadable,
    MirrorColumns,
    MirrorMissing,
    MirrorNotNamed,
    MirrorUnreadable,
    NothingTaken,
    VersionGone,
)
from mirrorfeed.mirror.verify.row_comparison import IN_MIRROR, IN_SOURCE, Comparison, Difference, compare_rows
from mirrorfeed.mirror.verify.table_comparison import (
    compare,
    differing,
    first_equal,
    folder_of,
    mirror_of,
    readable,
    verify_at,
)

__all__ = [
    "IN_MIRROR",
    "IN_SOURCE",
    "Comparison",
    "ConditionUnreadable",
    "Difference",
    "MirrorColumns",
    "MirrorMissing",
    "MirrorNotNamed",
    "MirrorUnreadable",
    "NothingTaken",
    "VersionGone",
    "compare",
    "compare_rows",
    "differing",
    "first_equal",
    "folder_of",
    "mirror_of",
    "readable",
    "verify_at",
]
