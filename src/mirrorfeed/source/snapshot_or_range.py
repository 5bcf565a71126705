"""Decide the next publication of a table from its commits: a snapshot, ranges of versions, nothing, or an error.

Pure functions, without Spark or storage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from mirrorfeed.landing.load_part import LoadPart
from mirrorfeed.landing.names import split_name
from mirrorfeed.source.errors import (
    FeedGapError,
    GapReason,
    PartitionsChangedError,
    PublicationBlockedError,
    Recreation,
    SourceRecreatedError,
    feed_off,
)
from mirrorfeed.source.table_info import FEED

_SAME_COMMIT = timedelta(seconds=1)
"""Delta moves the times of commits in the same second by milliseconds, which depend on the length of the history that
is read. A publication and the creation of another table take longer."""
_RENAME, DROP = "RENAME COLUMN", "DROP COLUMNS"
BLOCKED = "blocked"
"""Next step of a table in words, if an error prevents its publication."""
COMPARISON = "COMPARISON"
"""Value of `Commit.operation` if changes are found by comparing rows instead of reading commits."""


@dataclass(frozen=True, slots=True)
class Commit:
    version: int
    timestamp: datetime
    operation: str
    rows: int | None = field(default=None, compare=False)
    """Number of changed rows from the commit's metrics, which may be inexact. None if unknown."""
    parameters: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Parameters of the operation, as in the column `operationParameters` of DESCRIBE HISTORY."""
    metrics: Mapping[str, str | None] = field(default_factory=dict, compare=False, repr=False)
    """Metrics of the commit, as in the column `operationMetrics` of DESCRIBE HISTORY."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Unpublished commits and current properties of a table. `decide` uses them to choose the next publication."""

    table_id: str
    latest: int
    """Newest version of the table."""
    commits: tuple[Commit, ...]
    """Commits after the published version, in ascending order. Versions without a log file are missing. Before the
    first publication, only the newest commit.
    """
    unreadable: Mapping[int, GapReason] = field(default_factory=dict)
    """Versions whose changes cannot be read, with the reason. For each reason, only the first version is listed."""
    breaks: tuple[int, ...] = ()
    """Versions that change the schema in another way than adding columns."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties at the newest version. `partitions` and `bytes` are also values at this version."""
    partitions: tuple[str, ...] = ()
    bytes: int | None = field(default=None, compare=False)
    """Size of all data files, or None if unknown."""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)
    """Schema of each version whose schema is already read, as the JSON of a Spark `StructType`."""
    recreation: Recreation | None = Recreation.NOT_COMPARED
    """Reason why publishing stops if the id of the table is not the published one. None if publishing continues,
    because the log of the table is proven to contain the published version."""

    @property
    def is_comparison(self) -> bool:
        """True if changes are found by comparing rows. Then all unpublished versions become one range."""
        return bool(self.commits) and self.commits[0].operation == COMPARISON

    def commit_time(self, version: int) -> datetime | None:
        """Return the commit time of a version in `commits`, or None if unknown."""
        return next((commit.timestamp for commit in self.commits if commit.version == version), None)

    def rows_in(self, range_: Range) -> int | None:
        """Return the number of rows that the commits of a range changed, or None if unknown for a commit."""
        first, last = range_.from_version_exclusive + 1, range_.to_version_inclusive
        rows = [commit.rows for commit in self.commits if first <= commit.version <= last]
        return None if None in rows or len(rows) < range_.versions else sum(count or 0 for count in rows)


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """Published version of the source, and the table id, partition columns and commit time of this version."""

    table_id: str
    version: int
    partitions: tuple[str, ...] = ()
    committed: datetime | None = None
    """Commit time of the version. None if unknown."""
    is_compared: bool = False
    """True if a comparison of all rows published it. Then id and version belong to the table of row hashes."""
    load: LoadPart | None = None
    """Last published part, if the version was published as a first load in parts."""

    @property
    def next_part(self) -> LoadPart | None:
        """Part to publish next, before any other version. None if the version is completely published."""
        return None if self.load is None or self.load.is_last else self.load.next


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive versions of a table."""

    from_version_exclusive: int
    to_version_inclusive: int

    @property
    def versions(self) -> int:
        return max(0, self.to_version_inclusive - self.from_version_exclusive)

    @property
    def reads(self) -> Range:
        return self

    def __str__(self) -> str:
        if self.versions == 1:
            return f"version {self.to_version_inclusive}"
        return f"versions {self.from_version_exclusive + 1} to {self.to_version_inclusive}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of a version, or one part of them."""

    version: int
    part: LoadPart | None = None
    """Part to read, if the version is published in parts. None for all rows."""
    committed: datetime | None = None
    """Commit time of the version. None if the commit is one of `Facts.commits`."""

    @property
    def from_version_exclusive(self) -> None:
        return None

    @property
    def to_version_inclusive(self) -> int:
        return self.version

    @property
    def reads(self) -> Snapshot:
        return self

    @property
    def continues(self) -> bool:
        """True for a part of a load that other parts precede."""
        return self.part is not None and self.part.number > 1

    def __str__(self) -> str:
        return f"snapshot at version {self.version}{f', {self.part}' if self.part else ''}"


@dataclass(frozen=True, slots=True)
class PublishRanges:
    """Decision to publish consecutive ranges.

    A version that changes the schema is a separate range, unless it only adds columns.
    """

    ranges: tuple[Range, ...]

    @property
    def first(self) -> Range:
        return self.ranges[0]

    def __str__(self) -> str:
        return ", then ".join(str(part) for part in self.ranges)


@dataclass(frozen=True, slots=True, eq=False)
class WithinVersion:
    """Publication without changes of the source. Its log record has the same version as start and end."""

    version: int

    @property
    def from_version_exclusive(self) -> int:
        return self.version

    @property
    def to_version_inclusive(self) -> int:
        return self.version


@dataclass(frozen=True, slots=True, eq=False)
class KeyRepair(WithinVersion):
    """Request to publish the rows of some keys again, with their values at the published version."""

    keys: Any
    """Keys of the rows: for a Delta table, a DataFrame with the key columns."""

    @property
    def reads(self) -> Snapshot:
        return Snapshot(self.version)

    def __str__(self) -> str:
        return f"a repair at version {self.version}"


@dataclass(frozen=True, slots=True)
class ComparisonStart(WithinVersion):
    """Decision to store the row hashes of a version that the change data feed published, and to publish no rows.

    `version` is the version of the table of row hashes that has these rows. The log record names it, and not the
    version of the source. The next publication is a comparison.
    """

    published: PublishedVersion
    """Published version of the source."""

    @property
    def reads(self) -> Snapshot:
        return Snapshot(self.published.version)

    def __str__(self) -> str:
        return f"row hashes of version {self.published.version}, then a comparison"


@dataclass(frozen=True, slots=True)
class NothingNew:
    """Decision to publish nothing, because the newest version is published."""

    version: int

    def __str__(self) -> str:
        return f"nothing new, version {self.version} is published"


Publication = Snapshot | Range | KeyRepair | ComparisonStart
"""What one log record publishes. `reads` is the part of the source that is read for it."""
Decision = Snapshot | PublishRanges | NothingNew | PublicationBlockedError


def decide(table: str, published: PublishedVersion | None, facts: Facts, max_versions_per_publication: int) -> Decision:
    """Return the next publication of a table, or the `PublicationBlockedError` that prevents it.

    `published` is None before the first publication. A range has at most `max_versions_per_publication` versions,
    except if changes are found by comparing rows. A first load in parts is continued before any other version.
    """
    latest = facts.latest
    if published is None:
        return feed_off(table=table, version=latest) if facts.unreadable else Snapshot(latest)
    if finding := find_recreation(table, published, facts.table_id, latest, facts.recreation):
        return finding
    if part := published.next_part:
        return Snapshot(published.version, part, published.committed)
    if latest == published.version:
        return NothingNew(published.version)
    partitions = set(published.partitions)
    for commit in facts.commits:
        renamed = renamed_columns(commit.operation, commit.parameters)
        partitions = {renamed.get(name) or name for name in partitions}
    if partitions != set(facts.partitions) and not facts.is_comparison:
        return PartitionsChangedError(
            table=table, published=published.version, before=published.partitions, now=facts.partitions
        )
    obstacles = dict(facts.unreadable)
    if (missing := first_missing(published.version, latest, facts.commits)) is not None:
        obstacles[missing] = GapReason.NO_COMMIT
    obstacle = min(obstacles, default=latest + 1)
    readable_to = obstacle - 1
    if readable_to == published.version:
        reason = obstacles[obstacle]
        is_off = facts.properties and facts.properties.get(FEED, "false").lower() != "true"
        if reason == GapReason.FEED_OFF and is_off:
            reason = GapReason.STILL_OFF
        return FeedGapError(table=table, published=published.version, where=obstacle, reason=reason)
    limit = readable_to - published.version if facts.is_comparison else max_versions_per_publication
    return PublishRanges(tuple(split(published.version, readable_to, facts.breaks, limit)))


def renamed_columns(operation: str, parameters: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the top-level columns that a commit renamed or dropped, mapped to their new names, or to None if dropped.

    `operation` and `parameters` are the columns `operation` and `operationParameters` of DESCRIBE HISTORY.
    """
    if operation == DROP:
        return {path[0]: None for path in map(split_name, json.loads(parameters["columns"])) if len(path) == 1}
    if operation != _RENAME:
        return {}
    old, new = (split_name(parameters[name]) for name in ("oldColumnPath", "newColumnPath"))
    return {old[0]: new[0]} if len(old) == len(new) == 1 else {}


def find_recreation(
    table: str,
    published: PublishedVersion,
    table_id: str,
    latest: int,
    reason: Recreation | None = Recreation.NOT_COMPARED,
) -> SourceRecreatedError | None:
    """Return an error if `table_id` is not `published.table_id` or `latest` is below `published.version`, else None.
    If `reason` is None, `table_id` can be another one. If a comparison published `published`, but the change data feed
    is to be read, always returns an error: nothing says which version of the source was compared."""
    if published.version <= latest and (reason is None or published.table_id == table_id):
        return None
    if published.is_compared:
        reason = Recreation.COMPARED
    return SourceRecreatedError(
        table=table,
        published_id=published.table_id,
        found_id=table_id,
        published=published.version,
        latest=latest,
        reason=reason or Recreation.NOT_COMPARED,
    )


def is_published_version(published: PublishedVersion, commit: Commit | None, table_id: str | None) -> bool:
    """Return whether a table's log contains the published version, although the id of the table changed.

    CREATE OR REPLACE TABLE gives the table another id, but keeps its log. A table that was dropped and created again
    has a new log, whose commits are later. So the version is the published one if its commit time is the same.

    `commit` is the commit in the log with the number of the published version, or None. `table_id` is the id of the
    table at this version, or None if it cannot be read.
    """
    if commit is None or published.committed is None or table_id not in (None, published.table_id):
        return False
    return abs(commit.timestamp - published.committed) < _SAME_COMMIT


def first_missing(after: int, to: int, commits: Sequence[Commit]) -> int | None:
    """Return the first of the versions `after + 1` to `to` that is not in `commits`, or None if all are."""
    existing = {commit.version for commit in commits}
    return next((version for version in range(after + 1, to + 1) if version not in existing), None)


def split(after: int, to: int, breaks: Sequence[int], limit: int) -> list[Range]:
    """Return the versions `after + 1` to `to` as consecutive ranges of at most `limit` versions.

    Each version in `breaks` becomes a separate range.
    """
    parts = []
    ends = {end for version in breaks if after < version <= to for end in (version - 1, version)} | {to}
    start = after
    for end in sorted(ends):
        while start < end:
            stop = min(end, start + limit)
            parts.append(Range(start, stop))
            start = stop
    return parts
