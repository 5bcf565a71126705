"""Protocol for reading a table's changes, and the function that selects an implementation by the setting `changes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table, hashes_of
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.files.staging_job import BadRow, Staged, StagingJob
from mirrorfeed.source.snapshot_or_range import ComparisonStart, Facts, KeyRepair, PublishedVersion, Range, Snapshot
from mirrorfeed.source.table_info import is_in_local_folder


class ChangeSource(Protocol):
    """Reads the rows and changes of one table. Pass the result of `facts` to the other methods: they keep no state."""

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        """Read the identity of the table, its newest version, and the commits after the version `published`.

        `published` is None before the first publication. At most `limit` of these commits are checked for changes of
        the schema and for a disabled change data feed.
        """
        ...

    def is_unchanged(self, facts: Facts) -> bool:
        """Return False if another table has replaced the source since `facts` were read, otherwise True."""
        ...

    def schema(self, version: int, facts: Facts) -> dict[str, Any]:
        """Return the schema of all source columns at a version, as the JSON of a Spark `StructType`."""
        ...

    def check(self, what: Range | Snapshot, facts: Facts) -> None:
        """Raise an error if `what` cannot be read. Reads no rows, so it does not find every problem."""
        ...

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: Table, job: StagingJob) -> Staged | None:
        """Read the rows to publish from the source, and write them to staged files, which Fabric ignores.

        A snapshot that is larger than `load_part_size` is divided, if its parts do not read many rows several times.
        Then only the first part is staged, and `Staged.part` names it. A snapshot without rows, or its first part, gets
        one staged file without rows. The result None means that a table with `changes: compare` has no changes.

        Raises `BadRows` if rows cannot be published. If a snapshot is divided, this includes keys that are not unique
        in all parts together, unless each part can check its own keys.
        """
        ...

    def bad_keys(self, version: int, table: Table) -> Sequence[BadRow]:
        """Return up to five keys that are NULL or not unique at a source version. Empty if all keys are valid."""
        ...


class ComparisonSource(ChangeSource, Protocol):
    """`ChangeSource` of a table with `changes: compare`."""

    def check_start(self, start: ComparisonStart) -> None:
        """Raise `first_comparison_impossible` if the published version of the source cannot be read. Reads no rows."""
        ...

    def store_hashes(self, start: ComparisonStart, facts: Facts, job: StagingJob) -> Staged:
        """Store the row hashes of the published version of the source. Stages no files."""
        ...


NO_SPARK: Any = None
"""Placeholder for a Spark session. With it, `ChangeSource.facts` raises `ValueError` if Spark is needed."""


def needs_no_spark(table: Table) -> bool:
    """Return whether a new version of the table can be detected without Spark.
    True for tables in a local folder, except with `changes: compare`."""
    return table.changes != "compare" and is_in_local_folder(table.source)


def source_for(spark: SparkSession, config: Config, table: Table) -> ChangeSource:
    """Return the `ChangeSource` of a table: a full comparison for `changes: compare`, else the change data feed."""
    if table.changes == "compare":
        from mirrorfeed.publish.change_sources import full_compare  # imported late: few tables need it

        assert config.ledger is not None  # the loader requires it with `changes: compare`
        location = hashes_of(config.ledger, table.target)
        hashes = full_compare.RowHashTable(spark, location, str(table.source), config.landing_zone)
        return full_compare.FullCompare(spark, table.source, hashes, config.staging_path, config.upload_from)
    return DeltaFeed(spark, table.source, config.staging_path, config.upload_from, table.selection)
