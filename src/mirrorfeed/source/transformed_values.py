"""Hash, mask and truncate values of selected columns."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from mirrorfeed.landing.selection import Cast, Selection
from mirrorfeed.landing.transformation import Transformation, hmac_pads
from mirrorfeed.source.cast_values import cast_value

HASH_PADS = ("__inner_pad__", "__outer_pad__")
"""Names of the columns that `with_hash_key` adds."""


def transform_values(
    rows: DataFrame, values: Mapping[str, Column], types: Mapping[str, DataType], selection: Selection
) -> tuple[DataFrame, dict[str, Column]]:
    """Return the rows from which the transformed values can be selected, and the transformed values.

    `values` has the value of each selected column after its cast. Raises an error if the secret for hashes cannot be
    read.
    """
    if selection.has_hashes:
        rows = with_hash_key(rows, selection.read_hash_key())
    return rows, {name: _transformed(value, types[name], selection, name) for name, value in values.items()}


def with_hash_key(rows: DataFrame, key: str) -> DataFrame:
    """Add columns with the texts that HMAC-SHA-256 derives from the secret for hashes.

    The secret is a value in a joined row and not a part of an expression, because Spark shows expressions in plans,
    in its UI and in its event log."""
    pads = {name: pa.array([pad], pa.binary()) for name, pad in zip(HASH_PADS, hmac_pads(key), strict=True)}
    return rows.crossJoin(F.broadcast(rows.sparkSession.createDataFrame(pa.table(pads))))


def _transformed(value: Column, type_: DataType, selection: Selection, name: str) -> Column:
    transformation, cast = selection.transformation_of(name), selection.cast_of(name)
    if transformation is None:
        return value
    if transformation.kind == "hash":
        return _hashed(value, type_, cast)
    if transformation.kind == "mask":
        return _masked(type_, transformation, cast)
    return F.trunc(value, transformation.unit)


def _hashed(value: Column, type_: DataType, cast: Cast | None) -> Column:
    text = value if isinstance(type_, StringType) or cast else cast_value(value, type_, Cast("string"))
    inner, outer = map(F.col, HASH_PADS)
    return F.sha2(F.concat(outer, F.unhex(F.sha2(F.concat(inner, text.cast("string").cast("binary")), 256))), 256)


def _masked(type_: DataType, transformation: Transformation, cast: Cast | None) -> Column:
    if transformation.text is not None:
        return F.lit(transformation.text)
    return F.lit(None).cast(cast.type if cast else type_)
