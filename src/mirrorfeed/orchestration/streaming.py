"""Use a Structured Streaming query as a trigger. Publication reads its own exact range, not the batch."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from mirrorfeed.config import Config
from mirrorfeed.config.expansion import expanded
from mirrorfeed.orchestration.publish_run import RunContext, publish_tables


def publisher(config: Config, *names: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that publishes all configured tables, or only `names`.

    It does not read the rows of the batch. A failure fails the batch, which Spark then repeats.
    """

    def publish(rows: DataFrame, _: int) -> None:
        spark = rows.sparkSession
        for result in publish_tables(RunContext(spark, expanded(config, lambda: spark).config), names):
            if result.error:
                raise result.error

    return publish
