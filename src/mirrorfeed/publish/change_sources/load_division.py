"""Divide the first load of a large table into parts, and check the keys of all parts together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Table
from mirrorfeed.landing.load_part import LoadPart
from mirrorfeed.landing.log_record import File
from mirrorfeed.landing.selection import EVERYTHING
from mirrorfeed.publish.change_sources.errors import load_incomplete
from mirrorfeed.publish.files.staging_job import BadRows
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source import load_plan, reader
from mirrorfeed.source.snapshot_or_range import Facts, Snapshot

if TYPE_CHECKING:
    from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed


def divide_load(feed: DeltaFeed, what: Snapshot, facts: Facts, table: Table) -> Snapshot:
    """Return the first part of a load, or `what` if the rows cannot be divided well.

    Raises `BadRows` if keys are not unique, unless a key column divides the rows: then rows with the same key are in
    the same part, and each part checks its own keys.
    """
    name, selection = str(feed.source), feed.selection or EVERYTHING
    with reader.read_errors(name, what), lossless_settings(feed.spark):
        rows = reader.matching_rows(name, reader.read_version(feed.spark, feed.source, what.version), selection)
        # The log stores values, so it must have none that are not published, or published in another form.
        changed = {*selection.cast, *selection.transform}
        usable = {each for each in rows.columns if selection.includes(each) and each not in changed}
        keys = [key for key in table.keys or () if key in usable]
        part = load_plan.first_part(rows, usable, keys, facts.partitions, table.load_part_size)
    if part is None:
        return what
    checks = table.target_keys and table.validate_keys != "none" and part.column not in keys
    if checks and (bad := feed.bad_keys(what.version, table)):
        raise BadRows(*bad)
    return replace(what, part=part)


def with_published_rows(table: str, version: int, part: LoadPart, files: Sequence[File]) -> LoadPart:
    """Return a part with the number of published rows, if its staged `files` are published.

    Raises `load_incomplete` if the last part does not complete the rows that were counted when the load was divided. So
    a row that no part has read is found.
    """
    part = replace(part, rows_published=part.rows_published + sum(sum(each.rows.values()) for each in files))
    if part.is_last and part.rows_published != (rows := sum(each.rows for each in part.slices)):
        raise load_incomplete(table=table, version=version, published=part.rows_published, rows=rows)
    return part
