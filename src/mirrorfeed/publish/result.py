"""What a run did for a table: for people, and for what tells them. Nothing is decided by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

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


@dataclass(frozen=True, slots=True)
class TableResult:
    """What a run did for one table. The rows of failed publications are not in it, for nothing of them is published."""

    table: str
    progress: Progress
    seconds: float
    keys_checked: bool = True
    tries: int = 1
    error: MirrorfeedError | None = None
    reseeded: MirrorfeedError | None = None
    """Why the table was started again from a snapshot, if it was."""
    published_before: bool = False
    """Whether the ledger tells of publications of which a first load found no log."""
    stopped: bool = False
    """Whether it was asked to end before all was published."""
    fresh_within: float | None = None
    """Minutes in which a commit was to be published."""

    @property
    def first_load(self) -> bool:
        return self.progress.publications > 0 and self.progress.from_version_exclusive is None

    @property
    def long_look_ups(self) -> float:
        """The seconds for looking up deleted keys, if they were more than half of a publication's time and matter."""
        found = 0.0
        for publication in self.progress.made:
            seconds = publication.seconds
            looked_up = seconds.get("look_up", 0.0)
            if looked_up >= _LONG and looked_up > (sum(seconds.values()) - looked_up) / 2:
                found += looked_up
        return found

    @property
    def is_idle(self) -> bool:
        """Whether nothing was new."""
        return not (self.error or self.progress.made or self.stopped)

    @property
    def lag_versions(self) -> int | None:
        """Versions of the source that are not published yet."""
        latest, published = self.progress.latest, self.progress.published
        return None if latest is None or published is None else latest - published
