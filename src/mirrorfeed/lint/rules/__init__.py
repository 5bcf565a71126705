"""Rules of lint. Pure: they check facts, without Spark, storage or clock."""

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
    """Return the findings outside of the folders of tables."""
    return [*check_partner_events(zone.partner_events), *check_scratch("", zone.scratch), *check_folders(zone)]


def check_table(table: Table) -> list[Finding]:
    """Return the findings in the folder of a table, sorted by file."""
    settings, found, file = Settings(), list[Finding](), f"{table.folder}/{table.metadata_name}"
    if table.metadata is None:
        found.append(MISSING.finding(file, "The table's folder has no _metadata.json."))
    else:
        settings, deviations = read_metadata(table.metadata)
        if table.metadata_name != METADATA:
            found.append(MISNAMED.finding(file, f"The file is named {table.metadata_name!r}."))
        found += [each.rule.finding(file, each.what) for each in deviations]
    ordered = sort_files(table.files, settings)
    found += check_files(table, settings)
    found += check_columns(table.folder, ordered, settings)
    found += check_markers(table, ordered, settings)
    found += check_text(table.folder, ordered)
    found += check_leftovers(table, settings)
    return sorted(found, key=lambda finding: finding.file)
