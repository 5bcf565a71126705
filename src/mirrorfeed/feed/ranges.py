"""Which versions to publish next: decisions over what the history says, without Spark.

`decide` returns a decision or a finding. A finding is an error value: nothing can be published until a person acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mirrorfeed.errors import Terminal


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


class Finding(Terminal):
    """A reason why the next versions cannot be published."""

    def __init__(self, table: str) -> None:
        self.table = table


class FeedOff(Finding):
    """The source does not record its changes. A first snapshot is not published either, for no change could follow
    it."""

    code = "MF2101"

    def __init__(self, table: str, version: int) -> None:
        super().__init__(table)
        self.version = version

    def what(self) -> str:
        return f"The change data feed of {self.table} is off at version {self.version}, so no changes could follow."

    def next(self) -> str:
        return "Run `mirrorfeed enable`, then publish."


EXPIRED = "the table's delta.deletedFileRetentionDuration is over"
LARGE_VECTOR = "a deletion vector is too large for Delta's feed reader"
_LONGER = (
    "If VACUUM has not taken its files yet, set a longer one, as by ALTER TABLE … SET TBLPROPERTIES"
    " (delta.deletedFileRetentionDuration = 'interval 30 days'), and publish."
)
_START_AGAIN = "Only a new snapshot helps: start the table again with `mirrorfeed rebuild`."


class Gap(Finding):
    """Changes that were not published yet cannot be read any more, or not for sure: the feed was off, or VACUUM or the
    retention took them. The mirror stays as it is, and behind.

    To do: If the files are only past their retention and VACUUM has not run, set `delta.deletedFileRetentionDuration`
    to a longer time and publish. Otherwise start the table again with `mirrorfeed rebuild`; `on_gap: reseed` does that
    by itself.
    """

    code = "MF2102"

    def __init__(self, table: str, published: int, where: int | Range, reason: str) -> None:
        super().__init__(table)
        self.published, self.where, self.reason = published, where, reason

    @property
    def version(self) -> int:
        """The first that cannot be read, or that may be."""
        return self.where if isinstance(self.where, int) else self.where.from_version_exclusive + 1

    def what(self) -> str:
        where = f"at version {self.where}" if isinstance(self.where, int) else f"in {self.where}"
        return f"The changes of {self.table} after version {self.published} cannot be read: {where} {self.reason}."

    def next(self) -> str:
        again = f"{_START_AGAIN} `on_gap: reseed` does that by itself."
        return f"{_LONGER} Otherwise {again[0].lower()}{again[1:]}" if self.reason == EXPIRED else again


class SourceRecreated(Finding):
    """The source is not the table that was published: it was replaced, dropped and created again, or taken back to an
    older version. Its changes do not go on from the mirror."""

    code = "MF2103"

    def __init__(self, table: str, published_id: str, found_id: str, published: int, latest: int) -> None:
        super().__init__(table)
        self.published_id, self.found_id = published_id, found_id
        self.published, self.latest = published, latest

    def what(self) -> str:
        if self.published_id != self.found_id:
            return (
                f"{self.table} is another table than the one that was published up to version {self.published}: it was"
                f" replaced, or dropped and created again. Its id was {self.published_id} and is {self.found_id}."
            )
        return f"{self.table} went back: version {self.published} was published and the newest is {self.latest}."

    def next(self) -> str:
        return _START_AGAIN


class PartitionsChanged(Finding):
    """The table was partitioned anew, and Delta would read changes from before that with NULL in the partition columns.
    They are not published."""

    code = "MF2104"

    def __init__(self, table: str, published: int, before: Sequence[str], now: Sequence[str]) -> None:
        super().__init__(table)
        self.published, self.before, self.now = published, tuple(before), tuple(now)

    def what(self) -> str:
        before, now = (", ".join(map(repr, names)) or "none" for names in (self.before, self.now))
        return (
            f"The partition columns of {self.table} changed after version {self.published}: they were {before}, now"
            f" they are {now}. Delta reads the changes across that with NULL in these columns."
        )

    def next(self) -> str:
        return f"{_START_AGAIN} `on_schema_change: reseed` does that by itself."


Decision = TakeSnapshot | PublishRanges | NothingNew | Finding


def decide(table: str, published: Published | None, facts: Facts, versions_per_range: int) -> Decision:
    """What comes next for a table, given what was published last."""
    latest = facts.latest
    if published is None:
        return TakeSnapshot(latest) if facts.feed_off_at is None else FeedOff(table, latest)
    if found := recreated(table, published, facts.table_id, latest):
        return found
    if latest == published.version:
        return NothingNew(published.version)
    if published.partitions is not None and set(published.partitions) != set(facts.partitions):
        return PartitionsChanged(table, published.version, published.partitions, facts.partitions)

    obstacles = {
        facts.feed_off_at: "the change data feed is off",
        facts.damaged_at: "the log has a hole, so that its state is not known",
        facts.expired_at: EXPIRED,
        first_missing(published.version, latest, [commit.version for commit in facts.commits]): "the log has no commit",
    }
    obstacle = min((version for version in obstacles if version is not None), default=None)
    readable_to = latest if obstacle is None else obstacle - 1
    if obstacle is not None and readable_to == published.version:
        return Gap(table, published.version, obstacle, obstacles[obstacle])
    return PublishRanges(tuple(split(published.version, readable_to, facts.breaks, versions_per_range)))


def recreated(table: str, published: Published, table_id: str, latest: int) -> SourceRecreated | None:
    """What is to be said if the source is not the table any more that was published."""
    if published.table_id == table_id and published.version <= latest:
        return None
    return SourceRecreated(table, published.table_id, table_id, published.version, latest)


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
