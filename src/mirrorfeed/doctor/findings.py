"""The closed list of what can be wrong with a table on its way, each with the command that helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType


class Code(Enum):
    FEED_OFF = auto()
    GAP = auto()
    VACUUM_AHEAD = auto()
    RETENTION_SHORT = auto()
    FALLS_BEHIND = auto()
    LOG_RETENTION_SHORT = auto()
    UNFINISHED = auto()
    ORPHANS = auto()
    NUMBERS_DISAGREE = auto()
    LOG_DAMAGED = auto()
    KEYS_CHANGED = auto()
    SCHEMA_CHANGED = auto()
    SOURCE_RECREATED = auto()
    SOURCE_MISSING = auto()
    CLONED = auto()
    ARCHIVE_BLOCKS = auto()
    CREDENTIAL = auto()
    PERMISSION = auto()
    UNREACHABLE = auto()
    EMPTY_FILE = auto()
    EMPTY_TABLE = auto()
    NOT_PUBLISHED = auto()
    STUCK_SNAPSHOTTING = auto()
    NEVER_SYNCS = auto()
    MIRRORING_OFF = auto()
    MIRRORING_PAUSED = auto()
    THROTTLED = auto()
    OWNER_LEFT = auto()
    TEXT_TOO_LONG = auto()
    TABLE_FAILED = auto()
    OTHER = auto()


_REBUILD = "mirrorfeed rebuild {table}"
_PUBLISH = "mirrorfeed publish {table}"
_FIX = "mirrorfeed doctor {table} --fix"
_LOOK = "mirrorfeed publish --dry-run {table}"
_LONGER = "ALTER TABLE {source} SET TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 30 days')"
_LOG_LONGER = "ALTER TABLE {source} SET TBLPROPERTIES (delta.logRetentionDuration = 'interval 90 days')"

REMEDIES: Mapping[Code, str] = MappingProxyType(
    {
        Code.FEED_OFF: "mirrorfeed enable {table}",
        Code.GAP: _REBUILD,
        Code.VACUUM_AHEAD: _LONGER,
        Code.RETENTION_SHORT: _LONGER,
        Code.LOG_RETENTION_SHORT: _LOG_LONGER,
        Code.FALLS_BEHIND: "mirrorfeed publish {table} --follow",
        Code.UNFINISHED: _FIX,
        Code.ORPHANS: _FIX,
        Code.NUMBERS_DISAGREE: "mirrorfeed log {table}",
        Code.LOG_DAMAGED: "mirrorfeed log {table}",
        Code.KEYS_CHANGED: _REBUILD,
        Code.SCHEMA_CHANGED: _REBUILD,
        Code.SOURCE_RECREATED: _REBUILD,
        Code.SOURCE_MISSING: "mirrorfeed preflight",
        Code.CLONED: _LOOK,
        Code.ARCHIVE_BLOCKS: "mirrorfeed archive plan {source}",
        Code.CREDENTIAL: "mirrorfeed preflight",
        Code.PERMISSION: "mirrorfeed preflight",
        Code.UNREACHABLE: "mirrorfeed doctor {table}",
        Code.EMPTY_FILE: _REBUILD,
        Code.EMPTY_TABLE: _PUBLISH,
        Code.NOT_PUBLISHED: _PUBLISH,
        Code.STUCK_SNAPSHOTTING: _REBUILD,
        Code.NEVER_SYNCS: "mirrorfeed fabric stop && mirrorfeed fabric start",
        Code.MIRRORING_OFF: "mirrorfeed fabric start",
        Code.MIRRORING_PAUSED: "mirrorfeed fabric start",
        Code.THROTTLED: "mirrorfeed fabric status",
        Code.OWNER_LEFT: "mirrorfeed fabric create NAME",
        Code.TEXT_TOO_LONG: _REBUILD,
        Code.TABLE_FAILED: "mirrorfeed lint {zone}",
        Code.OTHER: _LOOK,
    }
)
"""{table} is the target, {source} the source as SQL spells it, {zone} the landing zone."""

SAFE = frozenset({Code.UNFINISHED, Code.ORPHANS})
"""What `--fix` carries out: the steps with which every run begins anyway. No other remedy leaves sources, rows in
Fabric and what is paid for as they are."""


class Weight(Enum):
    WRONG = "wrong"
    """Nothing is published any more, or what is published does not arrive."""
    SOON = "soon"
    """It will be so, if nothing changes."""
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    code: Code
    table: str
    """The target; empty for the mirrored database as a whole."""
    what: str
    remedy: str
    weight: Weight = Weight.WRONG

    @property
    def safe(self) -> bool:
        return self.code in SAFE
