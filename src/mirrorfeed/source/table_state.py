"""What is to be known before the next publication of a table is decided."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.source.change_feed import KEEPS_FEED, first_off
from mirrorfeed.source.delta_protocol import metadata_changes
from mirrorfeed.source.errors import LogDamaged, VersionExpired
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Facts, first_missing
from mirrorfeed.source.schemas import KEEPS_SCHEMA, breaks, schema_at
from mirrorfeed.source.table_info import detail_of
from mirrorfeed.source.versions import since

_FEW = 16
"""More doubtful commits than these are looked up in the log itself, at once, where it can be read."""


def still_hold(facts: Facts, spark: SparkSession, source: Source) -> bool:
    """Whether it is the same table. Partitioned anew, it gives changes from before that with NULL in its partition
    columns, and is not."""
    now = detail_of(spark, source)
    return now.table_id == facts.table_id and set(now.partition_columns) == set(facts.partitions)


def facts_of(
    spark: SparkSession,
    source: Source,
    after: int | None,
    limit: int,
    schema: Callable[[int], dict[str, Any]] | None = None,
) -> Facts:
    """What `decide` needs; schemas and feed are looked at for no more than `limit` versions after the published one.
    Schemas are asked of `schema`, or else of `schema_at`, each once."""
    schema = cache(schema or partial(schema_at, spark, source))

    def first_schemas() -> None:
        if after is not None:
            schema(after), schema(after + 1)

    with ThreadPoolExecutor(1) as meanwhile:
        asked = meanwhile.submit(since, spark, source, after, first_schemas)
        table = detail_of(spark, source, counted=True)
    latest, new = asked.result()
    if after is None:
        # Where the property is set, the engine need not be asked: what is committed later is judged by its own version.
        off = None if table.records_changes else first_off(spark, source, new)
        partitions = table.partition_columns
        return Facts(
            *(table.table_id, latest, tuple(new), off),
            properties=table.properties,
            partitions=partitions,
            bytes=table.bytes,
        )
    missing = first_missing(after, latest, [commit.version for commit in new])
    end = min(after + limit, latest) if missing is None else min(after + limit, missing - 1)
    near = [commit for commit in new if commit.version <= end]
    doubtful = [commit for commit in near if commit.operation not in KEEPS_SCHEMA]
    if len(doubtful) > _FEW:
        changed = metadata_changes(spark, table.location, [commit.version for commit in doubtful])
        doubtful = [commit for commit in doubtful if changed is None or commit.version in changed]
    broken, stop, reason = breaks(schema, after, near[:1], doubtful)
    whole = [commit for commit in doubtful if stop is None or commit.version < stop]
    off = first_off(spark, source, [commit for commit in whole if commit.operation not in KEEPS_FEED])
    return Facts(
        table.table_id,
        latest,
        tuple(new),
        off,
        tuple(broken),
        stop if reason is LogDamaged else None,
        stop if reason is VersionExpired else None,
        table.properties,
        table.partition_columns,
        table.bytes,
    )
