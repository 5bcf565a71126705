"""The columns that a publication writes: those of the source, as they go on from what was published before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirrorfeed.landing.output_format import check_output
from mirrorfeed.landing.record import Record
from mirrorfeed.landing.schema import Column, ColumnsDropped, check_keys, evolve
from mirrorfeed.landing.selection import Selection, goes_on, left_out
from mirrorfeed.landing.selection import check as check_names
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.sources.base import COMPARISON, ChangeSource
from mirrorfeed.source.ranges import Facts

_DROPS = ("DROP COLUMNS", COMPARISON)
"""The operations after which a column that is gone is known to have no values under another name."""


def columns_of(feed: ChangeSource, plan: Plan, newest: Record | None, facts: Facts, version: int) -> tuple[Column, ...]:
    """The columns to write for what ends at a version; or why they cannot be written."""
    selection = plan.selection
    if selection and (newest is None or newest.selection != selection):
        check_names(plan.source, selection, feed.source_columns(facts.latest))
    columns = feed.columns(version)
    if newest is not None:
        before = newest.columns
        left_out = no_longer_selected(plan.source, newest, selection)
        # A change that breaks the schema is a range of its own.
        drops = facts.commits[0].operation in _DROPS
        if newest.source_columns and selection:
            now = feed.source_columns(version)
            goes_on(plan.source, version, selection, newest.source_columns, now, drops=drops)
        if (drops or left_out) and not plan.keep_dropped:
            _refuse_drop(plan.source, version, before, columns)
        may_drop = [column.name for column in before if column.name not in plan.keys] if drops else left_out
        fixed = plan.output.fixes_columns
        columns = evolve(plan.source, version, before, columns, may_drop=may_drop, fixed=fixed)
    check_keys(plan.source, plan.keys, [column for column in columns if not column.dropped])
    check_output(plan.source, plan.output, columns, plan.keys)
    return columns


def as_before(plan: Plan, newest: Record, version: int) -> tuple[Column, ...]:
    """The columns of the newest record, as far as they are selected."""
    gone = no_longer_selected(plan.source, newest, plan.selection)
    if gone and not plan.keep_dropped:
        raise ColumnsDropped(plan.source, version, gone)
    return tuple(replace(each, dropped=each.dropped or each.name in gone) for each in newest.columns)


def no_longer_selected(table: str, newest: Record, now: Selection | None) -> list[str]:
    """The published columns that the selection of now leaves out, which go on as dropped ones do; or
    `SelectionChanged`."""
    return left_out(table, newest.selection, newest.source_columns, newest.columns, now)


def _refuse_drop(table: str, version: int, before: Sequence[Column], now: Sequence[Column]) -> None:
    there = {column.name for column in now}
    if gone := [column.name for column in before if not (column.dropped or column.name in there)]:
        raise ColumnsDropped(table, version, gone)
