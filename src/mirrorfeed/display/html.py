"""HTML of a result, as a fragment for the page of a notebook."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mirrorfeed.display.printable import escape_html

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


def table_as_html(
    header: Sequence[str],
    lines: Sequence[Sequence[str]],
    right: Collection[int],
    above: Sequence[str],
    below: Sequence[tuple[str, bool]],
) -> str:
    """A table with the lines above and below it, and whether each line below is good news. The styles apply to nothing
    else on the page."""
    head = _row("th", header, right)
    body = "".join(_row("td", line, right) for line in lines)
    table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>" if header else ""
    before = "".join(_element("p", line) for line in above)
    after = "".join(_element("p", line, "" if good else "bad") for line, good in below)
    return f'<div class="mirrorfeed"><style>{_CSS}</style>{before}{table}{after}</div>'


def _row(tag: str, texts: Sequence[str], right: Collection[int]) -> str:
    cells = "".join(_element(tag, text, "n" if at in right else "") for at, text in enumerate(texts))
    return f"<tr>{cells}</tr>"


def _element(tag: str, text: str, style: str = "") -> str:
    attribute = f' class="{style}"' if style else ""
    return f"<{tag}{attribute}>{escape_html(text)}</{tag}>"
