"""The fields of the user's file that say in which form tables are published, and who publishes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from mirrorfeed.config.values import short
from mirrorfeed.landing.encodings import is_text_encoding
from mirrorfeed.landing.output import PARQUET, Delimited, Output


def _one_of(*allowed: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in allowed:
            listed = ", ".join(json.dumps(each) for each in allowed)
            raise ValueError(f"must be one of {listed}, not {json.dumps(value, default=repr, ensure_ascii=False)}")
        return str(value)

    return check


def _extension(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-z]{1,16}", value) or value == PARQUET:
        raise ValueError(f"must be lower-case letters and digits without a dot, as in tsv, not {value!r}")
    return value


def _encoding(value: object) -> str:
    if not isinstance(value, str) or not is_text_encoding(value):
        raise ValueError(f"{short(value)} is not an encoding that is known here, as UTF-8, utf-16 or windows-1252")
    return value


_FORM = Delimited()


class DelimitedOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    extension: Annotated[str, PlainValidator(_extension)] = _FORM.extension
    row_separator: Annotated[str, PlainValidator(_one_of("\r\n", "\n", "\r"))] = _FORM.row_separator
    column_separator: Annotated[str, PlainValidator(_one_of(",", ";", "|", "\t"))] = _FORM.column_separator
    quote: Annotated[str, PlainValidator(_one_of('"', "'", ""))] = _FORM.quote
    escape: Annotated[str, PlainValidator(_one_of("\\", "/", '"', ""))] = _FORM.escape
    null: str = _FORM.null
    encoding: Annotated[str, PlainValidator(_encoding)] = _FORM.encoding
    schema_definition: bool = _FORM.schema_definition
    undeclared_types: Literal["refuse", "string"] = "refuse"


class OutputOptions(BaseModel):
    """Those of `Options` that are about the form of files."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: Literal["parquet", "delimited"] = "parquet"
    delimited: DelimitedOptions = DelimitedOptions()
    detection: Literal["number", "time"] = "number"
    """In which order the service takes files."""
    default_marker: Literal["insert", "upsert"] = "insert"
    """What the service takes rows without a marker for."""

    @property
    def output(self) -> Output:
        return Output(
            delimited=Delimited(**self.delimited.model_dump()) if self.format == "delimited" else None,
            by_time=self.detection == "time",
            upserts_by_default=self.default_marker == "upsert",
        )


def contradictions(
    options: OutputOptions, changes: str, markers: str, keys: Sequence[str] | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Fields that are good each, and not together: the place of one, and why."""
    if markers == "exact" and changes != "full":
        yield ("markers",), "exact is for changes: full alone; net publishes upserts and deletes"
    if options.detection == "time" and changes == "full":
        yield ("detection",), "time leaves files that are visible together without an order, and changes: full needs it"
    if changes == "compare" and keys == ():
        yield ("keys",), "must name the columns by which rows are compared (changes: compare)"
    if options.default_marker == "upsert" and keys == ():
        yield ("default_marker",), "upsert needs keys, and the table has none"
    if options.format == "delimited" and (fault := options.output.delimited and options.output.delimited.fault()):
        field, reason = fault
        yield ("delimited", field), reason


class Partner(BaseModel):
    """Who publishes, from what; for `_partnerEvents.json`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1)]
    source_type: Annotated[str, Field(min_length=1)]
    source_version: Annotated[str, Field(min_length=1)]
    information: dict[str, str | int | float | bool] = {}
