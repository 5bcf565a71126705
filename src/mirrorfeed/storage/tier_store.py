"""Access tiers of files: the protocol `TierStore`, and its implementation for files in several storages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from mirrorfeed.storage import tiers_at
from mirrorfeed.storage.errors import FileOutsideStorageError

DEFAULT_COPY_DAYS = 7
"""Number of days after which a restored copy expires by default."""


class Tier(Enum):
    """Access tier of a file. `PENDING` means that a restore is pending, and `MISSING` that the file does not exist."""

    HOT = "hot"
    COOL = "cool"
    COLD = "cold"
    PENDING = "pending"
    ARCHIVE = "archive"
    MISSING = "missing"

    @property
    def is_readable(self) -> bool:
        return self in (Tier.HOT, Tier.COOL, Tier.COLD)


class Priority(Enum):
    """Speed of a restore. `HIGH` is faster and more expensive."""

    STANDARD = "Standard"
    HIGH = "High"


@dataclass(frozen=True, slots=True)
class TierFacts:
    """Tier, size and times of a file."""

    tier: Tier
    bytes: int | None = None
    """Size of the file, or None if unknown."""
    since: datetime | None = None
    """Time when the file was moved to its tier, or None if unknown."""
    until: datetime | None = None
    """Expiry time of a restored copy, or None without a copy."""


class TierStore(Protocol):
    """Storage that reports the access tiers of files and restores archived files.

    `uris` are file URIs as Spark uses them. Methods raise `TiersUnavailableError` if a request to the storage fails,
    and `FileOutsideStorageError` for a file in another storage.
    """

    @property
    def restores_copies(self) -> bool:
        """True if a restore creates a temporary copy. Otherwise a restore moves the file out of the archive tier."""

    def facts(self, uris: Sequence[str]) -> dict[str, TierFacts]:
        """Return the `TierFacts` of the file at each URI. A file that does not exist has the tier `Tier.MISSING`."""

    def read_tiers(self, uris: Sequence[str]) -> dict[str, Tier]:
        return {uri: facts.tier for uri, facts in self.facts(uris).items()}

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        """Request the restore of archived files. A restore takes hours. Return the reason for each refused URI.

        Safe to repeat. If the property `restores_copies` is True, a restore creates copies that expire after `days`
        days (None means 7), and `to` is ignored. Otherwise, files move to the tier `to`, and `days` is ignored.
        """


@dataclass(frozen=True)
class TiersOfTables(TierStore):
    """`TierStore` for files in several containers or buckets. Passes each file to the `TierStore` of its container."""

    uris: tuple[str, ...]
    """URIs of all files. `restores_copies` is True if a restore creates a temporary copy of each of them."""
    at: Callable[[str], TierStore | None] = tiers_at
    """Function that returns the `TierStore` for a URI, or None if the URI has no access tiers."""

    @property
    def restores_copies(self) -> bool:
        return all(store.restores_copies for store in self._by_store(self.uris))

    def facts(self, uris: Sequence[str]) -> dict[str, TierFacts]:
        parts = self._by_store(uris).items()
        return {uri: facts for store, part in parts for uri, facts in store.facts(part).items()}

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        parts = self._by_store(uris).items()
        return {uri: why for store, part in parts for uri, why in store.restore(part, priority, to, days).items()}

    def _by_store(self, uris: Sequence[str]) -> dict[TierStore, list[str]]:
        parts: dict[TierStore, list[str]] = {}
        for uri in uris:
            store = self.at(uri)
            if store is None:
                raise FileOutsideStorageError(uri=uri, root="a storage account or bucket with access tiers")
            parts.setdefault(store, []).append(uri)
        return parts
