"""Checks of the behaviour of live services, and the list of checks to make by hand.

The checks use a folder of the landing zone that readers ignore, and remove it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import SparkSession

from mirrorfeed.config import Config
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import Terminal
from mirrorfeed.monitor.rules import Finding
from mirrorfeed.monitor.setup_check import failed_with, not_checked, passed
from mirrorfeed.monitor.setup_checks import check_credential, check_place, new_folder
from mirrorfeed.storage import AlreadyThere, NotThere, Store

BY_HAND = (
    (
        "serverless compute, first and second run",
        "databricks bundle run publish -t prod",
        "a first load of each table, without `otherwise than files there are`, then `nothing new`",
    ),
    (
        "standard access mode",
        "the same on a cluster with data_security_mode: USER_ISOLATION",
        "the same",
    ),
    (
        "dedicated compute",
        "the same on a cluster with data_security_mode: SINGLE_USER",
        "the same; with `send: executors` in mirrorfeed.yml too",
    ),
    (
        "service credentials",
        "the same three with credential: {service_credential: <name>} in mirrorfeed.yml",
        "the same; on serverless compute and in standard access mode it reaches the driver alone",
    ),
    (
        "a run that is cancelled while it stages",
        "databricks jobs cancel-run",
        "the next run publishes what was missing",
    ),
    ("the handover afterwards", "databricks fs ls dbfs:/Volumes/<catalog>/<schema>/handover", "it is empty"),
    ("task values", "databricks bundle run publish_each -t prod", "a task for every target"),
    ("Fabric takes the files", "mirrorfeed status --fabric", "every table is Replicating, with rows"),
    (
        "Fabric follows an update and a delete",
        "UPDATE and DELETE a row, publish, query in Fabric",
        "the rows as in Delta",
    ),
    ("the mirror is the source", "mirrorfeed verify, on a classic cluster", "no difference"),
    (
        "computed changes",
        "a table with row tracking and without the property, on Runtime 18",
        "`computed from row tracking`",
    ),
    (
        "the five times",
        "`mirrorfeed status --fabric`, after a commit was published",
        "a time for every step within minutes, and nothing that waits",
    ),
    (
        "a message",
        "`mirrorfeed watch` with a webhook in `alerts`, once with mirroring stopped and once with it running",
        "one message of MIRRORING_OFF, and one that it is over",
    ),
    (
        "sources by a pattern",
        "`mirrorfeed tables`, with `sources: <catalog>.<schema>.*` and a view in that schema",
        "its tables with their keys, and the view out",
    ),
    (
        "the database as code",
        "`mirrorfeed fabric plan` and `fabric apply`, with another `retention_days` in `fabric`",
        "that difference alone, and after it none, while mirroring runs on",
    ),
    ("the dashboard", "open `mirrorfeed` under Dashboards as one of `readers`", "rows of the runs above"),
)
"""What, how, and what must be seen; in order."""


def check_live(spark: SparkSession, config: Config, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    store = zone_of(config)
    place = new_folder()
    yield check_credential(config)
    for what, attempt in (
        ("create if absent (If-None-Match on Put Blob) refuses a second time", _creates_once),
        ("a file that is written in parts is whole", _writes_parts),
        ("a rename moves, and refuses a name that is taken", _renames),
        ("a folder is deleted with what is in it", _deletes),
    ):
        yield _tried(f"landing zone: {what}", lambda each=attempt: each(store, place))  # type: ignore[misc]
    yield check_place(spark, config, store, environment)
    for what, how, seen in BY_HAND:
        yield not_checked(what, f"check by hand, expected: {seen}", how)


def _tried(what: str, attempt: Callable[[], str]) -> Finding:
    try:
        return passed(what, attempt())
    except Exception as error:
        return failed_with(what, error)


def _expect(so: bool, otherwise: str) -> None:
    if not so:
        raise NotAsExpected(otherwise)


class NotAsExpected(Terminal):
    """A service does not behave as mirrorfeed relies on: publishing exactly once is not given there."""

    code = "MF1306"

    def __init__(self, found: str) -> None:
        self.found = found

    def what(self) -> str:
        return f"This is not as mirrorfeed expects it: {self.found}."

    def next(self) -> str:
        return "Do not publish there, and report it."


def _creates_once(store: Store, place: str) -> str:
    store.create(f"{place}/once", b"first")
    try:
        store.create(f"{place}/once", b"second")
    except AlreadyThere:
        _expect(store.read(f"{place}/once") == b"first", "the second creation was refused and took effect")
        return ""
    raise NotAsExpected("the second creation was not refused: without that nothing is published exactly once")


def _writes_parts(store: Store, place: str) -> str:
    data = os.urandom(20 * 2**20)
    with store.open_write(f"{place}/parts") as file:
        file.write(data)
    with store.open_read(f"{place}/parts") as written:
        _expect(written.read() == data, "it was read back as something else")
    return counted(len(data), "byte")


def _renames(store: Store, place: str) -> str:
    store.create(f"{place}/from", b"moved")
    store.rename(f"{place}/from", f"{place}/to")
    _expect(store.read(f"{place}/to") == b"moved", "it was read back as something else")
    store.create(f"{place}/other", b"")
    try:
        store.rename(f"{place}/other", f"{place}/to")
    except AlreadyThere:
        return ""
    raise NotAsExpected("the rename onto a name that is taken was not refused")


def _deletes(store: Store, place: str) -> str:
    store.create(f"{place}/deep/deeper/file", b"")
    store.remove_folder(place)
    try:
        store.read(f"{place}/deep/deeper/file")
    except NotThere:
        return ""
    raise NotAsExpected("a file in it is still there")
