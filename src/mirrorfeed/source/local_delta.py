"""Tables in folders of this machine, read by delta-rs where that is installed and knows all that they use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirrorfeed.runtime.spark_session import Kind, kind
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_features import commits_elsewhere, unknown

if TYPE_CHECKING:
    from deltalake import DeltaTable


def opened(source: Source, version: int | None = None) -> DeltaTable | None:
    """At a version, or the newest. None of a table that is elsewhere or cannot be read without Spark."""
    if source.path is None or not Path(source.path).is_absolute():
        return None
    try:
        if kind() is not Kind.LOCAL:  # paths are those of another machine, or of another file system
            return None
        from deltalake import DeltaTable

        table = DeltaTable(source.path, version=version)
        features = features_of(table)
    except Exception:  # not installed, not a table, or more than it knows: Spark will tell
        return None
    return None if unknown(features) or commits_elsewhere(features) else table


def features_of(table: DeltaTable) -> tuple[str, ...]:
    protocol = table.protocol()
    return tuple(sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}))


def counted_files(table: DeltaTable) -> tuple[int, int]:
    """How many there are, and their bytes together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pa.table(table.get_add_actions()).column("size_bytes")
    return len(sizes), pc.sum(sizes).as_py() or 0


def counted_rows(table: DeltaTable) -> int | None:
    """None where the log does not say it of every file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    files = pa.table(table.get_add_actions())
    if not len(files):
        return 0
    counts = files["num_records"] if "num_records" in files.column_names else None
    return None if counts is None or counts.null_count else pc.sum(counts).as_py()
