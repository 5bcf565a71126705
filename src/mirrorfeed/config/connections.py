"""Models of the fields `credential`, `fabric` and `alerts`. They contain the locations of secrets, never secrets."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator, Strict, ValidationInfo, model_validator

from mirrorfeed.config import validators
from mirrorfeed.landing.errors import TargetNameError
from mirrorfeed.landing.names import Target
from mirrorfeed.runtime.credentials import (
    Credential,
    Default,
    SecretLocation,
    ServiceCredential,
    ServicePrincipal,
    is_host,
)


class _WithPrincipal(validators.ConfigModel):
    service_principal: ServicePrincipal


class _WithServiceCredential(validators.ConfigModel):
    service_credential: Annotated[str, Field(pattern=r"\S")]


def parse_credential(value: object, info: ValidationInfo) -> Credential:
    """Return the credential in the field `credential`. Errors do not repeat the value, because it may be a secret."""
    match value:
        case Default() | ServicePrincipal() | ServiceCredential():
            return value
        case "default":
            return Default()
        case {"service_credential": str(name), **others} if not others and name.strip():
            return ServiceCredential(name)
        case {"service_principal": _, **others} if not others:
            return _WithPrincipal.model_validate(value, context=info.context).service_principal
    raise ValueError(
        "must be default, {service_principal: {tenant_id, client_id, secret}} or {service_credential: name}"
    )


_CredentialInput = Literal["default"] | _WithServiceCredential | _WithPrincipal
CredentialField = Annotated[Credential, PlainValidator(parse_credential, json_schema_input_type=_CredentialInput)]
DEFAULT_SCHEMA = "dbo"
"""Schema in Fabric of targets without a schema, unless the mirrored database has another default schema."""


def _check_schema(value: str) -> str:
    try:
        Target(value, "t")
    except TargetNameError as error:
        raise ValueError(f"{value!r} cannot be a schema: the target {error.text!r} it {error.reason}") from None
    return value


class FabricOptions(validators.ConfigModel):
    """Settings of the mirrored database. A setting that is None is not changed."""

    retention_days: Annotated[int, Field(ge=1, le=30)] | None = None
    """Days for which Fabric stores replaced and deleted data."""
    change_data_feed: bool | None = None
    """True turns on the change data feed of the mirrored tables. False turns it off."""
    default_schema: Annotated[str, Field(min_length=1), AfterValidator(_check_schema)] | None = None


_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")
OUTPUT, MAIL = OWN_NAMES = "output", "mail"
"""Names of the alert channels that are not webhooks: the output of the command, and e-mail."""


def _check_mail_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError(f"{validators.shorten(value)} is not a mail address, such as someone@example.com")
    return value


def _check_server(value: str) -> str:
    if not is_host(value):
        raise ValueError(f"{validators.shorten(value)} is not a host, such as smtp.example.com")
    return value


def _check_channel_name(value: str) -> str:
    if validators.check_not_empty(value) in OWN_NAMES:
        raise ValueError(f"{value!r} is the name of another channel")
    return value


MailAddress = Annotated[str, AfterValidator(_check_mail_address)]


class MaxLagMinutes(validators.ConfigModel):
    """Maximum minutes that changes may wait for each step before an alert is sent. None means no limit."""

    published: validators.Minutes = 120.0
    consumed: validators.Minutes = 30.0
    mirrored: validators.Minutes = 30.0
    queryable: validators.Minutes = 60.0


class Webhook(validators.ConfigModel):
    name: Annotated[str, AfterValidator(_check_channel_name)]
    kind: Literal["teams", "slack"]
    url: SecretLocation


class Mail(validators.ConfigModel):
    server: Annotated[str, AfterValidator(_check_server)]
    port: Annotated[int, Field(ge=1, le=65_535)] = 587
    tls: Literal["starttls", "implicit"] = "starttls"
    sender: MailAddress
    to: Annotated[list[MailAddress], Field(min_length=1)]
    user: str | None = None
    password: SecretLocation | None = None

    @model_validator(mode="after")
    def _check_user_and_password(self) -> Mail:
        if (self.user is None) != (self.password is None):
            raise ValueError("set both user and password, or neither")
        return self


class Alerts(validators.ConfigModel):
    max_lag_minutes: MaxLagMinutes = MaxLagMinutes()
    max_verification_age_hours: Annotated[float, Field(gt=0, le=8_760)] | None = None
    """Hours after which `check-alerts` reports a table without a verification that found no difference. None: never."""
    remind_after_hours: Annotated[int, Field(ge=1, le=168)] = 24
    """Hours after which the alert for a problem that still exists is sent again."""
    webhooks: Annotated[tuple[Webhook, ...], Strict(False)] = ()
    mail: Mail | None = None
    state_path: validators.StatePath | None = None
    """Folder of the file that records which alerts were sent. None means the landing zone."""
    sql_endpoint: Literal["leave", "refresh"] = "leave"
    """With `refresh`, each check refreshes the SQL endpoint. With `leave`, the lag of the SQL endpoint is unknown."""

    @model_validator(mode="after")
    def _check_names(self) -> Alerts:
        names = [webhook.name for webhook in self.webhooks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"webhooks: {', '.join(repeated)} is the name of several webhooks: use distinct names")
        return self
