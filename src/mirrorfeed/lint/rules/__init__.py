"""Rules that decide whether a landing zone conforms, from facts alone: no Spark, no storage, no clock."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table, Zone
from mirrorfeed.lint.findings import Finding
from mirrorfeed.lint.rules.columns import check_columns, check_markers
from mirrorfeed.lint.rules.files import check_files, check_text, sort_files
from mirrorfeed.lint.rules.leftovers import check_leftovers, check_scratch
from mirrorfeed.lint.rules.metadata import check_metadata
from mirrorfeed.lint.rules.zone import check_folders, check_partner_events


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
