"""Values that a history stores as they are published, with `hide_values: true`."""

from __future__ import annotations

from collections.abc import Mapping

from mirrorfeed.config.model import Table
from mirrorfeed.history.errors import hidden_values_changed
from mirrorfeed.history.history_record import HistoryRecord
from mirrorfeed.landing.selection import EVERYTHING, Selection
from mirrorfeed.landing.tag_rules import is_gone


def without_exclusions(table: Table) -> Table:
    """Return a copy of a table that publishes all columns, so that tags of excluded columns count in its history."""
    return table.model_copy(update={"columns": None, "exclude_columns": None})


def history_selection(table: Table) -> Selection | None:
    """Return the transformations of a table, and the casts before them. None if the history stores source values."""
    if table.history is None or not table.history.hide_values or table.selection is None:
        return None
    all_ = table.selection
    casts = {name: type_ for name, type_ in all_.cast.items() if name in all_.transform}
    return Selection(cast=casts, transform=all_.transform, hash_key=all_.hash_key, tags=all_.tags)


def hidden_columns(selection: Selection | None) -> Mapping[str, str]:
    """Return how the values of each hidden column are changed: its cast, if any, and its transformation."""
    chosen = selection or EVERYTHING
    return {name: ", ".join(filter(None, (chosen.cast.get(name), form))) for name, form in chosen.transform.items()}


def check_hidden(table: str, history: str, newest: HistoryRecord, selection: Selection | None) -> None:
    """Raise `hidden_values_changed` if the next rows would have other values than those of the record `newest`."""
    chosen = selection or EVERYTHING
    hidden, digest = hidden_columns(selection), chosen.key_digest
    changes = [
        f"{name!r} was {newest.hidden.get(name, 'not hidden')} and is {hidden.get(name, 'not hidden')}"
        for name in (column.name for column in newest.columns)
        if newest.hidden.get(name) != hidden.get(name) and not is_gone(chosen.tags, name)
    ]
    if newest.key_digest and digest and newest.key_digest != digest:
        changes.append("`hash_key` was another secret")
    if changes:
        raise hidden_values_changed(table=table, history=history, changes=tuple(changes))
