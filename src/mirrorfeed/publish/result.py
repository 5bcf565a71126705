"""What a run did for a table: for people, and for what tells them. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mirrorfeed.display.humanize import MARKERS, by_marker, counted, duration, size
from mirrorfeed.display.rows import Row, described, nonzero, row, shown
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.record import Record

_LONG = 5.0
"""Seconds."""


@dataclass(slots=True)
class Publication:
    """One record that a run made, or found made and finished, and what only the run knows of it."""

    record: Record
    oldest: datetime | None
    """When the first of its versions was committed; None where an earlier run made the record."""
    latest: int | None
    """The newest version of the source as it was made; None likewise."""
    seconds: dict[str, float]
    """By phase: stage, record and rename, as far as it came."""
    retries: int = 0
    """How often calls to the landing zone were repeated for its files."""


@dataclass(slots=True)
class Progress:
    """What one run did for one table, as far as it came."""

    decision: str = ""
    """What comes next, until a look shows it as done."""
    from_version_exclusive: int | None = None
    to_version_inclusive: int | None = None
    published: int | None = None
    """The version that is published, by this run or one before."""
    latest: int | None = None
    publications: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    retries: int = 0
    """How often calls to the landing zone were repeated for files, published or not."""
    differed: str = ""
    """What Spark wrote otherwise than files are to be, so that they were made anew."""
    made: list[Publication] = field(default_factory=list)
    sent: dict[str, tuple[str, Publication]] = field(default_factory=dict)
    """By their batches, with the log: records that were sent, until a look shows what became of them."""
    short: MirrorfeedError | None = None
    """What warns before loss: that the source keeps changes for too short a time."""
    last_gone: MirrorfeedError | None = None
    """A warning that the last data file was removed, perhaps before Fabric consumed it."""
    across: MirrorfeedError | None = None
    """The note on what was published by another way than the feed, such as across a gap in it."""
    untidy: MirrorfeedError | None = None
    """Why leftovers could not be removed. They do no harm."""

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
            if looked_up >= _LONG and looked_up > (sum(publication.seconds.values()) - looked_up) / 2:
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
            lines.append(described(self.error))
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
