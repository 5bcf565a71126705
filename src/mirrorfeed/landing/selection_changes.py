"""Compare the selection and the source columns of a publication with those of the publications before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirrorfeed.landing.errors import IncompatibleSchemaError, selection_changed
from mirrorfeed.landing.selection import Selection, condition_columns
from mirrorfeed.landing.tag_rules import column_tags_changed, is_gone

if TYPE_CHECKING:
    from mirrorfeed.landing.log_record import Record


def compare_selections(table: str, newest: Record, old: Selection, new: Selection) -> list[str]:
    """Return the columns of the record `newest`, with the selection `old`, that the selection `new` does not have.

    Raises the errors of `unselected_columns`.
    """
    types = newest.source_columns
    missing, changes, by_tag = [], [], list[str]()
    if old.has_hashes and new.has_hashes and newest.key_digest != new.key_digest:
        changes.append("`hash_key` was another secret")
    if old.condition != new.condition:
        changes.append(f"`where` was {_quoted(old.where)} and is {_quoted(new.where)}")
    for name in types if types is not None else [column.name for column in newest.columns if not column.dropped]:
        if not old.includes(name):
            if new.includes(name):
                changes.append(f"{name!r} was excluded, so its values were never published")
        elif not new.includes(name):
            missing.append(old.name_of(name))
        else:
            if old.name_of(name) != new.name_of(name):
                changes.append(f"{name!r} was published as {old.name_of(name)!r} and would be {new.name_of(name)!r}")
            if old.cast_of(name) != new.cast_of(name):
                changes.append(
                    f"the cast of {name!r} was {_quoted(old.cast.get(name))} and is {_quoted(new.cast.get(name))}"
                )
            if old.transformation_of(name) != new.transformation_of(name) and not is_gone(new.tags, name):
                before, now = _quoted(old.transform.get(name)), _quoted(new.transform.get(name))
                change = f"the transformation of {name!r} was {before} and is {now}"
                (by_tag if new.tags and name not in new.tags.explicit else changes).append(change)
    if changes:
        raise selection_changed(table=table, changes=tuple(changes))
    if by_tag:
        raise column_tags_changed(table=table, changes=tuple(by_tag))
    return missing


def check_source_columns(
    table: str,
    version: int,
    selection: Selection,
    before: Mapping[str, str],
    now: Mapping[str, str],
    *,
    drops: bool,
    compared: bool = False,
) -> None:
    """Check that the selection has the same meaning after source columns changed. Raises `IncompatibleSchemaError` if
    not.

    For example, raises the error if an excluded column is missing, and a new column is possibly the renamed column.
    Also raises it if a new column would be published under the name of a missing column.

    - `before`: type of each source column in the newest record.
    - `now`: type of each source column at `version`.
    - `drops`: True if a missing column was dropped. False if it is possible that the column was renamed.
    - `compared`: True if all rows are compared, so that values of a new column replace values of a missing one.
    """
    used = {*condition_columns(selection, before).values(), *selection.cast, *selection.transform}
    changes = [
        f"{name!r} was {type_} and is {now[name]}"
        for name, type_ in before.items()
        if name in used and now.get(name, type_) != type_
    ]
    gained = {selection.name_of(name): name for name in now if name not in before and selection.includes(name)}
    for name in before:
        if name in now or drops:
            continue
        if not selection.includes(name) and gained:
            changes.append(f"{name!r} is missing")
        elif not compared and selection.includes(name) and (other := gained.get(selection.name_of(name))):
            changes.append(f"{name!r} is missing, and {other!r} would be published under its name")
    if changes:
        raise IncompatibleSchemaError(table=table, version=version, changes=tuple(changes))


def _quoted(value: str | None) -> str:
    return "none" if value is None else repr(value)
