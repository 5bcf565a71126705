"""Charts for who looks at one table: its changes, and what differs in its mirror."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from mirrorfeed.display.svg_charts import bars

_VERSIONS = 60
"""So many, the newest, have room beside each other."""
_DONE = ("inserts", "updates", "deletes")
WHOLE_ROW = "(whole row)"


class ByVersion(Protocol):
    """The rows that a version changed: `inserts`, `updates`, `deletes`."""

    @property
    def version(self) -> int: ...


class InColumn(Protocol):
    """A difference, by its column; empty for a whole row."""

    @property
    def column(self) -> str: ...


def change_chart(counts: Sequence[ByVersion]) -> str:
    """A bar a version, its rows by what was done; versions are ascending."""
    newest = [
        (str(each.version), {name: getattr(each, name) for name in _DONE if getattr(each, name)})
        for each in counts[-_VERSIONS:]
    ]
    return bars(newest, _DONE, "rows", "version of the source")


def difference_chart(differences: Iterable[InColumn]) -> str:
    """A bar a column, the worst first: how often it differs."""
    found = Counter(each.column or WHOLE_ROW for each in differences)
    return bars(
        [(column, {"differences": count}) for column, count in found.most_common()], ["differences"], "rows", "column"
    )


def age_chart(ages: Iterable[tuple[str, Mapping[str, float]]]) -> str:
    """A bar an age of files: bytes, hot and archived."""
    return bars(list(ages), ("hot", "archived"), "bytes", "age of the files")
