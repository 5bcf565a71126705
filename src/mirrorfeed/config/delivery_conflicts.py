"""Find options of an entry that conflict with its delivery mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mirrorfeed.landing.delivery import UPSERT, Delivery
from mirrorfeed.landing.names import fold
from mirrorfeed.landing.selection import name_fault

if TYPE_CHECKING:
    from mirrorfeed.config.options import Conflict, EntryOptions

_MODE_OF = {"deleted_column": "soft_delete", "deleted_at_column": "soft_delete", "preimages": "append"}
"""Mode in which each option of `delivery` has an effect."""


def delivery_conflicts(entry: EntryOptions) -> Iterator[Conflict]:
    """Yield the path of each option that conflicts with the delivery mode, and the reason."""
    delivery = entry.delivery
    yield from ((("delivery", option), reason) for option, reason in _option_faults(delivery))
    if delivery.marks_deletes and entry.keys == ():
        yield ("delivery",), "soft_delete requires keys, and the table has none"
    if delivery.appends and entry.default_row_marker == "upsert":
        yield ("default_row_marker",), "upsert cannot be combined with delivery: append, whose rows are inserts"
    if delivery.appends and entry.row_markers == "exact":
        yield ("row_markers",), "exact cannot be combined with delivery: append, whose rows have no markers"
    if delivery.preimages and entry.changes == "compare":
        yield ("delivery", "preimages"), "cannot be combined with changes: compare, which finds only the new rows"


def _option_faults(delivery: Delivery) -> Iterator[tuple[str, str]]:
    """Yield the name of each invalid option of `delivery`, and the reason."""
    for option, mode in _MODE_OF.items():
        if delivery.mode != mode and getattr(delivery, option) != getattr(UPSERT, option):
            yield option, f"requires mode: {mode}, not {delivery.mode}"
    if not delivery.marks_deletes:
        return
    for option in ("deleted_column", "deleted_at_column"):
        if fault := name_fault(name := getattr(delivery, option)):
            yield option, f"{name!r} {fault}"
    if fold(delivery.deleted_column) == fold(delivery.deleted_at_column):
        yield "deleted_at_column", f"{delivery.deleted_at_column!r} is also `deleted_column`"
