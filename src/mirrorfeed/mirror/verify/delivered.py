"""Rows that a mirror must have with the delivery modes `soft_delete` and `append`.

With `soft_delete`, the rows without a mark must equal the source, and no row with a mark may be in the source. With
`append`, the changes up to a version must result in the rows of the source at this version. Shares no code with the
publisher, so that verification finds errors of the publisher.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.source.identifier import quote

_ADDS = "_change_type IN ('insert', 'update_postimage')"
_NEVER_ADDED = "a change removes a row that no earlier change added"


def with_live_marks(source: DataFrame, delivery: Delivery) -> DataFrame:
    """Add to the rows of the source the marks that their rows in the mirror must have."""
    at = F.lit(None).cast(T.TimestampType())
    return source.select("*", F.lit(False).alias(delivery.deleted_column), at.alias(delivery.deleted_at_column))


def rows_at(changes: DataFrame, version: int, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return the rows that result from the appended changes up to a version. `names` are the columns of the source.

    With `keys`, the last change of a key says whether the key exists, and with which values. A change that occurs
    twice, which a publisher must never cause, adds a row to the result, so that it differs from the source. Without
    `keys`, a row exists as often as changes add it more often than they remove it.
    """
    columns = [quote(name) for name in names]
    at = "CAST(_commit_version AS bigint)"  # the mirror of text files can have text
    rows = changes.where(f"{at} <= {version}")
    if not keys:
        return _difference(rows, names)
    key = ", ".join(quote(name) for name in keys)
    last = f"rank() OVER (PARTITION BY {key} ORDER BY {at} DESC, {_ADDS} DESC) = 1 AND {_ADDS}"
    is_repeated = f"count(*) OVER (PARTITION BY {key}, {at}, _change_type) > 1"
    current = rows.where("_change_type <> 'update_preimage'").selectExpr(
        *columns, f"{last} AS `__is_last__`", f"{is_repeated} AS `__is_repeated__`"
    )
    return current.where("__is_last__ OR __is_repeated__").selectExpr(*columns)


def _difference(changes: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return each row as often as changes add it more often than they remove it.
    If a row is removed more often, Spark raises an error when the result is read."""
    # Spark puts 0.0 and -0.0 in one group, so floating-point numbers are grouped as text.
    floats = {each.name for each in changes.schema if isinstance(each.dataType, T.FloatType | T.DoubleType)}
    groups = [F.col(quote(name)).cast("string" if name in floats else changes.schema[name].dataType) for name in names]
    row = F.struct(*(F.col(quote(name)) for name in names))
    counted = changes.groupBy(*(each.alias(f"__{at}__") for at, each in enumerate(groups))).agg(
        F.sum(F.expr(f"IF({_ADDS}, 1, -1)")).alias("__count__"), F.first(row).alias("__row__")
    )
    copies = (
        f"CASE WHEN __count__ < 0 THEN raise_error('{_NEVER_ADDED}') ELSE array_repeat(__row__, CAST(__count__ AS int))"
        " END"
    )
    each_row = counted.select(F.explode(F.expr(copies)).alias("__row__"))
    return each_row.select("__row__.*")
