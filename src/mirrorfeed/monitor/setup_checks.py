"""Checks for `setup check` and `setup check-platform`: permissions, credential, landing zone, ledger, sources, hosts.

The checks write and remove test files in landing zone and staging area. `check_setup` creates the ledger if missing.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import counted, size
from mirrorfeed.errors import MirrorfeedError, StorageError, problem
from mirrorfeed.landing.names import LOG, MAX_DAILY_BYTES, SPREAD, WARN_DAILY_BYTES, table_limit_warning
from mirrorfeed.landing.schema import Column
from mirrorfeed.monitor.fact_collector import Collector
from mirrorfeed.monitor.findings import (
    Finding,
    TableFacts,
    attempt,
    failed,
    failed_with,
    not_applicable,
    not_checked,
    passed,
)
from mirrorfeed.monitor.platform_checks import (
    check_environment,
    check_host,
    check_mount,
    check_rights,
    check_settings,
    check_spark_writes,
    required_hosts,
    required_rights,
)
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.ledger_state import LedgerState
from mirrorfeed.publish.files.spark_files import check_file, write_with_spark
from mirrorfeed.publish.files.staging_area import StagingArea, staging_area_for
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.publish.rows_and_markers import PROBLEM
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.runtime.spark_session import ALL_DAYS, SparkSettingError, all_days_are_read
from mirrorfeed.storage import VOLUMES, Store
from mirrorfeed.storage.databricks_volume import VolumeStore
from mirrorfeed.storage.errors import PathExistsError, PathMissingError

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_CHANGES = "changes of one day in one mirrored database"
MANUAL_CHECKS = "docs/go-live-checklist.md"
"""Page with the checks that only a person can make."""


@problem(StorageError, "MF1305")
def executors_use_other_folder(*, address: str) -> None:
    """An executor wrote a file to {address}, but the driver cannot see the file.

    Use a landing zone that all machines of the cluster can access.
    """


@problem(StorageError, "MF1306")
def storage_check_failed(*, found: str) -> None:
    """The storage of the landing zone does not behave as publishing requires: {found}.

    Do not publish to this landing zone. Open an issue with this message.
    """


def new_folder() -> str:
    """Return a unique folder name for test files. Readers of the landing zone ignore a folder with this name."""
    return f"_mirrorfeed_setup-{uuid.uuid4().hex}"


def check_setup(
    spark: SparkSession, config: Config, workspace: Callable[[], WorkspaceClient] = default_workspace
) -> Iterator[Finding]:
    """Run the checks of `setup check`, and yield the result of each. Creates the ledger if it does not exist."""
    progress.info("Checking the setup")
    location = config.ledger
    yield from check_rights(workspace, required_rights(config))
    if location:  # create the ledger, so that queries find it before the first publication
        state = LedgerState(lambda: zone_of(config), location)
        yield attempt(f"ledger {location}", lambda: ledger.prepare(spark, location, state.remove))
    for address, purpose in required_hosts(config).items():
        yield check_host(address, purpose, config.ca_bundle)
    yield check_credential(config)
    yield from _check_landing_zone(spark, config)
    for facts in Collector(config, lambda: spark, deep=True, workspace=workspace).collect(config.tables):
        yield check_source(facts)
    yield check_tables(len(config.tables))
    if location:
        names, since = [str(table.target) for table in config.tables], datetime.now(UTC) - timedelta(days=1)
        try:
            yield check_changes(ledger.changed_since(spark, location, names, since))
        except Exception as error:
            yield not_checked(_CHANGES, failed_with(_CHANGES, error).what)
    yield check_days(spark)


def check_credential(config: Config) -> Finding:
    if config.onelake is None:
        return not_applicable("credential", "the landing zone is not in OneLake")
    from mirrorfeed.runtime.login import token_credential

    def get_token() -> str:
        token_credential(config.credential, config.ca_bundle).get_token("https://storage.azure.com/.default")
        return str(config.credential)

    return attempt("credential", get_token)


def _check_landing_zone(spark: SparkSession, config: Config) -> Iterator[Finding]:
    """Check whether test files can be written, and yield the result for each writer.

    The driver writes a file to the landing zone. Spark writes files to the staging area, if the driver succeeded.
    Executors write a file to the landing zone, if `config.upload_from` is `executors`.
    """
    store, folder = zone_of(config), new_folder()

    def from_driver() -> str:
        store.create(f"{folder}/driver", b"")
        store.remove(f"{folder}/driver")
        return store.address("")

    def on_executor(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                store.create(f"{folder}/executor", b"")
            yield batch

    def from_executor() -> str:
        cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
        spark.range(1).mapInArrow(on_executor, "id bigint").collect()
        try:
            store.read(f"{folder}/executor")
        except PathMissingError as error:
            raise executors_use_other_folder(address=store.address("")) from error
        store.remove(f"{folder}/executor")
        return store.address("")

    driver = attempt("landing zone, written by the driver", from_driver)
    yield driver
    if driver.ok:  # otherwise the staging area has the same problem
        yield check_staging_area(spark, config, store)[0]
    if config.upload_from == "executors":
        yield attempt("landing zone, written by executors", from_executor)
    try:
        store.remove_folder(folder)
    except MirrorfeedError as error:
        yield failed_with("landing zone, files of this check removed", error)


def check_staging_area(spark: SparkSession, config: Config, store: Store) -> tuple[Finding, StagingArea | None]:
    """Check whether the driver can read files that Spark writes, and return the result.

    The result also shows whether the driver must rewrite the files, because Spark writes them with another schema.
    Also returns the staging area, or None if it is not configured or cannot be used."""
    check = "files, written by Spark and read by the driver"
    try:
        area = staging_area_for(spark, config.staging_path, store)
        if area is None:
            return not_checked(check, "`staging_path` is not set, so only small batches can be published"), None
        differs = _write_sample(spark, area, store)
    except Exception as error:
        return failed_with(check, error), None
    rewritten = f": rewritten by the driver, because Spark writes {differs}" if differs else ""
    return passed(check, f"{area.root}{rewritten}"), area


def _write_sample(spark: SparkSession, area: StagingArea, store: Store) -> str:
    """Write a test file with Spark. Return its difference from the schema of published files, or an empty string."""
    columns = Column("id", "long"), Column("price", "decimal(9,2)"), Column("at", "timestamp"), Column("text", "string")
    rows = spark.sql(
        "SELECT 1L AS id, CAST(1.5 AS decimal(9,2)) AS price, timestamp'0001-01-01 00:00:00Z' AS at,"
        f" 'a' AS text, CAST(NULL AS int) AS {PROBLEM}"
    )
    folder, batch = f"{uuid.uuid4().hex}/{LOG}/{uuid.uuid4().hex}", uuid.uuid4().hex
    job = StagingJob(store, folder, 1, batch, columns, ("id",), False)
    with write_with_spark(rows, area, job) as files:
        for path in files.paths:
            with area.open(path) as file:
                return check_file(file, job).differs
    return "no file"


def check_tables(count: int) -> Finding:
    return passed("number of tables in one mirrored database", table_limit_warning(count) or f"{count}")


def check_changes(count: int) -> Finding:
    """Check whether `count` changed bytes in a day are within the limit of a mirrored database. Return the result."""
    volume = f"{size(count)} of about {size(MAX_DAILY_BYTES)}"
    if count > MAX_DAILY_BYTES:
        return failed(_CHANGES, volume, SPREAD)
    return passed(_CHANGES, volume if count < WARN_DAILY_BYTES else f"{volume}. {SPREAD}")


def check_source(facts: TableFacts) -> Finding:
    """Check whether changes of a source can be published, and return the result.

    Ignores an error in reading the table's log."""
    check = f"changes of {facts.source_name}"
    errors = facts.errors if facts.log_facts.is_read else facts.errors[1:]  # the first error is that of the log
    if errors or not facts.source_facts.is_read:
        return failed_with(check, facts.errors[-1])
    return passed(check, facts.source_facts.feed)


def check_days(spark: SparkSession) -> Finding:
    """Check whether change feeds return dates from 1582-10-05 to 1582-10-14 unchanged, and return the result.

    The calendar of older Spark versions does not have these days. Reads of snapshots always return them unchanged.
    """
    check = "days from 1582-10-05 to 1582-10-14 in change feeds"
    try:
        if all_days_are_read(spark):
            return passed(check)
    except SparkSettingError as error:
        return failed_with("settings of the Spark session", error)
    reason = (
        f"this session does not allow changing {ALL_DAYS}, without which Delta's feed returns 1582-10-15 for each of"
        " them. Publish tables with such dates or times on compute whose Spark settings can be changed"
    )
    return not_checked(check, reason)


def check_platform(spark: SparkSession, config: Config) -> Iterator[Finding]:
    """Run the checks of `setup check-platform`. No result contains names of tables, locations or people."""
    progress.info("Checking the platform")
    store = zone_of(config)
    for finding in _check_platform(spark, config, store):
        yield replace(finding, what=_anonymize(finding.what, config, store), fix=_anonymize(finding.fix, config, store))


def _check_platform(spark: SparkSession, config: Config, store: Store) -> Iterator[Finding]:
    yield check_environment(spark)
    for name, path in (("landing zone", config.landing_zone), ("staging area", config.staging_path or "")):
        if path.startswith(VOLUMES):
            yield check_mount(f"{name}: mount of the volume", path)
    folder = new_folder()
    for name, action in CHECKS.items():
        yield attempt(f"landing zone: {name}", partial(action, store, folder))
    finding, area = check_staging_area(spark, config, store)
    yield finding
    if area is not None:
        yield from check_spark_writes(spark, area)
    yield check_settings(spark)
    for address, purpose in required_hosts(config).items():
        yield check_host(address, purpose, config.ca_bundle)
    yield check_credential(config)
    yield not_checked("manual checks", f"the list is in {MANUAL_CHECKS}")


def _anonymize(text: str, config: Config, store: Store) -> str:
    """Return `text` with placeholders for mail addresses, landing zone, staging area, and names of their volumes."""
    for path, placeholder in (
        (store.address(""), "<landing zone>"),
        (config.landing_zone, "<landing zone>"),
        (config.staging_path, "<staging area>"),
    ):
        if path:
            text = text.replace(path, placeholder)
            if path.startswith(VOLUMES):
                text = text.replace(".".join(path.removeprefix(VOLUMES).split("/")[:3]), "<volume>")
    return re.sub(r"[\w.+-]+@[\w-]+\.[\w.-]+", "<user>", text)


def creates_once(store: Store, folder: str) -> None:
    file = f"{folder}/once"
    store.create(file, b"first")
    with suppress(PathExistsError):
        store.create(file, b"second")
        raise storage_check_failed(
            found="the second creation of a file was not refused, so a publication could be recorded twice"
        )
    if store.read(file) != b"first":
        raise storage_check_failed(found="the second creation of a file was refused, but it replaced the file")


def _writes_parts(store: Store, folder: str) -> str:
    data = os.urandom(20 * 2**20)
    with store.open_write(f"{folder}/parts") as file:
        file.write(data)
    with store.open_read(f"{folder}/parts") as written:
        if written.read() != data:
            raise storage_check_failed(found="a file contains other data than was written")
    return counted(len(data), "byte")


def renames(store: Store, folder: str) -> str:
    store.create(f"{folder}/from", b"moved")
    store.rename(f"{folder}/from", f"{folder}/to")
    if store.read(f"{folder}/to") != b"moved":
        raise storage_check_failed(found="a renamed file contains other data than before")
    store.create(f"{folder}/other", b"")
    with suppress(PathExistsError):
        store.rename(f"{folder}/other", f"{folder}/to")
        raise storage_check_failed(found="a rename to an existing name was not refused")
    return "in two steps: publish with one publisher at a time" if isinstance(store, VolumeStore) else "in one step"


def _deletes(store: Store, folder: str) -> None:
    store.create(f"{folder}/deep/deeper/file", b"")
    store.remove_folder(folder)
    with suppress(PathMissingError):
        store.read(f"{folder}/deep/deeper/file")
        raise storage_check_failed(found="a file in a deleted folder still exists")


CHECKS: Mapping[str, Callable[[Store, str], str | None]] = {
    "create if absent refuses a second creation": creates_once,
    "a file that is uploaded in parts is complete": _writes_parts,
    "a rename moves a file, and refuses an existing name": renames,
    "a folder is deleted with its content": _deletes,
}
