"""Rules that transform columns by their tags in Unity Catalog, and errors if tags are unknown or changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirrorfeed.errors import ConfigurationError, problem
from mirrorfeed.landing.names import fold
from mirrorfeed.landing.selection import Selection, TagRules


@problem(ConfigurationError, "MF3017")
def column_tags_changed(*, table: str, changes: Sequence[str]) -> None:
    """The tags of published columns of {table} changed: {changes:reasons}.

    Run `mirrorfeed rebuild` to reload the table with the new transformations, exclude the columns with
    `exclude_columns`, or set the tags in Unity Catalog as before. Until then, nothing is published.
    """


@problem(ConfigurationError, "MF3018")
def column_tags_unknown(*, table: str, columns: Sequence[str]) -> None:
    """{table} has columns with unknown tags, so it is not known whether to transform their values: {columns:quoted}.

    If the column was just added, run the command again. If it was dropped or renamed after unpublished changes, run
    `mirrorfeed rebuild` to reload the table.
    """


def transformation_by_tags(rules: TagRules, tags: Iterable[tuple[str, str]]) -> str | None:
    """Return the transformation of a column with these tags and values, or None if no rule has one of them."""
    keys = {key for name, value in tags for key in (name, f"{name}={value}")}
    return next((form for rule, form in rules.rules.items() if rule in keys), None)


def is_gone(rules: TagRules | None, column: str) -> bool:
    """Return whether a column no longer exists, so that its tags cannot be read."""
    return bool(rules and rules.columns is not None and _unknown(rules, [column]))


def check_tags_known(table: str, selection: Selection, columns: Iterable[str]) -> None:
    """Raise `column_tags_unknown` if tags of `columns` were not read that decide how to transform the values."""
    if selection.tags and (unknown := _unknown(selection.tags, columns)):
        raise column_tags_unknown(table=table, columns=unknown)


def _unknown(rules: TagRules, columns: Iterable[str]) -> list[str]:
    known = rules.columns or frozenset()
    return [each for each in columns if fold(each) not in known and each not in rules.explicit]
