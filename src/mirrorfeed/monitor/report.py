"""Report on the ledger: figures that Spark computes, as tables, as JSON, or as an HTML page with charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.grid import grid_of, split, utc_minute
from mirrorfeed.display.html import bars, card, details, lines, page_of, paragraph, section_of, styled
from mirrorfeed.display.progress import progress
from mirrorfeed.display.redact import escape_html
from mirrorfeed.display.rows import Row, as_json
from mirrorfeed.display.terminal import draw, text, text_from
from mirrorfeed.errors import first_line
from mirrorfeed.monitor.report_sections import (
    DASHBOARD_ONLY,
    MOST_PUBLICATIONS,
    NOW,
    QUERIES,
    SECTIONS,
    ArchiveState,
    TableWork,
)
from mirrorfeed.orchestration.errors import ledger_unreadable
from mirrorfeed.orchestration.ledger import all_rows_query
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.source.table_info import read_table_info

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from mirrorfeed.source.identifier import Source

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""Result rows of each query, by name of the query."""
Series = Mapping[str, Mapping[date, float]]
"""Values of a chart, by name of the series (such as a table) and then by time."""
_MOST_POINTS = 5_000
"""Publications that the chart of the lag shows. Each one is about 150 bytes of the page."""
_SLOWEST = "Shown is the slowest publication of each"
_SMALL_BYTES = 2**26
"""Largest ledger that one task reads. Its queries then need no shuffles, which take longer than reading."""


@dataclass(frozen=True, repr=False)
class Report:
    """Figures at the time `as_of`, from the ledger or, without a ledger, from the logs in the landing zone.
    A notebook shows them with charts and tables."""

    as_of: datetime
    figures: Figures
    """Result rows of each query, by name of the query. Without a ledger, some queries are missing."""
    note: str = ""
    """Text that says what the report lacks without a ledger. Empty if there is a ledger."""

    @property
    def sections(self) -> Mapping[str, Sequence[Row]]:
        """Rows of each section by name, without empty sections. The section `archive` has only its newest day."""
        archive = self.figures.get("archive", ())
        newest = {"archive": [each for each in archive if each["day"] == archive[-1]["day"]]}
        figures = {**dict.fromkeys(SECTIONS, ()), **self.figures, **newest, "work": ()}
        rows: dict[str, Sequence[Row]] = {}
        for name, (_, kind) in SECTIONS.items():
            rows[name] = [kind(**each) for each in figures[name]]
        rows["work"] = TableWork.from_days(each for each in self.figures.get("volume", ()) if "seconds" in each)
        return {name: each for name, each in rows.items() if each}

    @property
    def notes(self) -> Mapping[str, Sequence[str]]:
        """Notes by section, for example the number of failed tables that are not listed."""
        failures = self.figures["failures"]
        others = failures[0]["total"] - len(failures) if failures else 0
        return {"failures": (f"{others:,} more tables with failures are not listed.",)} if others else {}

    def to_dict(self) -> dict[str, Any]:
        """Return `as_of`, `note` and the rows of each section, as JSON values."""
        sections = {name: [each.to_dict() for each in self.sections.get(name, ())] for name in SECTIONS}
        return {"as_of": as_json(self.as_of), "note": self.note, **sections}

    def page(self) -> str:
        """Return the report as one HTML file without scripts or links to other files."""
        return page_of("mirrorfeed", body(self))

    def draw(self, out: Console) -> None:
        """Print all sections as tables."""
        out.print(text(f"As of {utc_minute(self.as_of)} UTC"))
        if self.note:
            out.print(text(self.note), soft_wrap=True)
        for name, rows in self.sections.items():
            draw(out, rows, self.notes.get(name, ()), SECTIONS[name][0])

    def __repr__(self) -> str:
        return text_from(self.draw)

    def _repr_html_(self) -> str:
        return styled(body(self))


def report_of(start_spark: Callable[[], SparkSession], ledger: Source) -> Report:
    """Return the report on a ledger. Raises `ledger_unreadable` if the ledger cannot be read."""
    spark = start_spark()
    progress.info("Reading the ledger %s", ledger)
    return read_report(spark, ledger, datetime.now(UTC))


def read_report(spark: SparkSession, ledger: Source, now: datetime) -> Report:
    """Run all queries of the report on the ledger. Return a report with their results.

    One statement runs all queries, with `now` as the current time. Raises `ledger_unreadable` if it fails.
    """
    time = f"TIMESTAMP '{now.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
    sections = []
    for name in sorted(QUERIES.keys() - DASHBOARD_ONLY):
        numbered = f"SELECT monotonically_increasing_id() AS position, * FROM ({QUERIES[name].replace(NOW, time)})"
        sections.append(f"(SELECT collect_list(struct(*)) FROM ({numbered})) AS {name}")
    try:
        with setting(spark, "spark.sql.session.timeZone", "UTC"):
            is_small = read_table_info(spark, ledger, counted=True).bytes <= _SMALL_BYTES
            rows = all_rows_query(spark, ledger, in_one_task=is_small)
            query = f"WITH ledger AS ({rows}) SELECT {', '.join(sections)}"
            (results,) = spark.sql(query).toArrow().to_pylist()
    except Exception as error:
        raise ledger_unreadable(ledger=str(ledger), reason=first_line(str(error))) from error
    figures: dict[str, Sequence[Mapping[str, Any]]] = dict.fromkeys(QUERIES, ())
    # `collect_list` does not keep the order of the query
    figures |= {name: sorted(rows, key=lambda row: row.pop("position")) for name, rows in results.items()}
    return Report(now, figures)


def body(report: Report) -> str:
    """Return the report as HTML: totals, charts and tables. Long lists of rows without a problem are collapsed."""
    sections = dict(report.sections)
    totals = grid_of(sections.pop("totals"))
    tiles = "".join(
        f'<div class="tile"><b{" class=long" * (len(value) > 8)}>{escape_html(value)}</b>{escape_html(name)}</div>'
        for name, value in zip(totals.header, totals.lines[0], strict=True)
    )
    note = f"<p>{escape_html(report.note)}</p>" if report.note else ""
    graphs = "".join(card(title, chart) for title, chart in charts(report.figures))
    cards = {name: _card(name, rows, report.notes.get(name, ())) for name, rows in sections.items()}
    states = cards.pop("tables", "")  # what needs attention comes first
    return (
        f"<header><h1>mirrorfeed</h1><p>As of {utc_minute(report.as_of)} UTC</p>{note}</header>"
        f'<div class="tiles">{tiles}</div>{states}<div class="charts">{graphs}</div>{"".join(cards.values())}'
    )


def _card(name: str, rows: Sequence[Row], notes: Sequence[str]) -> str:
    _, quiet, _ = split(rows)
    hidden = details(f"Show {len(quiet):,} more", section_of(quiet, every=True, labelled=True)) if quiet else ""
    return card(SECTIONS[name][0], section_of(rows, notes, labelled=True) + hidden)


def charts(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield title and HTML of each chart. Leaves out charts whose query is missing in `figures`, and charts of archived
    files if there are none."""
    if "lag" in figures:
        points, note = _lag_points(figures["lag"])
        chart = _line_chart(_series(points, "time", {"": "lag_minutes"}), "min")
        yield "Lag from commit to publication", chart + (paragraph(note) if note else "")
    operations = {operation: operation for operation in ("inserts", "updates", "upserts", "deletes")}
    yield "Rows per day by operation", _by_day(_series(figures["days"], "day", operations), "rows")
    mib, rows = (_series(figures["volume"], "day", {"": value}) for value in ("mib", "rows"))
    by_size = sorted(mib, key=lambda table: (-sum(mib[table].values()), table))
    yield "MiB per day by table", _by_day({table: mib[table] for table in by_size}, "MiB")
    yield "Rows per day by table", _by_day({table: rows[table] for table in by_size}, "rows")
    if "lag" in figures:
        phases = {phase: f"{phase}_seconds" for phase in ("stage", "record", "rename")}
        yield "Seconds per day by phase", _by_day(_series(figures["days"], "day", phases), "s")
    if not (archive := figures.get("archive")):
        return
    yield "Archived share by table", _line_chart(_series(archive, "day", {"": "archived_percent"}), "%")
    totals = [each for each in archive if each["table"] == ArchiveState.ALL]
    parts = _series(totals, "day", {part: f"{part}_gib" for part in ("active", "archived", "restored")})
    if any(any(days.values()) for days in parts.values()):
        yield "GiB of all tables with an archive", _by_day(parts, "GiB")
    if ages := figures["archive_ages"]:
        columns = [(each["age"], {"files": each["gib"]}) for each in ages]
        yield "GiB by age of the files", bars(columns, ["files"], "GiB", "age")
    for currency in sorted({each["currency"] for each in totals if each["currency"]}):
        of_currency = [each for each in totals if each["currency"] == currency]
        prices = _series(of_currency, "day", {"cost": "month_cost", "saving": "month_saving"})
        yield f"Storage cost per month, and saving by the archive, {currency}", _line_chart(prices, currency)


def _lag_points(rows: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Return the points to draw of the result rows of the query `lag`, and a note if they are not all publications.

    If there are too many rows, only the slowest publication of each table and day is drawn.
    """
    if len(rows) > _MOST_POINTS:
        slowest: dict[tuple[date, str], Mapping[str, Any]] = {}
        for each in rows:
            key = each["time"].date(), each["table"]
            if key not in slowest or each["lag_minutes"] > slowest[key]["lag_minutes"]:
                slowest[key] = each
        return list(slowest.values()), f"{_SLOWEST} day, because there are too many publications to show each one."
    if any(each["by_hour"] for each in rows):
        return rows, f"{_SLOWEST} hour, for tables with more than {MOST_PUBLICATIONS} publications in 14 days."
    return rows, ""


def _series(rows: Sequence[Mapping[str, Any]], time: str, values: Mapping[str, str]) -> Series:
    """Return the series of a chart. Each series has, for each time, the sum of the values in one column of `rows`.

    `time` names the column with the time. `values` maps the name of each series to the column with its values. An
    empty name in `values` means one series for each value of the column `table`.
    """
    series: dict[str, dict[date, float]] = {name: {} for name in values if name}
    for each in rows:
        for name, value in values.items():
            if each[value] is not None:
                times = series.setdefault(name or each["table"], {})
                times[each[time]] = times.get(each[time], 0) + each[value]
    return series


def _by_day(series: Series, unit: str) -> str:
    """Return the HTML of a chart with a bar for each day from the first to the last, including days without values."""
    days_with_values, columns = sorted({day for days in series.values() for day in days}), []
    for count in range((days_with_values[-1] - days_with_values[0]).days + 1 if days_with_values else 0):
        day = days_with_values[0] + timedelta(days=count)
        parts = {name: days[day] for name, days in series.items() if day in days}
        columns.append((f"{day:%b} {day.day}", parts))
    return bars(columns, list(series), unit, "day, UTC")


def _line_chart(series: Series, unit: str) -> str:
    """Return the HTML of a line chart. The value of a day is drawn at the start of the day in UTC."""

    def start(time: date) -> datetime:
        return time if isinstance(time, datetime) else datetime(time.year, time.month, time.day, tzinfo=UTC)

    return lines({name: {start(time): times[time] for time in times} for name, times in series.items() if times}, unit)
