"""The mirrored database in Fabric: create, start and stop it, read its status, and change its settings."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AliasPath, ConfigDict, Field

from mirrorfeed.config.connections import DEFAULT_SCHEMA, FabricOptions
from mirrorfeed.config.model import Config
from mirrorfeed.config.validators import ONELAKE
from mirrorfeed.display.progress import progress
from mirrorfeed.landing.names import Target, fold
from mirrorfeed.landing.strict_json import Count, parse_json
from mirrorfeed.mirror import errors
from mirrorfeed.mirror.fabric.client import ENDPOINT, FabricClient, FabricItem, Page, Response, error_text, parse_time
from mirrorfeed.mirror.fabric.status_and_settings import (
    FIELDS,
    OPEN_MIRROR,
    CreatedDatabase,
    DatabaseStatus,
    Setting,
    TableState,
    TableSync,
    change_settings,
    find_differences,
    new_definition,
    setting_text,
    target_settings,
)
from mirrorfeed.runtime.login import token_credential

_REFRESH_MINUTES = 5
"""Timeout in minutes of a refresh of the SQL endpoint. Fabric's default of 15 minutes is too long for a command."""
_MIRRORING = "mirroring.json"
_PLATFORM = ".platform"
"""File with name and type of a mirrored database. mirrorfeed does not send it, because this API cannot change it."""


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


class _Endpoint(Response):
    id: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]+$")] | None = Field(
        None, validation_alias=AliasPath("properties", "sqlEndpointProperties", "id")
    )


class _Sync(Response):
    tableName: str = ""
    status: str = ""
    lastSuccessfulSyncDateTime: str | None = None
    error: Any = None


class _Part(Response):
    model_config = ConfigDict(extra="allow")

    path: str
    payload: str


class _Parts(Response):
    parts: tuple[_Part, ...] = Field((), validation_alias=AliasPath("definition", "parts"))


class _Content(Response):
    """Model that validates the properties of `mirroring.json` that this module reads."""

    kind: str = Field(validation_alias=AliasPath("properties", "source", "type"))
    target: dict[str, Any] | None = Field(None, validation_alias=AliasPath("properties", "target"))
    settings: dict[str, Any] | None = Field(None, validation_alias=AliasPath("properties", "target", "typeProperties"))


@dataclass(frozen=True)
class MirroredDatabase:
    client: FabricClient

    @property
    def item(self) -> FabricItem:
        return self.client.item

    def status(self) -> str:
        """Return Fabric's status of mirroring, such as Running or Stopped, or `unknown` if Fabric reports none."""
        return self.client.read("read the status", f"{self.item.path}/getMirroringStatus", _Status).status

    def is_stopped(self) -> bool:
        return self.status() in ("Initialized", "Stopped")

    def tables(self) -> list[TableState]:
        path = f"{self.item.path}/getTablesMirroringStatus"
        return [
            TableState(
                f"{each.sourceSchemaName or DEFAULT_SCHEMA}.{each.sourceTableName}",
                each.status,
                each.metrics.processedRows if each.metrics else None,
                error_text(each.error),
                parse_time(each.metrics.lastSyncDateTime) if each.metrics else None,
            )
            for each in self.client.pages("read the status of the tables", path, Page[_Table])
        ]

    def start(self, seconds: float) -> DatabaseStatus:
        """Start mirroring unless it is running, and wait until it is running.

        Raises `mirroring_not_changed` if mirroring is not running after `seconds`.
        """
        return self._reach({"Running"}, "startMirroring", {"Initialized", "Stopped", "Paused"}, seconds)

    def resume(self, seconds: float) -> DatabaseStatus:
        """Start mirroring if it is paused, and wait until it is running.

        If mirroring is already starting or running, only waits. Raises `mirroring_not_paused` for any other status, and
        `mirroring_not_changed` if mirroring is not running after `seconds`.
        """
        if (status := self.status()) not in ("Paused", "Running", "Starting"):
            raise errors.mirroring_not_paused(item=str(self.item), status=status)
        return self._reach({"Running"}, "startMirroring", {"Paused"}, seconds)

    def stop(self, seconds: float) -> DatabaseStatus:
        return self._reach({"Stopped", "Initialized"}, "stopMirroring", {"Running", "Paused"}, seconds)

    def _reach(self, goals: Collection[str], verb: str, ready: Collection[str], seconds: float) -> DatabaseStatus:
        """Wait until the status is in `goals`, and return the status. Raises `mirroring_not_changed` after `seconds`.
        Sends the request `verb` (start or stop) only one time, at the first status that is in `ready`."""
        is_sent, reported = False, ""
        for _ in self.client.attempts(seconds):
            status = self.status()
            if status in ready and not is_sent:
                progress.info("The mirrored database is %s", status)
                action = verb.replace("Mirroring", " mirroring")
                self.client.call(action, f"{self.item.path}/{verb}")
                is_sent, reported, status = True, status, self.status()
            if status != reported:
                progress.info("The mirrored database is %s", status)
            reported = status
            if status in goals:
                return DatabaseStatus(status)
        raise errors.mirroring_not_changed(item=str(self.item), verb=verb, status=status, seconds=seconds)

    def wait_until_dropped(self, target: Target, on_wait: Callable[[str], None], seconds: float) -> None:
        """Wait until Fabric has dropped the table of `target`. Call `on_wait` with each new status of the table.

        Returns at once if mirroring is stopped, because Fabric then reloads every table at the next start. Raises
        `table_not_dropped` if Fabric still has the table after `seconds`.
        """
        reported = ""
        for _ in self.client.attempts(seconds):
            state = next((table for table in self.tables() if table.is_of(target)), None)
            if state is None or self.is_stopped():
                return
            if state.in_words != reported:
                on_wait(state.in_words)
            reported = state.in_words
        raise errors.table_not_dropped(table=str(target), item=str(self.item), state=reported, seconds=seconds)

    def refresh(self) -> list[TableSync]:
        """Refresh the SQL endpoint, and return the result for each table. A refresh uses Fabric capacity.

        Raises `no_sql_endpoint` if the database has no SQL endpoint.
        """
        endpoint = self.client.read("read the SQL endpoint", self.item.path, _Endpoint, "GET").id
        if not endpoint:
            raise errors.no_sql_endpoint(item=str(self.item))
        path = f"sqlEndpoints/{endpoint}/refreshMetadata"
        body = {"timeout": {"timeUnit": "Minutes", "value": _REFRESH_MINUTES}}
        page = self.client.read("refresh the SQL endpoint", path, Page[_Sync], body=body)
        return [
            TableSync(each.tableName, each.status, parse_time(each.lastSuccessfulSyncDateTime), error_text(each.error))
            for each in page.entries or ()
        ]

    def definition(self, name: str | None = None) -> tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...]]:
        """Return the definition of the database: the content of `mirroring.json`, and the other parts.

        Fabric calls the files of a definition parts. The other parts are as Fabric returned them, without `.platform`.
        Raises `database_definition_unreadable` if `mirroring.json` is missing or invalid. Raises `not_an_open_mirror`
        if the database is not an open mirrored database. This error shows `name` or, if it is None, the id of the
        database.
        """
        path = f"{self.item.path}/getDefinition"
        parts = {part.path: part for part in self.client.read("read the definition", path, _Parts).parts}
        try:
            content = parse_json(base64.b64decode(parts[_MIRRORING].payload, validate=True))
            kind = _Content.of(content).kind
        except (LookupError, ValueError) as error:
            raise errors.database_definition_unreadable(item=str(self.item)) from error
        if kind != OPEN_MIRROR:
            raise errors.not_an_open_mirror(name=name or str(self.item.database), item=str(self.item), kind=kind)
        others = tuple(part.model_dump() for path, part in parts.items() if path not in (_MIRRORING, _PLATFORM))
        return content, others

    def plan(self, options: FabricOptions) -> tuple[list[Setting], str]:
        """Return the settings whose values in Fabric and in `options` differ, and all values in Fabric as one line."""
        content, _ = self.definition()
        target = target_settings(content)
        values = ", ".join(f"{field}: {setting_text(target.get(name))}" for field, name in FIELDS.items())
        return find_differences(content, options, self.is_stopped()), values

    def apply(self, options: FabricOptions, confirm: Callable[..., None] | None = None) -> list[Setting]:
        """Change settings in Fabric to their values in `options`. Return all settings whose values were different.

        If mirroring is not stopped, `default_schema` keeps its value, and `Setting.changes` is False for this setting.
        Calls `confirm` before the change, with one text for each returned setting. `confirm` can raise an error to
        prevent the change. Raises `settings_not_applied` if Fabric still has old values after the change."""
        (content, others), stopped = self.definition(), self.is_stopped()
        settings = find_differences(content, options, stopped)
        if not any(each.changes for each in settings):
            return settings
        if confirm:
            confirm(*(each.in_words for each in settings))
        body = {"definition": {"parts": [_part(change_settings(content, settings)), *others]}}
        self.client.call("change the definition", f"{self.item.path}/updateDefinition", body)
        content, _ = self.definition()
        remaining = find_differences(content, options, stopped)
        if left := tuple(each.in_words for each in remaining if each.changes):
            raise errors.settings_not_applied(item=str(self.item), left=left)
        return settings


def _part(content: Mapping[str, Any]) -> dict[str, str]:
    payload = base64.b64encode(json.dumps(content).encode()).decode()
    return {"path": _MIRRORING, "payload": payload, "payloadType": "InlineBase64"}


def create(client: FabricClient, name: str, options: FabricOptions, seconds: float = 120.0) -> CreatedDatabase:
    """Create an open mirrored database in the workspace of `client` unless it exists, and return it.

    Names are case-insensitive. `options` are the settings of a new database. Raises `not_an_open_mirror` if the
    database `name` exists but is not an open mirrored database, `DatabaseNameTakenError` if another item has this name,
    and `database_not_listed` if Fabric does not list the new database after `seconds`.
    """
    client = replace(client, item=FabricItem(client.item.workspace))
    if database := _find(client, name):
        database.definition(name)  # raises `not_an_open_mirror`
        return CreatedDatabase(name, False, f"{ONELAKE}{database.item.workspace}/{database.item.database}")
    name_error: errors.DatabaseNameTakenError | None = None
    try:
        body = {"displayName": name, "definition": {"parts": [_part(new_definition(options))]}}
        client.call(f"create {name!r}", client.item.path, body)
    except (
        errors.DatabaseNameTakenError
    ) as error:  # the request may be a retry after a request that created the database
        name_error = error
    for _ in client.attempts(seconds):
        if database := _find(client, name):
            return CreatedDatabase(name, True, f"{ONELAKE}{database.item.workspace}/{database.item.database}")
    raise name_error or errors.database_not_listed(name=name, item=str(client.item))


def _find(client: FabricClient, name: str) -> MirroredDatabase | None:
    for entry in client.pages("list the mirrored databases", client.item.path, Page[_Item], "GET"):
        if fold(entry.displayName) == fold(name):
            return MirroredDatabase(replace(client, item=FabricItem(client.item.workspace, entry.id)))
    return None


def client_of(config: Config) -> FabricClient:
    """Return a client for the workspace and the mirrored database that the configured `landing_zone` names.

    The client has no database if `landing_zone` names only a workspace. Raises `landing_zone_not_in_fabric` if
    `landing_zone` is not in OneLake.
    """
    if config.onelake is None:
        raise errors.landing_zone_not_in_fabric(landing_zone=config.landing_zone)
    credential = token_credential(config.credential, config.ca_bundle)
    return FabricClient(FabricItem(*config.onelake), credential, config.api_endpoint or ENDPOINT, config.ca_bundle)


def database_of(config: Config) -> MirroredDatabase:
    """Return the configured mirrored database. Raises `landing_zone_not_in_fabric` if `landing_zone` is not in a
    mirrored database.
    """
    if config.onelake is None or config.onelake[1] is None:
        raise errors.landing_zone_not_in_fabric(landing_zone=config.landing_zone)
    return MirroredDatabase(client_of(config))
