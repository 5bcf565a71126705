"""Plans a restore for a query or a range of the change data feed, and checks a plan before it is carried out."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import restore
from mirrorfeed.archive import restore_plan as planning
from mirrorfeed.archive.errors import FeedOnDatabricks, NoPolicy, NoSuchRange, NothingToBringBack, RelativeWord
from mirrorfeed.archive.file_index.archived_files import archived_of
from mirrorfeed.archive.guard import change_feed
from mirrorfeed.archive.guard.archived_files_needed import plan_of
from mirrorfeed.archive.guard.query import Guarded, index_of
from mirrorfeed.archive.guard.table import ArchiveAwareTable
from mirrorfeed.archive.interval import understood
from mirrorfeed.archive.restore_plan import Plan
from mirrorfeed.runtime.engine import is_databricks, setting
from mirrorfeed.runtime.spark_errors import FILES_GONE, first_of
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import Priority, TierStore

_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as a session tells it."""

    micros: int
    """Since the epoch."""
    date: str
    local: str
    """The time of its day, without a zone."""
    zone: str


def moment(spark: SparkSession, now: datetime) -> Moment:
    micros = int(now.astimezone(UTC).timestamp() * 1_000_000)
    at = f"timestamp_micros({micros})"
    asked = f"SELECT string(CAST({at} AS DATE)), string(CAST({at} AS TIMESTAMP_NTZ)), current_timezone()"
    date, local, zone = spark.sql(asked).collect()[0]
    return Moment(micros, date, local, zone)


def in_zone(spark: SparkSession, zone: str | None) -> AbstractContextManager[None]:
    """The session tells times as the one did in which a plan was made."""
    return nullcontext() if zone is None else setting(spark, _ZONE, zone)


_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* ) | (?P<block> /\* ) |
    (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" ) | (?P<quoted> `(?:[^`]|``)*` ) |
    (?P<alias> \b(?i:AS)\s+[A-Za-z_]\w*\b(?!\s*\() ) |
    (?P<word> (?<![\w.]) [A-Za-z_]\w* ) (?P<call> \s*\(\s*\) )?
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
_BARE = ("current_date", "current_timestamp", "localtimestamp", "current_time")
"""Spark takes these without parentheses too, where no column is called so."""


def frozen(text: str, at: Moment, columns: Collection[str] = ()) -> str:
    """The same condition or statement with each word that means another time later replaced by what it means now; or
    `RelativeWord` for one that cannot be replaced."""
    literals = {
        **dict.fromkeys(("current_date", "curdate"), f"DATE '{at.date}'"),
        **dict.fromkeys(("current_timestamp", "now", "getdate"), f"timestamp_micros({at.micros})"),
        "localtimestamp": f"TIMESTAMP_NTZ '{at.local}'",
        "unix_timestamp": f"{at.micros // 1_000_000}L",
        "current_timezone": f"'{at.zone}'",
    }
    own = {name.lower() for name in columns}
    found, done = [], 0
    while token := _TOKEN.search(text, done):
        found.append(text[done : token.start()])
        end = _end_of_comment(text, token.end()) if token["block"] else token.end()
        word, is_call = (token["word"] or "").lower(), token["call"] is not None
        if token["text"] and _SPECIAL.fullmatch(token["text"].lstrip("rR")[1:-1]):
            raise RelativeWord(text=text, word=token["text"])
        meant = is_call or (word in _BARE and word not in own and not text[end:].lstrip().startswith("("))
        if word == "current_time" and (meant or text[end:].lstrip().startswith("(")) and word not in own:
            raise RelativeWord(text=text, word=token["word"])
        found.append(literals[word] if meant and word in literals else text[token.start() : end])
        done = end
    return "".join([*found, text[done:]])


def _end_of_comment(text: str, start: int) -> int:
    """Comments of this kind stand in one another."""
    depth = 1
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return start + mark.end()
    return len(text)


def make_plan(
    spark: SparkSession,
    source: Source,
    where: str | None,
    feed_from: int | None,
    feed_to: int | None,
    priority: Priority,
    rates: Prices | None,
    now: datetime,
) -> Plan:
    """For a query at the newest version, or for the change feed from one version to another."""
    index = index_of(spark, source)
    facts = index.facts()
    interval = understood(str(source), facts.properties)
    if interval is None:
        raise NoPolicy(table=str(source))
    at = moment(spark, now)
    if feed_from is None:
        asked = None if where is None else frozen(where, at, facts.columns)
        answer = index.needed(asked, interval, now, None)
        version, archived = answer.version, list(answer.archived)
    else:
        asked = None
        if is_databricks(spark):
            raise FeedOnDatabricks(table=str(source))
        version = _last_of_range(spark, source, feed_from, feed_to)
        range_ = Range(feed_from - 1, version)
        try:
            table = read_table_info(spark, source)
            changed = change_feed.needed(spark, source, table, range_)
        except AnalysisException as error:
            if first_of(error, FILES_GONE) is None:
                raise
            raise NoSuchRange(table=str(source), first=feed_from, last=feed_to, newest=version) from error
        _check_readable(spark, source, range_)
        archived = archived_of(spark, str(source), table.location, changed, interval, now)
    return planning.make(
        str(source),
        facts.table_id,
        version,
        archived,
        priority,
        where=asked,
        feed_from=feed_from,
        rates=rates,
        zone=at.zone,
    )


def _check_readable(spark: SparkSession, source: Source, range_: Range) -> None:
    """Or `Gap`, where Delta does not read the range whatever is brought back, as one that is past its retention."""
    with reader.read_errors(str(source), range_):
        reader.changes(spark, source, range_)


def _last_of_range(spark: SparkSession, source: Source, first: int, last: int | None) -> int:
    newest = versions.newest_version(spark, source)
    end = newest if last is None else last
    if not 0 <= first <= end <= newest:
        raise NoSuchRange(table=str(source), first=first, last=last, newest=newest)
    return end


def make_statement_plan(
    spark: SparkSession, statement: str, priority: Priority, rates: Prices | None, now: datetime
) -> Plan:
    """For any query over tables that have an archive."""
    at = moment(spark, now)
    asked = frozen(statement, at)
    tables = Guarded(spark, now=lambda: now).needed(asked)
    if not tables:
        raise NothingToBringBack(statement=statement)
    return plan_of(asked, tables, priority, rates, at.zone)


def check_plan(spark: SparkSession, made: Plan) -> None:
    """Refuses a plan of which a table is another now."""
    for table in made.tables:
        source = Source.parse(table.table)
        newest = versions.newest_version(spark, source)
        one = replace(made, table=table.table, table_id=table.table_id, version=table.version)
        restore.check_table(one, read_table_info(spark, source).table_id, newest)


def look_again(spark: SparkSession, made: Plan, tiers: TierStore, now: datetime) -> DataFrame | None:
    """The rows that were planned for, once it is known that all they need can be read: other files may have come to
    count as archived meanwhile. None where a plan has no rows to show: that of a range of the feed, or of files."""
    source = Source.parse(made.table)
    if made.sql is not None:
        return Guarded(spark, lambda _: tiers, lambda: now).sql(made.sql)
    if made.files_alone:
        return None
    if made.feed_from is None:
        return ArchiveAwareTable(spark, source, tiers, lambda: now).query(made.where, version=made.version)
    range_ = Range(made.feed_from - 1, made.version)
    change_feed.check(spark, source, range_, read_table_info(spark, source).properties, tiers, now)
    _check_readable(spark, source, range_)
    return None
