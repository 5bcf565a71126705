"""Which store tells the tiers of a table's files: chosen by its address."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorfeed.stores.tiers import TierStore


def tiers_at(location: str) -> TierStore | None:
    """None for a place without tiers."""
    from mirrorfeed.stores.glacier import S3Tiers  # clients of clouds, which most runs do without
    from mirrorfeed.stores.tiers import AzureTiers

    return AzureTiers.at(location) or S3Tiers.at(location)
