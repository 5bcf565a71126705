"""Rows of results: frozen dataclasses that can be shown as a table, as HTML in a notebook, or as JSON.

Each field is in the JSON, except fields with `repr=False`. Each field that is declared with `shown` is a column of the
table. The module also has functions that write counts, sizes and times as text.

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
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from mirrorfeed.display.redact import printable

if TYPE_CHECKING:
    from mirrorfeed.display.ci_formats import Annotation
    from mirrorfeed.display.grid import Cell

MARKERS = ("insert", "update", "upsert", "delete")
Kind = TypeVar("Kind", bound=type[Any])


def shown(
    heading: str,
    form: Callable[[Any], object] | None = None,
    *,
    right: bool = False,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    init: bool = True,
) -> Any:
    """Return a dataclass field that has its own column when rows are displayed. `heading` is the column's heading.

    `form` converts a value to the displayed text, and is not called for None. `right` aligns the column right. Other
    parameters have the meaning of `dataclasses.field`.
    """
    metadata = {"heading": heading, "form": form, "right": right}
    return field(default=default, default_factory=default_factory, init=init, metadata=metadata)


@dataclass_transform(frozen_default=True, field_specifiers=(shown, field))
def row(kind: Kind) -> Kind:
    """Class decorator that makes a subclass of `Row` a frozen dataclass with slots."""
    return dataclass(frozen=True, slots=True)(kind)  # type: ignore[return-value]


class Row:
    """One row of a `Result`."""

    __slots__ = ()

    QUIET = ""
    """If more than 20 rows with the same text are `quiet`, the text replaces these rows. {tables} or {rows} in the text
    becomes their number. If the text is empty, all rows are listed. A subclass can define it as a property."""

    @property
    def ok(self) -> bool:
        """True if the row has no `error`."""
        return getattr(self, "error", None) is None

    @property
    def quiet(self) -> bool:
        """True if the row needs no attention. By default, this is the value of `ok`."""
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values. An error becomes an object with `code`, `what`, `next` and `facts`."""
        return {each.name: as_json(getattr(self, each.name)) for each in fields(self) if each.repr}  # type: ignore[arg-type]

    def cells(self) -> Mapping[str, Cell]:
        """Return a mapping from column heading to cell. Empty if the row is shown only as remarks, not in a table."""
        from mirrorfeed.display.grid import Cell  # imported late: a publication draws no table

        cells = {}
        for each in fields(self):  # type: ignore[arg-type]
            if column := each.metadata:
                value = getattr(self, each.name)
                form = column["form"] if value is not None else None
                cells[column["heading"]] = Cell(form(value) if form else value, column["right"])
        return cells

    def remarks(self) -> Sequence[str]:
        """Return the lines to show below the table.

        By default, the only line is the error of the row, if there is one and if the table has no column for errors.
        """
        error = getattr(self, "error", None)
        if error is None or any(each.name == "error" and each.metadata for each in fields(self)):  # type: ignore[arg-type]
            return ()
        parts = (getattr(self, "table", None), getattr(error, "code", None), str(error))
        return (": ".join(filter(None, parts)),)

    def annotation(self) -> Annotation:
        """Return the row for a CI system. By default, the title is the first cell."""
        from mirrorfeed.display.ci_formats import Annotation  # imported late: only CI needs it

        title, *values = [str(cell.value) for cell in self.cells().values() if cell.value not in (None, "")]
        return Annotation("" if self.ok else "error", title, "\n".join([*values, *self.remarks()]))

    def __str__(self) -> str:
        from mirrorfeed.display.terminal import text_of

        return text_of((self,))

    def _repr_html_(self) -> str:
        from mirrorfeed.display.html import html_of

        return html_of((self,))


_LONGEST_VALUE = 60
"""Maximum number of characters of a value in a table."""


@row
class DataRow(Row):
    """A row of a table or query, with a JSON value for each column."""

    values: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return dict(self.values)

    def cells(self) -> Mapping[str, Cell]:
        from mirrorfeed.display.grid import Cell

        return {name: Cell(_shortened(value), False) for name, value in self.values.items()}


def _shortened(value: object) -> str:
    text = "NULL" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(" ".join(text.splitlines()), _LONGEST_VALUE)


def nonzero(count: int) -> int | None:
    """Return the count, or None for 0, so that the table shows `-`."""
    return count or None


def as_json(value: Any, text: Callable[[str], str] = str) -> Any:
    """Return a value as JSON values. `text` converts each string in the value.

    Rows and errors become objects. Other dataclasses become objects if they do not define `__str__`. Dates and times
    become text in ISO format. A value of another type that JSON cannot represent becomes the text that `str` returns.
    """
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float():
            return value
        case str():
            return text(value)
        case date():
            return value.isoformat()
        case Mapping():
            return {text(str(name)): as_json(each, text) for name, each in value.items()}
        case Collection() if not isinstance(value, bytes):
            return [as_json(each, text) for each in value]
    if hasattr(value, "to_dict"):
        return as_json(value.to_dict(), text)
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        return {each.name: as_json(getattr(value, each.name), text) for each in fields(value) if each.repr}
    return text(str(value))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def by_marker(rows: Mapping[str, int]) -> str:
    """Return the number of rows for each row marker as text, such as "2 inserts, 1 delete"."""
    return ", ".join(counted(rows[marker], marker) for marker in MARKERS if rows.get(marker))


def first_names(names: Sequence[str], limit: int = 3) -> str:
    """Return a text with the first `limit` names and the number of other names."""
    others = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + others


def size(count: int) -> str:
    power = sum(count >= 1024**each for each in (1, 2, 3))
    return f"{count / 1024**power:.1f} {('B', 'KiB', 'MiB', 'GiB')[power]}" if power else f"{count} B"


def duration(seconds: float) -> str:
    rounded = int(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if rounded >= length:
            return f"{rounded / length:.1f} {unit}"
    return f"{rounded} s"
