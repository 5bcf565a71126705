"""Lifecycle rules of a table, in Azure or S3, chosen by its address."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import NoLifecycle
from mirrorfeed.archive.lifecycle import azure, s3
from mirrorfeed.archive.lifecycle.azure import AzureRules
from mirrorfeed.archive.lifecycle.base import Rules, starts
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
