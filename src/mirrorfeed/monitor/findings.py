"""The closed list of what can be wrong with a table on its way, each with the command that helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from mirrorfeed.display.printable import shell_argument


class Code(Enum):
    """`mirrorfeed.errors` says what other codes there are."""

    FEED_OFF = "MF801"
    GAP = "MF802"
    VACUUM_AHEAD = "MF803"
    RETENTION_SHORT = "MF804"
    FALLS_BEHIND = "MF805"
    LOG_RETENTION_SHORT = "MF806"
    UNFINISHED = "MF807"
    ORPHANS = "MF808"
    NUMBERS_DISAGREE = "MF809"
    LOG_DAMAGED = "MF810"
    KEYS_CHANGED = "MF811"
    SCHEMA_CHANGED = "MF812"
    SOURCE_RECREATED = "MF813"
    SOURCE_MISSING = "MF814"
    CLONED = "MF815"
    ARCHIVE_BLOCKS = "MF816"
    CREDENTIAL = "MF817"
    PERMISSION = "MF818"
    UNREACHABLE = "MF819"
    EMPTY_FILE = "MF820"
    EMPTY_TABLE = "MF821"
    NOT_PUBLISHED = "MF822"
    STUCK_SNAPSHOTTING = "MF823"
    NEVER_SYNCS = "MF824"
    MIRRORING_OFF = "MF825"
    MIRRORING_PAUSED = "MF826"
    THROTTLED = "MF827"
    OWNER_LEFT = "MF828"
    TEXT_TOO_LONG = "MF829"
    TABLE_FAILED = "MF830"
    OTHER = "MF831"
    FILES_LOST = "MF832"
    LAST_FILE_GONE = "MF833"


MEANS: Mapping[Code, str] = MappingProxyType(
    {
        Code.FEED_OFF: "The change data feed of the source is off, so no change of it can be published.",
        Code.GAP: "Changes that were not published yet cannot be read any more.",
        Code.VACUUM_AHEAD: "Changes that wait are older than the source promises to keep them.",
        Code.RETENTION_SHORT: "The source keeps its changes for hardly longer than they wait to be published.",
        Code.FALLS_BEHIND: "If it goes on so, the source will forget changes before they are published.",
        Code.LOG_RETENTION_SHORT: "The source keeps its log for hardly longer than changes wait to be published.",
        Code.UNFINISHED: "A run ended between recording a publication and naming its files. The next run finishes it.",
        Code.ORPHANS: "Files that will never be published lie beside the log. They do no harm.",
        Code.NUMBERS_DISAGREE: "The table's folder holds files of which its log knows nothing.",
        Code.LOG_DAMAGED: "The table's log in the landing zone is damaged, or lost its beginning.",
        Code.KEYS_CHANGED: "The keys or the form of the files are not those with which the table was published.",
        Code.SCHEMA_CHANGED: "The columns of the source changed in a way that cannot be published on.",
        Code.SOURCE_RECREATED: "The source is another table than the one that was published, or was taken back.",
        Code.SOURCE_MISSING: "The source is not there, or cannot be seen by whoever publishes.",
        Code.CLONED: "The source is a clone. It has a history and a feed of its own, so it begins with a snapshot.",
        Code.ARCHIVE_BLOCKS: "What is to be published lies in an archive tier.",
        Code.CREDENTIAL: "Who publishes cannot log in.",
        Code.PERMISSION: "Who publishes may not do what publishing needs.",
        Code.UNREACHABLE: "The source, the landing zone or Fabric did not answer while it was looked at.",
        Code.EMPTY_FILE: "A data file without bytes waits for Fabric, which reads no file after it.",
        Code.EMPTY_TABLE: "The folder holds no data file: Fabric fails a table for that, and pauses the database.",
        Code.NOT_PUBLISHED: "Nothing of the table is published yet.",
        Code.STUCK_SNAPSHOTTING: "Fabric has been taking the table's first snapshot for longer than it should.",
        Code.NEVER_SYNCS: "Fabric says that mirroring runs, and does not know a table that is published.",
        Code.MIRRORING_OFF: "Mirroring is not started, so nothing that is published arrives.",
        Code.MIRRORING_PAUSED: "Mirroring is paused, as it stays when a capacity was paused and resumed.",
        Code.THROTTLED: "Fabric says that its capacity is too busy.",
        Code.OWNER_LEFT: "The owner of the mirrored database is gone, and Fabric reads files in the owner's name.",
        Code.TEXT_TOO_LONG: "A text is longer than a column of the mirrored table holds.",
        Code.TABLE_FAILED: "Fabric has stopped the table.",
        Code.OTHER: "Publication is refused for a reason that is told, and has no finding of its own.",
        Code.FILES_LOST: "Published files were removed before Fabric consumed them.",
        Code.LAST_FILE_GONE: "The last data file was removed, perhaps before Fabric consumed it.",
    }
)

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
        Code.ARCHIVE_BLOCKS: "mirrorfeed archive plan {source_name}",
        Code.CREDENTIAL: "mirrorfeed preflight",
        Code.PERMISSION: "mirrorfeed preflight",
        Code.UNREACHABLE: "mirrorfeed doctor {table}",
        Code.EMPTY_FILE: _REBUILD,
        Code.EMPTY_TABLE: _PUBLISH,
        Code.NOT_PUBLISHED: _PUBLISH,
        Code.STUCK_SNAPSHOTTING: _REBUILD,
        Code.NEVER_SYNCS: "mirrorfeed fabric stop && mirrorfeed fabric start",
        Code.MIRRORING_OFF: "mirrorfeed fabric start",
        Code.MIRRORING_PAUSED: "mirrorfeed fabric resume",
        Code.THROTTLED: "mirrorfeed fabric status",
        Code.OWNER_LEFT: "mirrorfeed fabric create NAME",
        Code.TEXT_TOO_LONG: _REBUILD,
        Code.TABLE_FAILED: "mirrorfeed lint {zone}",
        Code.OTHER: _LOOK,
        Code.FILES_LOST: _REBUILD,
        Code.LAST_FILE_GONE: "mirrorfeed verify {table}",
    }
)
"""{table} is the target, {source} the source as SQL spells it, {source_name} as commands take it, {zone} the landing
zone."""

SAFE = frozenset({Code.UNFINISHED, Code.ORPHANS})
"""What `--fix` carries out: the steps with which every run begins anyway. No other remedy leaves sources, rows in
Fabric and what is paid for as they are."""


NOTHING = "Nothing is wrong, as far as can be told without publishing."


def remedy(code: Code, *, table: str = "", source: str = "", source_name: str = "", zone: str = "") -> str:
    """Return the command for a finding, with its arguments quoted for a shell, or the SQL statement."""
    words = {"table": table, "source_name": source_name, "zone": zone}
    quoted = {name: shell_argument(word) if word else "" for name, word in words.items()}
    return REMEDIES[code].format(source=source, **quoted).strip()


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
