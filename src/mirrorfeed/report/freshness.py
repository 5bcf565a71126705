"""How far what was committed had come, in words: the newest look at each table that the ledger tells of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from mirrorfeed.display.humanize import duration
from mirrorfeed.monitor.freshness import AHEAD, Step
from mirrorfeed.publish.ledger import WATCHED, Row

STEPS = {
    Step.COMMITTED: "Committed",
    Step.VISIBLE: "Visible",
    Step.CONSUMED: "Consumed",
    Step.MIRRORED: "In the mirror",
    Step.SEEN: "Seen by SQL",
}
FRESH = ("Table", *STEPS.values(), "As of")


def newest(rows: Iterable[Row]) -> list[Row]:
    """By the tables' names."""
    found = {row.table: row for row in sorted(rows, key=lambda row: row.time) if row.outcome == WATCHED}
    return [found[name] for name in sorted(found)]


def cells(row: Row, now: datetime) -> tuple[str, ...]:
    """Under `FRESH`: the time since each step, or for how long something had waited for it."""
    return row.table, *(_came(row, step, now) for step in STEPS), f"{_since(row.time, now)} ago"


def waiting(row: Row) -> list[int]:
    """The places among these cells of steps for which something had waited."""
    return [at for at, step in enumerate(STEPS, 1) if step in AHEAD and getattr(row, f"{step}_behind")]


def _came(row: Row, step: Step, now: datetime) -> str:
    at: datetime | None = getattr(row, f"{step}_at")
    if step in AHEAD:
        behind: float | None = getattr(row, f"{step}_behind")
        if behind is None:
            return "not known"
        if behind:
            return f"had waited {duration(behind)}"
    return "not known" if at is None else f"{_since(at, now)} ago"


def _since(at: datetime, now: datetime) -> str:
    return duration(max(0.0, (now - at).total_seconds()))
