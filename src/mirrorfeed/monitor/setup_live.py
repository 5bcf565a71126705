"""Checks how the live services behave, in a folder of the landing zone that readers ignore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.display.humanize import counted
from mirrorfeed.monitor.errors import NotAsExpected
from mirrorfeed.monitor.findings import Finding, not_checked
from mirrorfeed.monitor.setup_checks import attempt, check_credential, check_staging_area, new_folder
from mirrorfeed.storage import AlreadyThere, NotThere, Store

MANUAL_CHECKS = "docs/go-live-checklist.md"
"""The checks that only a person can make."""


def check_live(spark: SparkSession, config: Config, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    store, folder = zone_of(config), new_folder()
    yield check_credential(config)
    for what, action in CHECKS.items():
        yield attempt(f"landing zone: {what}", lambda action=action: action(store, folder))  # type: ignore[misc]
    yield check_staging_area(spark, config, store, environment)
    yield not_checked("manual checks", f"the list is in {MANUAL_CHECKS}")


def creates_once(store: Store, folder: str) -> str:
    store.create(f"{folder}/once", b"first")
    try:
        store.create(f"{folder}/once", b"second")
    except AlreadyThere:
        _expect(store.read(f"{folder}/once") == b"first", "the second creation was refused but took effect")
        return ""
    raise NotAsExpected(found="the second creation was not refused, so a publication could be recorded twice")


def _writes_parts(store: Store, folder: str) -> str:
    data = os.urandom(20 * 2**20)
    with store.open_write(f"{folder}/parts") as file:
        file.write(data)
    with store.open_read(f"{folder}/parts") as written:
        _expect(written.read() == data, "a file was read back with other content")
    return counted(len(data), "byte")


def renames(store: Store, folder: str) -> str:
    store.create(f"{folder}/from", b"moved")
    store.rename(f"{folder}/from", f"{folder}/to")
    _expect(store.read(f"{folder}/to") == b"moved", "a renamed file was read back with other content")
    store.create(f"{folder}/other", b"")
    try:
        store.rename(f"{folder}/other", f"{folder}/to")
    except AlreadyThere:
        return ""
    raise NotAsExpected(found="a rename to an existing name was not refused")


def _deletes(store: Store, folder: str) -> str:
    store.create(f"{folder}/deep/deeper/file", b"")
    store.remove_folder(folder)
    try:
        store.read(f"{folder}/deep/deeper/file")
    except NotThere:
        return ""
    raise NotAsExpected(found="a file in a deleted folder still exists")


def _expect(so: bool, otherwise: str) -> None:
    if not so:
        raise NotAsExpected(found=otherwise)


CHECKS: Mapping[str, Callable[[Store, str], str]] = {
    "create if absent (If-None-Match on Put Blob) refuses a second creation": creates_once,
    "a file that is uploaded in parts is complete": _writes_parts,
    "a rename moves a file, and refuses an existing name": renames,
    "a folder is deleted with its content": _deletes,
}
