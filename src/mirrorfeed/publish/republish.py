"""Rows of a mirror that went wrong, published once more: an ordinary record at the version that is published.

Which keys is not for this module to find. Whatever they are, each is published as it is in the source at that version,
so that a key too many changes nothing, and one that changes meanwhile is right by the publication after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirrorfeed.publish.errors import NothingPublished
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.log.view import View
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.result import Progress
from mirrorfeed.publish.sources.base import ChangeSource, Repair
from mirrorfeed.publish.table_publisher import TablePublisher
from mirrorfeed.publish.unexpected import unknown_faults
from mirrorfeed.source.ranges import NothingNew, Published, recreated
from mirrorfeed.storage import Store


def repair(
    feed: ChangeSource,
    store: Store,
    plan: Plan,
    keys: Any,
    progress: Progress | None = None,
    on_step: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Publishes the rows of these keys, as the feed has keys, once more; no record where there is none of them."""
    run = TablePublisher(feed, TableLog(store, plan.folder), plan, progress or Progress(), on_step)
    log, progress = run.log, run.progress
    view: View | None = None
    while True:
        view = run.finish(view or log.read_view())
        if view is None or view.newest is None:
            raise NothingPublished(table=plan.target)
        if _repaired(progress):
            return progress
        version = view.newest.to_version_inclusive
        facts = feed.facts(version, 0)
        progress.latest = facts.latest
        published = Published(view.newest.source_id, version)
        if finding := recreated(plan.source, published, facts.table_id, facts.latest):
            raise finding
        run.check_unchanged(view)
        view = log.confirm(view)
        if view is None or view.unfinished:
            continue
        progress.last_gone = log.check(view) or progress.last_gone
        what = Repair(version, keys)
        progress.decision = str(what)
        on_step(progress)
        with unknown_faults(plan.source, version, facts.commits, plan.selection):
            staged = run.stage(view, facts, what)
        if isinstance(staged, NothingNew) or (staged and not staged[1].record.files):
            return progress
        view = run.send(*staged) if staged else None


def _repaired(progress: Progress) -> bool:
    """Whether a repair that this run sent is in the log; one that it found and finished was another's."""
    return any(each.record.repairs and each.latest is not None for each in progress.made)
