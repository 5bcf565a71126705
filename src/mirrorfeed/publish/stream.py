"""Structured Streaming as what drives publication: a stream tells that there is something new, and publication reads
its own exact range from where the log in the landing zone ends. So a checkpoint decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config import Config
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.expansion import expanded
from mirrorfeed.feed.stream import StreamBroken, changes, fault
from mirrorfeed.publish.compared import NeedsFeed
from mirrorfeed.publish.fleet import Fleet, publish_tables
from mirrorfeed.publish.outcome import Outcome


def publisher(config: Config, *names: str) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch` of any stream, in whose process it publishes: the tables of the configuration, or those named.
    The rows of the batch are not read. A failure fails the batch, which Spark then repeats."""

    def publish(rows: DataFrame, _: int) -> None:
        spark = rows.sparkSession
        for outcome in publish_tables(Fleet(spark, expanded(config, lambda: spark).config), names):
            if outcome.error:
                raise outcome.error

    return publish


def drain(
    spark: SparkSession,
    config: Config,
    name: str,
    checkpoint: str,
    options: Mapping[str, str] | None = None,
    on_trouble: Callable[[MirrorfeedError], None] = lambda _: None,
) -> list[Outcome]:
    """Takes a stream over a table of the configuration to its present end, then publishes the table from here, whatever
    the stream had to tell: a checkpoint may be ahead of the landing zone. It works over Connect and on serverless
    compute as well, where what `foreachBatch` calls runs elsewhere. A stream that cannot go on is told; a start that is
    gone is raised, and nothing is published."""
    (table,) = config.select([name])
    source, target = table.source, str(table.target)
    if table.changes == "compare":
        raise NeedsFeed(str(source), "a stream over it")
    rows = changes(spark, source, options or {})
    try:
        writer = rows.writeStream.foreachBatch(lambda _rows, _number: None)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    except Exception as error:
        trouble = fault(source, checkpoint, options or {}, error)
        if not isinstance(trouble, StreamBroken):
            raise trouble from error
        named(f"The stream over {source}", error)
        on_trouble(trouble)
    return publish_tables(Fleet(spark, config, on_trouble=on_trouble), [target])
