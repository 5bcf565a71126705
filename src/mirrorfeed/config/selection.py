"""The fields that select, rename and cast columns and select rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainValidator

from mirrorfeed.config import values
from mirrorfeed.landing.condition import Condition
from mirrorfeed.landing.names import fold
from mirrorfeed.landing.selection import EVERYTHING, Cast, Selection, key_faults, name_fault

Pairs = tuple[tuple[str, str], ...]
"""Columns with a value for each."""


def _names(value: object) -> tuple[str, ...] | None:
    found = values.keys(value)
    if found == ():
        raise ValueError("is empty: name a column, or omit the field")
    return found


def _condition(value: object) -> str:
    text = values.text(value).strip()
    if not text:
        raise ValueError("is empty: write a condition, or omit the field")
    Condition.parse(text)
    return text


def _by_column(value: object, example: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in (*value, *value.values())):
        raise ValueError(f"must map columns of the source to text, such as {example}, not {values.short(value)}")
    return dict(value)


def _renames(value: object) -> Pairs:
    found = _by_column(value, "{cust_id: customer}")
    faults = [f"{new!r} {fault}" for new in found.values() if (fault := name_fault(new))]
    faults += [f"{new!r} would be the name of several columns" for new in _repeated([*found.values()])]
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(found.items())


def _casts(value: object) -> Pairs:
    found = _by_column(value, "{price: string}")
    for text in found.values():
        Cast.parse(text)
    return tuple(found.items())


def _repeated(names: Sequence[str]) -> list[str]:
    folded = [fold(name) for name in names]
    return [name for at, name in enumerate(names) if fold(name) in folded[:at]]


class SelectionOptions(BaseModel):
    """Names are those of the source, except the new names in `rename`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    columns: Annotated[tuple[str, ...] | None, PlainValidator(_names)] = None
    """None is all columns."""
    exclude_columns: Annotated[tuple[str, ...] | None, PlainValidator(_names)] = None
    where: Annotated[str | None, PlainValidator(_condition)] = None
    rename: Annotated[Pairs | None, PlainValidator(_renames)] = None
    cast: Annotated[Pairs | None, PlainValidator(_casts)] = None

    @property
    def selection(self) -> Selection | None:
        """None if the whole source is published unchanged."""
        named = self.rename or (), self.cast or ()
        found = Selection(self.columns, self.exclude_columns or (), self.where, *map(dict, named))
        return None if found == EVERYTHING else found


def misfits(options: SelectionOptions, keys: Sequence[str] | None) -> Iterator[tuple[tuple[str, ...], str]]:
    """Fields that contradict each other, with the reason."""
    chosen = options.selection
    if chosen is None:
        return
    if options.columns is not None and options.exclude_columns is not None:
        yield ("exclude_columns",), "and `columns` exclude each other: set one of them"
        return
    for field in ("rename", "cast"):
        for name in getattr(chosen, field):
            if not chosen.takes(name):
                yield (field,), f"{name!r} is an excluded column"
    for name in options.columns or ():
        for old, new in chosen.rename.items():
            if fold(new) == fold(name) and old != name and name not in chosen.rename:
                yield ("rename",), f"{old!r} cannot be {new!r}, because another column has this name"
    for key in keys or ():
        for fault in key_faults(chosen, key):
            place = "cast" if chosen.takes(key) else "columns" if options.columns is not None else "exclude_columns"
            yield (place,), fault
