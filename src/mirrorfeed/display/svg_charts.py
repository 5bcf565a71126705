"""Charts as SVG text, without a library and without scripts: lines over time, and stacked bars.

Colours are classes (`c0` to `c7`, `rest`) that the page gives values to, in light and in dark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mirrorfeed.display.printable import escape_html

COLOURS = 8
"""So many series are told apart; what is beyond is drawn as one."""

_WIDTH, _HEIGHT = 640, 266
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 44
_LABELS = 8
"""So many have room below the bars; of more columns only some are labelled."""
_LEAST = timedelta(minutes=1)
"""Points that are closer have an axis of so much around them, on which there is a time to read."""
_DENSE = 60
"""A line of more points shows them only under the pointer."""


@dataclass(frozen=True, slots=True)
class Point:
    time: datetime
    value: float


def lines(series: Mapping[str, Sequence[Point]], unit: str) -> str:
    """A line a series, its points in order of time, over an axis that says which times they are."""
    points = [point for each in series.values() for point in each]
    if not points:
        return _nothing()
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
    for colour, (name, own) in enumerate(_told_apart(series)):
        path = " ".join(f"{x(point.time):.1f},{_y(point.value, top):.1f}" for point in own)
        shade = _shade(colour)
        dot = f"dot {shade} dense" if len(own) > _DENSE else f"dot {shade}"
        drawn.append(f'<polyline class="line {shade}" points="{path}"/>')
        drawn += [
            f'<circle class="{dot}" cx="{x(point.time):.1f}" cy="{_y(point.value, top):.1f}" r="2.5">'
            f"<title>{escape_html(name)}, {_moment(point.time)}: {number(point.value)}"
            f" {escape_html(what(unit, point.value))}</title></circle>"
            for point in own
        ]
    return _figure(drawn, [name for name, _ in _told_apart(series)])


def bars(columns: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str], unit: str, across: str = "") -> str:
    """A bar a column, over its label, with a part for each kind from the bottom up; `across` says what the columns
    are."""
    if not columns:
        return _nothing()
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
        for colour, kind in enumerate(kinds):
            if value := parts.get(kind, 0):
                high, low = _y(below + value, top), _y(below, top)
                drawn.append(
                    f'<rect class="bar {_shade(colour)}" x="{middle - wide / 2:.1f}" y="{high:.1f}" width="{wide:.1f}"'
                    f' height="{max(low - high, 0.5):.1f}">'
                    f"<title>{escape_html(label)}, {escape_html(kind)}: {number(value)}"
                    f" {escape_html(what(unit, value))}</title></rect>"
                )
                below += value
    there = {kind for _, parts in columns for kind, value in parts.items() if value}
    return _figure(drawn, [kind if kind in there else "" for kind in kinds])


def ticks(largest: float) -> list[float]:
    """Round steps from zero to no less than the largest value."""
    if largest <= 0:
        return [0.0, 1.0]
    rough = largest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999999)
    return [step * n for n in range(math.ceil(largest / step - 1e-9) + 1)]


def time_ticks(start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Round moments between two times, and what to write at them."""
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
    """Short, for an axis or a tile."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


def what(name: str, value: float) -> str:
    """What is counted, for beside its number: a plural comes first in it."""
    return re.sub(r"^(\w+)s\b", r"\1", name) if value == 1 else name


def _told_apart(series: Mapping[str, Sequence[Point]]) -> list[tuple[str, Sequence[Point]]]:
    """Those with the largest values first, so that the colours go to them."""
    return sorted(series.items(), key=lambda item: (-max(point.value for point in item[1]), item[0]))


def _shade(colour: int) -> str:
    return f"c{colour}" if colour < COLOURS else "rest"


def _y(value: float, top: Sequence[float]) -> float:
    return _HEIGHT - _BOTTOM - value / top[-1] * (_HEIGHT - _TOP - _BOTTOM)


def _value_axis(top: Sequence[float], unit: str) -> list[str]:
    drawn = []
    for value in top:
        y = _y(value, top)
        kind = "axis" if value == 0 else "grid"
        drawn.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = f"{number(value)} {what(unit, value)}" if value == top[-1] else number(value)
        anchor = f'x="{_LEFT - 6}" text-anchor="end"' if value != top[-1] else 'x="0" text-anchor="start"'
        drawn.append(f'<text {anchor} y="{y + 4:.1f}">{escape_html(label)}</text>')
    return drawn


def _tick_below(x: float, label: str) -> str:
    return f'<text x="{x:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{escape_html(label)}</text>'


def _axis_below(words: str) -> str:
    """What the axis tells."""
    return (
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{escape_html(words)}</text>' if words else ""
    )


def _times(start: datetime, end: datetime) -> str:
    """Which day it is, unless the axis names days itself."""
    days = [f"{moment.astimezone(UTC):%Y-%m-%d}" for moment in (start, end)]
    return f"time on {days[0]}, UTC" if days[0] == days[1] else "time, UTC"


def _figure(drawn: Sequence[str], names: Sequence[str]) -> str:
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(drawn)}</svg>'
    if len(names) == 1:
        return svg  # the title says what it is
    told = [(_shade(n), name) for n, name in enumerate(names) if name and n < COLOURS]
    keys = "".join(f'<span><i class="key {shade}"></i>{escape_html(name)}</span>' for shade, name in told)
    more = len([name for name in names if name]) - len(told)
    rest = f'<span><i class="key rest"></i>{more} more</span>' if more > 0 else ""
    return f'{svg}<p class="legend">{keys}{rest}</p>'


def _nothing() -> str:
    return '<p class="nothing">Nothing yet.</p>'


def _moment(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
