"""Checks everything that publishing needs: permissions, credential, landing zone, ledger and sources.

The checks write small files into the landing zone and remove them. They create the ledger, which stays.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.config import ONELAKE, Config
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.display.humanize import size
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.limits import CHANGES_A_DAY, MANY_CHANGES, MOST_TABLES, SPREAD, about_tables
from mirrorfeed.monitor.facts import Collector, TableFacts
from mirrorfeed.monitor.rules import Finding
from mirrorfeed.monitor.setup_check import failed, failed_with, not_checked, passed
from mirrorfeed.monitor.setup_hosts import check_hosts
from mirrorfeed.monitor.setup_rights import check_rights, needed
from mirrorfeed.monitor.staging_probe import trial
from mirrorfeed.orchestration import ledger
from mirrorfeed.publish.files.staging_area import place_for
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.errors import SettingFixed
from mirrorfeed.runtime.session_settings import ALL_DAYS, all_days_are_read
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import NotThere, Store

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient


def new_folder() -> str:
    """The name of a folder that readers of the landing zone ignore. It exists only while one run checks."""
    return f"_mirrorfeed_setup-{uuid.uuid4().hex}"


_PRIVILEGES = "privileges in Unity Catalog"
_TOKEN_FOR = "https://storage.azure.com/.default"


def check_setup(
    spark: SparkSession, config: Config, workspace: Callable[[], WorkspaceClient] = default_workspace
) -> Iterator[Finding]:
    """In the order in which a publication would need them."""
    yield from _rights(config, workspace)
    if config.ledger:
        yield _ledger(spark, config.ledger)
    yield from check_hosts(config)
    yield check_credential(config)
    yield from _landing_zone(spark, config)
    for facts in Collector(config, lambda: spark, deep=True, workspace=workspace).collect(config.tables):
        yield check_source(facts)
    yield check_tables(len(config.tables))
    if config.ledger:
        yield _changes(spark, config, config.ledger)
    yield check_days(spark)


def _rights(config: Config, workspace: Callable[[], WorkspaceClient]) -> Iterator[Finding]:
    rights = needed(config)
    if not rights:
        yield not_checked(_PRIVILEGES, "the configuration uses nothing in it")
        return
    try:
        client = workspace()
    except ValueError:
        things = ", ".join(dict.fromkeys(right.thing for right in rights))
        yield not_checked(_PRIVILEGES, f"no workspace is configured here: {things}")
        return
    yield from check_rights(client, rights)


def _ledger(spark: SparkSession, source: Source) -> Finding:
    """Creates the ledger, so that readers find it before the first publication."""
    what = f"ledger {source}"
    try:
        ledger.prepare(spark, source)
    except MirrorfeedError as error:
        return failed_with(what, error)
    return passed(what)


def check_credential(config: Config) -> Finding:
    if not config.landing_zone.startswith(ONELAKE):
        return not_checked("credential", "the landing zone is not in OneLake")
    from mirrorfeed.runtime.credentials import token_credential

    try:
        token_credential(config.credential, config.ca_file).get_token(_TOKEN_FOR)
    except Exception as error:
        return failed_with("credential", error)
    return passed("credential", str(config.credential))


def _landing_zone(spark: SparkSession, config: Config) -> Iterator[Finding]:
    """The driver writes records and renames files. Executors write only if they upload files."""
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

    def tried(who: str, attempt: Callable[[], None]) -> Finding:
        what = f"landing zone, written by {who}"
        try:
            attempt()
            return passed(what, store.address(""))
        except Exception as error:
            return failed_with(what, error)

    driver = tried("the driver", from_driver)
    yield driver
    if driver.ok:  # otherwise it is the same problem
        yield check_place(spark, config, store)
    if config.send == "executors":
        yield tried("executors", from_executor)
    try:
        store.remove_folder(folder)
    except MirrorfeedError as error:
        yield failed_with("landing zone, clean again", error)


def check_place(
    spark: SparkSession, config: Config, store: Store, environment: Mapping[str, str] = os.environ
) -> Finding:
    what = "files, written by Spark and read by the driver"
    try:
        place = place_for(spark, config.handover, store, environment)
        if place is None:
            return not_checked(what, "there is no handover: only small batches can be published")
        differs = trial(spark, place, store)
    except Exception as error:
        return failed_with(what, error)
    return passed(
        what, f"{place.root}{f': rewritten by the driver, because Spark writes {differs}' if differs else ''}"
    )


def _write_on_executor(spark: SparkSession, store: Store, path: str) -> None:
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                store.create(path, b"")
            yield batch

    spark.range(1).mapInArrow(write, "id bigint").collect()


def check_tables(count: int) -> Finding:
    check, found = "number of tables in one mirrored database", f"{count} of {MOST_TABLES}"
    if count > MOST_TABLES:
        return failed(check, found, SPREAD)
    return passed(check, about_tables(count) or found)


def _changes(spark: SparkSession, config: Config, place: Source) -> Finding:
    names, since = [str(table.target) for table in config.tables], datetime.now(UTC) - timedelta(days=1)
    try:
        return check_changes(ledger.changed_since(spark, place, names, since))
    except Exception as error:
        return not_checked(_CHANGES, failed_with(_CHANGES, error).what)


def check_changes(count: int) -> Finding:
    """`count` are the bytes of the files of the last day in the ledger."""
    found = f"{size(count)} of about {size(CHANGES_A_DAY)}"
    if count > CHANGES_A_DAY:
        return failed(_CHANGES, found, SPREAD)
    return passed(_CHANGES, found if count < MANY_CHANGES else f"{found}. {SPREAD}")


_CHANGES = "changes of one day in one mirrored database"


def check_source(facts: TableFacts) -> Finding:
    """Errors of the landing zone are left out if the source was read, because they have a check of their own."""
    check, errors = f"changes of {facts.source_name}", facts.errors
    if facts.source_facts is None or (errors and facts.log_facts):
        return failed_with(check, errors[-1])
    return passed(check, facts.source_facts.feed)


def check_days(spark: SparkSession) -> Finding:
    """Whether change feeds have these days. Snapshots always have them."""
    what = "days from 1582-10-05 to 1582-10-14 in change feeds"
    try:
        if all_days_are_read(spark):
            return passed(what)
    except SettingFixed as error:
        return failed_with("settings of the Spark session", error)
    reason = (
        f"this session does not allow changing {ALL_DAYS}, without which Delta's feed returns 1582-10-15 for each of"
        " them. Publish tables with such dates or times on compute whose Spark settings can be changed"
    )
    return not_checked(what, reason)


class ExecutorsElsewhere(MirrorfeedError):
    """The landing zone is a folder that only the driver sees, while the executors of the cluster are to write there."""

    code = "MF1305"

    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"What an executor wrote to {self.address} is not there for the driver."

    def next(self) -> str:
        return "Use a landing zone that all machines of the cluster share."
