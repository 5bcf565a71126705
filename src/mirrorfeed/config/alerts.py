"""The field `alerts`: maximum lags and channels. It contains locations of secrets, never secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, ValidationInfo, model_validator

from mirrorfeed.config import values
from mirrorfeed.config.destination import SECRET_EXPECTED, parse_secret
from mirrorfeed.runtime.addresses import is_host
from mirrorfeed.runtime.credentials import Secret
from mirrorfeed.source.identifier import URI, hide_query

_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")
OUTPUT, MAIL = OWN_NAMES = "output", "mail"
"""Names of the channels that are not webhooks."""


def _secret(value: object) -> Secret:
    """Messages do not repeat the value, because it may be the secret itself."""
    if isinstance(value, Secret):
        return value
    if found := parse_secret(value):
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


def _folder(value: str, info: ValidationInfo) -> str:
    values.not_empty(value, ": name a folder, or omit the field")
    if URI.match(value) or value.startswith("~"):
        raise ValueError(
            f"{hide_query(value)!r} is not a folder that this process can write to: name a volume (/Volumes/…)"
        )
    return values.folder(value, info)


Minutes = Annotated[float | None, PlainValidator(values.minutes)]
Hidden = Annotated[Secret, PlainValidator(_secret)]
Address = Annotated[str, PlainValidator(_address)]


class MaxLagMinutes(BaseModel):
    """Longest wait for each step, in minutes. None is no limit."""

    model_config = values.FORM

    published: Minutes = 120.0
    consumed: Minutes = 30.0
    mirrored: Minutes = 30.0
    queryable: Minutes = 60.0


class Webhook(BaseModel):
    model_config = values.FORM

    name: Annotated[str, AfterValidator(_name)]
    kind: Literal["teams", "slack"]
    url: Hidden


class Mail(BaseModel):
    model_config = values.FORM

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


class Alerts(BaseModel):
    model_config = values.FORM

    max_lag_minutes: MaxLagMinutes = MaxLagMinutes()
    webhooks: tuple[Webhook, ...] = ()
    mail: Mail | None = None
    state_path: Annotated[str, AfterValidator(_folder)] | None = None
    """Folder of the alert state. None is the landing zone."""
    sql_endpoint: Literal["leave", "refresh"] = "leave"
    """Whether each check refreshes the SQL endpoint. Without a refresh its lag is unknown."""

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, data: Any) -> Any:
        """Convert the list of the file to a tuple."""
        if isinstance(data, dict) and isinstance(data.get("webhooks"), list):
            return {**data, "webhooks": tuple(data["webhooks"])}
        return data

    @model_validator(mode="after")
    def _distinct(self) -> Alerts:
        names = [webhook.name for webhook in self.webhooks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"webhooks: {', '.join(twice)} is the name of several webhooks: use distinct names")
        return self
