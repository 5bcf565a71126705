"""What the user pays for storage, in the configuration or in a file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from mirrorfeed.landing.strict_json import parse_json, validate
from mirrorfeed.storage.errors import BadRates

_Price = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
_FORM = ConfigDict(extra="forbid", frozen=True)


class Restoring(BaseModel):
    model_config = _FORM

    per_gib: _Price
    """For a GiB that is read from the archive."""
    per_10k_files: _Price
    """For ten thousand objects."""


class Stored(BaseModel):
    """For a GiB and a month."""

    model_config = _FORM

    hot: _Price
    archive: _Price
    cool: _Price | None = None
    cold: _Price | None = None


@dataclass(frozen=True, slots=True)
class Month:
    cost: float
    saving: float
    """Of what it would cost if all were hot."""


class Rates(BaseModel):
    """What the user pays, in any one currency. What is left out is not summed, and said to be left out."""

    model_config = _FORM

    currency: Annotated[str, Field(min_length=1)]
    standard: Restoring
    high: Restoring
    stored: Stored | None = None
    archiving: _Price | None = None
    """For ten thousand objects that are moved into the archive."""

    @classmethod
    def load(cls, path: str) -> Rates:
        """Those of a JSON file, or `BadRates`."""
        try:
            return validate(TypeAdapter(cls), parse_json(Path(path).read_bytes()))
        except (OSError, ValueError) as error:
            raise BadRates(path=path, reason=str(error)) from error

    def month(self, tier: str) -> float | None:
        """For a GiB in the tier of this name."""
        found: float | None = getattr(self.stored, tier.lower(), None)
        return found

    def of_restoring(self, priority: str) -> Restoring:
        """With the priority of this name."""
        return self.high if priority.upper() == "HIGH" else self.standard

    def of_a_month(self, hot_bytes: int, archived_bytes: int, copied_bytes: int = 0) -> Month | None:
        """Of having so much, of which so much is there twice; None without prices for that."""
        if self.stored is None:
            return None
        hot, cold = hot_bytes / 2**30, archived_bytes / 2**30
        cost = hot * self.stored.hot + cold * self.stored.archive
        once = hot + cold - copied_bytes / 2**30
        return Month(cost, once * self.stored.hot - cost)
