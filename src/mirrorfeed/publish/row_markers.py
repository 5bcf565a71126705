"""Convert rows of a change feed to landing rows: choose the row and the marker of each key.

Mostly SQL text, because Spark plans are built for every range, and building them column by column takes longer than
reading a few changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import MARKER, Column, Marker, Problem
from mirrorfeed.publish.row_conversion import PROBLEM, key_names, to_landing
from mirrorfeed.source.identifier import quote

_LIVE = "_change_type IN ('insert', 'update_postimage')"
_HASH = ("__hash_1__", "__hash_2__")
"""128 bits of a row's values."""


def inserts(feed: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return all changes of a table without keys, in commit order. Changes other than inserts are problems."""
    problem = F.when(F.col("_change_type") != "insert", Problem.CHANGE_WITHOUT_KEY.value).cast("int").alias(PROBLEM)
    return feed.orderBy("_commit_version").select(*map(to_landing, columns), problem)


def net(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """Return one row per key whose rows differ between the two ends of the range.

    An upsert has the row that the key gained. A delete has only the key. The feed has whole rows before and after every
    change. Equal rows cancel each other, so the order of events does not matter. If a key gained several rows, all of
    them are in the source at the end of the range.
    """
    key = key_names(keys)
    of_key = f"PARTITION BY {', '.join(key)} ORDER BY __count__"
    rows = _counted(feed, columns, keys, by=[]).selectExpr(
        "*",
        f"lead(__count__) OVER ({of_key}) IS NULL AS __last__",
        f"sum(greatest(__count__, 0)) OVER ({of_key} ROWS UNBOUNDED PRECEDING) AS __gained__",
        f"IF(__count__ > 0, {Marker.UPSERT.value}, {Marker.DELETE.value}) AS __marker__",
    )
    # Sort by key, because similar rows next to each other compress better.
    return _landing_rows(rows.where("__last__").sortWithinPartitions(*key), columns, keys)


def full(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, exact: bool = False) -> DataFrame:
    """Return one row per key and version that changed the key, ordered by version, with deletes before upserts.

    A key that temporarily had two rows, or whose events are inconsistent, gets only the row of `net`, because the
    events do not show which row is left.

    With exact markers, a new row is an insert, and a row that replaces another one in its version is an update. The
    mirror may have both rows of a key that had two, so a delete precedes the insert.
    """
    key = key_names(keys)
    of_key, of_row = (f"PARTITION BY {', '.join(group)}" for group in (key, [*key, *_HASH]))
    in_order = f"{of_key} ORDER BY _commit_version, __count__"
    follows = (
        f"lag(__count__) OVER ({in_order}) = -__count__"
        f" AND (__count__ = 1 OR lag(struct({', '.join(_HASH)})) OVER ({in_order}) = struct({', '.join(_HASH)}))"
    )
    rows = _counted(feed, columns, keys, by=["_commit_version"]).selectExpr(
        "*",
        f"sum(__count__) OVER ({of_row}) AS __total__",
        f"abs(__count__) = 1 AND coalesce({follows}, true) AND NOT {_null(key)} AS __follows__",
        f"lag(_commit_version) OVER ({in_order}) <=> _commit_version AS __replaces__",
        f"lead(_commit_version) OVER ({in_order}) <=> _commit_version AS __replaced__",
    )
    rows = rows.selectExpr(
        "*",
        f"sum(greatest(sign(__total__), 0) * __count__) OVER ({of_key}) AS __gained__",
        f"min(__total__) OVER ({of_key}) < 0 AS __lost__",
        f"min(__follows__) OVER ({of_key}) AS __all_follow__",
        f"row_number() OVER ({of_key} ORDER BY __total__ DESC, __count__ DESC) = 1 AS __left__",
    )
    net_row = "__left__ AND (__gained__ > 0 OR __lost__)"
    rows = rows.where(f"IF(__all_follow__, __count__ > 0 OR NOT __replaced__, {net_row})")
    upsert, delete = f"array({Marker.UPSERT.value})", f"array({Marker.DELETE.value})"
    if exact:
        upsert = (
            f"CASE WHEN NOT __all_follow__ THEN array({Marker.DELETE.value}, {Marker.INSERT.value})"
            f" WHEN __replaces__ THEN array({Marker.UPDATE.value}) ELSE array({Marker.INSERT.value}) END"
        )
    markers = f"IF(IF(__all_follow__, __count__, __gained__) > 0, {upsert}, {delete})"
    rows = rows.withColumn("__marker__", F.explode(F.expr(markers)))
    rows = rows.orderBy("_commit_version", F.expr(f"__marker__ <> {Marker.DELETE.value}"), *key)
    return _landing_rows(rows, columns, keys)


def payload_hashes(payload: Sequence[tuple[int, Column]], name: Callable[[int], str]) -> tuple[str, str]:
    """Return two SQL expressions, each a 64-bit hash of the landing values. `name` returns the SQL name of a column by
    position.

    Spark's hash skips NULL and treats 0.0 and -0.0 as equal. So each non-NULL value is hashed with its position, and
    floating-point values are hashed as text. Adding a column whose values are all NULL changes no hash.
    """

    def text(at: int, column: Column) -> str:
        return f"CAST({name(at)} AS string)" if column.type in ("float", "double") else name(at)

    parts = "".join(f", IF({name(at)} IS NULL, NULL, {at}), {text(at, column)}" for at, column in payload)
    return f"xxhash64(1{parts})", f"xxhash64(2{parts})"


def _counted(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], by: Sequence[str]) -> DataFrame:
    """Combine equal rows of a key into one event. `__count__` is the number of rows after the range minus the number
    before.

    Events with count 0 are left out. If the count is positive, the event has the values of the row.
    """
    # Name columns by position, so that the names cannot clash with the names below.
    payload = [(at, column) for at, column in enumerate(columns) if column.name not in keys and not column.dropped]
    key = key_names(keys)
    events = feed.select(
        *(F.col(quote(name)).alias(part) for name, part in zip(keys, key, strict=True)),
        *(to_landing(column).alias(_value(at)) for at, column in payload),
        *by,
        F.expr(f"{_LIVE} AS __live__"),
    )
    hashes = zip(payload_hashes(payload, _value), _HASH, strict=True)
    events = events.selectExpr(
        *key,
        *by,
        *(f"{hash_} AS {name}" for hash_, name in hashes),
        "__live__",
        # Shuffle only the hash of a removed row.
        *(f"IF(__live__, {_value(at)}, NULL) AS {_value(at)}" for at, _ in payload),
    )
    # One exchange by key is enough for all later steps. Windows that end at the current row buffer no rows.
    same = f"PARTITION BY {', '.join([*key, *by, *_HASH])} ORDER BY __live__"
    counted = events.repartition(*map(F.col, key)).selectExpr(
        "*",
        f"sum(IF(__live__, 1, -1)) OVER ({same} ROWS UNBOUNDED PRECEDING) AS __count__",
        f"lead(__live__) OVER ({same}) IS NULL AS __last_of_same__",
    )
    return counted.where("__last_of_same__ AND __count__ <> 0")


def _landing_rows(rows: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    key = key_names(keys)
    problem = (
        f"CASE WHEN {_null(key)} THEN {Problem.NULL_KEY.value}"
        f" WHEN __gained__ > 1 THEN {Problem.DUPLICATE_KEY.value} END"
    )
    key_of, live = dict(zip(keys, key, strict=True)), f"__marker__ <> {Marker.DELETE.value}"

    def value(at: int, column: Column) -> SparkColumn:
        if column.dropped or column.name in key_of:
            return to_landing(column, None if column.dropped else F.expr(key_of[column.name]))
        return F.expr(f"IF({live}, {_value(at)}, NULL)").alias(column.name)

    return rows.select(
        *(value(at, column) for at, column in enumerate(columns)),
        F.expr("__marker__").alias(MARKER),
        F.expr(problem).alias(PROBLEM),
    )


def _null(key: Sequence[str]) -> str:
    return f"({' OR '.join(f'{part} IS NULL' for part in key)})"


def _value(at: int) -> str:
    return f"__value_{at}__"
