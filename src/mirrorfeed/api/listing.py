"""Which tables a configuration stands for, why each is in or out, and which changes it can take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mirrorfeed.api.results import Listed, Result
from mirrorfeed.config.expansion import Expansion
from mirrorfeed.config.expansion import Listed as Decided
from mirrorfeed.display.progress import progress
from mirrorfeed.errors import named
from mirrorfeed.landing.limits import about_tables
from mirrorfeed.publish.plan import plan_of
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.parallel import each_of
from mirrorfeed.source.catalog import Workspace, is_in_unity_catalog

_NOT_ASKED = "its keys are those of Unity Catalog, and no workspace is configured here"


def listed(expansion: Expansion, workspace: Callable[[], Workspace] = default_workspace) -> Result[Listed]:
    """Keys that are left out are asked of Unity Catalog, a call a table."""
    asks = any(row.table and is_in_unity_catalog(row.source) for row in expansion.listed)
    client = _client(workspace) if asks else None
    progress.info("Reading keys")
    rows = tuple(each_of(partial(_row, client), expansion.listed))
    near = about_tables(len(expansion.config.tables))
    return Result(rows, (near,) if near else ())


def _client(workspace: Callable[[], Workspace]) -> Workspace | None:
    try:
        return workspace()
    except ValueError:  # none is configured
        return None


def _row(client: Workspace | None, decided: Decided) -> Listed:
    table, source = decided.table, str(decided.source)
    if table is None:
        return Listed(None, source, False, why=decided.why)
    part = table.selection.in_short if table.selection else None
    row = Listed(str(table.target), source, True, why=decided.why, part=part)
    if client is None and is_in_unity_catalog(table.source):
        if table.keys is None:
            return replace(row, why=f"{decided.why}; {_NOT_ASKED}")
        return replace(row, keys=table.keys, takes=_takes(table.keys))

    def ask() -> Workspace:
        assert client  # of a table in Unity Catalog alone
        return client

    try:
        keys = plan_of(table, ask).keys
    except Exception as error:
        return replace(row, error=named(f"Asking for the keys of {source}", error))
    return replace(row, keys=keys, takes=_takes(keys))


def _takes(keys: Sequence[str]) -> str:
    return "inserts, updates, deletes" if keys else "inserts only: it has no key"
