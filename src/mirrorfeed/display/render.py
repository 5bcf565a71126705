"""Draws a result: as a table for a terminal, as HTML for a notebook, or as JSON."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from mirrorfeed.display.html import framed, paragraph, table
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.rows import Row

if TYPE_CHECKING:
    from rich.console import Console

_WIDEST = 160
_LISTED = 20
"""More quiet rows than these are counted, not listed."""


class Shown(Protocol):
    """A result, as far as it is drawn."""

    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def summary(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


class Grid(NamedTuple):
    """The cells of a table as texts, without columns in which nothing is known."""

    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    right: frozenset[int]
    """The columns to align right."""


def render(result: Shown, to: Literal["terminal", "html", "json"]) -> str:
    if to == "json":
        return json.dumps(result.to_dict(), indent=2, ensure_ascii=False)
    draw = html_of if to == "html" else text_of
    return draw(result.rows, result.notes, result.summary)


def text_of(rows: Sequence[Row], notes: Sequence[str] = (), summary: str = "") -> str:
    """The text for `print`, `repr` and logs, as wide as the terminal."""
    return text_from(lambda out: draw(out, rows, notes, summary))


def text_from(draws: Callable[[Console], None]) -> str:
    from mirrorfeed.display.terminal import buffer

    out = buffer(shutil.get_terminal_size((_WIDEST, 24)).columns)
    draws(out)
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().rstrip("\n").split("\n"))


def draw(out: Console, rows: Sequence[Row], notes: Sequence[str] = (), summary: str = "") -> None:
    """Prints the summary, the table, the remarks of its rows and the notes. Only tables are folded: paths and commands
    in the lines can be copied."""
    from mirrorfeed.display.terminal import Listing, text

    rows, left_out = _listed(rows)
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


def html_of(rows: Sequence[Row], notes: Sequence[str] = (), summary: str = "") -> str:
    return framed(section_of(rows, notes, summary))


def section_of(rows: Sequence[Row], notes: Sequence[str] = (), summary: str = "") -> str:
    """The HTML without styles. Rows that are not ok are marked."""
    rows, left_out = _listed(rows)
    grid = grid_of(rows)
    bad = [at for at, row in enumerate(rows) if not row.ok]
    parts = [paragraph(line) for line in (summary, left_out) if line]
    parts.append(table(grid.header, grid.lines, grid.right, bad))
    parts += [paragraph(remark, good=row.ok) for row in rows for remark in row.remarks()]
    return "".join([*parts, *map(paragraph, notes)])


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


def _listed(rows: Sequence[Row]) -> tuple[Sequence[Row], str]:
    """The rows to list, and the number of the others in words."""
    quiet = [row for row in rows if row.QUIET and row.quiet]
    if len(quiet) <= _LISTED:
        return rows, ""
    return [row for row in rows if not row.quiet], quiet[0].QUIET.format(tables=counted(len(quiet), "table"))


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
