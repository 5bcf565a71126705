"""Differences between the rows of a source and the hashes of its earlier rows, by key.

Columns are named by their positions, such as `_0`, so that they cannot clash with the names used here. A column keeps
its position: dropped columns keep theirs, and new columns are added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import MARKER, Column, Marker, Problem
from mirrorfeed.publish.translate import landing_rows
from mirrorfeed.publish.translate.changes import payload_hashes

HASH, CHANGED, GAIN, PROBLEM = "_hash", "_changed", "_gain", "_problem"
DIFFERS = f"({CHANGED} OR {PROBLEM} IS NOT NULL)"
"""Selects the rows of `differences` that are published or rejected."""


def position_name(at: int) -> str:
    return f"_{at}"


def key_positions(columns: Sequence[Column], keys: Sequence[str]) -> list[str]:
    names = [column.name for column in columns]
    return [position_name(names.index(key)) for key in keys]


def with_hashes(rows: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """The rows in landing form, each with a hash of all columns but its key."""
    landed = rows.select(
        *(landing_rows.to_landing(column).alias(position_name(at)) for at, column in enumerate(columns))
    )
    payload = [(at, column) for at, column in enumerate(columns) if column.name not in keys and not column.dropped]
    chains = ", ".join(f"lpad(hex({chain}), 16, '0')" for chain in payload_hashes(payload, position_name))
    return landed.selectExpr("*", f"unhex(concat({chains})) AS {HASH}")


def one_per_key(hashes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Each key once. If several rows had it, its hash equals no row's: it is not known which of them the mirror has, so
    the row that has the key now is published. NULL keys are left out, because no row of a mirror has one."""
    given = hashes.dropna(subset=list(key))
    return given.groupBy(*key).agg(F.expr(f"IF(count(*) = 1, min({HASH}), X'') AS {HASH}"))


def differences(now: DataFrame, before: DataFrame, key: Sequence[str]) -> DataFrame:
    """For every key of either side its row now, or the key alone, with a NULL hash, if the row is gone.

    `CHANGED` says whether that differs from before, `GAIN` how many more rows there are, and `PROBLEM` why a row cannot
    be published.
    """
    payload = [name for name in now.columns if name not in key and name != HASH]
    one = f"count(*) OVER (PARTITION BY {', '.join(key)}) > 1 AS __shared__"
    there = now.selectExpr(*now.columns, one, "true AS __there__").alias("now")
    known = before.selectExpr(*(f"{name} AS __before{name}" for name in [*key, HASH])).alias("before")
    same = reduce(and_, (F.col(name) == F.col(f"__before{name}") for name in key))
    null = " OR ".join(f"{name} IS NULL" for name in key)
    joined = there.join(known, same, "full_outer")
    return joined.selectExpr(
        *(f"coalesce({name}, __before{name}) AS {name}" for name in key),
        *payload,
        HASH,
        f"NOT ({HASH} <=> __before{HASH}) AS {CHANGED}",
        f"CASE WHEN {HASH} IS NULL THEN -1 WHEN __before{HASH} IS NULL THEN 1 ELSE 0 END AS {GAIN}",
        f"CASE WHEN __there__ AND ({null}) THEN {Problem.NULL_KEY.value}"
        f" WHEN __shared__ THEN {Problem.DUPLICATE_KEY.value} END AS {PROBLEM}",
    )


def differing_rows(found: DataFrame, columns: Sequence[Column], *, with_marker: bool, exact: bool = False) -> DataFrame:
    """The landing rows of what differs. A missing column is NULL. With exact markers, a row with a new key is an
    insert, and any other an update."""
    names = set(found.columns)
    values = [
        (F.col(position_name(at)) if position_name(at) in names else F.lit(None)).cast(column.form).alias(column.name)
        for at, column in enumerate(columns)
    ]
    present = f"IF({GAIN} > 0, {Marker.INSERT.value}, {Marker.UPDATE.value})" if exact else Marker.UPSERT.value
    markers = [F.expr(f"IF({HASH} IS NULL, {Marker.DELETE.value}, {present}) AS {MARKER}")] if with_marker else []
    return found.select(*values, *markers, F.col(PROBLEM).alias(landing_rows.PROBLEM))
