"""Expand the configured patterns again in continuous publishing, and report tables that they no longer select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Table
from mirrorfeed.config.pattern_expansion import expand_patterns
from mirrorfeed.errors import wrap_error
from mirrorfeed.orchestration.errors import orphaned_tables
from mirrorfeed.orchestration.orphaned_targets import find_orphans

if TYPE_CHECKING:
    from mirrorfeed.orchestration.run_context import RunContext


def expand_again(context: RunContext, names: Sequence[str]) -> Sequence[Table]:
    """Expand the patterns of the configuration again. Return all tables of the new configuration, or only `names`.

    Returns no table if there are no patterns, or if the patterns cannot be expanded. `on_problem` receives the
    error of the expansion, or a warning about published tables that the patterns no longer select.
    """
    if not (context.written and context.written.patterns):
        return ()
    before = {str(table.target) for table in context.config.select(names)}
    try:
        config = expand_patterns(context.written, lambda: context.session).config
        tables = config.select(names)
        removed = before - {str(table.target) for table in tables}
        orphans = find_orphans(context.zone, config) if removed else []
    except Exception as caught:
        error = wrap_error("Reading which tables the patterns select", caught)
        if str(error) != context.expansion_error:
            context.callbacks.on_problem(error)
        context.expansion_error = str(error)
        return ()
    context.expansion_error, context.config = "", config
    if orphans:
        context.callbacks.on_problem(orphaned_tables(targets=tuple(map(str, orphans)), path=config.path))
    return tables
