"""The figures of the page, and what went wrong, for a terminal and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from mirrorfeed.display import terminal
from mirrorfeed.display.humanize import by_marker, counted, duration, size
from mirrorfeed.display.svg_charts import number, what
from mirrorfeed.display.terminal import Listing
from mirrorfeed.monitor import report_figures as archive
from mirrorfeed.monitor.report_page import MARKERS, PHASES, STANDING, days, failures, figures, moment, standings
from mirrorfeed.publish.ledger import Row, named
from mirrorfeed.report import freshness, in_time

_FAILURES = 10
_DAY = ("Day (UTC)", "Rows", "Bytes", *(phase.capitalize() for phase in PHASES), "Longest lag")


def text(rows: Sequence[Row], now: datetime) -> Iterator[Text | Listing]:
    """What all tables come to, where each stands and how fresh it is, how often it was in time, what was published each
    day, what is archived, and the newest of what went wrong."""
    yield terminal.text(f"As of {moment(now)} UTC, from {counted(len(rows), 'row')} of the ledger")
    yield terminal.text(", ".join(f"{number(value)} {what(name, value)}" for name, value in figures(rows, now).items()))
    if stand := standings(rows):
        yield Listing(STANDING, [standing.cells(now) for standing in stand], right=())
    if fresh := freshness.newest(rows):
        yield Listing(freshness.FRESH, [freshness.cells(row, now) for row in fresh], right=())
    if met := in_time.in_time(rows, now):
        yield Listing(in_time.head(now), [in_time.cells(*each) for each in met.items()], right=range(1, 9))
    if published := days(rows, now):
        yield Listing(_DAY, [_day(day) for day in published], right=range(2, 9))
    if held := archive.held(rows):
        yield Listing(archive.HELD, held, right=range(1, 9))
    found = failures(rows)
    for row in found[:_FAILURES]:
        yield terminal.text(
            f"{moment(row.time)} {row.table}: {row.error or row.outcome}: {row.message or ''}", style="red"
        )
    if len(found) > _FAILURES:
        yield terminal.text(f"{len(found) - _FAILURES:,} older ones are not shown; --html and --json have more.")


def _day(day: dict[str, Any]) -> tuple[str, ...]:
    rows = by_marker({marker.removesuffix("s"): day[marker] for marker in MARKERS}) or "no rows"
    seconds = (f"{day[f'{phase}_seconds']:.1f} s" for phase in PHASES)
    lag = "-" if day["lag_seconds"] is None else duration(day["lag_seconds"])
    return str(day["day"]), rows, size(day["bytes"]), *seconds, lag


def told(rows: Sequence[Row], now: datetime) -> dict[str, Any]:
    """The same for programs."""
    where = [
        {
            "table": standing.table,
            "state": None if standing.row is None else named(standing.row),
            "published": None if standing.published is None else named(standing.published),
            "compared": None if standing.compared is None else named(standing.compared),
        }
        for standing in standings(rows)
    ]
    return {
        "figures": figures(rows, now),
        "tables": where,
        "fresh": [named(row) for row in freshness.newest(rows)],
        "in_time": in_time.told(rows, now),
        "days": days(rows, now),
        "archives": [named(row) for row in archive.newest(rows)],
        "wrong": [named(row) for row in failures(rows)],
    }
