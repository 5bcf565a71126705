"""The fields `format`, `delimited`, `file_order`, `default_row_marker` and `partner`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from mirrorfeed.landing.output_format import Delimited, Output


class OutputOptions(BaseModel):
    """Options of the file format."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: Literal["parquet", "delimited"] = "parquet"
    delimited: Delimited = Delimited()
    file_order: Literal["sequence", "modified_time"] = "sequence"
    """Order in which Fabric reads files."""
    default_row_marker: Literal["insert", "upsert"] = "insert"
    """How Fabric applies rows without a marker."""

    @property
    def output(self) -> Output:
        return Output(
            delimited=self.delimited if self.format == "delimited" else None,
            by_time=self.file_order == "modified_time",
            upserts_by_default=self.default_row_marker == "upsert",
        )


def contradictions(
    options: OutputOptions, changes: str, row_markers: str, keys: Sequence[str] | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Fields that contradict each other, with the reason."""
    if row_markers == "exact" and changes != "full":
        yield ("row_markers",), "exact requires changes: full, because net publishes upserts and deletes"
    if options.file_order == "modified_time" and changes == "full":
        yield (
            ("file_order",),
            "modified_time gives files of the same time no order, and changes: full requires one",
        )
    if changes == "compare" and keys == ():
        yield ("keys",), "is required with changes: compare"
    if options.default_row_marker == "upsert" and keys == ():
        yield ("default_row_marker",), "upsert requires keys, and the table has none"
    if options.format == "delimited" and (fault := options.output.delimited and options.output.delimited.fault()):
        field, reason = fault
        yield ("delimited", field), reason


class Partner(BaseModel):
    """Content of `_partnerEvents.json`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1)]
    source_type: Annotated[str, Field(min_length=1)]
    source_version: Annotated[str, Field(min_length=1)]
    information: dict[str, str | int | float | bool] = {}
