"""Azure credentials as configuration values. They contain the location of a secret, never the secret.

Messages about invalid values do not repeat them, because a value may be a secret. `login` uses credentials to log in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import ConfigDict, PlainValidator, ValidationInfo

from mirrorfeed.display.redact import remember
from mirrorfeed.runtime.addresses import HttpsAddress

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


SECRET_FIELDS = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    # Names that Databricks allows, plus the slash in scopes of older workspaces.
    "scope": re.compile(r"[\w.@/-]{1,128}"),
    "key": re.compile(r"[\w.@/-]{1,128}"),
}
"""Fields for the location of a secret, with their valid values."""


def _parse_secret(value: object, info: ValidationInfo) -> Secret:
    """Parse the location of a secret. A key without a scope gets `secret_scope` of the validation context, if any."""
    if isinstance(value, Secret):
        return value
    location = dict(value) if isinstance(value, dict) else {}
    if "key" in location and (default_scope := (info.context or {}).get("secret_scope")):
        location.setdefault("scope", default_scope)
    is_complete = bool(location) and ("scope" not in location or "key" in location)
    if not is_complete or not all(map(_is_secret_field, location, location.values())):
        expected = "the location of the secret, {scope: …, key: …} or {env: …} or both"
        raise ValueError(f"must be {expected}; never put the secret itself in this file")
    return Secret(**location)


def _is_secret_field(name: object, value: object) -> bool:
    return name in SECRET_FIELDS and isinstance(value, str) and SECRET_FIELDS[name].fullmatch(value) is not None


def _parse_id(value: object) -> str:
    if not re.fullmatch(r"[0-9A-Za-z.-]+", str(value)):
        raise ValueError("is not an id")
    return str(value)


def _parse_authority(value: object) -> str:
    try:
        return str(HttpsAddress.parse(str(value)))
    except ValueError:
        raise ValueError("is not an https address, such as https://login.microsoftonline.us") from None


SecretLocation = Annotated[Secret, PlainValidator(_parse_secret)]
_Id = Annotated[str, PlainValidator(_parse_id)]


@dataclass(frozen=True, slots=True)
class ServicePrincipal:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    tenant_id: _Id
    client_id: _Id
    secret: SecretLocation
    authority: Annotated[str | None, PlainValidator(_parse_authority)] = None
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
