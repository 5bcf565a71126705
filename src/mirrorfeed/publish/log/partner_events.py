"""Tells Fabric who publishes: `_partnerEvents.json`, made if it is absent and never taken from another publisher."""

from __future__ import annotations

import json

from mirrorfeed.config import Config
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.partner_events import PARTNER_EVENTS, ForeignPartnerEvents, says, spell
from mirrorfeed.storage import AlreadyThere, NotThere, Store


def introduce(store: Store, config: Config, *, force: bool = False) -> bool:
    """Whether the file was written: not if it says what `partner` does, nor without `partner`. One that says something
    else is `ForeignPartnerEvents`."""
    partner = config.partner
    if partner is None:
        return False
    wanted = spell(partner.name, partner.source_type, partner.source_version, partner.information)
    data = json.dumps(wanted, ensure_ascii=False, indent=1).encode()
    try:
        store.create(PARTNER_EVENTS, data)
        return True
    except AlreadyThere:
        found = _read(store)
    if says(found, wanted):
        return False
    if not force:
        raise ForeignPartnerEvents(store.address(PARTNER_EVENTS), found)
    store.replace(PARTNER_EVENTS, data)
    return True


def partner_events_problem(store: Store, config: Config) -> MirrorfeedError | None:
    """Introduces, and gives back what went wrong: tables are published without it too."""
    try:
        introduce(store, config)
    except MirrorfeedError as error:
        return error
    return None


def _read(store: Store) -> bytes:
    try:
        return store.read(PARTNER_EVENTS)
    except NotThere:  # removed in between: the next run makes it
        return b""
