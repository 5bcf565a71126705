"""The parts of the user's file where a secret may have been written in the place of its name: they are not repeated."""

from __future__ import annotations

from mirrorfeed.config.alerts import Alerts, Behind, Mail, Webhook
from mirrorfeed.config.credential import PLACES, PRINCIPAL

_OF_CREDENTIAL = {"service_principal", "service_credential", *PRINCIPAL, *PLACES}
_OF_ALERTS = {*PLACES, *(name for model in (Alerts, Behind, Mail, Webhook) for name in model.model_fields)}
_KNOWN = {"credential": _OF_CREDENTIAL, "alerts": _OF_ALERTS}


def may_be_secret(place: tuple[str | int, ...]) -> bool:
    """Whether the value there may be one."""
    return bool(place) and place[0] in _KNOWN


def shown(place: tuple[str | int, ...]) -> str:
    """The name of the field there."""
    name = next((part for part in reversed(place) if isinstance(part, str)), "")
    return name if len(place) < 2 or not may_be_secret(place) or name in _KNOWN[str(place[0])] else "(not shown)"
