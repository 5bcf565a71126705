"""The report: figures from a fixed ledger, the HTML page, and the dashboard with the same queries."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.api.results import Changes, Comparison, Difference, Result, VersionChanges
from mirrorfeed.display.html import section_of
from mirrorfeed.display.terminal import text_of
from mirrorfeed.errors import with_known_code
from mirrorfeed.monitor.report import Report, read_report
from mirrorfeed.monitor.report_sections import (
    DASHBOARD_ONLY,
    MOST_PUBLICATIONS,
    QUERIES,
    ArchiveState,
    DayOnTime,
    LedgerTableState,
    TableFreshness,
    Totals,
)
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.errors import ledger_unreadable
from mirrorfeed.orchestration.ledger import (
    ADOPTED,
    ARCHIVE,
    BLOCKED,
    DIFFERENT,
    FAILED,
    PUBLISHED,
    RECOVERED,
    RESEEDED,
    UNCHANGED,
    UNVERIFIED,
    VERIFIED,
    WATCHED,
    LedgerRow,
)
from mirrorfeed.source.identifier import Source
from tests.raised import raises
from tests.support.ledgers import write_ledger
from tests.test_bundle import DASHBOARD

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
TODAY = NOW.date()
EVIL = "<script>alert(1)</script>&\"'"
GIB = 2**30


def ago(**since: float) -> datetime:
    return NOW - timedelta(**since)


ROWS = [
    LedgerRow(ago(days=40), "sales.old", PUBLISHED, None, 3, inserts=9, files=1, bytes=10, lag_seconds=1.0),
    LedgerRow(ago(days=91), "sales.dropped", PUBLISHED, None, 2),
    LedgerRow(ago(days=91), "sales.quiet", PUBLISHED, None, 7),
    LedgerRow(ago(days=29), "sales.quiet", UNCHANGED, 7, published_at=ago(days=91), lag_versions=0,
        delivery="append"),
    LedgerRow(ago(days=8), "sales.orders", PUBLISHED, 2, 3, inserts=1, lag_seconds=60.0, freshness_target_minutes=15.0,
        delivery="upsert"),
    LedgerRow(ago(days=2), "sales.orders", PUBLISHED, None, 4, inserts=20, files=1, bytes=2**20, lag_versions=1,
        stage_seconds=2.5, record_seconds=0.5, rename_seconds=0.5, lag_seconds=960.0, freshness_target_minutes=15.0),
    LedgerRow(ago(hours=3, minutes=1), "sales.orders", PUBLISHED, 4, 5, upserts=7, deletes=2, files=1, bytes=2**20,
        stage_seconds=1.0, record_seconds=0.5, lag_versions=0, lag_seconds=900.0, retries=2,
        freshness_target_minutes=15.0),
    LedgerRow(ago(hours=3), "sales.orders", PUBLISHED, 5, 6, upserts=1, lag_versions=0, lag_seconds=901.0,
        freshness_target_minutes=15.0),
    LedgerRow(ago(hours=1), EVIL, BLOCKED, lag_versions=3, error="FeedGap", message=f"Changes are lost {EVIL}"),
    LedgerRow(ago(minutes=5), "sales.old", FAILED, from_version=3, error="StorageUnavailable", message="No answer."),
    LedgerRow(ago(hours=9), "sales.again", FAILED, error="StorageUnavailable", message="No answer before."),
    LedgerRow(ago(hours=8), "sales.again", RECOVERED, from_version=3, lag_versions=0),
    LedgerRow(ago(hours=4), "sales.orders", RESEEDED, error="FeedGap", message="Reloaded."),
    LedgerRow(ago(minutes=50), "sales.late", FAILED, 7, error="StorageUnavailable", message="No answer at first."),
    LedgerRow(ago(minutes=40), "sales.late", PUBLISHED, 6, 7),
    LedgerRow(ago(minutes=30), "sales.late", FAILED, 7, error="StorageUnavailable", message="No answer."),
    LedgerRow(ago(minutes=25), "sales.late", FAILED, 7, error="StorageUnavailable", message="No answer again."),
    LedgerRow(ago(minutes=20), "sales.late", PUBLISHED, 7, 8),
    LedgerRow(ago(minutes=10), "sales.late", PUBLISHED, 8, 9),
    LedgerRow(ago(hours=14), "sales.taken", FAILED, error="StorageUnavailable", message="No answer at first."),
    LedgerRow(ago(hours=13), "sales.taken", ADOPTED, to_version=41),
    LedgerRow(ago(hours=10), "sales.gap", RESEEDED, from_version=5, error="FeedGap", message="Reloaded."),
    LedgerRow(ago(hours=13), "sales.equal", DIFFERENT, to_version=4, message="DIFFERENT: 1 row."),
    LedgerRow(ago(hours=12), "sales.equal", UNVERIFIED, error="MirrorNotReached", message="Not yet."),
    LedgerRow(ago(hours=11), "sales.equal", VERIFIED, to_version=4, message="equal."),
    LedgerRow(ago(days=3), "sales.orders", VERIFIED, to_version=3, message="equal."),
    LedgerRow(ago(days=1, hours=2), "sales.orders", DIFFERENT, to_version=4, message="DIFFERENT: 3 rows."),
    LedgerRow(ago(hours=2), "sales.old", VERIFIED, to_version=1003, message="equal."),
    LedgerRow(ago(minutes=90), "sales.old", UNVERIFIED, error="MirrorNotReached", message="Not yet."),
    LedgerRow(ago(hours=1), "sales.compared", VERIFIED, to_version=2, message="equal."),
    LedgerRow(ago(days=31), "sales.old", FAILED, error="StorageUnavailable", message="A month ago."),
    LedgerRow(ago(hours=3), "sales.orders", WATCHED, queryable_at=ago(hours=4), queryable_lag_seconds=0.0),
    LedgerRow(ago(minutes=5), "sales.orders", WATCHED, committed_at=ago(minutes=9), published_at=ago(minutes=30),
        consumed_at=ago(minutes=30), mirrored_at=ago(minutes=70), published_lag_seconds=240.0, consumed_lag_seconds=0.0,
        mirrored_lag_seconds=1500.0),
    LedgerRow(ago(days=2), "main.a", ARCHIVE, archived_share=0.5, archived_bytes=4 * GIB, restored_bytes=0,
        hot_bytes=4 * GIB, bytes_by_age={"0-7 d": GIB, "365 d on": 7 * GIB}, month_cost=4.0, month_saving=3.0,
        currency="EUR"),
    LedgerRow(ago(days=1), "main.b", ARCHIVE, archived_share=0.25, archived_bytes=2 * GIB, restored_bytes=None,
        hot_bytes=GIB, bytes_by_age={"0-7 d": GIB}, month_cost=1.0, month_saving=2.0, currency="EUR"),
    LedgerRow(ago(), "main.a", ARCHIVE, archived_share=0.5, archived_bytes=4 * GIB, restored_bytes=GIB,
        hot_bytes=5 * GIB, bytes_by_age={"365 d on": 6 * GIB, "not known": 0, "30-90 d": 0, "0-7 d": 2 * GIB},
        month_cost=5.0, month_saving=2.0, currency="EUR"),
    LedgerRow(ago(), "main.c", ARCHIVE, archived_share=None, archived_files=4),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Source:
    place = Source(path=str(tmp_path_factory.mktemp("report") / "ledger"))
    write_ledger(spark, place, ROWS)
    return place


@pytest.fixture(scope="module")
def report(spark: SparkSession, place: Source) -> Report:
    """The report with the queries that only the dashboard runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mirrorfeed.monitor.report.DASHBOARD_ONLY", frozenset())
        return read_report(spark, place, NOW)


def section(report: Report, name: str, *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, field) for field in fields) for row in report.sections[name]]


def test_totals_cover_24_hours_and_all_stopped_or_different_tables(report: Report) -> None:
    (totals,) = report.sections["totals"]
    assert totals.to_dict() == {
        "tables": 9, "stopped": 2, "different": 1, "publications": 5, "rows": 10, "mib": 1.0, "retries": 2,
    }  # fmt: skip


def test_table_state_is_its_newest_row_of_90_days(report: Report) -> None:
    assert section(report, "tables", "table", "state", "error", "published_version", "lag_versions", "ok") == [
        (EVIL, BLOCKED, "FeedGap", None, 3, False),
        ("sales.again", RECOVERED, None, None, 0, True),
        ("sales.compared", None, None, None, None, True),
        ("sales.equal", None, None, None, None, True),
        ("sales.late", PUBLISHED, None, 9, None, True),
        ("sales.old", FAILED, "StorageUnavailable", 3, None, False),
        ("sales.orders", PUBLISHED, None, 6, 0, False),
        ("sales.quiet", UNCHANGED, None, 7, 0, True),
        ("sales.taken", ADOPTED, None, 41, None, True),
    ]
    published = dict(section(report, "tables", "table", "last_published"))
    assert (published["sales.old"], published["sales.again"]) == (ago(days=40), None)
    assert (published["sales.quiet"], published["sales.taken"]) == (ago(days=91), None)
    assert [row for row in section(report, "tables", "table", "delivery") if row[1]] == [("sales.quiet", "append")]


def test_mirror_is_different_until_a_comparison_finds_it_equal(report: Report) -> None:
    fields = ("table", "mirror", "mirror_version", "last_compared", "last_equal", "comparison")
    assert section(report, "tables", *fields)[2:7] == [
        ("sales.compared", VERIFIED, 2, ago(hours=1), ago(hours=1), "equal."),
        ("sales.equal", VERIFIED, 4, ago(hours=11), ago(hours=11), "equal."),
        ("sales.late", None, None, None, None, None),
        ("sales.old", VERIFIED, 1003, ago(hours=2), ago(hours=2), "equal."),  # a failed comparison changes nothing
        ("sales.orders", DIFFERENT, 4, ago(days=1, hours=2), ago(days=3), "DIFFERENT: 3 rows."),
    ]


def test_work_by_table_sums_30_days_and_divides_rows_by_seconds(report: Report) -> None:
    fields = ("table", "publications", "rows", "bytes", "seconds", "rows_per_second", "retries")
    assert section(report, "work", *fields) == [
        ("sales.orders", 4, 31, 2 * 2**20, 5.0, 6.2, 2),
        ("sales.late", 3, 0, 0, 0.0, None, 0),
    ]


def test_freshness_is_from_the_last_check(report: Report) -> None:
    (row,) = report.sections["freshness"]
    assert not row.ok
    assert [cell.value for cell in row.cells().values()] == [
        "sales.orders", "9.0 min ago", "waiting for 4.0 min", "30.0 min ago", "waiting for 25.0 min", "unknown",
        "2026-03-14 09:25",
    ]  # fmt: skip


def test_publications_within_the_target_are_counted_per_day_of_a_week(report: Report) -> None:
    fields = ("day", "on_time", "publications", "longest_minutes", "target_minutes", "ok")
    assert section(report, "on_time", *fields) == [
        (TODAY, 1, 2, pytest.approx(901 / 60), 15.0, False),
        (TODAY - timedelta(days=2), 0, 1, 16.0, 15.0, False),
    ]


def test_days_sum_only_publications(report: Report) -> None:
    assert [row.to_dict() for row in report.sections["days"]][:2] == [
        {"day": "2026-03-14", "publications": 5, "inserts": 0, "updates": 0, "upserts": 8, "deletes": 2,
         "bytes": 2**20, "stage_seconds": 1.0, "record_seconds": 0.5, "rename_seconds": 0.0, "lag_seconds": 901.0},
        {"day": "2026-03-12", "publications": 1, "inserts": 20, "updates": 0, "upserts": 0, "deletes": 0,
         "bytes": 2**20, "stage_seconds": 2.5, "record_seconds": 0.5, "rename_seconds": 0.5, "lag_seconds": 960.0},
    ]  # fmt: skip
    assert len(report.sections["days"]) == 3


def test_archive_sums_the_newest_row_of_every_table(report: Report) -> None:
    fields = ("table", "currency", "active_gib", "archived_gib", "restored_gib", "month_cost", "month_saving")
    assert sorted(section(report, "archive", *fields), key=str) == [
        ("all tables", "EUR", 5.0, 5.0, 1.0, 6.0, 4.0),
        ("all tables", None, None, None, None, None, None),
        ("main.a", "EUR", 4.0, 3.0, 1.0, 5.0, 2.0),
        ("main.b", "EUR", 1.0, 2.0, None, 1.0, 2.0),
        ("main.c", None, None, None, None, None, None),
    ]
    assert [(each["age"], each["gib"]) for each in report.figures["archive_ages"]] == [
        ("0-7 d", 3.0), ("30-90 d", 0.0), ("365 d on", 6.0), ("not known", 0.0),
    ]  # fmt: skip


def test_newest_failure_of_each_table_in_30_days_is_listed_with_its_solution(report: Report) -> None:
    fields = ("table", "outcome", "error", "events", "solved_at", "solved_by", "solved_version", "ok")
    assert section(report, "failures", *fields) == [
        ("sales.old", FAILED, "StorageUnavailable", 2, None, None, None, False),
        (EVIL, BLOCKED, "FeedGap", 1, None, None, None, False),
        ("sales.orders", DIFFERENT, None, 2, None, None, None, False),  # not solved by later publications
        ("sales.late", FAILED, "StorageUnavailable", 3, ago(minutes=20), PUBLISHED, 8, True),
        ("sales.again", FAILED, "StorageUnavailable", 1, ago(hours=8), RECOVERED, 3, True),
        ("sales.gap", RESEEDED, "FeedGap", 1, ago(hours=10), RESEEDED, 5, True),
        ("sales.equal", UNVERIFIED, "MirrorNotReached", 2, ago(hours=11), VERIFIED, 4, True),
        ("sales.taken", FAILED, "StorageUnavailable", 1, ago(hours=13), ADOPTED, 41, True),
    ]  # fmt: skip
    assert [row.cells()["Message"].value for row in report.sections["failures"]][2:] == [
        "DIFFERENT: 3 rows.",
        "No answer again. Solved at 2026-03-14 09:10, by publication of version 8.",
        "No answer before. Solved at 2026-03-14 01:30, with nothing new to publish.",
        "Reloaded. Solved at 2026-03-13 23:30, by reload of version 5.",
        "Not yet. Solved at 2026-03-13 22:30, by verification of version 4.",
        "No answer at first. Solved at 2026-03-13 20:30, by adoption at version 41.",
    ]  # fmt: skip


def test_failures_are_shown_with_their_codes(report: Report) -> None:
    assert {"MF2102 FeedGap", "MF4003 StorageUnavailable"} <= set(re.findall(r"MF\d+ \w+", report.page()))
    assert {"MF2102", "MF4003"} <= set(re.findall(r"MF\d+", repr(report)))
    assert with_known_code("OfALaterRelease") == "OfALaterRelease"


def test_failures_beyond_the_listed_ones_are_counted(report: Report) -> None:
    failures = [{**each, "total": 64} for each in report.figures["failures"]]
    more = Report(NOW, {**report.figures, "failures": failures})
    assert "56 more tables with failures are not listed." in repr(more)
    assert "56 more tables with failures are not listed." in more.page()
    assert "not listed" not in repr(report)


def chart_rows(page: str, title: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", page.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0])


def test_charts_show_the_figures(report: Report) -> None:
    page = report.page()
    assert chart_rows(page, "Lag from commit to publication") == [
        "sales.orders, 2026-03-06 09:30: 1 min", "sales.orders, 2026-03-12 09:30: 16 min",
        "sales.orders, 2026-03-14 06:29: 15 min", "sales.orders, 2026-03-14 06:30: 15 min",
    ]  # fmt: skip
    assert chart_rows(page, "Rows per day by operation") == [
        "Mar 6, inserts: 1 row", "Mar 12, inserts: 20 rows", "Mar 14, upserts: 8 rows", "Mar 14, deletes: 2 rows",
    ]  # fmt: skip
    assert chart_rows(page, "MiB per day by table") == ["Mar 12, sales.orders: 1 MiB", "Mar 14, sales.orders: 1 MiB"]
    assert chart_rows(page, "Seconds per day by phase")[-2:] == ["Mar 14, stage: 1 s", "Mar 14, record: 0.5 s"]
    assert chart_rows(page, "GiB of all tables with an archive") == [
        "Mar 12, active: 4 GiB", "Mar 12, archived: 4 GiB", "Mar 13, active: 5 GiB", "Mar 13, archived: 6 GiB",
        "Mar 14, active: 5 GiB", "Mar 14, archived: 5 GiB", "Mar 14, restored: 1 GiB",
    ]  # fmt: skip
    assert chart_rows(page, "Storage cost per month, and saving by the archive, EUR")[:2] == [
        "cost, 2026-03-12 00:00: 4 EUR", "cost, 2026-03-13 00:00: 5 EUR",
    ]  # fmt: skip
    assert chart_rows(page, "Archived share by table")[0] == "main.a, 2026-03-12 00:00: 50 %"


def test_lag_of_a_table_with_many_publications_is_that_of_the_slowest_in_each_hour(
    spark: SparkSession, place: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = QUERIES["lag"].replace(str(MOST_PUBLICATIONS), "3")  # sales.orders has four
    monkeypatch.setitem(QUERIES, "lag", few)
    for name in QUERIES.keys() - {"lag"}:
        monkeypatch.delitem(QUERIES, name)
    found = read_report(spark, place, NOW).figures["lag"]
    assert [(each["time"], each["lag_minutes"], each["by_hour"]) for each in found] == [
        (ago(days=8), 1.0, True), (ago(days=2), 16.0, True), (ago(hours=3), pytest.approx(901 / 60), True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "by_hour", "points", "note"),
    [(5_000, False, 5_000, ""), (5_000, True, 5_000, "of each hour"), (5_001, True, 209, "of each day")],
)
def test_chart_of_lag_is_bounded(rows: int, by_hour: bool, points: int, note: str) -> None:
    lags = [{"time": ago(hours=n), "table": "a", "lag_minutes": n % 24, "by_hour": by_hour} for n in range(rows)]
    page = Report(NOW, {**dict.fromkeys(QUERIES, ()), "totals": [Totals(1, 0, 0, 0, 0, 0.0, 0).to_dict()], "lag": lags})
    chart = page.page().partition("<h2>Lag from commit to publication</h2>")[2].partition("</section>")[0]
    assert chart.count("<title>") == points
    assert ("Shown is the slowest publication" in chart, note in chart) == (bool(note), True)


def test_text_json_and_page_have_the_same_rows(report: Report) -> None:
    text, page, content = repr(report), report.page(), json.loads(json.dumps(report.to_dict()))
    assert content.keys() - {"as_of", "note"} == report.sections.keys()
    for name, rows in report.sections.items():
        assert content[name] == [row.to_dict() for row in rows]
    for value in ("sales.compared", "waiting for 25.0 min", "StorageUnavailable", "2026-03-13 07:30", "15.0 min"):
        assert value in text
        assert value in page


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_page_runs_no_script_and_loads_nothing(report: Report) -> None:
    text = report.page()
    elements = Elements(text).tags
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in elements}
    names = {name for _, attributes in elements for name in attributes}
    assert not {"src", "href", "srcset", "data", "style", "action"} & names
    assert not [name for name in names if name.startswith("on")]
    assert not re.search(r"url\(|@import|//", text.split("</style>")[0])


def test_names_and_messages_are_escaped(report: Report) -> None:
    for text in (report.page(), report._repr_html_()):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "<script" not in text


def test_report_is_the_same_in_every_session_and_without_the_queries_of_the_dashboard_alone(
    spark: SparkSession, place: Source, report: Report
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        found = read_report(spark, place, NOW)
        assert spark.conf.get("spark.sql.session.timeZone") == "Pacific/Auckland"
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert found.figures["days"][0]["day"] == date(2026, 3, 14)
    assert {name for name, rows in found.figures.items() if not rows} == DASHBOARD_ONLY
    assert found.page() == report.page()


def test_empty_ledger_has_totals_and_no_other_section(spark: SparkSession, tmp_path: Path) -> None:
    place = Source(path=str(tmp_path / "ledger"))
    ledger.prepare(spark, place)
    found = read_report(spark, place, NOW)
    assert [row.to_dict() for row in found.sections.pop("totals")] == [
        {"tables": 0, "stopped": 0, "different": 0, "publications": 0, "rows": 0, "mib": 0.0, "retries": 0}
    ]
    assert list(found.sections) == ["totals"]
    assert found.page().count("No data yet.") == 5


def test_report_requires_that_the_ledger_is_readable(spark: SparkSession, tmp_path: Path) -> None:
    with raises(ledger_unreadable, match=r"nowhere cannot be read: "):
        read_report(spark, Source(path=str(tmp_path / "nowhere")), NOW)


def test_dashboard_has_the_queries_of_the_report(report: Report) -> None:
    assert {each["name"]: "".join(each["queryLines"]) for each in DASHBOARD["datasets"]} == QUERIES
    for layout in DASHBOARD["pages"][0]["layout"]:
        (query,) = (each["query"] for each in layout["widget"]["queries"])
        assert {field["name"] for field in query["fields"]} <= report.figures[query["datasetName"]][0].keys()


def titles(chart: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", chart)


def test_changes_are_charted_by_version_and_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [VersionChanges(1, 5, 0, 0), VersionChanges(3, 0, 2, 1)]
    monkeypatch.setattr(Changes, "counts", lambda _: Result(tuple(counts)))
    nothing: Any = None
    changes = Changes("a", 0, 3, nothing)
    assert titles(changes.chart().html) == ["1, inserts: 5 rows", "3, updates: 2 rows", "3, deletes: 1 row"]
    counts[:] = [VersionChanges(version, 1, 0, 0) for version in range(100)]
    assert titles(changes.chart().html)[0] == "40, inserts: 1 row"  # the newest 60


def test_differences_are_charted_by_column_in_descending_order() -> None:
    columns = ["status", "", "total", "status"]
    found = tuple(Difference(f"id = {n}", column, "1", "2") for n, column in enumerate(columns))
    assert titles(Comparison("a", "DIFFERENT", False, 3, 3, 0, 9, 8, 4, found).chart().html) == [
        "status, differences: 2 rows", "(whole row), differences: 1 row", "total, differences: 1 row",
    ]  # fmt: skip


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no headless Chromium on PATH")
def test_browser_shows_the_page_without_an_error(report: Report, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(report.page(), encoding="utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
               "--enable-logging=stderr")  # fmt: skip
    answer = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", f"file://{tmp_path}/page.html"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert answer.stdout.count("<svg") == 9
    assert "CONSOLE" not in answer.stderr


def test_terminal_lists_only_days_on_which_a_publication_was_late() -> None:
    days = [DayOnTime(f"orders_{n}", date(2026, 11, 25), 4, 4, 3.0, 15.0) for n in range(300)]
    late = replace(days[7], on_time=3, longest_minutes=22.0)
    shown = text_of([*days[:7], late, *days[8:]])
    assert "299 other days of tables: every publication was on time." in shown
    assert ("orders_7 " in shown, "orders_8 " in shown) == (True, False)
    assert "orders_19 " in text_of(days[:20])


def test_terminal_lists_the_sum_of_many_archives() -> None:
    archives = [ArchiveState(NOW.date(), f"orders_{n}", "EUR", 30.0, 1.0, 2.0, 0.0, 3.0, 4.0) for n in range(60)]
    total = ArchiveState(NOW.date(), ArchiveState.ALL, "EUR", None, 60.0, 120.0, 0.0, 180.0, 240.0)
    shown = text_of([total, *archives])
    assert "60 tables with archived files: only the total is listed." in shown
    assert ("all tables" in shown, "orders_5 " in shown) == (True, False)


def test_page_folds_many_tables_without_a_problem() -> None:
    done = [TableFreshness(f"t_{n}", NOW, 5, 4, 3, 2, 1, 0.0, 0.0, 0.0, 0.0) for n in range(300)]
    figures = {
        **dict.fromkeys(QUERIES, ()),
        "totals": [Totals(300, 0, 0, 0, 0, 0.0, 0).to_dict()],
        "freshness": [asdict(each) for each in done],
    }
    page = Report(NOW, figures).page()
    assert "<details><summary>Show 300 more</summary>" in page
    assert page.index("300 tables: no changes are waiting.") < page.index("<details>") < page.index("t_299")


def test_states_of_tables_are_above_the_charts_and_other_sections_below() -> None:
    state = LedgerTableState("sales.orders", PUBLISHED, None, 3, 0, NOW, NOW, VERIFIED, 3, NOW, NOW, "equal.")
    done = TableFreshness("sales.orders", NOW, 5, 4, 3, 2, 1, 0.0, 0.0, 0.0, 0.0)
    figures = {
        **dict.fromkeys(QUERIES, ()),
        "totals": [Totals(1, 0, 0, 0, 0, 0.0, 0).to_dict()],
        "tables": [asdict(state)],
        "freshness": [asdict(done)],
    }
    page = Report(NOW, figures).page()
    titles = ("State of tables and mirrors", "Rows per day by operation", "Freshness at the last check")
    positions = [page.index(f"<h2>{title}</h2>") for title in titles]
    assert positions == sorted(positions)


def test_terminal_counts_many_tables_without_a_problem() -> None:
    done = [
        LedgerTableState(f"done_{n}", PUBLISHED, None, 3, 0, NOW, NOW, VERIFIED, 3, NOW, NOW, "equal.")
        for n in range(297)
    ]
    late = [replace(each, table=f"late_{n}", mirror=DIFFERENT) for n, each in enumerate(done[:3])]
    text = text_of([*late, *done])
    assert "297 tables: published, and no comparison found a difference." in text
    assert ("late_2" in text, "done_2" in text) == (True, False)
    assert (
        section_of([*late, *done], every=True).count("<tr>") + section_of([*late, *done], every=True).count("<tr ")
        == 301
    )
