"""Terminal output: results as tables that fit the width of the terminal without cutting names."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from mirrorfeed.display.grid import Displayed, Grid, grid_of, split
from mirrorfeed.display.redact import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_UNLIMITED = 1 << 16
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"
_INDENT = 2
_BETWEEN = 3
"""Characters of border and padding for each column of a table. The right border adds one more character."""
_DEFAULT_WIDTH = 160


def console(*, stderr: bool = False) -> Console:
    """Return a console for standard output or standard error. Lines wrap only on a terminal, not in files."""
    from rich.console import Console

    out = Console(highlight=False, force_jupyter=False, stderr=stderr)
    if not out.is_terminal:
        out.width = _UNLIMITED
    return out


def text(*lines: str, style: str = "") -> Text:
    """Return lines as text for a console. Markup has no effect, and control characters are escaped."""
    from rich.text import Text

    return Text("\n".join(map(printable, lines)), style=style)


def print_table(out: Console, grid: Grid) -> None:
    """Print a table whose first column contains names.

    To fit the console, the other columns wrap between words. A table that is still too wide becomes a list.
    """
    from rich.table import Table

    header, *lines = [tuple(map(printable, cells)) for cells in (grid.header, *grid.lines)]
    columns = list(zip(header, *lines, strict=True))
    widths = fit_columns([_widths(cells, wraps=at > 0) for at, cells in enumerate(columns)], out.width)
    if widths is None:
        for name, *cells in lines:
            out.print(text(*fold_name(name, out.width).split("\n"), style="bold"))
            pairs = [f"{heading}: {cell}; " for heading, cell in zip(header[1:], cells, strict=True) if cell]
            if pairs:
                packed = pack([*pairs[:-1], pairs[-1].removesuffix("; ")], out.width - _INDENT)
                out.print(text(*(" " * _INDENT + line.rstrip() for line in packed)))
        return
    table = Table(header_style="bold")
    for at, (heading, width) in enumerate(zip(header, widths, strict=True)):
        table.add_column(text(heading), width=width, justify="right" if at in grid.right else "left")
    for line in lines:
        table.add_row(*map(text, line))
    out.print(table)


def fit_columns(columns: Sequence[tuple[int, int]], width: int) -> list[int] | None:
    """Return the width of each column of a table of at most `width` characters, or None if the table cannot fit.

    `columns` has the minimum and maximum width of each column. Columns on the right get free space first.
    """
    free = width - 1 - sum(minimum + _BETWEEN for minimum, _ in columns)
    if free < 0:
        return None
    widths: list[int] = []
    for minimum, maximum in reversed(columns):
        more = min(free, maximum - minimum)
        widths.append(minimum + more)
        free -= more
    return widths[::-1]


def _widths(cells: Sequence[str], *, wraps: bool) -> tuple[int, int]:
    """Return the minimum and the maximum width of a column.

    The maximum fits the longest cell. If `wraps` is True, the minimum fits the longest word, so that cells wrap only
    between words. Otherwise, the minimum is the maximum, so that cells do not wrap.
    """
    from rich.cells import cell_len

    maximum = max(map(cell_len, cells))
    if not wraps:
        return maximum, maximum
    words = (word for cell in cells for word in ([cell] if re.fullmatch(_TIME, cell) else cell.split()))
    return max(map(cell_len, words), default=0), maximum


def fold_name(name: str, width: int) -> str:
    """Return a name in lines of at most `width` characters, broken after dots and underscores if possible."""
    parts = re.findall(r"[^._]*[._]|[^._]+$", printable(name))
    return "\n".join(pack([part[at : at + width] for part in parts for at in range(0, len(part), width)], width))


def pack(pieces: Iterable[str], width: int) -> list[str]:
    """Join pieces of text into lines of at most `width` characters. A longer piece becomes a separate line."""
    from rich.cells import cell_len

    lines = [""]
    for piece in pieces:
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def print_remarks(out: Console, row: Displayed, edit: Callable[[str], str] = str) -> None:
    for remark in row.remarks():
        out.print(text(edit(remark), style="" if row.ok else "red"), soft_wrap=True)


def text_of(rows: Sequence[Displayed], notes: Sequence[str] = (), summary: str = "", *, every: bool = False) -> str:
    """Return summary, rows and notes as text with a table that fits the terminal. With `every`, all rows are listed."""
    return text_from(lambda out: draw(out, rows, notes, summary, every=every))


def text_from(draws: Callable[[Console], None]) -> str:
    """Call `draws` with a console that is as wide as the terminal. Return the printed text without styles."""
    from rich.console import Console

    file, width = io.StringIO(), shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
    draws(Console(file=file, width=width, highlight=False, force_jupyter=False, force_terminal=False))
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip("\n").split("\n"))


def draw(
    out: Console,
    rows: Sequence[Displayed],
    notes: Sequence[str] = (),
    summary: str = "",
    *,
    every: bool = False,
    edit: Callable[[str], str] = str,
) -> None:
    """Print the summary, the table of the rows, their remarks and the notes. `edit` changes each line of text.

    If more than 20 rows are `quiet` (need no attention), a line of text replaces these rows, unless `every` is True.
    Lines outside the table do not wrap, so that paths and commands can be copied.
    """
    rows, _, left_out = split(rows, every)
    grid = grid_of(rows)
    for line in filter(None, (summary, left_out)):
        out.print(text(edit(line)), soft_wrap=True)
    if grid.header:
        print_table(out, grid)
    for row in rows:
        print_remarks(out, row, edit)
    for note in notes:
        out.print(text(edit(note)), soft_wrap=True)
