"""Find changes of keys by cancelling equal rows of a change data feed: for `changes: full`, and for keys whose net
change does not follow from the sums of their hashes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import Column, Marker
from mirrorfeed.publish.rows_and_markers import (
    UNCHANGED,
    feed_events,
    is_decided,
    key_positions,
    key_problem,
    summed_events,
)


def net_of_other_keys(
    feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, keep: bool = False
) -> DataFrame:
    """Return the net changes of all keys for which `net` returns a row with NULL as marker."""
    # The feed has complete rows before and after every change. Equal rows cancel each other, so the order of events
    # does not matter. If a key gained several rows, all of them are in the source at the end of the range.
    key = key_positions(columns, keys)
    # If all rows of a key were removed, its last values are those of the row that was removed last.
    order = "__count__ > 0, _commit_version, __count__" if keep else "__count__"
    of_key = f"PARTITION BY {', '.join(key)} ORDER BY {order}"
    events = summed_events(feed, columns, keys, keep=keep).where(f"NOT ({UNCHANGED} OR {is_decided(key)})")
    rows = _counted(events, key).selectExpr(
        "*",
        f"lead(__count__) OVER ({of_key}) IS NULL AS __last__",
        f"sum(greatest(__count__, 0)) OVER ({of_key} ROWS UNBOUNDED PRECEDING) AS __gained__",
        f"IF(__count__ > 0, {Marker.UPSERT.value}, {Marker.DELETE.value}) AS __marker__",
    )
    return rows.where("__last__").sortWithinPartitions(*key)


def full(
    feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, exact: bool = False, keep: bool = False
) -> DataFrame:
    """Return a row for each key and each version that changed the key's row. Within a version, deletes come first.

    The rows are in the order of the versions. The row markers are "upsert" and "delete". A key has only its
    net change over all versions in `feed`, one upsert or one delete, in two cases: a version of the source had several
    rows with the key, or the changes of the key contradict each other.

    If `exact` is True, the row markers are "insert", "update" and "delete". A row that replaces another row in
    the same version is an update. A net upsert becomes a delete and an insert.
    """
    key = key_positions(columns, keys)
    of_key, of_row = (f"PARTITION BY {', '.join(group)}" for group in (key, [*key, "__hash__"]))
    in_order = f"{of_key} ORDER BY _commit_version, __count__"
    follows = (
        f"lag(__count__) OVER ({in_order}) = -__count__"
        f" AND (__count__ = 1 OR lag(__hash__) OVER ({in_order}) = __hash__)"
    )
    rows = _counted(feed_events(feed, columns, keys, keep=keep), [*key, "_commit_version"]).selectExpr(
        "*",
        f"sum(__count__) OVER ({of_row}) AS __total__",
        f"abs(__count__) = 1 AND coalesce({follows}, true) AND {key_problem(key)} IS NULL AS __follows__",
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
    return rows.orderBy("_commit_version", F.expr(f"__marker__ <> {Marker.DELETE.value}"), *key)


def _counted(events: DataFrame, by: Sequence[str]) -> DataFrame:
    """Combine events with equal rows into one row. Rows are equal if their hashes and the columns `by` are equal.

    `__count__` is the number of added minus removed rows. Rows with count 0 are left out. For a negative count, the
    values can be NULL.
    """
    # The partitions by key are enough for all later steps. Windows that end at the current row buffer no rows.
    same = f"PARTITION BY {', '.join([*by, '__hash__'])} ORDER BY __live__"
    counted = events.selectExpr(
        "*",
        f"sum(IF(__live__, 1, -1)) OVER ({same} ROWS UNBOUNDED PRECEDING) AS __count__",
        f"lead(__live__) OVER ({same}) IS NULL AS __last_of_same__",
    )
    return counted.where("__last_of_same__ AND __count__ <> 0")
