"""Where files are: one protocol, and a module for each kind of storage."""

from mirrorfeed.storage.base import Entry, Store
from mirrorfeed.storage.errors import (
    AlreadyThere,
    NotThere,
    PathOutside,
    PlaceUnusable,
    StoreUnavailable,
    UnreadableFile,
)
from mirrorfeed.storage.folder import FolderStore

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
