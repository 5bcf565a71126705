"""Access tiers of files: the protocol of a tier store, and the store for an address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

DEFAULT_COPY_DAYS = 7
"""How long a storage that restores copies keeps them by default."""


class Tier(Enum):
    """The access tier of a file, and whether it can be read."""

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
    """What a storage reports about a file."""

    tier: Tier
    bytes: int | None = None
    since: datetime | None = None
    """When it was moved to its tier. None if unknown."""
    until: datetime | None = None
    """When a restored copy expires."""


class TierStore(Protocol):
    """Files by the URIs that Spark uses. Methods raise `TiersUnavailable` if the storage does not respond."""

    @property
    def restores_copies(self) -> bool:
        """Whether a restore creates a copy for some days. Otherwise it moves the file out of the archive tier."""
        ...

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        """The facts of each file."""
        ...

    def read_tiers(self, uris: Sequence[str]) -> dict[str, Tier]:
        """The tier of each file."""
        return {uri: facts.tier for uri, facts in self.facts(uris).items()}

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        """Request the restore of archived files, which takes hours. Return the refused files with the reason.

        Files that are pending or restored can be requested again. `to` is ignored where a restore creates copies,
        `days` where it does not.
        """
        ...


def tiers_at(location: str) -> TierStore | None:
    """The tier store for the files of a table, by its address. None for a location without tiers."""
    from mirrorfeed.storage.azure_tiers import AzureTiers  # cloud clients, which most runs do not need
    from mirrorfeed.storage.s3_tiers import S3Tiers

    return AzureTiers.at(location) or S3Tiers.at(location)


def common_prefix(names: Iterable[str]) -> str:
    first, last = min(names), max(names)
    end = next((i for i, letter in enumerate(first) if not last.startswith(letter, i)), len(first))
    return first[:end]
