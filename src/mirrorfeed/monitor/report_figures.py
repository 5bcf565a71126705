"""Figures of the report, aggregated by Spark from the ledger."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.humanize import duration, size
from mirrorfeed.display.rows import Cell, Row, as_json, nonzero, row, shown
from mirrorfeed.errors import first_line
from mirrorfeed.monitor.errors import NoLedger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from mirrorfeed.config.model import Config
    from mirrorfeed.source.identifier import Source

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows of each query, by the query's name."""


def time_in_utc(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def _minutes(minutes: float) -> str:
    return duration(max(0.0, minutes * 60))


def _amount(value: float) -> str:
    return f"{value:,.2f}"


@row
class Totals(Row):
    """Totals of all tables. Publications, rows, MiB and retries are those of the last 24 hours."""

    tables: int = shown("Tables")
    stopped: int = shown("Stopped")
    different: int = shown("Mirrors that differ")
    publications: int = shown("Publications, 24 h")
    rows: int = shown("Rows, 24 h")
    mib: float = shown("MiB, 24 h")
    retries: int = shown("Repeated calls, 24 h")


@row
class TableState(Row):
    """Last publication or failure of a table, and last comparison with its mirror."""

    QUIET = "{tables}: published, and no difference was found."

    table: str = shown("Table")
    state: str | None = shown("State")
    """Outcome `published`, `recovered`, `blocked` or `failed`. None without a publication or failure."""
    error: str | None = shown("Error")
    published_version: int | None = shown("Version published")
    lag_versions: int | None = shown("Versions not published")
    last_published: datetime | None = shown("Last published", time_in_utc)
    last_reported: datetime | None
    """Time of `state`."""
    mirror: str | None = shown("Mirror")
    """`verified` or `different`. None if the table was never compared."""
    mirror_version: int | None = shown("At version")
    last_compared: datetime | None = shown("Last compared", time_in_utc)
    last_equal: datetime | None
    comparison: str | None
    """Result of the last comparison, in words."""

    @property
    def ok(self) -> bool:
        from mirrorfeed.orchestration.ledger import DIFFERENT, STOPPED

        return self.state not in STOPPED and self.mirror != DIFFERENT

    @property
    def quiet(self) -> bool:
        return self.ok and self.error is None

    def remarks(self) -> Sequence[str]:
        return ()


_STEPS = ("published", "consumed", "mirrored", "queryable")


@row
class TableFreshness(Row):
    """Minutes since the newest commit of a table, and since each step on its way to Fabric.

    Also the minutes that a change waits for a step, or 0 if none waits. None means unknown.
    """

    QUIET = "{tables}: no change waits."

    table: str
    as_of: datetime
    committed_minutes: float | None
    published_minutes: float | None
    consumed_minutes: float | None
    mirrored_minutes: float | None
    queryable_minutes: float | None
    published_waits: float | None
    consumed_waits: float | None
    mirrored_waits: float | None
    queryable_waits: float | None

    @property
    def ok(self) -> bool:
        return not any(getattr(self, f"{step}_waits") for step in _STEPS)

    @property
    def quiet(self) -> bool:
        return self.ok

    def cells(self) -> Mapping[str, Cell]:
        steps = {step.capitalize(): self._step(step) for step in _STEPS}
        committed = "unknown" if self.committed_minutes is None else f"{_minutes(self.committed_minutes)} ago"
        found = {"Table": self.table, "Committed": committed, **steps, "Checked at": time_in_utc(self.as_of)}
        return {heading: Cell(text, False) for heading, text in found.items()}

    def _step(self, step: str) -> str:
        minutes, waits = getattr(self, f"{step}_minutes"), getattr(self, f"{step}_waits")
        if waits:
            return f"waiting for {_minutes(waits)}"
        return "unknown" if waits is None or minutes is None else f"{_minutes(minutes)} ago"

    def remarks(self) -> Sequence[str]:
        return ()


@row
class DayOnTime(Row):
    """Publications of a table on one day, and how many of them reached its freshness target."""

    QUIET = "{rows} other days of a table: every publication was on time."

    table: str = shown("Table")
    day: date = shown("Day (UTC)", str)
    on_time: int = shown("On time")
    publications: int = shown("Publications")
    longest_minutes: float = shown("Longest lag", _minutes, right=True)
    target_minutes: float = shown("Target", _minutes, right=True)

    @property
    def ok(self) -> bool:
        return self.on_time == self.publications

    @property
    def quiet(self) -> bool:
        return self.ok


def _seconds(value: float) -> str:
    return f"{value:,.1f} s"


@row
class DayTotals(Row):
    """All publications of one day."""

    day: date = shown("Day (UTC)", str)
    publications: int = shown("Publications")
    inserts: int = shown("Inserts", nonzero)
    updates: int = shown("Updates", nonzero)
    upserts: int = shown("Upserts", nonzero)
    deletes: int = shown("Deletes", nonzero)
    bytes: int = shown("Size", size, right=True)
    stage_seconds: float = shown("Stage", _seconds, right=True)
    record_seconds: float = shown("Record", _seconds, right=True)
    rename_seconds: float = shown("Rename", _seconds, right=True)
    lag_seconds: float | None = shown("Longest lag", duration, right=True)


@row
class ArchiveState(Row):
    """Archive of a table, or of all tables whose prices have the same currency, at the end of a day."""

    ALL = "all tables"
    QUIET = "{tables} with archived files: only the sum is listed."

    day: date
    table: str = shown("Table")
    currency: str | None
    archived_percent: float | None = shown("Archived, %")
    active_gib: float | None = shown("Active, GiB", _amount, right=True)
    archived_gib: float | None = shown("Archived, GiB", _amount, right=True)
    restored_gib: float | None = shown("Restored, GiB", _amount, right=True)
    month_cost: float | None = shown("Cost per month", _amount, right=True)
    month_saving: float | None = shown("Saving per month", _amount, right=True)

    @property
    def quiet(self) -> bool:
        return self.table != self.ALL

    def cells(self) -> Mapping[str, Cell]:
        return {**Row.cells(self), "Currency": Cell(self.currency, False)}


@row
class Failure(Row):
    """A failure, a reload, or a mirror that differs or could not be compared."""

    time: datetime = shown("Time (UTC)", time_in_utc)
    table: str = shown("Table")
    outcome: str = shown("Outcome")
    error: str | None = shown("Error")
    message: str | None = shown("Message")
    total: int
    """Failures of the last 30 days. The report contains the newest 50."""

    @property
    def ok(self) -> bool:
        return False

    def remarks(self) -> Sequence[str]:
        return ()


SECTIONS: Mapping[str, tuple[str, type[Row]]] = {
    "totals": ("Totals", Totals),
    "tables": ("State of tables and mirrors", TableState),
    "freshness": ("Freshness at the last check", TableFreshness),
    "on_time": ("Publications within the freshness target", DayOnTime),
    "days": ("Publications per day", DayTotals),
    "archive": ("Archives", ArchiveState),
    "failures": ("Failures in the last 30 days", Failure),
}


@dataclass(frozen=True, repr=False)
class Report:
    """Report on the ledger at one time, in sections. A notebook shows its charts and tables."""

    as_of: datetime
    figures: Figures
    """Rows of all queries, from which charts are drawn."""

    @property
    def sections(self) -> Mapping[str, Sequence[Row]]:
        """Rows of each section that is not empty, by name. For archives, only the newest day."""
        found = {name: [kind(**each) for each in self.figures[name]] for name, (_, kind) in SECTIONS.items()}
        archive = self.figures["archive"]
        found["archive"] = [ArchiveState(**each) for each in archive if each["day"] == archive[-1]["day"]]
        return {name: rows for name, rows in found.items() if rows}

    @property
    def notes(self) -> Mapping[str, Sequence[str]]:
        """Notes by section."""
        failures = self.figures["failures"]
        older = failures[0]["total"] - len(failures) if failures else 0
        return {"failures": (f"{older:,} older failures are not listed.",)} if older else {}

    def to_dict(self) -> dict[str, Any]:
        """Return `as_of` and the rows of each section, as JSON values."""
        sections = {name: [each.to_dict() for each in self.sections.get(name, ())] for name in SECTIONS}
        return {"as_of": as_json(self.as_of), **sections}

    def page(self) -> str:
        """Return the report as a single HTML file, without scripts and without links to other files."""
        from mirrorfeed.monitor.report_page import page

        return page(self)

    def draw(self, out: Console) -> None:
        """Print all sections as tables."""
        from mirrorfeed.display.rows import draw
        from mirrorfeed.display.terminal import text

        out.print(text(f"As of {time_in_utc(self.as_of)} UTC"))
        for name, rows in self.sections.items():
            draw(out, rows, self.notes.get(name, ()), SECTIONS[name][0])

    def __repr__(self) -> str:
        from mirrorfeed.display.rows import text_from

        return text_from(self.draw)

    def _repr_html_(self) -> str:
        from mirrorfeed.display.html import framed
        from mirrorfeed.monitor.report_page import body

        return framed(body(self))


def ledger_of(config: Config) -> Source:
    """Return the ledger of a configuration. Raises `NoLedger`."""
    if config.ledger is None:
        raise NoLedger(path=str(config.path))
    return config.ledger


def read_report(spark: SparkSession, ledger: Source, now: datetime, names: Iterable[str] | None = None) -> Report:
    """Run the queries of the report, or only those with these names, as of `now`. Raises `LedgerUnreadable`."""
    from mirrorfeed.monitor.report_queries import DASHBOARD_ONLY, NOW, QUERIES
    from mirrorfeed.orchestration.errors import LedgerUnreadable
    from mirrorfeed.runtime.spark_session import setting

    moment = f"TIMESTAMP '{now.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
    found: dict[str, Sequence[Mapping[str, Any]]] = dict.fromkeys(QUERIES, ())
    try:
        with setting(spark, "spark.sql.session.timeZone", "UTC"), _cached(spark, ledger) as view:
            for name in QUERIES.keys() - DASHBOARD_ONLY if names is None else names:
                query = f"WITH ledger AS (SELECT * FROM {view}) {QUERIES[name].replace(NOW, moment)}"
                found[name] = spark.sql(query).toArrow().to_pylist()
    except Exception as error:
        raise LedgerUnreadable(ledger=str(ledger), reason=first_line(str(error))) from error
    return Report(now, found)


@contextmanager
def _cached(spark: SparkSession, ledger: Source) -> Iterator[str]:
    """Yield a temporary view of the ledger. Spark reads the ledger once for all queries."""
    from mirrorfeed.orchestration.ledger import all_rows_query

    frame, view = spark.sql(all_rows_query(spark, ledger)), f"mirrorfeed_ledger_{uuid.uuid4().hex}"
    with suppress(Exception):  # serverless compute has no cache
        frame.persist()
    frame.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        spark.catalog.dropTempView(view)
        with suppress(Exception):
            frame.unpersist()
