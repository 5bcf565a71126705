"""Whether anyone but a run of ours changed the rows of a history: what its own Delta log says. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_CHANGES_ROWS = (
    *("WRITE", "STREAMING UPDATE", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "COPY INTO", "CLONE", "CONVERT"),
    *("CREATE TABLE AS SELECT", "REPLACE TABLE", "CREATE OR REPLACE TABLE", "RESTORE", "Manual Update"),
    *("RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A commit of a history."""

    version: int
    operation: str
    note: str | None = None
    """What its writer noted beside it; of a run of ours, the batch."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def by_hand(changes: Sequence[Change], batch: str) -> Change | None:
    """The first of these commits, ascending, that changed rows and is not the one of this batch; what a RESTORE took
    back counts as never done. A log that was cleaned up tells of less: rows are counted as well."""
    standing: list[Change] = []
    for change in changes:
        if change.operation == "RESTORE" and change.parameters.get("version", "").isdigit():
            back_to = int(change.parameters["version"])
            if back_to >= changes[0].version - 1:
                standing = [each for each in standing if each.version <= back_to]
                continue
        if change.operation.startswith(_CHANGES_ROWS) and change.note != batch:
            standing.append(change)
    return standing[0] if standing else None
