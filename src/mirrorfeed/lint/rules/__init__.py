"""Rules that decide whether a landing zone conforms, from facts alone: no Spark, no storage, no clock."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table, Zone
from mirrorfeed.lint.findings import Finding, error
from mirrorfeed.lint.metadata_file import Settings, read_metadata
from mirrorfeed.lint.rules.columns import check_columns, check_markers
from mirrorfeed.lint.rules.files import check_files, check_text, sort_files
from mirrorfeed.lint.rules.leftovers import check_leftovers, check_scratch
from mirrorfeed.lint.rules.zone import check_folders, check_partner_events
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


def check_zone(zone: Zone) -> list[Finding]:
    """Findings outside of the tables' folders."""
    return [
        *check_partner_events(zone.partner_events),
        *check_scratch("", zone.scratch),
        *check_folders(zone),
    ]


def check_table(table: Table) -> list[Finding]:
    """Findings in one table's folder, by file."""
    settings, found = check_metadata(table)
    ordered = sort_files(table.files, settings)
    found += [
        *check_files(table, settings),
        *check_columns(table.folder, ordered, settings),
        *check_markers(table, ordered, settings),
        *check_text(table.folder, ordered),
        *check_leftovers(table, settings),
    ]
    return sorted(found, key=lambda finding: finding.file)


def check_metadata(table: Table) -> tuple[Settings, list[Finding]]:
    """The settings by which to judge the table's files, and the findings in its metadata."""
    name = table.metadata_name
    file = f"{table.folder}/{name}"
    if table.metadata is None:
        return Settings(), [MISSING.finding(file, "The table's folder has no _metadata.json.")]
    settings, deviations = read_metadata(table.metadata)
    misnamed = [] if name == METADATA else [MISNAMED.finding(file, f"The file is named {name!r}.")]
    return settings, [*misnamed, *(each.rule.finding(file, each.what) for each in deviations)]
