"""Check all tables, and send alerts about new, lasting and resolved problems.

A channel receives an alert when a problem starts, and an alert when the problem ends. While the problem lasts, the
channel receives the alert again after each interval (`alerts.remind_after_hours`).

A JSON file, the alert file, records which alerts were sent and when. By default, the alert file is in the landing zone.
Everybody who can write to the landing zone can change the file. The file contains only names and times, so nobody can
change the text of an alert. If the file records an alert that was not sent, the alert is late, but not lost: a run
sends the alert when the interval has passed. A file that is damaged or has times in the future is reported and
replaced. A run writes the file after it sends the alerts. So after a failure, the next run can repeat an alert.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from mirrorfeed.config.connections import OUTPUT
from mirrorfeed.config.model import Config
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import counted
from mirrorfeed.errors import MirrorfeedError, TransientError, problem, with_code, wrap_error
from mirrorfeed.landing.errors import DamagedFileError
from mirrorfeed.landing.strict_json import CONFIG, UtcTime, is_distinct, parse_json, validate
from mirrorfeed.monitor.alert_channels import Alert, Send, channels_of, text
from mirrorfeed.monitor.doctor import Check, check_all, check_stopped
from mirrorfeed.monitor.findings import TableFacts
from mirrorfeed.monitor.freshness import LAG_STEPS, Step
from mirrorfeed.monitor.measurements import open_measurements
from mirrorfeed.monitor.state_folder import open_state
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import (
    PathExistsError,
    PathMissingError,
    StorageUnavailableError,
    SymbolicLinkError,
    UnreadableFileError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.orchestration import ledger

FILE = "alerts.json"
_CLOCK_SKEW = timedelta(minutes=10)
_ATTEMPTS = 5


@problem(TransientError, "MF8107")
def alerts_not_recorded(*, address: str, reason: str) -> None:
    """Alerts were sent, but cannot be recorded in {address}: {reason}.

    Check that the folder of this file is writable. Until then, every run sends the same alerts again.
    """


@dataclass(frozen=True, slots=True)
class SentAlert:
    """Entry of the alert file: a problem of a table or of the mirrored database, and the times of its alerts."""

    table: Annotated[str, Field(max_length=300)]
    kind: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")]
    """Name of the problem."""
    since: UtcTime
    resolved_at: UtcTime | None = None
    notified: Mapping[str, UtcTime] = field(default_factory=dict)
    """Maps the name of each channel to the time of the last alert about the problem.

    A channel is removed when the channel has received the alert that the problem is resolved.
    """

    @property
    def key(self) -> tuple[str, str]:
        return self.table, self.kind


@dataclass(frozen=True, slots=True)
class _File:
    __pydantic_config__: ClassVar = CONFIG
    alerts: tuple[SentAlert, ...]
    format: Literal[1] = 1


_FILE: TypeAdapter[_File] = TypeAdapter(_File)


def check_alerts(
    spark: Callable[[], SparkSession],
    config: Config,
    mirror: str | None,
    *,
    deep: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[tuple[Alert, ...], tuple[str, ...], str]:
    """Check all tables, write their lags to the ledger, send alerts, and send the lags as telemetry.

    The first result has the problems and failures. The second has the errors of writing the ledger and of sending
    telemetry. The third is a summary. `mirror` is the folder of the mirrored tables, or None for Fabric's mirror.
    Raises an error if the file that records sent alerts cannot be reached. For `deep` and `stop`, see `check_all`.
    """
    from mirrorfeed.orchestration import ledger  # imports Spark

    progress.info("Checking all tables")
    store, path = open_state(config, FILE)
    measurements = open_measurements(config)
    check, facts = check_all(spark, config, mirror, measurements, deep=deep, stop=stop)
    measurements.save({str(table.target) for table in config.tables})
    ledger_error = None
    if config.ledger and not stop():  # Spark may not have started
        ledger_error = ledger.append(spark(), config.ledger, ledger_rows(config, facts))
    problems: list[MirrorfeedError] = [ledger_error] if ledger_error else []
    rows = notify(store, path, check, {OUTPUT: lambda _: None, **channels_of(config)}, datetime.now(UTC))
    if config.telemetry:
        send_lags(config, facts, problems.append)
    if len(facts) < len(config.tables):
        rows.append(Alert("", "", "", error=check_stopped(checked=len(facts), tables=len(config.tables))))
    return tuple(rows), tuple(map(with_code, problems)), summary_of(rows)


def notify(store: Store, path: str, check: Check, channels: Mapping[str, Send], now: datetime) -> list[Alert]:
    """Send the alerts that are due, and record them in the alert file at `path`.

    `channels` maps the name of each channel to the function that sends an alert. Returns an `Alert` for each current
    problem, for each resolved problem about which an alert was sent now, and for each failure of a channel or the
    alert file. The next run retries failed channels.
    """
    state = _read(store, path, now)
    rows, notified, failed = list[Alert](), set[tuple[str, tuple[str, str]]](), dict[str, MirrorfeedError]()
    for sent in update_alerts(state.alerts, check, channels, now):
        problem, sent_to = check.problems.get(sent.key), list[str]()
        what, fix = (problem.what, problem.fix) if problem else ("", "")
        alert = Alert(*sent.key, what, fix, sent.since, sent.resolved_at)
        for name in due_channels(sent, check, channels, now):
            if name in failed:
                continue
            try:
                channels[name](alert)
                sent_to.append(name)
            except Exception as error:  # not raised, because the alerts that were sent must be recorded
                failed[name] = wrap_error(f"Notifying {name}", error)
        if sent_to:
            notified |= {(name, sent.key) for name in sent_to}
            rows.append(replace(alert, what=text(alert), sent_to=tuple(sent_to)))
        elif problem:
            rows.append(replace(alert, since=problem.since))

    change = partial(update_alerts, check=check, channels=channels, now=now, notified=notified)
    not_recorded = _record(store, path, state, change, now)
    rows += [Alert("", name, "", error=error) for name, error in failed.items()]
    return rows + [Alert("", "", "", error=error) for error in (state.damage, not_recorded) if error]


def update_alerts(
    alerts: Sequence[SentAlert],
    check: Check,
    channels: Collection[str],
    now: datetime,
    notified: Collection[tuple[str, tuple[str, str]]] = (),
) -> tuple[SentAlert, ...]:
    """Return all entries that the alert file must have after a check.

    Updates the entries `alerts` with the result `check`, and adds an entry for each new problem. `notified` has a pair
    of channel name and `SentAlert.key` for each alert that was sent at `now`. Removes channels that are not in
    `channels` from all entries. If the check could not find out whether a problem exists, `resolved_at` of its entry
    does not change. Removes the entry of a resolved problem if no channel is left in `SentAlert.notified`.
    """
    known = {each.key for each in alerts}
    new = [SentAlert(*key, min(each.since or now, now)) for key, each in check.problems.items() if key not in known]
    updated = []
    for alert in (*alerts, *new):
        resolved_at = alert.resolved_at
        if alert.key in check.problems:
            resolved_at = None
        elif not check.is_unknown(alert.key):
            resolved_at = resolved_at or now
        sent_to = [name for name in channels if (name, alert.key) in notified]
        times = {name: at for name, at in alert.notified.items() if name in channels}
        if resolved_at is None:
            times |= dict.fromkeys(sent_to, now)
        else:
            times = {name: at for name, at in times.items() if name not in sent_to}
        if resolved_at is None or times:
            updated.append(replace(alert, resolved_at=resolved_at, notified=times))
    return tuple(updated)


def due_channels(alert: SentAlert, check: Check, channels: Collection[str], now: datetime) -> list[str]:
    """Return the names of the channels that must now receive an alert about a current or resolved problem.

    While a problem lasts, its alert is due again after `alerts.remind_after_hours`. The first alert about a problem
    with `Finding.is_temporary` is due after `alerts.max_lag_minutes.published`. Only channels that received an alert
    about the problem receive the alert that the problem is resolved.
    """
    problem, last = check.problems.get(alert.key), alert.notified
    if alert.resolved_at is not None:
        return [name for name in last if name in channels]
    delay = timedelta(minutes=check.alerts.max_lag_minutes.published or 0.0)
    if problem is None or (problem.is_temporary and now - alert.since < delay):
        return []
    interval = timedelta(hours=check.alerts.remind_after_hours)
    return [name for name in channels if name not in last or now - last[name] >= interval]


@dataclass(frozen=True, slots=True)
class _State:
    alerts: tuple[SentAlert, ...] = ()
    etag: str | None = None
    """ETag of the alert file. None if the file does not exist."""
    damage: DamagedFileError | None = None


def _read(store: Store, path: str, now: datetime) -> _State:
    folder, _, name = path.rpartition("/")
    etag = next((each.etag for each in store.list(folder) if each.name == name), None)
    if etag is None:
        return _State()
    try:
        return _State(parse(store.read(path), now), etag)
    except PathMissingError:
        return _State()
    except ValueError as error:
        reason = str(error)
    except (UnreadableFileError, SymbolicLinkError) as error:
        reason = error.reason
    return _State((), etag, DamagedFileError(address=store.address(path), reason=reason, kind="alerts"))


def _record(
    store: Store,
    path: str,
    state: _State,
    change: Callable[[Sequence[SentAlert]], tuple[SentAlert, ...]],
    now: datetime,
) -> TransientError | None:
    """Apply `change` to the entries in `state`, and write them to the alert file. Returns an error, or None.

    `state` is the file's content that this run read. If another process replaced the file, uses the new content.
    """
    reason = "other runs of check-alerts keep replacing it"
    with suppress(StorageUnavailableError):
        for _ in range(_ATTEMPTS):
            if (new := change(state.alerts)) == state.alerts and not state.damage:
                return None
            try:
                if state.etag is None:
                    store.create(path, to_json(new))
                else:
                    store.replace(path, to_json(new), state.etag)
            except (PathExistsError, PathMissingError):
                pass
            except MirrorfeedError as error:
                reason = error.problem
            state = _read(store, path, now)  # always, because a request that failed may take effect
    return alerts_not_recorded(address=store.address(path), reason=reason)


def to_json(alerts: tuple[SentAlert, ...]) -> bytes:
    return _FILE.dump_json(_File(alerts), indent=1)


def parse(data: bytes, now: datetime) -> tuple[SentAlert, ...]:
    """Return the entries in the content of an alert file. Raises `ValueError` with the reason if they are invalid."""
    alerts = validate(_FILE, parse_json(data)).alerts
    is_distinct(tuple(alert.key for alert in alerts))
    for alert in alerts:
        times = [alert.since, *alert.notified.values(), *filter(None, [alert.resolved_at])]
        if max(times) > now + _CLOCK_SKEW:
            raise ValueError("a time in it is in the future")
        if min(times) + _CLOCK_SKEW < alert.since:
            raise ValueError("an alert in it was sent before the problem started")
    return alerts


def summary_of(rows: Sequence[Alert]) -> str:
    """Return the summary of an alert check, or an empty string if an alert was sent to the channel `output`."""
    if any(OUTPUT in each.sent_to for each in rows):
        return ""
    lasting = sum(each.error is None for each in rows)
    reported = f" {counted(lasting, 'problem')} reported earlier and not resolved." if lasting else ""
    return f"No new problems.{reported}"


def send_lags(config: Config, facts: Sequence[TableFacts], on_problem: Callable[[MirrorfeedError], None]) -> None:
    """Send the lags of tables whose freshness is known as telemetry. Waits, but not for long, and raises no error."""
    from mirrorfeed.orchestration.exporter import Exporter, Lags, telemetry_of

    exporter = Exporter(config, on_problem, telemetry_of)
    for each in facts:
        exporter.add(Lags(each.table, {str(step): lag for step, lag in _lags(each).items() if lag is not None}))
    exporter.finish()


def _lags(facts: TableFacts) -> dict[Step, float | None]:
    """Return the seconds for which changes of a table wait for each step. Empty if its freshness is unknown."""
    freshness = facts.freshness
    return {step: freshness.lag(step, facts.at) for step in LAG_STEPS} if freshness else {}


def ledger_rows(config: Config, facts: Sequence[TableFacts]) -> list[ledger.LedgerRow]:
    """Return a ledger row with times and lags for each table whose freshness is known."""
    from mirrorfeed.orchestration import ledger  # imports Spark

    targets = {str(table.target): table.finite_freshness_target for table in config.tables}
    rows = []
    for each in facts:
        if freshness := each.freshness:
            times: dict[str, Any] = {f"{step}_at": freshness.times.get(step) for step in Step}
            lags: dict[str, Any] = {f"{step}_lag_seconds": lag for step, lag in _lags(each).items()}
            target = targets.get(each.table)
            rows.append(
                ledger.LedgerRow(each.at, each.table, ledger.WATCHED, freshness_target_minutes=target, **times, **lags)
            )
    return rows
