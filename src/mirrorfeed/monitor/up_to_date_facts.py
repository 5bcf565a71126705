"""The facts about a table of which nothing is new, where they are to be had without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirrorfeed.config import Table
from mirrorfeed.fabric import TableState
from mirrorfeed.feed.here import counted_files, opened
from mirrorfeed.feed.retention import FILES, LOG, seconds_of
from mirrorfeed.monitor.facts import of_folder, of_log, of_service, waits
from mirrorfeed.monitor.rules import TableFacts
from mirrorfeed.monitor.text_lengths import CHEAP
from mirrorfeed.publish.commit import TableLog
from mirrorfeed.publish.idle import Idle, committed
from mirrorfeed.stores import Store

if TYPE_CHECKING:
    from deltalake import DeltaTable


def look_at_rest(
    idle: Idle, store: Store, table: Table, states: Sequence[TableState] | None = None
) -> TableFacts | None:
    """As `look_at_table`, but for what is only noted; None where Spark has to be asked."""
    if table.selection is not None:  # of which texts are published is for Spark to say
        return None
    if (found := idle.at_rest(table)) is None or (source := opened(table.source)) is None:
        return None
    view, _ = found
    folder, now = table.target.folder, datetime.now(UTC)
    try:
        properties = source.metadata().configuration
        records = list(TableLog(store, folder).records(view))
        firsts = {(record.from_version_exclusive or 0) + 1 for record in records[:-1]}
        times = {version: at for version in firsts if (at := committed(table.source.path or "", version))}
        facts = of_folder(store, folder, now) | of_log(view, store, folder) | of_service(table, states)
        return TableFacts(
            table=str(table.target),
            source=table.source.sql,
            source_name=str(table.source),
            lag_seconds=0.0,
            longest_wait=waits(records, times),
            retention=seconds_of(properties, FILES),
            log_retention=seconds_of(properties, LOG),
            longest_text=_longest_text(source),
            **facts,  # type: ignore[arg-type]
        )
    except Exception:  # of any finding Spark's way tells
        return None


def _longest_text(table: DeltaTable) -> tuple[str, int] | None:
    """As `longest_text`; nested values, which it measures as JSON, and files that delta-rs cannot read are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if counted_files(table)[1] > CHEAP:
        return None
    rows = table.to_pyarrow_dataset()
    if any(pa.types.is_nested(field.type) for field in rows.schema):
        raise ValueError("nested")
    longest: dict[str, int] = {}
    texts = [
        field.name for field in rows.schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    for batch in rows.to_batches(columns=texts) if texts else ():
        for name in texts:
            length = pc.max(pc.binary_length(batch.column(name))).as_py()
            if length is not None:
                longest[name] = max(length, longest.get(name, 0))
    return max(longest.items(), key=lambda each: each[1], default=None)
