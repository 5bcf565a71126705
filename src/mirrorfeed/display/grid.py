"""Tables to display: headings, and the cells of rows as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

from mirrorfeed.display.row_limit import MANY


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


EMPTY = "-"
"""Text of a cell without a value."""
AnyRow = TypeVar("AnyRow", bound=Displayed)


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

    If more than 20 rows with the same `QUIET` need no attention (`quiet`), these rows are left out, and the text is
    their `QUIET` with their number. Then rows that are not `ok` are listed first. If `QUIET` is empty or `every` is
    True, all rows are listed in their order. Then the text is empty.
    """
    counts = Counter(row.QUIET for row in rows if row.QUIET and row.quiet)
    many = {} if every else {text: count for text, count in counts.items() if count > MANY}
    if not many:
        return rows, (), ""
    left_out = [row for row in rows if row.quiet and row.QUIET in many]
    listed = [row for row in rows if not (row.quiet and row.QUIET in many)]
    texts = [text.format(tables=f"{count:,} tables", rows=f"{count:,}") for text, count in many.items()]
    return sorted(listed, key=lambda row: row.ok), left_out, " ".join(texts)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _word(value: object) -> str:
    match value:
        case None:
            return EMPTY
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
