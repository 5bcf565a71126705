"""Sources of a table's changes: the protocol, and the choice between change feed and full comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.files.staging_job import BadRow, Staged, StagingJob
from mirrorfeed.source.snapshot_or_range import Facts, Range, Repair
from mirrorfeed.source.table_info import is_in_local_folder


class ChangeSource(Protocol):
    """Source of one table's changes. Stateless: facts about the table's history are in `Facts`."""

    def facts(self, after: int | None, limit: int) -> Facts:
        """Read the commits after the published version. Checks the schema and the change feed of at most `limit`
        versions."""
        ...

    def is_unchanged(self, facts: Facts) -> bool:
        """Return whether the table still has the same identity and its changes can still be read."""
        ...

    def columns(self, version: int, facts: Facts) -> tuple[Column, ...]:
        """Return the selected columns at a version."""
        ...

    def source_columns(self, version: int, facts: Facts) -> Mapping[str, str]:
        """Return the types of all columns of the table at a version. Called only if some columns are selected."""
        ...

    def check(self, what: Range | int, facts: Facts) -> None:
        """Raise an error if the range, or the snapshot at a version, certainly cannot be read."""
        ...

    def stage(self, what: Range | int | Repair, facts: Facts, table: Table, job: StagingJob) -> Staged | None:
        """Stage the landing rows of a range, of the snapshot at a version, or of a repair.

        An empty snapshot has one file. Returns None if a comparison found no difference.
        """
        ...

    def bad_keys(self, version: int, table: Table) -> Sequence[BadRow]:
        """Return the first keys of a version that are NULL or not unique."""
        ...


NO_SPARK: Any = None
"""Used instead of a session. Then reading facts raises `SparkRequired` if Spark is needed."""


def needs_no_spark(table: Table) -> bool:
    """Return whether the facts of the source can be read without Spark, because the source is in a local folder."""
    return table.changes != "compare" and is_in_local_folder(table.source)


def source_for(spark: SparkSession, config: Config, table: Table) -> ChangeSource:
    """Return the source that the setting `changes` selects."""
    if table.changes == "compare":
        from mirrorfeed.publish.change_sources import full_compare  # imported late: few tables need it

        hashes = full_compare.RowHashTable(spark, full_compare.hash_table_of(config, table), str(table.source))
        return full_compare.FullCompare(spark, table.source, hashes, config.staging_path, config.upload_from)
    return DeltaFeed(spark, table.source, config.staging_path, config.upload_from, table.selection)
