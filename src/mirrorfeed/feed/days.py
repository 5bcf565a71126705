"""The days from 1582-10-05 to 1582-10-14, which the calendar of old left out. Delta passes what it reads of a feed
through Java's classes for dates, and the old ones make 1582-10-15 of all of them, in dates, in times and in what holds
them. Whether the new ones are taken is for the session to say, when a read is planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from pyspark.sql import SparkSession

SETTING = "spark.sql.datetime.java8API.enabled"

_lock = Lock()
_inside = 0
_before: list[tuple[SparkSession, str]] = []
"""What sessions said, to be taken back when nobody reads any more: tables share one."""


@contextmanager
def all_days(spark: SparkSession) -> Iterator[None]:
    """Meanwhile the feed is read with all days that there are, where the engine lets anyone say so."""
    global _inside
    with _lock:
        _inside += 1
        with suppress(Exception):  # as on serverless compute
            before = spark.conf.get(SETTING) or "false"
            if before != "true":
                spark.conf.set(SETTING, "true")
                _before.append((spark, before))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            while _before and not _inside:
                session, before = _before.pop()
                with suppress(Exception):  # it may have expired
                    session.conf.set(SETTING, before)


def are_read(spark: SparkSession) -> bool:
    """Whether a session lets all days be read."""
    with all_days(spark):
        try:
            return spark.conf.get(SETTING) == "true"
        except Exception:
            return False
