"""The field `history`: location of permanent histories."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import ValidationInfo

from mirrorfeed.config import values
from mirrorfeed.landing.names import Target
from mirrorfeed.source.errors import BadInterval
from mirrorfeed.source.identifier import MAX_PARTS, Source
from mirrorfeed.source.retention import parse_days

_KNOWN = ("location", "archive")


@dataclass(frozen=True, slots=True)
class HistoryLocation:
    """Location of a history, or the schema or folder of several histories."""

    table: Source
    archive_days: int | None = None
    """Age from which files count as archived. None is never."""


def common_history(value: object, info: ValidationInfo) -> HistoryLocation:
    """Parse the schema or folder of all histories."""
    found = _location(value, "a schema or a folder, such as main.history", info)
    if len(found.table.parts) == MAX_PARTS:
        raise ValueError(f"{str(found.table)!r} is a table: name a schema or a folder for the histories of all tables")
    return found


def pattern_history(value: object, info: ValidationInfo) -> HistoryLocation | None:
    """Parse the schema or folder of the histories of a pattern. None is `false`."""
    return None if value is False else common_history(value, info)


def table_history(value: object, info: ValidationInfo) -> HistoryLocation | None:
    """Parse the history of one table. None is `false`."""
    expected = "a table, such as main.history.orders, or false"
    return None if value is False else _location(value, expected, info)


def history_below(place: HistoryLocation, target: Target) -> HistoryLocation:
    """Return the location of one table's history below a common one."""
    names = [part for part in (target.schema, target.table) if part is not None]
    if place.table.path is not None:
        table = Source(path="/".join([place.table.path.rstrip("/"), *names]))
    else:
        table = Source((*place.table.parts, "_".join(names)))
    return replace(place, table=table)


def _location(value: object, expected: str, info: ValidationInfo) -> HistoryLocation:
    given = value if isinstance(value, dict) else {"location": value}
    if unknown := [name for name in given if name not in _KNOWN]:
        if unknown[0] in values.RENAMED and values.RENAMED[unknown[0]] in _KNOWN:
            raise ValueError(f"{unknown[0]} was renamed to {values.RENAMED[unknown[0]]}")
        raise ValueError(f"{unknown[0]!r} is not a known field of history; allowed are {', '.join(_KNOWN)}")
    if not isinstance(given.get("location"), str):
        raise ValueError(f"must name {expected}, not {values.short(given.get('location'))}")
    archive = given.get("archive")
    try:
        days = None if archive is None else parse_days(values.text(archive))
    except BadInterval as error:
        raise ValueError(f"archive: {error.text!r} {error.reason}") from error
    return HistoryLocation(values.source(given["location"], info), days)
