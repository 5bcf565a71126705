"""Rules that decide whether a landing zone conforms, from facts alone: no Spark, no storage, no clock."""

from __future__ import annotations

from mirrorfeed.lint.facts import Table, Zone
from mirrorfeed.lint.findings import Finding
from mirrorfeed.lint.rules.columns import judge_columns, judge_markers
from mirrorfeed.lint.rules.files import in_order, judge_files, judge_text
from mirrorfeed.lint.rules.leftovers import judge_leftovers, judge_scratch
from mirrorfeed.lint.rules.metadata import judge_metadata
from mirrorfeed.lint.rules.zone import judge_folders, judge_partner_events


def judge_zone(zone: Zone) -> list[Finding]:
    """Findings outside of the tables' folders."""
    return [
        *judge_partner_events(zone.partner_events),
        *judge_scratch("", zone.scratch),
        *judge_folders(zone),
    ]


def judge_table(table: Table) -> list[Finding]:
    """Findings in one table's folder, by file."""
    settings, found = judge_metadata(table)
    ordered = in_order(table.files, settings)
    found += [
        *judge_files(table, settings),
        *judge_columns(table.folder, ordered, settings),
        *judge_markers(table, ordered, settings),
        *judge_text(table.folder, ordered),
        *judge_leftovers(table, settings),
    ]
    return sorted(found, key=lambda finding: finding.file)
