"""Find the rows of a source that differ between two versions, or between the current rows and stored row hashes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.schema import MARKER, Column, Marker
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.publish.rows_and_markers import (
    PROBLEM,
    key_positions,
    key_problem,
    payload_hashes,
    position_name,
    with_positions,
)

HASH, CHANGED, GAIN, ROW_PROBLEM = "_hash", "_changed", "_gain", "_problem"
DIFFERS = f"({CHANGED} OR {ROW_PROBLEM} IS NOT NULL)"
"""SQL condition for the rows that changed or cannot be published, in the result of `differences`."""


def with_hashes(rows: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """Convert each column to its type in the data files, and name the columns by position: `_0`, `_1` and so on.
    The additional column `HASH` is a hash of all columns except the key."""
    hashes = ", ".join(f"lpad(hex({each}), 16, '0')" for each in payload_hashes(columns, keys))
    return with_positions(rows, columns).selectExpr("*", f"unhex(concat({hashes})) AS {HASH}")


def one_per_key(hashes: DataFrame, key: Sequence[str], values: Sequence[str] = ()) -> DataFrame:
    """Return one row with a hash for each key. Omits keys with NULL, because a mirror never contains them.
    The row also has the columns `values`.

    If several rows in `hashes` have the same key, the mirror may have any of these rows. Then the returned hash is
    empty: it differs from the hash of every row, so the key counts as changed.
    """
    kept = [F.first(name).alias(name) for name in values]
    one_hash = F.expr(f"IF(count(*) = 1, min({HASH}), X'') AS {HASH}")
    return hashes.dropna(subset=list(key)).groupBy(*key).agg(*kept, one_hash)


def kept_values(columns: Sequence[Column], key: Sequence[str], delivery: Delivery) -> list[str]:
    """Return the names of the columns whose last values the delivery mode needs for deleted rows."""
    names = [position_name(at) for at in range(len(columns))] if delivery.columns else []
    return [name for name in names if name not in key]


def differences(now: DataFrame, before: DataFrame, key: Sequence[str], values: Sequence[str] = ()) -> DataFrame:
    """Compare current rows with the hashes of earlier rows. Returns all current rows, and a row for each deleted key.

    `now` has the current rows with their hashes, as returned by `with_hashes`. `before` has the earlier keys and
    hashes. A deleted key has the values of `before` in the columns `values`, and NULL in all other columns of `now`
    except the key. The result has three additional columns:

    - `CHANGED`: true if the hash differs from the earlier hash of the key, or the key is new or deleted.
    - `GAIN`: 1 for a new key, -1 for a deleted key, otherwise 0.
    - `ROW_PROBLEM`: numeric code of the `Problem` that prevents the publication of the row, or NULL.
    """
    payload = [name for name in now.columns if name not in key and name != HASH]
    one = f"count(*) OVER (PARTITION BY {', '.join(key)}) > 1 AS __shared__"
    current = now.selectExpr(*now.columns, one).alias("now")
    previous = before.selectExpr(*(f"{name} AS __before{name}" for name in [*key, HASH, *values])).alias("before")
    same = reduce(and_, (F.col(name) == F.col(f"__before{name}") for name in key))
    joined = current.join(previous, same, "full_outer")
    return joined.selectExpr(
        *(f"coalesce({name}, __before{name}) AS {name}" for name in key),
        *(f"IF({HASH} IS NULL, __before{name}, {name}) AS {name}" if name in values else name for name in payload),
        HASH,
        f"NOT ({HASH} <=> __before{HASH}) AS {CHANGED}",
        f"CASE WHEN {HASH} IS NULL THEN -1 WHEN __before{HASH} IS NULL THEN 1 ELSE 0 END AS {GAIN}",
        f"IF(__shared__ IS NULL, NULL, {key_problem(key, '__shared__')}) AS {ROW_PROBLEM}",
    )


def differing_rows(
    rows: DataFrame,
    columns: Sequence[Column],
    *,
    with_marker: bool,
    exact: bool = False,
    added: tuple[Delivery, int, datetime] | None = None,
) -> DataFrame:
    """Return `rows`, a result of `differences`, with the columns of the data files. Columns that `rows` lacks are NULL.

    If `with_marker` is True, the rows have a row marker: "delete" for a deleted key, and "upsert" for all other keys.
    If `exact` is also True, the marker is "insert" for a new key and "update" for a changed key, instead of "upsert".
    `added` is the delivery mode, and the version and time of all changes for the columns that the mode adds.
    """
    names = set(rows.columns)
    values = [
        (F.col(position_name(at)) if position_name(at) in names else F.lit(None)).cast(column.form).alias(column.name)
        for at, column in enumerate(columns)
    ]
    present = f"IF({GAIN} > 0, {Marker.INSERT.value}, {Marker.UPDATE.value})" if exact else Marker.UPSERT.value
    marker, more = f"IF({HASH} IS NULL, {Marker.DELETE.value}, {present})", list[str]()
    if added and added[0].columns:
        from mirrorfeed.publish import delivered_rows  # imported late: most tables add no columns

        if added[0].marks_deletes:
            marker = delivered_rows.delivered_marker(marker, f"{HASH} IS NULL")
        kind = f"CASE WHEN {HASH} IS NULL THEN 'delete' WHEN {GAIN} > 0 THEN 'insert' ELSE 'update_postimage' END"
        more = delivered_rows.added_columns(*added, kind)
    markers = [F.expr(f"{marker} AS {MARKER}")] if with_marker else []
    return rows.select(*values, *map(F.expr, more), *markers, F.col(ROW_PROBLEM).alias(PROBLEM))


def hashes_of(rows: DataFrame, job: StagingJob) -> DataFrame:
    """Return the keys and row hashes of the rows of a version. Columns that the version lacks count as NULL.
    If the delivery mode needs the last values of deleted rows, the result also has all values."""
    key, names = key_positions(job.columns, job.keys), set(rows.columns)
    then = [column if column.name in names else replace(column, dropped=True) for column in job.columns]
    hashed = with_hashes(_with_added_fields(rows, job.columns), then, job.keys)
    values = kept_values(job.columns, key, job.delivery)
    return one_per_key(hashed.select(*key, *values, HASH), key, values)


def rows_to_publish(
    now: DataFrame, before: DataFrame, job: StagingJob, version: int, at: datetime, *, exact: bool
) -> DataFrame:
    """Return the rows to publish for keys whose current rows differ from `before`, a result of `hashes_of`.
    `version` and `at` are the version of `now` and its time. For `exact`, see `differing_rows`."""
    key = key_positions(job.columns, job.keys)
    values = kept_values(job.columns, key, job.delivery)
    differing = differences(with_hashes(now, job.columns, job.keys), before, key, values).where(DIFFERS)
    added = job.delivery, version, at
    return differing_rows(differing, job.columns, with_marker=job.with_marker, exact=exact, added=added)


def _with_added_fields(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return `rows` with the nested types of `columns`. Fields of structs that `rows` lacks are NULL."""
    types = {column.name: json.loads(column.nested, object_hook=_as_nullable) for column in columns if column.nested}
    if not types:
        return rows
    fields = json.loads(rows.schema.json())["fields"]
    return rows.to(
        StructType.fromJson({"fields": [each | {"type": types.get(each["name"], each["type"])} for each in fields]})
    )


def _as_nullable(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a type's JSON in which values can be NULL. `DataFrame.to` adds no other fields."""
    return part | dict.fromkeys({"nullable", "containsNull", "valueContainsNull"} & part.keys(), True)
