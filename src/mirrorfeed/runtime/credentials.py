"""Azure credentials as configuration values, and the server addresses that may receive their tokens.

A credential contains the location of a secret, never the secret. The module `login` logs in with a credential. Messages
do not repeat invalid values, because a value may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.request import getproxies

from pydantic import ConfigDict, PlainValidator, ValidationInfo, WithJsonSchema

from mirrorfeed.display.redact import remember
from mirrorfeed.runtime.errors import InvalidProxyError

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_HOST_AND_PORT = r"(\[[0-9a-f:.]+\]|[^\[\]/?#@:\s]+)(?::([0-9]{1,5}))?/?"
_HTTPS = re.compile(f"https://{_HOST_AND_PORT}", re.IGNORECASE)
_PROXY = re.compile(rf"(?:(?:https?|socks[45]?|socks4a|socks5h)://)?(?:[^/?#@\s]*@)?{_HOST_AND_PORT}", re.IGNORECASE)
MICROSOFT_HOSTS = (
    *(
        f"{host}.fabric.microsoft.{cloud}"
        for cloud in ("com", "us", "cn")
        for host in ("api", "*.w.api", "*.onelake", "*.dfs", "*.blob", "*.kusto")
    ),
    "login.microsoftonline.com",
    "login.microsoft.com",
    "login.windows.net",
    "login.microsoftonline.us",
    "login.partner.microsoftonline.cn",
    "login.chinacloudapi.cn",
)
"""Hosts of OneLake, Fabric's REST API and Entra ID in the public cloud, the US government cloud and China.

`*.fabric.microsoft.com` would be too general, because some hosts with this ending run code of customers.
"""


@dataclass(frozen=True, slots=True)
class Default:
    """Credential chain of azure-identity: environment, workload and managed identity, developer tools."""

    def __str__(self) -> str:
        return "the default Azure credential chain"


@dataclass(frozen=True, slots=True)
class Secret:
    """Location of a secret: an environment variable, a secret scope with a key, or both.

    The scope is read only if the variable is not set. If the configuration has a key without a scope, the scope comes
    from the setting `secret_scope` of the command or deployment."""

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
"""Fields of `Secret`, with regular expressions of their valid values."""


def _parse_secret(value: object, info: ValidationInfo) -> Secret:
    """Convert a configuration value to a `Secret`. Raises `ValueError` if the value is not valid.

    If the value has a key but no scope, the `Secret` gets the scope `secret_scope` of the validation context, if set.
    """
    if isinstance(value, Secret):
        return value
    location = dict(value) if isinstance(value, dict) else {}
    default_scope = (info.context or {}).get("secret_scope")
    if default_scope is not None and "key" in location:
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
        return parse_address(str(value))[0]
    except ValueError:
        raise ValueError("is not an https address, such as https://login.microsoftonline.us") from None


_SECRET_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string", "pattern": f"^{form.pattern}$"} for name, form in SECRET_FIELDS.items()},
    "additionalProperties": False,
    "minProperties": 1,
    "dependencies": {"scope": ["key"]},
}
SecretLocation = Annotated[Secret, PlainValidator(_parse_secret), WithJsonSchema(_SECRET_SCHEMA)]
_Id = Annotated[str, PlainValidator(_parse_id, json_schema_input_type=str)]


@dataclass(frozen=True, slots=True)
class ServicePrincipal:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    tenant_id: _Id
    client_id: _Id
    secret: SecretLocation
    authority: Annotated[str | None, PlainValidator(_parse_authority, json_schema_input_type=str)] = None
    """HTTPS address of the login service of a separate cloud. None means the default of azure-identity."""

    def __str__(self) -> str:
        return f"the service principal {self.client_id} of tenant {self.tenant_id}"


@dataclass(frozen=True, slots=True)
class ServiceCredential:
    """Service credential of Unity Catalog, which only a Databricks runtime can use."""

    name: str

    def __str__(self) -> str:
        return f"the service credential {self.name}"


Credential = Default | ServicePrincipal | ServiceCredential


def parse_address(text: str) -> tuple[str, str]:
    """Return an address `https://host[:port]` and its host, both in lower case. Raises `ValueError` for other text."""
    match = _match_address(_HTTPS, text)
    if match is None:
        raise ValueError("is not an https address without a path")
    host = match[1].lower()
    return f"https://{host}:{int(match[2])}" if match[2] else f"https://{host}", host


def is_trusted(host: str, trusted_hosts: Collection[str]) -> bool:
    """Return whether a host may receive tokens: it is one of Microsoft's hosts, or matches one of `trusted_hosts`.

    A pattern such as `*.example.com` matches all subdomains. `localhost` and other names of this machine are trusted
    only if they match one of `trusted_hosts`, because any user of the machine can start a server there.
    """
    patterns = [pattern.lower() for pattern in (*MICROSOFT_HOSTS, *trusted_hosts)]
    return host in patterns or any(host.endswith(pattern[1:]) for pattern in patterns if pattern.startswith("*."))


def is_host(text: str) -> bool:
    """Return whether `text` is a host name or an IP address."""
    if ":" in text or text.startswith("["):
        with suppress(ValueError):
            ipaddress.IPv6Address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
            return True
        return False
    labels = text.lower().removesuffix(".").split(".")
    return len(text) <= 253 and all(map(_LABEL.fullmatch, labels))


def is_host_pattern(text: str) -> bool:
    """Return whether `text` is a host, or a pattern such as `*.example.com` with at least two parts after `*.`."""
    suffix = text.removeprefix("*.")
    return is_host(suffix) and (suffix == text or "." in suffix.strip("."))


def check_proxy() -> None:
    """Raise `InvalidProxyError` if the environment sets an HTTPS proxy that is not a valid address."""
    proxies = getproxies()
    for name in ("https", "all"):
        if (proxy := proxies.get(name)) and _match_address(_PROXY, proxy) is None:
            raise InvalidProxyError(variable=f"{name.upper()}_PROXY")


def _match_address(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the match of `pattern` (group 1: host, group 2: port) with an address. None if the address is invalid."""
    match = pattern.fullmatch(text)
    is_valid = match is not None and is_host(match[1]) and (match[2] is None or 0 < int(match[2]) < 65_536)
    return match if is_valid else None


def default_workspace() -> WorkspaceClient:
    """Return a new client of the configured Databricks workspace. Raises `ValueError` if none is configured."""
    from databricks.sdk import WorkspaceClient  # imported late: takes seconds, and few runs need it

    client = WorkspaceClient()
    remember(client.config.token or "")
    return client
