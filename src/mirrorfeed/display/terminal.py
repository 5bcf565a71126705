"""Output for a terminal or for a log: widths, long names, and what is going on while nothing else is to be said."""

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
    """For standard output. What is not a terminal is a log or a file, in which nothing is folded."""
    from rich.console import Console

    return _unfolded(Console(highlight=False, force_jupyter=False))


def error_console() -> Console:
    """The same for standard error, beside output for programs."""
    from rich.console import Console

    return _unfolded(Console(highlight=False, force_jupyter=False, stderr=True))


def buffer(width: int) -> Console:
    """A console whose output is in its `file`. In a notebook it displays nothing."""
    from rich.console import Console

    return Console(file=io.StringIO(), width=width, highlight=False, force_jupyter=False, force_terminal=False)


def text(*lines: str, style: str = "") -> Text:
    """These lines: no value in them starts another, is taken for markup or acts on the terminal."""
    from rich.text import Text

    return Text("\n".join(map(printable, lines)), style=style)


def _unfolded(found: Console) -> Console:
    if not found.is_terminal:
        found.width = _UNFOLDED
    return found


@contextmanager
def own_standard_error() -> Iterator[TextIO]:
    """A stream of its own to where standard error goes now, for it is led elsewhere while Spark starts."""
    try:
        own = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # there is no file behind it
        yield sys.stderr
        return
    with os.fdopen(own, "w", encoding="utf-8", errors="replace") as file:
        yield file


@dataclass(frozen=True)
class Listing:
    """A table of texts, the first column names. Cells are folded between words, names last of all: where not even that
    makes it fit, a list takes its place, in which each name has its own line."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int]
    """The columns to align right, which hold numbers."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        header, *rows = [tuple(map(printable, cells)) for cells in (self.header, *self.rows)]
        yield from Listing(header, rows, self.right)._drawn(options.max_width)

    def _drawn(self, width: int) -> Iterator[Table | Text]:
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
            told = [f"{what}: {cell}; " for what, cell in zip(self.header[1:], cells, strict=True) if cell]
            lines = packed([*told[:-1], told[-1].removesuffix("; ")], width - _INDENT)
            yield text(*(" " * _INDENT + line.rstrip() for line in lines))


def fitting(columns: Sequence[tuple[int, int]], width: int) -> list[int] | None:
    """The width of each column, given its least and its most; None where the least are too much together. Those on the
    right come first to what is left."""
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
    """The parts between which a cell may be folded."""
    return [cell] if re.fullmatch(_TIME, cell) else cell.split() or [""]


def _widths(cells: Sequence[str], *, whole: bool) -> tuple[int, int]:
    from rich.cells import cell_len

    most = max(map(cell_len, cells))
    return most if whole else max(cell_len(word) for cell in cells for word in _words(cell)), most


def folded(name: str, width: int) -> str:
    """A name in lines that are no longer than this, broken after dots and underscores where it has any."""
    parts = re.findall(r"[^._]*[._]|[^._]+$", printable(name))
    return "\n".join(packed([part[at : at + width] for part in parts for at in range(0, len(part), width)], width))


def packed(pieces: Iterable[str], width: int) -> list[str]:
    """As many pieces in each line as fit; one that is longer has a line of its own."""
    from rich.cells import cell_len

    lines = [""]
    for piece in pieces:
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return lines
