"""Rules for `_metadata.json`: its name, and all that its reader reports."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table
from mirrorfeed.lint.findings import Finding, error
from mirrorfeed.lint.metadata_file import Settings, read_metadata
from mirrorfeed.lint.specification import METADATA

MISSING = error(
    "MF201",
    "A table's folder has no `_metadata.json`, which says what the keys of the table are.",
    'Add it: `{"keyColumns": ["…"]}`, or `{}` for a table without keys.',
)
MISNAMED = error(
    "MF202",
    "A table's folder has its `_metadata.json` under another spelling.",
    f"Rename it to {METADATA}: the service looks for that name alone.",
)


def judge_metadata(table: Table) -> tuple[Settings, list[Finding]]:
    """The settings by which to judge the table's files, and the findings in its metadata."""
    name = table.metadata_name
    file = f"{table.folder}/{name}"
    if table.metadata is None:
        return Settings(), [MISSING.broken(file, "The table's folder has no _metadata.json.")]
    settings, deviations = read_metadata(table.metadata)
    misnamed = [] if name == METADATA else [MISNAMED.broken(file, f"The file is named {name!r}.")]
    return settings, [*misnamed, *(each.rule.broken(file, each.what) for each in deviations)]
