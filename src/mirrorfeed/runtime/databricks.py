"""The Databricks workspace of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorfeed.display.redact import remember

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


def default_workspace() -> WorkspaceClient:
    """ValueError where none is configured."""
    from databricks.sdk import WorkspaceClient  # takes seconds to import, and few runs need it

    client = WorkspaceClient()
    remember(client.config.token or "")
    return client
