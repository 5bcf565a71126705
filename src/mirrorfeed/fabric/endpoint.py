"""The SQL endpoint over a mirrored database, which takes up by itself, after a while, what is new in the mirror.

It tells when it last did only to who asks it to do so now. That costs capacity, and makes what it tells fresh.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorfeed.config.mirroring import DEFAULT_SCHEMA
from mirrorfeed.errors import Transient
from mirrorfeed.fabric.answers import error_in, moment
from mirrorfeed.fabric.database import MirroredDatabase
from mirrorfeed.landing.names import Target, fold

_MINUTES = 5
"""After which the endpoint gives up: its own 15 are more than a look may take."""


@dataclass(frozen=True, slots=True)
class TableSync:
    name: str
    """The table, as it is or after its schema and a dot."""
    status: str
    """Success, Failure, or NotRun where there was nothing to take up."""
    synced: datetime | None = None
    """When it last was taken up."""
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.status not in ("Success", "NotRun")


class NoSqlEndpoint(Transient):
    """The mirrored database has no SQL endpoint yet, so how far its tables are cannot be asked there."""

    code = "MF4215"

    def __init__(self, place: str) -> None:
        self.place = place

    def what(self) -> str:
        return f"Fabric tells of no SQL endpoint of {self.place}."

    def next(self) -> str:
        return "It is made with the database, within minutes; look at the item in Fabric if it stays away."


def refresh(database: MirroredDatabase) -> list[TableSync]:
    """Lets the endpoint take up what is new, and what it says of each table then; or `NoSqlEndpoint`."""
    place = database.place
    told = database.api.get("tell its SQL endpoint", place)
    endpoint = ((told.get("properties") or {}).get("sqlEndpointProperties") or {}).get("id")
    if not endpoint:
        raise NoSqlEndpoint(str(place))
    body = {"timeout": {"timeUnit": "Minutes", "value": _MINUTES}}
    action = "take up what is new in its SQL endpoint"
    found = database.api.outcome(action, place, f"sqlEndpoints/{endpoint}/refreshMetadata", body)
    return [_sync(entry) for entry in found.get("value") or []]


def sync_of(syncs: Sequence[TableSync], target: Target, all_targets: Collection[Target]) -> TableSync | None:
    """What is said of a table. A name without a schema counts only where one table alone has it."""
    schema, table = fold(target.schema or DEFAULT_SCHEMA), fold(target.table)
    names = {f"{schema}.{table}"}
    if sum(fold(each.table) == table for each in all_targets) == 1:
        names.add(table)
    return next((each for each in syncs if fold(each.name.replace("[", "").replace("]", "")) in names), None)


def _sync(entry: dict[str, Any]) -> TableSync:
    synced = moment(entry.get("lastSuccessfulSyncDateTime"))
    return TableSync(str(entry.get("tableName", "")), str(entry.get("status", "")), synced, error_in(entry))
