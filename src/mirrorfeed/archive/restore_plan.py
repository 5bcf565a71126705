"""Restore plans for queries and for ranges of the change data feed: save and load a plan, and estimate its costs.

A plan contains all that a later run needs: the query, the archived files, and the versions of the tables. In Azure, a
restored file leaves the archive tier. Azure charges a fee if the file was in this tier for less than 180 days. Later,
the lifecycle rule archives the file again. S3 keeps the archived file and adds a temporary copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter

from mirrorfeed.archive.data_files import DataFile, NeededFiles
from mirrorfeed.archive.errors import invalid_plan, plan_file_exists, plan_not_written
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.display.rows import Row, counted, row, shown, size
from mirrorfeed.landing.strict_json import CONFIG, Count, format_of, parse_json, validate
from mirrorfeed.storage.errors import FileOutsideStorageError, TiersUnavailableError
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tier_store import DEFAULT_COPY_DAYS, Priority, Tier, TierFacts, TierStore

FORMAT: Literal[5] = 5
_STANDARD_HOURS = 15.0
_HIGH_HOURS = 1.0
_HIGH_BYTES_AN_HOUR = 10 * 2**30
"""Bytes that an account restores per hour with high priority. A smaller restore takes less than an hour."""
_ARCHIVE_DAYS = 180
"""Minimum number of days that Azure charges for the archive tier, even if a file leaves this tier earlier."""
_MINIMUM_DAYS = {Tier.HOT: 0, Tier.COOL: 30, Tier.COLD: 90}
"""Minimum number of days that Azure charges for each tier to which a file can be restored."""
_RULE_INTERVAL_DAYS = 1
"""Approximate number of days after which a lifecycle rule archives a restored file again."""
_MONTH = 30
_ONLY_RETRIEVAL = "The estimate contains only the retrieval, because the tiers of the files cannot be read."


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan to restore archived files. A saved plan is a JSON file with these fields."""

    __pydantic_config__: ClassVar = CONFIG
    tables: Annotated[tuple[NeededFiles, ...], Field(min_length=1)]
    """Tables that the query reads. The tables after the first can need no archived files."""
    priority: Literal["STANDARD", "HIGH"]
    where: str | None = None
    """SQL condition on the first table, if any. Relative times such as current_date() are replaced by their values."""
    feed_from: Count | None = None
    """First version of the range whose changes are planned, up to the version of the first table. None for a query."""
    sql: str | None = None
    """SQL query, in which each table has its full name and a version.

    None if the plan is for a condition, for changes of a table, or for files without a query."""
    files_alone: bool = False
    """True if the plan restores files without running a query."""
    zone: str | None = None
    """Session time zone of the query. None if there is no query."""
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    currency: str | None = None
    readable: tuple[str, ...] = ()
    """URIs of files that were not archived at planning. They are restored only if they are archived later."""
    format: Literal[5] = FORMAT

    @property
    def table(self) -> str:
        """Name of the first table, for messages."""
        return self.tables[0].table

    @property
    def version(self) -> int:
        return self.tables[0].version

    @property
    def has_rows(self) -> bool:
        """True if the plan has a query whose rows can be shown and copied."""
        return not self.files_alone and self.feed_from is None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All data files and deletion vector files of the tables, without duplicates."""
        sizes: dict[str, int | None] = {}
        for file in (file for each in self.tables for file in each.files):
            sizes[file.uri] = file.bytes
            if file.deletion_vector:
                sizes.setdefault(file.deletion_vector, None)
        return tuple(DataFile(uri, sizes[uri]) for uri in sorted(sizes))

    @property
    def archived(self) -> tuple[DataFile, ...]:
        """Files that were archived when the plan was created."""
        return tuple(file for file in self.files if file.uri not in self.readable)

    @property
    def bytes(self) -> int:
        """Bytes of archived files. Files of unknown size count as 0: deletion vectors, and all files on Databricks."""
        return sum(file.bytes or 0 for file in self.archived)

    @property
    def hours(self) -> float:
        """Maximum number of hours of the restore, according to the storage service. 0 if no file is archived."""
        if not self.archived:
            return 0.0
        if self.priority == Priority.STANDARD.name:
            return _STANDARD_HOURS
        return max(_HIGH_HOURS, self.bytes / _HIGH_BYTES_AN_HOUR)

    def save(self, path: str) -> None:
        """Save the plan to a new file.

        Raises `plan_file_exists` if the file already exists, and `plan_not_written` if the file cannot be written.
        """
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                file.write(_PLAN.dump_json(self, indent=1, exclude_none=True).decode())
        except FileExistsError as error:
            raise plan_file_exists(path=path) from error
        except OSError as error:
            raise plan_not_written(path=path, reason=error.strerror or type(error).__name__) from error

    @classmethod
    def load(cls, path: str) -> Plan:
        """Return the plan in a file. Raises `invalid_plan` if the file is not a valid plan."""
        try:
            value = parse_json(Path(path).read_bytes())
            if (version := format_of(value)) != FORMAT:
                raise ValueError(f"its format is {version}, and this version reads {FORMAT}")
            return validate(_PLAN, value)
        except (OSError, ValueError) as error:
            raise invalid_plan(path=path, reason=getattr(error, "strerror", None) or str(error)) from error


_PLAN = TypeAdapter(Plan)


@row
class RestorePlan(Row):
    """Plan to restore the archived files that a query, or a range of the change data feed, needs."""

    tables: tuple[str, ...] = shown("tables")
    versions: tuple[int, ...]
    query: str | None = shown("query")
    """SQL condition or query, if any. Relative times such as current_date() are replaced by their values.

    In a query, each table has its full name and a version."""
    zone: str | None
    """Session time zone of the query. None if there is no query."""
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    """Total size of the archived files in bytes. Unknown sizes count as 0."""
    hours: float = shown("max hours")
    """Maximum number of hours that the restore takes, according to the storage service."""
    cost: float | None = shown("cost", lambda cost: f"{cost:,.2f}", right=True)
    currency: str | None = shown("currency")
    path: str | None
    """Path of the saved plan. None if the plan was not saved."""
    _plan: Plan = field(repr=False)
    _costs: str | None = field(default=None, repr=False)

    def save(self, path: str) -> RestorePlan:
        """Save the plan to a new file for `mirrorfeed archive restore`, and return the plan with the path of this file.

        Raises `MirrorfeedError` if the file already exists or cannot be written.
        """
        self._plan.save(path)
        return replace(self, path=path)

    def remarks(self) -> Sequence[str]:
        how = f"The plan is saved. Carry it out with `mirrorfeed archive restore {shell_argument(self.path or '')}`."
        return (*([self._costs] if self._costs else []), *([how] if self.path else []))


def check_path(path: str | None) -> None:
    """Raise `plan_file_exists` if `path` exists, or `plan_not_written` if its folder does not exist. Does nothing for
    None.
    """
    if path and Path(path).exists():
        raise plan_file_exists(path=path)
    if path and not Path(path).parent.is_dir():
        raise plan_not_written(path=path, reason=f"the folder {Path(path).parent} does not exist")


def plan_files(needed: Sequence[NeededFiles], priority: Priority | None) -> Plan:
    """Return a restore plan for files of one or more tables. The default priority is standard.

    The plan has no query yet. The caller adds a query or a range of the change data feed, or sets `files_alone`.
    """
    tables = tuple(
        replace(
            each,
            files=tuple(DataFile(file.uri, file.bytes, deletion_vector=file.deletion_vector) for file in each.files),
            active=None,
        )
        for each in needed
    )
    return Plan(tables, "HIGH" if priority is Priority.HIGH else "STANDARD")


@dataclass(frozen=True, slots=True)
class PinnedQuery:
    """SQL query that returns the same rows at any time."""

    sql: str
    """Query in which each table has its full name and a version, and relative times have their values."""
    zone: str
    """Session time zone of the query."""
    tables: tuple[NeededFiles, ...]
    """All tables that the query reads, without files."""

    def plan(self, needed: Sequence[NeededFiles], priority: Priority | None) -> Plan:
        """Return a restore plan for this query. `needed` has the archived files that the query needs."""
        known = {(each.location, each.version) for each in needed}
        others = [each for each in self.tables if (each.location, each.version) not in known]
        return replace(plan_files([*needed, *others], priority), sql=self.sql, zone=self.zone)


@dataclass(frozen=True, slots=True)
class Terms:
    """Tier to which files are restored, and the number of days for which S3 stores restored copies."""

    to: Tier = Tier.HOT
    keep_days: int | None = None
    """Number of days for which S3 stores the restored copies. None means 7 days. Azure accepts only None."""


DEFAULT_TERMS = Terms()


def estimate(plan: Plan, tiers: TierStore | None, rates: Prices | None, now: datetime) -> RestorePlan:
    """Return a plan with its estimated costs. Files that can be read now do not count as archived.

    If `rates` is None, the field `cost` is None. If `tiers` is None or fails, the access tiers are unknown: then all
    files count as archived, and the costs include only retrieval and requests.
    """
    try:
        facts = tiers.facts([file.uri for file in plan.files]) if tiers else {}
    except (TiersUnavailableError, FileOutsideStorageError):
        tiers = None
    if tiers is not None:
        plan = replace(plan, readable=tuple(sorted(uri for uri, each in facts.items() if each.tier.is_readable)))
    described = None
    if rates is not None:
        if tiers is None:
            facts = {file.uri: TierFacts(Tier.ARCHIVE, file.bytes) for file in plan.files}
        copies = tiers is not None and tiers.restores_copies
        costs = cost_of_restore(facts.values(), rates, Priority[plan.priority], DEFAULT_TERMS, copies, now)
        described = describe_costs(costs, rates.currency)
        if tiers is None:
            costs, described = {name: costs[name] for name in ("retrieval", "requests")}, _ONLY_RETRIEVAL
        plan = replace(plan, cost=round(sum(filter(None, costs.values())), 4), currency=rates.currency)
    tables, versions = (tuple(getattr(each, name) for each in plan.tables) for name in ("table", "version"))
    query = plan.sql or plan.where
    return RestorePlan(
        tables, versions, query, plan.zone, len(plan.archived), plan.bytes, plan.hours, plan.cost, plan.currency,
        None, plan, described,
    )  # fmt: skip


def cost_of_restore(
    files: Iterable[TierFacts], rates: Prices, priority: Priority, terms: Terms, copies: bool, now: datetime
) -> dict[str, float | None]:
    """Return the costs to restore the archived files among `files`, and then to store the restored files.

    The keys describe the costs. A cost without a configured price is None. If `copies` is True, a restore creates
    temporary copies. Otherwise, a restore moves files out of the archive tier.
    """
    archived = [file for file in files if file.tier is Tier.ARCHIVE]
    days = terms.keep_days or (DEFAULT_COPY_DAYS if copies else _RULE_INTERVAL_DAYS)
    price, to = rates.high if priority is Priority.HIGH else rates.standard, terms.to
    gib = _gib(archived)
    month, archive = getattr(rates.stored, to.value, None), getattr(rates.stored, Tier.ARCHIVE.value, None)
    costs: dict[str, float | None] = {
        "retrieval": gib * price.per_gib,
        "requests": len(archived) / 10_000 * price.per_10k_files,
        f"{counted(days, 'day')} in {to.value}": _stored(gib * days, month),
    }
    if copies:
        return costs
    early = [
        _gib([file]) * max(0.0, _ARCHIVE_DAYS - (0.0 if file.since is None else (now - file.since) / timedelta(days=1)))
        for file in archived
    ]
    unknown = ", at most" if any(file.since is None for file in archived) else ""
    costs[f"leaving the archive before {_ARCHIVE_DAYS} days{unknown}"] = _stored(sum(early), archive)
    if (missing_days := _MINIMUM_DAYS[to] - days) > 0:
        costs[f"leaving {to.value} before {_MINIMUM_DAYS[to]} days"] = _stored(gib * missing_days, month)
    costs["archiving again"] = None if rates.archiving is None else len(archived) / 10_000 * rates.archiving
    return costs


def _stored(gib_days: float, month: float | None) -> float | None:
    return None if month is None else gib_days * month / _MONTH


def _gib(files: Iterable[TierFacts]) -> float:
    return sum(file.bytes or 0 for file in files) / 2**30


def describe_costs(costs: Mapping[str, float | None], currency: str) -> str:
    """Return a sentence with known costs, their sum, and the names of unknown costs. `costs` has None if unknown."""
    known = {what: amount for what, amount in costs.items() if amount is not None}
    lines = [f"{amount:,.2f} {currency} for {what}" for what, amount in known.items() if round(amount, 2)]
    total = f"{sum(known.values()):,.2f} {currency} in total"
    unknown = [what for what in costs if what not in known]
    rest = f"; without a price: {', '.join(unknown)}" if unknown else ""
    return f"Estimated costs: {', '.join([*lines, total])}{rest}."
