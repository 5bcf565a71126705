"""The open mirrored database: creates, starts and stops it, and reads the status of its tables and SQL endpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from mirrorfeed.config.connections import DEFAULT_SCHEMA, FabricOptions
from mirrorfeed.config.model import Config
from mirrorfeed.config.values import ONELAKE
from mirrorfeed.landing.names import Target, fold
from mirrorfeed.landing.strict_json import Count
from mirrorfeed.mirror.errors import (
    NameTaken,
    NoSqlEndpoint,
    NotDropped,
    NotInFabric,
    NotListed,
    NotPaused,
    NotReached,
)
from mirrorfeed.mirror.fabric.client import (
    ENDPOINT,
    POLL_SECONDS,
    FabricClient,
    FabricItem,
    Page,
    Response,
    error_in,
    time_in,
)
from mirrorfeed.mirror.fabric.definition import apply, differences, in_words, new_definition, part, read
from mirrorfeed.mirror.fabric.rows import CreatedDatabase, Setting, TableState, TableSync
from mirrorfeed.runtime.login import token_credential

_DEFAULTS = FabricOptions()
_REFRESH_MINUTES = 5
"""Timeout of a refresh of the SQL endpoint. The default of 15 minutes is too long for a status."""


class _Status(Response):
    status: str = "unknown"


class _Metrics(Response):
    processedRows: Count | None = None
    lastSyncDateTime: str | None = None


class _Table(Response):
    sourceSchemaName: str | None = None
    sourceTableName: str = ""
    status: str = ""
    metrics: _Metrics | None = None
    error: Any = None


class _Item(Response):
    id: str
    displayName: str


class _EndpointProperties(Response):
    id: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]+$")] | None = None


class _Properties(Response):
    sqlEndpointProperties: _EndpointProperties | None = None


class _Database(Response):
    properties: _Properties | None = None


class _Sync(Response):
    tableName: str = ""
    status: str = ""
    lastSuccessfulSyncDateTime: str | None = None
    error: Any = None


_STATUS: TypeAdapter[_Status] = TypeAdapter(_Status)
_TABLES: TypeAdapter[Page[_Table]] = TypeAdapter(Page[_Table])
_ITEMS: TypeAdapter[Page[_Item]] = TypeAdapter(Page[_Item])
_DATABASE: TypeAdapter[_Database] = TypeAdapter(_Database)
_SYNCS: TypeAdapter[Page[_Sync]] = TypeAdapter(Page[_Sync])


@dataclass(frozen=True)
class MirroredDatabase:
    client: FabricClient
    item: FabricItem

    def status(self) -> str:
        """One of Initializing, Initialized, Starting, Running, Paused, Stopping, Stopped, as Fabric spells it."""
        return self.client.read("read the status", self.item, f"{self.item.path}/getMirroringStatus", _STATUS).status

    def tables(self) -> list[TableState]:
        path = f"{self.item.path}/getTablesMirroringStatus"
        entries = self.client.pages("read the status of the tables", self.item, path, _TABLES)
        return [
            TableState(
                f"{each.sourceSchemaName or DEFAULT_SCHEMA}.{each.sourceTableName}",
                each.status,
                each.metrics.processedRows if each.metrics else None,
                error_in(each.error),
                time_in(each.metrics.lastSyncDateTime) if each.metrics else None,
            )
            for each in entries
        ]

    def start(self, on_status: Callable[[str], None], seconds: float) -> None:
        """Start mirroring if it does not run, and wait until it does."""
        self._reach({"Running"}, "startMirroring", {"Initialized", "Stopped", "Paused"}, on_status, seconds)

    def resume(self, on_status: Callable[[str], None], seconds: float) -> None:
        """Start paused mirroring, and wait until it runs; or raise `NotPaused`."""
        if (status := self.status()) not in ("Paused", "Running", "Starting"):
            raise NotPaused(item=str(self.item), status=status)
        self.start(on_status, seconds)

    def stop(self, on_status: Callable[[str], None], seconds: float) -> None:
        self._reach({"Stopped", "Initialized"}, "stopMirroring", {"Running", "Paused"}, on_status, seconds)

    def _reach(
        self,
        goals: Collection[str],
        verb: str,
        ready: Collection[str],
        on_status: Callable[[str], None],
        seconds: float,
    ) -> None:
        """Send `verb` once, as soon as the status is one of `ready`, and wait for one of the goals."""
        deadline, is_sent, before = self.client.clock() + seconds, False, ""
        while True:
            status = self.status()
            if status != before:
                on_status(status)
            before = status
            if status in goals:
                return
            if status in ready and not is_sent:
                action = verb.replace("Mirroring", " mirroring")
                self.client.call(action, self.item, f"{self.item.path}/{verb}")
                is_sent = True
            elif self.client.clock() >= deadline:
                raise NotReached(item=str(self.item), verb=verb, status=status, seconds=seconds)
            else:
                self.client.sleep(POLL_SECONDS)

    def wait_until_dropped(self, target: Target, on_wait: Callable[[str], None], seconds: float) -> None:
        """Wait until Fabric has dropped the table. Does not wait if mirroring does not run: it drops nothing then, and
        loads every table again when it starts."""
        deadline, before = self.client.clock() + seconds, ""
        while True:
            state = next((found for found in self.tables() if found.is_of(target)), None)
            if state is None or _is_stopped(self):
                return
            if state.in_words != before:
                on_wait(state.in_words)
            before = state.in_words
            if self.client.clock() >= deadline:
                raise NotDropped(table=str(target), item=str(self.item), state=state.in_words, seconds=seconds)
            self.client.sleep(POLL_SECONDS)

    def refresh(self) -> list[TableSync]:
        """Refresh the SQL endpoint, and return its report for each table; or raise `NoSqlEndpoint`.

        Fabric reports the times of the endpoint only in response to a refresh, which uses capacity.
        """
        properties = self.client.read("read its SQL endpoint", self.item, self.item.path, _DATABASE, "GET").properties
        endpoint = properties.sqlEndpointProperties.id if properties and properties.sqlEndpointProperties else None
        if not endpoint:
            raise NoSqlEndpoint(item=str(self.item))
        path = f"sqlEndpoints/{endpoint}/refreshMetadata"
        body = {"timeout": {"timeUnit": "Minutes", "value": _REFRESH_MINUTES}}
        found = self.client.read("refresh its SQL endpoint", self.item, path, _SYNCS, body=body).value or ()
        return [
            TableSync(each.tableName, each.status, time_in(each.lastSuccessfulSyncDateTime), error_in(each.error))
            for each in found
        ]


def sync_of(syncs: Sequence[TableSync], target: Target, all_targets: Collection[Target]) -> TableSync | None:
    """The report for a table. A name without a schema counts only if one table alone has it."""
    schema, table = fold(target.schema or DEFAULT_SCHEMA), fold(target.table)
    names = {f"{schema}.{table}"}
    if sum(fold(each.table) == table for each in all_targets) == 1:
        names.add(table)
    return next((each for each in syncs if fold(each.table.replace("[", "").replace("]", "")) in names), None)


def create(
    client: FabricClient, workspace: str, name: str, options: FabricOptions = _DEFAULTS, seconds: float = 120.0
) -> tuple[str, bool]:
    """The id of the open mirrored database with this name, and whether this call created it."""
    item = FabricItem(workspace)
    if found := _find(client, item, name):
        read(client, FabricItem(workspace, found), name)
        return found, False
    taken: NameTaken | None = None
    try:
        body = {"displayName": name, "definition": {"parts": [part(new_definition(options))]}}
        client.call(f"create {name!r}", item, item.path, body)
    except NameTaken as error:  # a repeated request finds the database of the first
        taken = error
    deadline = client.clock() + seconds
    while not (found := _find(client, item, name)):
        if client.clock() >= deadline:
            raise taken or NotListed(name=name, item=str(item))
        client.sleep(POLL_SECONDS)
    return found, True


def _find(client: FabricClient, item: FabricItem, name: str) -> str | None:
    entries = client.pages("list the mirrored databases", item, item.path, _ITEMS, "GET")
    ids = [entry.id for entry in entries if fold(entry.displayName) == fold(name)]
    return ids[0] if ids else None


def client_of(config: Config) -> FabricClient:
    credential = token_credential(config.credential, config.ca_bundle)
    return FabricClient(credential, config.api_endpoint or ENDPOINT, config.ca_bundle)


def database_of(config: Config) -> MirroredDatabase:
    """The database of the configured landing zone, or `NotInFabric`."""
    workspace, database = config.onelake or (None, None)
    if workspace is None or database is None:
        raise NotInFabric(landing_zone=config.landing_zone)
    return MirroredDatabase(client_of(config), FabricItem(workspace, database))


def create_configured(config: Config, name: str) -> CreatedDatabase:
    """Create a database in the workspace of the landing zone, if it does not exist."""
    if config.onelake is None:
        raise NotInFabric(landing_zone=config.landing_zone)
    workspace, _ = config.onelake
    database, created = create(client_of(config), workspace, name, config.fabric)
    return CreatedDatabase(name, created, f"{ONELAKE}{workspace}/{database}")


Settings = tuple[tuple[Setting, ...], tuple[str, ...], str]
"""Settings that differ from the configuration, notes and a summary."""


def _is_stopped(database: MirroredDatabase) -> bool:
    return database.status() in ("Initialized", "Stopped")


def plan_settings(config: Config) -> Settings:
    """Compare the settings of the database with the configuration."""
    database = database_of(config)
    there = read(database.client, database.item).content
    rows = tuple(differences(there, config.fabric, _is_stopped(database)))
    return rows, (f"In Fabric: {in_words(there)}.",), "" if rows else "Nothing differs from the configuration."


def apply_settings(config: Config, confirm: Callable[..., None] | None = None) -> Settings:
    """Change the settings that can be changed, after `confirm` was called with the changes."""
    database = database_of(config)
    found = apply(database.client, database.item, config.fabric, _is_stopped(database), confirm)
    rows = tuple(each for each in found if each.changes)
    fixed = tuple(each.in_words for each in found if not each.changes)
    return rows, fixed, "Fabric shows these changes." if rows else "There was nothing to change."
