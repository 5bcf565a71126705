"""HTML tables, and line and bar charts as SVG: fragments for notebooks, or pages in a single file.

The styles do not affect other content in a notebook. In a chart, the first eight series have the CSS classes `c0` to
`c7`, each with a separate color. All other series have the class `rest` and share one color.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mirrorfeed.display.grid import EMPTY, Displayed, grid_of, split, utc_minute
from mirrorfeed.display.redact import escape_html

STYLE = """
.mirrorfeed{font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
--soft:#7d8796;--line:#7d879644;--bad:#c8372d;--c0:#2f6fd6;--c1:#e08a1e;--c2:#1d9a73;--c3:#c2408f;--c4:#7a5bd6;
--c5:#5aa3d8;--c6:#a8871a;--c7:#8a5a44;--rest:#a7afbd}
.mirrorfeed table{border-collapse:collapse;margin:0}
.mirrorfeed th,.mirrorfeed td{padding:5px 14px 5px 0;text-align:left;vertical-align:top;border:0;
border-bottom:1px solid var(--line);background:none}
.mirrorfeed th{font-weight:600;opacity:.7;vertical-align:bottom}
.mirrorfeed .n{text-align:right;font-variant-numeric:tabular-nums}
.mirrorfeed tr>:last-child{padding-right:0}
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
.mirrorfeed .tile b.long{font-size:19px;line-height:31px}
.mirrorfeed section{overflow-x:auto;margin:0 0 14px}
.mirrorfeed .charts section{margin:0}
.mirrorfeed svg{display:block;width:100%;max-width:760px;height:auto;overflow:visible}
.mirrorfeed svg text{font-size:11px;fill:var(--soft)}
.mirrorfeed .grid{stroke:var(--line)}.mirrorfeed .axis{stroke:var(--soft)}
.mirrorfeed .line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}
.mirrorfeed .dot,.mirrorfeed .bar{fill:currentColor}
.mirrorfeed .dense{opacity:0}.mirrorfeed .dense:hover{opacity:1}
.mirrorfeed .key{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;background:currentColor}
.mirrorfeed .rest{color:var(--rest)}.mirrorfeed .line.rest{opacity:.3}
.mirrorfeed summary{cursor:pointer;margin:8px 0;color:var(--soft)}
.mirrorfeed .line.c1{stroke-dasharray:8 5}.mirrorfeed .line.c2{stroke-dasharray:3 4}
.mirrorfeed .line.c3{stroke-dasharray:14 7}.mirrorfeed .line.c4{stroke-dasharray:9 4 2 4}
.mirrorfeed .line.c5{stroke-dasharray:2 7}.mirrorfeed .line.c6{stroke-dasharray:5 9}
.mirrorfeed .line.c7{stroke-dasharray:16 4 4 4}
.mirrorfeed .legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:12px}
@media(max-width:600px){.mirrorfeed svg text{font-size:22px}.mirrorfeed svg .second{display:none}
.mirrorfeed section{padding:12px 10px}}
""" + "".join(f".mirrorfeed .c{n}{{color:var(--c{n})}}" for n in range(8))
_PAGE = """
:root{color-scheme:light dark}
body{margin:0 auto;padding:24px;max-width:1400px}
@media(prefers-color-scheme:dark){.mirrorfeed{--bad:#ff7b72;--c0:#6ea3ff;--c1:#f0a848;--c2:#4cc79d;--c3:#e884c0;
--c4:#a893f2;--c5:#8cc8f0;--c6:#d2b04a;--c7:#c7947a;--rest:#667085}}
@media(max-width:600px){body{padding:12px}}
@media(max-width:950px){
.mirrorfeed thead{display:none}
.mirrorfeed table,.mirrorfeed tbody,.mirrorfeed tr{display:block}
.mirrorfeed tr{padding:8px 0;border-bottom:1px solid var(--line)}
.mirrorfeed td,.mirrorfeed .n{display:inline-block;padding:0 16px 0 0;border:0;text-align:left;overflow-wrap:anywhere}
.mirrorfeed .empty{display:none}
.mirrorfeed td:first-child{display:block;font-weight:600}
.mirrorfeed td:not(:first-child)::before{content:attr(data-label) " ";opacity:.7}}
"""


@dataclass(frozen=True, slots=True)
class Chart:
    """Chart as HTML for notebooks."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<a chart, which a notebook shows: {self.title}>"

    def _repr_html_(self) -> str:
        return styled(titled(self.title, self.html))


def styled(body: str) -> str:
    """Return the HTML of a notebook cell: `body` with the CSS styles that it needs."""
    return f'<div class="mirrorfeed"><style>{STYLE}</style>{body}</div>'


def page_of(title: str, body: str) -> str:
    """Return a complete HTML page with light or dark colors, depending on the settings of the browser."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape_html(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<style>{STYLE}{_PAGE}</style></head><body class="mirrorfeed">{body}</body></html>\n'
    )


def titled(title: str, content: str) -> str:
    return f"<h2>{escape_html(title)}</h2>{content}"


def card(title: str, content: str) -> str:
    """Return the HTML of a section of a page. `content` is HTML."""
    return f"<section>{titled(title, content)}</section>"


def details(title: str, content: str) -> str:
    """Return HTML in which `content`, also HTML, is hidden until a click on the title."""
    return f"<details><summary>{escape_html(title)}</summary>{content}</details>"


def paragraph(text: str, *, good: bool = True) -> str:
    return _element("p", escape_html(text), "" if good else "bad")


def _row(
    tag: str, texts: Sequence[str], right: Collection[int], style: str = "", labels: Sequence[str] | None = None
) -> str:
    """Return a row of a table. With `labels`, a page for a narrow screen shows them next to the cells."""
    cells = []
    for at, text in enumerate(texts):
        kind = "n" if at in right else ""
        if labels and text == EMPTY:
            kind = f"{kind} empty".strip()
        cells.append(_element(tag, escape_html(text), kind, labels[at] if labels else ""))
    return _element("tr", "".join(cells), style)


def _element(tag: str, content: str, style: str, label: str = "") -> str:
    attribute = f' class="{style}"' if style else ""
    if label:
        attribute += f' data-label="{escape_html(label)}"'
    return f"<{tag}{attribute}>{content}</{tag}>"


COLORS = 8
"""Number of series with a separate color. All others share one color."""

_WIDTH, _HEIGHT = 640, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 26, 54
_HALF_LABEL = 46
"""Half the width of the longest label of a time on a narrow screen, such as 12:30:15."""
_LABELS = 6
"""Maximum number of labels below the bars. With more bars, only some bars have a label."""
_LEAST = timedelta(minutes=1)
"""Minimum length of the time axis."""
_LABELS_ON_A_PHONE = 5
"""With more labels below a chart, a narrow screen shows every second one."""
_RING = 1
"""Width of the ring that stays visible of a point below an equal point of another series."""
_RINGS = 3
"""Number of series with such rings."""
_DENSE = 60
"""A line with more points than this, or with the shared color, shows a point only under the pointer."""
_NO_DATA = "<p>No data yet.</p>"


def lines(series: Mapping[str, Mapping[datetime, float]], unit: str) -> str:
    """Return the HTML of a line chart. `series` has the values of each line, in ascending order of time."""
    times = [time for points in series.values() for time in points]
    if not times:
        return _NO_DATA
    start, end = min(times), max(times)
    if end - start < _LEAST:
        middle, width = start + (end - start) / 2, _LEAST if end > start else timedelta(hours=2)
        start, end = middle - width / 2, middle + width / 2
    steps = ticks(max(value for points in series.values() for value in points.values()))
    span = (end - start).total_seconds()

    def x(time: datetime) -> float:
        return _LEFT + (time - start).total_seconds() / span * (_WIDTH - _LEFT - _RIGHT)

    labels = [(x(time), label) for time, label in time_ticks(start, end)]
    shapes = [*_value_axis(steps, unit), *_tick_labels(labels)]
    first, last = (time.astimezone(UTC).date() for time in (start, end))
    shapes.append(_axis_label(f"time on {first}, UTC" if first == last else "time, UTC"))
    # The series with the largest values get the colors.
    names = sorted(series, key=lambda name: (-max(series[name].values()), name))
    ordered = list(enumerate(names))
    # Colored lines are drawn on top of the others, and dashed lines on top of solid ones, so that no line is hidden.
    for color, name in [*ordered[COLORS:], *ordered[:COLORS]]:
        points = [(f"{x(time):.1f}", f"{_y(value, steps):.1f}", time, value) for time, value in series[name].items()]
        shade = _shade(color)
        dot = f"dot {shade} dense" if len(points) > _DENSE or color >= COLORS else f"dot {shade}"
        radius = 2.5 + _RING * max(0, min(len(names), _RINGS) - 1 - color)  # the point on top is the smallest
        path = " ".join(f"{cx},{cy}" for cx, cy, *_ in points)
        shapes.append(f'<polyline class="line {shade}" points="{path}"/>')
        shapes += [
            f'<circle class="{dot}" cx="{cx}" cy="{cy}" r="{radius:.1f}">'
            f"{_tooltip(name, utc_minute(time), value, unit)}</circle>"
            for cx, cy, time, value in points
        ]
    return _figure(shapes, names)


def bars(
    columns: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str], unit: str, axis_label: str = ""
) -> str:
    """Return the HTML of a stacked bar chart.

    `columns` lists the bars from left to right: the label of each bar, and a mapping from the names of its parts to
    their sizes. `kinds` lists the names of the parts from bottom to top.
    """
    if not columns:
        return _NO_DATA
    steps = ticks(max(sum(parts.get(kind, 0) for kind in kinds) for _, parts in columns))
    slot = (_WIDTH - _LEFT - _RIGHT) / len(columns)
    width = min(slot * 0.7, 48)
    shapes = [*_value_axis(steps, unit), _axis_label(axis_label)]
    every = math.ceil(len(columns) / _LABELS)
    middles = [_LEFT + (n + 0.5) * slot for n in range(len(columns))]
    shapes += _tick_labels([(x, label) for x, (label, _) in list(zip(middles, columns, strict=True))[::every]])
    for middle, (label, parts) in zip(middles, columns, strict=True):
        below = 0.0
        for color, kind in enumerate(kinds):
            if value := parts.get(kind, 0):
                high, low = _y(below + value, steps), _y(below, steps)
                shapes.append(
                    f'<rect class="bar {_shade(color)}" x="{middle - width / 2:.1f}" y="{high:.1f}" width="{width:.1f}"'
                    f' height="{max(low - high, 0.5):.1f}">{_tooltip(label, kind, value, unit)}</rect>'
                )
                below += value
    used_kinds = {kind for _, parts in columns for kind, value in parts.items() if value}
    return _figure(shapes, [kind if kind in used_kinds else "" for kind in kinds])


def ticks(largest: float) -> list[float]:
    """Return the round values to mark on an axis, from zero to at least `largest`."""
    if largest <= 0:
        return [0.0, 1.0]
    rough = largest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999999)
    return [step * n for n in range(math.ceil(largest / step - 1e-9) + 1)]


def time_ticks(start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Return the round times to mark on a time axis from `start` to `end`, with their labels."""
    span = end - start
    minutes = (0.25, 0.5, 1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10080)
    steps = [timedelta(minutes=each) for each in minutes]
    step = next((step for step in steps if span / step <= 7), timedelta(days=math.ceil(span.days / 7)))
    zero = datetime(2024, 1, 1, tzinfo=UTC)  # a Monday
    first = zero + math.ceil((start - zero) / step) * step
    labels: list[tuple[datetime, str]] = []
    for time in (first + n * step for n in range((end - first) // step + 1)):
        is_midnight = time.hour == time.minute == time.second == 0
        clock = f"{time:%H:%M:%S}" if step < timedelta(minutes=1) else f"{time:%H:%M}"
        labels.append((time, f"{time:%b} {time.day}" if is_midnight else clock))
    return labels


def number(value: float) -> str:
    """Return a number as a short text for an axis, such as 1.5M."""
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / unit:.3g}{letter}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


def noun(name: str, value: float) -> str:
    """Return the plural noun `name` or, if `value` is 1, its singular."""
    return re.sub(r"^(\w+)s\b", r"\1", name) if value == 1 else name


def _tooltip(name: str, part: str, value: float, unit: str) -> str:
    return f"<title>{escape_html(f'{name}, {part}: {number(value)} {noun(unit, value)}')}</title>"


def _shade(color: int) -> str:
    return f"c{color}" if color < COLORS else "rest"


def _y(value: float, steps: Sequence[float]) -> float:
    return _HEIGHT - _BOTTOM - value / steps[-1] * (_HEIGHT - _TOP - _BOTTOM)


def _value_axis(steps: Sequence[float], unit: str) -> list[str]:
    shapes = []
    for value in steps:
        y = _y(value, steps)
        kind = "axis" if value == 0 else "grid"
        shapes.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = f"{number(value)} {noun(unit, value)}" if value == steps[-1] else number(value)
        # The label with the unit is long, so it is above its line.
        place = f'x="{_LEFT - 6}" text-anchor="end" y="{y + 4:.1f}"' if value != steps[-1] else f'x="0" y="{y - 8:.1f}"'
        shapes.append(f"<text {place}>{escape_html(label)}</text>")
    return shapes


def _tick_labels(labels: Sequence[tuple[float, str]]) -> list[str]:
    shapes = []
    for at, (x, label) in enumerate(labels):
        anchor = "end" if x + _HALF_LABEL > _WIDTH else "middle"  # otherwise the edge of the chart cuts it off
        kind = ' class="second"' if at % 2 and len(labels) > _LABELS_ON_A_PHONE else ""
        shapes.append(f'<text{kind} x="{x:.1f}" y="{_HEIGHT - 32}" text-anchor="{anchor}">{escape_html(label)}</text>')
    return shapes


def _axis_label(text: str) -> str:
    return f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{escape_html(text)}</text>' if text else ""


def _figure(shapes: Sequence[str], names: Sequence[str]) -> str:
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(shapes)}</svg>'
    keys = [
        f'<span><i class="key {_shade(n)}"></i>{escape_html(name)}</span>'
        for n, name in enumerate(names[:COLORS])
        if name
    ]
    if more := len(list(filter(None, names[COLORS:]))):
        keys.append(f'<span><i class="key rest"></i>{more} more</span>')
    return f'{svg}<p class="legend">{"".join(keys)}</p>'


def html_of(rows: Sequence[Displayed], notes: Sequence[str] = (), summary: str = "", *, every: bool = False) -> str:
    return styled(section_of(rows, notes, summary, every=every))


def section_of(
    rows: Sequence[Displayed],
    notes: Sequence[str] = (),
    summary: str = "",
    *,
    every: bool = False,
    labelled: bool = False,
) -> str:
    """Return rows, notes and summary as HTML without styles. Rows that are not `ok` are marked.

    With `labelled`, each cell has its heading, which `page_of` shows instead of a header on a narrow screen.
    If more than 20 rows are `quiet` (need no attention), a line of text replaces these rows, unless `every` is True.
    """
    rows, _, left_out = split(rows, every)
    grid = grid_of(rows)
    parts = [paragraph(line) for line in (summary, left_out) if line]
    if grid.header:
        lines = (
            _row("td", line, grid.right, "" if row.ok else "bad", grid.header if labelled else None)
            for line, row in zip(grid.lines, rows, strict=True)
        )
        header, body = _row("th", grid.header, grid.right), "".join(lines)
        parts.append(f"<table><thead>{header}</thead><tbody>{body}</tbody></table>")
    parts += [paragraph(remark, good=row.ok) for row in rows for remark in row.remarks()]
    return "".join([*parts, *map(paragraph, notes)])
