"""Which versions to publish next: decisions over what the history says, without Spark.

`decide` returns a decision or a finding. A finding is an error value: nothing can be published until a person acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mirrorfeed.source.errors import EXPIRED, FeedOff, Finding, Gap, PartitionsChanged, SourceRecreated


@dataclass(frozen=True, slots=True)
class Waiting:
    """What was committed after the published version."""

    versions: int
    rows: int | None = 0
    """Changed rows according to the commits; None if a commit does not say."""
    bytes: int | None = 0
    """Bytes that the commits wrote; None if a commit does not say."""


@dataclass(frozen=True, slots=True)
class Commit:
    version: int
    timestamp: datetime
    operation: str
    rows: int | None = field(default=None, compare=False)
    """How many rows it inserted, updated and deleted, by its own metrics: a hint."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the history of a table says about the versions after the one that was published last."""

    table_id: str
    latest: int
    commits: tuple[Commit, ...]
    """Those after the published version, ascending; a version that is not among them is missing from the log. Before
    a first publication the newest alone."""
    feed_off_at: int | None = None
    """The first of these versions at which the feed is off; before a first publication, the latest version if so."""
    breaks: tuple[int, ...] = ()
    """Versions whose schema differs from the one before by more than added columns."""
    damaged_at: int | None = None
    """The first of these versions whose state the log cannot give any more."""
    expired_at: int | None = None
    """The first of these versions, if it is older than the table lets anyone look back."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The table's own, now."""
    partitions: tuple[str, ...] = ()
    """Its partition columns, now."""
    bytes: int | None = field(default=None, compare=False)
    """The size of its files, now; None where that is not known."""

    def rows_in(self, range_: Range) -> int | None:
        """How many rows the commits of a range changed together, by their own metrics: a hint. None if one has none."""
        first, last = range_.from_version_exclusive + 1, range_.to_version_inclusive
        changed = [commit.rows for commit in self.commits if first <= commit.version <= last]
        told = [rows for rows in changed if rows is not None]
        return sum(told) if len(told) == len(changed) == range_.versions else None


@dataclass(frozen=True, slots=True)
class Published:
    """What the newest record says about the source."""

    table_id: str
    version: int
    partitions: tuple[str, ...] | None = None
    """The partition columns then; None where the record does not say."""


@dataclass(frozen=True, slots=True)
class Range:
    from_version_exclusive: int
    to_version_inclusive: int

    @property
    def versions(self) -> int:
        return max(0, self.to_version_inclusive - self.from_version_exclusive)

    def __str__(self) -> str:
        if self.versions == 1:
            return f"version {self.to_version_inclusive}"
        return f"versions {self.from_version_exclusive + 1} to {self.to_version_inclusive}"


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    version: int

    def __str__(self) -> str:
        return f"snapshot at version {self.version}"


@dataclass(frozen=True, slots=True)
class PublishRanges:
    """In order, without overlap or hole; a schema change that a read cannot span is a part of its own."""

    ranges: tuple[Range, ...]

    def __str__(self) -> str:
        return ", then ".join(str(part) for part in self.ranges)


@dataclass(frozen=True, slots=True)
class NothingNew:
    version: int

    def __str__(self) -> str:
        return f"nothing new, version {self.version} is published"


LARGE_VECTOR = "a deletion vector is too large for Delta's feed reader"


Decision = TakeSnapshot | PublishRanges | NothingNew | Finding


def decide(table: str, published: Published | None, facts: Facts, max_versions_per_publication: int) -> Decision:
    """What comes next for a table, given what was published last."""
    latest = facts.latest
    if published is None:
        return TakeSnapshot(latest) if facts.feed_off_at is None else FeedOff(table=table, version=latest)
    if found := recreated(table, published, facts.table_id, latest):
        return found
    if latest == published.version:
        return NothingNew(published.version)
    if published.partitions is not None and set(published.partitions) != set(facts.partitions):
        return PartitionsChanged(
            table=table, published=published.version, before=published.partitions, now=facts.partitions
        )

    obstacles = {
        facts.feed_off_at: "the change data feed is off",
        facts.damaged_at: "the log has a hole, so that its state is not known",
        facts.expired_at: EXPIRED,
        first_missing(published.version, latest, [commit.version for commit in facts.commits]): "the log has no commit",
    }
    obstacle = min((version for version in obstacles if version is not None), default=None)
    readable_to = latest if obstacle is None else obstacle - 1
    if obstacle is not None and readable_to == published.version:
        return Gap(table=table, published=published.version, where=obstacle, reason=obstacles[obstacle])
    return PublishRanges(tuple(split(published.version, readable_to, facts.breaks, max_versions_per_publication)))


def recreated(table: str, published: Published, table_id: str, latest: int) -> SourceRecreated | None:
    """What is to be said if the source is not the table any more that was published."""
    if published.table_id == table_id and published.version <= latest:
        return None
    return SourceRecreated(
        table=table, published_id=published.table_id, found_id=table_id, published=published.version, latest=latest
    )


def first_missing(after: int, to: int, versions: Sequence[int]) -> int | None:
    """The first of the versions `after + 1` to `to` that is not among these."""
    there = set(versions)
    return next((version for version in range(after + 1, to + 1) if version not in there), None)


def split(after: int, to: int, breaks: Sequence[int], limit: int) -> list[Range]:
    """Cuts the versions `after + 1` to `to` so that each break is a part of its own (what it did to the columns must
    not be hidden by what followed), and no part has more than `limit` versions."""
    parts = []
    ends = {end for version in breaks if after < version <= to for end in (version - 1, version)} | {to}
    start = after
    for end in sorted(ends):
        while start < end:
            stop = min(end, start + limit)
            parts.append(Range(start, stop))
            start = stop
    return parts
