"""Compact the files of the ledger, and delete its old rows. A run does this at most once a day, after it wrote rows."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info

INTERVAL = timedelta(days=1)
_log = logging.getLogger(__name__)


def maintain(spark: SparkSession, ledger: Source, retention_days: int | None, now: datetime) -> None:
    """Delete rows older than `retention_days`, merge the files of each past day, and delete unused files.

    Only deletes rows if the ledger is not partitioned by day: merged files would have rows of many days, so that every
    query would read them. Raises no error: the next maintenance does the same again.
    """
    today = now.astimezone(UTC).date()
    try:
        is_by_day = "utc_day" in read_table_info(spark, ledger).partition_columns
        if retention_days is not None:
            first = today - timedelta(days=retention_days)
            old = f"`utc_day` < DATE'{first}'" if is_by_day else f"`time` < TIMESTAMP'{first} 00:00:00Z'"
            spark.sql(f"DELETE FROM {ledger.sql} WHERE {old}").collect()
        if is_by_day:
            spark.sql(f"OPTIMIZE {ledger.sql} WHERE `utc_day` < DATE'{today}'").collect()
        if is_by_day or retention_days is not None:
            spark.sql(f"VACUUM {ledger.sql}").collect()
    except Exception:
        _log.warning("The maintenance of the ledger %s failed", ledger, exc_info=True)
