"""Azure credentials as values of the configuration: where a secret is, never the secret. `login` uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorfeed.display.redact import remember

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


@dataclass(frozen=True, slots=True)
class Default:
    """azure-identity's chain: environment, workload and managed identity, developer tools."""

    def __str__(self) -> str:
        return "the default Azure credential chain"


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is. An environment variable has precedence over a secret scope."""

    env: str | None = None
    scope: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        scope = f"the secret {self.scope}/{self.key} of the Databricks workspace" if self.scope else None
        # Names of variables are in capitals. Anything else may be the secret itself, written instead of its name.
        name = self.env if self.env and self.env.isupper() else "that `env` names"
        variable = f"the environment variable {name}" if self.env else None
        return " or ".join(filter(None, (variable, scope)))


@dataclass(frozen=True, slots=True)
class ServicePrincipal:
    tenant_id: str
    client_id: str
    secret: Secret
    authority: str | None = None
    """The https address of the login service of a separate cloud. None for the default of azure-identity."""

    def __str__(self) -> str:
        return f"the service principal {self.client_id} of tenant {self.tenant_id}"


@dataclass(frozen=True, slots=True)
class ServiceCredential:
    """A service credential of Unity Catalog."""

    name: str

    def __str__(self) -> str:
        return f"the service credential {self.name}"


Credential = Default | ServicePrincipal | ServiceCredential


def default_workspace() -> WorkspaceClient:
    """The workspace of the environment. Raises `ValueError` if none is configured."""
    from databricks.sdk import WorkspaceClient  # takes seconds to import, and few runs need it

    client = WorkspaceClient()
    remember(client.config.token or "")
    return client
