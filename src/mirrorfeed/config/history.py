"""The fields of the user's file that say where the history of a table is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirrorfeed.config import values
from mirrorfeed.days import BadInterval, parse_days
from mirrorfeed.feed.source import MOST_PARTS, Source
from mirrorfeed.landing.names import Target

_KNOWN = ("into", "archive")


@dataclass(frozen=True, slots=True)
class KeptIn:
    """Where a history is, and from which age on its files count as archived; None: never."""

    table: Source
    archive_days: int | None = None


def of_all(value: object) -> KeptIn:
    """The place of all histories: a schema, or a folder."""
    found = _kept_in(value, "a schema or a folder, as in main.history")
    if len(found.table.parts) == MOST_PARTS:
        raise ValueError(f"{str(found.table)!r} is a table: for all tables together name a schema, or a folder")
    return found


def of_one(value: object) -> KeptIn | bool | None:
    """The history of one table; False: none is kept."""
    return value if value is None or value is False else _kept_in(value, "a table, as in main.history.orders, or false")


def of_many(value: object) -> KeptIn | bool | None:
    """The place of the histories of the tables that a pattern stands for; False: none are kept."""
    return value if value is None or value is False else of_all(value)


def below(place: KeptIn, target: Target) -> KeptIn:
    """The history of one table, where all have one place."""
    names = [part for part in (target.schema, target.table) if part is not None]
    if place.table.path is not None:
        table = Source(path="/".join([place.table.path.rstrip("/"), *names]))
    else:
        table = Source((*place.table.parts, "_".join(names)))
    return replace(place, table=table)


def _kept_in(value: object, expected: str) -> KeptIn:
    given = value if isinstance(value, dict) else {"into": value}
    if unknown := [name for name in given if name not in _KNOWN]:
        raise ValueError(f"{unknown[0]!r} is not a known field of it; known here: {', '.join(_KNOWN)}")
    if not isinstance(given.get("into"), str):
        raise ValueError(f"must name {expected}, not {values.short(given.get('into'))}")
    return KeptIn(values.source(given["into"]), _days(given.get("archive")))


def _days(value: object) -> int | None:
    try:
        return None if value is None else parse_days(values.text(value))
    except BadInterval as error:
        raise ValueError(f"archive: {error.text!r} {error.reason}") from error
