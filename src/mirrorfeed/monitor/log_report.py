"""Report without a ledger: figures from the logs in the landing zone, and the current state of each table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from mirrorfeed.config.model import zone_of
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import MARKERS
from mirrorfeed.errors import error_name
from mirrorfeed.landing.delivery import UPSERT
from mirrorfeed.monitor.fact_collector import Collector
from mirrorfeed.monitor.findings import TableFacts
from mirrorfeed.monitor.freshness import ENDPOINT_NOT_READ, LAG_STEPS, Step
from mirrorfeed.monitor.report import Report
from mirrorfeed.monitor.status import status_of
from mirrorfeed.orchestration.last_failure import LastRunError
from mirrorfeed.orchestration.ledger import ADOPTED, BLOCKED, FAILED, PUBLISHED
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.source.errors import PublicationBlockedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config
    from mirrorfeed.errors import MirrorfeedError
    from mirrorfeed.landing.log_record import Record

NO_LEDGER = (
    "Without a ledger, this report shows the current state of the tables, and the publications of the last 30 days that"
    " their logs still have. It lacks the lag of each publication, durations, repeated requests, comparisons with"
    " mirrors, archives and earlier failures. To record them, set `ledger`."
)
_LONGEST = timedelta(days=30)


def read_log_report(start_spark: Callable[[], SparkSession], config: Config) -> Report:
    """Return the report on the configured tables. Starts Spark only if `mirrorfeed status` needs it, too."""
    progress.info("Reading the logs in the landing zone")
    store, tables, now = zone_of(config), config.select(()), datetime.now(UTC)
    all_facts = Collector(config, start_spark, syncs=ENDPOINT_NOT_READ).collect(tables)
    records = {
        facts.table: list(_recent_records(TableLog(store, table.target.folder), now)) if facts.log_facts.is_read else []
        for table, facts in zip(tables, all_facts, strict=True)
    }
    days: dict[Any, list[Record]] = defaultdict(list)
    volumes: dict[Any, list[Record]] = defaultdict(list)
    for table, of_table in records.items():
        for record in of_table:
            days[_day(record)].append(record)
            volumes[_day(record), table].append(record)
    last_day = [record for of_table in records.values() for record in of_table if record.at >= now - timedelta(days=1)]
    states = [_state(facts) for facts in all_facts]
    failures = [_failure(facts, status.error) for facts in all_facts if (status := status_of(facts)).error]
    totals = {"tables": len(states), "stopped": len(failures), "different": None, "retries": None}
    figures: Mapping[str, Sequence[Mapping[str, Any]]] = {
        "totals": [totals | {"publications": len(last_day), "rows": _rows(last_day), "mib": round(_mib(last_day), 2)}],
        "tables": states,
        "freshness": [_freshness(facts) for facts in all_facts if facts.freshness],
        "days": [_day_totals(day, days[day]) for day in sorted(days, reverse=True)],
        "volume": [
            {"day": day, "table": table, "rows": _rows(of_day), "mib": _mib(of_day)}
            for (day, table), of_day in sorted(volumes.items())
        ],
        "failures": [failure | {"events": 1, "total": len(failures)} for failure in failures],
    }
    return Report(now, figures, NO_LEDGER)


def _recent_records(log: TableLog, now: datetime) -> Iterator[Record]:
    """Yield the records of publications of the last 30 days, newest first."""
    view = log.read_view()
    recent = takewhile(lambda record: record.at >= now - _LONGEST, log.records(view)) if view else ()
    return (record for record in recent if not record.is_adoption)


def _day(record: Record) -> Any:
    return record.at.astimezone(UTC).date()


def _rows(records: Sequence[Record]) -> int:
    return sum(record.rows.total() for record in records)


def _mib(records: Sequence[Record]) -> float:
    return sum(record.size for record in records) / 2**20


def _day_totals(day: Any, records: Sequence[Record]) -> dict[str, Any]:
    unknown = dict.fromkeys(("stage_seconds", "record_seconds", "rename_seconds", "lag_seconds"))
    rows = {f"{marker}s": sum(record.rows[marker] for record in records) for marker in MARKERS}
    return {
        "day": day,
        "publications": len(records),
        "bytes": sum(record.size for record in records),
        **rows,
        **unknown,
    }


def _state(facts: TableFacts) -> dict[str, Any]:
    status, times = status_of(facts), facts.freshness.times if facts.freshness else {}
    failure = _failure(facts, status.error) if status.error else None
    reported, works = times.get(Step.PUBLISHED), ADOPTED if facts.log_facts.is_adopted else PUBLISHED
    return {
        "table": status.table,
        "state": failure["outcome"] if failure else None if status.published_version is None else works,
        "error": failure and failure["error"],
        "published_version": status.published_version,
        "lag_versions": status.lag_versions,
        "last_published": None if works == ADOPTED else reported,
        "last_reported": failure["time"] if failure else reported,
        "load": status.load and status.load.in_words,
        "delivery": None if facts.delivery == UPSERT else facts.delivery.mode,
        **dict.fromkeys(("mirror", "mirror_version", "last_compared", "last_equal", "comparison")),
    }


def _freshness(facts: TableFacts) -> dict[str, Any]:
    assert facts.freshness is not None
    times, at = facts.freshness.times, facts.at
    minutes = {f"{step}_minutes": (at - times[step]).total_seconds() / 60 if step in times else None for step in Step}
    waits = {step: facts.freshness.lag(step, at) for step in LAG_STEPS}
    return {
        "table": facts.table,
        "as_of": at,
        **minutes,
        **{f"{step}_waits": None if wait is None else wait / 60 for step, wait in waits.items()},
    }


def _failure(facts: TableFacts, error: MirrorfeedError) -> dict[str, Any]:
    last = error if isinstance(error, LastRunError) else None
    return {
        "time": last.failure.since if last else facts.at,
        "table": facts.table,
        "outcome": BLOCKED if isinstance(error, PublicationBlockedError) else FAILED,
        "error": error_name(error),
        "message": error.to_dict()["what"],
    }
