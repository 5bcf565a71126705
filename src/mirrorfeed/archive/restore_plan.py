"""The restore plan of a query: its archived files, duration and costs, as a value and as a file.

A plan names the tables, their versions and the query that it was made for, so that several runs can carry it out.

Azure and S3 restore differently. In Azure a file leaves the archive, which costs a fee within its first 180 days, and
the lifecycle rule archives it again. S3 keeps the archived file and adds a temporary copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from mirrorfeed.archive.errors import BadPlan, NoPlaceForPlan, PlanInTheWay
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.display.humanize import counted
from mirrorfeed.landing.strict_json import CONFIG, Count, format_of, is_distinct, parse_json, validate
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import Facts, Priority, Tier

ARCHIVE_DAYS = 180
"""A file that leaves Azure's archive earlier is paid for until then."""
_SHORTEST = {Tier.HOT: 0, Tier.COOL: 30, Tier.COLD: 90}
"""The same for the tiers that it may be brought back to."""
MONTH = 30


@dataclass(frozen=True, slots=True)
class Cost:
    what: str
    amount: float | None
    """None where a price is not given."""


def of_restore(
    files: Iterable[Facts],
    rates: Prices,
    priority: Priority,
    to: Tier,
    days: int,
    copies: bool,
    now: datetime,
) -> list[Cost]:
    """Of bringing back those that are in the archive, and of having them for so many days."""
    away = [file for file in files if file.tier is Tier.ARCHIVE]
    price = rates.of_restore(priority.name)
    gib = _gib(away)
    month = rates.per_month(to.name)
    found = [
        Cost("retrieval", gib * price.per_gib),
        Cost("requests", len(away) / 10_000 * price.per_10k_files),
        Cost(f"{counted(days, 'day')} in {to.value}", None if month is None else gib * month * days / MONTH),
    ]
    if copies:
        return found
    return [*found, *_leaving(away, rates, to, days, now)]


def _leaving(away: Sequence[Facts], rates: Prices, to: Tier, days: int, now: datetime) -> Iterable[Cost]:
    """What only a file that leaves the archive costs."""
    short = [_gib([file]) * max(0.0, ARCHIVE_DAYS - _days(file, now)) for file in away]
    unknown = ", at most" if any(file.since is None for file in away) else ""
    archive = rates.per_month(Tier.ARCHIVE.name)
    yield Cost(
        f"leaving the archive before {ARCHIVE_DAYS} days{unknown}",
        None if archive is None else sum(short) * archive / MONTH,
    )
    if (left := _SHORTEST[to] - days) > 0:
        month = rates.per_month(to.name)
        yield Cost(
            f"leaving {to.value} before {_SHORTEST[to]} days",
            None if month is None else _gib(away) * month * left / MONTH,
        )
    yield Cost("archiving again", None if rates.archiving is None else len(away) / 10_000 * rates.archiving)


def _gib(files: Iterable[Facts]) -> float:
    return sum(file.bytes or 0 for file in files) / 2**30


def _days(file: Facts, now: datetime) -> float:
    return 0.0 if file.since is None else (now - file.since) / timedelta(days=1)


def spelled(costs: Sequence[Cost], currency: str) -> str:
    """For people, with the sum of what is known."""
    known = [cost for cost in costs if cost.amount is not None]
    lines = [f"{cost.amount:,.2f} {currency} for {cost.what}" for cost in known if round(cost.amount or 0, 2)]
    total = f"{sum(cost.amount or 0 for cost in known):,.2f} {currency} in all"
    unknown = [cost.what for cost in costs if cost.amount is None]
    rest = f"; without a price: {', '.join(unknown)}" if unknown else ""
    return f"{', '.join([*lines, total])}{rest}"


FORMAT: Literal[2] = 2
_STANDARD_HOURS = 15.0
_HIGH_HOURS = 1.0
_HIGH_BYTES_AN_HOUR = 10 * 2**30
"""An account brings back about so much with high priority; below it, in less than an hour."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    uri: str
    bytes: Count | None


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table of which files are planned, as it was then."""

    table: str
    table_id: str
    version: Count


@dataclass(frozen=True, slots=True)
class Plan:
    __pydantic_config__: ClassVar = CONFIG
    table: str
    table_id: str
    version: Count
    where: str | None
    """What it says of times is fixed: relative words such as current_date() stand here as of the planning."""
    feed_from: Count | None
    """First version of a range of the change feed that ends with `version`; None for a snapshot."""
    priority: Literal["STANDARD", "HIGH"]
    files: Annotated[tuple[PlannedFile, ...], AfterValidator(is_distinct)]
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    currency: str | None = None
    format: Literal[2] = FORMAT
    zone: str | None = None
    """The time zone in which the question means its times."""
    sql: str | None = None
    """The statement that was planned for, if it was one."""
    others: tuple[PlannedTable, ...] = ()
    """Further tables that the statement needs files of."""
    files_alone: bool = False
    """Whether it was made for no question: files are brought back, and no rows are shown."""

    @property
    def asks_for_rows(self) -> bool:
        return self.feed_from is None and not self.files_alone

    @property
    def tables(self) -> tuple[PlannedTable, ...]:
        return (PlannedTable(self.table, self.table_id, self.version), *self.others)

    @property
    def bytes(self) -> int:
        """As far as it is known: deletion vectors have no size in the log, and Databricks names files alone."""
        return sum(file.bytes or 0 for file in self.files)

    @property
    def hours(self) -> float:
        """At most, by what the service says; none where there is nothing to bring back."""
        if not self.files:
            return 0.0
        if self.priority == Priority.STANDARD.name:
            return _STANDARD_HOURS
        return max(_HIGH_HOURS, self.bytes / _HIGH_BYTES_AN_HOUR)

    def save(self, path: str) -> None:
        """Never over another plan, which may be under way."""
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                json.dump(asdict(self), file, indent=1, ensure_ascii=False)
        except FileExistsError as error:
            raise PlanInTheWay(path=path) from error
        except OSError as error:
            raise NoPlaceForPlan(path=path, reason=error.strerror or type(error).__name__) from error

    @classmethod
    def load(cls, path: str) -> Plan:
        try:
            value = parse_json(Path(path).read_bytes())
            if (found := format_of(value)) != FORMAT:
                raise ValueError(f"it has the format {found}, and {FORMAT} is read here")
            return validate(_PLAN, value)
        except (OSError, ValueError) as error:
            raise BadPlan(path=path, reason=str(error)) from error


_PLAN = TypeAdapter(Plan)


def check_place(path: str) -> None:
    """Whether a plan can be saved there, before the work of making it."""
    place = Path(path)
    if place.exists():
        raise PlanInTheWay(path=path)
    if not place.parent.is_dir():
        raise NoPlaceForPlan(path=path, reason=f"there is no folder {place.parent}")


def make(
    table: str,
    table_id: str,
    version: int,
    files: Sequence[LogFile],
    priority: Priority,
    *,
    where: str | None = None,
    feed_from: int | None = None,
    rates: Prices | None = None,
    zone: str | None = None,
) -> Plan:
    """For the archived files of a question to one table."""
    made = Plan(table, table_id, version, where, feed_from, _name(priority), _planned(files), zone=zone)
    return _priced(made, rates)


def make_for_statement(
    sql: str | None,
    tables: Sequence[tuple[PlannedTable, Sequence[LogFile]]],
    priority: Priority,
    rates: Prices | None = None,
    zone: str | None = None,
) -> Plan:
    """For the archived files that a statement needs of one table or several; without it, for the files alone."""
    (first, *others) = (table for table, _ in tables)
    files = _planned([file for _, listed in tables for file in listed])
    made = Plan(first.table, first.table_id, first.version, None, None, _name(priority), files)
    return _priced(replace(made, zone=zone, sql=sql, others=tuple(others), files_alone=sql is None), rates)


def _name(priority: Priority) -> Literal["STANDARD", "HIGH"]:
    return "HIGH" if priority is Priority.HIGH else "STANDARD"


def _planned(files: Sequence[LogFile]) -> tuple[PlannedFile, ...]:
    """Each data file, and the file of its deletion vector, once."""
    planned: dict[str, int | None] = {}
    for file in files:
        planned[file.uri] = file.size
        if file.vector:
            planned.setdefault(file.vector, None)
    return tuple(PlannedFile(uri, planned[uri]) for uri in sorted(planned))


def _priced(made: Plan, rates: Prices | None) -> Plan:
    if rates is None:
        return made
    price = rates.of_restore(made.priority)
    by_bytes, by_objects = made.bytes / 2**30 * price.per_gib, len(made.files) / 10_000 * price.per_10k_files
    return replace(made, cost=round(by_bytes + by_objects, 4), currency=rates.currency)
