"""Few rows come to the driver as Arrow, and it writes their files: one query, no folder and no task that writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from mirrorfeed.source.identifier import quote

ROWS = 20_000
"""At most this many rows come to the driver. CPU seconds of a whole publication, as Arrow and by Spark's writer
(`tests.bench.bound`, two cores, rows of some 60 bytes): 1.6 and 2.1 at 5,000 rows, 1.5 and 1.7 at 20,000, 1.4 and 1.5
at 50,000, 1.9 and 1.6 at 100,000; more rows would take more of this process's memory for little."""
_WIDE = 4096
"""A row whose texts take more bytes does not come, and nor do the others then: together they may be large."""
_IS_WIDE = "_commit_timestamp"
"""A column for that, whose name is one of the feed's, so that no table's is."""
_SAMPLED = 5_000
_LIMIT = "spark.driver.maxResultSize"
"""The setting that is named where a result is too large; such a failure has no condition of its own."""


def taken(rows: DataFrame) -> pa.Table | None:
    """These rows, or None if they are more than `ROWS` or too large. Rows that are ordered keep their order, because
    Spark then takes the first ones, sorted."""
    texts = [field.name for field in rows.schema.fields if field.dataType.typeName() in ("string", "binary")]
    narrow = rows.selectExpr(*_narrow(rows.columns, texts)) if texts else rows
    try:
        found = narrow.limit(ROWS + 1).toArrow()
    except Exception as error:
        if _LIMIT in str(error):
            return None
        raise
    if found.num_rows > ROWS:
        return None
    if texts:
        if pc.any(found.column(_IS_WIDE)).as_py():
            return None
        found = found.drop_columns([_IS_WIDE])
    return found


def bytes_a_row(rows: DataFrame, compression: str) -> float | None:
    """In a file, by some of the rows; None where there are none, or they are large."""
    found = taken(rows.limit(_SAMPLED))
    if not found:
        return None
    file = pa.BufferOutputStream()
    pq.write_table(found, file, compression=compression)
    return float(file.tell() / found.num_rows)


def _narrow(columns: Sequence[str], texts: Sequence[str]) -> Iterator[str]:
    """The columns, with no texts in rows where they are wide, and whether they are. To observe that takes a part of a
    small publication."""
    sizes = (f"coalesce(octet_length({quote(name)}), 0)" for name in texts)
    is_wide = f"{' + '.join(sizes)} > {_WIDE}"
    for name in columns:
        yield f"IF({is_wide}, NULL, {quote(name)}) AS {quote(name)}" if name in texts else quote(name)
    yield f"{is_wide} AS {_IS_WIDE}"
