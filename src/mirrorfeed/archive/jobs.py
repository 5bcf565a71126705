"""Plans for tables: what a question needs, and whether a plan still fits its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import feed, policy, restore
from mirrorfeed.archive import plan as planning
from mirrorfeed.archive.engine import is_databricks
from mirrorfeed.archive.files import archived_of, index_of
from mirrorfeed.archive.guard import ArchiveAwareTable
from mirrorfeed.archive.moment import frozen, moment
from mirrorfeed.archive.plan import Plan
from mirrorfeed.archive.statement import Guarded, plan_of
from mirrorfeed.config.prices import Rates
from mirrorfeed.errors import Terminal
from mirrorfeed.feed import history
from mirrorfeed.feed.faults import FILES_GONE, first_of
from mirrorfeed.feed.ranges import Range
from mirrorfeed.feed.source import Source
from mirrorfeed.stores.tiered import tiers_at
from mirrorfeed.stores.tiers import Facts, OtherPlace, Priority, Tier, TierStore


def make_plan(
    spark: SparkSession,
    source: Source,
    where: str | None,
    feed_from: int | None,
    feed_to: int | None,
    priority: Priority,
    rates: Rates | None,
    now: datetime,
) -> Plan:
    """For a query at the newest version, or for the change feed from one version to another."""
    index = index_of(spark, source)
    facts = index.facts()
    interval = policy.understood(str(source), facts.properties)
    if interval is None:
        raise policy.NoPolicy(str(source))
    at = moment(spark, now)
    if feed_from is None:
        asked = None if where is None else frozen(where, at, facts.columns)
        answer = index.needed(asked, interval, now, None)
        version, archived = answer.version, list(answer.archived)
    else:
        asked = None
        if is_databricks(spark):
            raise FeedOnDatabricks(str(source))
        version = _last_of_range(spark, source, feed_from, feed_to)
        try:
            table = history.detail(spark, source)
            changed = feed.needed(spark, source, table, Range(feed_from - 1, version))
        except AnalysisException as error:
            if first_of(error, FILES_GONE) is None:
                raise
            raise NoSuchRange(str(source), feed_from, feed_to, version) from error
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


def _last_of_range(spark: SparkSession, source: Source, first: int, last: int | None) -> int:
    newest = history.newest_version(spark, source)
    end = newest if last is None else last
    if not 0 <= first <= end <= newest:
        raise NoSuchRange(str(source), first, last, newest)
    return end


def make_statement_plan(
    spark: SparkSession, statement: str, priority: Priority, rates: Rates | None, now: datetime
) -> Plan:
    """For any query over tables that have an archive."""
    at = moment(spark, now)
    asked = frozen(statement, at)
    tables = Guarded(spark, now=lambda: now).needed(asked)
    if not tables:
        raise NothingToBringBack(statement)
    return plan_of(asked, tables, priority, rates, at.zone)


def check_plan(spark: SparkSession, made: Plan) -> None:
    """Refuses a plan of which a table is another now."""
    for table in made.tables:
        source = Source.parse(table.table)
        newest = history.newest_version(spark, source)
        one = replace(made, table=table.table, table_id=table.table_id, version=table.version)
        restore.check_table(one, history.detail(spark, source).table_id, newest)


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
    properties = history.detail(spark, source).properties
    feed.check(spark, source, Range(made.feed_from - 1, made.version), properties, tiers, now)
    return None


@dataclass(frozen=True)
class TiersOfTables:
    """Files of several tables, each where its own address says."""

    uris: tuple[str, ...]
    """All that it is asked about."""
    at: Callable[[str], TierStore | None] = tiers_at

    @property
    def keeps(self) -> bool:
        return all(store.keeps for store, _ in self._parts(self.uris))

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        return {uri: facts for store, part in self._parts(uris) for uri, facts in store.facts(part).items()}

    def look(self, uris: Sequence[str]) -> dict[str, Tier]:
        return {uri: tier for store, part in self._parts(uris) for uri, tier in store.look(part).items()}

    def bring_back(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        answers = (store.bring_back(part, priority, to, days) for store, part in self._parts(uris))
        return {uri: why for refused in answers for uri, why in refused.items()}

    def _parts(self, uris: Sequence[str]) -> list[tuple[TierStore, list[str]]]:
        found: list[tuple[TierStore, list[str]]] = []
        for uri in uris:
            store = self.at(uri)
            if store is None:
                raise OtherPlace(uri, "a place whose tiers are known")
            same = next((part for other, part in found if other == store), None)
            if same is None:
                found.append((store, [uri]))
            else:
                same.append(uri)
        return found


class FeedOnDatabricks(Terminal):
    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"Databricks does not tell which archived files the change feed of {self.table} needs."

    def next(self) -> str:
        return "Plan with open source Spark on the table's path, or publish before files reach the archive."


class NoSuchRange(Terminal):
    def __init__(self, table: str, first: int, last: int | None, newest: int) -> None:
        self.table, self.first, self.last, self.newest = table, first, last, newest

    def what(self) -> str:
        end = "the newest version" if self.last is None else f"version {self.last}"
        return f"The log of {self.table} has no range from version {self.first} to {end}: its newest is {self.newest}."

    def next(self) -> str:
        return "Name versions that DESCRIBE HISTORY still shows, the first before the last."


class NothingToBringBack(Terminal):
    def __init__(self, statement: str) -> None:
        self.statement = statement

    def what(self) -> str:
        return (
            f"No file that {' '.join(self.statement.split())!r} needs counts as archived, so there is nothing to plan."
        )

    def next(self) -> str:
        return "Run it as it is."
