"""Access tiers of files: the protocol of a tier store, and the store for an address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from mirrorfeed.storage.errors import OtherPlace

DEFAULT_COPY_DAYS = 7
"""Number of days for which restored copies are stored by default."""


class Tier(Enum):
    """Access tier of a file."""

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
    STANDARD = "Standard"
    HIGH = "High"


@dataclass(frozen=True, slots=True)
class Facts:
    """Tier and times that a storage service reports for a file."""

    tier: Tier
    bytes: int | None = None
    since: datetime | None = None
    """Time when the file was moved to its tier, or None if unknown."""
    until: datetime | None = None
    """Expiry time of a restored copy."""


class TierStore(Protocol):
    """Access tiers of files, by the URIs that Spark uses. Methods raise `TiersUnavailable` if the storage fails."""

    @property
    def restores_copies(self) -> bool:
        """True if a restore creates a temporary copy. Otherwise a restore moves the file out of the archive tier."""
        ...

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        """Return the facts of each file, by its URI."""
        ...

    def read_tiers(self, uris: Sequence[str]) -> dict[str, Tier]:
        return {uri: facts.tier for uri, facts in self.facts(uris).items()}

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        """Request the restore of archived files, which takes hours. Returns the refused files with the reasons.

        Files that are pending or restored can be requested again. If restores create copies, `to` is ignored.
        Otherwise `days` is ignored.
        """
        ...


def tiers_at(location: str) -> TierStore | None:
    """Return the tier store for a table's address, or None if the storage has no tiers."""
    # Imported late: the cloud libraries are slow to import, and few runs need them.
    from mirrorfeed.storage.azure_and_s3_tiers import AzureTiers, S3Tiers

    return AzureTiers.at(location) or S3Tiers.at(location)


@dataclass(frozen=True)
class TiersOfTables(TierStore):
    """Tiers of files in the folders of several tables."""

    uris: tuple[str, ...]
    at: Callable[[str], TierStore | None] = tiers_at

    @property
    def restores_copies(self) -> bool:
        return all(store.restores_copies for store in self._by_store(self.uris))

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
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
                raise OtherPlace(uri=uri, root="a storage account or bucket with access tiers")
            parts.setdefault(store, []).append(uri)
        return parts
