"""Lint rules. Pure: they check facts, without Spark, storage or clock."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table, Zone
from mirrorfeed.lint.rules.columns import check_columns, check_markers
from mirrorfeed.lint.rules.files import check_files
from mirrorfeed.lint.rules.folders import IN_SCRATCH, check_folders, check_leftovers, check_partner_events
from mirrorfeed.lint.specification import SCRATCH, Finding


def check_zone(zone: Zone) -> list[Finding]:
    """Return the findings outside the folders of tables."""
    scratch = [IN_SCRATCH.finding(f"{SCRATCH}/{name}") for name in zone.scratch]
    return [*check_partner_events(zone.partner_events), *scratch, *check_folders(zone)]


def check_table(table: Table) -> list[Finding]:
    """Return the findings in the folder of a table, sorted by file."""
    found = [*table.metadata_findings, *check_files(table), *check_columns(table), *check_markers(table)]
    return sorted([*found, *check_leftovers(table)], key=lambda finding: finding.file)
