"""Few rows come to the driver as Arrow, and it writes their files: one query, no folder and no task that writes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from mirrorfeed.feed.source import quote

ROWS = 20_000
"""As many come at most. CPU seconds of a whole publication, so and by Spark's writer (`tests.bench.bound`, two cores,
rows of some 60 bytes): 1.6 and 2.1 at 5,000 rows, 1.5 and 1.7 at 20,000, 1.4 and 1.5 at 50,000, 1.9 and 1.6 at 100,000;
more rows would take more of this process's memory for little."""
_WIDE = 4096
"""A row whose texts take more bytes does not come, and nor do the others then: together they may be large."""
_LIMIT = "spark.driver.maxResultSize"
"""The setting that is named where a result is too large; such a failure has no condition of its own."""


def taken(rows: DataFrame, *, known: bool) -> pa.Table | None:
    """These rows, or None where they are too many or too large. Rows that are known to be few are not counted, and keep
    their order."""
    seen = Observation()
    texts = [field.name for field in rows.schema.fields if field.dataType.typeName() in ("string", "binary")]
    narrow = rows
    if texts:
        is_wide = f"{_size(texts)} > {_WIDE}"
        narrow = rows.observe(seen, F.expr(f"count_if({is_wide}) AS wide")).where(f"NOT {is_wide}")
    try:
        found = (narrow if known else narrow.limit(ROWS + 1)).toArrow()
    except Exception as error:
        if _LIMIT in str(error):
            return None
        raise
    too_many = not known and found.num_rows > ROWS
    return None if too_many or (texts and seen.get["wide"]) else found


def _size(texts: Sequence[str]) -> str:
    return f"({' + '.join(f'coalesce(octet_length({quote(name)}), 0)' for name in texts)})"
