"""Whether a landing zone conforms. Rules judge facts that their caller gathered: no Spark, no storage, no clock."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table, Zone
from mirrorfeed.lint.findings import Finding, Severity
from mirrorfeed.lint.metadata_file import read_metadata
from mirrorfeed.lint.rules.columns import judge_columns
from mirrorfeed.lint.rules.delimited import judge_text
from mirrorfeed.lint.rules.files import in_order, judge_files
from mirrorfeed.lint.rules.leftovers import judge_leftovers, judge_scratch
from mirrorfeed.lint.rules.marker import judge_markers
from mirrorfeed.lint.rules.partner import judge_partner_events
from mirrorfeed.lint.rules.zone import judge_folders

__all__ = ["Finding", "Severity", "judge_table", "judge_zone"]


def judge_zone(zone: Zone) -> list[Finding]:
    """What is wrong outside the tables' folders."""
    return [
        *judge_partner_events(zone.partner_events),
        *judge_scratch("", zone.scratch),
        *judge_folders(zone),
    ]


def judge_table(table: Table) -> list[Finding]:
    """What is wrong in one table's folder, file by file."""
    settings, found = read_metadata(table.metadata, table.folder, table.metadata_name)
    ordered = in_order(table.files, settings)
    found += [
        *judge_files(table, settings),
        *judge_columns(table.folder, ordered, settings),
        *judge_markers(table, ordered, settings),
        *judge_text(table.folder, ordered),
        *judge_leftovers(table, settings),
    ]
    return sorted(found, key=lambda finding: finding.file)
