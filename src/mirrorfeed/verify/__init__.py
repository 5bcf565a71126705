"""A source at a version against its mirror, row for row. Shares no code with the translation that it judges."""

from mirrorfeed.verify.mirror import (
    MirrorMissing,
    MirrorUnreadable,
    NothingTaken,
    compare,
    first_equal,
    mirror_of,
    verify_at,
)
from mirrorfeed.verify.place import MirrorNotNamed, folder_of, tables_in_onelake
from mirrorfeed.verify.rows import Comparison, Difference, MirrorColumns, compare_rows

__all__ = [
    "Comparison",
    "Difference",
    "MirrorColumns",
    "MirrorMissing",
    "MirrorNotNamed",
    "MirrorUnreadable",
    "NothingTaken",
    "compare",
    "compare_rows",
    "first_equal",
    "folder_of",
    "mirror_of",
    "tables_in_onelake",
    "verify_at",
]
