"""Prices of storage and restores, read from a JSON file, and the monthly storage cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from mirrorfeed.landing.strict_json import parse_json, validate
from mirrorfeed.storage.errors import invalid_prices

_Price = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RestorePrices(_Model):
    per_gib: _Price
    """Price of restoring a GiB of archived files."""
    per_10k_files: _Price
    """Price of restoring 10,000 files."""


class StoragePrices(_Model):
    """Prices of storing a GiB for a month in each access tier."""

    hot: _Price
    archive: _Price
    cool: _Price | None = None
    cold: _Price | None = None


class Prices(_Model):
    """Prices of storage and restores in one currency."""

    currency: Annotated[str, Field(min_length=1)]
    standard: RestorePrices
    """Prices of a restore with standard priority."""
    high: RestorePrices
    """Prices of a restore with high priority."""
    stored: StoragePrices | None = None
    archiving: _Price | None = None
    """Price of archiving 10,000 files."""

    @classmethod
    def load(cls, path: str) -> Prices:
        """Read prices from a JSON file. Raises `invalid_prices` if the file cannot be read or is not valid."""
        try:
            return validate(TypeAdapter(cls), parse_json(Path(path).read_bytes()))
        except (OSError, ValueError) as error:
            raise invalid_prices(path=path, reason=getattr(error, "strerror", None) or str(error)) from error

    def monthly_cost(self, hot_bytes: int, archived_bytes: int, copied_bytes: int = 0) -> tuple[float, float] | None:
        """Return the monthly storage cost, and the saving compared with storing all files in the hot tier.

        Returns None without storage prices. `copied_bytes` is the size of archived files with a restored copy, and
        `hot_bytes` includes the copies.
        """
        if self.stored is None:
            return None
        hot, archived = hot_bytes / 2**30, archived_bytes / 2**30
        cost = hot * self.stored.hot + archived * self.stored.archive
        distinct = hot + archived - copied_bytes / 2**30
        return cost, distinct * self.stored.hot - cost


def load_prices(prices: str | Prices | None, default: Prices | None) -> Prices | None:
    """Return `prices`, or the prices in a JSON file if `prices` is a path. If `prices` is None, return `default`."""
    return Prices.load(prices) if isinstance(prices, str) else prices or default
