"""Rows of tables with `delivery: soft_delete` or `append`, with the columns that the mode adds.

With `soft_delete`, a deleted row stays, with its last values and the time of its deletion. A row that is not deleted
has false and NULL in the added columns, so a key that returns is live again. With `append`, every change is a row with
type, version and time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.schema import FEED_COLUMNS, MARKER, Column, Marker
from mirrorfeed.publish.rows_and_markers import (
    CHANGED_AT,
    IS_LIVE,
    PROBLEM,
    key_positions,
    key_problem,
    position_name,
    to_landing,
    with_positions,
)
from mirrorfeed.source.identifier import quote

IS_DELETE = f"__marker__ = {Marker.DELETE.value}"
"""SQL condition for the changes that delete a key."""


def marks(delivery: Delivery, deleted: str, at: str) -> list[str]:
    """Return an SQL expression for each column that `soft_delete` adds.
    `deleted` is an SQL condition for deleted rows, and `at` the time of their deletion in SQL."""
    return [
        f"coalesce({deleted}, false) AS {quote(delivery.deleted_column)}",
        f"CAST(IF({deleted}, {at}, NULL) AS timestamp) AS {quote(delivery.deleted_at_column)}",
    ]


def added_columns(delivery: Delivery, version: int, at: datetime, kind: str = "'insert'") -> list[str]:
    """Return an SQL expression for each column that the mode adds to rows that all have the same version and time.
    `kind` is the type of a row's change in SQL."""
    time = timestamp_literal(at)
    if delivery.marks_deletes:
        return marks(delivery, f"{kind} = 'delete'", time)
    values = (kind, f"{version}L", time)
    return [f"{value} AS {name}" for name, value in zip(FEED_COLUMNS, values, strict=True)]


def with_added_columns(rows: DataFrame, delivery: Delivery, version: int, at: datetime) -> DataFrame:
    """Add the columns of the mode to the rows of a snapshot at a version, which was committed at `at`."""
    return rows.selectExpr("*", *added_columns(delivery, version, at))


def delivered_marker(marker: str, deleted: str) -> str:
    """Return an SQL expression for the marker of a row that would have `marker` in a table that deletes rows.

    A deleted key is an upsert. So is an inserted key, because the mirror may have the key as a deleted row. Other
    markers remain: an update, and the delete with which a repair removes several rows of a key.
    """
    upsert = Marker.UPSERT.value
    return f"CASE WHEN {deleted} OR {marker} = {Marker.INSERT.value} THEN {upsert} ELSE {marker} END"


def soft_deletes(
    changes: DataFrame, columns: Sequence[Column], keys: Sequence[str], delivery: Delivery, deleted: str = IS_DELETE
) -> DataFrame:
    """Convert changes to landing rows, as `rows_and_markers.landing_rows`, but with marks of deleted rows.
    `deleted` is an SQL condition for changes that delete a key. The changes have the column `CHANGED_AT`."""
    names = map(position_name, range(len(columns)))
    problem = key_problem(key_positions(columns, keys), "__gained__ > 1")
    return changes.selectExpr(
        *(
            f"IF(__marker__ IS NULL, NULL, {name}) AS {quote(column.name)}"
            for name, column in zip(names, columns, strict=True)
        ),
        *marks(delivery, deleted, CHANGED_AT),
        f"{delivered_marker('__marker__', deleted)} AS {MARKER}",
        f"IF(__marker__ IS NULL, NULL, {problem}) AS {PROBLEM}",
    )


def marked_rows_of_keys(
    changes: DataFrame, columns: Sequence[Column], keys: Sequence[str], delivery: Delivery
) -> DataFrame:
    """Convert a result of `rows_of_keys` with `keep`. Marks keys that the source lacks. Their last values are unknown,
    and the time of their deletion is the current time."""
    is_missing = f"__live__ IS NULL AND __marker__ = {Marker.UPSERT.value}"
    return soft_deletes(changes.withColumn(CHANGED_AT, F.current_timestamp()), columns, keys, delivery, is_missing)


def appended_rows(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], delivery: Delivery) -> DataFrame:
    """Return a landing row for each change in a feed, with the type, version and time of the change.

    If a version removes the row of a key without adding one, as an update that changes the key does, the type is
    `delete` instead of `update_preimage`. If it adds a row of a key without removing one, the type is `insert` instead
    of `update_postimage`. So the last change of a key says whether the key exists. The other rows before updates are
    left out, unless `delivery.preimages`. Without keys, they all remain.
    """
    if not keys:
        return feed.select(*map(to_landing, columns), *FEED_COLUMNS, F.lit(None).cast("int").alias(PROBLEM))
    key, kind = key_positions(columns, keys), FEED_COLUMNS[0]
    of_key = f"OVER (PARTITION BY {', '.join(key)}, _commit_version)"
    rows = with_positions(feed, columns, *FEED_COLUMNS).selectExpr(
        "*", f"count_if({IS_LIVE}) {of_key} AS __added__", f"count(*) {of_key} AS __all__"
    )
    kinds = (
        f"CASE WHEN {kind} = 'update_preimage' AND __added__ = 0 THEN 'delete'"
        f" WHEN {kind} = 'update_postimage' AND __added__ = __all__ THEN 'insert' ELSE {kind} END"
    )
    names = zip(map(position_name, range(len(columns))), columns, strict=True)
    rows = rows.selectExpr(
        *(f"{name} AS {quote(column.name)}" for name, column in names),
        f"{kinds} AS {kind}",
        *FEED_COLUMNS[1:],
        f"{key_problem(key)} AS {PROBLEM}",
    )
    return rows if delivery.preimages else rows.where(f"{kind} <> 'update_preimage'")


def timestamp_literal(at: datetime) -> str:
    """Return a time as SQL text that does not depend on the session's time zone."""
    return f"timestamp_micros({(at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)})"
