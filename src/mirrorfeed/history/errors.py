"""Errors of permanent histories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from mirrorfeed.errors import Computed, ConcurrentPublisherError, ConfigurationError, HistoryError, problem
from mirrorfeed.source.errors import PublicationBlockedError

_FOREIGN_WRITE = "another writer changed the history"
_RESTORED = "the history was restored"


@problem(ConfigurationError, "MF6001")
def no_history(*, path: str, tables: Sequence[str]) -> None:
    """{path} sets no history for {tables:list}.

    Set `history: main.history` for all tables, or set the `history` of a single table.
    """


@problem(PublicationBlockedError, "MF6002")
def history_interrupted(*, table: str, history: str, version: int, finding: PublicationBlockedError) -> None:
    """The history {history} ends at version {version}. {finding.problem}

    To continue with a snapshot, run `mirrorfeed history append {table:argument} --reseed`. The history then lacks the
    versions in between. With `on_gap: reseed` (lost versions) and `on_schema_change: reseed` (changed columns) this
    happens automatically.
    """


class HistorySourceReplacedError(PublicationBlockedError):
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


@problem(ConcurrentPublisherError, "MF6005")
def append_conflict(*, history: str, conflicts: int) -> None:
    """Other runs append to {history} at the same time, so this run failed to append {conflicts} times.

    Run `mirrorfeed history append` again, in only one process at a time.
    """


class HistoryColumnsError(PublicationBlockedError):
    code = "MF6006"
    what = (
        "The columns of {table} changed at version {version} in a way that its history cannot store: {changes:reasons}."
    )
    fix = "Run `mirrorfeed history append {table:argument} --reseed` to continue with a snapshot."
    changes: Sequence[str]
    version: int


@problem(HistoryError, "MF6007")
def not_a_history(*, table: str, missing: str) -> None:
    """The table {table} exists, but is not a history: it has no column {missing}.

    Set `history` to a table that does not exist. mirrorfeed creates it.
    """


class HistoryChangedError(HistoryError):
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
    history: str
    reason: str = ""
    record: int | None = None
    """Number of the record that a restore of the history removed. None if there was another change."""

    @property
    def case(self) -> str:
        return _FOREIGN_WRITE if self.record is None else _RESTORED


@problem(HistoryError, "MF6009")
def reserved_history_names(*, table: str, columns: Sequence[str]) -> None:
    """{table} has columns whose names are reserved in a history: {columns:quoted}.

    Rename these columns in the source, or set the `history` of this table to false.
    """


@problem(HistoryError, "MF6011")
def history_empty(*, history: str) -> None:
    """The history {history} is empty or does not exist.

    Run `mirrorfeed history append`, or check `history` in the configuration.
    """


@problem(HistoryError, "MF6012")
def not_in_history(*, history: str, stored: Sequence[str], requested: int | datetime) -> Computed:
    """{wanted} is not in the history {history}.

    Choose a version or time that the history contains: {stored:reasons}.
    """
    return {
        "wanted": f"Version {requested}"
        if isinstance(requested, int)
        else f"The time {requested.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    }


@problem(HistoryError, "MF6013")
def hidden_values_changed(*, table: str, history: str, changes: Sequence[str]) -> None:
    """The history {history} of {table} stores some columns with other values than now: {changes:reasons}.

    Undo the change, or set `history` to a new table. The existing history can still be replayed.
    """
