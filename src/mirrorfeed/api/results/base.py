"""The sequence of rows that the methods of `Feed` return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from mirrorfeed.display.render import render
from mirrorfeed.display.rows import Row
from mirrorfeed.errors import Terminal

R = TypeVar("R", bound=Row, covariant=True)


@dataclass(frozen=True, repr=False)
class Result(Sequence[R], Generic[R]):
    """A sequence of rows, in the order of the configuration, and notes about problems that stopped nothing."""

    rows: tuple[R, ...]
    notes: tuple[str, ...] = ()
    summary: str = ""
    """A sentence about all rows, or about why there are none."""

    @property
    def ok(self) -> bool:
        """Whether all rows are ok."""
        return all(row.ok for row in self.rows)

    def check(self) -> None:
        """Raise `Failed` with each row that is not `ok`, so that a job or notebook fails."""
        if bad := tuple(row for row in self.rows if not row.ok):
            raise Failed(failed=[line for row in bad for line in row.remarks() or [_in_a_line(row)]])

    def to_dict(self) -> dict[str, Any]:
        """Return `ok`, `rows` and `notes` as JSON values."""
        return {"ok": self.ok, "rows": [row.to_dict() for row in self.rows], "notes": list(self.notes)}

    @overload
    def __getitem__(self, at: int) -> R: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[R, ...]: ...
    def __getitem__(self, at: int | slice) -> R | tuple[R, ...]:
        return self.rows[at]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return render(self, "terminal")

    def _repr_html_(self) -> str:
        return render(self, "html")


class Failed(Terminal):
    """`Result.check` found rows that failed."""

    code = "MF1008"
    what = "{lines}"
    failed: Sequence[str]
    meaning = "A result contains failed rows. The message has one line for each of them."

    @property
    def lines(self) -> str:
        return "\n".join(self.failed)

    def message_lines(self) -> Sequence[str]:
        return self.failed


def _in_a_line(row: Row) -> str:
    values = [cell.value for cell in row.cells().values()]
    return ", ".join(str(value) for value in values if value not in (None, ""))
