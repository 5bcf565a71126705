"""What is known beyond the landing zone, of mirrors and their SQL endpoint; what cannot be asked is told with why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from mirrorfeed.config import Config, Table
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.landing.names import Target
from mirrorfeed.mirror.fabric.database import TableState, TableSync, database_of, sync_of
from mirrorfeed.mirror.verify.errors import MirrorNotNamed
from mirrorfeed.monitor.freshness import Beyond, Step
from mirrorfeed.source.delta_protocol import commit_version
from mirrorfeed.storage import FolderStore, Store

NOT_ASKED = "the SQL endpoint was not asked"


def syncs_of(config: Config) -> Sequence[TableSync] | str:
    """What the SQL endpoint says once it has taken up what is new; or why it does not."""
    try:
        return database_of(config).refresh()
    except Exception as error:
        return _first(named("Asking the SQL endpoint", error))


def beyond_of(
    config: Config,
    states: Sequence[TableState] | None = None,
    syncs: Sequence[TableSync] | str = NOT_ASKED,
    mirror: str | None = None,
) -> Callable[[Table], Beyond]:
    """Looks at one table: by the log of its mirror, which is in the folder `mirror` or in OneLake beside the landing
    zone, and by what Fabric (`states`) and the endpoint (`syncs`) said of all."""

    def look(table: Table) -> Beyond:
        unknown: dict[Step, str] = {}
        mirrored = queryable = None
        refused = False
        try:
            mirrored = _latest(_committed(config, table.target, mirror), _synced(states, table.target))
        except Exception as error:
            unknown[Step.MIRRORED] = _first(named("Looking at the mirror", error))
        if isinstance(syncs, str):
            unknown[Step.QUERYABLE] = syncs
        elif (sync := sync_of(syncs, table.target, [each.target for each in config.tables])) is None:
            unknown[Step.QUERYABLE] = "the SQL endpoint names no such table, or not which of several"
        else:
            queryable, refused = sync.synced, not sync.ok
        return Beyond(mirrored, queryable, refused, unknown)

    return look


def _committed(config: Config, target: Target, mirror: str | None) -> datetime | None:
    """When the newest version of a mirror was committed; None where there is no such table."""
    store, folder = _place(config, target, mirror)
    return max((each.modified for each in store.list(folder) if commit_version(each.name) is not None), default=None)


def _place(config: Config, target: Target, mirror: str | None) -> tuple[Store, str]:
    log = f"{target.schema or 'dbo'}/{target.table}/_delta_log"
    workspace, database = config.onelake or (None, None)
    if mirror:
        folder = Path(mirror).resolve()
        return FolderStore(str(folder)), "_delta_log" if (folder / "_delta_log").is_dir() else log
    if workspace is None or database is None:
        raise MirrorNotNamed(landing_zone=config.landing_zone)
    from mirrorfeed.storage.onelake import ENDPOINT, OneLakeStore  # as in config.landing_zone

    place = config.endpoint or ENDPOINT
    return OneLakeStore(workspace, database, config.credential, place, config.ca_bundle, root_folder="Tables"), log


def _synced(states: Sequence[TableState] | None, target: Target) -> datetime | None:
    return next((each.synced for each in states or () if each.is_of(target)), None)


def _latest(*moments: datetime | None) -> datetime | None:
    return max((each for each in moments if each), default=None)


def _first(error: MirrorfeedError) -> str:
    return error.problem.rstrip(".")
