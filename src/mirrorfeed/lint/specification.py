"""Names and values in the specification of the landing zone, for readers.

Separate from the list of the publisher in `landing`, so that lint and the replica find mistakes in it.
"""

from __future__ import annotations

METADATA = "_metadata.json"
PARTNER_EVENTS = "_partnerEvents.json"
SCHEMA_SUFFIX = ".schema"
"""Suffix of the folder of a schema."""
SCRATCH = "_scratchPad"
"""Folder for files that are not published yet."""
PROCESSED = ("_ProcessedFiles", "_FilesReadyToDelete")
"""Subfolders of a table for files that Fabric has consumed."""
MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = MARKERS = (0, 1, 2, 4)
DATA_TYPES = (
    *("Double", "Single", "Int16", "Int32", "Int64", "DateTime"),
    *("IDate", "ITime", "String", "Boolean", "ByteArray"),
)
"""Types in SchemaDefinition."""


def is_ignored(name: str) -> bool:
    """Whether Fabric ignores a file or folder with this name."""
    return name.startswith("_")
