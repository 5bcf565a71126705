"""Errors of permanent histories."""

from __future__ import annotations

from datetime import UTC, datetime

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.source.errors import BlockingFinding

_FOREIGN_WRITE = "another writer changed the history"
_RESTORED = "the history was restored"


class NoHistory(Terminal):
    code = "MF6001"
    what = "{path} sets no history for {tables:list}."
    fix = "Set `history: main.history` for all tables, or set the `history` of a single table."


class HistoryInterrupted(BlockingFinding):
    code = "MF6002"
    what = "The history {history} ends at version {version}. {finding.problem}"
    fix = (
        "To continue with a snapshot, run `mirrorfeed history append {table:argument} --reseed`. The history then"
        " lacks the versions in between. With `on_gap: reseed` (lost versions) and `on_schema_change: reseed` (changed"
        " columns) this happens automatically."
    )
    version: int
    finding: BlockingFinding


class SourceReplaced(BlockingFinding):
    code = "MF6003"
    what = {
        True: "{table} was restored to an older version: version {version} is in the history, the newest is {latest}.",
        False: (
            "{table} has the id {found_id}, but {history} is the history of {recorded} with the id {recorded_id}, up to"
            " version {version}. The source is another table now, or was replaced, or dropped and created again."
        ),
    }
    fix = "Set `history` to a new table. The existing history can still be replayed."
    history: str
    recorded: str
    version: int
    recorded_id: str
    found_id: str
    latest: int

    @property
    def case(self) -> bool:
        return self.recorded_id == self.found_id


class AppendConflict(Transient):
    code = "MF6005"
    what = "Other runs append to {history} at the same time, so this run failed to append {conflicts} times."
    fix = "Run `mirrorfeed history append` again, in only one process at a time."


class ColumnsIncompatible(BlockingFinding):
    code = "MF6006"
    what = (
        "The columns of {table} changed at version {version} in a way that its history cannot store: {changes:reasons}."
    )
    fix = "Run `mirrorfeed history append {table:argument} --reseed` to continue with a snapshot."
    version: int


class NotAHistory(Terminal):
    code = "MF6007"
    what = "The table {table} exists, but is not a history: it has no column {missing}."
    fix = "Set `history` to a table that does not exist. mirrorfeed creates it."


class HistoryChanged(Terminal):
    code = "MF6008"
    what = {
        _FOREIGN_WRITE: (
            "The history {history} was changed by another writer: {reason}. mirrorfeed neither reads nor appends to it."
        ),
        _RESTORED: (
            "The history {history} was restored to a version before record {record}. Delta accepts each record number"
            " once, so record {record} cannot be appended again."
        ),
    }
    fix = {
        _FOREIGN_WRITE: (
            "Find the change with `DESCRIBE HISTORY`. Undo the change with RESTORE (set delta.appendOnly to false"
            " before, and to true afterwards), or set `history` to a new table."
        ),
        _RESTORED: (
            "Find the version that contains record {record} with `DESCRIBE HISTORY`, and restore this version (RESTORE"
            " TABLE … TO VERSION AS OF …). Or set `history` to a new table."
        ),
    }
    reason: str = ""
    record: int | None = None
    """Number of the record that a restore of the history removed. None if there was another change."""

    @property
    def case(self) -> str:
        return _FOREIGN_WRITE if self.record is None else _RESTORED


class ReservedHistoryNames(Terminal):
    code = "MF6009"
    what = "{table} has columns whose names are reserved in a history: {columns:quoted}."
    fix = "Rename these columns in the source, or set the `history` of this table to false."


class HistoryEmpty(Terminal):
    code = "MF6011"
    what = "The history {history} is empty or does not exist."
    fix = "Run `mirrorfeed history append`, or check `history` in the configuration."


class NotInHistory(Terminal):
    code = "MF6012"
    what = "{wanted} is not in the history {history}."
    fix = "Choose a version or time that the history contains: {stored:reasons}."
    requested: int | datetime

    @property
    def wanted(self) -> str:
        return (
            f"Version {self.requested}"
            if isinstance(self.requested, int)
            else f"The time {self.requested.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
