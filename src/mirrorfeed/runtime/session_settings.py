"""Session settings under which Spark silently leaves rows out, changes values or writes many small files.

Sources are read and files are written under the settings below. The session gets its own values back afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from pyspark.sql import SparkSession

from mirrorfeed.runtime.errors import SettingFixed

ALL_DAYS = "spark.sql.datetime.java8API.enabled"
"""For the days from 1582-10-05 to 1582-10-14, which the calendar of old left out. Delta passes what it reads of a feed
through Java's classes for dates, and the old ones make 1582-10-15 of all of them, in dates, in times and in what holds
them."""
PASS_OVER = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
"""By which files that are gone or broken have no rows, so that what VACUUM took counts as nothing that changed."""
_REQUIRED = {
    **dict.fromkeys(PASS_OVER, "false"),
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",  # otherwise JSON has dates of the Julian calendar
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",  # the same for files
    # Files without Spark's name in them may be of any writer. Delta's dates are Gregorian.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Spark may store CHAR without its blanks, and adds them when it reads.
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "false",  # Arrow has no CHAR
}
"""Settings without which published values can be wrong."""
_WANTED = {
    ALL_DAYS: "true",
    # Otherwise each shuffle partition becomes a file, 200 by default.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
}
"""Settings that some compute does not let anyone change. `doctor --setup` checks `ALL_DAYS`."""

_lock = Lock()
_inside = 0
_before: list[tuple[SparkSession, str, str]] = []
"""The sessions' own values, which are set again when nobody reads any more: tables share a session."""


@contextmanager
def faithful(spark: SparkSession) -> Iterator[None]:
    """Read and write all rows with the values that they have, or raise `SettingFixed`."""
    global _inside
    with _lock:
        _inside += 1
    try:
        with _lock:
            for name, wanted in (_WANTED | _REQUIRED).items():
                _set(spark, name, wanted)
        yield
    finally:
        with _lock:
            _inside -= 1
            while _before and not _inside:
                session, name, before = _before.pop()
                with suppress(Exception):  # it may have expired
                    session.conf.set(name, before)


def _set(spark: SparkSession, name: str, wanted: str) -> None:
    try:
        before = spark.conf.get(name) or "false"
    except Exception:  # this Spark does not have the setting, or hides it, as serverless compute does
        return
    if before.casefold() == wanted.casefold():
        return
    try:
        spark.conf.set(name, wanted)
    except Exception as error:
        if name in _REQUIRED:
            raise SettingFixed(name=name, value=before, wanted=wanted) from error
    else:
        _before.append((spark, name, before))


def all_days_are_read(spark: SparkSession) -> bool:
    """Whether a session lets all days of a feed be read."""
    with faithful(spark):
        try:
            return spark.conf.get(ALL_DAYS) == "true"
        except Exception:
            return False


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session, and restore it afterwards."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)
