"""`_partnerEvents.json` at the top of a landing zone: who publishes into the mirrored database, from which source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorfeed.errors import Terminal
from mirrorfeed.landing.strict_json import parse_json

PARTNER_EVENTS = "_partnerEvents.json"


def spell(name: str, source_type: str, source_version: str, information: Mapping[str, Any]) -> dict[str, Any]:
    more = {"additionalInformation": dict(information)} if information else {}
    source = {"sourceType": source_type, "sourceVersion": source_version, **more}
    return {"partnerName": name, "sourceInfo": source}


def says(data: bytes, wanted: Mapping[str, Any]) -> bool:
    """Whether a file has this content, however it is laid out."""
    try:
        return bool(parse_json(data) == wanted)
    except ValueError:
        return False


class ForeignPartnerEvents(Terminal):
    """The landing zone says that another publisher writes there. Tables are published all the same."""

    code = "MF3010"

    def __init__(self, address: str, found: bytes) -> None:
        self.address, self.found = address, " ".join(found.decode(errors="replace").split())[:200]

    def what(self) -> str:
        return (
            f"{self.address} says something else than `partner` in the configuration, and is left alone: {self.found}"
        )

    def next(self) -> str:
        return (
            "Tables are published all the same. If the file is not another publisher's, `mirrorfeed partner --force`"
            " replaces it; otherwise take over what it says, or leave out `partner`."
        )
