"""Rebuild a version of a table from its permanent history, as a new table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.history import history_record as segments
from mirrorfeed.history.errors import HistoryChangedError, history_empty, not_in_history
from mirrorfeed.history.history_record import HistoryRecord, find_record, find_segment
from mirrorfeed.history.history_table import HistoryTable
from mirrorfeed.landing.schema import EXACT_JSON, types_in
from mirrorfeed.source import table_copy
from mirrorfeed.source.change_preview import parse_bound
from mirrorfeed.source.identifier import Source, quote

_REPLAY_OF = "mirrorfeed.history.replayOf"
_ADDS = ("insert", "update_postimage")
_COUNT, _ROW = "__count__", "__row__"
_NEVER_ADDED = "it has a delete of a row that was never inserted"


@row
class Replay(Row):
    """Table that was created from a permanent history, with the rows of one version of the source."""

    into: str = shown("table")
    history: str = shown("from the history")
    version: int = shown("version", str, right=True)
    committed: datetime = shown("committed")
    """Commit time of the version, in UTC."""
    created: bool = shown("created now")
    """False if an earlier run created the table."""


def replay(spark: SparkSession, history: Source, into: Source, at: str | int) -> Replay:
    """Create the table `into` in one commit, with the rows and columns that the source had at `at`.

    `at` is a version of the source, or a time in the session's time zone. If an earlier call created the table `into`
    from the same version, the table is not changed. Raises `copy_target_exists` if the table `into` exists, but was not
    created from this version.

    Raises `invalid_bound` if `at` is invalid, and `not_in_history` if the history does not contain `at`. Raises
    `history_empty` if the history has no records, `HistoryChangedError` if another process changed the history, and
    `ArchivedFilesNeededError` if files of the history must be restored first.
    """
    table = HistoryTable(spark, history)
    view = table.read_view()
    if view is None or view.newest is None:
        raise history_empty(history=str(history))
    records = table.read_records(view)
    version = resolve(str(history), records, parse_bound(spark, at))
    segment = find_segment(records, version)
    assert segment is not None
    record = find_record(segment, version)
    origin = f"{view.newest.source_id} version {version}"
    committed = next(each.timestamp for each in record.commits if each.version == version)
    if table_copy.is_existing_copy(spark, into, _REPLAY_OF, origin, "replay of this version"):
        return Replay(str(into), str(history), version, committed, created=False)
    rows = apply_changes(table.read_rows(view, segment, segment[0].to_version_inclusive - 1, version), record)
    # A partition column that is renamed after this version is missing in `rows`.
    partitions = [name for name in record.partitions if name in rows.columns]
    try:
        table_copy.create(rows, into, {_REPLAY_OF: origin}, partitions)
    except Exception as error:
        if _NEVER_ADDED in str(error):
            raise HistoryChangedError(history=str(history), reason=_NEVER_ADDED) from error
        raise
    return Replay(str(into), str(history), version, committed, created=True)


def resolve(history: str, records: Sequence[HistoryRecord], at: int | datetime) -> int:
    """Return `at` if it is a version of the source, or the version that was the newest at the time `at`.

    `records` are all records of the history with the name `history`. Raises `not_in_history` if they do not cover `at`.
    """
    if isinstance(at, datetime):
        version = segments.find_version(records, at)
    else:
        version = at if find_segment(records, at) else None
    if version is None:
        contents = [
            f"versions {first.version} to {last.version} ({_utc(first.timestamp)} to {_utc(last.timestamp)})"
            for first, last in map(segments.first_and_last_commit, segments.split_segments(records))
        ]
        raise not_in_history(history=history, requested=at, stored=contents)
    return version


def apply_changes(changes: DataFrame, record: HistoryRecord) -> DataFrame:
    """Return the rows that remain after all changes in `changes`. `record` has the columns of the result.

    `changes` is a change data feed. The feed starts with inserts of all rows of a snapshot.

    Equal rows can occur several times. The number of inserts minus the number of deletes is the number of equal rows in
    the result. If this number is negative, Spark raises an error when the result is read.
    """
    names = [column.name for column in record.columns]
    step = F.when(F.col("_change_type").isin(*_ADDS), 1).otherwise(-1)
    row = F.struct(*(F.col(quote(name)).alias(f"_{i}") for i, name in enumerate(names)))
    group = [f"__group_{i}__" for i in range(len(names))]
    values = zip(group, record.columns, strict=True)
    counted = (
        changes.select(
            *(_groupable(F.col(quote(column.name)), json.loads(column.type)).alias(name) for name, column in values),
            row.alias(_ROW),
            step.alias("__step__"),
        )
        .groupBy(*group)
        .agg(F.sum("__step__").alias(_COUNT), F.first(_ROW).alias(_ROW))
        .where(F.col(_COUNT) != 0)
    )
    copies = F.array_repeat(F.col(_ROW), F.col(_COUNT).cast("int"))
    copies = F.when(F.col(_COUNT) > 0, copies).otherwise(F.raise_error(F.lit(_NEVER_ADDED)))
    each = counted.select(F.explode(copies).alias(_ROW))
    return each.select(*(F.col(_ROW).getField(f"_{i}").alias(name) for i, name in enumerate(names)))


def _groupable(value: Column, type_: object) -> Column:
    """Return an expression to group rows by the column `value`. `type_` is the parsed JSON of the column's Spark type.

    Returns the text of a floating-point number, and the JSON text of a value that contains a variant. Returns a struct
    with the value and its JSON text if the value contains floating-point numbers and no map. Otherwise returns `value`.
    """
    if type_ in ("float", "double"):
        return value.cast("string")
    kinds = {each["type"] if isinstance(each, dict) else each for each in types_in(type_)}
    text = F.to_json(F.struct(value), EXACT_JSON)
    if "variant" in kinds:  # Spark cannot group by a variant
        return text
    # Spark puts 0.0 and -0.0 in one group, but their JSON texts differ. Equal maps can have different JSON texts.
    if "map" not in kinds and not kinds.isdisjoint({"float", "double"}):
        return F.struct(value, text)
    return value


def _utc(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
