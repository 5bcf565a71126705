"""The restore plan of a query: its archived files, duration and costs, as a value and as a file.

A plan names the tables, their versions and the query that it was made for, so that several runs can carry it out.

Azure and S3 restore differently. In Azure a file leaves the archive, which costs a fee within its first 180 days, and
the lifecycle rule archives it again. S3 keeps the archived file and adds a temporary copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter

from mirrorfeed.archive.archived_files import NeededFiles
from mirrorfeed.archive.errors import BadPlan, PlanExists, PlanNotWritten
from mirrorfeed.archive.log_file import LogFile
from mirrorfeed.display.humanize import counted, size
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.landing.strict_json import CONFIG, Count, format_of, parse_json, validate
from mirrorfeed.storage.tiers import Facts, Prices, Priority, Tier

FORMAT: Literal[4] = 4
ARCHIVE_DAYS = 180
"""Azure charges for this many days in the archive, even if a file leaves it earlier."""
_MINIMUM_DAYS = {Tier.HOT: 0, Tier.COOL: 30, Tier.COLD: 90}
"""The same for the tiers to which a file can be restored."""
_MONTH = 30
_STANDARD_HOURS = 15.0
_HIGH_HOURS = 1.0
_HIGH_BYTES_AN_HOUR = 10 * 2**30
"""Restored by an account with high priority. A smaller restore takes less than an hour."""


@dataclass(frozen=True, slots=True)
class Plan:
    __pydantic_config__: ClassVar = CONFIG
    tables: Annotated[tuple[NeededFiles, ...], Field(min_length=1)]
    priority: Literal["STANDARD", "HIGH"]
    where: str | None = None
    """The condition on the first table, with relative times such as current_date() replaced."""
    feed_from: Count | None = None
    """First version of a range of the change data feed, which ends with the version of the first table."""
    sql: str | None = None
    """The query, if it is not a query on one table."""
    files_alone: bool = False
    """Whether the plan restores files without running a query."""
    zone: str | None = None
    """Session time zone of the query."""
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    currency: str | None = None
    format: Literal[4] = FORMAT

    @property
    def table(self) -> str:
        """The first table, for messages."""
        return self.tables[0].table

    @property
    def version(self) -> int:
        return self.tables[0].version

    @property
    def files(self) -> tuple[LogFile, ...]:
        """The files of all tables and their deletion vectors, each once."""
        sizes: dict[str, int | None] = {}
        for file in (file for each in self.tables for file in each.files):
            sizes[file.uri] = file.size
            if file.vector:
                sizes.setdefault(file.vector, None)
        return tuple(LogFile(uri, sizes[uri]) for uri in sorted(sizes))

    @property
    def has_rows(self) -> bool:
        return self.feed_from is None and not self.files_alone

    @property
    def bytes(self) -> int:
        """The known bytes. Deletion vectors have no size in the log, and Databricks returns only names of files."""
        return sum(file.size or 0 for file in self.files)

    @property
    def hours(self) -> float:
        """The maximum duration according to the storage service."""
        if not any(each.files for each in self.tables):
            return 0.0
        if self.priority == Priority.STANDARD.name:
            return _STANDARD_HOURS
        return max(_HIGH_HOURS, self.bytes / _HIGH_BYTES_AN_HOUR)

    def save(self, path: str) -> None:
        """Never replaces another plan, which may be in progress."""
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                file.write(_PLAN.dump_json(self, indent=1, exclude_none=True).decode())
        except FileExistsError as error:
            raise PlanExists(path=path) from error
        except OSError as error:
            raise PlanNotWritten(path=path, reason=error.strerror or type(error).__name__) from error

    @classmethod
    def load(cls, path: str) -> Plan:
        try:
            value = parse_json(Path(path).read_bytes())
            if (found := format_of(value)) != FORMAT:
                raise ValueError(f"its format is {found}, and this version reads {FORMAT}")
            return validate(_PLAN, value)
        except (OSError, ValueError) as error:
            raise BadPlan(path=path, reason=getattr(error, "strerror", None) or str(error)) from error


_PLAN = TypeAdapter(Plan)


@row
class RestorePlan(Row):
    """A plan to restore the archived files that a query needs."""

    tables: tuple[str, ...] = shown("tables")
    versions: tuple[int, ...]
    query: str | None = shown("query")
    """The condition or statement, with relative times such as current_date() replaced."""
    zone: str | None
    """The session time zone of the query."""
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    """The known bytes."""
    hours: float = shown("max hours")
    """The maximum duration according to the storage service."""
    cost: float | None = shown("cost", lambda cost: f"{cost:,.2f}", right=True)
    currency: str | None = shown("currency")
    path: str | None
    """The saved plan."""
    _plan: Plan = field(repr=False)

    @classmethod
    def of(cls, plan: Plan, path: str | None = None) -> RestorePlan:
        tables, versions = (tuple(getattr(each, name) for each in plan.tables) for name in ("table", "version"))
        query = plan.sql or plan.where
        return cls(
            tables, versions, query, plan.zone, len(plan.files), plan.bytes, plan.hours, plan.cost, plan.currency, path,
            plan,
        )  # fmt: skip

    def save(self, path: str) -> RestorePlan:
        """Save the plan as a file for `mirrorfeed archive restore`."""
        self._plan.save(path)
        return RestorePlan.of(self._plan, path)

    def remarks(self) -> Sequence[str]:
        if not self.path:
            return ()
        return (f"Saved. Carry it out with `mirrorfeed archive restore {shell_argument(self.path)}`.",)


def check_place(path: str) -> None:
    """Raises an error if a plan cannot be saved there, before it is made."""
    place = Path(path)
    if place.exists():
        raise PlanExists(path=path)
    if not place.parent.is_dir():
        raise PlanNotWritten(path=path, reason=f"the folder {place.parent} does not exist")


def make(
    needed: Sequence[NeededFiles],
    priority: Priority | None = None,
    *,
    rates: Prices | None = None,
    where: str | None = None,
    feed_from: int | None = None,
    sql: str | None = None,
    files_alone: bool = False,
    zone: str | None = None,
) -> Plan:
    """For the archived files that a query needs of one or more tables."""
    tables = tuple(
        replace(each, files=tuple(LogFile(file.uri, file.size, vector=file.vector) for file in each.files), active=None)
        for each in needed
    )
    named: Literal["STANDARD", "HIGH"] = "HIGH" if priority is Priority.HIGH else "STANDARD"
    made = Plan(tables, named, where, feed_from, sql, files_alone, zone)
    if rates is None:
        return made
    price = rates.of_restore(named)
    by_bytes, by_objects = made.bytes / 2**30 * price.per_gib, len(made.files) / 10_000 * price.per_10k_files
    return replace(made, cost=round(by_bytes + by_objects, 4), currency=rates.currency)


@dataclass(frozen=True, slots=True)
class Cost:
    what: str
    amount: float | None
    """None if the price is not configured."""


def cost_of_restore(
    files: Iterable[Facts], rates: Prices, priority: Priority, to: Tier, days: int, copies: bool, now: datetime
) -> list[Cost]:
    """The costs to restore the archived ones of these files, and to store them for a number of days."""
    away = [file for file in files if file.tier is Tier.ARCHIVE]
    price = rates.of_restore(priority.name)
    gib = _gib(away)
    month = rates.per_month(to.name)
    found = [
        Cost("retrieval", gib * price.per_gib),
        Cost("requests", len(away) / 10_000 * price.per_10k_files),
        Cost(f"{counted(days, 'day')} in {to.value}", None if month is None else gib * month * days / _MONTH),
    ]
    if copies:
        return found
    early = [
        _gib([file]) * max(0.0, ARCHIVE_DAYS - (0.0 if file.since is None else (now - file.since) / timedelta(days=1)))
        for file in away
    ]
    unknown = ", at most" if any(file.since is None for file in away) else ""
    archive = rates.per_month(Tier.ARCHIVE.name)
    found.append(
        Cost(
            f"leaving the archive before {ARCHIVE_DAYS} days{unknown}",
            None if archive is None else sum(early) * archive / _MONTH,
        )
    )
    if (left := _MINIMUM_DAYS[to] - days) > 0:
        fee = None if month is None else gib * month * left / _MONTH
        found.append(Cost(f"leaving {to.value} before {_MINIMUM_DAYS[to]} days", fee))
    found.append(Cost("archiving again", None if rates.archiving is None else len(away) / 10_000 * rates.archiving))
    return found


def _gib(files: Iterable[Facts]) -> float:
    return sum(file.bytes or 0 for file in files) / 2**30


def describe_costs(costs: Sequence[Cost], currency: str) -> str:
    """The known costs with their sum."""
    known = [cost for cost in costs if cost.amount is not None]
    lines = [f"{cost.amount:,.2f} {currency} for {cost.what}" for cost in known if round(cost.amount or 0, 2)]
    total = f"{sum(cost.amount or 0 for cost in known):,.2f} {currency} in total"
    unknown = [cost.what for cost in costs if cost.amount is None]
    rest = f"; without a price: {', '.join(unknown)}" if unknown else ""
    return f"{', '.join([*lines, total])}{rest}"
