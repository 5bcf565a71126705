"""A source at a version against its mirror, row for row. Shares no code with the translation that it judges."""

from mirrorfeed.mirror.verify.errors import (
    ConditionUnreadable,
    MirrorColumns,
    MirrorMissing,
    MirrorNotNamed,
    MirrorUnreadable,
    NothingTaken,
    VersionGone,
)
from mirrorfeed.mirror.verify.mirror_folder import folder_of, tables_in_onelake
from mirrorfeed.mirror.verify.row_comparison import IN_MIRROR, IN_SOURCE, Comparison, Difference, compare_rows
from mirrorfeed.mirror.verify.table_comparison import compare, differing, first_equal, mirror_of, readable, verify_at

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
    "tables_in_onelake",
    "verify_at",
]
