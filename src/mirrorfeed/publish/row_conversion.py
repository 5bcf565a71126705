"""Convert source rows to landing rows: values, snapshots, rows of given keys, and row checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import MARKER, Column, Marker, Problem, is_geo_type
from mirrorfeed.source.identifier import quote

PROBLEM = "_change_type"
"""Last column of every result: NULL, or why the row cannot be published (`Problem`).

The change data feed reserves this name, so no published table has such a column.
"""
DELETE_FIRST = "_commit_version"
"""Boolean column of keys whose rows are published again: true if a delete must precede the row, because the mirror has
several rows with the key.

The change data feed reserves this name too.
"""

REPLACEMENT = "\ufffd"
"""The character with which Java and Spark replace bytes that are not valid UTF-8."""
_MAX_FILTER_KEYS = 1_000
"""With more keys, planning the filter takes Spark more time than the filter saves."""
_SKIPPABLE = ("byte", "short", "integer", "long", "string")
"""Types by which Delta skips files correctly. It wrongly skips files whose only dates are 5 to 14 October 1582."""


def snapshot_rows(snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str] = ()) -> DataFrame:
    """Return all rows, without a marker. A NULL in one of `keys` is a problem."""
    problem = F.when(_any_null([_col(name) for name in keys]), Problem.NULL_KEY.value) if keys else F.lit(None)
    return snapshot.select(*map(to_landing, columns), problem.cast("int").alias(PROBLEM))


def key_hashes(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return a hash of each row's key. If no hash occurs twice, no key does."""
    return rows.select(F.xxhash64(*map(_col, keys)).alias("hash"))


def key_problems(snapshot: DataFrame, keys: Sequence[str], limit: int) -> DataFrame:
    """Return the first keys of a snapshot that are NULL or not unique: the key columns and the problem."""
    names = key_names(keys)
    key = [F.col(name) for name in names]
    counted = snapshot.groupBy(*(_col(name).alias(new) for name, new in zip(keys, names, strict=True)))
    problem = F.when(_any_null(key), Problem.NULL_KEY.value).when(F.col("__count__") > 1, Problem.DUPLICATE_KEY.value)
    return (
        counted.agg(F.count(F.lit(1)).alias("__count__"))
        .where(problem.isNotNull())
        .select(*(part.alias(name) for part, name in zip(key, keys, strict=True)), problem.cast("int").alias(PROBLEM))
        .limit(limit)
    )


def key_names(keys: Sequence[str]) -> list[str]:
    """Return names for the key columns that no table column can have."""
    return [f"__key_{i}__" for i in range(len(keys))]


def existing_keys(
    snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str], wanted: pa.Table | DataFrame
) -> DataFrame:
    """Return the wanted keys that exist in a snapshot, each once. Both sides are in landing form."""
    key_columns = [next(column for column in columns if column.name == name) for name in keys]
    key = key_names(keys)
    if isinstance(wanted, pa.Table):
        snapshot = _filter_keys(snapshot, key_columns, wanted)
        wanted = snapshot.sparkSession.createDataFrame(wanted.select(keys))
    existing = snapshot.select(*(to_landing(column).alias(part) for column, part in zip(key_columns, key, strict=True)))
    return existing.join(wanted.select(*map(_col, keys)).toDF(*key), key, "left_semi").distinct().toDF(*keys)


def rows_of_keys(
    snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str], wanted: pa.Table | DataFrame
) -> DataFrame:
    """Return the snapshot's row of each wanted key as an upsert, or a delete if there is no row.

    Wanted keys are in landing form, not NULL and distinct. With a column `DELETE_FIRST`, the delete is next to its
    upsert.
    """
    if isinstance(wanted, pa.Table):
        snapshot = _filter_keys(snapshot, columns, wanted)
        wanted = snapshot.sparkSession.createDataFrame(wanted)
    delete_first = F.col(DELETE_FIRST) if DELETE_FIRST in wanted.columns else F.lit(False)
    forms = {column.name: column.form for column in columns}
    key_at = {name: F.col(f"__wanted_{i}__") for i, name in enumerate(keys)}
    wanted_keys = wanted.select(
        *(_col(name).cast(forms[name]).alias(f"__wanted_{i}__") for i, name in enumerate(keys)),
        delete_first.alias("__delete_first__"),
    )
    written = {column.name: f"__value_{i}__" for i, column in enumerate(columns)}
    existing = snapshot.select(
        *(to_landing(column).alias(written[column.name]) for column in columns), F.lit(True).alias("__live__")
    )
    same = reduce(and_, (key == F.col(written[name]) for name, key in key_at.items()))
    count = F.count("__live__").over(Window.partitionBy(*key_at.values()))
    found = wanted_keys.join(existing, same, "left").withColumn("__rows__", count)
    live = F.col("__live__").isNotNull()
    markers = F.when(live & F.col("__delete_first__"), _array(Marker.DELETE, Marker.UPSERT))
    markers = markers.when(live, _array(Marker.UPSERT)).otherwise(_array(Marker.DELETE))
    is_upsert = F.col("__marker__") != Marker.DELETE.value
    values = [
        key_at[name].alias(name) if name in key_at else F.when(is_upsert, F.col(written[name])).alias(name)
        for name in written
    ]
    problem = F.when(F.col("__rows__") > 1, Problem.DUPLICATE_KEY.value).cast("int")
    rows = found.withColumn("__marker__", F.explode(markers))
    return rows.select(*values, F.col("__marker__").alias(MARKER), problem.alias(PROBLEM))


def check_text(rows: DataFrame, columns: Sequence[Column], *, from_feed: bool) -> DataFrame:
    """Return the landing rows, and mark text that is not valid UTF-8 as a problem.

    Delta allows any bytes in a STRING column, but readers of the files do not. Open source Delta replaces invalid bytes
    in its change feed. With `from_feed`, a text with the replacement character is therefore a problem as well, until
    the source is checked.
    """
    texts = [quote(column.name) for column in columns if column.type in ("string", "json") and not column.dropped]
    if not texts:
        return rows
    invalid = " OR ".join(f"NOT is_valid_utf8({text})" for text in texts)
    cases = f"WHEN {invalid} THEN {Problem.INVALID_TEXT.value}"
    if from_feed:
        replaced = " OR ".join(f"contains({text}, '{REPLACEMENT}')" for text in texts)
        cases += f" WHEN {replaced} THEN {Problem.REPLACED_TEXT.value}"
    return rows.withColumn(PROBLEM, F.expr(f"coalesce({PROBLEM}, CASE {cases} END)"))


def rows_with_invalid_text(snapshot: DataFrame, columns: Sequence[Column], keys: pa.Table, limit: int) -> DataFrame:
    """Return the first rows of a snapshot with text that is not valid UTF-8, in landing form.

    With few keys, only the rows of these keys are searched.
    """
    existing = [column for column in columns if column.name in snapshot.columns]
    rows = snapshot_rows(_filter_keys(snapshot, existing, keys), existing)
    return check_text(rows, existing, from_feed=False).where(F.col(PROBLEM).isNotNull()).limit(limit)


def to_landing(column: Column, value: SparkColumn | None = None) -> SparkColumn:
    """Convert a source column, or another value for it, to its type in the landing zone."""
    if column.dropped:
        return F.lit(None).cast(column.form).alias(column.name)
    value = _col(column.name) if value is None else value
    if column.type == "json":
        from mirrorfeed.publish.nested_json import json_text  # imported late: few tables have nested columns

        value = json_text(value, json.loads(column.nested))
    elif is_geo_type(column.type):
        value = geo_bytes(value)
    elif column.form != column.type:
        value = value.cast(column.form)
    return value.alias(column.name)


def _filter_keys(snapshot: DataFrame, columns: Sequence[Column], keys: pa.Table) -> DataFrame:
    """Return the rows that may have one of the keys, and possibly others. With few keys, data skipping applies."""
    if keys.num_rows > _MAX_FILTER_KEYS:
        return snapshot
    for column in columns:
        if column.name in keys.column_names and column.type == column.form and column.type in _SKIPPABLE:
            values = keys.column(column.name).unique().to_pylist()
            # Text with this character may come from a change feed that replaced bytes.
            if not any(REPLACEMENT in value for value in values if isinstance(value, str)):
                snapshot = snapshot.where(_col(column.name).isin(values))
    return snapshot


def geo_bytes(value: SparkColumn) -> SparkColumn:
    """Convert a geometry to well-known binary. The coordinate system is not included: it is part of the source
    column's type."""
    return F.call_function("st_asbinary", value)


def _any_null(key: Sequence[SparkColumn]) -> SparkColumn:
    return reduce(or_, (part.isNull() for part in key))


def _array(*markers: Marker) -> SparkColumn:
    return F.array(*(F.lit(marker.value) for marker in markers))


def _col(name: str) -> SparkColumn:
    return F.col(quote(name))
