"""Which files count as archived, by their age and the interval of the table in whose folder they are.

The tier of a file does not matter. A file of unknown age counts as archived.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.archive import interval
from mirrorfeed.archive.errors import FileOfNoTable
from mirrorfeed.archive.file_index.log_file import LogFile, plain
from mirrorfeed.archive.interval import Policy, counts_as_archived
from mirrorfeed.source.identifier import Source


class TableFolders:
    """What was found is not looked up again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found: dict[str, str | None] = {}

    def folder_of(self, path: str) -> str | None:
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
    """No files without a policy."""
    if policy is None:
        return []
    return [file for file in files if file.created is None or counts_as_archived(file.created, policy.days, now)]


def created_until(policy: Policy, now: datetime) -> int:
    """Files that were created later cannot count as archived. In milliseconds, the precision of the log."""
    return int((now - timedelta(days=policy.days)).timestamp() * 1000) + 1


def archived_of(
    spark: SparkSession, name: str, location: str, files: Iterable[LogFile], policy: Policy | None, now: datetime
) -> list[LogFile]:
    """The files of a table that count as archived, each by the interval of the table in whose folder it is, because
    lifecycle rules apply to folders. Raises `FileOfNoTable` if that table does not exist."""
    location = plain(location)
    tables, found, policies = TableFolders(spark), dict[str, list[LogFile]](), {location: policy}
    for file in files:
        folder = location if file.uri.startswith(f"{location.rstrip('/')}/") else tables.folder_of(file.uri)
        if folder is None:
            raise FileOfNoTable(table=name, uri=file.uri)
        found.setdefault(folder, []).append(replace(file, folder=folder))
    for folder in found.keys() - policies.keys():
        policies[folder] = interval.read(spark, Source(path=folder))
    return [file for folder, listed in found.items() for file in archived_among(listed, policies[folder], now)]
