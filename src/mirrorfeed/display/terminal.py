"""Consoles, and tables that fit a terminal without cutting names."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from mirrorfeed.display.printable import printable

if TYPE_CHECKING:  # rich takes longer to import than most commands to be listed
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

_UNFOLDED = 1 << 16
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"
_INDENT = 2
_BETWEEN = 3
"""A table's border and padding for each column; one more at its end."""


def console() -> Console:
    """Return a console for standard output. In logs and files nothing is folded."""
    from rich.console import Console

    return _unfolded(Console(highlight=False, force_jupyter=False))


def error_console() -> Console:
    """Return a console for standard error, beside JSON."""
    from rich.console import Console

    return _unfolded(Console(highlight=False, force_jupyter=False, stderr=True))


def buffer(width: int) -> Console:
    """Return a console that collects its output in `file` and displays nothing in a notebook."""
    from rich.console import Console

    return Console(file=io.StringIO(), width=width, highlight=False, force_jupyter=False, force_terminal=False)


def text(*lines: str, style: str = "") -> Text:
    """Return lines without markup and control characters."""
    from rich.text import Text

    return Text("\n".join(map(printable, lines)), style=style)


def _unfolded(found: Console) -> Console:
    if not found.is_terminal:
        found.width = _UNFOLDED
    return found


@contextmanager
def copy_of_standard_error() -> Iterator[TextIO]:
    """Yield a copy of standard error, because standard error itself is redirected while Spark starts."""
    try:
        own = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # it is not a file
        yield sys.stderr
        return
    with os.fdopen(own, "w", encoding="utf-8", errors="replace") as file:
        yield file


@dataclass(frozen=True)
class Listing:
    """A table of texts whose first column has names.

    Cells are folded between words, but not names. If the table still does not fit, a list takes its place.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int]
    """The columns to align right."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        header, *rows = [tuple(map(printable, cells)) for cells in (self.header, *self.rows)]
        yield from Listing(header, rows, self.right)._lay_out(options.max_width)

    def _lay_out(self, width: int) -> Iterator[Table | Text]:
        columns = list(zip(self.header, *self.rows, strict=True))
        widths = fitting([_widths(cells, whole=not at) for at, cells in enumerate(columns)], width)
        yield from [self._table(widths)] if widths else self._list(width)

    def _table(self, widths: Sequence[int]) -> Table:
        from rich.table import Table

        table = Table(header_style="bold")
        for at, (name, width) in enumerate(zip(self.header, widths, strict=True)):
            table.add_column(name, width=width, justify="right" if at in self.right else "left")
        for row in self.rows:
            table.add_row(*map(text, row))
        return table

    def _list(self, width: int) -> Iterator[Text]:
        for name, *cells in self.rows:
            yield text(*folded(name, width).split("\n"), style="bold")
            pairs = [f"{what}: {cell}; " for what, cell in zip(self.header[1:], cells, strict=True) if cell]
            lines = packed([*pairs[:-1], pairs[-1].removesuffix("; ")], width - _INDENT)
            yield text(*(" " * _INDENT + line.rstrip() for line in lines))


def fitting(columns: Sequence[tuple[int, int]], width: int) -> list[int] | None:
    """Return the width of each column from its minimum and maximum, or None if the minimums do not fit.

    Columns on the right are widened first.
    """
    left = width - 1 - sum(least + _BETWEEN for least, _ in columns)
    if left < 0:
        return None
    widths: list[int] = []
    for least, most in reversed(columns):
        more = min(left, most - least)
        widths.append(least + more)
        left -= more
    return widths[::-1]


def _words(cell: str) -> Sequence[str]:
    """Return the parts of a cell that stay on one line."""
    return [cell] if re.fullmatch(_TIME, cell) else cell.split() or [""]


def _widths(cells: Sequence[str], *, whole: bool) -> tuple[int, int]:
    from rich.cells import cell_len

    most = max(map(cell_len, cells))
    return most if whole else max(cell_len(word) for cell in cells for word in _words(cell)), most


def folded(name: str, width: int) -> str:
    """Fold a name to lines of at most `width`, preferably after dots and underscores."""
    parts = re.findall(r"[^._]*[._]|[^._]+$", printable(name))
    return "\n".join(packed([part[at : at + width] for part in parts for at in range(0, len(part), width)], width))


def packed(pieces: Iterable[str], width: int) -> list[str]:
    """Join pieces to lines of at most `width`. A longer piece has its own line."""
    from rich.cells import cell_len

    lines = [""]
    for piece in pieces:
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return lines
