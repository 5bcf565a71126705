"""Checks the privileges in Unity Catalog that a configuration needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded

from mirrorfeed.config import Config
from mirrorfeed.display.redact import redact
from mirrorfeed.landing.names import join_name
from mirrorfeed.monitor.rules import Finding
from mirrorfeed.monitor.setup_check import failed, failed_with, passed
from mirrorfeed.runtime.credentials import ServiceCredential
from mirrorfeed.source.catalog import in_unity_catalog

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_VOLUMES = "/Volumes/"
_EVERYBODY = "account users"


@dataclass(frozen=True, slots=True)
class Right:
    kind: str
    """As Unity Catalog calls the kind of the thing: CATALOG, SCHEMA, TABLE, VOLUME, CREDENTIAL."""
    parts: tuple[str, ...]
    privilege: str

    @property
    def thing(self) -> str:
        return f"{self.kind.lower()} {join_name(self.parts)}"


def needed(config: Config) -> tuple[Right, ...]:
    """Each once, catalogs before what is in them."""
    found: list[Right] = []
    for table in config.tables:
        if in_unity_catalog(table.source):
            found += _inside(table.source.parts[:2])
            found.append(Right("TABLE", table.source.parts, "SELECT"))
    if config.ledger and in_unity_catalog(config.ledger):
        schema = config.ledger.parts[:2]
        found += _inside(schema)
        found += [Right("SCHEMA", schema, privilege) for privilege in ("CREATE_TABLE", "SELECT", "MODIFY")]
    for place in (config.landing_zone, config.handover or ""):
        if not place.startswith(_VOLUMES):
            continue
        volume = tuple(place.removeprefix(_VOLUMES).split("/")[:3])
        found += _inside(volume[:2])
        found += [Right("VOLUME", volume, privilege) for privilege in ("READ_VOLUME", "WRITE_VOLUME")]
    if isinstance(config.credential, ServiceCredential):
        found.append(Right("CREDENTIAL", (config.credential.name,), "ACCESS"))
    return tuple(dict.fromkeys(found))


def _inside(schema: tuple[str, ...]) -> list[Right]:
    return [Right("CATALOG", schema[:1], "USE_CATALOG"), Right("SCHEMA", schema, "USE_SCHEMA")]


def check_rights(workspace: WorkspaceClient, rights: Sequence[Right]) -> Iterator[Finding]:
    """Compares with the effective grants. Groups within groups are unknown to the caller."""
    try:
        me = workspace.current_user.me()
    except Exception as error:
        yield failed_with("workspace", error)
        return
    names = {me.user_name, *(group.display for group in me.groups or ()), _EVERYBODY}
    yield passed("workspace", f"logged in as {me.user_name}")
    for (kind, parts), wanted in groupby(rights, lambda right: (right.kind, right.parts)):
        yield from _on_one(workspace, kind, parts, list(wanted), names, str(me.user_name))


def _on_one(
    workspace: WorkspaceClient,
    kind: str,
    parts: tuple[str, ...],
    wanted: Sequence[Right],
    names: set[str | None],
    me: str,
) -> Iterator[Finding]:
    from databricks.sdk.errors.base import DatabricksError

    # The client puts names into an address as they stand.
    full_name = ".".join(percent_encoded(part, safe="") for part in parts)
    try:
        held = _held(_assignments(workspace, kind, full_name), names)
        owner = None if kind == "CREDENTIAL" else _owner(workspace, kind, full_name)
    except (DatabricksError, OSError) as error:  # without an answer the client raises what is below it
        reason = f"cannot be read: {redact(str(error).splitlines()[0]) if str(error) else type(error).__name__}"
        yield from (failed(f"{right.privilege} on {right.thing}", reason) for right in wanted)
        return
    for right in wanted:
        what = f"{right.privilege} on {right.thing}"
        if owner in names:
            yield passed(what, f"{owner} is the owner")
        elif right.privilege in held or "ALL_PRIVILEGES" in held:
            yield passed(what)
        else:
            grant = f"GRANT {right.privilege.replace('_', ' ')} ON {kind} {_quoted(parts)} TO `{me}`"
            yield failed(what, "not granted, unless to a group within a group", grant)


def _assignments(workspace: WorkspaceClient, kind: str, full_name: str) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = workspace.grants.get_effective(kind, full_name, max_results=0, page_token=token)
        yield from page.privilege_assignments or ()
        token = page.next_page_token
        if not token:
            return


def _held(assignments: Iterable[Any], names: set[str | None]) -> set[str]:
    return {
        given.privilege.value
        for assignment in assignments
        if assignment.principal in names
        for given in assignment.privileges or ()
        if given.privilege
    }


def _owner(workspace: WorkspaceClient, kind: str, full_name: str) -> str | None:
    match kind:
        case "CATALOG":
            return workspace.catalogs.get(full_name).owner
        case "SCHEMA":
            return workspace.schemas.get(full_name).owner
        case "VOLUME":
            return workspace.volumes.read(full_name).owner
        case _:
            return workspace.tables.get(full_name).owner


def _quoted(parts: Iterable[str]) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
