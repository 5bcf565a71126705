"""Rows of results: frozen dataclasses, drawn as a table, as HTML for a notebook, or as JSON. Counts and sizes in words.

Each field is in the JSON, and each field with `shown` is a column of the table.

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
from datetime import date, datetime
from enum import Enum
from typing import Any, NamedTuple, TypeVar, dataclass_transform

MARKERS = ("insert", "update", "upsert", "delete")
_COLUMN = "column"
Kind = TypeVar("Kind", bound=type[Any])
AnyRow = TypeVar("AnyRow", bound="Row")


class Column(NamedTuple):
    heading: str
    form: Callable[[Any], object] | None
    """Convert the value to the value to show. None is shown as unknown without conversion."""
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
    """Text that describes several quiet rows, such as "{tables}: nothing new.". Empty means that all rows are
    listed."""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong: there is no `error`."""
        return getattr(self, "error", None) is None

    @property
    def quiet(self) -> bool:
        """True if the row need not be listed among many rows that have `QUIET`."""
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, as JSON values. An error has `code`, `what`, `next` and `facts`."""
        return {each.name: as_json(getattr(self, each.name)) for each in fields(self) if each.repr}  # type: ignore[arg-type]

    def cells(self) -> Mapping[str, Cell]:
        """Return the columns by heading. Empty if the remarks describe the row without a table."""
        found = {}
        for each in fields(self):  # type: ignore[arg-type]
            if column := each.metadata.get(_COLUMN):
                value = getattr(self, each.name)
                form = column.form if value is not None else None
                found[column.heading] = Cell(form(value) if form else value, column.right)
        return found

    def remarks(self) -> Sequence[str]:
        """Return the lines to show below the table: the error, unless it has a column."""
        error = getattr(self, "error", None)
        if error is None or any(each.name == "error" and _COLUMN in each.metadata for each in fields(self)):  # type: ignore[arg-type]
            return ()
        parts = (getattr(self, "table", None), getattr(error, "code", None), str(error))
        return (": ".join(filter(None, parts)),)

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
    """A row of a table or query, with JSON values by column."""

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


def as_json(value: Any, text: Callable[[str], str] = str) -> Any:
    """Convert a value to JSON values.

    Rows, errors and dataclasses become their fields, times become ISO format, and other values become text.
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
            return {str(name): as_json(each, text) for name, each in value.items()}
        case Collection() if not isinstance(value, bytes):
            return [as_json(each, text) for each in value]
    if hasattr(value, "to_dict"):
        return as_json(value.to_dict(), text)
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        return {each.name: as_json(getattr(value, each.name), text) for each in fields(value) if each.repr}
    return str(value)


LISTED = 20
"""With more quiet rows, the rows are counted instead of listed."""


class Grid(NamedTuple):
    """Cells of a table as texts, without columns that have no known value."""

    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    right: frozenset[int]
    """Columns to align right."""


def grid_of(rows: Sequence[Row]) -> Grid:
    lines = [row.cells() for row in rows]
    header = [
        heading
        for heading in dict.fromkeys(heading for line in lines for heading in line)
        if any(heading in line and line[heading].value not in (None, "") for line in lines)
    ]
    numeric = [
        all(line[heading].right or _is_number(line[heading].value) for line in lines if heading in line)
        for heading in header
    ]
    cells = [[_word(line[heading].value) if heading in line else "-" for heading in header] for line in lines]
    return Grid(header, cells, frozenset(at for at, right in enumerate(numeric) if right))


def split(rows: Sequence[AnyRow], every: bool = False) -> tuple[Sequence[AnyRow], Sequence[AnyRow], str]:
    """Return the rows to list, the other rows, and the number of the others in words."""
    quiet = [row for row in rows if row.QUIET and row.quiet]
    if every or len(quiet) <= LISTED:
        return rows, (), ""
    left_out = quiet[0].QUIET.format(tables=counted(len(quiet), "table"), rows=f"{len(quiet):,}")
    return [row for row in rows if not row.quiet], quiet, left_out


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _word(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case tuple():
            return ", ".join(map(str, value))
    return str(value)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def by_marker(rows: Mapping[str, int]) -> str:
    """Return the number of rows for each marker, in words."""
    return ", ".join(counted(rows[marker], marker) for marker in MARKERS if rows.get(marker))


def first_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(count: int) -> str:
    scaled = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if scaled < 1024 or unit == "GiB":
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    rounded = int(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if rounded >= length:
            return f"{rounded / length:.1f} {unit}"
    return f"{rounded} s"
