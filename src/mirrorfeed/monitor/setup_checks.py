"""All checks, in the order in which a publication would miss what they look for. Only the ledger is left behind."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.config import ONELAKE, Config
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.display.humanize import size
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.feed.detail import detail_of
from mirrorfeed.feed.errors import FeedOff, SettingFixed
from mirrorfeed.feed.keys import check_policies, in_unity_catalog, table_of
from mirrorfeed.feed.settings import ALL_DAYS, all_days_are_read
from mirrorfeed.feed.source import Source
from mirrorfeed.feed.switch import Feed, feed_of
from mirrorfeed.feed.whole import whole
from mirrorfeed.files.place import place_for
from mirrorfeed.files.trial import trial
from mirrorfeed.landing.limits import CHANGES_A_DAY, MANY_CHANGES, MOST_TABLES, SPREAD, about_tables
from mirrorfeed.monitor.setup_check import Check, State, missing
from mirrorfeed.monitor.setup_hosts import check_hosts
from mirrorfeed.monitor.setup_rights import check_rights, needed
from mirrorfeed.publish import ledger
from mirrorfeed.stores import NotThere, Store
from mirrorfeed.workspace import default_workspace

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


def new_folder() -> str:
    """The name of a folder that readers of the landing zone ignore. It exists only while one run checks."""
    return f"_mirrorfeed_preflight-{uuid.uuid4().hex}"


_TOKEN_FOR = "https://storage.azure.com/.default"


def preflight(
    spark: SparkSession, config: Config, workspace: Callable[[], WorkspaceClient] = default_workspace
) -> Iterator[Check]:
    yield from _rights(config, workspace)
    if config.ledger:
        yield _ledger(spark, config.ledger)
    yield from check_hosts(config)
    yield check_credential(config)
    yield from _landing_zone(spark, config)
    yield from _policies(config, workspace)
    for table in config.tables:
        yield _rows(spark, table.source) if table.changes == "compare" else _feed(spark, table.source)
    yield check_tables(len(config.tables))
    if config.ledger:
        yield _changes(spark, config, config.ledger)
    yield check_days(spark)


def _policies(config: Config, workspace: Callable[[], WorkspaceClient]) -> Iterator[Check]:
    """Of tables in Unity Catalog, which alone have any."""
    tables = [table for table in config.tables if table.changes != "compare"]
    governed = [table.source for table in tables if in_unity_catalog(table.source)]
    if not governed:
        return
    try:
        client = workspace()
    except ValueError:
        return  # said with the rights
    for source in governed:
        what = f"no row filter and no column mask on {source}"
        try:
            check_policies(source, table_of(client, source))
            yield Check(what, State.OK)
        except Exception as error:
            yield missing(what, error)


def _rights(config: Config, workspace: Callable[[], WorkspaceClient]) -> Iterator[Check]:
    rights = needed(config)
    if not rights:
        yield Check("rights in Unity Catalog", State.NOT_CHECKED, "nothing of the configuration is in it")
        return
    try:
        client = workspace()
    except ValueError:
        things = ", ".join(dict.fromkeys(right.thing for right in rights))
        yield Check("rights in Unity Catalog", State.NOT_CHECKED, f"no workspace is configured here: {things}")
        return
    yield from check_rights(client, rights)


def _ledger(spark: SparkSession, source: Source) -> Check:
    """It is made here, so that who looks at it before the first publication finds it empty."""
    what = f"ledger {source}"
    try:
        ledger.prepare(spark, source)
    except MirrorfeedError as error:
        return Check(what, State.MISSING, error.problem, error.code)
    return Check(what, State.OK)


def check_credential(config: Config) -> Check:
    if not config.landing_zone.startswith(ONELAKE):
        return Check("credential", State.NOT_CHECKED, "the landing zone is not in OneLake")
    from mirrorfeed.credentials import token_credential

    try:
        token_credential(config.credential, config.ca_file).get_token(_TOKEN_FOR)
    except Exception as error:
        return missing("credential", error)
    return Check("credential", State.OK, str(config.credential))


def _landing_zone(spark: SparkSession, config: Config) -> Iterator[Check]:
    """The driver records, sends and renames; executors are asked for where they are to send."""
    store = zone_of(config)
    folder = new_folder()

    def from_driver() -> None:
        store.create(f"{folder}/driver", b"")
        store.remove(f"{folder}/driver")

    def from_executor() -> None:
        _write_on_executor(spark, store, f"{folder}/executor")
        try:
            store.read(f"{folder}/executor")
        except NotThere as error:
            raise ExecutorsElsewhere(store.address("")) from error
        store.remove(f"{folder}/executor")

    def tried(who: str, attempt: Callable[[], None]) -> Check:
        what = f"landing zone, written by {who}"
        try:
            attempt()
            return Check(what, State.OK, store.address(""))
        except Exception as error:
            return missing(what, error)

    driver = tried("the driver", from_driver)
    yield driver
    if driver.state is State.OK:  # else it is the same trouble again
        yield check_place(spark, config, store)
    if config.send == "executors":
        yield tried("executors", from_executor)
    try:
        store.remove_folder(folder)
    except MirrorfeedError as error:
        yield missing("landing zone, clean again", error)


def check_place(
    spark: SparkSession, config: Config, store: Store, environment: Mapping[str, str] = os.environ
) -> Check:
    what = "files, written by Spark and read by the driver"
    try:
        place = place_for(spark, config.handover, store, environment)
        if place is None:
            return Check(what, State.NOT_CHECKED, "there is no handover: few rows can be published, and no more")
        differs = trial(spark, place, store)
    except Exception as error:
        return missing(what, error)
    return Check(what, State.OK, f"{place.root}{f': made anew on their way, for {differs}' if differs else ''}")


def _write_on_executor(spark: SparkSession, store: Store, path: str) -> None:
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                store.create(path, b"")
            yield batch

    spark.range(1).mapInArrow(write, "id bigint").collect()


def check_tables(count: int) -> Check:
    near = about_tables(count)
    state = State.MISSING if count > MOST_TABLES else State.OK
    return Check("room for the tables in one mirrored database", state, near or f"{count} of {MOST_TABLES}")


def _changes(spark: SparkSession, config: Config, place: Source) -> Check:
    names, since = [str(table.target) for table in config.tables], datetime.now(UTC) - timedelta(days=1)
    try:
        return check_changes(ledger.changed_since(spark, place, names, since))
    except Exception as error:
        return replace(missing(_CHANGES, error), state=State.NOT_CHECKED)


def check_changes(count: int) -> Check:
    """By what the ledger tells of the last day, of files as they are sent."""
    told = f"{size(count)} of about {size(CHANGES_A_DAY)}"
    if count < MANY_CHANGES:
        return Check(_CHANGES, State.OK, told)
    return Check(_CHANGES, State.MISSING if count > CHANGES_A_DAY else State.OK, f"{told}. {SPREAD}")


_CHANGES = "room for the changes of a day in one mirrored database"


def _feed(spark: SparkSession, source: Source) -> Check:
    what = f"change data feed of {source}"
    try:
        feed = feed_of(spark, source, detail_of(spark, source))
    except Exception as error:
        return missing(what, error)
    if feed is Feed.OFF:
        return Check(what, State.MISSING, "it is off: run `mirrorfeed enable`", FeedOff.code)
    return Check(what, State.OK, feed.value)


def _rows(spark: SparkSession, source: Source) -> Check:
    what = f"rows of {source}, which are compared"
    try:
        _ = whole(spark, source).schema
    except Exception as error:
        return missing(what, error)
    return Check(what, State.OK)


def check_days(spark: SparkSession) -> Check:
    """Of Delta's feed; a snapshot has all days anyway."""
    what = "days from 1582-10-05 to 1582-10-14 in change feeds"
    try:
        if all_days_are_read(spark):
            return Check(what, State.OK)
    except SettingFixed as error:
        return missing("settings of the Spark session", error)
    detail = (
        f"this session does not let {ALL_DAYS} be set, without which Delta's feed gives 1582-10-15 for each of"
        " them: where a table may have such dates or times, publish it by compute whose Spark settings can be set"
    )
    return Check(what, State.NOT_CHECKED, detail)


class ExecutorsElsewhere(MirrorfeedError):
    """The landing zone is a folder that only the driver sees, while the executors of the cluster are to write there."""

    code = "MF1305"

    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"What an executor wrote to {self.address} is not there for the driver."

    def next(self) -> str:
        return "Use a landing zone that all machines of the cluster share."
