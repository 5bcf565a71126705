"""Archived files that a query needs, as values and as rows, and the errors that name those that cannot be read.

A file counts as archived by its age and the interval of the table in whose folder it is. Its tier does not matter. A
file of unknown age counts as archived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import SparkSession

from mirrorfeed.archive import interval
from mirrorfeed.archive.errors import FileOfNoTable
from mirrorfeed.archive.interval import Policy, counts_as_archived
from mirrorfeed.archive.log_file import LogFile, plain, total
from mirrorfeed.display.humanize import a_few, counted, size
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.display.rows import Row, row
from mirrorfeed.errors import Terminal
from mirrorfeed.landing.strict_json import Count
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from mirrorfeed.archive.restore_plan import Plan
    from mirrorfeed.storage.tiers import Prices, Priority, TierStore

TiersAt = Callable[[str], "TierStore | None"]
"""The tiers of the table in a folder. None: no archived file of it counts as restored."""


@dataclass(frozen=True, slots=True)
class NeededFiles:
    """The archived files of one table at one version that a query or statement needs."""

    table: str
    table_id: str
    location: str
    version: Count
    files: tuple[LogFile, ...]
    active: int | None = None
    """The number of other files that it needs. None on Databricks, and if the table is read several times."""

    def __str__(self) -> str:
        return f"{total(self.files)} of {self.table} at version {self.version}, {a_few([f.uri for f in self.files])}"


class TableFolders:
    """What was found is not looked up again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found: dict[str, str | None] = {}

    def folder_of(self, path: str) -> str | None:
        """The nearest folder, at or above, that has a log of Delta; None where there is none."""
        return self._at(self._spark._jvm.org.apache.hadoop.fs.Path(path))  # type: ignore[union-attr]

    def _at(self, folder: Any) -> str | None:
        name = plain(str(folder.toString()))
        if name not in self._found:
            log = self._spark._jvm.org.apache.hadoop.fs.Path(folder, "_delta_log")  # type: ignore[union-attr]
            system = folder.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())
            above = folder.getParent()
            self._found[name] = name if system.exists(log) else None if above is None else self._at(above)
        return self._found[name]


def archived_among(files: Iterable[LogFile], policy: Policy | None, now: datetime) -> list[LogFile]:
    """No files without a policy."""
    if policy is None:
        return []
    return [file for file in files if file.created is None or counts_as_archived(file.created, policy.days, now)]


def created_until(policy: Policy, now: datetime) -> int:
    """Files that were created later cannot count as archived. In milliseconds, the precision of the log."""
    return int((now - timedelta(days=policy.days)).timestamp() * 1000) + 1


def archived_of(
    spark: SparkSession, name: str, location: str, files: Iterable[LogFile], policy: Policy | None, now: datetime
) -> list[LogFile]:
    """The files of a table that count as archived, each by the interval of the table in whose folder it is, because
    lifecycle rules apply to folders. Raises `FileOfNoTable` if that table does not exist."""
    location = plain(location)
    tables, found, policies = TableFolders(spark), dict[str, list[LogFile]](), {location: policy}
    for file in files:
        folder = location if file.uri.startswith(f"{location.rstrip('/')}/") else tables.folder_of(file.uri)
        if folder is None:
            raise FileOfNoTable(table=name, uri=file.uri)
        found.setdefault(folder, []).append(replace(file, folder=folder))
    for folder in found.keys() - policies.keys():
        policies[folder] = interval.read(spark, Source(path=folder))
    return [file for folder, listed in found.items() for file in archived_among(listed, policies[folder], now)]


def blocked_among(archived: Sequence[LogFile], tiers: TierStore | None) -> list[LogFile]:
    """The files that cannot be read now. Reads the tier of every file and deletion vector, because a sample says
    nothing about the others. Without `tiers`, all files."""
    if tiers is None or not archived:
        return list(archived)
    found = tiers.read_tiers(sorted({uri for file in archived for uri in file.uris}))
    return [file for file in archived if not all(found[uri].is_readable for uri in file.uris)]


def refuse(
    needed: Sequence[NeededFiles], tiers_at: TiersAt, refusal: Callable[[Sequence[NeededFiles]], ArchivedFilesNeeded]
) -> None:
    """Raises `refusal` for the files that cannot be read now, by table and version."""
    found = []
    for need in needed:
        folders: dict[str, list[LogFile]] = {}
        for file in need.files:
            folders.setdefault(file.folder or need.location, []).append(file)
        blocked = [file for folder, files in folders.items() for file in blocked_among(files, tiers_at(folder))]
        if blocked:
            found.append(replace(need, files=tuple(sorted(blocked, key=lambda file: file.uri))))
    if found:
        raise refusal(found)


@row
class ArchivedFile(Row):
    """An archived file that a query needs, restored or not."""

    uri: str
    bytes: int | None
    rows: int | None
    age_days: int | None
    partition: Mapping[str, str | None] | None
    deletion_vector: str | None
    why: str
    tier: str | None
    """None if it was not read from the storage."""

    def remarks(self) -> Sequence[str]:
        known = [None if self.bytes is None else size(self.bytes), self.tier]
        known += [None if self.age_days is None else counted(self.age_days, "day"), self.why]
        return [f"{self.uri}  {', '.join(filter(None, known))}"]


def archived_file(file: LogFile, where: str | None, now: datetime, tier: str | None) -> ArchivedFile:
    if where is None:
        why = "all rows are requested"
    elif file.rows is None:
        why = "its statistics are unknown"
    else:
        why = "its partition and statistics do not rule out a match"
    return ArchivedFile(
        file.uri,
        file.size,
        file.rows,
        (now - file.created).days if file.created else None,
        file.partition,
        file.vector,
        why if file.created else f"{why}; its age is unknown",
        tier,
    )


class ArchivedFilesNeeded(Terminal):
    code = "MF5001"
    what = "{asked} needs {amount} of {table} at version {version}: {uris}. Nothing was read."
    fix: ClassVar[Any] = (
        "Restore them with `{command}` and `mirrorfeed archive restore PLAN`, or"
        " use a condition that needs no archived file."
    )
    asked: str
    table: str
    version: int
    files: Sequence[LogFile]
    where: str | None = None
    feed_from: int | None = None

    @property
    def amount(self) -> str:
        return total(self.files, "archived file")

    @property
    def uris(self) -> str:
        return a_few([file.uri for file in self.files])

    @property
    def command(self) -> str:
        where = f" --where {shell_argument(self.where)}" if self.where else ""
        if self.feed_from is not None:
            where = f" --feed-from {self.feed_from} --feed-to {self.version}"
        return f"mirrorfeed archive plan {shell_argument(self.table)}{where} --to PLAN"


class LookUpNeedsArchive(ArchivedFilesNeeded):
    code = "MF5015"
    fix = f"If its keys are always unique, set `validate_keys: range`. Otherwise: {ArchivedFilesNeeded.fix}"
    asked: str = "A lookup of deleted keys"


class StatementNeedsArchivedFiles(ArchivedFilesNeeded):
    code = "MF5002"
    what = "{asked} needs {amount}: {each}. Nothing was read."
    fix: ClassVar[Any] = {
        True: (
            "Restore them with `mirrorfeed archive plan --sql {statement:argument} --to PLAN` and `mirrorfeed archive"
            " restore PLAN`, or use conditions that need no archived file."
        ),
        False: (
            "Restore them with `error.plan().save('PLAN')` and `mirrorfeed archive restore PLAN`, or use conditions"
            " that need no archived file."
        ),
    }
    tables: Sequence[NeededFiles]
    statement: str | None = None

    @classmethod
    def of(
        cls, tables: Sequence[NeededFiles], statement: str | None = None, asked: str = "The query"
    ) -> StatementNeedsArchivedFiles:
        return cls(
            asked=asked,
            table=tables[0].table,
            version=tables[0].version,
            files=tuple(file for each in tables for file in each.files),
            tables=tuple(tables),
            statement=statement,
        )

    @property
    def each(self) -> str:
        return "; ".join(map(str, self.tables))

    @property
    def case(self) -> bool:
        return self.statement is not None

    def plan(self, priority: Priority | None = None, rates: Prices | None = None) -> Plan:
        """The plan that restores all of these files. Without a statement it restores files and shows no rows."""
        from mirrorfeed.archive import restore_plan  # it imports this module

        return restore_plan.make(
            self.tables, priority, rates=rates, sql=self.statement, files_alone=self.statement is None
        )
