"""Publish from a stream: `foreachBatch` says that a table may have changed, and publication reads its own exact range.

The checkpoint of the stream decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from mirrorfeed.config import Config
from mirrorfeed.config.expansion import expanded
from mirrorfeed.orchestration.publish_run import RunContext, publish_tables


def publisher(config: Config, *names: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` of any stream that publishes all configured tables, or those named.

    The rows of the batch are not read. A failure fails the batch, which Spark then repeats.
    """

    def publish(rows: DataFrame, _: int) -> None:
        spark = rows.sparkSession
        for outcome in publish_tables(RunContext(spark, expanded(config, lambda: spark).config), names):
            if outcome.error:
                raise outcome.error

    return publish
