"""Freshness: when the newest changes reached each step from commit to SQL endpoint, and the steps that changes wait
for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.rows import as_json
from mirrorfeed.errors import named
from mirrorfeed.source.table_info import commit_version
from mirrorfeed.storage import Store
from mirrorfeed.storage.folder import FolderStore

if TYPE_CHECKING:
    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.landing.names import Target
    from mirrorfeed.landing.record import Record
    from mirrorfeed.mirror.fabric.rows import TableState, TableSync


class Step(StrEnum):
    COMMITTED = "committed"
    PUBLISHED = "published"
    CONSUMED = "consumed"
    MIRRORED = "mirrored"
    QUERYABLE = "queryable"


LAG_STEPS = (Step.PUBLISHED, Step.CONSUMED, Step.MIRRORED, Step.QUERYABLE)
"""Steps that changes can wait for."""
NOTHING_PUBLISHED = "nothing is published yet"
FABRIC_NOT_READ = "Fabric was not read"
ENDPOINT_NOT_READ = "the SQL endpoint was not read"
FIRST_FILE_LEFT = "the first file is still there, and Fabric leaves the last file that it has consumed"


@dataclass(frozen=True, slots=True)
class MirrorTimes:
    """Times of a mirrored table that are not in the landing zone."""

    mirrored: datetime | None = None
    """Time of the last write to the mirror. None if there is no mirrored table yet."""
    queryable: datetime | None = None
    """Time when the SQL endpoint last loaded new changes."""
    refresh_failed: bool = False
    """True if a refresh of the endpoint has just failed. Only in this case, changes wait for the endpoint."""
    unknown: Mapping[Step, str] = field(default_factory=dict)
    """Steps whose time could not be read, with the reasons."""


NOT_READ = MirrorTimes(unknown={Step.MIRRORED: FABRIC_NOT_READ, Step.QUERYABLE: FABRIC_NOT_READ})


@dataclass(frozen=True, slots=True)
class Freshness:
    committed: datetime | None = None
    """Commit time of the newest version of the source."""
    published: datetime | None = None
    """Publication time of the newest files, from their record."""
    consumed: datetime | None = None
    """Publication time of the newest files that Fabric has consumed."""
    mirrored: datetime | None = None
    """Time of the last write to the mirror."""
    queryable: datetime | None = None
    """Time when the SQL endpoint last loaded new changes."""
    since: Mapping[Step, datetime] = field(default_factory=dict)
    """Steps that changes wait for, with the start of the wait."""
    unknown: Mapping[Step, str] = field(default_factory=dict)
    """Steps whose state is unknown, with the reasons."""

    def __str__(self) -> str:
        """Return one line with all times in UTC."""

        def shown(step: Step) -> str:
            at = self.at(step)
            time = "unknown" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
            return f"{step} {time}{' (changes wait)' if step in self.since else ''}"

        return ", ".join(map(shown, Step))

    def at(self, step: Step) -> datetime | None:
        found: datetime | None = getattr(self, step.value)
        return found

    def lag(self, step: Step, now: datetime) -> float | None:
        """Return the seconds for which changes have waited for a step. 0 if none wait, and None if unknown."""
        if step in self.unknown:
            return None
        since = self.since.get(step)
        return 0.0 if since is None else max(0.0, (now - since).total_seconds())

    def to_dict(self) -> dict[str, Any]:
        """Return the times, and since when changes wait for each step, as JSON values."""
        times: dict[str, Any] = {step.value: self.at(step) for step in Step}
        waiting = {step.value: self.since.get(step) for step in LAG_STEPS}
        found: dict[str, Any] = as_json({**times, "waiting_since": waiting, "unknown": self.unknown})
        return found


def freshness_of(
    newest_first: Iterable[Record],
    left: Sequence[int],
    committed: datetime | None,
    unpublished: datetime | None,
    *,
    unfinished: bool = False,
    has_consumed: bool = False,
    mirror: MirrorTimes = NOT_READ,
) -> Freshness:
    """Return the freshness of a table. Reads no more records than necessary.

    `left` contains the numbers of the data files in the landing zone. `committed` and `unpublished` are the times of
    the newest version and of the oldest unpublished one. `unfinished` is True if the newest record has files to rename.
    `has_consumed` is True if something other than missing files shows that Fabric consumed files of the table.
    """
    unknown = dict(mirror.unknown)
    if committed is None:
        unknown |= {Step.COMMITTED: "the file of the commit is not accessible"}
    waiting = sorted(left)[1:2]  # the oldest may be the last consumed file, which Fabric leaves
    since: dict[Step, datetime] = {} if unpublished is None else {Step.PUBLISHED: unpublished}
    published = consumed = after = oldest = None
    for at, record in enumerate(newest_first):
        if unfinished and not at:
            since[Step.PUBLISHED] = min(record.at, since.get(Step.PUBLISHED, record.at))
            after = record.at
            continue
        oldest = record.at
        if not record.files:
            continue
        published = published or record.at
        if consumed is None and not (waiting and record.next_file_number > waiting[0]):
            consumed = record.at
            if waiting and after:
                since[Step.CONSUMED] = after
        if Step.MIRRORED not in unknown and (mirror.mirrored is None or record.at > mirror.mirrored):
            since[Step.MIRRORED] = record.at
        elif consumed:
            break
        after = record.at
    if oldest is None:
        unknown = {step: NOTHING_PUBLISHED for step in LAG_STEPS if step not in since} | unknown
        return Freshness(committed, since=since, unknown=unknown)
    if waiting and consumed is None:  # the record was pruned, so the wait is at least this long
        since[Step.CONSUMED] = after or oldest
    if not (has_consumed or mirror.mirrored or is_consumption_visible(left)):
        consumed = None
        if Step.CONSUMED not in since:
            unknown |= {Step.CONSUMED: FIRST_FILE_LEFT}
    if mirror.refresh_failed and mirror.mirrored and (mirror.queryable is None or mirror.queryable < mirror.mirrored):
        since[Step.QUERYABLE] = mirror.mirrored
    return Freshness(committed, published, consumed, mirror.mirrored, mirror.queryable, since, unknown)


def is_consumption_visible(left: Sequence[int]) -> bool:
    """Return whether the first file of the table is gone. Fabric deletes a file only after consuming a later one."""
    return 1 not in left


def read_endpoint(config: Config) -> Sequence[TableSync] | str:
    """Refresh the SQL endpoint, and return its report for each table, or the reason why there is none."""
    from mirrorfeed.mirror.fabric.database import database_of

    try:
        return database_of(config).refresh()
    except Exception as error:
        return named("Refreshing the SQL endpoint", error).problem.rstrip(".")


def mirror_times_of(
    config: Config,
    states: Sequence[TableState] | None = None,
    syncs: Sequence[TableSync] | str = ENDPOINT_NOT_READ,
    mirror: str | None = None,
) -> Callable[[Table], MirrorTimes]:
    """Return a function that reads the times of one mirrored table.

    The function reads the Delta log of the mirror, in the folder `mirror` or in OneLake next to the landing zone.
    `states` are the tables in Fabric, and `syncs` is the result of `read_endpoint`.
    """

    def times_of(table: Table) -> MirrorTimes:
        unknown: dict[Step, str] = {}
        mirrored = queryable = None
        refresh_failed = False
        try:
            synced = next((each.synced for each in states or () if each.is_of(table.target)), None)
            store, log = _log_of(config, table.target, mirror)
            commits = [each.modified for each in store.list(log) if commit_version(each.name) is not None]
            mirrored = max((*commits, *([synced] if synced else [])), default=None)
        except Exception as error:
            unknown[Step.MIRRORED] = named("Reading the mirror", error).problem.rstrip(".")
        if isinstance(syncs, str):
            unknown[Step.QUERYABLE] = syncs
        else:
            from mirrorfeed.mirror.fabric.database import sync_of

            if sync := sync_of(syncs, table.target, [each.target for each in config.tables]):
                queryable, refresh_failed = sync.synced, not sync.ok
            else:
                unknown[Step.QUERYABLE] = "the SQL endpoint reports no table that is surely this one"
        return MirrorTimes(mirrored, queryable, refresh_failed, unknown)

    return times_of


def _log_of(config: Config, target: Target, mirror: str | None) -> tuple[Store, str]:
    """Return the store and the folder of a mirrored table's Delta log."""
    log = f"{target.schema or 'dbo'}/{target.table}/_delta_log"
    if mirror:
        folder = Path(mirror).resolve()
        return FolderStore(str(folder)), "_delta_log" if (folder / "_delta_log").is_dir() else log
    workspace, database = config.onelake or (None, None)
    if workspace is None or database is None:
        from mirrorfeed.mirror.errors import MirrorNotNamed

        raise MirrorNotNamed(landing_zone=config.landing_zone)
    from mirrorfeed.storage.onelake import ENDPOINT, OneLakeStore  # imported late: slow to import

    endpoint = config.files_endpoint or ENDPOINT
    return OneLakeStore(workspace, database, config.credential, endpoint, config.ca_bundle, root_folder="Tables"), log
