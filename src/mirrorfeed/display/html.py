"""HTML of tables and charts: as a fragment for a notebook, or as a page in one file.

The styles apply to nothing else on the page of a notebook.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mirrorfeed.display.printable import escape_html

STYLE = """
.mirrorfeed{font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
--soft:#7d8796;--line:#7d879644;--bad:#c8372d;--c0:#2f6fd6;--c1:#e08a1e;--c2:#1d9a73;--c3:#c2408f;--c4:#7a5bd6;
--c5:#5aa3d8;--c6:#a8871a;--c7:#8a5a44;--rest:#a7afbd}
.mirrorfeed table{border-collapse:collapse;margin:0}
.mirrorfeed th,.mirrorfeed td{padding:5px 14px 5px 0;text-align:left;vertical-align:top;border:0;
border-bottom:1px solid var(--line);background:none}
.mirrorfeed th{font-weight:600;opacity:.7;white-space:nowrap}
.mirrorfeed .n{text-align:right;font-variant-numeric:tabular-nums}
.mirrorfeed p{margin:8px 0 0;max-width:110ch;white-space:pre-line}
.mirrorfeed .bad{color:var(--bad)}
.mirrorfeed h1{margin:0;font-size:22px}
.mirrorfeed h2{margin:0 0 10px;font-size:14px;font-weight:600}
.mirrorfeed header p,.mirrorfeed .tile,.mirrorfeed .legend{color:var(--soft)}
.mirrorfeed .tiles,.mirrorfeed .charts{display:grid;gap:14px;margin:14px 0}
.mirrorfeed .tiles{grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}
.mirrorfeed .charts{grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr))}
.mirrorfeed .tile,.mirrorfeed section{border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.mirrorfeed .tile b{display:block;font-size:26px;font-weight:600;line-height:1.2;color:CanvasText}
.mirrorfeed section{overflow-x:auto;margin:0 0 14px}
.mirrorfeed .charts section{margin:0}
.mirrorfeed svg{display:block;width:100%;max-width:760px;height:auto}
.mirrorfeed svg text{font-size:11px;fill:var(--soft)}
.mirrorfeed .grid{stroke:var(--line)}.mirrorfeed .axis{stroke:var(--soft)}
.mirrorfeed .line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}
.mirrorfeed .dot,.mirrorfeed .bar{fill:currentColor}
.mirrorfeed .dense{opacity:0}.mirrorfeed .dense:hover{opacity:1}
.mirrorfeed .key{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;background:currentColor}
.mirrorfeed .rest{color:var(--rest)}
.mirrorfeed .legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:12px}
""" + "".join(f".mirrorfeed .c{n}{{color:var(--c{n})}}" for n in range(8))
_PAGE = """
:root{color-scheme:light dark}
body{margin:0 auto;padding:24px;max-width:1400px}
@media(prefers-color-scheme:dark){.mirrorfeed{--bad:#ff7b72;--c0:#6ea3ff;--c1:#f0a848;--c2:#4cc79d;--c3:#e884c0;
--c4:#a893f2;--c5:#8cc8f0;--c6:#d2b04a;--c7:#c7947a;--rest:#667085}}
"""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, which a notebook shows."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<a chart, which a notebook shows: {self.title}>"

    def _repr_html_(self) -> str:
        return framed(titled(self.title, self.html))


def framed(body: str) -> str:
    """Return a fragment with its styles."""
    return f'<div class="mirrorfeed"><style>{STYLE}</style>{body}</div>'


def page_of(title: str, body: str) -> str:
    """Return a page in one file, in light or dark colors as the reader prefers."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape_html(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<style>{STYLE}{_PAGE}</style></head><body class="mirrorfeed">{body}</body></html>\n'
    )


def titled(title: str, chart: str) -> str:
    """Return a chart below its title."""
    return f"<h2>{escape_html(title)}</h2>{chart}"


def card(title: str, content: str) -> str:
    """Return a section of a page."""
    return f"<section>{titled(title, content)}</section>"


def table(header: Sequence[str], lines: Iterable[Sequence[str]], right: Collection[int], bad: Collection[int]) -> str:
    """Return a table; `right` are the columns to align right, `bad` the lines to mark as errors."""
    body = "".join(_row("td", line, right, "bad" if at in bad else "") for at, line in enumerate(lines))
    return f"<table><thead>{_row('th', header, right)}</thead><tbody>{body}</tbody></table>" if header else ""


def paragraph(text: str, *, good: bool = True) -> str:
    return _element("p", escape_html(text), "" if good else "bad")


def _row(tag: str, texts: Sequence[str], right: Collection[int], style: str = "") -> str:
    cells = (_element(tag, escape_html(text), "n" if at in right else "") for at, text in enumerate(texts))
    return _element("tr", "".join(cells), style)


def _element(tag: str, content: str, style: str) -> str:
    attribute = f' class="{style}"' if style else ""
    return f"<{tag}{attribute}>{content}</{tag}>"
