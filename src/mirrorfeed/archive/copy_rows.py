"""The rows of a restored query as a table of their own, so that the files they came from may go back to the archive."""

from __future__ import annotations

import hashlib

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import TargetThere
from mirrorfeed.archive.restore_plan import Plan
from mirrorfeed.source.errors import NoTableAtPath, NotDelta, SourceMissing
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import detail_of

_COPY_OF = "mirrorfeed.archive.copyOf"


def copy(spark: SparkSession, rows: DataFrame, plan: Plan, into: Source) -> bool:
    """Makes the table in one commit, which is all or nothing; False where an earlier run did. `TargetThere` where the
    table is something else."""
    if is_there(spark, plan, into):
        return False
    rows.writeTo(into.sql).using("delta").tableProperty(_COPY_OF, _named(plan)).create()
    return True


def is_there(spark: SparkSession, plan: Plan, into: Source) -> bool:
    """Whether this plan's rows were copied already; or `TargetThere`."""
    return made_before(spark, into, _COPY_OF, _named(plan), "copy of the rows of this plan")


def made_before(spark: SparkSession, into: Source, property_: str, told: str, expected: str) -> bool:
    """Whether the table is there and has this value of a property, as who made it gave it; or `TargetThere`."""
    try:
        found = detail_of(spark, into)
    except (SourceMissing, NoTableAtPath):
        return False
    except NotDelta as error:
        raise TargetThere(table=str(into), expected=expected) from error
    if found.properties.get(property_) != told:
        raise TargetThere(table=str(into), expected=expected)
    return True


def _named(plan: Plan) -> str:
    """By what its rows depend on."""
    return hashlib.sha256(repr((plan.tables, plan.where, plan.sql, plan.zone)).encode()).hexdigest()[:32]
