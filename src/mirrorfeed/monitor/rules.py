"""From facts to findings. Pure: what publication itself would refuse is known by the error that it would raise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from mirrorfeed import credentials
from mirrorfeed.archive.guard.needed import ArchivedFilesNeeded
from mirrorfeed.display.humanize import a_few, counted, duration
from mirrorfeed.errors import MirrorfeedError, Transient
from mirrorfeed.fabric.errors import NoPermission, TokenRefused
from mirrorfeed.feed.errors import (
    EXPIRED,
    FeedOff,
    FeedUnreadable,
    FilesArchived,
    Gap,
    KeysNotReadable,
    NoTableAtPath,
    NotDelta,
    PartitionsChanged,
    RowsProtected,
    SourceMissing,
    SourceRecreated,
)
from mirrorfeed.feed.retention import FILES, LEAST, LOG
from mirrorfeed.landing import metadata, schema
from mirrorfeed.landing.log import RecordTooNew
from mirrorfeed.landing.strict_json import DamagedFile
from mirrorfeed.monitor.findings import Code, Finding, Weight, remedy
from mirrorfeed.publish.errors import (
    BeginningMissing,
    FilesLost,
    FinalNameTaken,
    ForeignFile,
    LogLost,
    NumbersDisagree,
    StagedFileDamaged,
)
from mirrorfeed.stores import answers as stores

_BY_ERROR: tuple[tuple[tuple[type[MirrorfeedError], ...], Code], ...] = (
    ((FeedOff,), Code.FEED_OFF),
    ((SourceRecreated,), Code.SOURCE_RECREATED),
    ((PartitionsChanged, schema.IncompatibleSchema, schema.ColumnsDropped, FeedUnreadable), Code.SCHEMA_CHANGED),
    ((metadata.KeysChanged, metadata.SettingChanged), Code.KEYS_CHANGED),
    ((NumbersDisagree, ForeignFile, FinalNameTaken), Code.NUMBERS_DISAGREE),
    ((FilesLost,), Code.FILES_LOST),
    ((BeginningMissing, LogLost, StagedFileDamaged), Code.LOG_DAMAGED),
    ((DamagedFile, RecordTooNew), Code.LOG_DAMAGED),
    ((SourceMissing, NoTableAtPath, NotDelta), Code.SOURCE_MISSING),
    ((FilesArchived, ArchivedFilesNeeded), Code.ARCHIVE_BLOCKS),
    ((credentials.CredentialRefused, credentials.SecretUnreachable), Code.CREDENTIAL),
    ((credentials.CertificatesUnreadable,), Code.CREDENTIAL),
    ((credentials.ServiceCredentialUnreachable, stores.TokenRefused, TokenRefused), Code.CREDENTIAL),
    ((stores.NoPermission, NoPermission, KeysNotReadable, RowsProtected), Code.PERMISSION),
    ((stores.CapacityPaused,), Code.MIRRORING_PAUSED),
)
_WORDS: tuple[tuple[str, Code], ...] = (
    (r"zero.?byte|empty file|not a parquet file|magic bytes", Code.EMPTY_FILE),
    (r"no (data )?files?\b.*(found|landing)|folder is empty", Code.EMPTY_TABLE),
    (r"throttl|too many requests|capacity.*(limit|exceeded)|\b429\b", Code.THROTTLED),
    (r"owner|disabled (user|account)|user.*(not found|deleted)", Code.OWNER_LEFT),
    (r"truncat|string.*too long|exceeds.*(8000|8 ?kb|16 ?mb|length)|maximum length", Code.TEXT_TOO_LONG),
)
"""What the service's own sentences are about, as far as they are known; none of them is documented."""

_LOOKED_LONG = 3600.0
"""Seconds after which a table that waits for the service is one that hangs."""
_SOON = 7 * 86_400.0
_TEXT, _OLD_TEXT = 16 * 2**20, 8_000
"""Bytes that a column of text holds, and that it held in tables which Fabric made earlier."""
_LONGER_SINCE = datetime(2025, 11, 18, tzinfo=UTC)
_NOT_YET = 0.05
"""Of the retention: a lag below this is no lag."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    table: str
    source: str
    """As SQL spells it."""
    source_name: str = ""
    """As commands take it."""
    trouble: MirrorfeedError | None = None
    """What the next publication would be refused with, or what stood in the way of looking."""
    published: int | None = None
    lag_seconds: float | None = None
    """Since the oldest commit that is not published; 0 where there is none."""
    lag_before: tuple[float, float] | None = None
    """How many seconds ago an earlier publication was, and what the lag was then."""
    longest_wait: float | None = None
    """Seconds from a commit to the record that published it, the longest that the log still knows."""
    retention: float | None = None
    """Seconds: delta.deletedFileRetentionDuration."""
    log_retention: float | None = None
    """Seconds: delta.logRetentionDuration."""
    unfinished: int = 0
    last_gone: MirrorfeedError | None = None
    """A warning that the last data file was removed."""
    orphans: tuple[str, ...] = ()
    """What can never be published: staged files, and folders of other logs."""
    empty_files: tuple[str, ...] = ()
    """Data files of no bytes that the service has still to read."""
    data_files: int = 0
    newest_file_age: float | None = None
    """Seconds since the newest of them was written."""
    folder: bool = True
    """Whether the table has a folder in the landing zone."""
    begun: datetime | None = None
    """When its log was made, and so no later than its table in Fabric."""
    longest_text: tuple[str, int] | None = None
    """The column with the longest text, and its bytes; None where that is not cheap to know."""
    cloned_from: str | None = None
    service: str | None = None
    """The table's status in Fabric's words; None where it was not asked, empty where Fabric has no such table."""
    service_error: str | None = None
    service_rows: int | None = None


@dataclass(frozen=True, slots=True)
class ZoneFacts:
    status: str | None = None
    """The mirrored database's, in Fabric's words; None where it was not asked."""
    trouble: MirrorfeedError | None = None
    tables: Mapping[str, str] | None = None
    """The status of each table that Fabric has."""
    published_tables: int = 0
    """Of the configuration, with a first file."""


def judge_table(facts: TableFacts, zone: str = "the landing zone") -> list[Finding]:
    def finding(code: Code, what: str, weight: Weight = Weight.WRONG) -> Finding:
        names = {"table": facts.table, "source": facts.source, "source_name": facts.source_name}
        return Finding(code, facts.table, what, remedy(code, zone=zone, **names), weight)

    found: list[Finding] = []
    if facts.trouble:
        found.append(finding(code_of(facts.trouble), str(facts.trouble)))
    elif facts.published is None:
        found.append(finding(Code.NOT_PUBLISHED, "Nothing of it is published yet.", Weight.NOTE))
    if facts.unfinished:
        what = f"{counted(facts.unfinished, 'file')} of the newest record {_is(facts.unfinished)} still to be renamed."
        found.append(finding(Code.UNFINISHED, what))
    if facts.last_gone:
        found.append(finding(Code.LAST_FILE_GONE, str(facts.last_gone), Weight.SOON))
    if facts.orphans:
        what = f"What can never be published lies beside the log: {a_few(facts.orphans)}."
        found.append(finding(Code.ORPHANS, what, Weight.NOTE))
    if facts.empty_files:
        what = f"{a_few(facts.empty_files)}: of no bytes, so the service reads no file after it."
        found.append(finding(Code.EMPTY_FILE, what))
    if facts.folder and facts.published is None and not facts.data_files:
        what = (
            "Its folder holds no data file: Fabric fails such a table after days, and pauses the database. If it cannot"
            " be published soon, take it out of the configuration and run `mirrorfeed drop`."
        )
        found.append(finding(Code.EMPTY_TABLE, what))
    if facts.cloned_from:
        what = (
            f"The source is a clone of {facts.cloned_from}: it has a history and a feed of its own, so its first"
            " publication is a snapshot, whatever is published of the original."
        )
        found.append(finding(Code.CLONED, what, Weight.NOTE))
    if long := _too_long(facts):
        found.append(finding(Code.TEXT_TOO_LONG, *long))
    found += [finding(*each) for each in _of_time(facts)]
    found += [finding(*each) for each in _of_service(facts)]
    return found


def judge_zone(facts: ZoneFacts, zone: str = "the landing zone") -> list[Finding]:
    def finding(code: Code, what: str) -> Finding:
        return Finding(code, "", what, remedy(code, zone=zone))

    if facts.trouble:
        said = str(facts.trouble)
        return [finding(_by_words(said) if isinstance(facts.trouble, Transient) else code_of(facts.trouble), said)]
    if facts.status == "Paused":
        what = (
            "Mirroring is Paused, as it stays when a capacity was paused and resumed. Starting takes every table anew."
        )
        return [finding(Code.MIRRORING_PAUSED, what)]
    if facts.status in ("Stopped", "Initialized"):
        return [finding(Code.MIRRORING_OFF, f"Mirroring is {facts.status}: nothing that is published arrives.")]
    if facts.status == "Running" and facts.published_tables and facts.tables is not None and not facts.tables:
        what = "Mirroring is Running, and Fabric knows none of the tables that are published."
        return [finding(Code.NEVER_SYNCS, what)]
    return []


def code_of(error: MirrorfeedError) -> Code:
    """Which of the list an error of ours is."""
    if isinstance(error, Gap):
        return Code.VACUUM_AHEAD if error.reason == EXPIRED else Code.GAP
    for kinds, code in _BY_ERROR:
        if isinstance(error, kinds):
            return code
    return Code.UNREACHABLE if isinstance(error, Transient) else Code.OTHER


def seconds_left(retention: float, lag: float, before: tuple[float, float] | None) -> float | None:
    """Until the lag is as long as the retention, at the rate at which it grew; None where it does not grow. Without an
    earlier figure, nothing is being published, and the lag grows as time goes by."""
    ago, lag_then = before or (lag, 0.0)
    if lag <= 0 or ago <= 0 or (rate := (lag - lag_then) / ago) <= 0:
        return None
    return max(0.0, retention - lag) / rate


def _too_long(facts: TableFacts) -> tuple[str, Weight] | None:
    name, length = facts.longest_text or ("", 0)
    said = f"The column {name!r} has a text of {length:,} bytes"
    if length > _TEXT:
        return f"{said}; a column of text in Fabric holds {_TEXT:,}.", Weight.WRONG
    if length > _OLD_TEXT and facts.begun and facts.begun < _LONGER_SINCE:
        what = (
            f"{said}, and the table is published since {facts.begun:%Y-%m-%d}: in tables that Fabric made before"
            f" {_LONGER_SINCE:%Y-%m-%d} a column of text holds {_OLD_TEXT:,}."
        )
        return what, Weight.SOON
    return None


def _of_time(facts: TableFacts) -> Iterator[tuple[Code, str, Weight]]:
    lag, waited = facts.lag_seconds or 0.0, facts.longest_wait or 0.0
    for name, code, kept in (
        (FILES, Code.RETENTION_SHORT, facts.retention),
        (LOG, Code.LOG_RETENTION_SHORT, facts.log_retention),
    ):
        if kept is None:
            continue
        if kept < lag:
            what = f"{name} is {duration(kept)}, and publication is {duration(lag)} behind: changes may be lost now."
            yield code, what, Weight.WRONG
        elif kept < LEAST * waited:
            what = (
                f"{name} is {duration(kept)}, and a change waited {duration(waited)} until it was published: one run"
                " that fails may be enough to lose some."
            )
            yield code, what, Weight.SOON
    least = min((kept for kept in (facts.retention, facts.log_retention) if kept is not None), default=None)
    if least is None or not _NOT_YET * least <= lag <= least:
        return
    left = seconds_left(least, lag, facts.lag_before)
    if left is not None and left <= _SOON:
        what = (
            f"Publication is {duration(lag)} behind; at the present rate it falls behind what the feed keeps"
            f" ({duration(least)}) in {left / 3600:.1f} hours."
        )
        yield Code.FALLS_BEHIND, what, Weight.SOON


def _of_service(facts: TableFacts) -> Iterator[tuple[Code, str, Weight]]:
    old = (facts.newest_file_age or 0.0) >= _LOOKED_LONG
    if facts.service_error:
        yield _by_words(facts.service_error, Code.TABLE_FAILED), f"Fabric says: {facts.service_error}", Weight.WRONG
    elif facts.service in ("Failed", "Stopped"):
        yield Code.TABLE_FAILED, f"Fabric has the table as {facts.service}, without a reason.", Weight.WRONG
    elif facts.service == "Snapshotting" and old:
        what = f"Fabric has it as Snapshotting, {duration(facts.newest_file_age or 0)} after its newest file."
        yield Code.STUCK_SNAPSHOTTING, what, Weight.WRONG
    elif facts.service == "" and facts.data_files and old:
        what = f"It is published, and Fabric has no such table, {duration(facts.newest_file_age or 0)} after a file."
        yield Code.NEVER_SYNCS, what, Weight.WRONG


def _by_words(said: str, otherwise: Code = Code.UNREACHABLE) -> Code:
    return next((code for pattern, code in _WORDS if re.search(pattern, said, re.IGNORECASE)), otherwise)


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
