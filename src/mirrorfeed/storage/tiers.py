"""Access tiers of files: the protocol, and the lookup of the store for an address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

COPY_DAYS = 7
"""How long copies are kept where the storage keeps copies, and nobody says otherwise."""


class Tier(Enum):
    """Where a file is, as far as reading it goes."""

    HOT = "hot"
    COOL = "cool"
    COLD = "cold"
    PENDING = "on its way back"
    ARCHIVE = "archive"
    MISSING = "not there"

    @property
    def is_readable(self) -> bool:
        return self in (Tier.HOT, Tier.COOL, Tier.COLD)


class Priority(Enum):
    STANDARD = "Standard"
    HIGH = "High"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a storage tells of a file."""

    tier: Tier
    bytes: int | None = None
    since: datetime | None = None
    """When it came into its tier; None where that is not told."""
    until: datetime | None = None
    """When it goes again, for a copy that was brought back for some days."""


class TierStore(Protocol):
    """Files by their URIs, as Spark spells them. Raises `TiersUnavailable` when it cannot tell."""

    @property
    def keeps(self) -> bool:
        """Whether a file that is brought back is a copy for some days, beside the archive; otherwise it leaves the
        archive, until a rule moves it there again."""
        ...

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        """Of every one of these files."""
        ...

    def look(self, uris: Sequence[str]) -> dict[str, Tier]:
        """The tier of every one of these files."""
        ...

    def bring_back(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        """Asks for archived files, and returns at once; it takes hours. Those that were not taken, with the reason;
        asking again for one that is on its way, or back, does no harm. Days are for places that keep copies."""
        ...


def tiers_at(location: str) -> TierStore | None:
    """The tiers of a table's files, by its address. None for a location without tiers."""
    from mirrorfeed.storage.azure_tiers import AzureTiers  # cloud clients, which most runs do not need
    from mirrorfeed.storage.s3_tiers import S3Tiers

    return AzureTiers.at(location) or S3Tiers.at(location)


def common_start(names: Iterable[str]) -> str:
    """What all these begin with, letter by letter."""
    first, last = min(names), max(names)
    end = next((i for i, letter in enumerate(first) if not last.startswith(letter, i)), len(first))
    return first[:end]
