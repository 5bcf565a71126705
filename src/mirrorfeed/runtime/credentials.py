"""Azure credentials as configuration values. They contain the location of a secret, never the secret.

`login` uses these values to log in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorfeed.display.redact import remember

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


@dataclass(frozen=True, slots=True)
class Default:
    """Credential chain of azure-identity: environment, workload and managed identity, developer tools."""

    def __str__(self) -> str:
        return "the default Azure credential chain"


@dataclass(frozen=True, slots=True)
class Secret:
    """Location of a secret. An environment variable has precedence over a secret scope.

    A deployment sets the scope of a secret that has only a key.
    """

    env: str | None = None
    scope: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        path = "/".join(filter(None, (self.scope, self.key)))
        scope = f"the secret {path} of the Databricks workspace" if path else None
        # Variable names must be upper case. Anything else may be the secret itself, written instead of its name.
        name = self.env if self.env and self.env.isupper() else "that `env` names"
        variable = f"the environment variable {name}" if self.env else None
        return " or ".join(filter(None, (variable, scope)))


@dataclass(frozen=True, slots=True)
class ServicePrincipal:
    tenant_id: str
    client_id: str
    secret: Secret
    authority: str | None = None
    """HTTPS address of the login service of a separate cloud. None means the default of azure-identity."""

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
    """Return the client of the configured workspace. Raises `ValueError` if no workspace is configured."""
    from databricks.sdk import WorkspaceClient  # imported late: takes seconds, and few runs need it

    client = WorkspaceClient()
    remember(client.config.token or "")
    return client
