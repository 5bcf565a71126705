"""Results as people see them: a table in a notebook, a table in a terminal."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from html import escape

Cells = Mapping[str, object]
"""By their headings; what is not known is None."""

_COLUMNS_AT_MOST = 160
_CSS = """
.mirrorfeed{font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.mirrorfeed table{border-collapse:collapse;margin:0}
.mirrorfeed th,.mirrorfeed td{padding:5px 14px 5px 0;text-align:left;vertical-align:top;border:0;
border-bottom:1px solid #8884;background:none}
.mirrorfeed th{font-weight:600;opacity:.7;white-space:nowrap}
.mirrorfeed .n{text-align:right;font-variant-numeric:tabular-nums}
.mirrorfeed p{margin:8px 0 0;max-width:110ch;white-space:pre-line}
.mirrorfeed .bad{color:#c8372d}
"""


def as_html(rows: Sequence[Cells], remarks: Sequence[str], notes: Sequence[str], nothing: str) -> str:
    """A fragment for a page of another's: its styles reach nothing beside it."""
    header, lines = _known(rows)
    numbers = [all(isinstance(row[at], int | float | None) for row in lines) for at in range(len(header))]
    head = "".join(f"<th{_class(n)}>{escape(name)}</th>" for name, n in zip(header, numbers, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, numbers))}</tr>" for row in lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if lines else f"<p>{nothing}</p>"
    said = [f'<p class="bad">{escape(each)}</p>' for each in remarks] + [f"<p>{escape(each)}</p>" for each in notes]
    return f'<div class="mirrorfeed"><style>{_CSS}</style>{table}{"".join(said)}</div>'


def as_text(rows: Sequence[Cells], remarks: Sequence[str], notes: Sequence[str], nothing: str) -> str:
    """As the commands print it."""
    from rich.console import Console

    from mirrorfeed.display.terminal import Listing

    header, lines = _known(rows)
    if not lines:
        return "\n".join([nothing, *remarks, *notes])
    numbers = [at for at in range(len(header)) if all(isinstance(row[at], int | float | None) for row in lines)]
    order = [at for at in range(len(header)) if at not in numbers] + numbers
    cells = [[_word(row[at]) for at in order] for row in lines]
    width = shutil.get_terminal_size((_COLUMNS_AT_MOST, 24)).columns
    out = Console(file=io.StringIO(), width=width, highlight=False)
    out.print(Listing([header[at] for at in order], cells, right=len(order) - len(numbers)))
    drawn = out.file.getvalue() if isinstance(out.file, io.StringIO) else ""
    return "\n".join([drawn.rstrip("\n"), *remarks, *notes])


def _known(rows: Sequence[Cells]) -> tuple[list[str], list[list[object]]]:
    """Headings and lines, without columns of which nothing is known."""
    header = [name for name in (rows[0] if rows else ()) if any(row[name] not in (None, "") for row in rows)]
    return header, [[row[name] for name in header] for row in rows]


def _word(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return "-" if cell is None else str(cell)


def _cell(value: object, number: bool) -> str:
    return f"<td{_class(number)}>{escape(_word(value))}</td>"


def _class(number: bool) -> str:
    return ' class="n"' if number else ""
