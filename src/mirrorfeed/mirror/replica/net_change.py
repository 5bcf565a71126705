"""The net effect of one file on a table, computed on columns.

Rows apply in their order. So for each key only rows after the last delete count, and of these the last update sets
the values of every row that the key has by then; inserts after it add rows. Rows with a NULL in their key match
nothing: they are added, and their deletes do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.lint.specification import DELETE, INSERT


@dataclass(frozen=True, slots=True)
class Change:
    kept: pa.ChunkedArray
    """For each row of the table, in order, whether it stays."""
    added: pa.Table
    """New rows, with the columns of the file."""

    @property
    def removes(self) -> bool:
        return not pc.all(self.kept, min_count=0).as_py()


def net_change(present: pa.Table, rows: pa.Table, markers: pa.ChunkedArray, keys: Sequence[str]) -> Change:
    """`present` are the key columns of the table's rows; types of keys are the same on both sides."""
    is_full = _has_full_key(rows, keys)
    unmatched = rows.filter(pc.and_(pc.invert(is_full), pc.not_equal(markers, DELETE)))
    rows, markers = rows.filter(is_full), markers.filter(is_full)
    if not rows.num_rows:
        return Change(_repeated(True, present.num_rows), unmatched)

    ids, present_ids = _key_ids(rows.select(keys), present.select(keys))
    position = pc.cumulative_sum(_repeated(1, rows.num_rows))
    deleted = _last(ids, position, pc.equal(markers, DELETE))
    alive = pc.greater(position, _spread(deleted, ids))
    inserts = pc.and_(alive, pc.equal(markers, INSERT))
    updates = pc.and_(alive, pc.invert(pc.or_(pc.equal(markers, INSERT), pc.equal(markers, DELETE))))
    updated = _last(ids, position, updates)
    last_update = _spread(updated, ids)

    # How many rows the key has before its last update.
    known = pc.if_else(pc.less(present_ids, len(deleted)), present_ids, None)
    at_start = pc.if_else(pc.greater(deleted, 0), 0, _count(known, len(deleted)))
    inserted = _per_key(ids, pc.cast(pc.and_(inserts, pc.less(position, last_update)), pa.int64()), "sum")
    first_is_update = pc.equal(_first(ids, position, updates), _first(ids, position, alive))
    created = pc.and_(pc.equal(at_start, 0), pc.fill_null(first_is_update, False))
    copies = pc.add(pc.add(at_start, inserted), pc.cast(created, pa.int64()))

    later_insert = pc.and_(inserts, pc.greater(position, last_update))
    times = pc.if_else(pc.equal(position, last_update), _spread(copies, ids), pc.cast(later_insert, pa.int64()))
    touched = pc.or_(pc.greater(deleted, 0), pc.greater(updated, 0))
    kept = pc.invert(pc.fill_null(pc.take(touched, known), False))
    return Change(_chunked(kept), pa.concat_tables([_multiplied(rows, times), unmatched]))


def _has_full_key(rows: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    is_full = _repeated(True, rows.num_rows)
    for key in keys:
        is_full = pc.and_(is_full, pc.is_valid(rows[key]))
    return is_full


def _key_ids(keys: pa.Table, present: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """A number for each key, the same on both sides. The file's keys have 0 to n-1; a key with a NULL has none."""
    both = pa.concat_tables([keys, present])
    ids = _codes(both.column(0))
    for column in both.columns[1:]:
        codes = _codes(column)
        width = pc.add(pc.max(codes), 1)
        # Numbered again after each column, or the products of many columns would exceed 64 bits.
        ids = _codes(pc.add(pc.multiply(ids, width), codes))
    return ids.slice(0, keys.num_rows), ids.slice(keys.num_rows)


def _codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers for distinct values, from 0 in the order of first occurrence."""
    if pa.types.is_floating(column.type):  # equal values with more than one representation
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
        column = pc.if_else(pc.equal(column, 0), pa.scalar(0.0, column.type), column)
    encoded = pc.dictionary_encode(column)
    return pa.chunked_array([chunk.indices.cast(pa.int64()) for chunk in encoded.chunks], pa.int64())


def _per_key(ids: pa.ChunkedArray, values: pa.ChunkedArray, how: str) -> pa.ChunkedArray:
    """One value for each key, at the place of its number."""
    grouped = pa.table({"id": ids, "value": values}).group_by("id").aggregate([("value", how)])
    return grouped.sort_by("id")[f"value_{how}"]


def _last(ids: pa.ChunkedArray, position: pa.ChunkedArray, among: pa.ChunkedArray) -> pa.ChunkedArray:
    """The last position for each key, 0 if there is none; positions count from 1."""
    return pc.fill_null(_per_key(ids, pc.if_else(among, position, None), "max"), 0)


def _first(ids: pa.ChunkedArray, position: pa.ChunkedArray, among: pa.ChunkedArray) -> pa.ChunkedArray:
    return _per_key(ids, pc.if_else(among, position, None), "min")


def _count(ids: pa.ChunkedArray, keys: int) -> pa.ChunkedArray:
    """How often each of the numbers 0 to `keys` - 1 occurs."""
    every = pc.subtract(pc.cumulative_sum(_repeated(1, keys)), 1)
    occurring = pc.drop_null(ids)
    numbers = pa.chunked_array([*every.chunks, *occurring.chunks], pa.int64())
    return pc.subtract(_per_key(numbers, _repeated(1, len(numbers)), "sum"), 1)


def _spread(per_key: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The value of each row's key."""
    return pc.take(per_key, ids)


def _multiplied(rows: pa.Table, times: pa.ChunkedArray) -> pa.Table:
    """Each row as many times as `times` has, which is mostly 0 or 1."""
    if pc.max(times).as_py() <= 1:
        return rows.filter(pc.equal(times, 1))
    ends = pc.cumulative_sum(times).combine_chunks()
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    places = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, pa.nulls(ends[-1].as_py())))
    return rows.take(places)


def _repeated(value: bool | int, size: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.repeat(value, size)])


def _chunked(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
