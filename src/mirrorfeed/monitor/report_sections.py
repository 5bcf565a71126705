"""SQL queries on the ledger for the report, and the types of their rows.

`make fmt` copies the queries into the dashboard `resources/ledger.lvdash.json`. In a report, all queries use the same
current time. In the dashboard, each query uses the time when it runs. Days are in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from mirrorfeed.display.grid import Cell, utc_minute
from mirrorfeed.display.rows import Row, duration, nonzero, row, shown, size
from mirrorfeed.errors import with_known_code
from mirrorfeed.monitor.freshness import LAG_STEPS, Step
from mirrorfeed.orchestration.ledger import (
    ADOPTED,
    ARCHIVE,
    ATTENTION_OUTCOMES,
    COMPARISON_OUTCOMES,
    DIFFERENT,
    PUBLISHED,
    RECORD_OUTCOMES,
    RECOVERED,
    RESEEDED,
    STATE_OUTCOMES,
    STOPPED,
    UNCHANGED,
    VERIFIED,
    WATCHED,
    any_of,
)

NOW = "current_timestamp()"
MOST_PUBLICATIONS = 500
"""Publications of a table in 14 days of which the report shows the lag of each one."""
DASHBOARD_ONLY = frozenset({"operations", "phases"})
"""Queries that only the dashboard runs. The report takes the same figures from the query `days`."""


def _published(days: int) -> str:
    return f"FROM ledger WHERE outcome = '{PUBLISHED}' AND time >= {NOW} - INTERVAL {days} DAYS"


_OF_TABLES = (
    f"FROM ledger WHERE outcome {any_of((*STATE_OUTCOMES, *COMPARISON_OUTCOMES))} AND time >= {NOW} - INTERVAL 90 DAYS"
)
"""Rows with the state of tables and mirrors. A table in use has a row of the last 30 days."""
_LAST_PUBLISHED = f"FILTER (WHERE outcome {any_of((*RECORD_OUTCOMES, UNCHANGED))})"
_LAST_STATE = f"FILTER (WHERE outcome {any_of(STATE_OUTCOMES)})"
_LAST_COMPARISON = f"FILTER (WHERE outcome {any_of(COMPARISON_OUTCOMES)})"
_SOLUTION = "named_struct('time', time, 'outcome', outcome, 'version', coalesce(to_version, from_version))"
"""A row of the ledger as the solution of an earlier failure."""
_PUBLISHING_WORKS = tuple(outcome for outcome in STATE_OUTCOMES if outcome not in STOPPED)
_MINUTES_SINCE_STEPS = ",\n".join(
    f"       (unix_timestamp({NOW}) - unix_timestamp(max_by({step}_at, time))) / 60 AS {step}_minutes" for step in Step
)
_WAITS = ",\n".join(f"       max_by({step}_lag_seconds, time) / 60 AS {step}_waits" for step in LAG_STEPS)

QUERIES = {
    "totals": f"""\
SELECT count(*) AS tables, count_if(state {any_of(STOPPED)}) AS stopped, count_if(mirror = '{DIFFERENT}') AS different,
       coalesce(sum(publications), 0) AS publications, coalesce(sum(rows), 0) AS rows,
       coalesce(sum(bytes), 0) / 1048576 AS mib, coalesce(sum(retries), 0) AS retries
FROM (SELECT max_by(outcome, time) {_LAST_STATE} AS state,
             max_by(outcome, time) {_LAST_COMPARISON} AS mirror,
             count_if(recent) AS publications, sum(retries) FILTER (WHERE recent) AS retries,
             sum(inserts + updates + upserts + deletes) FILTER (WHERE recent) AS rows,
             sum(bytes) FILTER (WHERE recent) AS bytes
      FROM (SELECT *, outcome = '{PUBLISHED}' AND time >= {NOW} - INTERVAL 1 DAY AS recent
            {_OF_TABLES})
      GROUP BY `table`)
""",
    "tables": f"""\
SELECT `table`, max_by(outcome, time) {_LAST_STATE} AS state, max_by(error, time) {_LAST_STATE} AS error,
       max_by(CASE WHEN part < parts THEN NULL ELSE coalesce(to_version, from_version) END, time)
         {_LAST_PUBLISHED} AS published_version,
       max_by(CASE WHEN part < parts THEN concat(part, ' of ', parts, ' parts') END, time) {_LAST_PUBLISHED} AS load,
       max_by(lag_versions, time) {_LAST_STATE} AS lag_versions,
       max(CASE outcome WHEN '{PUBLISHED}' THEN time WHEN '{UNCHANGED}' THEN published_at END) AS last_published,
       max(time) {_LAST_STATE} AS last_reported,
       max_by(outcome, time) {_LAST_COMPARISON} AS mirror,
       max_by(to_version, time) {_LAST_COMPARISON} AS mirror_version,
       max(time) {_LAST_COMPARISON} AS last_compared,
       max(time) FILTER (WHERE outcome = '{VERIFIED}') AS last_equal,
       max_by(verified_through, time) {_LAST_COMPARISON} AS verified_through,
       max_by(message, time) {_LAST_COMPARISON} AS comparison,
       nullif(max_by(delivery, time) {_LAST_PUBLISHED}, 'upsert') AS delivery
{_OF_TABLES}
GROUP BY `table` ORDER BY `table`
""",
    "freshness": f"""\
SELECT `table`, max(time) AS as_of,
{_MINUTES_SINCE_STEPS},
{_WAITS}
FROM ledger WHERE outcome = '{WATCHED}' AND time >= {NOW} - INTERVAL 1 DAY
GROUP BY `table` ORDER BY `table`
""",
    "on_time": f"""\
SELECT `table`, date(time) AS day, count_if(lag_seconds <= freshness_target_minutes * 60) AS on_time,
       count(*) AS publications, max(lag_seconds) / 60 AS longest_minutes,
       max(freshness_target_minutes) AS target_minutes
FROM ledger WHERE outcome = '{PUBLISHED}' AND freshness_target_minutes IS NOT NULL AND lag_seconds IS NOT NULL
  AND time >= {NOW} - INTERVAL 7 DAYS AND date(time) > date({NOW}) - INTERVAL 7 DAYS
GROUP BY `table`, date(time) ORDER BY `table`, day DESC
""",
    # Each publication, or the slowest of each hour if a table has many.
    "lag": f"""\
SELECT max_by(time, lag_seconds) AS time, `table`, max(lag_seconds) / 60 AS lag_minutes,
       max(publications) > {MOST_PUBLICATIONS} AS by_hour
FROM (SELECT time, `table`, lag_seconds, count(*) OVER (PARTITION BY `table`) AS publications
      {_published(14)} AND lag_seconds IS NOT NULL)
GROUP BY `table`, if(publications > {MOST_PUBLICATIONS}, date_trunc('HOUR', time), time) ORDER BY time, `table`
""",
    "days": f"""\
SELECT date(time) AS day, count(*) AS publications, sum(inserts) AS inserts, sum(updates) AS updates,
       sum(upserts) AS upserts, sum(deletes) AS deletes, sum(bytes) AS bytes,
       coalesce(sum(stage_seconds), 0) AS stage_seconds, coalesce(sum(record_seconds), 0) AS record_seconds,
       coalesce(sum(rename_seconds), 0) AS rename_seconds, max(lag_seconds) AS lag_seconds
{_published(30)}
GROUP BY date(time) ORDER BY day DESC
""",
    "operations": f"""\
SELECT date(time) AS day, operation, sum(rows) AS rows
FROM (SELECT time, stack(4, 'inserts', inserts, 'updates', updates, 'upserts', upserts, 'deletes', deletes)
        AS (operation, rows)
      {_published(30)})
GROUP BY date(time), operation ORDER BY day
""",
    "volume": f"""\
SELECT date(time) AS day, `table`, count(*) AS publications, sum(inserts + updates + upserts + deletes) AS rows,
       sum(bytes) AS bytes, sum(bytes) / 1048576 AS mib, coalesce(sum(stage_seconds), 0)
       + coalesce(sum(record_seconds), 0) + coalesce(sum(rename_seconds), 0) AS seconds, sum(retries) AS retries
{_published(30)}
GROUP BY date(time), `table` ORDER BY day, `table`
""",
    "phases": f"""\
SELECT date(time) AS day, phase, coalesce(sum(seconds), 0) AS seconds
FROM (SELECT time, stack(3, 'stage', stage_seconds, 'record', record_seconds, 'rename', rename_seconds)
        AS (phase, seconds)
      {_published(30)})
GROUP BY date(time), phase ORDER BY day
""",
    # The state at the end of each day: the newest row of each table until then.
    "archive": f"""\
SELECT day, coalesce(`table`, 'all tables') AS `table`, currency,
       CASE WHEN `table` IS NOT NULL THEN max(archived_share) * 100 END AS archived_percent,
       sum(hot_bytes - coalesce(restored_bytes, 0)) / 1073741824 AS active_gib,
       sum(archived_bytes - coalesce(restored_bytes, 0)) / 1073741824 AS archived_gib,
       sum(restored_bytes) / 1073741824 AS restored_gib,
       sum(month_cost) AS month_cost, sum(month_saving) AS month_saving
FROM (SELECT day, `table`, max_by(archived_share, time) AS archived_share, max_by(hot_bytes, time) AS hot_bytes,
             max_by(archived_bytes, time) AS archived_bytes, max_by(restored_bytes, time) AS restored_bytes,
             max_by(month_cost, time) AS month_cost, max_by(month_saving, time) AS month_saving,
             max_by(currency, time) AS currency
      FROM (SELECT explode(sequence(date(min(time)), date(max(time)))) AS day
            FROM ledger WHERE outcome = '{ARCHIVE}' AND time >= {NOW} - INTERVAL 90 DAYS)
      JOIN ledger ON outcome = '{ARCHIVE}' AND time >= {NOW} - INTERVAL 90 DAYS AND date(time) <= day
      GROUP BY day, `table`)
GROUP BY GROUPING SETS ((day, `table`, currency), (day, currency)) ORDER BY day, `table`, currency
""",
    "archive_ages": f"""\
SELECT age, sum(bytes) / 1073741824 AS gib
FROM (SELECT explode(bytes_by_age) AS (age, bytes)
      FROM (SELECT max_by(bytes_by_age, time) AS bytes_by_age
            FROM ledger WHERE outcome = '{ARCHIVE}' AND time >= {NOW} - INTERVAL 90 DAYS GROUP BY `table`))
GROUP BY age ORDER BY try_cast(regexp_extract(age, '^[0-9]+', 0) AS INT) NULLS LAST
""",
    # The solution of a failure is the first later row with which the table works again. A reload is its own solution.
    # A failure that is not solved counts as newer than others. The window is read from its end, which is linear.
    "failures": f"""\
SELECT newest.time, `table`, newest.outcome, newest.error, newest.message, events, newest.solution.time AS solved_at,
       newest.solution.outcome AS solved_by, newest.solution.version AS solved_version, count(*) OVER () AS total
FROM (SELECT `table`, max(struct(solution IS NULL AS is_open, time, outcome, error, message, solution)) AS newest,
             count(*) AS events
      FROM (SELECT time, `table`, outcome, error, message,
                   CASE WHEN outcome = '{RESEEDED}' THEN {_SOLUTION}
                        WHEN outcome {any_of(STOPPED)} THEN min(CASE WHEN outcome {any_of(_PUBLISHING_WORKS)}
                          THEN {_SOLUTION} END) OVER later
                        ELSE min(CASE WHEN outcome = '{VERIFIED}' THEN {_SOLUTION} END) OVER later
                   END AS solution
            FROM ledger
            WHERE outcome {any_of((*_PUBLISHING_WORKS, VERIFIED, *ATTENTION_OUTCOMES))}
              AND time >= {NOW} - INTERVAL 30 DAYS
            WINDOW later AS (PARTITION BY `table` ORDER BY time DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
      WHERE outcome {any_of(ATTENTION_OUTCOMES)}
      GROUP BY `table`)
ORDER BY newest.is_open DESC, time DESC, `table` LIMIT 50
""",
}


def _minutes(minutes: float) -> str:
    return duration(max(0.0, minutes * 60))


_amount, _seconds = "{:,.2f}".format, "{:,.1f} s".format


@row
class Totals(Row):
    """Totals of all tables. Publications, rows, MiB and retries count only the last 24 hours. None: needs a ledger."""

    tables: int = shown("Tables")
    stopped: int = shown("Stopped")
    different: int | None = shown("Mirrors that differ")
    publications: int = shown("Publications, 24 h")
    rows: int = shown("Rows, 24 h")
    mib: float = shown("MiB, 24 h")
    retries: int | None = shown("Repeated requests, 24 h")


@row
class LedgerTableState(Row):
    """Last publication, adoption or failure of a table, and last comparison with its mirror, in the last 90 days."""

    QUIET = "{tables}: published, and no comparison found a difference."

    table: str = shown("Table")
    state: str | None = shown("State")
    """`published`, `adopted` (files of another publisher are continued), `recovered`, `unchanged`, `blocked` or
    `failed`. None if there is no publication or failure."""
    error: str | None = shown("Error", with_known_code)
    published_version: int | None = shown("Version published")
    lag_versions: int | None = shown("Versions not published")
    last_published: datetime | None = shown("Last published", utc_minute)
    last_reported: datetime | None
    """Time of the publication or failure in `state`."""
    mirror: str | None = shown("Mirror")
    """`verified` or `different`. None if the table was never compared."""
    mirror_version: int | None = shown("At version")
    last_compared: datetime | None = shown("Last compared", utc_minute)
    last_equal: datetime | None
    comparison: str | None
    """Result of the last comparison, in words."""
    verified_through: int | None = shown("Verified", default=None)
    """Newest version at which source and mirror were verified."""
    load: str | None = None
    """Published parts of a first load that is not complete, such as "3 of 10 parts"."""
    delivery: str | None = shown("Delivery", default=None)
    """Delivery mode of the last publication, such as `soft_delete`. None for `upsert`."""

    def remarks(self) -> Sequence[str]:
        load = (f"{self.table}: {self.load} of the first load are published.",) if self.load else ()
        return (*load, *Row.remarks(self))

    @property
    def ok(self) -> bool:
        return self.state not in STOPPED and self.mirror != DIFFERENT

    @property
    def quiet(self) -> bool:
        return self.ok and self.error is None and self.load is None


@row
class TableFreshness(Row):
    """Freshness of a table, from its last check by `mirrorfeed check-alerts`.

    A change passes five steps from the source to Fabric: committed, published, consumed, mirrored, queryable.
    `<step>_minutes` are the minutes from the time of this step in `Freshness.times` to the time of the report.
    `<step>_waits` is the lag of this step (`Freshness.lag`) in minutes, at the time of the check. 0 means that no
    change waited. None means that a time is unknown.
    """

    QUIET = "{tables}: no changes are waiting."

    table: str
    as_of: datetime
    """Time of the check."""
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
        return not any(getattr(self, f"{step}_waits") for step in LAG_STEPS)

    def cells(self) -> Mapping[str, Cell]:
        steps = {step.capitalize(): self._age(step) for step in Step}
        texts = {"Table": self.table, **steps, "Checked at": utc_minute(self.as_of)}
        return {heading: Cell(text, False) for heading, text in texts.items()}

    def _age(self, step: str) -> str:
        minutes, waits = getattr(self, f"{step}_minutes"), getattr(self, f"{step}_waits", 0.0)
        if waits:
            return f"waiting for {_minutes(waits)}"
        return "unknown" if waits is None or minutes is None else f"{_minutes(minutes)} ago"


@row
class DayOnTime(Row):
    """Publications of a table on one day, and how many of them met the freshness target of the table."""

    QUIET = "{rows} other days of tables: every publication was on time."

    table: str = shown("Table")
    day: date = shown("Day (UTC)", str)
    on_time: int = shown("On time")
    publications: int = shown("Publications")
    longest_minutes: float = shown("Longest lag", _minutes, right=True)
    target_minutes: float = shown("Target", _minutes, right=True)

    @property
    def ok(self) -> bool:
        return self.on_time == self.publications


@row
class DayTotals(Row):
    """Totals of all publications on one day. Without a ledger, durations and lag are None."""

    day: date = shown("Day (UTC)", str)
    publications: int = shown("Publications")
    inserts: int = shown("Inserts", nonzero)
    updates: int = shown("Updates", nonzero)
    upserts: int = shown("Upserts", nonzero)
    deletes: int = shown("Deletes", nonzero)
    bytes: int = shown("Size", size, right=True)
    stage_seconds: float | None = shown("Stage", _seconds, right=True)
    record_seconds: float | None = shown("Record", _seconds, right=True)
    rename_seconds: float | None = shown("Rename", _seconds, right=True)
    lag_seconds: float | None = shown("Longest lag", duration, right=True)


@row
class TableWork(Row):
    """Work of the publications of a table in the last 30 days, in UTC."""

    table: str = shown("Table")
    publications: int = shown("Publications")
    rows: int = shown("Rows")
    bytes: int = shown("Size", size, right=True)
    seconds: float = shown("Seconds", _amount, right=True)
    """Seconds of staging, recording and renaming. Parallel tables share a cluster, so a run can be shorter than its
    sum."""
    rows_per_second: float | None = shown("Rows per second", _amount, right=True)
    retries: int = shown("Repeated requests", nonzero)

    @classmethod
    def from_days(cls, days: Iterable[Mapping[str, Any]]) -> list[TableWork]:
        """Return the sums of the days in the result of the query `volume`, longest time first."""
        names = ("publications", "rows", "bytes", "seconds", "retries")
        tables: dict[str, dict[str, Any]] = {}
        for day in days:
            sums = tables.setdefault(day["table"], dict.fromkeys(names, 0))
            for name in names:
                sums[name] += day[name]
        works = [
            cls(table=table, **sums, rows_per_second=sums["rows"] / sums["seconds"] if sums["seconds"] else None)
            for table, sums in tables.items()
        ]
        return sorted(works, key=lambda work: (-work.seconds, work.table))


@row
class ArchiveState(Row):
    """Sizes and storage costs of a table with archived files, at the end of a day.

    `currency` is the currency of the costs. If `table` has the value `all tables`, the row has the totals of all tables
    whose costs are in this currency.
    """

    ALL = "all tables"
    QUIET = "{tables} with archived files: only the total is listed."

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


_SOLVED_BY = {
    PUBLISHED: "by publication of version {version}",
    ADOPTED: "by adoption at version {version}",
    RESEEDED: "by reload of version {version}",
    VERIFIED: "by verification of version {version}",
    RECOVERED: "with nothing new to publish",
    UNCHANGED: "with nothing new to publish",
}


@row
class Failure(Row):
    """Newest event of a table in the ledger that needs attention. Events that are not solved come before others.

    A publication failed or was blocked, a table was reloaded from a snapshot after an error, a mirror differs from its
    source, or a mirror could not be compared with its source.
    """

    time: datetime = shown("Time (UTC)", utc_minute)
    table: str = shown("Table")
    outcome: str = shown("Outcome")
    error: str | None = shown("Error", with_known_code)
    message: str | None = shown("Message")
    events: int = shown("Events")
    """Number of these events of the table in the last 30 days."""
    total: int
    """Number of tables with these events. The report lists 50 tables."""
    solved_at: datetime | None = None
    """Time of the first publication or verification without an error after the event. None if there is none."""
    solved_by: str | None = None
    """Outcome in the ledger that solved it, such as `published`, `recovered`, `verified` or `reseeded`."""
    solved_version: int | None = None
    """Version of the source that was then published or verified."""

    @property
    def ok(self) -> bool:
        return self.solved_at is not None

    @property
    def quiet(self) -> bool:
        return False

    def cells(self) -> Mapping[str, Cell]:
        message = " ".join(filter(None, [self.message, self._solution()]))
        return {**Row.cells(self), "Message": Cell(message, False)}

    def _solution(self) -> str:
        if self.solved_at is None:
            return ""
        how = _SOLVED_BY.get(self.solved_by or "", "").format(version=self.solved_version)
        return f"Solved at {', '.join(filter(None, [utc_minute(self.solved_at), how]))}."


SECTIONS: Mapping[str, tuple[str, type[Row]]] = {
    "totals": ("Totals", Totals),
    "tables": ("State of tables and mirrors", LedgerTableState),
    "freshness": ("Freshness at the last check", TableFreshness),
    "on_time": ("Publications within the freshness target", DayOnTime),
    "days": ("Publications per day", DayTotals),
    "work": ("Work by table in the last 30 days", TableWork),
    "archive": ("Archives", ArchiveState),
    "failures": ("Failures in the last 30 days", Failure),
}
