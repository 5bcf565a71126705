"""Rules of lint. Pure: they check facts, without Spark, storage or clock."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table, Zone
from mirrorfeed.lint.metadata_file import Settings, read_metadata
from mirrorfeed.lint.rules.columns import check_columns, check_markers
from mirrorfeed.lint.rules.files import apply_order, check_files
from mirrorfeed.lint.rules.folders import IN_SCRATCH, check_folders, check_leftovers, check_partner_events
from mirrorfeed.lint.specification import METADATA, SCRATCH, Finding, error

MISSING = error(
    "MF201",
    "The table's folder has no _metadata.json, which sets the keys of the table.",
    'Add the file: `{"keyColumns": ["…"]}`, or `{}` for a table without keys.',
)
MISNAMED = error(
    "MF202",
    "The file is named {name!r}, but Fabric reads only _metadata.json.",
    f"Rename the file to {METADATA}.",
)


def check_zone(zone: Zone) -> list[Finding]:
    """Return the findings outside of the folders of tables."""
    scratch = [IN_SCRATCH.finding(f"{SCRATCH}/{name}") for name in zone.scratch]
    return [*check_partner_events(zone.partner_events), *scratch, *check_folders(zone)]


def check_table(table: Table) -> list[Finding]:
    """Return the findings in the folder of a table, sorted by file."""
    settings, found, file = Settings(), list[Finding](), f"{table.folder}/{table.metadata_name}"
    if table.metadata is None:
        found.append(MISSING.finding(file))
    else:
        settings, deviations = read_metadata(table.metadata, file)
        if table.metadata_name != METADATA:
            found.append(MISNAMED.finding(file, name=table.metadata_name))
        found += [each.finding for each in deviations]
    ordered = sorted(table.files, key=apply_order(settings))
    found += check_files(table, settings)
    found += check_columns(table.folder, ordered, settings, table.duplicates)
    found += check_markers(table, ordered, settings)
    found += check_leftovers(table, settings)
    return sorted(found, key=lambda finding: finding.file)
