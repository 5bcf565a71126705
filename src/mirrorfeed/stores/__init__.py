"""Where files live: one small port, and one module for each kind of place."""

from mirrorfeed.stores.base import (
    AlreadyThere,
    Entry,
    NotThere,
    PathOutside,
    PlaceUnusable,
    Store,
    StoreUnavailable,
    UnreadableFile,
)
from mirrorfeed.stores.folder import FolderStore

__all__ = [
    "AlreadyThere",
    "Entry",
    "FolderStore",
    "NotThere",
    "PathOutside",
    "PlaceUnusable",
    "Store",
    "StoreUnavailable",
    "UnreadableFile",
]
