"""Deduplicate alerts: one message when a problem starts, one per interval while it lasts, and one when it ends.

The state is one JSON file. By default the file is in the landing zone, where others may write. So it contains only
names and times, and is trusted little: an alert counts as sent for one interval, and a file that is damaged or has
times in the future is reported, ignored and replaced. The file is written after the messages are sent. If writing
fails, or two checks run at the same time, a message may be sent twice, but none is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter

from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.landing.errors import DamagedFile
from mirrorfeed.landing.strict_json import CONFIG, UtcTime, is_distinct, parse_json, validate
from mirrorfeed.monitor.errors import AlertsNotRecorded
from mirrorfeed.monitor.findings import Finding
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import AlreadyThere, NotThere, StoreUnavailable, SymbolicLink, UnreadableFile

FILE = "alerts.json"
REMIND_AFTER = timedelta(days=1)
_CLOCK_SKEW = timedelta(minutes=10)
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check of all tables."""

    problems: tuple[Finding, ...] = ()
    unknown: frozenset[tuple[str, str]] = frozenset()
    """Problems, by table and name, that the check could not evaluate. An empty name means all problems of the table.
    An empty table means all problems."""
    patience: float = 0.0
    """Seconds that a temporary problem must last before an alert is sent."""
    remind_after: timedelta = REMIND_AFTER
    """Interval after which a continuing problem is sent again."""

    def hides(self, key: tuple[str, str]) -> bool:
        table, name = key
        return bool(self.unknown & {(table, name), (table, ""), ("", "")})

    def delay(self, problem: Finding) -> float:
        return self.patience if problem.passing else 0.0


@dataclass(frozen=True, slots=True)
class SentAlert:
    """A problem that was found, and the channels that were notified."""

    table: Annotated[str, Field(max_length=300)]
    kind: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")]
    since: UtcTime
    over: UtcTime | None = None
    notified: Mapping[str, UtcTime] = field(default_factory=dict)
    """Time of the last notification that the problem exists, by channel. A channel that was notified of the end is
    removed."""

    @property
    def key(self) -> tuple[str, str]:
        return self.table, self.kind


@dataclass(frozen=True, slots=True)
class _File:
    __pydantic_config__: ClassVar = CONFIG
    alerts: tuple[SentAlert, ...]
    format: Literal[1] = 1


_FILE: TypeAdapter[_File] = TypeAdapter(_File)


@dataclass(frozen=True, slots=True)
class Message:
    to: str
    alert: SentAlert
    problem: Finding | None = None
    """Problem to report. None if the problem is resolved."""

    @property
    def over(self) -> bool:
        return self.problem is None


Send = Callable[[Message], None]
"""Send a message to one channel. Raises an error if this fails."""


@dataclass(frozen=True, slots=True)
class Notified:
    sent: tuple[Message, ...] = ()
    failed: tuple[tuple[str, MirrorfeedError], ...] = ()
    """Channels that could not be reached, with the errors. The next run tries again."""
    warnings: tuple[MirrorfeedError, ...] = ()
    """Problems with the state file."""


def notify(
    store: Store, path: str, check: Check, channels: Mapping[str, Send], clock: Callable[[], datetime]
) -> Notified:
    """Send new messages to each channel, then record them in the file at `path`."""
    now = clock()
    state = _read(store, path, now)
    sent: list[Message] = []
    failed: dict[str, MirrorfeedError] = {}
    for message in due_messages(observe(state.alerts, check, now), check, channels, now):
        if message.to in failed:
            continue
        try:
            channels[message.to](message)
            sent.append(message)
        except Exception as error:  # sent messages must still be recorded
            failed[message.to] = named(f"Notifying {message.to}", error)
    lost = _record(store, path, state, lambda alerts: after(observe(alerts, check, now), sent, channels, now), now)
    return Notified(tuple(sent), tuple(failed.items()), tuple(each for each in (state.damage, lost) if each))


def observe(alerts: Iterable[SentAlert], check: Check, now: datetime) -> tuple[SentAlert, ...]:
    """Return the alerts after a check of all tables.

    A problem that occurs again before its end was reported counts as continuing.
    """
    there = {each.key: each for each in check.problems}
    found = []
    for alert in alerts:
        if there.pop(alert.key, None) is not None:
            found.append(replace(alert, over=None))
        elif alert.over is not None or check.hides(alert.key):
            found.append(alert)
        elif alert.notified:
            found.append(replace(alert, over=now))
    new = (SentAlert(*each.key, min(each.since or now, now)) for each in there.values())
    return (*found, *new)


def due_messages(alerts: Iterable[SentAlert], check: Check, channels: Collection[str], now: datetime) -> list[Message]:
    """Return the messages to send now. Only channels that were notified of a problem are notified of its end."""
    there = {each.key: each for each in check.problems}
    found = []
    for alert in alerts:
        problem = there.get(alert.key)
        if alert.over is not None:
            found += [Message(name, alert) for name in alert.notified if name in channels]
        elif problem and (now - alert.since).total_seconds() >= check.delay(problem):
            last = alert.notified
            names = [name for name in channels if name not in last or now - last[name] >= check.remind_after]
            found += [Message(name, alert, problem) for name in names]
    return found


def after(
    alerts: Iterable[SentAlert], sent: Iterable[Message], channels: Collection[str], now: datetime
) -> tuple[SentAlert, ...]:
    """Return the alerts after these messages are sent. Removes channels that are no longer configured."""
    out = {(each.to, each.alert.key) for each in sent}
    found = []
    for alert in alerts:
        reached = {name: now for name in channels if (name, alert.key) in out}
        known = {name: at for name, at in alert.notified.items() if name in channels}
        if alert.over is None:
            found.append(replace(alert, notified=known | reached))
        elif left := {name: at for name, at in known.items() if name not in reached}:
            found.append(replace(alert, notified=left))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _State:
    alerts: tuple[SentAlert, ...] = ()
    etag: str | None = None
    """ETag of the file. None if the file does not exist."""
    damage: DamagedFile | None = None


def _read(store: Store, path: str, now: datetime) -> _State:
    folder, _, name = path.rpartition("/")
    etag = next((each.etag for each in store.list(folder) if each.name == name), None)
    if etag is None:
        return _State()
    try:
        return _State(parse(store.read(path), now), etag)
    except NotThere:
        return _State()
    except ValueError as error:
        reason = str(error)
    except (UnreadableFile, SymbolicLink) as error:
        reason = error.reason
    return _State((), etag, DamagedFile(address=store.address(path), reason=reason, kind="alerts"))


def _record(
    store: Store,
    path: str,
    state: _State,
    change: Callable[[tuple[SentAlert, ...]], tuple[SentAlert, ...]],
    now: datetime,
) -> AlertsNotRecorded | None:
    """Replace the file that was read. If another check replaced it first, apply the change to that file's alerts."""
    reason = "other runs of check-alerts keep replacing it"
    with suppress(StoreUnavailable):
        for _ in range(_ATTEMPTS):
            if (new := change(state.alerts)) == state.alerts and not state.damage:
                return None
            try:
                if state.etag is None:
                    store.create(path, spell(new))
                else:
                    store.replace(path, spell(new), state.etag)
            except (AlreadyThere, NotThere):
                pass
            except MirrorfeedError as error:
                reason = error.problem
            state = _read(store, path, now)  # whatever the response was: a request that failed may take effect
    return AlertsNotRecorded(address=store.address(path), reason=reason)


def spell(alerts: tuple[SentAlert, ...]) -> bytes:
    return json.dumps(asdict(_File(alerts)), ensure_ascii=False, indent=1, default=datetime.isoformat).encode()


def parse(data: bytes, now: datetime) -> tuple[SentAlert, ...]:
    """Parse the alerts in a file. Raises `ValueError` with the reason if the file cannot be trusted."""
    alerts = validate(_FILE, parse_json(data)).alerts
    is_distinct(tuple(alert.key for alert in alerts))
    for alert in alerts:
        times = [*alert.notified.values(), *([alert.over] if alert.over else [])]
        if max([alert.since, *times]) > now + _CLOCK_SKEW:
            raise ValueError("it has a time in the future")
        if min([alert.since, *times]) + _CLOCK_SKEW < alert.since:
            raise ValueError("it has an alert that was sent before its problem started")
    return alerts
