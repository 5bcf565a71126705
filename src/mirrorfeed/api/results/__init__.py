"""What the methods of `mirrorfeed.Feed` give back: frozen values, which a notebook shows as a table.

Results and their rows have `ok`, and `to_dict` for programs. A field that is not known, or does not apply, is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from mirrorfeed.display.html import Cells, as_html, as_text
from mirrorfeed.display.humanize import duration, size
from mirrorfeed.errors import MirrorfeedError, Terminal

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
]

_KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
"""By change type: an update has a row of before as well, which is none of its own."""


class Row:
    """One row of a `Result`."""

    __slots__ = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: there is no `error`."""
        return getattr(self, "error", None) is None

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names, in what JSON has; an error as its code, what, next and facts."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]

    def _cells(self) -> Cells:
        raise NotImplementedError

    def _remarks(self) -> Sequence[str]:
        """Lines below the table."""
        error = getattr(self, "error", None)
        return [] if error is None else [f"{getattr(self, 'table', '')}: {error}".removeprefix(": ")]

    def __str__(self) -> str:
        return as_text([self._cells()], self._remarks(), (), "")

    def _repr_html_(self) -> str:
        return as_html([self._cells()], self._remarks(), (), "")


R = TypeVar("R", bound=Row, covariant=True)


@dataclass(frozen=True, repr=False)
class Result(Sequence[R], Generic[R]):
    """A sequence of rows, in the order of the configuration, and of notes: what went wrong beside them and stopped
    nothing."""

    rows: tuple[R, ...]
    notes: tuple[str, ...] = ()
    _nothing: str = field(default="Nothing.", repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether every row is."""
        return all(row.ok for row in self.rows)

    def check(self) -> None:
        """Raises `Failed`, which names each row that is not `ok`: so that a job that runs this fails, too."""
        if bad := tuple(row for row in self.rows if not row.ok):
            raise Failed([line for row in bad for line in row._remarks() or [_in_a_line(row._cells())]])

    def to_dict(self) -> dict[str, Any]:
        """`ok`, `rows` and `notes`, in what JSON has."""
        return {"ok": self.ok, "rows": [row.to_dict() for row in self.rows], "notes": list(self.notes)}

    @overload
    def __getitem__(self, at: int) -> R: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[R, ...]: ...
    def __getitem__(self, at: int | slice) -> R | tuple[R, ...]:
        return self.rows[at]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return as_text(*self._drawn())

    def _repr_html_(self) -> str:
        return as_html(*self._drawn())

    def _drawn(self) -> tuple[Sequence[Cells], Sequence[str], Sequence[str], str]:
        remarks = [line for row in self.rows for line in row._remarks()]
        return [row._cells() for row in self.rows], remarks, self.notes, self._nothing


class Failed(Terminal):
    """A result was checked of which not all is well: each row that is not says why.

    To do: What each of them says.
    """

    code = "MF1008"

    def __init__(self, failed: Sequence[str]) -> None:
        self.failed = tuple(failed)

    def what(self) -> str:
        return "\n".join(self.failed)

    def next(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Publication(Row):
    """What a run did for a table."""

    table: str
    what: str
    """In words: a snapshot, versions, or that nothing was new."""
    from_version_exclusive: int | None
    """None for a snapshot, and where nothing was published."""
    to_version_inclusive: int | None
    published_version: int | None
    """Up to which the table is published now, by this run or one before."""
    lag_versions: int | None
    """Versions of the source that are not published yet."""
    inserts: int
    updates: int
    upserts: int
    deletes: int
    files: int
    bytes: int
    seconds: float
    tries: int
    reseeded: MirrorfeedError | None = None
    """Why the table was started again from a snapshot, if it was."""
    error: MirrorfeedError | None = None

    def _cells(self) -> Cells:
        return {
            "table": self.table,
            "published": self.what,
            **{name: getattr(self, name) or None for name in ("inserts", "updates", "upserts", "deletes")},
            "files": self.files,
            "size": size(self.bytes),
            "seconds": self.seconds,
            "versions behind": self.lag_versions,
        }

    def _remarks(self) -> Sequence[str]:
        again = [f"{self.table}: started again from a snapshot. {self.reseeded.what()}"] if self.reseeded else []
        return [*again, *Row._remarks(self)]


@dataclass(frozen=True, slots=True)
class Decision(Row):
    """What publishing would do next for a table."""

    table: str
    next: str
    error: MirrorfeedError | None = None
    """Why it cannot go on."""

    def _cells(self) -> Cells:
        return {"table": self.table, "next": self.next}


@dataclass(frozen=True, slots=True)
class Status(Row):
    """How far a table is."""

    table: str
    source: str
    feed: str | None
    """Which change data feed the source has."""
    published_version: int | None
    newest_version: int | None
    lag_versions: int | None
    lag_seconds: float | None
    """Since the oldest version that is not published was committed."""
    not_renamed: int
    """Files that are recorded, and so published, and still have their staged names: the next run gives them theirs."""
    not_consumed: int
    """Files that the service has not taken away; of all files it leaves the last one."""
    error: MirrorfeedError | None = None
    paused: str | None = None
    """Until when it is not published, and why."""

    def _cells(self) -> Cells:
        return {
            "table": self.table,
            "feed": self.feed,
            "published": self.published_version,
            "newest": self.newest_version,
            "versions behind": self.lag_versions,
            "behind for": None if self.lag_seconds is None else duration(self.lag_seconds),
            "not renamed": self.not_renamed,
            "not consumed": self.not_consumed,
        }


@dataclass(frozen=True, slots=True)
class Difference(Row):
    """One value, or a whole row, that is not the same on both sides."""

    key: str
    column: str
    """Empty where a whole row is on one side alone."""
    source: str | None
    mirror: str | None

    def _cells(self) -> Cells:
        return {"key": self.key, "column": self.column or "(whole row)", "source": self.source, "mirror": self.mirror}


@dataclass(frozen=True, slots=True)
class Comparison(Row):
    """A source, at the version at which its mirror stands, against the mirror."""

    table: str
    what: str
    """In words."""
    equal: bool | None
    """None where they could not be compared."""
    version: int | None
    published_version: int | None
    """The newest that is published: the mirror may not have come to it yet."""
    source_rows: int | None
    mirror_rows: int | None
    differing: int | None
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

    def _cells(self) -> Cells:
        names = ("version", "source_rows", "mirror_rows", "differing")
        return {
            "table": self.table,
            "mirror": "not compared" if self.equal is None else "equal" if self.equal else "DIFFERENT",
            **{name.replace("_", " "): getattr(self, name) for name in names},
        }

    def _remarks(self) -> Sequence[str]:
        return [] if self.ok else [f"{self.table}: {self.error or self.what}"]


@dataclass(frozen=True, slots=True)
class Record(Row):
    """One publication, as the table's log has it."""

    table: str
    record: int
    """Its number in the log."""
    time: str
    what: str
    """In words: a snapshot, a repair, or the versions."""
    from_version_exclusive: int | None
    """None for a snapshot; the same as the last version for a repair."""
    to_version_inclusive: int
    inserts: int
    updates: int
    upserts: int
    deletes: int
    files: int
    bytes: int
    build: str | None
    """Which mirrorfeed wrote it."""
    error: str | None = None
    """What the landing zone has that this record does not account for; told of the newest alone."""

    def _cells(self) -> Cells:
        return {
            "record": str(self.record),
            "time": self.time[:19].replace("T", " "),
            "published": self.what,
            **{name: getattr(self, name) or None for name in ("inserts", "updates", "upserts", "deletes")},
            "files": self.files,
            "size": size(self.bytes),
        }


@dataclass(frozen=True, slots=True)
class Finding(Row):
    """What is wrong, or will be: of `lint` in the landing zone, of `doctor` anywhere from source to Fabric."""

    code: str
    weight: str
    """`error`, `warning` or `advice`; the doctor says `wrong`, `soon` or `note`."""
    place: str
    """The table, file or folder; empty for the mirrored database as a whole."""
    what: str
    next: str
    """What helps."""

    @property
    def ok(self) -> bool:
        """Whether it is advice, or a note, and no more."""
        return self.weight in ("advice", "note")

    def _cells(self) -> Cells:
        return {"code": self.code, "weight": self.weight, "place": self.place, "what": self.what, "next": self.next}

    def _remarks(self) -> Sequence[str]:
        return []


@dataclass(frozen=True, slots=True)
class Repair(Row):
    """What was published once more of a table whose mirror differs."""

    table: str
    what: str
    """In words."""
    upserts: int
    deletes: int
    published_version: int | None
    error: MirrorfeedError | None = None
    """Why it failed, or what this does not mend."""

    def _cells(self) -> Cells:
        return {"table": self.table, "published once more": self.what, "upserts": self.upserts, "deletes": self.deletes}


@dataclass(frozen=True, slots=True)
class Enabled(Row):
    """The change data feed of a source, after it was switched on."""

    table: str
    source: str
    feed: str | None
    """In words."""
    error: MirrorfeedError | None = None

    def _cells(self) -> Cells:
        return {"table": self.table, "source": self.source, "feed": self.feed}


@dataclass(frozen=True, slots=True)
class Listed(Row):
    """A table that the configuration names or that one of its patterns matches, and whether it is published."""

    table: str | None
    """Its target; None: it is left out."""
    source: str
    included: bool
    why: str
    """By which entry it is in, or why it is out."""
    keys: tuple[str, ...] | None = None
    """None: not asked, or not known."""
    takes: str | None = None
    """Which changes can be published, in words."""
    error: MirrorfeedError | None = None
    part: str | None = None
    """What of the source is published, in short; None: all of it."""

    def _cells(self) -> Cells:
        keys = None if self.keys is None else ", ".join(self.keys)
        told = {"keys": keys, "takes": self.takes, **({"part": self.part} if self.part else {}), "why": self.why}
        return {"table": self.table, "source": self.source, **told}

    def _remarks(self) -> Sequence[str]:
        return [] if self.error is None else [f"{self.source}: {self.error}"]


@dataclass(frozen=True, slots=True)
class Mirrored(Row):
    """A table as Fabric has it: in the mirror, or in the SQL endpoint over it."""

    table: str
    status: str
    """As Fabric spells it."""
    rows: int | None = None
    """Those that it took so far; None where the endpoint is asked."""
    synced: datetime | None = None
    """When it was brought up to date last, at the least."""
    error: str | None = None
    """What Fabric says of it."""

    def _cells(self) -> Cells:
        return {"table": self.table, "status": self.status, "rows": self.rows, "synced": self.synced}


@dataclass(frozen=True, slots=True)
class Setting(Row):
    """What the definition of the mirrored database says otherwise than the configuration."""

    field: str
    there: int | bool | str | None
    """None: it is not said there."""
    wanted: int | bool | str | None
    changes: bool
    """Whether `fabric_apply` changes it."""
    note: str = ""

    def _cells(self) -> Cells:
        return {"field": self.field, "there": self.there, "wanted": self.wanted, "note": self.note}


@dataclass(frozen=True, slots=True)
class Kept(Row):
    """What a run added to the permanent history of a table."""

    table: str
    what: str
    """In words."""
    rows: int
    kept_version: int | None
    """The newest that is kept now."""
    error: MirrorfeedError | None = None

    def _cells(self) -> Cells:
        return {"table": self.table, "kept": self.what, "rows": self.rows}


@dataclass(frozen=True, slots=True)
class History(Row):
    """Which versions of a table are kept for good."""

    table: str
    history: str
    """The table that keeps them."""
    kept: tuple[tuple[int, int], ...]
    """The first and the last version of each part; what is between two is lost to it."""
    since: str | None
    """When its first version was committed."""
    newest_version: int | None
    lag_versions: int | None
    rows: int | None
    error: MirrorfeedError | None = None

    def _cells(self) -> Cells:
        return {
            "table": self.table,
            "history": self.history,
            "kept since": self.since and self.since[:16].replace("T", " "),
            "versions": ", ".join(f"{first} to {last}" for first, last in self.kept),
            "newest": self.newest_version,
            "versions behind": self.lag_versions,
            "rows": self.rows,
        }


@dataclass(frozen=True, slots=True)
class Share(Row):
    """How much of a table is archived."""

    table: str
    what: str
    """In words."""
    files: int
    bytes: int
    archived_files: int
    archived_bytes: int | None
    """None where archived files are named without their sizes, as Databricks does, and no storage tells them."""
    restored_files: int | None
    """Of the archived ones, those that are back; None where the storage has no tiers."""

    def _cells(self) -> Cells:
        archived = None if self.archived_bytes is None else size(self.archived_bytes)
        return {
            "table": self.table,
            "size": size(self.bytes),
            "archived": archived,
            "files": self.files,
            "archived files": self.archived_files,
            "back": self.restored_files,
        }


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


@dataclass(frozen=True, slots=True)
class RestorePlan(Row):
    """What to bring back for a query."""

    table: str
    version: int
    where: str | None
    """What it says of times is fixed: relative words such as current_date() stand here as of the planning."""
    files: int
    bytes: int
    """As far as they are known."""
    hours: float
    """At most, by what the storage says."""
    _plan: Plan = field(repr=False)

    def save(self, path: str) -> None:
        """Writes the plan as a file that `mirrorfeed archive restore` carries out, in any number of runs."""
        self._plan.save(path)

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names, in what JSON has."""
        return {name: getattr(self, name) for name in ("table", "version", "where", "files", "bytes", "hours")}

    def _cells(self) -> Cells:
        told = {"table": self.table, "where": self.where, "size": size(self.bytes)}
        return {**told, "version": self.version, "files": self.files, "hours at most": self.hours}


@dataclass(frozen=True, slots=True)
class Restoring(Row):
    """How far the files of a plan are."""

    table: str
    ready: int
    """Files that are back."""
    pending: int
    """Files that are on their way."""
    archived: int
    """Files that are in the archive."""

    @property
    def ok(self) -> bool:
        """Whether all are back."""
        return not self.pending and not self.archived

    def _cells(self) -> Cells:
        return {"table": self.table, "back": self.ready, "on their way": self.pending, "in the archive": self.archived}


@dataclass(frozen=True, repr=False)
class Changes:
    """The rows of a range of versions, pinned at both ends; none where the range is empty."""

    table: str
    from_version_exclusive: int
    to_version_inclusive: int
    rows: DataFrame
    """As the feed has them, by version: `_change_type`, `_commit_version` and `_commit_timestamp` beside the columns.
    An update has two rows, before and after."""

    def counts(self) -> list[dict[str, int]]:
        """A dictionary for each version that changed rows, ascending: `version`, `inserts`, `updates`, `deletes`."""
        from mirrorfeed.feed.settings import faithful

        found: dict[int, dict[str, int]] = {}
        with faithful(self.rows.sparkSession):
            for version, kind, count in self.rows.groupBy("_commit_version", "_change_type").count().collect():
                if kind in _KINDS:
                    found.setdefault(version, dict.fromkeys(_KINDS.values(), 0))[_KINDS[kind]] = count
        return [{"version": version, **found[version]} for version in sorted(found)]

    def chart(self) -> Chart:
        """Rows by version and what was done with them."""
        from mirrorfeed.report.pictures import change_chart

        return Chart(f"Changes of {self.table}: rows by version", change_chart(self.counts()))

    def __repr__(self) -> str:
        first, last = self.from_version_exclusive + 1, self.to_version_inclusive
        return f"<changes of {self.table}, {f'versions {first} to {last}' if first <= last else 'no versions'}>"

    def _repr_html_(self) -> str:
        return as_html(self.counts(), [], [repr(self)[1:-1]], "No row was changed.")


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, which a notebook shows."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<a chart, which a notebook shows: {self.title}>"

    def _repr_html_(self) -> str:
        from mirrorfeed.report.page import framed, titled

        return framed(titled(self.title, self.html))


def _in_a_line(cells: Cells) -> str:
    return ", ".join(str(cell) for cell in cells.values() if cell not in (None, ""))


def _plain(value: object) -> Any:
    if isinstance(value, MirrorfeedError):
        return value.to_dict()
    if isinstance(value, Result):
        return [row.to_dict() for row in value.rows]
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
