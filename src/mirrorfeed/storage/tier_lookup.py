"""Which store tells the tiers of a table's files: chosen by its address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorfeed.errors import Terminal

if TYPE_CHECKING:
    from mirrorfeed.storage.tiers import TierStore


def tiers_at(location: str) -> TierStore | None:
    """None for a place without tiers."""
    from mirrorfeed.storage.s3_tiers import S3Tiers  # clients of clouds, which most runs do without
    from mirrorfeed.storage.tiers import AzureTiers

    return AzureTiers.at(location) or S3Tiers.at(location)


class NoTiers(Terminal):
    """The files of the table lie where there are no tiers."""

    code = "MF5601"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"{self.table} is neither in Azure storage nor in S3, so its files have no tiers."

    def next(self) -> str:
        return (
            "Name a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder or"
            " s3://bucket/folder."
        )
