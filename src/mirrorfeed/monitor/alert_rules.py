"""What is worth telling of a look at all tables. Pure: what waits for too long, and what the doctor found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from mirrorfeed.display.humanize import duration
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.monitor.findings import Code, Finding, Weight
from mirrorfeed.monitor.freshness import AHEAD, Freshness, Step

_WAITS = {
    Step.VISIBLE: "What was committed since {since} is not visible to Fabric.",
    Step.CONSUMED: "Fabric has not taken files that have been visible since {since}.",
    Step.MIRRORED: "What has been visible since {since} is not in the mirror.",
    Step.SEEN: "The SQL endpoint has not taken up what has been in the mirror since {since}.",
}
_HELPS = {
    Step.VISIBLE: "mirrorfeed doctor {table}",
    Step.CONSUMED: "mirrorfeed fabric status",
    Step.MIRRORED: "mirrorfeed fabric status",
    Step.SEEN: "mirrorfeed status {table} --fabric",
}
_PASSING = frozenset({Code.UNFINISHED, Code.UNREACHABLE, Code.THROTTLED, Code.EMPTY_TABLE, Code.OTHER})
"""What a run that goes on, or a service under load, shows for a while as well."""
_HIDING = frozenset({Code.UNREACHABLE, Code.CREDENTIAL, Code.PERMISSION, Code.MIRRORING_PAUSED})
"""What stands in the way of looking, so that nothing can be said of any other trouble."""


@dataclass(frozen=True, slots=True)
class Trouble:
    table: str
    """The target; empty for the mirrored database as a whole."""
    kind: str
    """BEHIND_ and a step, or one of the doctor's codes."""
    what: str
    remedy: str
    since: datetime | None = None
    """None: since it was first seen."""
    lasting: float = 0.0
    """Seconds for which it must have been there before it is told."""

    @property
    def key(self) -> tuple[str, str]:
        return self.table, self.kind


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at all tables showed."""

    troubles: tuple[Trouble, ...] = ()
    doubtful: frozenset[tuple[str, str]] = frozenset()
    """Troubles, by table and kind, of which nothing can be said now; without a kind, all of the table, and without a
    table, of all tables."""

    def hides(self, key: tuple[str, str]) -> bool:
        table, kind = key
        return bool(self.doubtful & {(table, kind), (table, ""), ("", "")})


def judge(
    fresh: Mapping[str, Freshness | None],
    found: Iterable[Finding],
    limits: Mapping[Step, float | None],
    now: datetime,
    within: Mapping[str, float] | None = None,
    paused: Collection[str] = (),
) -> Look:
    """`limits` are the seconds for which something may wait for a step; None: for ever. Some tables are to be published
    `within` others; those that are `paused` are not judged."""
    troubles, doubtful = [], {(table, "") for table in paused}
    for table, freshness in fresh.items():
        if table in paused:
            continue
        for step in AHEAD:
            kind = f"BEHIND_{step.name}"
            waited = None if freshness is None else freshness.behind(step, now)
            limit = (within or {}).get(table, limits.get(step)) if step is Step.VISIBLE else limits.get(step)
            if waited is None:
                doubtful.add((table, kind))
            elif freshness and limit is not None and waited > limit:
                troubles.append(_behind(table, kind, step, freshness.since[step], waited))
    patience = limits.get(Step.VISIBLE) or 0.0
    for finding in found:
        if finding.weight is Weight.NOTE or finding.table in paused:
            continue
        lasting = patience if finding.code in _PASSING else 0.0
        troubles.append(Trouble(finding.table, finding.code.name, finding.what, finding.remedy, lasting=lasting))
        if finding.code in _HIDING:
            doubtful.add((finding.table, ""))
    return Look(tuple({each.key: each for each in troubles}.values()), frozenset(doubtful))


def _behind(table: str, kind: str, step: Step, since: datetime, waited: float) -> Trouble:
    what = f"{_WAITS[step].format(since=f'{since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC')} That is {duration(waited)}."
    return Trouble(table, kind, what, _HELPS[step].format(table=shell_argument(table)), since)
