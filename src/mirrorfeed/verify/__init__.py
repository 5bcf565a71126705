"""A source at a version against its mirror, row for row. Shares no code with the translation that it judges."""

from mirrorfeed.verify.errors import (
    ConditionUnreadable,
    MirrorColumns,
    MirrorMissing,
    MirrorNotNamed,
    MirrorUnreadable,
    NothingTaken,
    VersionGone,
)
from mirrorfeed.verify.mirror import compare, differing, first_equal, mirror_of, readable, verify_at
from mirrorfeed.verify.place import folder_of, tables_in_onelake
from mirrorfeed.verify.rows import IN_MIRROR, IN_SOURCE, Comparison, Difference, compare_rows

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
