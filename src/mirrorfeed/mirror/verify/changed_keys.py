"""Compare only the keys that changed since a verified version, and count the rows of both sides.

Finds every difference in the changed keys. Elsewhere, it finds rows that are missing or too many, unless as many rows
are missing as there are too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mirrorfeed import archive
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.selection import Selection
from mirrorfeed.mirror import errors
from mirrorfeed.mirror.verify import delivered
from mirrorfeed.mirror.verify.expected_rows import key_columns, select_rows
from mirrorfeed.mirror.verify.row_comparison import RowComparison, compare_rows, with_keys
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import read_changes, read_errors, read_version, without_collations
from mirrorfeed.source.snapshot_or_range import Range, first_missing
from mirrorfeed.source.versions import read_commits

MOST_KEYS = 100_000
"""Maximum number of changed keys that the driver collects. With these keys, Spark skips files of both sides."""
_ORDERED = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DateType)
"""Types of keys by whose range files can be skipped. No texts, because a plan would show them."""


def require_changes(source: Source, records: Sequence[Record]) -> None:
    """Raise an error if changed keys cannot be compared at these publications."""
    if not records:
        raise errors.mirror_not_reached(table=str(source))
    if not records[0].keys:
        raise errors.full_verification_required(table=str(source), reason="the table has no keys")
    if records[0].read is not None:
        reason = "it is published by comparison (`changes: compare`), so no feed has its changes"
        raise errors.full_verification_required(table=str(source), reason=reason)


@dataclass(frozen=True)
class Keys:
    """Keys to compare, with the names and types of the source."""

    rows: DataFrame
    collected: pa.Table | None = None
    """The same keys, if there are few."""

    @classmethod
    def of(cls, spark: SparkSession, few: pa.Table, schema: T.StructType) -> Keys:
        return cls(F.broadcast(spark.createDataFrame(few, schema)), few)


def changed_keys(
    spark: SparkSession, source: Source, range_: Range, keys: Sequence[str], selection: Selection | None
) -> Keys:
    """Return the keys of all rows that changed in a range, by the change data feed, including keys that left the table.

    Raises `full_verification_required` if the feed of the range cannot be read or is incomplete.
    """
    after, last = range_.from_version_exclusive, range_.to_version_inclusive
    try:
        with read_errors(str(source), range_):
            commits = [each for each in read_commits(spark, source, after) if after < each.version <= last]
            if (missing := first_missing(after, last, commits)) is not None:
                reason = f"version {missing} is missing in the Delta log"
                raise errors.full_verification_required(table=str(source), reason=reason)
            archive.check(spark, source, range_)
            every_row = replace(selection, where=None) if selection else None
            selected = select_rows(read_changes(spark, source, range_), every_row)
            found = selected.select(*map(quote, keys)).distinct()
            few = found.limit(MOST_KEYS + 1).toArrow()  # a feed that cannot be read is an error here
            return Keys.of(spark, few, found.schema) if len(few) <= MOST_KEYS else Keys(found)
    except MirrorfeedError as error:
        if error.code == errors.full_verification_required.code:
            raise
        raise errors.full_verification_required(table=str(source), reason=error.problem.rstrip(".")) from error


def compare_changes(
    spark: SparkSession,
    source: Source,
    range_: Range,
    version: int,
    expected: DataFrame,
    actual: DataFrame,
    keys: Sequence[str],
    shown: int,
    selection: Selection | None,
    delivery: Delivery,
    sample: int = 0,
) -> RowComparison:
    """Return the comparison of the keys that changed in a range, with the number of all rows on both sides.

    `expected` has the rows of the source at `version`, and `actual` all rows of the mirror. Also compares
    the keys of `sample` random rows of the source. Raises `full_verification_required` if the keys are unknown.
    """
    of_source = without_collations(expected.select(*map(quote, keys)))
    if range_.versions:
        wanted = changed_keys(spark, source, range_, keys, selection)
    else:
        wanted = Keys.of(spark, of_source.limit(0).toArrow(), of_source.schema)
    if sample:
        random = Keys.of(spark, of_source.orderBy(F.rand()).limit(sample).toArrow(), of_source.schema)
        wanted = Keys(wanted.rows.unionAll(random.rows).distinct())
    some, mirrored = _in_range(expected, wanted, keys), _in_range(actual, wanted, keys)
    if delivery.appends:
        mirrored = delivered.rows_at(_with_keys(mirrored, wanted.rows), version, keys, expected.columns)
    mark = delivery.deleted_column if delivery.marks_deletes else None
    result = compare_rows(version, some, mirrored, keys, shown, mark, wanted.rows)
    whole = read_version(spark, source, version) if selection is None or selection.where is None else expected
    source_rows, mirror_rows = whole.count(), _count(actual, delivery, version)
    return replace(
        result,
        source_rows=source_rows,
        mirror_rows=mirror_rows,
        since=range_.from_version_exclusive,
        compared_keys=None if wanted.collected is None else len(wanted.collected),
        uncompared_rows=(source_rows - result.source_rows) - (mirror_rows - result.mirror_rows),
    )


def _in_range(rows: DataFrame, wanted: Keys, keys: Sequence[str]) -> DataFrame:
    """Return the rows from the least to the greatest key, so that Spark skips files. All rows if this is unknown."""
    name, column = keys[0], F.col(quote(keys[0]))
    types = wanted.rows.schema[name].dataType, rows.schema[name].dataType
    if wanted.collected is None or not len(wanted.collected) or types[0] != types[1] or type(types[0]) not in _ORDERED:
        return rows
    ends = pc.min_max(wanted.collected[name]).as_py()
    return rows.where(column.between(F.lit(ends["min"]), F.lit(ends["max"])))


def _with_keys(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Return at least the rows of the mirror whose keys `wanted` has and can be read."""
    pairs = [key_columns(field, rows.schema[field.name].dataType) for field in wanted.schema]
    return with_keys(rows, wanted, [(of_mirror, of_source) for of_source, of_mirror in pairs])


def _count(actual: DataFrame, delivery: Delivery, version: int) -> int:
    """Return the number of rows of the mirror that the source must have."""
    if delivery.appends:
        at_version = actual.where(f"CAST(_commit_version AS bigint) <= {version}")
        adds = "CASE _change_type WHEN 'insert' THEN 1 WHEN 'delete' THEN -1 ELSE 0 END"
        row = at_version.agg(F.expr(f"sum({adds})")).first()
        return int(row[0] or 0) if row else 0
    if delivery.marks_deletes:
        is_deleted = F.coalesce(F.col(quote(delivery.deleted_column)).cast("boolean"), F.lit(False))
        return actual.where(~is_deleted).count()
    return actual.count()
