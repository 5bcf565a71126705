"""What commands print: tables and progress, for a terminal or for a log."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from mirrorfeed.amounts import counted, duration, size

if TYPE_CHECKING:
    from mirrorfeed.publish.fleet import Status
    from mirrorfeed.publish.outcome import Outcome, Progress

_MARKERS = ("insert", "update", "upsert", "delete")


def console() -> Console:
    """Plain and wide enough not to fold where the output is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=200)


class Steps:
    """Called by the threads that publish; shows how far each table is."""

    def __init__(self, out: Console, bars: Bars | None) -> None:
        self._out, self._bars, self._lock = out, bars, threading.Lock()
        self._tasks: dict[str, Any] = {}

    def __call__(self, table: str, progress: Progress) -> None:
        with self._lock:
            if self._bars is None:
                self._out.print(Text(f"{table}: {_so_far(progress)}"))
                return
            if table not in self._tasks:
                self._tasks[table] = self._bars.add_task(table, total=None)
            behind = (progress.latest or 0) - (progress.from_version_exclusive or progress.published or 0)
            ahead = (progress.published or 0) - (progress.from_version_exclusive or progress.published or 0)
            self._bars.update(
                self._tasks[table], total=max(1, behind), completed=ahead, description=f"{table}: {_so_far(progress)}"
            )


@contextmanager
def steps(out: Console) -> Iterator[Steps]:
    """A progress bar a table on a terminal, a line a step otherwise."""
    if not out.is_terminal:
        yield Steps(out, None)
        return
    with Bars(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=out) as bars:
        yield Steps(out, bars)


def _so_far(progress: Progress) -> str:
    if progress.publications == 0:
        return f"publishing {progress.decision}"
    rows = by_marker(progress.rows) or "no rows"
    return f"published up to version {progress.published}: {rows}, {counted(progress.files, 'file')}"


def summary(outcomes: Sequence[Outcome]) -> Table:
    table = Table(header_style="bold")
    for name in ("table", "versions", "rows"):
        table.add_column(name, overflow="fold")
    for name in ("files", "bytes", "seconds", "lag"):
        table.add_column(name, justify="right")
    for outcome in outcomes:
        progress = outcome.progress
        table.add_row(
            Text(outcome.table),
            _versions(outcome),
            by_marker(progress.rows),
            str(progress.files),
            size(progress.bytes),
            f"{outcome.seconds:.1f}",
            _lag(outcome),
        )
    return table


def notes(outcomes: Sequence[Outcome], driver_retries: int = 0, *, rebuilt: bool = False) -> list[Text]:
    """What a reader of the summary must know besides. Calls of the driver are repeated for all tables together. Whoever
    had tables rebuilt knows that they are loaded anew."""
    found = []
    first = [outcome.table for outcome in outcomes if _is_first_load(outcome) and not outcome.reseeded]
    if first and not rebuilt:
        # Of a folder that someone deleted nothing is left that could tell it from one that never was.
        names = f"First loads, for tables of which the landing zone had no log: {', '.join(first)}."
        deleted = "If one was published before, its folder was deleted: Fabric drops that table and takes it anew."
        found.append(Text(f"{names} {deleted}", style="yellow"))
    for outcome in outcomes:
        if outcome.reseeded:
            found.append(Text(f"{outcome.table}: reseeded from a snapshot. {outcome.reseeded.what()}", style="yellow"))
        if outcome.error:
            found.append(Text(f"{outcome.table}: {outcome.error}", style="red"))
        if outcome.tries > 1:
            found.append(Text(f"{outcome.table}: took {outcome.tries} tries."))
        if _is_first_load(outcome) and not outcome.keys_checked:
            found.append(Text(f"{outcome.table}: the keys of its first load were not checked (check_keys: false)."))
    repeated = driver_retries + sum(outcome.progress.retries for outcome in outcomes)
    if repeated:
        found.append(Text(f"{counted(repeated, 'call')} to the landing zone had to be repeated."))
    return found


def _is_first_load(outcome: Outcome) -> bool:
    return outcome.progress.publications > 0 and outcome.progress.from_version_exclusive is None


def _versions(outcome: Outcome) -> str:
    progress = outcome.progress
    if outcome.error and not progress.publications:
        return "failed"
    if not progress.publications:
        return f"nothing new at {progress.published}"
    if progress.from_version_exclusive is None:
        return f"snapshot to {progress.to_version_inclusive}"
    first, last = progress.from_version_exclusive + 1, progress.to_version_inclusive
    return str(last) if first == last else f"{first} to {last}"


def _lag(outcome: Outcome) -> str:
    lag = outcome.lag_versions
    return "?" if lag is None else counted(lag, "version")


def by_marker(rows: Mapping[str, int]) -> str:
    return ", ".join(counted(rows[marker], marker) for marker in _MARKERS if rows.get(marker))


def status(rows: Sequence[Status]) -> Table:
    table = Table(header_style="bold")
    table.add_column("table", overflow="fold")
    for name in ("published", "newest", "lag", "behind for", "not renamed", "not consumed"):
        table.add_column(name, justify="right")
    table.add_column("feed", overflow="fold")
    with_service = any(row.service is not None for row in rows)
    if with_service:
        table.add_column("in Fabric", overflow="fold")
    for row in rows:
        table.add_row(
            Text(row.table),
            _or_dash(row.published_version),
            _or_dash(row.newest_version),
            _or_dash(row.lag_versions),
            "-" if row.lag_seconds is None else duration(row.lag_seconds),
            str(row.not_renamed),
            str(row.not_consumed),
            Text(row.feed or "-"),
            *([Text(row.service or "-")] if with_service else []),
        )
    return table


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
