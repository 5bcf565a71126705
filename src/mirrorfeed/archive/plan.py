"""A plan of what to bring back for a question: exact files, how long it takes, what it costs. A file that people read.

A plan is a value: it says for which table, at which version and for which question it was made, so that it can be
carried out in parts, by another process, and again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mirrorfeed.archive.log import LogFile
from mirrorfeed.errors import Terminal
from mirrorfeed.stores.tiers import Priority

FORMAT = 1
_STANDARD_HOURS = 15.0
_HIGH_HOURS = 1.0
_HIGH_BYTES_AN_HOUR = 10 * 2**30
"""An account brings back about so much with high priority; below it, in less than an hour."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What the user pays, in any one currency."""

    currency: str
    gib: dict[str, float]
    """For a GiB that is read from the archive, by priority."""
    objects: dict[str, float]
    """For ten thousand objects, by priority."""

    @classmethod
    def load(cls, path: str) -> Prices:
        """`{"currency": "EUR", "standard": {"gib": 0.02, "objects": 5.5}, "high": {…}}`, or `BadPrices`."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            listed = {priority: found[priority.name.lower()] for priority in Priority}
            return cls(
                str(found["currency"]),
                {priority.name: float(each["gib"]) for priority, each in listed.items()},
                {priority.name: float(each["objects"]) for priority, each in listed.items()},
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadPrices(path, f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class PlannedFile:
    uri: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    table: str
    table_id: str
    version: int
    where: str | None
    feed_from: int | None
    """First version of a range of the change feed that ends with `version`; None for a snapshot."""
    priority: str
    files: tuple[PlannedFile, ...]
    cost: float | None = None
    currency: str | None = None
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        """As far as it is known: deletion vectors have no size in the log, and Databricks names files alone."""
        return sum(file.bytes or 0 for file in self.files)

    @property
    def hours(self) -> float:
        """At most, by what the service says; none where there is nothing to bring back."""
        if not self.files:
            return 0.0
        if self.priority == Priority.STANDARD.name:
            return _STANDARD_HOURS
        return max(_HIGH_HOURS, self.bytes / _HIGH_BYTES_AN_HOUR)

    def save(self, path: str) -> None:
        """Never over another plan, which may be under way."""
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                json.dump(asdict(self), file, indent=1, ensure_ascii=False)
        except FileExistsError as error:
            raise PlanInTheWay(path) from error

    @classmethod
    def load(cls, path: str) -> Plan:
        try:
            found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            if found.get("format") != FORMAT:
                raise BadPlan(path, f"it has the format {found.get('format')!r}, and {FORMAT} is read here")
            found["files"] = tuple(PlannedFile(each["uri"], each["bytes"]) for each in found["files"])
            Priority[found["priority"]]
            return cls(**found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadPlan(path, f"{type(error).__name__}: {error}") from error


def make(
    table: str,
    table_id: str,
    version: int,
    files: Sequence[LogFile],
    priority: Priority,
    *,
    where: str | None = None,
    feed_from: int | None = None,
    prices: Prices | None = None,
) -> Plan:
    """For the archived files of a question: each data file, and the file of its deletion vector, once."""
    planned: dict[str, int | None] = {}
    for file in files:
        planned[file.uri] = file.size
        if file.vector:
            planned.setdefault(file.vector, None)
    listed = tuple(PlannedFile(uri, planned[uri]) for uri in sorted(planned))
    found = Plan(table, table_id, version, where, feed_from, priority.name, listed)
    if prices is None:
        return found
    cost = found.bytes / 2**30 * prices.gib[priority.name] + len(listed) / 10_000 * prices.objects[priority.name]
    return Plan(table, table_id, version, where, feed_from, priority.name, listed, round(cost, 4), prices.currency)


class BadPlan(Terminal):
    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason

    def what(self) -> str:
        return f"{self.path} is no plan that can be carried out: {self.reason}."

    def next(self) -> str:
        return "Make a new one with `mirrorfeed archive plan`."


class PlanInTheWay(Terminal):
    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"{self.path} is there already and is left as it is."

    def next(self) -> str:
        return "Carry it out with `mirrorfeed archive restore`, remove it, or name another file."


class BadPrices(Terminal):
    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason

    def what(self) -> str:
        return f"{self.path} is no table of prices ({self.reason})."

    def next(self) -> str:
        return (
            'Write JSON such as {"currency": "EUR", "standard": {"gib": 0.02, "objects": 5.5}, "high": {"gib": 0.12,'
            ' "objects": 60}} with your own prices: for a GiB, and for 10,000 objects.'
        )
