"""Whether a landing zone conforms. Rules judge facts that their caller gathered: no Spark, no storage, no clock."""

from __future__ import annotations

from mirrorfeed.landing.lint.columns import judge_columns
from mirrorfeed.landing.lint.delimited import judge_text
from mirrorfeed.landing.lint.facts import Table, Zone
from mirrorfeed.landing.lint.files import in_order, judge_files
from mirrorfeed.landing.lint.finding import Finding, Severity
from mirrorfeed.landing.lint.folders import judge_folders
from mirrorfeed.landing.lint.leftovers import judge_leftovers, judge_scratch
from mirrorfeed.landing.lint.marker import judge_markers
from mirrorfeed.landing.lint.metadata import read_metadata
from mirrorfeed.landing.lint.partner import judge_partner_events

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
