"""Terminal output: consoles, and results as tables that fit the width without cutting names."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorfeed.display.redact import printable
from mirrorfeed.display.rows import Row, grid_of, split

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

_UNFOLDED = 1 << 16
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"
_INDENT = 2
_BETWEEN = 3
"""Width of a table's border and padding for each column. The right border adds one more."""


def console(*, stderr: bool = False) -> Console:
    """Return a console for standard output, or for standard error if JSON is printed. In logs and files nothing is
    folded."""
    from rich.console import Console

    found = Console(highlight=False, force_jupyter=False, stderr=stderr)
    if not found.is_terminal:
        found.width = _UNFOLDED
    return found


def buffer(width: int) -> Console:
    """Return a console that collects its output in `file` and displays nothing in a notebook."""
    from rich.console import Console

    return Console(file=io.StringIO(), width=width, highlight=False, force_jupyter=False, force_terminal=False)


def text(*lines: str, style: str = "") -> Text:
    """Return lines without markup and control characters."""
    from rich.text import Text

    return Text("\n".join(map(printable, lines)), style=style)


@dataclass(frozen=True)
class Listing:
    """A table of texts whose first column contains names.

    Cells are folded between words, but names are not. If the table still does not fit, a list is shown instead.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int]
    """Columns to align right."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        header, *rows = [tuple(map(printable, cells)) for cells in (self.header, *self.rows)]
        shown, columns = Listing(header, rows, self.right), list(zip(header, *rows, strict=True))
        widths = fitting(
            [_widths(cells, keep_words_whole=not at) for at, cells in enumerate(columns)], options.max_width
        )
        yield from [shown._table(widths)] if widths else shown._list(options.max_width)

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
    """Return the parts of a cell that must stay on one line."""
    return [cell] if re.fullmatch(_TIME, cell) else cell.split() or [""]


def _widths(cells: Sequence[str], *, keep_words_whole: bool) -> tuple[int, int]:
    from rich.cells import cell_len

    most = max(map(cell_len, cells))
    return most if keep_words_whole else max(cell_len(word) for cell in cells for word in _words(cell)), most


def folded(name: str, width: int) -> str:
    """Fold a name to lines of at most `width`, preferably after dots and underscores."""
    parts = re.findall(r"[^._]*[._]|[^._]+$", printable(name))
    return "\n".join(packed([part[at : at + width] for part in parts for at in range(0, len(part), width)], width))


def packed(pieces: Iterable[str], width: int) -> list[str]:
    """Join pieces to lines of at most `width`. A longer piece gets a separate line."""
    from rich.cells import cell_len

    lines = [""]
    for piece in pieces:
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return lines


_WIDEST = 160


def text_of(rows: Sequence[Row], notes: Sequence[str] = (), summary: str = "", *, every: bool = False) -> str:
    """Return the text for `print`, `repr` and logs, as wide as the terminal."""
    return text_from(lambda out: draw(out, rows, notes, summary, every=every))


def text_from(draws: Callable[[Console], None]) -> str:
    out = buffer(shutil.get_terminal_size((_WIDEST, 24)).columns)
    draws(out)
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().rstrip("\n").split("\n"))


def draw(
    out: Console, rows: Sequence[Row], notes: Sequence[str] = (), summary: str = "", *, every: bool = False
) -> None:
    """Print the summary, the table, the remarks of its rows and the notes. With `every`, list many quiet rows too.

    Only tables are folded: paths and commands in other lines can be copied.
    """
    rows, _, left_out = split(rows, every)
    grid = grid_of(rows)
    for line in filter(None, (summary, left_out)):
        out.print(text(line), soft_wrap=True)
    if grid.header:
        out.print(Listing(grid.header, grid.lines, right=grid.right))
    for row in rows:
        for remark in row.remarks():
            out.print(text(remark, style="" if row.ok else "red"), soft_wrap=True)
    for note in notes:
        out.print(text(note), soft_wrap=True)
