"""Charts for who looks at one table: its changes, and what differs in its mirror."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from mirrorfeed.report.chart import bars

_VERSIONS = 60
"""So many, the newest, have room beside each other."""
_KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
"""By change type: an update has a row of before as well, which is none of its own."""
WHOLE_ROW = "(whole row)"


class InColumn(Protocol):
    """A difference, by its column; empty for a whole row."""

    @property
    def column(self) -> str: ...


def change_chart(counts: Iterable[tuple[int, str, int]]) -> str:
    """A bar a version, its rows by what was done; from version, change type and number of rows."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for version, kind, count in counts:
        if kind in _KINDS:
            found[version][_KINDS[kind]] = count
    newest = sorted(found)[-_VERSIONS:]
    return bars(
        [(str(version), found[version]) for version in newest], list(_KINDS.values()), "rows", "version of the source"
    )


def difference_chart(differences: Iterable[InColumn]) -> str:
    """A bar a column, the worst first: how often it differs."""
    found = Counter(each.column or WHOLE_ROW for each in differences)
    return bars(
        [(column, {"differences": count}) for column, count in found.most_common()], ["differences"], "rows", "column"
    )


def age_chart(ages: Iterable[tuple[str, Mapping[str, float]]]) -> str:
    """A bar an age of files: bytes, hot and archived."""
    return bars(list(ages), ("hot", "archived"), "bytes", "age of the files")
