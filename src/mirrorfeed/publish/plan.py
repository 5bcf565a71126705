"""How a table is published, as the configuration says; keys that are left out are asked of Unity Catalog."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorfeed.config import Table
from mirrorfeed.landing.metadata_files import spell
from mirrorfeed.landing.output_format import AS_PARQUET, COMPRESSION, Output
from mirrorfeed.landing.schema import Column
from mirrorfeed.landing.selection import Selection, keys_of
from mirrorfeed.publish.errors import KeysRequired
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.source.catalog import Workspace, check_policies, is_in_unity_catalog, primary_key, read_catalog_table
from mirrorfeed.source.errors import KeysNotReadable, KeysUnavailable


@dataclass(frozen=True, slots=True)
class Plan:
    """How a table is published; `source` and `target` are for records and messages."""

    source: str
    target: str
    folder: str
    keys: tuple[str, ...]
    """By the target's names."""
    changes: str = "net"
    row_markers: str = "upsert"
    validate_keys: str = "source"
    output: Output = AS_PARQUET
    compression: str = COMPRESSION
    target_file_size: int = 128 * 2**20
    max_versions_per_publication: int = 500
    log_retention_records: int = 10
    keep_dropped: bool = True
    """Whether columns that were dropped are published on, as NULL."""
    selection: Selection | None = None
    """What of the source is published; None: all."""

    def metadata(self, columns: Sequence[Column]) -> dict[str, Any]:
        """What `_metadata.json` has to say."""
        return spell(self.keys, self.output.settings(columns))


def plan_of(table: Table, workspace: Callable[[], Workspace] = default_workspace) -> Plan:
    """How a table of the configuration is published; keys left out are asked of Unity Catalog."""
    keys = table.keys
    if is_in_unity_catalog(table.source):
        try:
            found = read_catalog_table(workspace(), table.source)
        except (KeysNotReadable, KeysUnavailable, ValueError):
            if keys is None:
                raise
            # What a person wrote does without a workspace. Of a row filter or a mask the engine tells then.
        else:
            if table.changes != "compare":
                check_policies(table.source, found)
            keys = primary_key(found) if keys is None else keys
    keys, compares = keys_of(str(table.source), table.selection, keys or ()), table.changes == "compare"
    if compares and not keys:
        raise KeysRequired(table=str(table.source))
    return Plan(
        source=str(table.source),
        target=str(table.target),
        folder=table.target.folder,
        keys=keys,
        changes=table.changes,
        row_markers=table.row_markers,
        output=table.output,
        validate_keys=table.validate_keys,
        compression=table.compression,
        target_file_size=table.target_file_size,
        max_versions_per_publication=sys.maxsize
        if compares
        else table.max_versions_per_publication,  # states are not read one by one
        log_retention_records=table.log_retention_records,
        keep_dropped=table.on_dropped_column == "keep",
        selection=table.selection,
    )
