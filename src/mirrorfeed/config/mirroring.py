"""The field `fabric` of the user's file: what the mirrored database is to be."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mirrorfeed.landing.names import BadTarget, Target

DEFAULT_SCHEMA = "dbo"
"""Where the service puts tables without a schema, unless the database says otherwise."""


def _schema(value: str) -> str:
    try:
        Target(value, "t")
    except BadTarget as error:
        raise ValueError(f"{value!r} can be no schema: as the target {error.text!r} it {error.reason}") from None
    return value


class FabricOptions(BaseModel):
    """What is left out is left as it is."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    retention_days: Annotated[int, Field(ge=1, le=30)] | None = None
    """For so long the mirror keeps what was deleted and replaced in it."""
    change_data_feed: bool | None = None
    """Of the mirrored tables."""
    default_schema: Annotated[str, Field(min_length=1), AfterValidator(_schema)] | None = None
