"""The intervals of tables, read from their properties and written there: the only place that changes them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import LongerInterval, NoPolicy, NotUnderstood
from mirrorfeed.archive.interval_policy import ALL, Policy, changed, stepped, to_properties, understood
from mirrorfeed.runtime.engine import is_databricks, setting
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import detail_of

_ANY_PROPERTY = "spark.databricks.delta.allowArbitraryProperties.enabled"


def read(spark: SparkSession, source: Source) -> Policy | None:
    """Or `NotUnderstood`."""
    return understood(str(source), detail_of(spark, source).properties)


def required(spark: SparkSession, source: Source) -> Policy:
    """The policy, or `NoPolicy`."""
    if policy := read(spark, source):
        return policy
    raise NoPolicy(table=str(source))


def set_first(spark: SparkSession, source: Source, days: int, now: datetime) -> Policy:
    """Gives a table its interval, or a shorter one; a longer one is refused, for it takes its time. What is not
    understood is replaced."""
    try:
        found = read(spark, source)
    except NotUnderstood:
        policy = Policy(days)
        _write(spark, source, policy)
        _unset(spark, source, ALL[1:])
        return policy
    if found is not None and days > found.days:
        raise LongerInterval(table=str(source), now=found.days, asked=days)
    policy = changed(found, days, exact=True, now=now) if found else Policy(days)
    _write(spark, source, policy)
    return policy


def change_interval(spark: SparkSession, source: Source, days: int, exact: bool, now: datetime) -> Policy:
    """To be called once the cloud's rule says so many days, if they are more; before that, if they are fewer."""
    policy = changed(required(spark, source), days, exact, now)
    _write(spark, source, policy)
    return policy


def step(spark: SparkSession, source: Source, now: datetime) -> Policy:
    found = required(spark, source)
    policy = stepped(found, now)
    if policy != found:
        _write(spark, source, policy)
    return policy


def unset(spark: SparkSession, source: Source) -> None:
    """From here on all files count as hot: only for a table of which nothing is in the archive."""
    with suppress(NotUnderstood):
        required(spark, source)
    _unset(spark, source, ALL)


def _unset(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    listed = ", ".join(f"'{name}'" for name in names)
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} UNSET TBLPROPERTIES IF EXISTS ({listed})")


def _write(spark: SparkSession, source: Source, policy: Policy) -> None:
    # One statement sets all: after a crash between two, a value would lack what makes it safe to raise.
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in to_properties(policy).items())
    with any_property(spark):
        spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES ({listed})")


def any_property(spark: SparkSession) -> AbstractContextManager[None]:
    """Open source Delta does not know the property and refuses it, unless told to take any."""
    return nullcontext() if is_databricks(spark) else setting(spark, _ANY_PROPERTY, "true")
