"""The fields `credential`, `fabric` and `alerts`. They contain locations of secrets, never secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, Strict, ValidationInfo, model_validator

from mirrorfeed.config import values
from mirrorfeed.landing.errors import BadTarget
from mirrorfeed.landing.names import Target
from mirrorfeed.runtime.addresses import HttpsAddress, is_host
from mirrorfeed.runtime.credentials import Credential, Default, Secret, ServiceCredential, ServicePrincipal

PRINCIPAL = ("tenant_id", "client_id", "secret", "authority")
PLACES = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    # Names that Databricks allows, plus the slash in scopes of older workspaces.
    "scope": re.compile(r"[\w.@/-]{1,128}"),
    "key": re.compile(r"[\w.@/-]{1,128}"),
}
"""Fields for the location of a secret, with their valid values."""


SECRET_EXPECTED = (
    "must be the location of the secret, {scope: …, key: …} or {env: …} or both; never put the secret itself in this"
    " file"
)


def parse_credential(value: object, info: ValidationInfo) -> Credential:
    """Parse `credential`. Error messages do not repeat the value, because it may contain a secret."""
    match value:
        case Default() | ServicePrincipal() | ServiceCredential():
            return value
        case "default":
            return Default()
        case {"service_credential": str(name), **others} if not others and name.strip():
            return ServiceCredential(name)
        case {"service_principal": dict(facts), **others} if not others:
            return _service_principal(facts, info)
    raise ValueError(
        "must be default, {service_principal: {tenant_id, client_id, secret}} or {service_credential: name}"
    )


def _service_principal(facts: dict[str, Any], info: ValidationInfo) -> ServicePrincipal:
    faults = [f"{name} is missing" for name in PRINCIPAL[:3] if name not in facts]
    if any(name not in PRINCIPAL for name in facts):
        faults.append(f"unknown field; allowed are {', '.join(PRINCIPAL)}")
    for name in ("tenant_id", "client_id"):
        if name in facts and not re.fullmatch(r"[0-9A-Za-z.-]+", str(facts[name])):
            faults.append(f"{name} is not an id")
    authority = facts.get("authority")
    if authority is not None:
        try:
            authority = str(HttpsAddress.parse(str(authority)))
        except ValueError:
            faults.append("authority is not an https address, such as https://login.microsoftonline.us")
    secret = _parse_secret(facts["secret"], info) if "secret" in facts else None
    if "secret" in facts and secret is None:
        faults.append(f"secret {SECRET_EXPECTED}")
    if faults or secret is None:
        raise ValueError("; ".join(f"service_principal: {fault}" for fault in faults))
    return ServicePrincipal(str(facts["tenant_id"]), str(facts["client_id"]), secret, authority)


def _parse_secret(value: object, info: ValidationInfo) -> Secret | None:
    """Return the location of a secret, or None if the value is not one.

    A key without a scope gets the scope in the validation context, if there is one.
    """
    scope = (info.context or {}).get("secret_scope")
    if scope is not None and isinstance(value, dict) and "key" in value:
        value = {"scope": scope, **value}
    if not isinstance(value, dict) or not value or ("scope" in value and "key" not in value):
        return None
    if not all(
        name in PLACES and isinstance(each, str) and PLACES[name].fullmatch(each) for name, each in value.items()
    ):
        return None
    return Secret(**value)


DEFAULT_SCHEMA = "dbo"
"""Schema of tables without a schema, unless the database has another default."""


def _schema(value: str) -> str:
    try:
        Target(value, "t")
    except BadTarget as error:
        raise ValueError(f"{value!r} cannot be a schema: the target {error.text!r} it {error.reason}") from None
    return value


class FabricOptions(values.Form):
    """Omitted settings are not changed."""

    retention_days: Annotated[int, Field(ge=1, le=30)] | None = None
    """Days for which the mirror keeps replaced and deleted data."""
    change_data_feed: bool | None = None
    """Change data feed of the mirrored tables."""
    default_schema: Annotated[str, Field(min_length=1), AfterValidator(_schema)] | None = None


_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")
OUTPUT, MAIL = OWN_NAMES = "output", "mail"
"""Names of the channels that are not webhooks."""


def _secret(value: object, info: ValidationInfo) -> Secret:
    """Parse the location of a secret. Error messages do not repeat the value, because it may be the secret itself."""
    if isinstance(value, Secret):
        return value
    if found := _parse_secret(value, info):
        return found
    raise ValueError(SECRET_EXPECTED)


def _address(value: object) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise ValueError(f"{values.short(value)} is not a mail address, such as someone@example.com")
    return value


def _server(value: str) -> str:
    if not is_host(value):
        raise ValueError(f"{values.short(value)} is not a host, such as smtp.example.com")
    return value


def _name(value: str) -> str:
    if values.not_empty(value) in OWN_NAMES:
        raise ValueError(f"{value!r} is the name of another channel")
    return value


Hidden = Annotated[Secret, PlainValidator(_secret)]
Address = Annotated[str, PlainValidator(_address)]


class MaxLagMinutes(values.Form):
    """Longest wait for each step, in minutes. None is no limit."""

    published: values.Minutes = 120.0
    consumed: values.Minutes = 30.0
    mirrored: values.Minutes = 30.0
    queryable: values.Minutes = 60.0


class Webhook(values.Form):
    name: Annotated[str, AfterValidator(_name)]
    kind: Literal["teams", "slack"]
    url: Hidden


class Mail(values.Form):
    server: Annotated[str, AfterValidator(_server)]
    port: Annotated[int, Field(ge=1, le=65_535)] = 587
    tls: Literal["starttls", "implicit"] = "starttls"
    sender: Address
    to: Annotated[list[Address], Field(min_length=1)]
    user: str | None = None
    password: Hidden | None = None

    @model_validator(mode="after")
    def _both(self) -> Mail:
        if (self.user is None) != (self.password is None):
            raise ValueError("set both user and password, or neither")
        return self


class Alerts(values.Form):
    max_lag_minutes: MaxLagMinutes = MaxLagMinutes()
    remind_after_hours: Annotated[int, Field(ge=1, le=168)] = 24
    """Hours after which a problem that lasts is sent again. The maximum also limits how long a forged alert state can
    suppress an alert."""
    webhooks: Annotated[tuple[Webhook, ...], Strict(False)] = ()
    mail: Mail | None = None
    state_path: values.StatePath | None = None
    """Folder of the alert state. None is the landing zone."""
    sql_endpoint: Literal["leave", "refresh"] = "leave"
    """Whether each check refreshes the SQL endpoint. Without a refresh its lag is unknown."""

    @model_validator(mode="after")
    def _distinct(self) -> Alerts:
        names = [webhook.name for webhook in self.webhooks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"webhooks: {', '.join(repeated)} is the name of several webhooks: use distinct names")
        return self
