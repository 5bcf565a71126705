"""Charts as SVG: positions, labels and axes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from mirrorfeed.display.html import COLORS, STYLE, bars, lines, number, ticks, time_ticks

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html.partition("<p class")[0])  # without the legend


def test_line_chart_has_a_point_for_every_value() -> None:
    points = {NOW: 0.0, NOW + timedelta(hours=1): 50.0, NOW + timedelta(hours=2): 100.0}
    svg = parsed(lines({"a": points}, "min"))
    dots = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in svg.iter("circle")]
    assert dots[1] == pytest.approx(((dots[0][0] + dots[2][0]) / 2, (dots[0][1] + dots[2][1]) / 2))
    assert [title.text for title in svg.iter("title")][1] == "a, 2026-03-14 10:30: 50 min"


@pytest.mark.parametrize("seconds", [0, 0.2, 5, 59])
def test_short_time_axis_shows_times_and_the_day(seconds: float) -> None:
    points = {NOW: 1.0, NOW + timedelta(seconds=seconds): 2.0}
    texts = [text.text or "" for text in parsed(lines({"a": points}, "min")).iter("text")]
    assert "time on 2026-03-14, UTC" in texts
    assert len([text for text in texts if re.fullmatch(r"\d\d:\d\d(:\d\d)?", text)]) >= 3


@pytest.mark.parametrize(("end", "anchor"), [(NOW.replace(hour=0), "end"), (NOW, "middle")])
def test_label_at_the_right_edge_ends_at_its_time(end: datetime, anchor: str) -> None:
    svg = parsed(lines({"a": {end - timedelta(days=5): 1.0, end: 2.0}}, "min"))
    labels = [text for text in svg.iter("text") if re.fullmatch(r"Mar \d+", text.text or "")]
    assert [label.get("text-anchor") for label in labels] == ["middle"] * (len(labels) - 1) + [anchor]


def test_bar_chart_has_an_axis_title_and_labels() -> None:
    svg = parsed(bars([("4", {"rows": 1.0})], ["rows"], "rows", "version of the source"))
    assert [text.text for text in svg.iter("text")][-2:] == ["version of the source", "4"]


def test_stacked_bars_have_proportional_heights() -> None:
    rendered = bars([("Mar 14", {"in": 10.0, "out": 30.0})], ["in", "out"], "rows")
    svg = parsed(rendered)
    assert [title.text for title in svg.iter("title")] == ["Mar 14, in: 10 rows", "Mar 14, out: 30 rows"]
    lower, upper = ({name: float(bar.get(name, "")) for name in ("y", "height")} for bar in svg.iter("rect"))
    assert upper["height"] == pytest.approx(3 * lower["height"], abs=0.2)
    assert upper["y"] + upper["height"] == pytest.approx(lower["y"], abs=0.2)


@pytest.mark.parametrize(("count", "labelled"), [(6, 6), (7, 4), (30, 6)])
def test_labels_are_omitted_if_there_are_too_many(count: int, labelled: int) -> None:
    svg = parsed(bars([(f"c{n}", {"a": 1.0}) for n in range(count)], ["a"], "rows"))
    assert len([text for text in svg.iter("text") if str(text.text).startswith("c")]) == labelled


def test_single_series_is_named() -> None:
    points = {NOW: 1.0, NOW + timedelta(hours=1): 2.0}
    assert ">sales.orders</span>" in lines({"sales.orders": points}, "min")
    assert ">sales.orders</span>" in bars([("Mar 14", {"sales.orders": 1.0})], ["sales.orders"], "rows")


def test_equal_series_do_not_hide_each_other() -> None:
    points = {NOW: 1.0, NOW + timedelta(hours=1): 2.0}
    svg = parsed(lines({"a": points, "b": points}, "min"))
    (below, _), (above, _) = ([float(dot.get("r", "")) for dot in svg.iter("circle")][at : at + 2] for at in (0, 2))
    assert below > above
    patterns = dict(re.findall(r"\.line\.(c\d)\{stroke-dasharray:([\d ]+)\}", STYLE))
    assert len(set(patterns.values())) == COLORS - 1  # the line below all others is solid


def test_narrow_screen_shows_every_second_of_many_labels() -> None:
    svg = parsed(bars([(f"c{n}", {"a": 1.0}) for n in range(6)], ["a"], "rows"))
    assert [text.text for text in svg.iter("text") if text.get("class") == "second"] == ["c1", "c3", "c5"]


def test_series_beyond_the_colors_share_one() -> None:
    rendered = lines({f"t{n}": {NOW: float(n), NOW + timedelta(hours=1): float(n)} for n in range(11)}, "min")
    assert rendered.count('class="line rest"') == 3
    assert "3 more" in rendered
    assert rendered.index(">t10<") < rendered.index(">t3<")  # the largest series have colors


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(0, [0, 1]), (1, [0, 0.25, 0.5, 0.75, 1]), (7, [0, 2, 4, 6, 8]), (240, [0, 100, 200, 300])],
)  # fmt: skip
def test_axis_has_round_steps(largest: float, expected: list[float]) -> None:
    assert ticks(largest) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("span", "labels"),
    [
        (timedelta(hours=3), ["09:30", "10:00", "10:30", "11:00", "11:30", "12:00", "12:30"]),
        (timedelta(hours=4), ["10:00", "11:00", "12:00", "13:00"]),
        (timedelta(days=3), ["12:00", "Mar 15", "12:00", "Mar 16", "12:00", "Mar 17"]),
        (timedelta(days=10), ["Mar 15", "Mar 17", "Mar 19", "Mar 21", "Mar 23"]),
        (timedelta(minutes=1), ["09:30:00", "09:30:15", "09:30:30", "09:30:45", "09:31:00"]),
    ],
)
def test_time_axis_has_round_times(span: timedelta, labels: list[str]) -> None:
    assert [label for _, label in time_ticks(NOW, NOW + span)] == labels


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (0.25, "0.25"), (999, "999"), (51_234, "51.2k"), (2.5e6, "2.5M"), (3e9, "3G")]
)
def test_numbers_are_abbreviated(value: float, expected: str) -> None:
    assert number(value) == expected
