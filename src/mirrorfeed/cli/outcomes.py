"""What a run did, said at its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from mirrorfeed.cli.main import for_programs, say_json
from mirrorfeed.display.terminal import text
from mirrorfeed.errors import MirrorfeedError, coded

if TYPE_CHECKING:
    from rich.console import Console

    from mirrorfeed.config.schedule import Pause
    from mirrorfeed.publish.result import TableResult


def say_outcomes(
    out: Console,
    outcomes: Sequence[TableResult],
    troubles: Sequence[MirrorfeedError],
    repeated: int,
    *,
    left: str | None = None,
    paused: Sequence[tuple[str, Pause]] = (),
    rebuilt: bool = False,
) -> NoReturn:
    from mirrorfeed.cli import output as show
    from mirrorfeed.orchestration import ledger

    if for_programs():
        say_json(ledger.for_programs(outcomes, datetime.now(UTC)))
    else:
        shown, others = show.shortened(outcomes)
        if shown or not others:
            out.print(show.summary(shown))
        if others:
            out.print(text(others))
    notes = show.notes(outcomes, repeated, rebuilt=rebuilt)
    for note in [*notes, *(text(coded(error), style="yellow") for error in troubles)]:
        out.print(note)
    for table, pause in paused:
        out.print(text(f"{table}: {pause}", style="yellow"))
    if left:
        out.print(text(f"Ended as asked, with nothing half done; left for the next run: {left}."))
    sys.exit(bool(left) or any(outcome.error for outcome in outcomes))
