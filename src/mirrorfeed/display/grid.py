"""Tables to display: headings, and the cells of rows as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar


class Cell(NamedTuple):
    value: object
    right: bool
    """True to align the column right. Numbers are always aligned right."""


class Displayed(Protocol):
    """Row as a table shows it, implemented by `Row`."""

    @property
    def QUIET(self) -> str: ...

    @property
    def ok(self) -> bool: ...

    @property
    def quiet(self) -> bool: ...

    def cells(self) -> Mapping[str, Cell]: ...

    def remarks(self) -> Sequence[str]: ...


AnyRow = TypeVar("AnyRow", bound=Displayed)

_MAX_QUIET = 20
"""If more rows than this number are `quiet`, a text replaces these rows."""


class Grid(NamedTuple):
    """Table to display: headings and cells as text. Columns in which every value is None or empty are left out."""

    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    right: frozenset[int]
    """Positions of the columns to align right."""


def grid_of(rows: Sequence[Displayed]) -> Grid:
    lines = [row.cells() for row in rows]
    headings = dict.fromkeys(chain.from_iterable(lines))
    cells = {heading: [line.get(heading, Cell(None, False)) for line in lines] for heading in headings}
    columns = {name: column for name, column in cells.items() if any(cell.value not in (None, "") for cell in column)}
    right = [all(cell.right or _is_number(cell.value) for cell in column) for column in columns.values()]
    texts = [[_word(cell.value) for cell in line] for line in zip(*columns.values(), strict=True)]
    return Grid(list(columns), texts, frozenset(at for at, is_right in enumerate(right) if is_right))


def split(rows: Sequence[AnyRow], every: bool = False) -> tuple[Sequence[AnyRow], Sequence[AnyRow], str]:
    """Return the rows to list, the rows to leave out, and a text that replaces the rows to leave out.

    If more than 20 rows need no attention (`quiet`), these rows are left out, and the text is their `QUIET` with their
    number. If `QUIET` is empty or `every` is True, all rows are listed. Then the text is empty.
    """
    quiet = [row for row in rows if row.QUIET and row.quiet]
    if every or len(quiet) <= _MAX_QUIET:
        return rows, (), ""
    left_out = quiet[0].QUIET.format(tables=f"{len(quiet):,} tables", rows=f"{len(quiet):,}")
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


def utc_minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
