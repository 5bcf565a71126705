"""The feed as a stream, which only tells that there is something new: its rows are never read."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.errors import Terminal, first_line
from mirrorfeed.feed.faults import NOT_THERE, first_of
from mirrorfeed.feed.source import Source

STARTS = ("startingVersion", "startingTimestamp")
OPTIONS = (*STARTS, "maxFilesPerTrigger", "maxBytesPerTrigger", "excludeRegex")
_GONE = (NOT_THERE, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT")


class StreamOptionUnknown(Terminal):
    """An option of the stream is none of those that a stream of changes takes here."""

    code = "MF2401"

    def __init__(self, name: str) -> None:
        self.name = name

    def what(self) -> str:
        return f"A stream of changes has no option {self.name!r} here."

    def next(self) -> str:
        return f"Known are {', '.join(OPTIONS)}."


class StreamStartGone(Terminal):
    """The stream is to begin at a version or time that the source has no more."""

    code = "MF2402"

    def __init__(self, table: str, start: str, reason: str) -> None:
        self.table, self.start, self.reason = table, start, reason

    def what(self) -> str:
        return f"The stream over {self.table} cannot begin at {self.start}, which is not in its history: {self.reason}."

    def next(self) -> str:
        return (
            "Leave the start out: what was published is known from the landing zone, and a start says only from when on"
            " the stream tells of changes."
        )


class StreamBroken(Terminal):
    """The stream that tells of changes cannot go on from its checkpoint. Publication does not rest on it."""

    code = "MF2403"

    def __init__(self, table: str, checkpoint: str, reason: str) -> None:
        self.table, self.checkpoint, self.reason = table, checkpoint, reason

    def what(self) -> str:
        return f"The stream over {self.table} with the checkpoint {self.checkpoint} does not go on: {self.reason}."

    def next(self) -> str:
        return (
            "The table is published all the same. Delete the checkpoint, or name another one: nothing is lost or"
            " doubled by that, for what was published is known from the landing zone."
        )


def changes(spark: SparkSession, source: Source, options: Mapping[str, str]) -> DataFrame:
    """The stream with these options, or `StreamOptionUnknown`."""
    for name in options:
        if name not in OPTIONS:
            raise StreamOptionUnknown(name)
    reader = spark.readStream.format("delta").option("readChangeFeed", "true").options(**options)
    return reader.table(source.sql) if source.path is None else reader.load(source.path)


def fault(source: Source, checkpoint: str, options: Mapping[str, str], error: Exception) -> Terminal:
    """What a failure of a stream means."""
    reason = first_line(str(error)).partition("terminated with exception: ")
    told = (reason[2] or reason[0]).partition(" SQLSTATE")[0].rstrip(". ")
    start = next((f"{name} {options[name]}" for name in STARTS if name in options), None)
    if start and first_of(error, _GONE):
        return StreamStartGone(str(source), start, told)
    return StreamBroken(str(source), checkpoint, told)
