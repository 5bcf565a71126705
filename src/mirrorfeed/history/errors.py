"""Errors of permanent histories."""

from __future__ import annotations

from datetime import UTC, datetime

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.source.errors import Finding


class NoHistory(Terminal):
    code = "MF6001"
    what = "{path} configures no history for {tables:list}."
    fix = "Set `history`, for example `history: main.history` for all tables, or for a single table."


class HistoryInterrupted(Finding):
    code = "MF6002"
    what = "The history {history} ends at version {version}. {finding.problem}"
    fix = (
        "Run `mirrorfeed history run {table:argument} --begin-again` to continue with a snapshot; with `reseed` in the"
        " configuration this happens automatically. The history then lacks the versions in between, which `mirrorfeed"
        " history status` lists."
    )
    version: int
    finding: Finding


class SourceReplaced(Finding):
    code = "MF6003"
    what = {
        True: "{table} was restored to an older version: version {version} is in the history, the newest is {latest}.",
        False: (
            "{table} has id {found_id}, but {history} is the history of {kept} with id {kept_id}, up to version"
            " {version}. The source is another table, or was replaced, or dropped and created again."
        ),
    }
    fix = "Set `history` to another table. The existing history can still be replayed."
    history: str
    kept: str
    version: int
    kept_id: str
    found_id: str
    latest: int

    @property
    def case(self) -> bool:
        return self.kept_id == self.found_id


class RecordRejected(Terminal):
    code = "MF6004"
    what = (
        "{history} was restored to an earlier version, so record {number} cannot be appended: Delta has already"
        " accepted a record with this number."
    )
    fix = (
        "Restore the version that contains the record (RESTORE TABLE … TO VERSION AS OF …, see `DESCRIBE HISTORY`), or"
        " set `history` to another table."
    )


class AppendConflict(Transient):
    code = "MF6005"
    what = "Other runs append to {history}, and this run lost {conflicts:count conflict}."
    fix = "Run `mirrorfeed history run` again."


class ColumnsIncompatible(Finding):
    code = "MF6006"
    what = (
        "The columns of {table} changed at version {version}, and not only by adding, renaming or dropping columns:"
        " {changes:reasons}."
    )
    fix = "Run `mirrorfeed history run {table:argument} --begin-again` to continue with a snapshot."
    version: int


class NotAHistory(Terminal):
    code = "MF6007"
    what = "{table} exists and is not a history: it has no column {missing}."
    fix = "Set `history` to another table. mirrorfeed creates it."


class HistoryChanged(Terminal):
    code = "MF6008"
    what = "The history {history} was changed by another writer: {reason}. mirrorfeed neither reads nor appends to it."
    fix = (
        "Run `DESCRIBE HISTORY` to find the change. Undo it with RESTORE (set delta.appendOnly to false meanwhile), or"
        " set `history` to another table."
    )


class ReservedHistoryNames(Terminal):
    code = "MF6009"
    what = "{table} has columns with names that are reserved in its history: {columns:quoted}."
    fix = "Rename the columns in the source, or keep no history of this table."


class HistoryEmpty(Terminal):
    code = "MF6011"
    what = "The history {history} is empty or does not exist."
    fix = "Run `mirrorfeed history run` first."


class NotInHistory(Terminal):
    code = "MF6012"
    what = "{wanted} is not in the history {history}."
    fix = "Choose one of: {kept:reasons}."
    asked: int | datetime

    @property
    def wanted(self) -> str:
        return (
            f"Version {self.asked}"
            if isinstance(self.asked, int)
            else f"The time {self.asked.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
