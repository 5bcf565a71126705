"""The page over a ledger: whole in one file, and its charts say what the rows say."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from html import escape
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

from mirrorfeed import report
from mirrorfeed.api.results import VersionChanges
from mirrorfeed.display.svg_charts import Point, bars, lines, number, ticks, time_ticks
from mirrorfeed.display.terminal import Listing
from mirrorfeed.feed.source import Source
from mirrorfeed.monitor.freshness import Step
from mirrorfeed.monitor.report_figures import held
from mirrorfeed.monitor.report_page import MARKERS, by_day, days, failures, page, standings
from mirrorfeed.publish import ledger
from mirrorfeed.publish.ledger import (
    ARCHIVE,
    DIFFERENT,
    FAILED,
    FINDING,
    PUBLISHED,
    RESEEDED,
    UNVERIFIED,
    VERIFIED,
    WATCHED,
    WELL,
    Row,
)
from mirrorfeed.report.in_time import in_time
from mirrorfeed.report.pictures import change_chart, difference_chart
from mirrorfeed.verify import Difference
from tests.test_bundle import DASHBOARD

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
EVIL = "<script>alert(1)</script>&\"'"
ROWS = [
    Row(NOW - timedelta(days=40), "sales.old", PUBLISHED, None, 3, inserts=9, files=1, bytes=10, lag_seconds=1.0),
    Row(NOW - timedelta(days=2), "sales.orders", PUBLISHED, None, 4, inserts=20, files=1, bytes=2**20,
        stage_seconds=2.5, record_seconds=0.5, rename_seconds=0.5, lag_versions=1, lag_seconds=600.0),
    Row(NOW - timedelta(hours=3), "sales.orders", PUBLISHED, 4, 5, upserts=7, deletes=2, files=1, bytes=2**20,
        stage_seconds=1.0, record_seconds=0.5, lag_versions=0, lag_seconds=60.0, retries=2),
    Row(NOW - timedelta(hours=1), EVIL, FINDING, lag_versions=3, error="Gap", message=f"Changes are lost {EVIL}"),
    Row(NOW - timedelta(minutes=5), "sales.old", FAILED, from_version=3, error="StoreUnavailable",
        message="No answer."),
]  # fmt: skip


LATER = [
    Row(NOW - timedelta(days=1, hours=2), "sales.orders", DIFFERENT, to_version=4, message="DIFFERENT: 3 of them."),
    Row(NOW - timedelta(hours=3), "sales.orders", RESEEDED, error="Gap", message="Began again."),
    Row(NOW - timedelta(hours=2), "sales.old", VERIFIED, to_version=1003, message="equal."),
    Row(NOW - timedelta(hours=1), "sales.old", UNVERIFIED, error="NothingTaken", message="Not yet."),
    Row(NOW - timedelta(hours=1), "sales.seen", VERIFIED, to_version=2, message="equal."),
    *(Row(NOW - timedelta(days=day), "main.sales.orders", ARCHIVE, archived_share=share, archived_files=4)
      for day, share in [(3, 0.25), (2, 0.375), (1, None)]),
]  # fmt: skip
"""What verify and the archive add: none of it is a publication."""


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_whole_in_itself_and_runs_nothing() -> None:
    text = page(ROWS, NOW)
    elements = Elements(text).tags
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in elements}
    names = {name for _, attributes in elements for name in attributes}
    assert not {"src", "href", "srcset", "data", "style", "action"} & names
    assert not [name for name in names if name.startswith("on")]
    assert not re.search(r"url\(|@import|//", text.split("</style>")[0])


def test_names_and_messages_are_shown_as_they_are_and_never_taken_for_markup() -> None:
    text = page(ROWS, NOW)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text


def test_the_tiles_count_the_last_day_and_the_tables_that_are_stopped() -> None:
    assert tiles(page(ROWS, NOW)) == [
        ("", "3", "tables"),
        ("bad", "2", "stopped"),
        ("", "0", "different"),
        ("", "1", "publication in a day"),
        ("", "9", "rows in a day"),
        ("", "1", "MiB in a day"),
        ("", "2", "calls repeated in a day"),
    ]


def tiles(text: str) -> list[tuple[str, str, str]]:
    return re.findall(r'<div class="tile ?(\w*)"><b>(.*?)</b>(.*?)</div>', text)


def cells(text: str, *, table: str) -> list[str]:
    """The line of a table where the page says how far each is."""
    found = re.findall(r"<td[^>]*>(.*?)</td>", text)
    return found[found.index(table) :][:7]


def test_what_verify_and_the_archive_add_is_no_publication() -> None:
    before, after = tiles(page(ROWS, NOW)), tiles(page([*ROWS, *LATER], NOW))
    changed = {name: value for (_, _, name), (_, value, _) in zip(before, after, strict=True)}
    assert {name for (_, old, name) in before if changed[name] != old} == {"tables", "different"}
    assert (changed["tables"], changed["different"]) == ("4", "1")


def test_a_difference_stays_until_a_comparison_finds_none_whatever_is_published_meanwhile() -> None:
    text = page([*ROWS, *LATER], NOW)
    assert cells(text, table="sales.orders") == [
        "sales.orders", "published", "5", "0", "2026-03-14 06:30 (3 h ago)",
        "different at version 4", "2026-03-13 07:30 (26 h ago)",
    ]  # fmt: skip
    assert "DIFFERENT: 3 of them." in text
    again = Row(NOW, "sales.orders", VERIFIED, to_version=5)
    healed = page([*ROWS, *LATER, again], NOW)
    assert cells(healed, table="sales.orders")[5:] == ["equal at version 5", "2026-03-14 09:30 (0 min ago)"]
    assert ("", "0", "different") in tiles(healed)


def test_a_comparison_that_could_not_be_made_is_told_and_leaves_the_one_before() -> None:
    text = page([*ROWS, *LATER], NOW)
    assert cells(text, table="sales.old")[5:] == ["equal at version 1,003", "2026-03-14 07:30 (2 h ago)"]
    assert "<td>NothingTaken</td><td>Not yet.</td>" in text
    assert cells(text, table="sales.seen")[1:6] == ["-", "-", "-", "never", "equal at version 2"]
    assert cells(text, table=escape(EVIL))[5:] == ["-", "never"]


def test_the_archived_part_is_drawn_where_a_table_has_an_archive() -> None:
    assert "Archived part" not in page(ROWS, NOW)
    assert drawn(page([*ROWS, *LATER], NOW), "Archived part of each table") == [
        "main.sales.orders, 2026-03-11 09:30: 25 %",
        "main.sales.orders, 2026-03-12 09:30: 37.5 %",
    ]


GIB = 2**30
FLEET = [
    Row(NOW - timedelta(days=2), "main.a", ARCHIVE, archived_share=0.5, archived_bytes=4 * GIB, restored_bytes=0,
        hot_bytes=4 * GIB, bytes_by_age={"0-7 d": GIB, "365 d on": 7 * GIB}, month_cost=4.0, month_saving=3.0,
        currency="EUR"),
    Row(NOW - timedelta(days=1), "main.b", ARCHIVE, archived_share=0.5, archived_bytes=2 * GIB, restored_bytes=None,
        hot_bytes=GIB, bytes_by_age={"0-7 d": GIB}, month_cost=1.0, month_saving=2.0, currency="EUR"),
    Row(NOW, "main.a", ARCHIVE, archived_share=0.5, archived_bytes=4 * GIB, restored_bytes=GIB, hot_bytes=5 * GIB,
        bytes_by_age={"365 d on": 6 * GIB, "not known": 0, "30-90 d": 0, "0-7 d": 2 * GIB},
        month_cost=5.0, month_saving=2.0, currency="EUR"),
]  # fmt: skip


def drawn(text: str, title: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", text.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0])


def test_the_fleet_is_summed_up_day_by_day_with_what_each_table_was_last() -> None:
    text = page(FLEET, NOW)
    assert drawn(text, "GiB of all tables with an archive") == [
        "Mar 12, hot: 4 GiB", "Mar 12, archived: 4 GiB",
        "Mar 13, hot: 5 GiB", "Mar 13, archived: 6 GiB",
        "Mar 14, hot: 5 GiB", "Mar 14, archived: 5 GiB", "Mar 14, restored: 1 GiB",
    ]  # fmt: skip
    assert drawn(text, "GiB by the age of files, as it is now") == ["0-7 d, bytes: 3 GiB", "365 d on, bytes: 6 GiB"]
    money = drawn(text, "What a month costs, and what the archive saves of it")
    assert [each.partition(", ")[0::2] for each in money] == [
        ("cost", "2026-03-12 00:00: 4 EUR"), ("cost", "2026-03-13 00:00: 5 EUR"), ("cost", "2026-03-14 00:00: 6 EUR"),
        ("saving", "2026-03-12 00:00: 3 EUR"), ("saving", "2026-03-13 00:00: 5 EUR"),
        ("saving", "2026-03-14 00:00: 4 EUR"),
    ]  # fmt: skip
    listed = re.findall(r"<tr><td>(main.\w|all)</td>(.*?)</tr>", text)
    assert [(name, re.findall(r"<td class=n>(.*?)</td>", rest)) for name, rest in listed] == [
        ("main.a", ["4.00", "3.00", "1.00", "5.00 EUR", "2.00 EUR"]),
        ("main.b", ["1.00", "2.00", "-", "1.00 EUR", "2.00 EUR"]),
        ("all", ["5.00", "5.00", "1.00", "6.00 EUR", "4.00 EUR"]),
    ]


def test_what_no_row_tells_of_an_archive_is_not_drawn() -> None:
    text = page([*ROWS, *LATER], NOW)
    for title in ("GiB of all tables", "GiB by the age", "What a month costs"):
        assert title not in text
    assert cells(text, table="main.sales.orders")[:6] == ["main.sales.orders", "-", "-", "-", "-", "-"]


def test_the_tables_say_how_far_each_is_and_what_went_wrong() -> None:
    text = page(ROWS, NOW)
    assert cells(text, table="sales.orders")[:5] == [
        "sales.orders", "published", "5", "0", "2026-03-14 06:30 (3 h ago)",
    ]  # fmt: skip
    assert cells(text, table="sales.old")[:5] == [
        "sales.old", "stopped: StoreUnavailable", "3", "-", "2026-02-02 09:30 (40 d ago)",
    ]  # fmt: skip
    assert cells(text, table="2026-03-14 09:25")[:4] == [
        "2026-03-14 09:25",
        "sales.old",
        "StoreUnavailable",
        "No answer.",
    ]


def test_a_table_that_is_well_again_is_not_stopped_and_nothing_of_it_counts_as_published() -> None:
    text = page([*ROWS, Row(NOW, "sales.old", WELL, from_version=3, lag_versions=0)], NOW)
    assert cells(text, table="sales.old")[:5] == [
        "sales.old", "published", "3", "0", "2026-02-02 09:30 (40 d ago)",
    ]  # fmt: skip
    assert [tile[:2] for tile in tiles(text) if tile[2] in ("stopped", "publication in a day")] == [
        ("bad", "1"), ("", "1"),
    ]  # fmt: skip


def test_an_empty_ledger_is_a_page_too() -> None:
    assert page([], NOW).count("Nothing yet.") == 4


def test_a_chart_of_lines_has_a_point_for_every_value_in_its_place() -> None:
    points = [Point(NOW, 0.0), Point(NOW + timedelta(hours=1), 50.0), Point(NOW + timedelta(hours=2), 100.0)]
    svg = ElementTree.fromstring(lines({"a": points}, "min"))
    dots = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in svg.iter("circle")]
    assert dots[1] == pytest.approx(((dots[0][0] + dots[2][0]) / 2, (dots[0][1] + dots[2][1]) / 2))
    assert [title.text for title in svg.iter("title")][1] == "a, 2026-03-14 10:30: 50 min"


@pytest.mark.parametrize("seconds", [0, 0.2, 5, 59])
def test_points_that_are_close_stand_over_an_axis_with_times_and_the_day(seconds: float) -> None:
    points = [Point(NOW, 1.0), Point(NOW + timedelta(seconds=seconds), 2.0)]
    said = [text.text or "" for text in ElementTree.fromstring(lines({"a": points}, "min")).iter("text")]
    assert "time on 2026-03-14, UTC" in said
    assert len([text for text in said if re.fullmatch(r"\d\d:\d\d(:\d\d)?", text)]) >= 3


def test_bars_say_what_they_stand_for() -> None:
    svg = ElementTree.fromstring(bars([("4", {"rows": 1.0})], ["rows"], "rows", "version of the source"))
    assert [text.text for text in svg.iter("text")][-2:] == ["version of the source", "4"]


def test_the_parts_of_a_bar_stand_on_each_other_and_are_as_high_as_their_values() -> None:
    drawn = bars([("Mar 14", {"in": 10.0, "out": 30.0})], ["in", "out"], "rows")
    svg = ElementTree.fromstring(drawn.partition("<p")[0])
    assert [title.text for title in svg.iter("title")] == ["Mar 14, in: 10 rows", "Mar 14, out: 30 rows"]
    lower, upper = ({name: float(bar.get(name, "")) for name in ("y", "height")} for bar in svg.iter("rect"))
    assert upper["height"] == pytest.approx(3 * lower["height"], abs=0.2)
    assert upper["y"] + upper["height"] == pytest.approx(lower["y"], abs=0.2)


def test_a_day_without_anything_is_left_free() -> None:
    days = by_day([ROWS[1], ROWS[2]], ["files"], lambda row, _: row.files)
    assert days == [("Mar 12", {"files": 1}), ("Mar 13", {}), ("Mar 14", {"files": 1})]
    svg = ElementTree.fromstring(bars(days, ["files"], "files"))
    left, right = (float(bar.get("x", "")) for bar in svg.iter("rect"))
    places = {text.text: float(text.get("x", "")) for text in svg.iter("text")}
    assert right - left == pytest.approx(places["Mar 14"] - places["Mar 12"], abs=0.2)


def titles(drawn: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", drawn)


def done(version: int, inserts: int = 0, updates: int = 0, deletes: int = 0) -> VersionChanges:
    return VersionChanges(version, inserts, updates, deletes)


def test_changes_are_drawn_by_version_and_kind() -> None:
    counts = [done(1, 5), done(3, 0, 2, 1)]
    assert titles(change_chart(counts)) == ["1, inserts: 5 rows", "3, updates: 2 rows", "3, deletes: 1 row"]
    assert change_chart([]).endswith("Nothing yet.</p>")
    many = [done(version, 1) for version in range(100)]
    assert titles(change_chart(many))[0] == "40, inserts: 1 row"  # the newest have room


def test_differences_are_drawn_by_column_the_worst_first() -> None:
    found = [Difference(f"id = {n}", column, "1", "2") for n, column in enumerate(["status", "", "total", "status"])]
    assert titles(difference_chart(found)) == [
        "status, differences: 2 rows", "(whole row), differences: 1 row", "total, differences: 1 row",
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "labelled"), [(8, 8), (9, 5), (30, 8)])
def test_more_columns_than_have_room_for_a_label_share_them(count: int, labelled: int) -> None:
    svg = ElementTree.fromstring(bars([(f"c{n}", {"a": 1.0}) for n in range(count)], ["a"], "rows"))
    assert len([text for text in svg.iter("text") if str(text.text).startswith("c")]) == labelled


def test_more_series_than_colours_are_drawn_as_the_rest() -> None:
    drawn = lines({f"t{n}": [Point(NOW, n), Point(NOW + timedelta(hours=1), n)] for n in range(11)}, "min")
    assert drawn.count('class="line rest"') == 3
    assert "3 more" in drawn
    assert drawn.index(">t10<") < drawn.index(">t3<")  # the largest have the colours


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(0, [0, 1]), (1, [0, 0.25, 0.5, 0.75, 1]), (7, [0, 2, 4, 6, 8]), (240, [0, 100, 200, 300])],
)  # fmt: skip
def test_an_axis_has_round_steps(largest: float, expected: list[float]) -> None:
    assert ticks(largest) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("span", "labels"),
    [
        (timedelta(hours=3), ["09:30", "10:00", "10:30", "11:00", "11:30", "12:00", "12:30"]),
        (timedelta(days=3), ["12:00", "Mar 15", "12:00", "Mar 16", "12:00", "Mar 17"]),
        (timedelta(days=10), ["Mar 15", "Mar 17", "Mar 19", "Mar 21", "Mar 23"]),
        (timedelta(minutes=1), ["09:30:00", "09:30:15", "09:30:30", "09:30:45", "09:31:00"]),
    ],
)
def test_times_are_told_at_round_moments(span: timedelta, labels: list[str]) -> None:
    assert [label for _, label in time_ticks(NOW, NOW + span)] == labels


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.25, "0.25"), (999, "999"), (51_234, "51.2k"), (2.5e6, "2.5M"), (3e9, "3G")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no headless Chromium on PATH")
def test_a_browser_draws_it_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page([*ROWS, *LATER], NOW), encoding="utf-8")
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
        "--enable-logging=stderr",
    )
    answer = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", f"file://{tmp_path}/page.html"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert answer.stdout.count("<svg") == 5
    assert "CONSOLE" not in answer.stderr


def test_the_text_tells_what_the_page_tells() -> None:
    now, rows = NOW + timedelta(hours=1), [*ROWS, *LATER, *FLEET]
    out = Console(width=1000, file=io.StringIO())
    for part in report.text(rows, now):
        out.print(part)
    assert isinstance(out.file, io.StringIO)
    printed, drawn = out.file.getvalue(), page(rows, now)
    for _, value, name in tiles(drawn):
        assert f"{value} {name}" in printed
    for cell in chain(*(standing.cells(now) for standing in standings(rows)), *held(rows)):
        assert escape(cell) in drawn
        assert " ".join(cell.split()) in " ".join(printed.split())
    for row in failures(rows):
        assert (row.message or "") in printed
    told = report.told(rows, now)
    assert [row["table"] for row in told["wrong"]] == [row.table for row in failures(rows)]
    assert [row["archived_bytes"] for row in told["archives"]] == [4 * GIB, 2 * GIB, None]


def test_of_an_empty_ledger_no_empty_table_is_told() -> None:
    assert [type(part) for part in report.text([], NOW)] == [Text, Text]


def test_each_day_is_told_as_it_is_drawn() -> None:
    told = days(ROWS, NOW)
    in_page = drawn(page(ROWS, NOW), "Rows a day, by what they do")
    for day in told:
        label = f"{day['day']:%b} {day['day'].day}"
        for marker in MARKERS:
            if day[marker]:
                assert f"{label}, {marker}: {day[marker]:,} rows" in in_page
    assert sum(day[marker] for day in told for marker in MARKERS) == 29
    assert [day["day"] for day in told] == sorted((day["day"] for day in told), reverse=True)
    assert told[0].keys() - {name for name, _, _ in ledger.COLUMNS} == {"day"}


def test_of_many_failures_the_newest_are_told_and_the_others_counted() -> None:
    failed = replace(ROWS[0], outcome=FAILED)
    rows = [replace(failed, message=f"number {n}.", time=NOW + timedelta(minutes=n)) for n in range(12)]
    parts = [str(part) for part in report.text(rows, NOW)][-11:]
    assert "number 11." in parts[0]
    assert parts[-1] == "2 older ones are not shown; --html and --json have more."


FIVE = [f"{step}_at" for step in Step]
WATCHES = [
    Row(NOW - timedelta(hours=3), "sales.orders", WATCHED, seen_at=NOW - timedelta(hours=4), seen_behind=0.0),
    Row(NOW - timedelta(minutes=5), "sales.orders", WATCHED, committed_at=NOW - timedelta(minutes=9),
        visible_at=NOW - timedelta(minutes=30), consumed_at=NOW - timedelta(minutes=30),
        mirrored_at=NOW - timedelta(minutes=70), visible_behind=240.0, consumed_behind=0.0, mirrored_behind=1500.0),
]  # fmt: skip


def test_the_newest_look_at_a_table_says_how_far_it_has_come_and_for_what_it_waits() -> None:
    assert "How far has come" not in page(ROWS, NOW)
    text = page([*ROWS, *WATCHES], NOW)
    (line,) = re.findall(r"<tr>(<td>sales.orders</td><td>9.0 min ago.*?)</tr>", text)
    assert re.findall(r"<td([^>]*)>(.*?)</td>", line) == [
        ("", "sales.orders"),
        ("", "9.0 min ago"),
        (" class=bad", "had waited 4.0 min"),
        ("", "30.0 min ago"),
        (" class=bad", "had waited 25.0 min"),
        ("", "not known"),
        ("", "5.0 min ago"),
    ]
    assert tiles(text) == tiles(page(ROWS, NOW))
    printed = [str(row) for part in report.text(WATCHES, NOW) if isinstance(part, Listing) for row in part.rows]
    assert any("had waited 25.0 min" in row for row in printed)
    assert [row["mirrored_behind"] for row in report.told(WATCHES, NOW)["fresh"]] == [1500.0]


def ledger_of(spark: SparkSession, rows: list[Row]) -> None:
    """A view that the dashboard's queries read."""
    columns = ", ".join(f"`{name}` {type_}" for name, type_, _ in ledger.COLUMNS)
    spark.createDataFrame([astuple(row) for row in rows], columns).createOrReplaceTempView("ledger")


QUERIES = {each["name"]: "".join(each["queryLines"]) for each in DASHBOARD["datasets"]}


def told(spark: SparkSession, *names: str) -> dict[str, list[dict[str, Any]]]:
    """What these of the dashboard's queries give."""
    return {name: [row.asDict() for row in spark.sql(QUERIES[name]).collect()] for name in names}


def test_the_dashboard_says_what_the_page_says(spark: SparkSession) -> None:
    moved = datetime.now(UTC) - NOW  # its queries know no other time
    rows = [replace(row, time=row.time + moved) for row in [*ROWS, *LATER]]
    ledger_of(spark, rows)
    found = told(spark, "now", "backlog", "mirrors", "archive", "failures")
    (now,) = found["now"]
    shown = {name: value for _, value, name in tiles(page(rows, NOW + moved))}
    assert {name: str(value) for name, value in now.items()} == {
        "tables": shown["tables"],
        "stopped": shown["stopped"],
        "different": shown["different"],
        "publications": shown["publication in a day"],
        "rows": shown["rows in a day"],
        "retries": shown["calls repeated in a day"],
    }
    assert {row["table"]: row["lag_versions"] for row in found["backlog"]} == {
        "sales.orders": 0,
        "sales.old": None,
        EVIL: 3,
    }
    mirrors = {row["table"]: (row["outcome"], row["version"], row["last_equal"]) for row in found["mirrors"]}
    assert {table: found[:2] for table, found in mirrors.items()} == {
        "sales.orders": (DIFFERENT, 4),
        "sales.old": (VERIFIED, 1003),
        "sales.seen": (VERIFIED, 2),
    }
    assert mirrors["sales.orders"][2] is None
    assert sorted(row["archived_percent"] or 0 for row in found["archive"]) == [0, 25, 37.5]
    failed = {(row["table"], row["outcome"]) for row in found["failures"]}
    assert failed == {(row.table, row.outcome) for row in rows if row.outcome in ledger.WRONG}


def test_the_dashboard_says_how_far_each_table_has_come(spark: SparkSession) -> None:
    moved = datetime.now(UTC) - NOW
    rows = [
        replace(row, time=row.time + moved, **{
            name: at + moved for name in FIVE if (at := getattr(row, name)) is not None
        }) for row in WATCHES
    ]  # fmt: skip
    ledger_of(spark, rows)
    (found,) = told(spark, "freshness")["freshness"]
    since = {name: found[f"{name.removesuffix('_at')}_minutes"] for name in FIVE}
    assert {name: None if value is None else round(value) for name, value in since.items()} == {
        "committed_at": 9, "visible_at": 30, "consumed_at": 30, "mirrored_at": 70, "seen_at": None,
    }  # fmt: skip
    assert {name: found[f"{name}_waits"] for name in ("visible", "consumed", "mirrored", "seen")} == {
        "visible": 4.0, "consumed": 0.0, "mirrored": 25.0, "seen": None,
    }  # fmt: skip


def test_the_dashboard_lets_a_table_go_that_is_well_again(spark: SparkSession) -> None:
    now = datetime.now(UTC)
    ledger_of(spark, [Row(now - timedelta(hours=1), "a", FAILED, lag_versions=2), Row(now, "a", WELL, lag_versions=0)])
    found = told(spark, "now", "backlog")
    (row,) = found["now"]
    assert (row["tables"], row["stopped"]) == (1, 0)
    assert [row["lag_versions"] for row in found["backlog"]] == [0]


def test_before_the_first_publication_the_dashboard_is_empty_and_asks_for_nothing_that_is_not_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Source(path=str(tmp_path / "ledger"))
    ledger.prepare(spark, place)
    spark.read.table(place.sql).createOrReplaceTempView("ledger")
    found = told(spark, *QUERIES)
    (now,) = found.pop("now")
    assert set(now.values()) == {0}
    assert set(map(len, found.values())) == {0}


def test_the_dashboards_queries_give_the_fields_that_its_drawings_show(spark: SparkSession) -> None:
    ledger_of(spark, [])
    given = {name: set(spark.sql(query).columns) for name, query in QUERIES.items()}
    for layout in DASHBOARD["pages"][0]["layout"]:
        (query,) = (each["query"] for each in layout["widget"]["queries"])
        assert {field["name"] for field in query["fields"]} <= given[query["datasetName"]]


def of_a_week(now: datetime) -> list[Row]:
    def published(table: str, days_ago: int, minutes: float | None, within: float | None = 15.0) -> Row:
        lag = None if minutes is None else minutes * 60.0
        return Row(now - timedelta(days=days_ago), table, PUBLISHED, lag_seconds=lag, fresh_within=within)

    rows = [published("a", 0, 15), published("a", 0, 15.1), published("a", 1, 1), published("a", 7, 1)]
    return [*rows, published("b", 6, 99), published("none", 0, 99, None), published("once", 0, None)]


def test_how_often_a_table_was_in_time_is_told_day_by_day() -> None:
    rows = of_a_week(now := NOW)
    found = in_time(rows, now)
    assert list(found) == ["a", "b"]
    assert found["a"] == [(1, 2), (1, 1), *[(0, 0)] * 5]
    assert found["b"] == [*[(0, 0)] * 6, (0, 1)]
    drawn = page(rows, now)
    assert "Was it published in time?" in drawn
    assert "<td>a</td><td class=bad>1 of 2</td><td class=n>1 of 1</td><td class=n>-</td>" in drawn
    assert report.told(rows, now)["in_time"][0] == {"table": "a", "day": now.date(), "met": 1, "publications": 2}
    printed = [row for part in report.text(rows, now) if isinstance(part, Listing) for row in part.rows]
    assert ("a", "1 of 2", "1 of 1", *["-"] * 5) in printed
    assert "Was it published in time?" not in page([row for row in rows if row.table == "none"], now)


def test_the_dashboard_says_as_the_page_how_often_tables_were_in_time(spark: SparkSession) -> None:
    now = datetime.now(UTC)
    rows = of_a_week(now)
    ledger_of(spark, rows)
    found = {(row["table"], (now.date() - row["day"]).days): row for row in told(spark, "in_time")["in_time"]}
    assert {key: (row["met"], row["publications"]) for key, row in found.items()} == {
        (table, ago): days_ for table, week in in_time(rows, now).items() for ago, days_ in enumerate(week) if days_[1]
    }
