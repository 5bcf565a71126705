"""Progress and result of publishing a table, for display only: nothing is decided by them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from mirrorfeed.display.humanize import MARKERS, by_marker, counted, duration, size
from mirrorfeed.display.rows import Row, nonzero, row, shown
from mirrorfeed.errors import MirrorfeedError, coded, named
from mirrorfeed.landing.errors import BadCondition
from mirrorfeed.landing.record import Record
from mirrorfeed.landing.selection import Selection
from mirrorfeed.source.next_step import Commit, Range

_LONG_LOOK_UP = 5.0
"""Seconds."""
_VALUE_ERROR = re.compile(r"\[(?:CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|ARITHMETIC_OVERFLOW)\b.*")
"""Errors of a condition for the values of a row. All other expressions of a publication work for every value."""


@dataclass(slots=True)
class Publication:
    """A record that a run added or finished, with facts that only the run knows."""

    record: Record
    oldest: datetime | None
    """The time of its first commit. None if an earlier run added the record."""
    latest: int | None
    """The newest version of the source at that time. None if an earlier run added the record."""
    seconds: dict[str, float]
    """By phase: stage, look_up, record and rename."""
    retries: int = 0
    """Number of repeated calls to the landing zone for its files."""


@dataclass(slots=True)
class Progress:
    decision: str = ""
    """The next step. Empty once a view shows that it is done."""
    from_version_exclusive: int | None = None
    to_version_inclusive: int | None = None
    published: int | None = None
    """The published version, of this run or an earlier one."""
    latest: int | None = None
    publications: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    differed: str = ""
    """How Spark's files differed from other files of the table, so that they were rewritten."""
    made: list[Publication] = field(default_factory=list)
    sent: dict[str, tuple[str, Publication]] = field(default_factory=dict)
    """Log id and publication by batch: records that were sent, until a view shows what happened to them."""
    short: MirrorfeedError | None = None
    """A warning that the source keeps changes for too short a time."""
    last_gone: MirrorfeedError | None = None
    """A warning that the last data file was removed, possibly before Fabric consumed it."""
    across: MirrorfeedError | None = None
    """A note that changes were read in another way than from the feed, for example across a gap."""
    untidy: MirrorfeedError | None = None
    """Why leftovers were not deleted. They do no harm."""

    @property
    def step(self) -> str:
        """The step that the run takes now, in words."""
        return f"publishing {self.decision}" if self.decision else self.in_words

    @property
    def in_words(self) -> str:
        """The publications of the run, in words."""
        rows = by_marker(self.rows) or "no rows"
        return f"published up to version {self.published}: {rows}, {counted(self.files, 'file')}"

    @property
    def lag_versions(self) -> int | None:
        return None if self.latest is None or self.published is None else self.latest - self.published

    @property
    def first_load(self) -> bool:
        return self.publications > 0 and self.from_version_exclusive is None

    @property
    def long_look_ups(self) -> float:
        """The seconds for looking up deleted keys, if they are more than half of a publication's time and matter."""
        found = 0.0
        for publication in self.made:
            looked_up = publication.seconds.get("look_up", 0.0)
            if looked_up >= _LONG_LOOK_UP and looked_up > (sum(publication.seconds.values()) - looked_up) / 2:
                found += looked_up
        return found

    def took_another_way(self, note: MirrorfeedError) -> None:
        self.across = note

    def add(self, publication: Publication) -> None:
        record = publication.record
        self.made.append(publication)
        if self.publications == 0:
            self.from_version_exclusive = record.from_version_exclusive
        self.published = self.to_version_inclusive = record.to_version_inclusive
        self.publications += 1
        self.files += len(record.files)
        for file in record.files:
            self.bytes += file.bytes
            for marker, count in file.rows.items():
                self.rows[marker] = self.rows.get(marker, 0) + count


@row
class TableResult(Row):
    """Result of a run for one table. Failed attempts are not counted, because nothing of them is published."""

    QUIET = "{tables}: nothing new."

    table: str = shown("table")
    progress: Progress = field(repr=False)
    what: str = shown("published", init=False)
    """In words: a snapshot, versions, or that nothing was new."""
    from_version_exclusive: int | None = field(init=False)
    """None for a snapshot, and if nothing was published."""
    to_version_inclusive: int | None = field(init=False)
    published_version: int | None = field(init=False)
    """The version up to which the table is published, by this run or an earlier one."""
    inserts: int = shown("inserts", nonzero, init=False)
    updates: int = shown("updates", nonzero, init=False)
    upserts: int = shown("upserts", nonzero, init=False)
    deletes: int = shown("deletes", nonzero, init=False)
    files: int = shown("files", init=False)
    bytes: int = shown("size", size, right=True, init=False)
    seconds: float = shown("took", duration, right=True)
    lag_versions: int | None = shown("lag", init=False)
    """Versions of the source that are not published yet."""
    keys_checked: bool = field(default=True, repr=False)
    tries: int = 1
    """Attempts in this run."""
    error: MirrorfeedError | None = None
    reseeded: MirrorfeedError | None = None
    """The reason for which the table was reloaded from a snapshot, if it was."""
    published_before: bool = field(default=False, repr=False)
    """Whether the ledger has publications of a table whose log did not exist."""
    stopped: bool = False
    """Whether the run was stopped before everything was published."""
    freshness_target_minutes: float | None = field(default=None, repr=False)
    """Minutes from a commit to its publication."""

    def __post_init__(self) -> None:
        progress = self.progress
        derived = {f"{marker}s": progress.rows.get(marker, 0) for marker in MARKERS} | {
            "what": self._in_words(),
            "from_version_exclusive": progress.from_version_exclusive,
            "to_version_inclusive": progress.to_version_inclusive,
            "published_version": progress.published,
            "files": progress.files,
            "bytes": progress.bytes,
            "lag_versions": progress.lag_versions,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _in_words(self) -> str:
        first, last = self.progress.from_version_exclusive, self.progress.to_version_inclusive
        if self.progress.publications:
            if first is None:
                return f"snapshot to {last}"
            return str(last) if first + 1 == last else f"{first + 1} to {last}"
        if self.error or self.stopped:
            return "failed" if self.error else "stopped"
        return f"nothing new at {self.progress.published}"

    @property
    def ok(self) -> bool:
        """Whether the table did not fail and was not stopped."""
        return self.error is None and not self.stopped

    @property
    def is_idle(self) -> bool:
        """Whether nothing was new."""
        return self.ok and not self.progress.made

    @property
    def quiet(self) -> bool:
        return self.is_idle

    def remarks(self) -> Sequence[str]:
        lines = []
        if self.reseeded:
            lines.append(f"reloaded from a snapshot. {self.reseeded.problem}")
        elif self.published_before:
            lines.append(
                "loaded from a snapshot: the ledger has earlier publications, but this landing zone has none. If the"
                " folder was deleted here, Fabric drops the table and loads it again."
            )
        if self.error:
            lines.append(coded(self.error))
        if self.tries > 1:
            lines.append(f"{self.tries} attempts.")
        if self.progress.first_load and not self.keys_checked:
            lines.append("the keys of the initial load were not validated (`validate_keys: none`).")
        if seconds := self.progress.long_look_ups:
            lines.append(
                f"looking up deleted keys in the source took {seconds:.0f} s, most of the time. If its keys are always"
                " unique, set `validate_keys: range`."
            )
        return [f"{self.table}: {line}" for line in lines]


@contextmanager
def named_errors(
    table: str, what: Range | int, commits: Sequence[Commit], selection: Selection | None = None
) -> Iterator[None]:
    """Turn unexpected errors into a `MirrorfeedError` that names the range, its operations and what helps."""
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
        where = selection.where if selection else None
        if where is not None and (met := _VALUE_ERROR.search(str(error))):
            raise BadCondition(
                table=table, condition=where, reason=met.group().partition(" SQLSTATE")[0].rstrip(".")
            ) from error
        if isinstance(what, int):
            raise named(f"Publishing version {what} of {table}", error) from error
        doing = f"Publishing {what} of {table} ({operations_in(what, commits)})"
        helps = "`mirrorfeed rebuild` starts the table again from a snapshot, which reads none of these changes."
        raise named(doing, error, helps) from error


def operations_in(range_: Range, commits: Sequence[Commit]) -> str:
    """The operations in the order of their first commit, with counts above 1."""
    inside = range(range_.from_version_exclusive + 1, range_.to_version_inclusive + 1)
    counts = Counter(commit.operation for commit in commits if commit.version in inside)
    return ", ".join(f"{count} {operation}" if count > 1 else operation for operation, count in counts.items())
