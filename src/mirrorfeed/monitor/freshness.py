"""Freshness of a table: when changes last reached each step from commit to SQL endpoint, and how long changes wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mirrorfeed.config.connections import DEFAULT_SCHEMA
from mirrorfeed.config.model import zone_of
from mirrorfeed.display.rows import as_json
from mirrorfeed.errors import wrap_error
from mirrorfeed.mirror.errors import mirror_not_named
from mirrorfeed.source.table_info import commit_version
from mirrorfeed.storage import Store
from mirrorfeed.storage.local_folder import FolderStore

if TYPE_CHECKING:
    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.landing.log_record import Record
    from mirrorfeed.mirror.fabric.status_and_settings import TableState, TableSync


class Step(StrEnum):
    """Step of a change on its way from the source to Fabric."""

    COMMITTED = "committed"
    PUBLISHED = "published"
    CONSUMED = "consumed"
    MIRRORED = "mirrored"
    QUERYABLE = "queryable"


LAG_STEPS = (Step.PUBLISHED, Step.CONSUMED, Step.MIRRORED, Step.QUERYABLE)
"""Steps after the commit, for which changes can wait."""
NOTHING_PUBLISHED = "nothing is published yet"
NO_COMMITS = "each publication compares all rows, so no commits are read"
ENDPOINT_NOT_READ = "the SQL endpoint was not read"


@dataclass(frozen=True, slots=True)
class Freshness:
    times: Mapping[Step, datetime] = field(default_factory=dict)
    """Time of the last change at each step: newest commit, newest publication, newest publication that Fabric has
    consumed, last write to the mirror, and last load by the SQL endpoint."""
    since: Mapping[Step, datetime] = field(default_factory=dict)
    """Time when changes began to wait for a step. The key is the step. A step is missing if no change waits for it."""
    unknown: Mapping[Step, str] = field(default_factory=dict)
    """Reason why the time of a step in `times` or `since` is unknown. The key is the step."""

    def lag(self, step: Step, now: datetime) -> float | None:
        """Return the seconds for which changes have waited to reach `step`, for example to be published.

        Returns 0 if no change waits, and None if the wait is unknown.
        """
        if step in self.unknown:
            return None
        since = self.since.get(step)
        return 0.0 if since is None else max(0.0, (now - since).total_seconds())

    def to_dict(self) -> dict[str, Any]:
        """Return the freshness as a dictionary of JSON values.

        Each step is a key. Its value is the time of the step in `times`, or None. The inner dictionary `waiting_since`
        has, for each step after the commit, the time when changes began to wait for this step, or None if no change
        waits. The inner dictionary `unknown` has, for each step with an unknown time, the reason.
        """
        times: dict[str, Any] = {step.value: self.times.get(step) for step in Step}
        waiting = {step: self.since.get(step) for step in LAG_STEPS}
        content: dict[str, Any] = as_json({**times, "waiting_since": waiting, "unknown": self.unknown})
        return content


NOT_READ = Freshness(unknown=dict.fromkeys((Step.MIRRORED, Step.QUERYABLE), "Fabric was not read"))
"""Freshness of a mirror that was not read."""


def mirror_freshness(
    mirrored: datetime | None,
    queryable: datetime | None = None,
    unknown: Mapping[Step, str] = MappingProxyType({}),
    *,
    refresh_failed: bool = False,
) -> Freshness:
    """Return the freshness of a mirror that was last written at `mirrored`, and of its SQL endpoint.

    `queryable` is the time of the last successful refresh of the SQL endpoint. `refresh_failed` is True if a later
    refresh failed. Then, if `mirrored` is later than `queryable`, the mirror has changes that the SQL endpoint does
    not show. A time is None if it is unknown. `unknown` maps a step to the reason why its time is unknown."""
    times = {Step.MIRRORED: mirrored, Step.QUERYABLE: queryable}
    is_waiting = refresh_failed and mirrored and (queryable is None or queryable < mirrored)
    since = {Step.QUERYABLE: mirrored} if mirrored and is_waiting else {}
    return Freshness({step: at for step, at in times.items() if at}, since, unknown)


def freshness_of(
    newest_first: Iterable[Record],
    file_numbers: Sequence[int],
    committed: datetime | None,
    unpublished: datetime | None,
    *,
    reads_commits: bool = True,
    unfinished: bool = False,
    has_consumed: bool = False,
    mirror: Freshness = NOT_READ,
) -> Freshness:
    """Return when changes of a table last reached each step, and since when changes have been waiting for a step.

    Reads only as many log records (`newest_first`) as necessary. `file_numbers` are the numbers of the data files in
    the landing zone. `committed` is the commit time of the newest source version. `unpublished` is the commit time of
    the oldest unpublished source version, or None. If publications compare all rows, both times are None, and
    `reads_commits` is False. `unfinished` is True if files of the newest record still have staged names. `has_consumed`
    is True if Fabric has certainly consumed a file. `mirror` has the times of the mirror and of its SQL endpoint.
    """
    unknown, mirrored = dict(mirror.unknown), mirror.times.get(Step.MIRRORED)
    if committed is None:
        unknown |= {Step.COMMITTED: "the commit file cannot be read" if reads_commits else NO_COMMITS}
    waiting = sorted(file_numbers)[1:2]  # the oldest may be the last consumed file, which Fabric leaves
    since: dict[Step, datetime] = {} if unpublished is None else {Step.PUBLISHED: unpublished}
    published = consumed = newer = oldest = None
    for position, record in enumerate(newest_first):
        if unfinished and position == 0:
            since[Step.PUBLISHED] = min(record.at, since.get(Step.PUBLISHED, record.at))
            newer = record.at
            continue
        oldest = record.at
        if not record.files:
            continue
        published = published or record.at
        if consumed is None and not (waiting and record.next_file_number > waiting[0]):
            consumed = record.at
            if waiting and newer:
                since[Step.CONSUMED] = newer
        if Step.MIRRORED not in unknown and (mirrored is None or record.at > mirrored):
            since[Step.MIRRORED] = record.at
        elif consumed:
            break
        newer = record.at
    if oldest is None:
        unknown = {step: NOTHING_PUBLISHED for step in LAG_STEPS if step not in since} | unknown
        return Freshness({Step.COMMITTED: committed} if committed else {}, since, unknown)
    if waiting and consumed is None:  # the record was pruned, so the wait is at least this long
        since[Step.CONSUMED] = newer or oldest
    if 1 in file_numbers and not (has_consumed or mirrored):
        consumed = None
        if Step.CONSUMED not in since:
            reason = "the first file still exists, and Fabric does not remove the last file that it consumed"
            unknown |= {Step.CONSUMED: reason}
    times = {Step.COMMITTED: committed, Step.PUBLISHED: published, Step.CONSUMED: consumed, **mirror.times}
    return Freshness({step: at for step, at in times.items() if at}, {**since, **mirror.since}, unknown)


def read_endpoint(config: Config) -> Sequence[TableSync] | str:
    """Refresh the SQL endpoint. Returns the result for each table or, if this fails, a text with the reason."""
    from mirrorfeed.mirror.fabric import database_of

    try:
        return database_of(config).refresh()
    except Exception as error:
        return wrap_error("Refreshing the SQL endpoint", error).problem.rstrip(".")


def read_mirror(
    config: Config,
    table: Table,
    state: TableState | None = None,
    syncs: Sequence[TableSync] | str = ENDPOINT_NOT_READ,
    mirror: str | None = None,
) -> Freshness:
    """Return the freshness of a table's mirror. Raises no error: times that cannot be read are unknown.

    Reads the Delta log of the mirror, in the folder `mirror` or, if it is None, in OneLake. `state` is the state of the
    table in Fabric. `syncs` has the results of refreshing the SQL endpoint, or the reason why there are none.
    """
    unknown: dict[Step, str] = {}
    mirrored = queryable = None
    refresh_failed = False
    try:
        log = f"{table.target.schema or DEFAULT_SCHEMA}/{table.target.table}/_delta_log"
        if mirror:
            store: Store = FolderStore(str(Path(mirror).resolve()))
            log = "_delta_log" if store.list("_delta_log") else log
        elif config.onelake is None or config.onelake[1] is None:
            raise mirror_not_named(landing_zone=config.landing_zone)
        else:
            store = zone_of(config, "Tables")
        times = [each.modified for each in store.list(log) if commit_version(each.name) is not None]
        mirrored = max((*times, *([state.synced] if state and state.synced else [])), default=None)
    except Exception as error:
        unknown[Step.MIRRORED] = wrap_error("Reading the mirror", error).problem.rstrip(".")
    if isinstance(syncs, str):
        unknown[Step.QUERYABLE] = syncs
    else:
        from mirrorfeed.mirror.fabric.status_and_settings import sync_of

        if sync := sync_of(syncs, table.target, [each.target for each in config.tables]):
            queryable, refresh_failed = sync.synced, not sync.ok
        else:
            unknown[Step.QUERYABLE] = "no table of the SQL endpoint has exactly this name"
    return mirror_freshness(mirrored, queryable, unknown, refresh_failed=refresh_failed)
