"""Estimate the size of rows in a data file, for snapshots of which only some columns or rows are selected."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from mirrorfeed.publish.files.row_staging import collect_small_batch


def bytes_per_row(rows: DataFrame, compression: str) -> float | None:
    """Return the average bytes per row, measured in a Parquet file with the first 5,000 rows.
    Returns None if there are no rows, or if the rows are too large to collect them on the driver."""
    sample = collect_small_batch(rows.limit(5_000))
    if not sample:
        return None
    file = pa.BufferOutputStream()
    pq.write_table(sample, file, compression=compression)
    return float(file.tell() / sample.num_rows)
