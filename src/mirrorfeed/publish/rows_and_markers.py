"""Convert source rows to rows of data files, and check them.

The converted rows, called landing rows, have the columns and values of the data files, and the column `PROBLEM`. If the
table has keys, its changes also have a row marker. `landing_rows` converts the changes that other functions find. These
have the columns by position (`_0`, `_1` and so on), and two columns:

- `__marker__`: row marker, or NULL if another query finds the change of the key.
- `__gained__`: number of rows with the key at the end of the range, or 0 if it is not counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import MARKER, REPLACEMENT, ROW_PROBLEM, Column, Marker, Problem, is_geo_type
from mirrorfeed.source.identifier import quote

# Most functions use expressions in SQL text. Spark builds a plan from SQL text faster than from `Column` objects.

PROBLEM = ROW_PROBLEM
"""Name of the column with the numeric code of the `Problem` that prevents the publication of a row, or NULL.
No published table has this column, because the name is reserved."""
DELETE_FIRST = "_commit_version"
"""Boolean column of keys to publish again: true if the mirror has several rows with the key, to be deleted first."""

CHANGED_AT = "__changed_at__"
"""Column with the time of the commit of a change. Only changes that are read with `keep` have it."""

MAX_FILTER_KEYS = 1_000
"""Maximum number of keys in a filter. With more keys, planning the filter takes Spark longer than the filter saves."""
_SKIPPABLE = ("byte", "short", "integer", "long", "string")
"""Column types for which Delta skips files correctly. With dates, it wrongly skips files of 5 to 14 October 1582."""
IS_LIVE = "_change_type IN ('insert', 'update_postimage')"
_LOW_HALF = 2**32 - 1


def position_name(at: int) -> str:
    """Return the internal name of the column at position `at`, such as `_0`.
    The column names of the source are not used, because they could equal the names of helper columns."""
    return f"_{at}"


def key_positions(columns: Sequence[Column], keys: Sequence[str]) -> list[str]:
    names = [column.name for column in columns]
    return [position_name(names.index(key)) for key in keys]


def with_positions(rows: DataFrame, columns: Sequence[Column], *others: str | SparkColumn) -> DataFrame:
    """Select `columns` of `rows`, converted to the types in the data files, as columns `_0`, `_1` and so on.
    The result also has the columns or expressions `others`."""
    return rows.select(*(to_landing(column).alias(position_name(at)) for at, column in enumerate(columns)), *others)


def key_problem(keys: Sequence[str], is_shared: str = "false") -> str:
    """Return an SQL expression that checks a key. Its value is NULL for a valid key, otherwise the code of a `Problem`.
    `is_shared` is an SQL condition that is true if several rows have the same key."""
    null = " OR ".join(f"{key} IS NULL" for key in keys) or "false"
    return f"CASE WHEN {null} THEN {Problem.NULL_KEY.value} WHEN {is_shared} THEN {Problem.DUPLICATE_KEY.value} END"


def snapshot_rows(snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str] = ()) -> DataFrame:
    """Convert rows to the types in the data files. The column `PROBLEM` marks rows with NULL in one of `keys`."""
    problem = F.expr(key_problem([quote(key) for key in keys])).alias(PROBLEM)
    return snapshot.select(*map(to_landing, columns), problem)


def key_problems(snapshot: DataFrame, keys: Sequence[str], limit: int) -> DataFrame:
    """Return up to `limit` keys of a snapshot that are NULL or not unique, each with the code of its `Problem`."""
    names = [position_name(at) for at in range(len(keys))]
    counted = snapshot.groupBy(*(_col(key).alias(name) for key, name in zip(keys, names, strict=True))).count()
    problem = F.expr(key_problem(names, "count > 1")).alias(PROBLEM)
    return counted.select(*names, problem).toDF(*keys, PROBLEM).where(f"{PROBLEM} IS NOT NULL").limit(limit)


def existing_keys(
    snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str], wanted: pa.Table | DataFrame
) -> DataFrame:
    """Return the keys in `wanted` that exist in a snapshot, without duplicates. `columns` must include the key columns.
    `wanted` and the result have the column types of the data files, not of the source."""
    by_name = {column.name: column for column in columns}
    key_columns = [by_name[name] for name in keys]
    if isinstance(wanted, pa.Table):
        snapshot = _filter_keys(snapshot, key_columns, wanted)
        wanted = F.broadcast(snapshot.sparkSession.createDataFrame(wanted.select(keys)))
    existing = with_positions(snapshot, key_columns)
    wanted = wanted.select(*map(_col, keys)).toDF(*existing.columns)
    return existing.join(wanted, existing.columns, "left_semi").distinct().toDF(*keys)


def rows_of_keys(
    snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str], wanted: pa.Table | DataFrame, *, keep: bool
) -> DataFrame:
    """Return a change for each key in `wanted`: an upsert for a key in the snapshot, a delete for any other key.
    With `keep`, any other key has an upsert without values, whose column `__live__` is NULL.

    `wanted` has no NULL and no duplicates. If the optional column `DELETE_FIRST` of `wanted` is true for a key, a
    delete directly precedes the upsert. If the snapshot has several rows with one key, all these rows are returned,
    with `Problem.DUPLICATE_KEY` in the column `PROBLEM`.
    """
    if isinstance(wanted, pa.Table):
        snapshot = _filter_keys(snapshot, columns, wanted)
        wanted = snapshot.sparkSession.createDataFrame(wanted)
    key, forms = key_positions(columns, keys), {column.name: column.form for column in columns}
    wanted = wanted.selectExpr(
        *(f"CAST({quote(name)} AS {forms[name]}) AS {part}" for name, part in zip(keys, key, strict=True)),
        f"{DELETE_FIRST if DELETE_FIRST in wanted.columns else 'false'} AS __delete_first__",
    )
    rows = wanted.join(with_positions(snapshot, columns, F.lit(True).alias("__live__")), key, "left")
    rows = rows.selectExpr("*", f"count(__live__) OVER (PARTITION BY {', '.join(key)}) AS __gained__")
    upsert, delete = Marker.UPSERT.value, Marker.DELETE.value
    markers = (
        f"CASE WHEN __live__ IS NULL AND {not keep} THEN array({delete})"
        f" WHEN __delete_first__ THEN array({delete}, {upsert}) ELSE array({upsert}) END"
    )
    return rows.withColumn("__marker__", F.explode(F.expr(markers)))


def check_text(rows: DataFrame, columns: Sequence[Column], *, from_feed: bool) -> DataFrame:
    """Check the texts of all rows whose column `PROBLEM` is empty. Returns all rows, with new problems in this column.

    A row gets `Problem.INVALID_TEXT` if one of its texts is not valid UTF-8. If `from_feed` is True, a row whose text
    contains the replacement character gets `Problem.REPLACED_TEXT`. Open source Delta replaces invalid bytes in its
    change data feed, so only the source shows whether the text was valid.
    """
    # Delta allows any bytes in a STRING column, but readers of the data files do not.
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
    """Return up to `limit` rows with invalid UTF-8 text. Their column `PROBLEM` contains `Problem.INVALID_TEXT`.
    If `keys` has no columns or more than `MAX_FILTER_KEYS` rows, searches all rows of `snapshot`. Otherwise searches
    the rows whose key is in `keys`, and possibly other rows. The result has the column types of the data files."""
    existing = [column for column in columns if column.name in snapshot.columns]
    rows = snapshot_rows(_filter_keys(snapshot, existing, keys), existing)
    return check_text(rows, existing, from_feed=False).where(F.col(PROBLEM).isNotNull()).limit(limit)


def to_landing(column: Column) -> SparkColumn:
    """Convert a source column to its type in the data files. The result is NULL for a dropped column."""
    if column.dropped:
        return F.lit(None).cast(column.form).alias(column.name)
    value = _col(column.name)
    if column.type == "json":
        from mirrorfeed.publish.nested_json import json_text  # imported late: few tables have nested columns

        value = json_text(value, json.loads(column.nested))
    elif is_geo_type(column.type):
        from mirrorfeed.publish.nested_json import geo_bytes  # imported late: few tables have geometries

        value = geo_bytes(value)
    elif column.form != column.type:
        value = value.cast(column.form)
    return value.alias(column.name)


def _filter_keys(snapshot: DataFrame, columns: Sequence[Column], keys: pa.Table) -> DataFrame:
    """Filter a snapshot so that Delta can skip files. The result has all rows with one of `keys`, and maybe more."""
    if keys.num_rows > MAX_FILTER_KEYS:
        return snapshot
    for column in columns:
        if column.name in keys.column_names and column.type == column.form and column.type in _SKIPPABLE:
            values = keys.column(column.name).unique().to_pylist()
            # Text with this character may come from a change feed that replaced bytes.
            if not any(REPLACEMENT in value for value in values if isinstance(value, str)):
                snapshot = snapshot.where(_col(column.name).isin(values))
    return snapshot


def _col(name: str) -> SparkColumn:
    return F.col(quote(name))


def inserts(feed: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Convert the changes of a table without keys to rows of data files, in commit order.
    Updates and deletes have `Problem.CHANGE_WITHOUT_KEY` in the column `PROBLEM`."""
    problem = F.when(F.col("_change_type") != "insert", Problem.CHANGE_WITHOUT_KEY.value).cast("int").alias(PROBLEM)
    return feed.orderBy("_commit_version").select(*map(to_landing, columns), problem)


def net(
    feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, in_one_task: bool = False, keep: bool = False
) -> DataFrame:
    """Return the net change of each key in `feed`. Omits a key if its row is the same before and after the changes.
    With `in_one_task`, Spark shuffles nothing, which is faster for few rows. With `keep`, a delete has the last values
    of the key and the time of its deletion.

    `feed` has the changes of a range of versions. A net change is one row: an upsert with the values after the changes,
    or a delete. If a key is NULL, or its net change is more than the exchange of its first removed row for its last
    added row, the result has a row with NULL as marker. For these keys, which are rare,
    `row_cancellation.net_of_other_keys` returns the net changes.
    """
    key = key_positions(columns, keys)
    events = summed_events(feed, columns, keys, in_one_task=in_one_task, keep=keep)
    rows = events.where(f"__is_last__ AND NOT ({UNCHANGED})")
    marker = f"IF(__gain__ < 0, {Marker.DELETE.value}, {Marker.UPSERT.value})"
    rows = rows.selectExpr("*", f"IF({is_decided(key)}, {marker}, NULL) AS __marker__", "0 AS __gained__")
    # Sort by key, because similar rows next to each other compress better.
    return rows.sortWithinPartitions(*key)


def payload_hashes(columns: Sequence[Column], keys: Sequence[str]) -> tuple[str, str]:
    """Return two SQL expressions, each of which computes a 64-bit hash of a row. Together they have 128 bits.

    The expressions hash all columns except `keys`. They name columns by position: `_0`, `_1` and so on. Adding a column
    whose values are all NULL changes no hash.
    """
    # Spark's hash skips NULL and treats 0.0 and -0.0 as equal. So each non-NULL value is hashed with its position, and
    # floating-point values are hashed as text.
    parts = ""
    for at, column in enumerate(columns):
        if column.name not in keys and not column.dropped:
            name = position_name(at)
            value = f"CAST({name} AS string)" if column.type in ("float", "double") else name
            parts += f", IF({name} IS NULL, NULL, {at}), {value}"
    return f"xxhash64(1{parts})", f"xxhash64(2{parts})"


def row_hash(columns: Sequence[Column], keys: Sequence[str]) -> str:
    """Return an SQL expression for a 64-bit hash of the values of all columns except `keys`.
    Columns are named by position. Compare hashes only within a query: the expression depends on all columns."""
    # Spark's hash skips NULL and treats 0.0 and -0.0 as equal. So the bits of a number say where these values are.
    values = [at for at, column in enumerate(columns) if column.name not in keys and not column.dropped]
    conditions = [f"{position_name(at)} IS NULL" for at in values]
    for name in (position_name(at) for at in values if columns[at].type in ("float", "double")):
        conditions.append(f"{name} = 0 AND CAST({name} AS string) = '-0.0'")
    bits = [f"IF({condition}, {1 << at % 62}L, 0L)" for at, condition in enumerate(conditions)]
    numbers = [" | ".join(bits[at : at + 62]) for at in range(0, len(bits), 62)] or ["0L"]
    return f"xxhash64({', '.join([*numbers, *map(position_name, values)])})"


def feed_events(
    feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, in_one_task: bool = False, keep: bool = False
) -> DataFrame:
    """Return the changes of a feed, partitioned by key: key, values, `_commit_version`, `__live__` and `__hash__`.

    `__live__` is true for an added row and false for a removed row. The values of a removed row are NULL, except with
    `keep`. Then the result also has the time of each change, `CHANGED_AT`."""
    key, at = key_positions(columns, keys), (F.col("_commit_timestamp").alias(CHANGED_AT),) if keep else ()
    events = with_positions(feed, columns, "_commit_version", F.expr(f"{IS_LIVE} AS __live__"), *at)
    values = [name for name in map(position_name, range(len(columns))) if name not in key]
    events = events.selectExpr(
        *key,
        "_commit_version",
        "__live__",
        f"{row_hash(columns, keys)} AS __hash__",
        # Shuffle only the hash of a removed row.
        *(name if keep else f"IF(__live__, {name}, NULL) AS {name}" for name in values),
        *(CHANGED_AT for _ in at),
    )
    return events.coalesce(1) if in_one_task else events.repartition(*map(F.col, key))


# The added rows of a key minus its removed rows are its net change. If this difference has at most one added and one
# removed row, it follows from the hashes without sorting by them: the number of added minus removed rows, and the sum
# of the hashes of added rows minus the sum of the hashes of removed rows, are the same for the net change.
_SUMS = {"__high__": "shiftright({}, 32)", "__low__": f"({{}} & {_LOW_HALF}L)"}
"""Names of the sums of both halves of the hashes, with the expression of the half. A sum of halves cannot overflow."""
UNCHANGED = " AND ".join(f"{name} = 0" for name in ("__gain__", *_SUMS))
"""SQL condition: all rows of the key cancel each other."""
_EXCHANGED = "abs(__gain__) <= 1 AND " + " AND ".join(
    f"{name} = IF(__gain__ >= 0, {half.format('__last_hash__')}, 0L)"
    f" - IF(__gain__ <= 0, {half.format('__first_hash__')}, 0L)"
    for name, half in _SUMS.items()
)
"""SQL condition: the net change adds the key's last added row, or removes its first removed row, or both."""


def is_decided(key: Sequence[str]) -> str:
    """Return an SQL condition: the net change follows from the sums, and the key is valid.
    All problems of keys are found by one query, so that they are reported together."""
    return " AND ".join([_EXCHANGED, *(f"{name} IS NOT NULL" for name in key)])


def summed_events(
    feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, in_one_task: bool = False, keep: bool = False
) -> DataFrame:
    """Return the events of a feed, with sums over all events of the key, and the hashes of its first and last event.
    Removed rows come before added rows. The order is complete, so that all queries of a feed return the same sums.
    With `keep`, `CHANGED_AT` is the time of the key's last change."""
    order = f"PARTITION BY {', '.join(key_positions(columns, keys))} ORDER BY __live__, _commit_version, __hash__"
    of_key = f"OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    halves = ((name, half.format("__hash__")) for name, half in _SUMS.items())
    events = feed_events(feed, columns, keys, in_one_task=in_one_task, keep=keep)
    if keep:
        events = events.withColumn(CHANGED_AT, F.expr(f"max({CHANGED_AT}) {of_key}"))
    return events.selectExpr(
        "*",
        f"lead(__live__) OVER ({order}) IS NULL AS __is_last__",
        f"sum(IF(__live__, 1, -1)) {of_key} AS __gain__",
        *(f"sum(IF(__live__, {half}, -{half})) {of_key} AS {name}" for name, half in halves),
        f"first_value(__hash__) {of_key} AS __first_hash__",
        f"last_value(__hash__) {of_key} AS __last_hash__",
    )


def landing_rows(rows: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """Convert changes to landing rows. The row of a delete has only the key, and without a marker also the key is NULL.

    If several rows have the key of a change, its column `PROBLEM` contains `Problem.DUPLICATE_KEY`.
    """
    key, live = key_positions(columns, keys), f"__marker__ <> {Marker.DELETE.value}"
    names = [position_name(at) for at in range(len(columns))]
    values = [f"IF({'__marker__ IS NOT NULL' if name in key else live}, {name}, NULL)" for name in names]
    return rows.selectExpr(
        *(f"{value} AS {quote(column.name)}" for value, column in zip(values, columns, strict=True)),
        f"__marker__ AS {MARKER}",
        f"IF(__marker__ IS NULL, NULL, {key_problem(key, '__gained__ > 1')}) AS {PROBLEM}",
    )
