"""Which store tells the tiers of a table's files: chosen by its address."""

from __future__ import annotations

from mirrorfeed.stores.glacier import S3Tiers
from mirrorfeed.stores.tiers import AzureTiers, TierStore


def tiers_at(location: str) -> TierStore | None:
    """None for a place without tiers."""
    return AzureTiers.at(location) or S3Tiers.at(location)
