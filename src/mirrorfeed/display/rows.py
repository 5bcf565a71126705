"""Rows of results: frozen dataclasses. Each field is in the JSON, and each field with `shown` is a column of the table.

@row
class Enabled(Row):
    table: str = shown("table")
    seconds: float = shown("took", duration, right=True, default=0.0)
    source: str = ""  # JSON only
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any, NamedTuple, TypeVar, dataclass_transform

_COLUMN = "column"
Kind = TypeVar("Kind", bound=type[Any])


class Column(NamedTuple):
    heading: str
    form: Callable[[Any], object] | None
    """Returns the value to show. None is shown as it is: as unknown."""
    right: bool


class Cell(NamedTuple):
    value: object
    right: bool


def shown(
    heading: str,
    form: Callable[[Any], object] | None = None,
    *,
    right: bool = False,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    init: bool = True,
) -> Any:
    """Declare a field as a column. Numbers and columns with `right` are aligned right."""
    column = Column(heading, form, right)
    return field(default=default, default_factory=default_factory, init=init, metadata={_COLUMN: column})


@dataclass_transform(frozen_default=True, field_specifiers=(shown, field))
def row(kind: Kind) -> Kind:
    return dataclass(frozen=True, slots=True)(kind)  # type: ignore[return-value]


class Row:
    """One row of a `Result`."""

    __slots__ = ()

    QUIET = ""
    """How many quiet rows are described together, as "{tables}: nothing new."; empty: all rows are listed."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: there is no `error`."""
        return getattr(self, "error", None) is None

    @property
    def quiet(self) -> bool:
        """Whether nobody needs to see the row among many."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON values; an error has `code`, `what`, `next` and `facts`."""
        return {each.name: as_json(getattr(self, each.name)) for each in fields(self) if each.repr}  # type: ignore[arg-type]

    def cells(self) -> Mapping[str, Cell]:
        """The columns by heading; empty if the remarks describe the row without a table."""
        found = {}
        for each in fields(self):  # type: ignore[arg-type]
            if column := each.metadata.get(_COLUMN):
                value = getattr(self, each.name)
                form = column.form if value is not None else None
                found[column.heading] = Cell(form(value) if form else value, column.right)
        return found

    def remarks(self) -> Sequence[str]:
        """Lines below the table."""
        error = getattr(self, "error", None)
        if error is None:
            return ()
        parts = (getattr(self, "table", None), getattr(error, "code", None), str(error))
        return (": ".join(part for part in parts if part),)

    def __str__(self) -> str:
        from mirrorfeed.display.render import text_of

        return text_of((self,))

    def _repr_html_(self) -> str:
        from mirrorfeed.display.render import html_of

        return html_of((self,))


_LONGEST_VALUE = 60
"""Characters of a value in a table."""


@row
class DataRow(Row):
    """A row of a table or query, as JSON values by column."""

    values: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return dict(self.values)

    def cells(self) -> Mapping[str, Cell]:
        return {name: Cell(_shortened(value), False) for name, value in self.values.items()}


def _shortened(value: object) -> str:
    text = "NULL" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.splitlines())
    return line if len(line) <= _LONGEST_VALUE else f"{line[: _LONGEST_VALUE - 1]}…"


def nonzero(count: int) -> int | None:
    """Return None for 0, so that the count is not shown."""
    return count or None


def as_json(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return value
        case Enum():
            return value.value
        case date():
            return value.isoformat()
        case Mapping():
            return {str(name): as_json(each) for name, each in value.items()}
        case Collection() if not isinstance(value, bytes):
            return [as_json(each) for each in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value) if each.repr}
    return str(value)
