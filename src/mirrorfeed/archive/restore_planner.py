"""Create restore plans for queries and for ranges of the change data feed.

Relative times in conditions and SQL queries are replaced by their values, because a plan is executed hours later.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval, guard
from mirrorfeed.archive.archived_files import NeededFiles, find_archived
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.errors import FeedOnDatabricks, NoSuchVersion, NothingToRestore, RelativeWord
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.restore_plan import Plan, plan_files
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source import reader, versions
from mirrorfeed.source.errors import Gap
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tier_store import Priority


def plan_statement(spark: SparkSession, priority: Priority, now: datetime, *, sql: str) -> Plan:
    """Return the restore plan for any SQL query. Raises `NothingToRestore` if the query needs no archived file."""
    at = moment(spark, now)
    statement = fix_relative_times(sql, at)
    if needed := Guarded(spark, now=lambda: now).needed(statement):
        return replace(plan_files(needed, priority), sql=statement, zone=at.zone)
    raise NothingToRestore(statement=sql)


def plan_query(
    spark: SparkSession, priority: Priority, now: datetime, *, source: Source, where: str | None = None
) -> Plan:
    """Return the restore plan for the rows of a table that match `where`, or for all rows if `where` is None.

    Raises `NoInterval` if the table has no archive interval.
    """
    at = moment(spark, now)
    archive_interval.required(spark, source)
    where = where and fix_relative_times(where, at, spark.table(source.sql).columns)
    needed = engine_of(spark).needed(source, where, now)
    return replace(plan_files([needed], priority), where=where, zone=at.zone)


def plan_feed(
    spark: SparkSession, priority: Priority, now: datetime, *, source: Source, first: int, last: int | None = None
) -> Plan:
    """Return the restore plan for the versions `first` to `last` of a table's change data feed.

    The default for `last` is the newest version. Raises `NoSuchVersion` if versions are missing, `NoInterval` if the
    table has no archive interval, `FeedOnDatabricks` on Databricks, and the errors of `check_readable`.
    """
    table = read_table_info(spark, source)
    policy = archive_interval.required(spark, source, table)
    if is_databricks(spark):
        raise FeedOnDatabricks(table=str(source))
    newest = versions.newest_version(spark, source)
    end = newest if last is None else last
    if not 0 <= first <= end <= newest:
        asked = f"versions {first} to {'the newest' if last is None else last}"
        raise NoSuchVersion(table=str(source), versions=asked, newest=newest)
    range_ = Range(first - 1, end)
    try:
        changed = guard.files_to_read(spark, source, table, range_)
    except Gap as error:
        raise NoSuchVersion(table=str(source), versions=str(range_), newest=newest) from error
    check_readable(spark, source, range_)
    files = find_archived(spark, str(source), table.location, changed, policy, now)
    needed = NeededFiles(str(source), table.table_id, table.location, end, tuple(files))
    return replace(plan_files([needed], priority), feed_from=first)


def check_readable(spark: SparkSession, source: Source, range_: Range) -> None:
    """Raise `Gap` or `FeedUnreadable` if Delta cannot read the changes of a range, for example if they expired."""
    with reader.read_errors(str(source), range_):
        reader.read_changes(spark, source, range_)


class Moment(NamedTuple):
    """A point in time, in the time zone of a session."""

    micros: int
    """Microseconds since the epoch."""
    date: str
    local: str
    """Date and time without time zone."""
    zone: str


def moment(spark: SparkSession, now: datetime) -> Moment:
    micros = int(now.astimezone(UTC).timestamp() * 1_000_000)
    at = f"timestamp_micros({micros})"
    query = f"SELECT string(CAST({at} AS DATE)), string(CAST({at} AS TIMESTAMP_NTZ)), current_timezone()"
    return Moment(micros, *spark.sql(query).collect()[0])


_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* ) | (?P<block> /\* ) |
    (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" ) | (?P<quoted> `(?:[^`]|``)*` ) |
    (?P<alias> \b(?i:AS)\s+[A-Za-z_]\w*\b(?!\s*\() ) |
    (?P<word> (?<![\w.]) [A-Za-z_]\w* )
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s+|--[^\n]*|/\*")
"""Regular expression for white space, a line comment, or the start of a block comment."""
_RELATIVE_TEXT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
_WITHOUT_PARENTHESES = ("current_date", "current_timestamp", "localtimestamp", "current_time")
"""Functions that Spark also accepts without parentheses, unless a column has the same name."""


def fix_relative_times(text: str, at: Moment, columns: Collection[str] = ()) -> str:
    """Return SQL in which relative times, such as current_date(), are replaced by their values at `at`.

    A word without parentheses, such as current_date, is kept if it is a name in `columns`. Raises `RelativeWord` for a
    relative time that cannot be replaced.
    """
    literals = {
        **dict.fromkeys(("current_date", "curdate"), f"DATE '{at.date}'"),
        **dict.fromkeys(("current_timestamp", "now", "getdate"), f"timestamp_micros({at.micros})"),
        "localtimestamp": f"TIMESTAMP_NTZ '{at.local}'",
        "unix_timestamp": f"{at.micros // 1_000_000}L",
        "current_timezone": f"'{at.zone}'",
    }
    column_names = {name.lower() for name in columns}
    parts, done = [], 0
    while token := _TOKEN.search(text, done):
        parts.append(text[done : token.start()])
        end = _end_of_comment(text, token.end()) if token["block"] else token.end()
        word = (token["word"] or "").lower()
        is_column = word in column_names
        if token["text"] and _RELATIVE_TEXT.fullmatch(token["text"].lstrip("rR")[1:-1]):
            raise RelativeWord(text=text, word=token["text"])
        opening = _end_of_space(text, end) if word else end
        has_parentheses = bool(word) and text.startswith("(", opening)
        closing = _end_of_space(text, opening + 1) if has_parentheses else end
        has_arguments = has_parentheses and not text.startswith(")", closing)
        if has_parentheses and not has_arguments:
            end = closing + 1
        is_call = (has_parentheses or (word in _WITHOUT_PARENTHESES and not is_column)) and not has_arguments
        if word == "current_time" and (is_call or has_arguments) and not is_column:
            raise RelativeWord(text=text, word=token["word"])
        parts.append(literals[word] if is_call and word in literals else text[token.start() : end])
        done = end
    return "".join([*parts, text[done:]])


def _end_of_space(text: str, start: int) -> int:
    """Return the position of the first character from `start` on that is not part of white space or of a comment."""
    while space := _SPACE.match(text, start):
        start = _end_of_comment(text, space.end()) if space[0] == "/*" else space.end()
    return start


def _end_of_comment(text: str, start: int) -> int:
    """Return the position after the end of a block comment. `start` is the position after the `/*` of the comment.

    A block comment can contain other block comments.
    """
    depth = 1
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return start + mark.end()
    return len(text)
