"""`_partnerEvents.json`: who writes into the mirrored database, from which source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mirrorfeed.landing.partner import PARTNER_EVENTS
from mirrorfeed.lint.findings import Finding, error, warning
from mirrorfeed.lint.metadata_file import kind, load

UNREADABLE = error(
    "MF107", "The file that says who publishes is not JSON.", "Write it again as one JSON object, or remove it."
)
SHAPE = warning(
    "MF108",
    "The file that says who publishes lacks something, or has it in another form.",
    'Give `{"partnerName": "…", "sourceInfo": {"sourceType": "…", "sourceVersion": "…",'
    ' "additionalInformation": {…}}}`.',
)


def judge_partner_events(data: bytes | None) -> list[Finding]:
    if data is None:
        return []
    try:
        spelled = load(data)
    except ValueError as fault:
        return [UNREADABLE.broken(PARTNER_EVENTS, f"It cannot be read: {fault}.")]
    return [SHAPE.broken(PARTNER_EVENTS, what) for what in _faults(spelled)]


def _faults(spelled: dict[str, Any]) -> Iterator[str]:
    yield from _text(spelled, "partnerName", "")
    source = spelled.get("sourceInfo")
    if not isinstance(source, dict):
        yield "sourceInfo is missing." if source is None else f"sourceInfo is {kind(source)}, not an object."
        return
    yield from _text(source, "sourceType", "sourceInfo.")
    yield from _text(source, "sourceVersion", "sourceInfo.")
    more = source.get("additionalInformation", {})
    if not isinstance(more, dict):
        yield f"sourceInfo.additionalInformation is {kind(more)}, not an object."


def _text(spelled: dict[str, Any], name: str, where: str) -> Iterator[str]:
    value = spelled.get(name)
    if value is None:
        near = [other for other in spelled if other.lower() == name.lower() and other != name]
        yield f"{where}{name} is spelled {near[0]!r}." if near else f"{where}{name} is missing."
    elif not isinstance(value, str) or not value.strip():
        yield f"{where}{name} is {kind(value)}, not a text with something in it."
