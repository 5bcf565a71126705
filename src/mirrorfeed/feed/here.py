"""What a table in a folder of this machine is, by delta-rs where that is installed and reads it: in milliseconds, where
DESCRIBE DETAIL makes Spark count all files of every new version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirrorfeed.feed.detail import Detail
from mirrorfeed.feed.features import commits_elsewhere, unknown
from mirrorfeed.feed.source import Source
from mirrorfeed.session import Kind, kind

if TYPE_CHECKING:
    from deltalake import DeltaTable


def opened(source: Source) -> DeltaTable | None:
    """None of a table that is elsewhere or cannot be read without Spark."""
    if source.path is None or not Path(source.path).is_absolute():
        return None
    try:
        if kind() is not Kind.LOCAL:  # paths are those of another machine, or of another file system
            return None
        from deltalake import DeltaTable

        table = DeltaTable(source.path)
        protocol = table.protocol()
    except Exception:  # not installed, not a table, or more than it knows: Spark will tell
        return None
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return None if unknown(features) or commits_elsewhere(features) else table


def as_told(table: DeltaTable, source: Source, *, counted: bool = False) -> Detail | None:
    """Such a table as its metadata says, with its files if they are to be counted."""
    try:
        told, files, size = table.metadata(), 0, 0
        if counted:
            files, size = counted_files(table)
    except Exception:  # as above
        return None
    partitions = tuple(told.partition_columns)
    return Detail(str(told.id), source.path or "", told.configuration, partitions, files, size)


def counted_files(table: DeltaTable) -> tuple[int, int]:
    """How many there are, and their bytes together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pa.table(table.get_add_actions()).column("size_bytes")
    return len(sizes), pc.sum(sizes).as_py() or 0


def detail(source: Source, *, counted: bool = False) -> Detail | None:
    table = opened(source)
    return None if table is None else as_told(table, source, counted=counted)
