"""Line charts and stacked bar charts as SVG, without a library and without scripts.

Colors are classes, `c0` to `c7` and `rest`, which `display/html.py` defines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mirrorfeed.display.printable import escape_html

COLORS = 8
"""Series with a color of their own. All others share one."""

_WIDTH, _HEIGHT = 640, 266
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 44
_LABELS = 8
"""Labels that fit below the bars. If there are more bars, only every second or third has a label."""
_LEAST = timedelta(minutes=1)
"""The shortest time axis."""
_DENSE = 60
"""A line with more points shows them only under the pointer."""


@dataclass(frozen=True, slots=True)
class Point:
    time: datetime
    value: float


def lines(series: Mapping[str, Sequence[Point]], unit: str) -> str:
    """Return a line for each series over a time axis. The points of a series are in order of time."""
    points = [point for each in series.values() for point in each]
    if not points:
        return _no_data()
    start, end = min(point.time for point in points), max(point.time for point in points)
    if end - start < _LEAST:
        middle, around = start + (end - start) / 2, _LEAST if end > start else timedelta(hours=2)
        start, end = middle - around / 2, middle + around / 2
    top = ticks(max(point.value for point in points))
    span = (end - start).total_seconds()

    def x(time: datetime) -> float:
        return _LEFT + (time - start).total_seconds() / span * (_WIDTH - _LEFT - _RIGHT)

    drawn = [*_value_axis(top, unit), *(_tick_below(x(time), label) for time, label in time_ticks(start, end))]
    drawn.append(_axis_below(_times(start, end)))
    for color, (name, own) in enumerate(_by_size(series)):
        path = " ".join(f"{x(point.time):.1f},{_y(point.value, top):.1f}" for point in own)
        shade = _shade(color)
        dot = f"dot {shade} dense" if len(own) > _DENSE else f"dot {shade}"
        drawn.append(f'<polyline class="line {shade}" points="{path}"/>')
        drawn += [
            f'<circle class="{dot}" cx="{x(point.time):.1f}" cy="{_y(point.value, top):.1f}" r="2.5">'
            f"<title>{escape_html(name)}, {_moment(point.time)}: {number(point.value)}"
            f" {escape_html(noun(unit, point.value))}</title></circle>"
            for point in own
        ]
    return _figure(drawn, [name for name, _ in _by_size(series)])


def bars(columns: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str], unit: str, across: str = "") -> str:
    """Return a bar for each column, with a part for each kind from the bottom up. `across` describes the columns."""
    if not columns:
        return _no_data()
    top = ticks(max(sum(parts.get(kind, 0) for kind in kinds) for _, parts in columns))
    slot = (_WIDTH - _LEFT - _RIGHT) / len(columns)
    wide = min(slot * 0.7, 48)
    drawn = [*_value_axis(top, unit), _axis_below(across)]
    every = math.ceil(len(columns) / _LABELS)
    for n, (label, parts) in enumerate(columns):
        middle = _LEFT + (n + 0.5) * slot
        if n % every == 0:
            drawn.append(_tick_below(middle, label))
        below = 0.0
        for color, kind in enumerate(kinds):
            if value := parts.get(kind, 0):
                high, low = _y(below + value, top), _y(below, top)
                drawn.append(
                    f'<rect class="bar {_shade(color)}" x="{middle - wide / 2:.1f}" y="{high:.1f}" width="{wide:.1f}"'
                    f' height="{max(low - high, 0.5):.1f}">'
                    f"<title>{escape_html(label)}, {escape_html(kind)}: {number(value)}"
                    f" {escape_html(noun(unit, value))}</title></rect>"
                )
                below += value
    there = {kind for _, parts in columns for kind, value in parts.items() if value}
    return _figure(drawn, [kind if kind in there else "" for kind in kinds])


def ticks(largest: float) -> list[float]:
    """Return round steps from zero to at least the largest value."""
    if largest <= 0:
        return [0.0, 1.0]
    rough = largest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999999)
    return [step * n for n in range(math.ceil(largest / step - 1e-9) + 1)]


def time_ticks(start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Return round times between two times, with their labels."""
    span = end - start
    minutes = (0.25, 0.5, 1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10080)
    steps = [timedelta(minutes=each) for each in minutes]
    step = next((step for step in steps if span / step <= 7), timedelta(days=math.ceil(span.days / 7)))
    zero = datetime(2024, 1, 1, tzinfo=UTC)  # a Monday
    found: list[tuple[datetime, str]] = []
    moment = zero + math.ceil((start - zero) / step) * step
    while moment <= end:
        midnight = moment.hour == moment.minute == moment.second == 0
        clock = f"{moment:%H:%M:%S}" if step < timedelta(minutes=1) else f"{moment:%H:%M}"
        found.append((moment, f"{moment:%b} {moment.day}" if midnight else clock))
        moment += step
    return found


def number(value: float) -> str:
    """Return a short text for an axis."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


def noun(name: str, value: float) -> str:
    """Return the noun for a number of it, in the singular for 1. It starts with a plural."""
    return re.sub(r"^(\w+)s\b", r"\1", name) if value == 1 else name


def _by_size(series: Mapping[str, Sequence[Point]]) -> list[tuple[str, Sequence[Point]]]:
    """Return the series with the largest values first, so that they get the colors."""
    return sorted(series.items(), key=lambda item: (-max(point.value for point in item[1]), item[0]))


def _shade(color: int) -> str:
    return f"c{color}" if color < COLORS else "rest"


def _y(value: float, top: Sequence[float]) -> float:
    return _HEIGHT - _BOTTOM - value / top[-1] * (_HEIGHT - _TOP - _BOTTOM)


def _value_axis(top: Sequence[float], unit: str) -> list[str]:
    drawn = []
    for value in top:
        y = _y(value, top)
        kind = "axis" if value == 0 else "grid"
        drawn.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = f"{number(value)} {noun(unit, value)}" if value == top[-1] else number(value)
        anchor = f'x="{_LEFT - 6}" text-anchor="end"' if value != top[-1] else 'x="0" text-anchor="start"'
        drawn.append(f'<text {anchor} y="{y + 4:.1f}">{escape_html(label)}</text>')
    return drawn


def _tick_below(x: float, label: str) -> str:
    return f'<text x="{x:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{escape_html(label)}</text>'


def _axis_below(text: str) -> str:
    """Return the description of the time or label axis."""
    return f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{escape_html(text)}</text>' if text else ""


def _times(start: datetime, end: datetime) -> str:
    """Return the description of a time axis, with the day if it is only one."""
    days = [f"{moment.astimezone(UTC):%Y-%m-%d}" for moment in (start, end)]
    return f"time on {days[0]}, UTC" if days[0] == days[1] else "time, UTC"


def _figure(drawn: Sequence[str], names: Sequence[str]) -> str:
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(drawn)}</svg>'
    if len(names) == 1:
        return svg  # the title of the chart names the only series
    keys_ = [(_shade(n), name) for n, name in enumerate(names) if name and n < COLORS]
    keys = "".join(f'<span><i class="key {shade}"></i>{escape_html(name)}</span>' for shade, name in keys_)
    more = len([name for name in names if name]) - len(keys_)
    rest = f'<span><i class="key rest"></i>{more} more</span>' if more > 0 else ""
    return f'{svg}<p class="legend">{keys}{rest}</p>'


def _no_data() -> str:
    return "<p>No data yet.</p>"


def _moment(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
