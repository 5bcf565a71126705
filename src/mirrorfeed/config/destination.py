"""The field `credential` of the user's file: which one it names. Secrets are never in it, only where they are."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mirrorfeed.landing.names import BadTarget, Target
from mirrorfeed.runtime.addresses import HttpsAddress
from mirrorfeed.runtime.credentials import Credential, Default, Secret, ServiceCredential, ServicePrincipal

PRINCIPAL = ("tenant_id", "client_id", "secret", "authority")
PLACES = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    # As Databricks lets them be named, and the slash that scopes of older workspaces have.
    "scope": re.compile(r"[\w.@/-]{1,128}"),
    "key": re.compile(r"[\w.@/-]{1,128}"),
}
"""What says where a secret is, and how that is named. Most secrets are no such names."""


def credential_in(value: object) -> Credential:
    """No value is repeated in a mistake: a secret may have been written where it does not belong."""
    match value:
        case Default() | ServicePrincipal() | ServiceCredential():
            return value
        case "default":
            return Default()
        case {"service_credential": str(name), **others} if not others and name.strip():
            return ServiceCredential(name)
        case {"service_principal": dict(facts), **others} if not others:
            return _service_principal(facts)
    raise ValueError(
        "must be default, {service_principal: {tenant_id, client_id, secret}} or {service_credential: name}"
    )


def _service_principal(facts: dict[str, Any]) -> ServicePrincipal:
    faults = [f"service_principal: {name} is missing" for name in PRINCIPAL[:3] if name not in facts]
    if any(name not in PRINCIPAL for name in facts):
        faults.append(f"service_principal: unknown field; allowed are {', '.join(PRINCIPAL)}")
    for name in ("tenant_id", "client_id"):
        if name in facts and not re.fullmatch(r"[0-9A-Za-z.-]+", str(facts[name])):
            faults.append(f"service_principal: {name} is not an id")
    authority = facts.get("authority")
    if authority is not None:
        try:
            authority = str(HttpsAddress.parse(str(authority)))
        except ValueError:
            faults.append(
                "service_principal: authority is not an https address, as in https://login.microsoftonline.us"
            )
    secret = secret_place(facts["secret"]) if "secret" in facts else None
    if "secret" in facts and secret is None:
        faults.append(
            "service_principal: secret must be the location of the secret, {scope: …, key: …} or {env: …} or both;"
            " never put the secret itself in this file"
        )
    if faults or secret is None:
        raise ValueError("; ".join(faults))
    return ServicePrincipal(str(facts["tenant_id"]), str(facts["client_id"]), secret, authority)


def secret_place(value: object) -> Secret | None:
    """Where a secret is, as the file says it; None for anything else."""
    if not isinstance(value, dict) or set(value) not in ({"env"}, {"scope", "key"}, {"env", "scope", "key"}):
        return None
    if not all(isinstance(each, str) and PLACES[name].fullmatch(each) for name, each in value.items()):
        return None
    return Secret(**value)


DEFAULT_SCHEMA = "dbo"
"""Where the service puts tables without a schema, unless the database says otherwise."""


def _schema(value: str) -> str:
    try:
        Target(value, "t")
    except BadTarget as error:
        raise ValueError(f"{value!r} cannot be a schema: the target {error.text!r} it {error.reason}") from None
    return value


class FabricOptions(BaseModel):
    """What is left out is left as it is."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    retention_days: Annotated[int, Field(ge=1, le=30)] | None = None
    """For so long the mirror keeps what was deleted and replaced in it."""
    change_data_feed: bool | None = None
    """Of the mirrored tables."""
    default_schema: Annotated[str, Field(min_length=1), AfterValidator(_schema)] | None = None
