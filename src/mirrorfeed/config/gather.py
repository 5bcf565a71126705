"""The fields of the user's file that say how much is gathered into one publication while tables are followed."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from mirrorfeed.config import fields
from mirrorfeed.feed.gather import AtMost

_POLICY = AtMost()


def _seconds(value: object) -> float | None:
    if value == "never":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise ValueError(f"must be a number of seconds from 0 to 86400, or never, not {fields.short(value)}")
    return float(value)


class GatherOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    seconds: Annotated[float | None, PlainValidator(_seconds)] = _POLICY.seconds
    """None: never because of the time."""
    rows: Annotated[int, Field(ge=1)] | None = _POLICY.rows
    bytes: Annotated[int, PlainValidator(fields.size)] | None = _POLICY.bytes

    @model_validator(mode="after")
    def _fires(self) -> GatherOptions:
        if self.seconds is None and self.rows is None and self.bytes is None:
            raise ValueError("would never publish anything: give it seconds, rows or bytes that come about")
        return self

    @property
    def policy(self) -> AtMost:
        return AtMost(self.seconds, self.rows, self.bytes)
