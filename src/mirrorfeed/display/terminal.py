"""Terminal output: consoles, tables that fit the width without cutting names, and progress of a command."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Timer
from typing import TYPE_CHECKING, TextIO

from mirrorfeed.display.redact import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.status import Status
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


@contextmanager
def copy_of_standard_error() -> Iterator[TextIO]:
    """Yield a copy of standard error, because standard error itself is redirected while Spark starts."""
    try:
        own = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # standard error is not a file
        yield sys.stderr
        return
    with os.fdopen(own, "w", encoding="utf-8", errors="replace") as file:
        yield file


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
        widths = fitting([_widths(cells, whole=not at) for at, cells in enumerate(columns)], options.max_width)
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


def _widths(cells: Sequence[str], *, whole: bool) -> tuple[int, int]:
    from rich.cells import cell_len

    most = max(map(cell_len, cells))
    return most if whole else max(cell_len(word) for cell in cells for word in _words(cell)), most


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


progress = logging.getLogger("mirrorfeed.progress")
_MOMENT = 0.1
"""Seconds. Shorter steps are not shown."""


class ProgressHandler(logging.Handler):
    """Shows the newest progress message, with a spinner on a terminal or as a line elsewhere."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._timer: Timer | None = None
        self._spinner: Status | None = None
        self.muted = False
        """True while something else is shown, such as progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stop()
        if not self.muted:
            self._timer = Timer(_MOMENT, self._show, (record.getMessage(),))
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Remove the message that is shown."""
        with self.lock or nullcontext():
            if self._timer:
                self._timer.cancel()
                self._timer.join()
            if self._spinner:
                self._spinner.stop()
            self._timer = self._spinner = None

    def mute(self) -> None:
        self.muted = True
        self.stop()

    def _show(self, message: str) -> None:
        if not self._file.isatty():
            print(f"{printable(message)} …", file=self._file, flush=True)
            return
        from rich.console import Console

        self._spinner = Console(file=self._file, highlight=False, force_jupyter=False).status(text(message))
        self._spinner.start()


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """Report progress, and remove the message before anything else is printed."""
    progress.info(message)
    try:
        yield
    finally:
        for handler in progress.handlers:
            if isinstance(handler, ProgressHandler):
                handler.stop()


@contextmanager
def progress_shown() -> Iterator[ProgressHandler]:
    """Show progress on standard error in this context, unless progress is logged there."""
    level, logged = progress.level, progress.isEnabledFor(logging.INFO)
    with copy_of_standard_error() as file:
        handler = ProgressHandler(file)
        handler.muted = logged
        progress.addHandler(handler)
        progress.setLevel(logging.INFO)
        try:
            yield handler
        finally:
            progress.removeHandler(handler)
            progress.setLevel(level)
            handler.stop()
