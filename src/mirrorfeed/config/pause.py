"""The field `paused` of the user's file: why a table is not published for a while, and until when."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator

from mirrorfeed.config import fields


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
            f"must be a day or a moment, as 2026-12-01 or 2026-12-01 18:00 (in UTC unless it says otherwise), not"
            f" {fields.short(value)}"
        )
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _reason(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty: say why, for whoever looks meanwhile")
    return value


class Pause(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    reason: Annotated[str, AfterValidator(_reason)]
    until: Annotated[datetime, PlainValidator(_moment)]
    """A pause ends by itself."""

    def holds(self, now: datetime) -> bool:
        return now < self.until

    def __str__(self) -> str:
        return f"paused until {self.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {self.reason}"
