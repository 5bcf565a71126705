"""Select the archived data files of a table, and raise an error if a query needs files that are not restored.

In a table with an archive interval, a file counts as archived if its age is unknown or reaches the interval. The access
tier of the file does not matter. If a clone uses a file of another table, the other table's interval applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.archive_interval import Policy
from mirrorfeed.archive.data_files import DataFile, NeededFiles, describe_files, normalize_uri, table_folder
from mirrorfeed.archive.errors import file_of_deleted_table
from mirrorfeed.archive.restore_plan import PinnedQuery, Plan, plan_files
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.errors import ArchiveError, Computed, problem
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.tier_store import Priority, TierStore

TiersAt = Callable[[str], TierStore | None]
"""Function that returns the `TierStore` for the URI of a table or file. None means that no archived file counts as
restored."""


def select_archived(files: Iterable[DataFile], policy: Policy | None, now: datetime) -> list[DataFile]:
    """Return the files that count as archived at `now`, and set their ages. Returns no files if `policy` is None."""
    return [
        replace(file, age_days=(now - file.created).days if file.created else None)
        for file in files
        if policy and policy.counts_as_archived(file.created, now)
    ]


def find_archived(
    spark: SparkSession, name: str, location: str, files: Iterable[DataFile], policy: Policy | None, now: datetime
) -> list[DataFile]:
    """Return the files that count as archived at `now`, each with its age.

    `policy` applies to files in `location`, the folder of the table `name`. A clone also has files in folders of other
    tables, whose archive intervals apply to these files. A deletion vector can be in another folder than its data file.
    Then both intervals apply. Raises `file_of_deleted_table` if a file is in no table's folder.
    """
    location, known, archived = normalize_uri(location), dict[str, str | None](), list[DataFile]()
    policies, start = {location: policy}, f"{location.rstrip('/')}/"

    def policy_of(uri: str) -> Policy | None:
        folder = location if uri.startswith(start) else table_folder(spark, uri, known)
        if folder is None:
            raise file_of_deleted_table(table=name, uri=uri)
        if folder not in policies:
            policies[folder] = archive_interval.read(spark, Source(path=folder))
        return policies[folder]

    for file in files:
        # The log does not contain the age of a vector. The vector is never older than its data file.
        selected = (each for uri in file.uris for each in select_archived([file], policy_of(uri), now))
        archived += islice(selected, 1)
    return archived


def find_unreadable(need: NeededFiles, tiers_at: TiersAt) -> list[DataFile]:
    """Return the files in `need` that cannot be read, sorted by URI.

    A file can be read if the access tiers of the file and of its deletion vector allow it. `tiers_at` returns the
    `TierStore` for the URI of a file. If `tiers_at` returns None, the file does not count as readable.
    """
    uris_by_store: dict[TierStore, set[str]] = {}
    for uri in (uri for file in need.files for uri in file.uris):  # files of a clone can be in several buckets
        if store := tiers_at(uri):
            uris_by_store.setdefault(store, set()).add(uri)
    readable: set[str] = set()
    for store, uris in uris_by_store.items():
        readable |= {uri for uri, tier in store.read_tiers(sorted(uris)).items() if tier.is_readable}
    unreadable = [file for file in need.files if not readable.issuperset(file.uris)]
    return sorted(unreadable, key=lambda file: file.uri)


def require_readable(
    needed: Sequence[NeededFiles],
    tiers_at: TiersAt,
    operation: str = "The query",
    arguments: Sequence[str] = (),
) -> None:
    """Raise `ArchivedFilesNeededError`, with the last two arguments as fields,
    if files in `needed` are not restored."""
    unreadable = [replace(each, files=tuple(find_unreadable(each, tiers_at))) for each in needed]
    if blocked := [each for each in unreadable if each.files]:
        raise ArchivedFilesNeededError(needed=blocked, operation=operation, arguments=arguments)


class ArchivedFilesNeededError(ArchiveError):
    """Archived files are needed. Restore them with the plan that `plan()` returns."""

    code = "MF5001"
    what = "{operation} needs {each}. Nothing was read."
    fix = (
        "Restore the files with `{command}` and `mirrorfeed archive restore PLAN`, or use conditions that need no"
        " archived file."
    )
    needed: Sequence[NeededFiles]
    operation: str = "The query"
    statement: str | None = None
    """The query in SQL, if any."""
    query: PinnedQuery | None = None
    """The query in `statement`, as a plan contains it. None if a plan cannot contain it."""
    arguments: Sequence[str] = ()
    """Arguments with which `mirrorfeed archive plan` plans the restore. They are not used if `statement` is set."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for each in self.needed for file in each.files)

    @property
    def each(self) -> str:
        return "; ".join(each.description for each in self.needed)

    @property
    def command(self) -> str:
        arguments = ("--sql", self.statement) if self.statement else self.arguments
        if not arguments:
            return "error.plan().save('PLAN')"
        return f"mirrorfeed archive plan {' '.join(map(shell_argument, arguments))} --to PLAN"

    def plan(self, priority: Priority | None = None) -> Plan:
        """Return a restore plan for the files in this error. The default priority is standard.

        The plan also contains the query in `self.query`. If `self.query` is None, the plan has no query.
        """
        if self.query is not None:
            return self.query.plan(self.needed, priority)
        return replace(plan_files(self.needed, priority), files_alone=True)


@problem(ArchivedFilesNeededError, "MF5015")
def lookup_needs_archived_files(
    *,
    needed: Sequence[NeededFiles],
    operation: str = "A lookup of deleted keys",
    statement: str | None = None,
    query: PinnedQuery | None = None,
    arguments: Sequence[str] = (),
) -> None:
    """{operation} needs {each}. Nothing was read.

    Restore the files with `{command}` and `mirrorfeed archive restore PLAN`, or use conditions that need no archived
    file. If the keys of the table are always unique, you can set `validate_keys: range` instead.
    """


@problem(ArchiveError, "MF5003")
def not_enough_active_rows(*, table: str, found: int, limit: int, files: Sequence[DataFile]) -> Computed:
    """The active files of {table} contain only {found:,} of the {limit:,} rows that LIMIT asks for. {missing} would
    also be needed.

    Use a smaller LIMIT, or restore the archived files: create a plan with `mirrorfeed archive plan`.
    """
    return {"missing": describe_files(files)}
