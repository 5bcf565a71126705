"""Access tiers of files: the protocol of a tier store, and the store for an address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from mirrorfeed.storage.errors import OtherPlace

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
    from mirrorfeed.storage.cloud_tiers import (
        AzureTiers,  # cloud clients, which most runs do not need
        S3Tiers,
    )

    return AzureTiers.at(location) or S3Tiers.at(location)


@dataclass(frozen=True)
class TiersOfTables(TierStore):
    """The tiers of files in the folders of several tables."""

    uris: tuple[str, ...]
    at: Callable[[str], TierStore | None] = tiers_at

    @property
    def restores_copies(self) -> bool:
        return all(store.restores_copies for store, _ in self._parts(self.uris))

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        return {uri: facts for store, part in self._parts(uris) for uri, facts in store.facts(part).items()}

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        answers = (store.restore(part, priority, to, days) for store, part in self._parts(uris))
        return {uri: why for refused in answers for uri, why in refused.items()}

    def _parts(self, uris: Sequence[str]) -> list[tuple[TierStore, list[str]]]:
        found: list[tuple[TierStore, list[str]]] = []
        for uri in uris:
            store = self.at(uri)
            if store is None:
                raise OtherPlace(uri=uri, root="a storage account or bucket with access tiers")
            same = next((part for other, part in found if other == store), None)
            if same is None:
                found.append((store, [uri]))
            else:
                same.append(uri)
        return found


def common_prefix(names: Iterable[str]) -> str:
    first, last = min(names), max(names)
    end = next((i for i, letter in enumerate(first) if not last.startswith(letter, i)), len(first))
    return first[:end]
