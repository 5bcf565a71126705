"""Names and values that the specification of the landing zone sets, for those who read one.

The publisher has its own list in `landing`, so that lint and the replica find a mistake in it.
"""

from __future__ import annotations

METADATA = "_metadata.json"
PARTNER_EVENTS = "_partnerEvents.json"
SCHEMA_SUFFIX = ".schema"
"""The end of a folder's name that makes it the folder of a schema."""
SCRATCH = "_scratchPad"
"""A folder for files that are not published yet."""
PROCESSED = ("_ProcessedFiles", "_FilesReadyToDelete")
"""Folders below a table's folder for files that Fabric has consumed."""
MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = MARKERS = (0, 1, 2, 4)
DATA_TYPES = (
    *("Double", "Single", "Int16", "Int32", "Int64", "DateTime"),
    *("IDate", "ITime", "String", "Boolean", "ByteArray"),
)
"""The types that SchemaDefinition can declare."""


def is_ignored(name: str) -> bool:
    """Whether Fabric ignores a file or folder of this name."""
    return name.startswith("_")
