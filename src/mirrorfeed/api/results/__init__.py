"""The results of the methods of `mirrorfeed.Feed`: frozen values, which a notebook shows as a table.

Results and their rows have `ok`, and `to_dict` for programs. A field that is unknown or does not apply is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorfeed.api.results.base import Chart, Failed, Result
from mirrorfeed.display.humanize import duration, size
from mirrorfeed.display.rows import Row, described, nonzero, row, shown
from mirrorfeed.errors import MirrorfeedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorfeed.archive.bring_back.plan import Plan

__all__ = [
    "Changes",
    "Chart",
    "Comparison",
    "Decision",
    "Difference",
    "Enabled",
    "Failed",
    "Finding",
    "History",
    "Kept",
    "Listed",
    "Mirrored",
    "Publication",
    "Recent",
    "Record",
    "Repair",
    "RestorePlan",
    "Restoring",
    "Result",
    "Row",
    "Setting",
    "Share",
    "Status",
    "VersionChanges",
]

_KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
"""By change type: an update has a row of before as well, which is none of its own."""


@row
class Publication(Row):
    """What a run did for a table."""

    table: str = shown("table")
    what: str = shown("published")
    """In words: a snapshot, versions, or that nothing was new."""
    from_version_exclusive: int | None
    """None for a snapshot, and where nothing was published."""
    to_version_inclusive: int | None
    published_version: int | None
    """Up to which the table is published now, by this run or one before."""
    inserts: int = shown("inserts", nonzero)
    updates: int = shown("updates", nonzero)
    upserts: int = shown("upserts", nonzero)
    deletes: int = shown("deletes", nonzero)
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    seconds: float = shown("seconds")
    lag_versions: int | None = shown("versions behind")
    """Versions of the source that are not published yet."""
    tries: int
    reseeded: MirrorfeedError | None = None
    """Why the table was started again from a snapshot, if it was."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        again = [f"{self.table}: started again from a snapshot. {self.reseeded.problem}"] if self.reseeded else []
        return [*again, *Row.remarks(self)]


@row
class Decision(Row):
    """What publishing would do next for a table."""

    table: str = shown("table")
    next: str = shown("next")
    error: MirrorfeedError | None = None
    """Why it cannot go on."""


@row
class Status(Row):
    """How far a table is."""

    table: str = shown("table")
    source: str
    feed: str | None = shown("feed")
    """Which change data feed the source has."""
    published_version: int | None = shown("published")
    newest_version: int | None = shown("newest")
    lag_versions: int | None = shown("versions behind")
    lag_seconds: float | None = shown("behind for", duration, right=True)
    """Since the oldest version that is not published was committed."""
    not_renamed: int = shown("not renamed")
    """Files that are recorded, and so published, and still have their staged names: the next run gives them theirs."""
    not_consumed: int = shown("not consumed")
    """Files that the service has not taken away; of all files it leaves the last one."""
    error: MirrorfeedError | None = None
    paused: str | None = None
    """Until when it is not published, and why."""


@row
class Difference(Row):
    """One value, or a whole row, that is not the same on both sides."""

    key: str = shown("key")
    column: str = shown("column", lambda name: name or "(whole row)")
    """Empty where a whole row is on one side alone."""
    source: str | None = shown("source")
    mirror: str | None = shown("mirror")


_EQUAL = {True: "equal", False: "DIFFERENT", None: "not compared"}


@row
class Comparison(Row):
    """A source, at the version at which its mirror stands, against the mirror."""

    table: str = shown("table")
    what: str
    """In words."""
    equal: bool | None = shown("mirror", _EQUAL.__getitem__)
    """None where they could not be compared."""
    version: int | None = shown("version")
    published_version: int | None
    """The newest that is published: the mirror may not have come to it yet."""
    source_rows: int | None = shown("source rows")
    mirror_rows: int | None = shown("mirror rows")
    differing: int | None = shown("differing")
    """Keys, or distinct rows of a table without keys, that are not the same on both sides."""
    differences: Result[Difference]
    """The first of them."""
    error: MirrorfeedError | None = None

    @property
    def ok(self) -> bool:
        """Whether they are equal."""
        return self.equal is True

    def chart(self) -> Chart:
        """In which columns the first differences are."""
        from mirrorfeed.report.pictures import difference_chart

        return Chart(f"{self.table}: the first differences, by column", difference_chart(self.differences))

    def remarks(self) -> Sequence[str]:
        return [] if self.ok else [f"{self.table}: {described(self.error) if self.error else self.what}"]


@row
class Record(Row):
    """One publication, as the table's log has it."""

    table: str
    record: int = shown("record", str, right=True)
    """Its number in the log."""
    time: str = shown("time", lambda time: time[:19].replace("T", " "))
    what: str = shown("published")
    """In words: a snapshot, a repair, or the versions."""
    from_version_exclusive: int | None
    """None for a snapshot; the same as the last version for a repair."""
    to_version_inclusive: int
    inserts: int = shown("inserts", nonzero)
    updates: int = shown("updates", nonzero)
    upserts: int = shown("upserts", nonzero)
    deletes: int = shown("deletes", nonzero)
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    build: str | None
    """Which mirrorfeed wrote it."""
    error: str | None = None
    """What the landing zone has that this record does not account for; told of the newest alone."""


@row
class Finding(Row):
    """What is wrong, or will be: of `lint` in the landing zone, of `doctor` anywhere from source to Fabric."""

    code: str = shown("code")
    weight: str = shown("weight")
    """`error`, `warning` or `advice`; the doctor says `wrong`, `soon` or `note`."""
    place: str = shown("place")
    """The table, file or folder; empty for the mirrored database as a whole."""
    what: str = shown("what")
    next: str = shown("next")
    """What helps."""

    @property
    def ok(self) -> bool:
        """Whether it is advice, or a note, and no more."""
        return self.weight in ("advice", "note")


@row
class Repair(Row):
    """What was published once more of a table whose mirror differs."""

    table: str = shown("table")
    what: str = shown("published once more")
    """In words."""
    upserts: int = shown("upserts")
    deletes: int = shown("deletes")
    published_version: int | None
    error: MirrorfeedError | None = None
    """Why it failed, or what this does not mend."""


@row
class Enabled(Row):
    """The change data feed of a source, after it was switched on."""

    table: str = shown("table")
    source: str = shown("source")
    feed: str | None = shown("feed")
    """In words."""
    error: MirrorfeedError | None = None


@row
class Listed(Row):
    """A table that the configuration names or that one of its patterns matches, and whether it is published."""

    table: str | None = shown("table")
    """Its target; None: it is left out."""
    source: str = shown("source")
    included: bool
    why: str = shown("why")
    """By which entry it is in, or why it is out."""
    keys: tuple[str, ...] | None = shown("keys", default=None)
    """None: not asked, or not known."""
    takes: str | None = shown("takes", default=None)
    """Which changes can be published, in words."""
    error: MirrorfeedError | None = None
    part: str | None = shown("part", default=None)
    """What of the source is published, in short; None: all of it."""

    def remarks(self) -> Sequence[str]:
        return [] if self.error is None else [f"{self.source}: {described(self.error)}"]


@row
class Mirrored(Row):
    """A table as Fabric has it: in the mirror, or in the SQL endpoint over it."""

    table: str = shown("table")
    status: str = shown("status")
    """As Fabric spells it."""
    rows: int | None = shown("rows", default=None)
    """Those that it took so far; None where the endpoint is asked."""
    synced: datetime | None = shown("synced", default=None)
    """When it was brought up to date last, at the least."""
    error: str | None = None
    """What Fabric says of it."""


@row
class Setting(Row):
    """What the definition of the mirrored database says otherwise than the configuration."""

    field: str = shown("field")
    there: int | bool | str | None = shown("there")
    """None: it is not said there."""
    wanted: int | bool | str | None = shown("wanted")
    changes: bool
    """Whether `fabric_apply` changes it."""
    note: str = shown("note", default="")


@row
class Kept(Row):
    """What a run added to the permanent history of a table."""

    table: str = shown("table")
    what: str = shown("kept")
    """In words."""
    rows: int = shown("rows")
    kept_version: int | None
    """The newest that is kept now."""
    error: MirrorfeedError | None = None


@row
class History(Row):
    """Which versions of a table are kept for good."""

    table: str = shown("table")
    history: str = shown("history")
    """The table that keeps them."""
    kept: tuple[tuple[int, int], ...] = shown(
        "versions", lambda parts: ", ".join(f"{first} to {last}" for first, last in parts)
    )
    """The first and the last version of each part; what is between two is lost to it."""
    since: str | None = shown("kept since", lambda time: time[:16].replace("T", " "))
    """When its first version was committed."""
    newest_version: int | None = shown("newest")
    lag_versions: int | None = shown("versions behind")
    rows: int | None = shown("rows")
    error: MirrorfeedError | None = None


@row
class Share(Row):
    """How much of a table is archived."""

    table: str = shown("table")
    what: str
    """In words."""
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    archived_files: int = shown("archived files")
    archived_bytes: int | None = shown("archived", size, right=True)
    """None where archived files are named without their sizes, as Databricks does, and no storage tells them."""
    restored_files: int | None = shown("back")
    """Of the archived ones, those that are back; None where the storage has no tiers."""


@dataclass(frozen=True)
class Recent:
    """The hot part of a table, and what it leaves out."""

    rows: DataFrame
    version: int
    left_out_files: int
    what: str
    """In words."""

    def __str__(self) -> str:
        return self.what


@row
class RestorePlan(Row):
    """What to bring back for a query."""

    table: str = shown("table")
    version: int = shown("version")
    where: str | None = shown("where")
    """What it says of times is fixed: relative words such as current_date() stand here as of the planning."""
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    """As far as they are known."""
    hours: float = shown("hours at most")
    """At most, by what the storage says."""
    _plan: Plan = field(repr=False)

    def save(self, path: str) -> None:
        """Writes the plan as a file that `mirrorfeed archive restore` carries out, in any number of runs."""
        self._plan.save(path)


@row
class Restoring(Row):
    """How far the files of a plan are."""

    table: str = shown("table")
    ready: int = shown("back")
    """Files that are back."""
    pending: int = shown("on their way")
    """Files that are on their way."""
    archived: int = shown("in the archive")
    """Files that are in the archive."""

    @property
    def ok(self) -> bool:
        """Whether all are back."""
        return not self.pending and not self.archived


@row
class VersionChanges(Row):
    """The number of rows that a version of the source changed."""

    version: int = shown("version", str, right=True)
    inserts: int = shown("inserts")
    updates: int = shown("updates")
    deletes: int = shown("deletes")


@dataclass(frozen=True, repr=False)
class Changes:
    """The rows of a range of versions, pinned at both ends; none where the range is empty."""

    table: str
    from_version_exclusive: int
    to_version_inclusive: int
    rows: DataFrame
    """As the feed has them, by version: `_change_type`, `_commit_version` and `_commit_timestamp` beside the columns.
    An update has two rows, before and after."""

    def counts(self) -> Result[VersionChanges]:
        """The rows that each version changed; versions without changes are left out."""
        from mirrorfeed.feed.settings import faithful

        found: dict[int, dict[str, int]] = {}
        with faithful(self.rows.sparkSession):
            for version, kind, count in self.rows.groupBy("_commit_version", "_change_type").count().collect():
                if kind in _KINDS:
                    found.setdefault(version, dict.fromkeys(_KINDS.values(), 0))[_KINDS[kind]] = count
        rows = tuple(VersionChanges(version, **found[version]) for version in sorted(found))
        return Result(rows, (repr(self)[1:-1],), "" if rows else "No row was changed.")

    def chart(self) -> Chart:
        """Rows by version and what was done with them."""
        from mirrorfeed.report.pictures import change_chart

        return Chart(f"Changes of {self.table}: rows by version", change_chart(self.counts()))

    def __repr__(self) -> str:
        first, last = self.from_version_exclusive + 1, self.to_version_inclusive
        return f"<changes of {self.table}, {f'versions {first} to {last}' if first <= last else 'no versions'}>"

    def _repr_html_(self) -> str:
        return self.counts()._repr_html_()
