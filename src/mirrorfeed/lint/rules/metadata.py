"""Rules for `_metadata.json`: its name, and all that its reader reports."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table
from mirrorfeed.lint.findings import Finding, error
from mirrorfeed.lint.metadata_file import Settings, read_metadata
from mirrorfeed.lint.specification import METADATA

MISSING = error(
    "MF201",
    "The folder of a table has no `_metadata.json`, which sets the keys of the table.",
    'Add the file: `{"keyColumns": ["…"]}`, or `{}` for a table without keys.',
)
MISNAMED = error(
    "MF202",
    "The folder of a table has a `_metadata.json` under another name.",
    f"Rename the file to {METADATA}. Fabric reads no other name.",
)


def check_metadata(table: Table) -> tuple[Settings, list[Finding]]:
    """The settings by which to judge the table's files, and the findings in its metadata."""
    name = table.metadata_name
    file = f"{table.folder}/{name}"
    if table.metadata is None:
        return Settings(), [MISSING.finding(file, "The table's folder has no _metadata.json.")]
    settings, deviations = read_metadata(table.metadata)
    misnamed = [] if name == METADATA else [MISNAMED.finding(file, f"The file is named {name!r}.")]
    return settings, [*misnamed, *(each.rule.finding(file, each.what) for each in deviations)]
