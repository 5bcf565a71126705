"""Publish the rows of some keys of a table again, with the steps of a publication."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirrorfeed.config.model import Table
from mirrorfeed.publish.errors import load_unfinished, nothing_published
from mirrorfeed.publish.next_publication import published_version
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.publish.table_publisher import OnStep, Run
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import SourceRecreatedError
from mirrorfeed.source.snapshot_or_range import Facts, KeyRepair, find_recreation
from mirrorfeed.storage import Store

if TYPE_CHECKING:
    from mirrorfeed.publish.change_sources import ChangeSource


def repair(
    source: ChangeSource,
    store: Store,
    table: Table,
    keys: Any,
    result: TableResult | None = None,
    on_step: OnStep = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> TableResult:
    """Publish the rows of some keys again, with their values at the published version, as one log record.

    `keys` is a Spark DataFrame with the key columns and, optionally, the column `DELETE_FIRST`. Everything else is the
    same as in `publish`.
    """
    run = Run(source, store, table, result, on_step)
    view = None
    while not run.is_done:
        view = run.finish(view or run.log.read_view())
        if _has_repaired(run.result) or stop():
            break
        facts, decision = decide_repair(source, table, view, keys)
        run.check(view, facts, decision)
        view = run.carry_out(view, facts, decision)
    return run.result


def _has_repaired(result: TableResult) -> bool:
    """Return whether the run added the record of a repair.

    A repair without `lag_versions` belongs to an earlier run, and this run only finished its renames."""
    return any(each.is_repair and "lag_versions" in result.measured[each.batch] for each in result.records)


def decide_repair(
    source: ChangeSource, table: Table, view: View | None, keys: Any
) -> tuple[Facts, KeyRepair | SourceRecreatedError]:
    """Return facts about the source, and a repair that publishes the rows of `keys` again, at the published version.

    If another table has replaced the source, returns `SourceRecreatedError` instead of the repair. Raises
    `nothing_published` if the table has no log record, and `load_unfinished` if parts of its first load are missing.
    """
    if view is None or view.newest is None:
        raise nothing_published(table=str(table.target))
    if view.newest.complete_version is None:
        raise load_unfinished(table=str(table.target), part=str(view.newest.load))
    published = published_version(view.newest)
    facts = source.facts(published, 0)
    other_table = find_recreation(str(table.source), published, facts.table_id, facts.latest)
    return facts, other_table or KeyRepair(published.version, keys)
