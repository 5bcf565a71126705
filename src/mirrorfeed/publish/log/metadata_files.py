"""`_metadata.json` of a table's folder: written before its first data file, and never changed but to add keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorfeed.landing import metadata_files
from mirrorfeed.landing.names import METADATA
from mirrorfeed.publish.errors import ConcurrentChanges
from mirrorfeed.publish.log.table_log import try_write
from mirrorfeed.storage import NotThere, Store, StoreUnavailable

_LOOKS = 20


def ensure(store: Store, folder: str, wanted: Mapping[str, Any], *, first: bool = False) -> None:
    """Writes it, or adds keys to one that has none. At first it is likely not to be there: then it is made without a
    look, for that it is there is asked once more after the record."""
    path = f"{folder}/{METADATA}"
    trouble: Exception | None = None
    if first:
        trouble = try_write(store.create, path, metadata_files.to_json(dict(wanted)))
        if trouble is None:
            return
    for _ in range(_LOOKS):
        found = _read(store, folder)
        if found is not None and metadata_files.goes_on_from(found, wanted, store.address(path)):
            return
        if isinstance(trouble, StoreUnavailable):
            raise trouble
        # Replaced rather than removed and made again: a removal that takes effect late would take the new file away.
        write = store.create if found is None else store.replace
        trouble = try_write(write, path, metadata_files.to_json({**(found or {}), **wanted}))
    raise ConcurrentChanges(address=store.address(path))


def check(store: Store, folder: str, wanted: Mapping[str, Any]) -> bool:
    """Whether it says all that is wanted; refuses one that sets something else."""
    found = _read(store, folder)
    return found is not None and metadata_files.goes_on_from(found, wanted, store.address(f"{folder}/{METADATA}"))


def _read(store: Store, folder: str) -> dict[str, Any] | None:
    path = f"{folder}/{METADATA}"
    try:
        return metadata_files.parse(store.read(path), store.address(path))
    except NotThere:
        return None
