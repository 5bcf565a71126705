"""The report as an HTML page, with charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.html import Chart, Point, bars, card, folded, lines, page_of, titled
from mirrorfeed.display.redact import escape_html
from mirrorfeed.display.rows import Row, grid_of, section_of, split
from mirrorfeed.monitor.report_figures import SECTIONS, ArchiveState, Figures, Report, read_report, time_in_utc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.source.identifier import Source

_DAY = "day, UTC"
_OPERATIONS = ("inserts", "updates", "upserts", "deletes")
_PHASES = ("stage", "record", "rename")
_PARTS = ("active", "archived", "restored")


def page(report: Report) -> str:
    return page_of("mirrorfeed", body(report))


def body(report: Report) -> str:
    """Return the content of the page: figures, charts, then a table for each section."""
    sections = dict(report.sections)
    totals = grid_of(sections.pop("totals"))
    tiles = "".join(
        f'<div class="tile"><b{" class=long" * (len(value) > 8)}>{escape_html(value)}</b>{escape_html(name)}</div>'
        for name, value in zip(totals.header, totals.lines[0], strict=True)
    )
    drawn = "".join(card(title, chart) for title, chart in charts(report.figures))
    listed = "".join(
        card(SECTIONS[name][0], _section(rows, report.notes.get(name, ()))) for name, rows in sections.items()
    )
    return (
        f"<header><h1>mirrorfeed</h1><p>As of {time_in_utc(report.as_of)} UTC</p></header>"
        f'<div class="tiles">{tiles}</div><div class="charts">{drawn}</div>{listed}'
    )


def _section(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Return the rows that need attention. Many other rows follow, folded."""
    _, others, _ = split(rows)
    below = folded(f"Show {len(others):,} more", section_of(others, every=True)) if others else ""
    return section_of(rows, notes) + below


def charts(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield titles and SVG charts. Charts of archives are left out if no table has an archive."""
    yield lag_chart(figures)
    yield operations_chart(figures)
    yield "MiB per day by table", _by_day(figures["volume"], "table", "mib", "MiB", _names(figures["volume"]))
    yield "Rows per day by table", _by_day(figures["volume"], "table", "rows", "rows", _names(figures["volume"]))
    phases = [
        {"day": each["day"], "phase": phase, "seconds": each[f"{phase}_seconds"]}
        for each in figures["days"]
        for phase in _PHASES
    ]
    yield "Seconds per day by phase", _by_day(phases, "phase", "seconds", "s", _PHASES)
    if not (archive := figures["archive"]):
        return
    yield "Archived share by table", _over_time(archive, "day", {"": "archived_percent"}, "%")
    parts = [
        {"day": each["day"], "part": part, "gib": each[f"{part}_gib"] or 0}
        for each in archive
        if each["table"] == ArchiveState.ALL
        for part in _PARTS
    ]
    if any(each["gib"] for each in parts):
        yield "GiB of all tables with an archive", _by_day(parts, "part", "gib", "GiB", _PARTS)
    if ages := figures["archive_ages"]:
        columns = [(each["age"], {"files": each["gib"]}) for each in ages]
        yield "GiB by age of the files", bars(columns, ["files"], "GiB", "age")
    for currency in sorted({each["currency"] for each in archive if each["currency"]}):
        own = [each for each in archive if each["table"] == ArchiveState.ALL and each["currency"] == currency]
        prices = {"cost": "month_cost", "saving": "month_saving"}
        yield f"Storage cost per month, and saving by the archive, {currency}", _over_time(own, "day", prices, currency)


def lag_chart(figures: Figures) -> tuple[str, str]:
    return "Lag from commit to publication", _over_time(figures["lag"], "hour", {"": "lag_minutes"}, "min")


def operations_chart(figures: Figures) -> tuple[str, str]:
    rows = [
        {"day": each["day"], "operation": operation, "rows": each[operation] or 0}
        for each in figures["days"]
        for operation in _OPERATIONS
    ]
    return "Rows per day by operation", _by_day(rows, "operation", "rows", "rows", _OPERATIONS)


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the tables, sorted by bytes in descending order."""
    sums: dict[str, float] = {}
    for each in rows:
        sums[each["table"]] = sums.get(each["table"], 0) + each["mib"]
    return sorted(sums, key=lambda name: (-sums[name], name))


def _by_day(rows: Sequence[Mapping[str, Any]], kind: str, value: str, unit: str, kinds: Sequence[str]) -> str:
    """Draw bars for every day from the first to the last, including days without a value."""
    if not rows:
        return bars([], kinds, unit)
    found: dict[date, dict[str, float]] = {}
    day, last = min(each["day"] for each in rows), max(each["day"] for each in rows)
    while day <= last:
        found[day] = {}
        day += timedelta(days=1)
    for each in rows:
        parts = found[each["day"]]
        parts[each[kind]] = parts.get(each[kind], 0) + each[value]
    return bars([(f"{day:%b} {day.day}", parts) for day, parts in found.items()], kinds, unit, _DAY)


def _over_time(rows: Sequence[Mapping[str, Any]], time: str, values: Mapping[str, str], unit: str) -> str:
    """Draw a line for each value, by its name. Without names, draw a line for each table."""
    series: dict[str, list[Point]] = {}
    for each in rows:
        for name, value in values.items():
            if each[value] is not None:
                series.setdefault(name or each["table"], []).append(Point(_moment(each[time]), each[value]))
    return lines(series, unit)


def _moment(time: date) -> datetime:
    return time if isinstance(time, datetime) else datetime(time.year, time.month, time.day, tzinfo=UTC)


def publication_chart(spark: Callable[[], SparkSession], ledger: Source | None) -> Chart:
    """Draw the charts of lag and of rows per day. They are empty without a ledger."""
    figures: Figures = {"lag": (), "days": ()}
    if ledger:
        figures = read_report(spark(), ledger, datetime.now(UTC), ("lag", "days")).figures
    (title, lag), operations = lag_chart(figures), operations_chart(figures)
    return Chart(title, lag + titled(*operations))
