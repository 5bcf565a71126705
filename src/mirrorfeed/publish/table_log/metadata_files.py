"""Write `_metadata.json` of a table, before its first data file, and `_partnerEvents.json` of the landing zone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mirrorfeed.config.model import Config
from mirrorfeed.landing import output_format
from mirrorfeed.landing.errors import foreign_partner_events
from mirrorfeed.landing.names import METADATA
from mirrorfeed.landing.output_format import BY_TIME, PARTNER_EVENTS, has_content, partner_events
from mirrorfeed.publish.errors import concurrent_changes
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import PathExistsError, PathMissingError, StorageUnavailableError
from mirrorfeed.storage.request_retries import try_write

_ATTEMPTS = 20


def ensure(store: Store, folder: str, wanted: Mapping[str, Any]) -> None:
    """Create `_metadata.json` with the content `wanted`. If the file exists without key columns, adds the key columns.
    Raises `keys_changed` or `setting_changed` if the file has other keys or settings."""
    path = f"{folder}/{METADATA}"
    current: dict[str, Any] | None = None
    for _ in range(_ATTEMPTS):
        # Replace the file instead of deleting and creating it: a delayed deletion would delete the new file.
        write = store.create if current is None else store.replace
        error = try_write(write, path, output_format.to_json({**(current or {}), **wanted}))
        if error is None and current is None:
            return
        current = _read(store, folder)
        if current is not None and output_format.is_up_to_date(current, wanted, store.address(path)):
            return
        if isinstance(error, StorageUnavailableError):
            raise error
    raise concurrent_changes(address=store.address(path))


def check(store: Store, folder: str, wanted: Mapping[str, Any]) -> bool:
    """Return whether `_metadata.json` has the content `wanted`.

    Returns False if the file does not exist, or if `wanted` has key columns and the file has none. Raises
    `keys_changed` or `setting_changed` if the file has other key columns or settings.
    """
    current = _read(store, folder)
    return current is not None and output_format.is_up_to_date(current, wanted, store.address(f"{folder}/{METADATA}"))


def is_read_by_time(store: Store, folder: str) -> bool:
    """Return whether Fabric orders the published files by modification time."""
    return (_read(store, folder) or {}).get("fileDetectionStrategy") == BY_TIME


def _read(store: Store, folder: str) -> dict[str, Any] | None:
    path = f"{folder}/{METADATA}"
    try:
        return output_format.parse_metadata(store.read(path), store.address(path))
    except PathMissingError:
        return None


def write_partner_events(store: Store, config: Config, *, force: bool = False) -> bool:
    """Write `_partnerEvents.json` from the setting `partner`, if any. Returns whether the file was written.
    Raises `foreign_partner_events` if an existing file differs from the setting. With `force`, replaces this file."""
    partner = config.partner
    if partner is None:
        return False
    wanted = partner_events(partner.name, partner.source_type, partner.source_version, partner.information)
    data = json.dumps(wanted, ensure_ascii=False, indent=1).encode()
    try:
        store.create(PARTNER_EVENTS, data)
        return True
    except PathExistsError:
        try:
            current = store.read(PARTNER_EVENTS)
        except PathMissingError:  # deleted in the meantime
            return write_partner_events(store, config, force=force)
    if has_content(current, wanted):
        return False
    if not force:
        content = " ".join(current.decode(errors="replace").split())[:200]
        raise foreign_partner_events(address=store.address(PARTNER_EVENTS), content=content)
    store.replace(PARTNER_EVENTS, data)
    return True
