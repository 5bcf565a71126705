"""Divide a first load into parts: slices of the rows between two values of one column.

Slices of values are exact for every table, also with deletion vectors and column mapping, because Delta reads the rows.
Delta skips files whose values are outside a slice. So a column suits if the ranges of its values in the files overlap
little. Otherwise most files would be read for several parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    TimestampType,
)

from mirrorfeed.landing.load_part import LoadPart, Slice
from mirrorfeed.source.identifier import quote

MAX_READ = 1.5
"""Maximum size of all reads of a load, as a multiple of the source's size. Files in which values of several slices
occur are read several times."""
_MAX_COLUMNS = 8
"""Maximum number of columns whose values are compared, because the comparison reads these columns completely."""
_MAX_TEXT = 256
"""Maximum number of characters of a value between two slices."""
_MANY = 2
"""A plan suits if its largest part is at most this multiple of the wanted size."""
_METADATA = "_metadata"
"""Column with the file of a row. A column of the source with this name hides it."""
_Key = Callable[[str], Any]


class FileRange(NamedTuple):
    """A file of the source, and the values of one column in it. `least` and `greatest` are None if all are NULL."""

    rows: int
    bytes: int
    least: str | None
    greatest: str | None
    nulls: int = 0

    @property
    def is_usable(self) -> bool:
        """False if the file has a value that no plan can contain."""
        return (self.least is not None and self.greatest is not None) or self.nulls == self.rows


@dataclass(frozen=True, slots=True)
class Plan:
    """Division of a table by the values of one column."""

    slices: tuple[Slice, ...]
    read_bytes: int
    """Size of all files that are read for all parts. A file counts once for each part that needs it."""

    @property
    def largest(self) -> int:
        return max(each.bytes for each in self.slices)


def divide(files: Sequence[FileRange], part_bytes: int, order: _Key = str) -> Plan:
    """Divide the files into slices of about `part_bytes`, in the order of their greatest values.

    Makes fewer slices if more than `MAX_READ` of the size of all files would be read. `order` converts a value to a
    Python value with the same order as in Spark.
    """
    total = sum(each.bytes for each in files)
    count = -(-total // part_bytes)
    while count > 1:
        plan = _divide(files, -(-total // count), order)
        if plan.read_bytes <= total * MAX_READ:
            return plan
        count = min(count - 1, count * 2 // 3)
    return Plan((Slice(None, sum(each.rows for each in files), total),), total)


def _divide(files: Sequence[FileRange], part_bytes: int, order: _Key) -> Plan:
    def place(file: FileRange) -> tuple[bool, Any]:
        return (False, 0) if file.greatest is None else (True, order(file.greatest))

    ordered, slices, begin, size = sorted(files, key=place), list[Slice](), 0, 0
    for at, (file, later) in enumerate(pairwise(ordered)):
        size += file.bytes
        is_full = size + later.bytes // 2 > part_bytes
        if file.greatest is not None and place(file) != place(later) and is_full:
            slices.append(_slice(ordered[begin : at + 1], file.greatest))
            begin, size = at + 1, 0
    slices.append(_slice(ordered[begin:], None))
    ends = [order(each.up_to) for each in slices if each.up_to is not None]
    return Plan(tuple(slices), sum(file.bytes * _parts_of(file, ends, order) for file in files))


def _slice(files: Sequence[FileRange], up_to: str | None) -> Slice:
    return Slice(up_to, sum(file.rows for file in files), sum(file.bytes for file in files))


def _parts_of(file: FileRange, ends: Sequence[Any], order: _Key) -> int:
    """Return the number of parts that read a file. `ends` are the greatest values of all parts except the last."""
    if file.least is None or file.greatest is None:
        return 1
    least, greatest = order(file.least), order(file.greatest)
    cuts = sum(1 for end in ends if least <= end < greatest)
    return 1 + cuts + int(bool(file.nulls and ends and least > ends[0]))


def best_part(plans: Mapping[str, Plan], part_bytes: int) -> LoadPart | None:
    """Return the first part of the plan with the smallest parts. `plans` has the plan of each column, in the order in
    which they are preferred. Returns None if each plan has only one part."""
    column = min(plans, key=lambda name: max(plans[name].largest, _MANY * part_bytes), default=None)
    if column is None or len(plans[column].slices) == 1:
        return None
    return LoadPart(1, column, plans[column].slices)


def first_part(
    rows: DataFrame, usable: Collection[str], keys: Sequence[str], partitions: Sequence[str], part_bytes: int
) -> LoadPart | None:
    """Return the first part of a plan to load `rows`, the rows of a version of a Delta table. None if no column divides
    the rows well. `usable` are the columns whose values the log may contain.

    Prefers a column in `keys`: then rows with the same key are in the same part. Other candidates are partition
    columns, dates and times. Reads the candidates completely, the last two only if keys and partitions do not suit.
    """
    types = {field.name: field.dataType for field in rows.schema if field.name in usable and _suits(field)}
    times = [name for name, type_ in types.items() if isinstance(type_, DateType | TimestampType)]
    plans: dict[str, Plan] = {}
    for names in ([*keys, *partitions], times):
        columns = [name for name in dict.fromkeys(names) if name in types and name not in plans]
        plans |= _plans(rows, {name: types[name] for name in columns[:_MAX_COLUMNS]}, part_bytes)
        part = best_part(plans, part_bytes)
        if part and plans[part.column].largest <= _MANY * part_bytes:
            return part
    return best_part(plans, part_bytes)


def rows_of_part(rows: DataFrame, part: LoadPart) -> DataFrame:
    """Return the rows of one part of a load."""
    value, type_ = F.col(quote(part.column)), rows.schema[part.column].dataType
    condition = F.lit(True)
    if part.slice.up_to is not None:
        condition = value <= _literal(part.slice.up_to, type_)
    if part.after is not None:
        return rows.where(condition & (value > _literal(part.after, type_)))
    return rows.where(condition | value.isNull())


def _plans(rows: DataFrame, types: Mapping[str, DataType], part_bytes: int) -> dict[str, Plan]:
    """Return a plan for each column of `types` whose values can divide the rows. Reads these columns completely."""
    if not types or _METADATA in map(str.lower, rows.columns):
        return {}
    columns = {at: F.col(quote(name)) for at, name in enumerate(types)}
    # Grouping by a hash takes half the CPU time of grouping by the path, which is long. Files with the same hash would
    # be planned as one, so only their sizes would be wrong, which are estimates.
    file = F.xxhash64("_metadata.file_path"), F.col("_metadata.file_size").alias("bytes")
    per_file = rows.groupBy(*file).agg(
        F.count(F.lit(1)).alias("rows"),
        *(F.count(column).alias(f"count{at}") for at, column in columns.items()),
        *(F.min(column).alias(f"least{at}") for at, column in columns.items()),
        *(F.max(column).alias(f"greatest{at}") for at, column in columns.items()),
    )
    texts = (
        f"{_TO_TEXT[type(type_)].format(f'{bound}{at}')} AS {bound}{at}"
        for at, type_ in enumerate(types.values())
        for bound in ("least", "greatest")
    )
    files = per_file.selectExpr("rows", "bytes", *(f"count{at}" for at in columns), *texts).toArrow().to_pylist()
    plans = {}
    for at, (name, type_) in enumerate(types.items()):
        ranges = [
            FileRange(
                each["rows"],
                each["bytes"],
                each[f"least{at}"],
                each[f"greatest{at}"],
                each["rows"] - each[f"count{at}"],
            )
            for each in files
        ]
        if all(each.is_usable for each in ranges):
            plans[name] = divide(ranges, part_bytes, _order(type_))
    return plans


_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_TEXT = f"IF(is_valid_utf8({{0}}) AND length({{0}}) <= {_MAX_TEXT}, {{0}}, NULL)"
# For dates of 1582 and before, Delta wrongly skips files.
_DATE = "IF({0} BETWEEN DATE '1900-01-01' AND DATE '9999-12-31', CAST({0} AS string), NULL)"
_TIME = (
    "IF({0} BETWEEN TIMESTAMP '1900-01-01 00:00:00Z' AND TIMESTAMP '9999-12-30 00:00:00Z',"
    " CAST(unix_micros({0}) AS string), NULL)"
)
_TO_TEXT = {
    **dict.fromkeys((*_INTEGERS, DecimalType), "CAST({0} AS string)"),
    StringType: _TEXT,
    DateType: _DATE,
    TimestampType: _TIME,
}
"""SQL expression for the text of a value in a plan, by type. NULL for a value that no plan can contain."""


def _suits(field: StructField) -> bool:
    """Return whether Spark orders the values of a column like Python, and Delta skips files by their bounds."""
    type_ = field.dataType
    # A text with a collation has another order.
    return type(type_) in _TO_TEXT and (not isinstance(type_, StringType) or type_ == StringType())


def _order(type_: DataType) -> _Key:
    if isinstance(type_, StringType | DateType):
        return str  # the order of code points is the order of bytes in UTF-8
    return Decimal if isinstance(type_, DecimalType) else int


def _literal(text: str, type_: DataType) -> Column:
    """Return the value whose text in a plan is `text`. Independent of the session's time zone."""
    if isinstance(type_, TimestampType):
        return F.timestamp_micros(F.lit(int(text)))
    return F.lit(text).cast(type_)
