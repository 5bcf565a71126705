"""Compares the rows of a source, key by key, with hashes of the rows that were there before.

Columns go by their places, as `_0`, so that none of their names can be one of those used here; a place keeps its column
for good, for columns that are dropped keep theirs and new ones come after.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorfeed.landing.row_markers import Marker, Problem
from mirrorfeed.landing.schema import MARKER, Column
from mirrorfeed.publish.translate.changes import PROBLEM as AS_READ
from mirrorfeed.publish.translate.changes import as_landed, payload_hashes

HASH, CHANGED, GAIN, PROBLEM = "_hash", "_changed", "_gain", "_problem"
DIFFERS = f"({CHANGED} OR {PROBLEM} IS NOT NULL)"
"""What is to be published of what `differences` gives, or to be refused."""


def place(at: int) -> str:
    return f"_{at}"


def places(columns: Sequence[Column], keys: Sequence[str]) -> list[str]:
    """Of the key columns."""
    names = [column.name for column in columns]
    return [place(names.index(key)) for key in keys]


def hashed(rows: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """The rows in the form of the landing zone, each with a hash of all that is not its key."""
    landed = rows.select(*(as_landed(column).alias(place(at)) for at, column in enumerate(columns)))
    own = places(columns, keys)
    payload = [(at, column) for at, column in enumerate(columns) if place(at) not in own and not column.dropped]
    chains = ", ".join(f"lpad(hex({chain}), 16, '0')" for chain in payload_hashes(payload, place))
    return landed.selectExpr("*", f"unhex(concat({chains})) AS {HASH}")


def one_per_key(hashes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Each key once. If several rows had it, its hash equals no row's: which of them the mirror holds is not known, so
    the row that has the key now is published. NULL keys are left out, because no row of a mirror has one."""
    given = hashes.dropna(subset=list(key))
    return given.groupBy(*key).agg(F.expr(f"IF(count(*) = 1, min({HASH}), X'') AS {HASH}"))


def differences(now: DataFrame, before: DataFrame, key: Sequence[str]) -> DataFrame:
    """For every key of either side its row now, or the key alone where it is gone: then its hash is NULL. `CHANGED`
    says whether that differs from before, `GAIN` how many rows there are more, and `PROBLEM` why a row cannot be
    published."""
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


def landing_rows(found: DataFrame, columns: Sequence[Column], *, with_marker: bool, exact: bool = False) -> DataFrame:
    """The rows that differ, as they are written to files. A column that is missing is NULL. With exact markers, a row
    whose key is new is an insert, and any other an update."""
    there = set(found.columns)
    values = [
        (F.col(place(at)) if place(at) in there else F.lit(None)).cast(column.form).alias(column.name)
        for at, column in enumerate(columns)
    ]
    there_now = f"IF({GAIN} > 0, {Marker.INSERT.value}, {Marker.UPDATE.value})" if exact else Marker.UPSERT.value
    marker = f"IF({HASH} IS NULL, {Marker.DELETE.value}, {there_now}) AS {MARKER}"
    markers = [F.expr(marker)] if with_marker else []
    return found.select(*values, *markers, F.col(PROBLEM).alias(AS_READ))
