"""The schemas of a table's versions, and where they change by more than added columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.errors import Terminal
from mirrorfeed.runtime.spark_errors import EXPIRED, first_of
from mirrorfeed.source.errors import LogDamaged, VersionExpired
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Commit
from mirrorfeed.source.table_info import refusals

KEEPS_SCHEMA = frozenset(
    {"UPDATE", "DELETE", "OPTIMIZE", "TRUNCATE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "ADD CONSTRAINT"}
)
"""Operations that are known to leave the schema as it was. Any other is looked at."""
_AT_ONCE = 4
"""Questions about schemas; each takes some milliseconds of waiting."""


def schema_at(spark: SparkSession, source: Source, version: int) -> dict[str, Any]:
    """The table's schema at a version, as Spark spells schemas in JSON."""
    try:
        with refusals(source):
            frame = spark.read.option("versionAsOf", version).table(source.sql)
            schema: dict[str, Any] = json.loads(frame.schema.json())
    except Exception as error:
        if first_of(error, (EXPIRED,)):
            raise VersionExpired(table=str(source), version=version) from error
        raise
    return schema


def breaks(
    schema: Callable[[int], dict[str, Any]], after: int, first: list[Commit], doubtful: list[Commit]
) -> tuple[list[int], int | None, type[Terminal] | None]:
    """The versions at which the schema changed by more than added columns, the first also where the schema before it
    is not known any more; and the first version whose schema cannot be known, where this ends, with the reason."""
    looked_at = sorted({commit.version for commit in (*first, *doubtful)})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {version: pool.submit(schema, version) for version in (after, *looked_at) if first}
    found: list[int] = []
    before: dict[str, Any] | None = None
    with suppress(Exception):  # the log may begin later, or have a hole there
        before = asked[after].result() if first else None
    for version in looked_at:
        try:
            now = asked[version].result()
        except (LogDamaged, VersionExpired) as error:
            return found, version, type(error)
        if before is None or not only_adds(before, now):
            found.append(version)
        before = now
    return found, None, None


def only_adds(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether every column of `before` is in `now` with the same type and nullability."""
    kept = {field["name"]: (field["type"], field["nullable"]) for field in now["fields"]}
    return all(kept.get(field["name"]) == (field["type"], field["nullable"]) for field in before["fields"])
