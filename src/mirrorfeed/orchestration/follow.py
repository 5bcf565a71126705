"""Publish many tables continuously, or for each batch of a Spark stream."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config.model import Config
from mirrorfeed.config.pattern_expansion import expand_patterns
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import counted
from mirrorfeed.errors import MirrorfeedError, with_code, wrap_error
from mirrorfeed.orchestration.publish_run import Published, publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, OnDone, RunContext, Stop

_MAX_NOTES = 100
"""Number of newest notes in the result. A command that runs for weeks may have many, and logs each of them."""


def follow_tables(
    spark: SparkSession,
    config: Config,
    names: Sequence[str],
    written: Config,
    stop: Stop,
    on_done: OnDone | None = None,
) -> Published:
    """Publish the tables `names` (if empty: all tables) continuously until `stop` returns True.

    `config` has an entry for each table that matches a pattern. `written` is the configuration before its patterns were
    expanded to these entries. The patterns are expanded again every 5 minutes. Raises `feed_required` if a table is
    published by comparing all rows (`changes: compare`). Returns the newest result of each table, notes and a summary.
    """
    notes = dict[str, None]()

    def note(problem: MirrorfeedError) -> None:
        notes[with_code(problem)] = None
        if len(notes) > _MAX_NOTES:
            del notes[next(iter(notes))]
        progress.warning("%s", with_code(problem))

    callbacks = Callbacks.guarded(note, on_done=on_done, stop=stop)
    results = publish_tables(RunContext(spark, config, callbacks, follows=True, written=written), names)
    return tuple(results), tuple(notes), f"Followed {counted(len(config.select(names)), 'table')}."


def publisher(config: Config, *names: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that publishes all configured tables, or only `names`.

    The function ignores the rows of its batch. If a publication fails, it raises an error, and Spark repeats the batch.
    """

    def publish_all(rows: DataFrame, _: int) -> None:
        spark = rows.sparkSession
        try:
            results = publish_tables(RunContext(spark, expand_patterns(config, lambda: spark).config), names)
            error = next((result.error for result in results if result.error), None)
        except Exception as failure:
            error = wrap_error("Publishing the tables of a batch", failure)
        if error:
            raise error.with_traceback(None) from None  # Spark would print all steps and causes

    return publish_all


def stop_after(minutes: float | None, stop: Stop | None) -> Stop:
    """Return a function that returns True after `minutes` (None: no limit), or when `stop` returns True."""
    end = math.inf if minutes is None else time.monotonic() + minutes * 60
    return lambda: time.monotonic() >= end or (stop is not None and stop())
