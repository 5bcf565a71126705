"""The SQL endpoint over a mirrored database, which takes up by itself, after a while, what is new in the mirror.

It tells when it last did only to who asks it to do so now. That costs capacity, and makes what it tells fresh.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from mirrorfeed.config.destination import DEFAULT_SCHEMA
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.landing.names import Target, fold
from mirrorfeed.mirror.fabric.database import MirroredDatabase
from mirrorfeed.mirror.fabric.errors import NoSqlEndpoint
from mirrorfeed.mirror.fabric.responses import Page, Response, error_in, moment, validated

_MINUTES = 5
"""After which the endpoint gives up: its own 15 are more than a look may take."""


@row
class TableSync(Row):
    """A table in the SQL endpoint of the mirrored database, after a refresh."""

    table: str = shown("table")
    """The name, which can follow the name of its schema and a dot."""
    status: str = shown("status")
    """Success, Failure, or NotRun if nothing was new."""
    synced: datetime | None = shown("synced", default=None)
    """Time of the last successful refresh."""
    error: str | None = None
    """Fabric's message."""

    @property
    def ok(self) -> bool:
        """Whether the refresh did not fail."""
        return self.status in ("Success", "NotRun")

    def remarks(self) -> Sequence[str]:
        return (f"{self.table}: {self.error or self.status}",) if self.error or not self.ok else ()


class _EndpointProperties(Response):
    id: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]+$")] | None = None


class _Properties(Response):
    sqlEndpointProperties: _EndpointProperties | None = None


class _Item(Response):
    properties: _Properties | None = None


class _Sync(Response):
    tableName: str = ""
    status: str = ""
    lastSuccessfulSyncDateTime: str | None = None
    error: Any = None


_ITEM: TypeAdapter[_Item] = TypeAdapter(_Item)
_SYNCS: TypeAdapter[Page[_Sync]] = TypeAdapter(Page[_Sync])


def refresh(database: MirroredDatabase) -> list[TableSync]:
    """Lets the endpoint take up what is new, and what it says of each table then; or `NoSqlEndpoint`."""
    place = database.place
    asking = "tell its SQL endpoint"
    properties = validated(_ITEM, database.api.get(asking, place), asking, place).properties
    endpoint = properties.sqlEndpointProperties.id if properties and properties.sqlEndpointProperties else None
    if not endpoint:
        raise NoSqlEndpoint(place=str(place))
    body = {"timeout": {"timeUnit": "Minutes", "value": _MINUTES}}
    action = "take up what is new in its SQL endpoint"
    found = database.api.outcome(action, place, f"sqlEndpoints/{endpoint}/refreshMetadata", body)
    return [_sync(entry) for entry in validated(_SYNCS, found, action, place).value or ()]


def sync_of(syncs: Sequence[TableSync], target: Target, all_targets: Collection[Target]) -> TableSync | None:
    """What is said of a table. A name without a schema counts only where one table alone has it."""
    schema, table = fold(target.schema or DEFAULT_SCHEMA), fold(target.table)
    names = {f"{schema}.{table}"}
    if sum(fold(each.table) == table for each in all_targets) == 1:
        names.add(table)
    return next((each for each in syncs if fold(each.table.replace("[", "").replace("]", "")) in names), None)


def _sync(entry: _Sync) -> TableSync:
    return TableSync(entry.tableName, entry.status, moment(entry.lastSuccessfulSyncDateTime), error_in(entry.error))
