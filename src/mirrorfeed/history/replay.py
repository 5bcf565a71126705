"""Any kept version of a table, rebuilt from its history into a table of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.restore import made_before
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.history.errors import HistoryChanged, NothingKept, NotKept
from mirrorfeed.history.history_table import HistoryTable
from mirrorfeed.history.record import Record, chapter_of, chapters, first_and_last, record_of, version_at
from mirrorfeed.source.change_preview import parse_bound, time_parser
from mirrorfeed.source.identifier import URI, Source, quote

_REPLAY_OF = "mirrorfeed.history.replayOf"
_GOES_WITHOUT_MAPPING = frozenset(" ,;{}()\n\t=")
_ADDS = ("insert", "update_postimage")
_COUNT, _ROW = "__count__", "__row__"
_NOT_THERE = "its rows say that one was removed which was never added"


@row
class Replay(Row):
    """A table that was rebuilt from a history."""

    into: str = shown("table")
    history: str = shown("from the history")
    version: int = shown("version", str, right=True)
    committed: datetime = shown("committed")
    """Time of the commit of the version, in UTC."""
    created: bool = shown("created now")
    """False if an earlier run had created the table."""


def replay(spark: SparkSession, history: Source, into: Source, asked: str | int) -> Replay:
    """Create the table as it was at a version, or at a time in the session's time zone, in one commit.

    Raises `NotKept`, `HistoryChanged` or `TargetExists`.
    """
    table = HistoryTable(spark, history)
    seen = table.look()
    if seen is None or seen.newest is None:
        raise NothingKept(history=str(history))
    records = table.records(seen)
    version = resolve(str(history), records, parse_bound(asked, time_parser(spark)))
    chapter = chapter_of(records, version)
    assert chapter is not None
    record = record_of(chapter, version)
    told = f"{seen.newest.source_id} version {version}"
    committed = next(each.timestamp for each in record.commits if each.version == version)
    if made_before(spark, into, _REPLAY_OF, told, "replay of this version"):
        return Replay(str(into), str(history), version, committed, created=False)
    begin = chapter[0].to_version_inclusive - 1
    rows = state(table.rows(seen, chapter, begin, version), record)
    writer = rows.writeTo(into.sql).using("delta").tableProperty(_REPLAY_OF, told)
    if any(_GOES_WITHOUT_MAPPING.intersection(each.name) for each in record.columns):
        writer = writer.tableProperty("delta.columnMapping.mode", "name")
    if record.partitions:
        first, *others = (F.col(quote(name)) for name in record.partitions)
        writer = writer.partitionedBy(first, *others)
    try:
        writer.create()
    except Exception as error:
        if _NOT_THERE in str(error):
            raise HistoryChanged(history=str(history), reason=_NOT_THERE) from error
        raise
    return Replay(str(into), str(history), version, committed, created=True)


def place_of(text: str) -> Source:
    """A table in the catalog, or a folder, from here where it is relative."""
    source = Source.parse(text)
    if source.path is None or URI.match(source.path):
        return source
    return Source(path=os.path.abspath(source.path))


def resolve(history: str, records: Sequence[Record], asked: int | datetime) -> int:
    """The version that is asked for; or `NotKept`."""
    if isinstance(asked, datetime):
        version = version_at(records, asked)
    else:
        version = asked if chapter_of(records, asked) else None
    if version is None:
        raise NotKept(history=history, asked=asked, kept=kept(records))
    return version


def kept(records: Sequence[Record]) -> list[str]:
    """What can be rebuilt, in words."""
    found = []
    for chapter in chapters(records):
        first, last = first_and_last(chapter)
        found.append(
            f"versions {first.version} to {last.version} ({_spell(first.timestamp)} to {_spell(last.timestamp)})"
        )
    return found


def state(changes: DataFrame, record: Record) -> DataFrame:
    """The rows that these changes leave, from a snapshot on. Rows without a key may be there more than once, and the
    feed tells of each by its values alone: so each is counted, and as many are left as were added more than removed.
    """
    names = [column.name for column in record.columns]
    step = F.when(F.col("_change_type").isin(*_ADDS), 1).otherwise(-1)
    row = F.struct(*(F.col(quote(name)).alias(f"_{i}") for i, name in enumerate(names)))
    alike = [
        _alike(F.col(quote(column.name)), json.loads(column.type)).alias(f"__alike_{i}__")
        for i, column in enumerate(record.columns)
    ]
    counted = (
        changes.select(*alike, row.alias(_ROW), step.alias("__step__"))
        .groupBy(*(f"__alike_{i}__" for i in range(len(alike))))
        .agg(F.sum("__step__").alias(_COUNT), F.first(_ROW).alias(_ROW))
        .where(F.col(_COUNT) != 0)
    )
    copies = F.array_repeat(F.col(_ROW), F.col(_COUNT).cast("int"))
    copies = F.when(F.col(_COUNT) > 0, copies).otherwise(F.raise_error(F.lit(_NOT_THERE)))
    each = counted.select(F.explode(copies).alias(_ROW))
    return each.select(*(F.col(_ROW).getField(f"_{i}").alias(name) for i, name in enumerate(names)))


def _alike(value: Column, type_: object) -> Column:
    """Equal for values that are the same. Spark takes 0.0 and -0.0 for one when it groups, and groups by no variant."""
    if type_ in ("float", "double"):
        return value.cast("string")
    return F.to_json(F.struct(value)) if '"variant"' in json.dumps(type_) else value


def _spell(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
