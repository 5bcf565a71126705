"""The fields `follow` and `paused`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator

from mirrorfeed.config import values


def _seconds(value: object) -> float | None:
    if value is None or value == "never":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise ValueError(f"must be a number of seconds from 0 to 86400, or never, not {values.short(value)}")
    return float(value)


class FollowLimits(BaseModel):
    """Limits of one publication of a followed table. The first limit that is reached triggers it. None is no limit."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    # Fabric merges every 15 seconds at the fastest.
    max_delay_seconds: Annotated[float | None, PlainValidator(_seconds)] = 15.0
    """Seconds since the previous publication."""
    max_rows: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[int, PlainValidator(values.size)] | None = None

    @model_validator(mode="after")
    def _fires(self) -> Self:
        if self.max_delay_seconds is None and self.max_rows is None and self.max_bytes is None:
            raise ValueError("would never publish anything: set max_delay_seconds, max_rows or max_bytes")
        return self

    @property
    def measures(self) -> bool:
        """Whether a limit depends on the size of commits."""
        return self.max_rows is not None or self.max_bytes is not None

    @property
    def poll(self) -> float:
        """Seconds between two checks for new commits."""
        return 3.0 if self.max_delay_seconds is None else min(3.0, max(0.2, self.max_delay_seconds / 5))


def _moment(value: object) -> datetime:
    found: object = value
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
    if isinstance(found, date) and not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day)
    if not isinstance(found, datetime):
        raise ValueError(
            f"must be a date or a time, such as 2026-12-01 or 2026-12-01 18:00 (default time zone: UTC), not"
            f" {values.short(value)}"
        )
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _reason(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty: write a reason")
    return value


class Pause(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    reason: Annotated[str, AfterValidator(_reason)]
    until: Annotated[datetime, PlainValidator(_moment)]
    """End of the pause."""

    def holds(self, now: datetime) -> bool:
        return now < self.until

    def __str__(self) -> str:
        return f"paused until {self.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {self.reason}"
