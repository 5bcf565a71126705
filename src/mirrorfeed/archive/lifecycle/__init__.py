"""Lifecycle rules of a table, in Azure or S3, chosen by its address."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirrorfeed.archive import interval
from mirrorfeed.archive.errors import NoLifecycle
from mirrorfeed.archive.lifecycle import azure, s3
from mirrorfeed.archive.lifecycle.azure import AzureRules
from mirrorfeed.archive.lifecycle.base import Lifecycle, Rules, Wanted, read_policy, starts
from mirrorfeed.archive.lifecycle.s3 import S3Rules
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info


def rules_at(location: str, partition_columns: Sequence[str], random_names: bool) -> Rules | None:
    """Return None for storage without such rules."""
    begins = starts(partition_columns, random_names)
    if folder := azure.folder_of(location):
        return AzureRules(folder, [folder + start for start in begins])
    if folder := s3.folder_of(location):
        return S3Rules(folder, [folder + start for start in begins])
    return None


def rules_of(spark: SparkSession, source: Source) -> Rules:
    """Raises `NoLifecycle`."""
    found = read_table_info(spark, source)
    names = ("delta.columnMapping.mode", "delta.randomizeFilePrefixes")
    random_names = any(found.properties.get(name, "none") not in ("none", "false") for name in names)
    if rules := rules_at(found.location, found.partition_columns, random_names):
        return rules
    raise NoLifecycle(table=str(source), location=found.location)


def with_rules(
    spark: SparkSession, source: Source, exported: str | None, wanted: Wanted, take_over: bool, days: int | None
) -> Lifecycle:
    """The exported policy with the rules of a table. Without days, of its interval."""
    existing = read_policy(exported) if exported else None
    days = days or interval.required(spark, source).rule
    rules = rules_of(spark, source)
    policy = rules.policy(days, wanted, existing, take_over)
    problems = [str(each) for each in rules.check(policy, days) if each.rule or wanted is Wanted.ON]
    apply, others = rules.apply(policy, existing), tuple(rules.of_others(existing))
    return Lifecycle(str(source), days, tuple(problems), policy, apply, others)


def compare_rules(spark: SparkSession, source: Source, exported: str) -> Lifecycle:
    """An exported policy compared with the interval of a table."""
    policy, days = read_policy(exported), interval.required(spark, source).rule
    return Lifecycle(str(source), days, tuple(map(str, rules_of(spark, source).check(policy, days))))
