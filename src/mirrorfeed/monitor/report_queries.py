"""SQL queries over the ledger, for the report and the dashboard.

The report runs each query as of one time, the dashboard as of now. `resources/ledger.lvdash.json` contains copies of
the queries. Days are in UTC: the report sets the session's time zone, and UTC is the default of a SQL warehouse.
"""

from __future__ import annotations

from collections.abc import Iterable

from mirrorfeed.orchestration.ledger import (
    ARCHIVE,
    ATTENTION_OUTCOMES,
    COMPARISON_OUTCOMES,
    DIFFERENT,
    PUBLISHED,
    STATE_OUTCOMES,
    STOPPED,
    VERIFIED,
    WATCHED,
)

NOW = "current_timestamp()"
DASHBOARD_ONLY = frozenset({"operations", "phases"})
"""Queries whose figures the report takes from `days`, because each query may read the ledger only once."""


def _any_of(outcomes: Iterable[str]) -> str:
    return "IN ({})".format(", ".join(f"'{outcome}'" for outcome in outcomes))


def _published(days: int) -> str:
    return f"FROM ledger WHERE outcome = '{PUBLISHED}' AND time >= {NOW} - INTERVAL {days} DAYS"


_LAST_STATE = f"FILTER (WHERE outcome {_any_of(STATE_OUTCOMES)})"
_LAST_COMPARISON = f"FILTER (WHERE outcome {_any_of(COMPARISON_OUTCOMES)})"

QUERIES = {
    "totals": f"""\
SELECT count(*) AS tables, count_if(state {_any_of(STOPPED)}) AS stopped, count_if(mirror = '{DIFFERENT}') AS different,
       coalesce(sum(publications), 0) AS publications, coalesce(sum(rows), 0) AS rows,
       coalesce(sum(bytes), 0) / 1048576 AS mib, coalesce(sum(retries), 0) AS retries
FROM (SELECT max_by(outcome, time) {_LAST_STATE} AS state,
             max_by(outcome, time) {_LAST_COMPARISON} AS mirror,
             count_if(recent) AS publications, sum(retries) FILTER (WHERE recent) AS retries,
             sum(inserts + updates + upserts + deletes) FILTER (WHERE recent) AS rows,
             sum(bytes) FILTER (WHERE recent) AS bytes
      FROM (SELECT *, outcome = '{PUBLISHED}' AND time >= {NOW} - INTERVAL 1 DAY AS recent
            FROM ledger WHERE outcome {_any_of((*STATE_OUTCOMES, *COMPARISON_OUTCOMES))})
      GROUP BY `table`)
""",
    "tables": f"""\
SELECT `table`, max_by(outcome, time) {_LAST_STATE} AS state, max_by(error, time) {_LAST_STATE} AS error,
       max_by(to_version, time) FILTER (WHERE outcome = '{PUBLISHED}') AS published_version,
       max_by(lag_versions, time) {_LAST_STATE} AS lag_versions,
       max(time) FILTER (WHERE outcome = '{PUBLISHED}') AS last_published,
       max(time) {_LAST_STATE} AS last_reported,
       max_by(outcome, time) {_LAST_COMPARISON} AS mirror,
       max_by(to_version, time) {_LAST_COMPARISON} AS mirror_version,
       max(time) {_LAST_COMPARISON} AS last_compared,
       max(time) FILTER (WHERE outcome = '{VERIFIED}') AS last_equal,
       max_by(message, time) {_LAST_COMPARISON} AS comparison
FROM ledger WHERE outcome {_any_of((*STATE_OUTCOMES, *COMPARISON_OUTCOMES))}
GROUP BY `table` ORDER BY `table`
""",
    "freshness": f"""\
SELECT `table`, max(time) AS as_of,
       (unix_timestamp({NOW}) - unix_timestamp(max_by(committed_at, time))) / 60 AS committed_minutes,
       (unix_timestamp({NOW}) - unix_timestamp(max_by(published_at, time))) / 60 AS published_minutes,
       (unix_timestamp({NOW}) - unix_timestamp(max_by(consumed_at, time))) / 60 AS consumed_minutes,
       (unix_timestamp({NOW}) - unix_timestamp(max_by(mirrored_at, time))) / 60 AS mirrored_minutes,
       (unix_timestamp({NOW}) - unix_timestamp(max_by(queryable_at, time))) / 60 AS queryable_minutes,
       max_by(published_lag_seconds, time) / 60 AS published_waits,
       max_by(consumed_lag_seconds, time) / 60 AS consumed_waits,
       max_by(mirrored_lag_seconds, time) / 60 AS mirrored_waits,
       max_by(queryable_lag_seconds, time) / 60 AS queryable_waits
FROM ledger WHERE outcome = '{WATCHED}' AND time >= {NOW} - INTERVAL 1 DAY
GROUP BY `table` ORDER BY `table`
""",
    "on_time": f"""\
SELECT `table`, date(time) AS day, count_if(lag_seconds <= freshness_target_minutes * 60) AS on_time,
       count(*) AS publications, max(lag_seconds) / 60 AS longest_minutes,
       max(freshness_target_minutes) AS target_minutes
FROM ledger WHERE outcome = '{PUBLISHED}' AND freshness_target_minutes IS NOT NULL AND lag_seconds IS NOT NULL
  AND date(time) > date({NOW}) - INTERVAL 7 DAYS
GROUP BY `table`, date(time) ORDER BY `table`, day DESC
""",
    "lag": f"""\
SELECT date_trunc('HOUR', time) AS hour, `table`, max(lag_seconds) / 60 AS lag_minutes
{_published(14)} AND lag_seconds IS NOT NULL
GROUP BY date_trunc('HOUR', time), `table` ORDER BY hour
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
SELECT date(time) AS day, `table`, sum(inserts + updates + upserts + deletes) AS rows, sum(bytes) / 1048576 AS mib
{_published(30)}
GROUP BY date(time), `table` ORDER BY day
""",
    "phases": f"""\
SELECT date(time) AS day, phase, coalesce(sum(seconds), 0) AS seconds
FROM (SELECT time, stack(3, 'stage', stage_seconds, 'record', record_seconds, 'rename', rename_seconds)
        AS (phase, seconds)
      {_published(30)})
GROUP BY date(time), phase ORDER BY day
""",
    # State at the end of each day: the newest row of every table up to that day.
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
    "failures": f"""\
SELECT time, `table`, outcome, error, message, count(*) OVER () AS total
FROM ledger WHERE outcome {_any_of(ATTENTION_OUTCOMES)} AND time >= {NOW} - INTERVAL 30 DAYS
ORDER BY time DESC, `table`, outcome LIMIT 50
""",
}
