"""Settings of a session under which Spark leaves rows out, or gives other values than there are, and says nothing.
Whatever is published is read and written with those below; whether a session lets them be set is for it to say, when a
read is planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from pyspark.sql import SparkSession

ALL_DAYS = "spark.sql.datetime.java8API.enabled"
"""For the days from 1582-10-05 to 1582-10-14, which the calendar of old left out. Delta passes what it reads of a feed
through Java's classes for dates, and the old ones make 1582-10-15 of all of them, in dates, in times and in what holds
them."""
PASS_OVER = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
"""By which files that are gone or broken have no rows, so that what VACUUM took counts as nothing that changed."""
_FAITHFUL = {
    ALL_DAYS: "true",
    **dict.fromkeys(PASS_OVER, "false"),
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",  # or JSON has dates by the calendar of old
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",  # or files have them so
}

_lock = Lock()
_inside = 0
_before: list[tuple[SparkSession, str, str]] = []
"""What sessions said, to be taken back when nobody reads any more: tables share one."""


@contextmanager
def faithful(spark: SparkSession) -> Iterator[None]:
    """Meanwhile all that there is is read and written as it is, where the engine lets anyone say so."""
    global _inside
    with _lock:
        _inside += 1
        for name, wanted in _FAITHFUL.items():
            with suppress(Exception):  # as on serverless compute
                before = spark.conf.get(name) or "false"
                if before.casefold() != wanted.casefold():
                    spark.conf.set(name, wanted)
                    _before.append((spark, name, before))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            while _before and not _inside:
                session, name, before = _before.pop()
                with suppress(Exception):  # it may have expired
                    session.conf.set(name, before)


def all_days_are_read(spark: SparkSession) -> bool:
    """Whether a session lets all days of a feed be read."""
    with faithful(spark):
        try:
            return spark.conf.get(ALL_DAYS) == "true"
        except Exception:
            return False
