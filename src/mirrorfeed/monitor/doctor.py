"""What is wrong with many tables, and with what they have in common."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirrorfeed.at_once import each_of
from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.monitor.facts import look_at_table, look_at_zone
from mirrorfeed.monitor.findings import Finding
from mirrorfeed.monitor.rules import judge_table, judge_zone


def findings_of(spark: SparkSession, config: Config, names: Sequence[str] = ()) -> list[Finding]:
    """Of the landing zone and the mirrored database first, then of each table."""
    chosen, store, zone = config.select(names), zone_of(config), config.landing_zone
    about, states = look_at_zone(config, store)

    def one(table: Table) -> list[Finding]:
        return judge_table(look_at_table(spark, config, store, table, states), zone)

    return [*judge_zone(about, zone), *(each for found in each_of(one, chosen) for each in found)]
