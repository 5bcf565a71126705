"""Which files count as archived, by their age and the interval of the table in whose folder they are.

The tier of a file does not matter. A file of unknown age counts as archived.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.archive import interval
from mirrorfeed.archive.errors import FileOfNoTable
from mirrorfeed.archive.file_index.log_file import LogFile, plain
from mirrorfeed.archive.interval import Policy, counts_as_archived
from mirrorfeed.source.identifier import Source


class Tables:
    """What was found is not looked up again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found: dict[str, str | None] = {}

    def holding(self, path: str) -> str | None:
        """The nearest folder, at or above, that has a log of Delta; None where there is none."""
        return self._at(self._spark._jvm.org.apache.hadoop.fs.Path(path))  # type: ignore[union-attr]

    def _at(self, folder: Any) -> str | None:
        name = plain(str(folder.toString()))
        if name not in self._found:
            log = self._spark._jvm.org.apache.hadoop.fs.Path(folder, "_delta_log")  # type: ignore[union-attr]
            system = folder.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())
            above = folder.getParent()
            self._found[name] = name if system.exists(log) else None if above is None else self._at(above)
        return self._found[name]


def archived_among(files: Iterable[LogFile], policy: Policy | None, now: datetime) -> list[LogFile]:
    """Without a policy, none."""
    if policy is None:
        return []
    return [file for file in files if file.created is None or counts_as_archived(file.created, policy.days, now)]


def created_until(policy: Policy, now: datetime) -> int:
    """Files that were made later cannot count as archived. In milliseconds, which is as far as the log tells."""
    return int((now - timedelta(days=policy.days)).timestamp() * 1000) + 1


def archived_by_owner(
    spark: SparkSession, name: str, location: str, files: Iterable[LogFile], policy: Policy | None, now: datetime
) -> dict[str, list[LogFile]]:
    """Which files of a table count as archived, each by the interval of the table in whose folder it lies: the cloud
    goes by folders, and a clone has files in that of its original. `FileOfNoTable` where there is no table any more.
    """
    tables, found, policies = Tables(spark), dict[str, list[LogFile]](), {location: policy}
    for file in files:
        owner = location if file.uri.startswith(f"{location.rstrip('/')}/") else tables.holding(file.uri)
        if owner is None:
            raise FileOfNoTable(table=name, uri=file.uri)
        found.setdefault(owner, []).append(file)
    for owner in found.keys() - policies.keys():
        policies[owner] = interval.read(spark, Source(path=owner))
    archived = {owner: archived_among(listed, policies[owner], now) for owner, listed in found.items()}
    return {owner: listed for owner, listed in archived.items() if listed}


def archived_of(
    spark: SparkSession, name: str, location: str, files: Iterable[LogFile], policy: Policy | None, now: datetime
) -> list[LogFile]:
    """The same in one list."""
    found = archived_by_owner(spark, name, plain(location), files, policy, now)
    return [file for listed in found.values() for file in listed]
