"""Plans a restore for a query or a range of the change data feed, and checks a plan before it is carried out."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import guard, restore_plan
from mirrorfeed.archive.archived_files import NeededFiles, archived_of
from mirrorfeed.archive.engines import TableFacts, engine_of
from mirrorfeed.archive.errors import (
    FeedOnDatabricks,
    NoInterval,
    NoSuchRange,
    NothingToRestore,
    PlanOfAnotherTable,
    RelativeWord,
)
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.restore_plan import Plan
from mirrorfeed.archive.table import GuardedTable
from mirrorfeed.runtime.errors import FILES_GONE, first_of
from mirrorfeed.runtime.spark_session import is_databricks, setting
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.next_step import Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tiers import Prices, Priority, TierStore

_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in the time zone of a session."""

    micros: int
    """Since the epoch."""
    date: str
    local: str
    """Date and time without a zone."""
    zone: str


def moment(spark: SparkSession, now: datetime) -> Moment:
    micros = int(now.astimezone(UTC).timestamp() * 1_000_000)
    at = f"timestamp_micros({micros})"
    asked = f"SELECT string(CAST({at} AS DATE)), string(CAST({at} AS TIMESTAMP_NTZ)), current_timezone()"
    date, local, zone = spark.sql(asked).collect()[0]
    return Moment(micros, date, local, zone)


def in_zone(spark: SparkSession, zone: str | None) -> AbstractContextManager[None]:
    """The session has the time zone in which a plan was made."""
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
"""Spark accepts these also without parentheses, unless a column has this name."""


def fix_relative_times(text: str, at: Moment, columns: Collection[str] = ()) -> str:
    """A condition or statement with every relative time replaced by its value now, because a plan is carried out hours
    later. Raises `RelativeWord` for one that cannot be replaced."""
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
    """Block comments can be nested."""
    depth = 1
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return start + mark.end()
    return len(text)


def make_plan(
    spark: SparkSession,
    source: Source | None,
    priority: Priority,
    rates: Prices | None,
    now: datetime,
    *,
    where: str | None = None,
    feed_from: int | None = None,
    feed_to: int | None = None,
    sql: str | None = None,
) -> Plan:
    """For a query on a table at its newest version, a range of its change data feed, or any query in `sql`."""
    at = moment(spark, now)
    if sql is not None:
        asked = fix_relative_times(sql, at)
        needed = Guarded(spark, now=lambda: now).needed(asked)
        if not needed:
            raise NothingToRestore(statement=sql)
        return restore_plan.make(needed, priority, rates=rates, sql=asked, zone=at.zone)
    assert source is not None
    engine = engine_of(spark)
    facts = engine.facts(source)
    if facts.policy is None:
        raise NoInterval(table=str(source))
    if feed_from is not None:
        needed = [_needed_by_feed(spark, facts, feed_from, feed_to, now)]
    else:
        where = None if where is None else fix_relative_times(where, at, facts.columns)
        needed = [engine.needed(facts, where, now)]
    return restore_plan.make(needed, priority, rates=rates, where=where, feed_from=feed_from, zone=at.zone)


def _needed_by_feed(spark: SparkSession, facts: TableFacts, first: int, last: int | None, now: datetime) -> NeededFiles:
    source = facts.source
    if is_databricks(spark):
        raise FeedOnDatabricks(table=str(source))
    newest = versions.newest_version(spark, source)
    end = newest if last is None else last
    if not 0 <= first <= end <= newest:
        raise NoSuchRange(table=str(source), first=first, last=last, newest=newest)
    range_ = Range(first - 1, end)
    try:
        table = read_table_info(spark, source)
        changed = guard.needed(spark, source, table, range_)
    except AnalysisException as error:
        if first_of(error, FILES_GONE) is None:
            raise
        raise NoSuchRange(table=str(source), first=first, last=end, newest=newest) from error
    _check_readable(spark, source, range_)
    files = archived_of(spark, str(source), table.location, changed, facts.policy, now)
    return NeededFiles(str(source), facts.table_id, table.location, end, tuple(files))


def _check_readable(spark: SparkSession, source: Source, range_: Range) -> None:
    """Raises `Gap` if Delta cannot read the range even after a restore, for example after the retention."""
    with reader.read_errors(str(source), range_):
        reader.changes(spark, source, range_)


def check_plan(spark: SparkSession, plan: Plan) -> None:
    """Raises `PlanOfAnotherTable` if a table was replaced, or does not have the version of the plan."""
    for table in plan.tables:
        source = Source.parse(table.table)
        check_table(table, read_table_info(spark, source).table_id, versions.newest_version(spark, source))


def check_table(planned: NeededFiles, table_id: str, newest: int) -> None:
    if planned.table_id != table_id:
        raise PlanOfAnotherTable(table=planned.table, planned=planned.table_id, found=table_id)
    if planned.version > newest:
        then, now = f"{planned.table_id} at version {planned.version}", f"{table_id} at {newest}"
        raise PlanOfAnotherTable(table=planned.table, planned=then, found=now)


def run_query(spark: SparkSession, plan: Plan, tiers: TierStore, now: datetime) -> DataFrame | None:
    """The rows of the planned query, guarded, because more files may count as archived now. None if the plan is for a
    range of the change data feed, which is only checked, or for files alone."""
    source = Source.parse(plan.table)
    if plan.sql is not None:
        return Guarded(spark, lambda _: tiers, lambda: now).sql(plan.sql)
    if plan.files_alone:
        return None
    if plan.feed_from is None:
        return GuardedTable(spark, source, tiers, lambda: now).query(plan.where, version=plan.version)
    range_ = Range(plan.feed_from - 1, plan.version)
    guard.check(spark, source, range_, read_table_info(spark, source).properties, tiers, now)
    _check_readable(spark, source, range_)
    return None
