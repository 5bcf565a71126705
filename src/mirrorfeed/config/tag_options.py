"""The option `transform_tags`: its values, its conflicts, and the transformations that it selects for a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorfeed.config import validators
from mirrorfeed.landing.names import fold
from mirrorfeed.landing.tag_rules import transformation_by_tags
from mirrorfeed.landing.transformation import Transformation
from mirrorfeed.source.identifier import Pattern, Source

if TYPE_CHECKING:
    from mirrorfeed.config.model import Table
    from mirrorfeed.config.options import Conflict, EntryOptions


def parse_tag_rules(value: object) -> dict[str, str]:
    """Return the transformation for each tag. Raises `ValueError` for any other value."""
    rules = validators.parse_tags(value, "transformations, such as {pii: hash}")
    for tag, text in rules.items():
        if not tag.partition("=")[0].strip():
            raise ValueError(f"{tag!r} does not name a tag")
        Transformation.parse(text)
    return rules


def tag_conflicts(entry: EntryOptions) -> Iterator[Conflict]:
    """Yield the conflicts of the rules with other fields of an entry."""
    source = getattr(entry, "source", None) or getattr(entry, "sources", None)
    if isinstance(source, Pattern | Source) and (source.path or not Source(source.parts).is_in_unity_catalog):
        yield (
            ("transform_tags",),
            f"requires a name in Unity Catalog with three parts, and {source} is none: only columns in Unity Catalog"
            " have tags, so name the columns in `transform`",
        )
    if entry.hash_key is None and "hash" in map(str.strip, (entry.transform_tags or {}).values()):
        yield ("transform_tags",), "hash requires `hash_key`, the location of a secret"


def with_transformations(
    table: Table, columns: Sequence[str], tags: Mapping[str, Collection[tuple[str, str]]]
) -> Table:
    """Return a copy of a table with `transform_tags`, in which `transform` also has the columns that it selects.

    `columns` are all columns of the source. `tags` has the names and values of the tags of its columns, by the results
    of `fold` for the columns.
    """
    selection = table.selection
    if selection is None or (rules := selection.tags) is None:
        return table
    selected = filter(selection.includes, columns)
    found = {name: transformation_by_tags(rules, tags.get(fold(name), ())) for name in selected}
    explicit = {name: form for name, form in (table.transform or {}).items() if name in rules.explicit}
    transform = {name: form for name, form in found.items() if form} | explicit
    return table.with_transformations(transform, replace(rules, columns=frozenset(map(fold, columns))))
