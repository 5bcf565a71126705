"""What commands print: tables and progress, for a terminal or for a log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from mirrorfeed.display.humanize import by_marker, counted, size
from mirrorfeed.display.printable import printable
from mirrorfeed.display.terminal import Listing, folded, text
from mirrorfeed.errors import coded

if TYPE_CHECKING:
    from mirrorfeed.api.results import Listed
    from mirrorfeed.publish.result import Progress, TableResult

_LONGEST = 60
"""Characters of a value."""
_BESIDE = 12
"""The spinner and the time, beside what a bar says."""
_BELOW = 4
"""Lines of a screen that are left to what else is said."""
_MANY = 20
"""More tables than these with nothing new are counted, not listed."""


class Steps:
    """Called by the threads that publish; shows how far each table is."""

    def __init__(self, out: Console, bars: Bars | None) -> None:
        self._out, self._bars, self._lock = out, bars, threading.Lock()
        self._tasks: dict[str, Any] = {}
        self._tables, self._done, self._crowded = 0, 0, False

    def looking(self, tables: int) -> None:
        """What is said until there is a step of a table to tell."""
        self._tables, self._crowded = tables, tables > self._room
        what = f"Looking at {counted(tables, 'table')}"
        if self._bars is None:
            self._out.print(text(f"{what} …"))
        else:
            self._tasks[""] = self._bars.add_task(what, total=None)

    @property
    def _room(self) -> int:
        """Lines for tables; each may take two."""
        return max(1, (self._out.height - _BELOW) // 2)

    def done(self, outcome: TableResult) -> None:
        """One table is done. Where they are more than fit, those in hand are shown alone, below how many are done."""
        with self._lock:
            if self._bars is None or not self._crowded:
                return
            self._done += 1
            if outcome.table in self._tasks:
                self._bars.remove_task(self._tasks.pop(outcome.table))
            if "" in self._tasks:
                what = f"{self._done:,} of {counted(self._tables, 'table')} done"
                self._bars.update(self._tasks[""], description=what)

    def ending(self) -> None:
        """That it was asked to end."""
        self._out.print(text("Ending once the files in hand are out. Ctrl-C once more ends at once."))

    def __call__(self, table: str, progress: Progress) -> None:
        with self._lock:
            if self._bars is None:
                self._out.print(text(f"{table}: {_so_far(progress)}"))
                return
            if "" in self._tasks and not self._crowded:
                self._bars.remove_task(self._tasks.pop(""))
            if table not in self._tasks and self._crowded and len(self._tasks) > self._room:
                return
            if table not in self._tasks:
                self._tasks[table] = self._bars.add_task(printable(table), total=None)
            behind = (progress.latest or 0) - (progress.from_version_exclusive or progress.published or 0)
            ahead = (progress.published or 0) - (progress.from_version_exclusive or progress.published or 0)
            self._bars.update(
                self._tasks[table],
                total=max(1, behind),
                completed=ahead,
                description=f"{folded(table, self._out.width - _BESIDE)}: {printable(_so_far(progress))}",
            )


@contextmanager
def steps(out: Console) -> Iterator[Steps]:
    """A progress bar a table on a terminal, a line a step otherwise."""
    if not out.is_terminal:
        yield Steps(out, None)
        return
    what = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    with Bars(SpinnerColumn(), what, TimeElapsedColumn(), console=out) as bars:
        yield Steps(out, bars)


def _so_far(progress: Progress) -> str:
    if progress.decision:
        return f"publishing {progress.decision}"
    rows = by_marker(progress.rows) or "no rows"
    return f"published up to version {progress.published}: {rows}, {counted(progress.files, 'file')}"


def shortened(outcomes: Sequence[TableResult]) -> tuple[Sequence[TableResult], str]:
    """The outcomes to show, and what is said of the others: of many with nothing new, how many they are."""
    idle = sum(outcome.is_idle for outcome in outcomes)
    if idle <= _MANY:
        return outcomes, ""
    return [outcome for outcome in outcomes if not outcome.is_idle], f"{counted(idle, 'table')}: nothing new."


def summary(outcomes: Sequence[TableResult]) -> Listing:
    header = ("table", "versions", "rows", "files", "bytes", "seconds", "lag")
    rows = [
        (
            outcome.table,
            versions(outcome),
            by_marker(outcome.progress.rows),
            str(outcome.progress.files),
            size(outcome.progress.bytes),
            f"{outcome.seconds:.1f}",
            _lag(outcome),
        )
        for outcome in outcomes
    ]
    return Listing(header, rows, right=range(3, 7))


def notes(outcomes: Sequence[TableResult], repeated: int = 0, *, rebuilt: bool = False) -> list[Text]:
    """What a reader of the summary must know besides. Calls are repeated for all tables together. Whoever had tables
    rebuilt knows that they are loaded anew."""
    found = []
    again = [outcome.table for outcome in outcomes if outcome.published_before and not outcome.reseeded]
    if again and not rebuilt:
        # Of a folder that someone deleted nothing is left but what the ledger tells.
        names = f"First loads of tables that were published before, says the ledger: {', '.join(again)}."
        deleted = "Their folders were deleted from the landing zone: Fabric drops such a table and takes it anew."
        found.append(text(f"{names} {deleted}", style="yellow"))
    for outcome in outcomes:
        if outcome.reseeded:
            found.append(text(f"{outcome.table}: reseeded from a snapshot. {outcome.reseeded.problem}", style="yellow"))
        if outcome.error:
            found.append(text(f"{outcome.table}: {coded(outcome.error)}", style="red"))
        if outcome.tries > 1:
            found.append(text(f"{outcome.table}: took {outcome.tries} tries."))
        if outcome.first_load and not outcome.keys_checked:
            found.append(text(f"{outcome.table}: the keys of its first load were not checked (validate_keys: none)."))
        if seconds := outcome.long_look_ups:
            took = f"{outcome.table}: looking up deleted keys in the source took {seconds:.0f} s, more than all else."
            found.append(text(f"{took} If its keys are always unique, set validate_keys: range."))
    if repeated:
        found.append(text(f"{counted(repeated, 'call')} to the landing zone had to be repeated."))
    return found


def versions(outcome: TableResult) -> str:
    """What was published of the source, in words."""
    progress = outcome.progress
    if outcome.error and not progress.publications:
        return "failed"
    if not progress.publications and outcome.stopped:
        return "stopped"
    if not progress.publications:
        return f"nothing new at {progress.published}"
    if progress.from_version_exclusive is None:
        return f"snapshot to {progress.to_version_inclusive}"
    first, last = progress.from_version_exclusive + 1, progress.to_version_inclusive
    return str(last) if first == last else f"{first} to {last}"


def _lag(outcome: TableResult) -> str:
    lag = outcome.lag_versions
    return "?" if lag is None else counted(lag, "version")


def tables(rows: Sequence[Listed]) -> Listing:
    """Those that are published, and those that are left out; a part of its source, where one has but that."""
    some = any(row.part for row in rows)
    cells = [
        (
            row.table or "-",
            row.source,
            ", ".join(row.keys or ()),
            row.takes or "",
            *([row.part or ""] if some else []),
            row.why if row.table else f"out: {row.why}",
        )
        for row in rows
    ]
    header = ["table", "source", "keys", "takes", *(["part"] if some else []), "why"]
    return Listing(header, cells, right=())


def listed(rows: Sequence[Mapping[str, Any]]) -> Listing:
    """Rows of a table, as JSON has them: a line each, long values cut."""
    return Listing(tuple(rows[0]), [tuple(map(_value, row.values())) for row in rows], right=())


def _value(value: object) -> str:
    shown = "NULL" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(shown, _LONGEST)
