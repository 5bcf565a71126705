"""Find the tables that match the patterns of a configuration, and decide which of them are published."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from mirrorfeed.config import validators
from mirrorfeed.config.errors import duplicate_histories, duplicate_targets, nothing_matches
from mirrorfeed.config.model import Config, Sources, Table, may_be_hashes
from mirrorfeed.config.options import history_below
from mirrorfeed.landing.errors import TargetNameError
from mirrorfeed.landing.names import fold
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source.identifier import FoundTable, Source, matches_end, parts_by_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWN_ENTRY = "has its own entry"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Table that is configured or matches a pattern, with the reason why it is selected or not."""

    source: Source
    table: Table | None
    """Entry of the table, or an entry made from the pattern. None if the table is not selected."""
    why: str


@dataclass(frozen=True, slots=True)
class Expansion:
    config: Config
    """Configuration with an entry for each selected table, followed by the patterns."""
    candidates: tuple[Candidate, ...]


def expand_patterns(config: Config, spark: Callable[[], SparkSession]) -> Expansion:
    """Return two values: the configuration with an entry for each table to publish, and a list of all candidates.

    Candidates are the tables that have their own entry or match a pattern. Without patterns, no catalog is read and no
    Spark session is started. Raises `nothing_matches` if a pattern matches no table that can be published, and
    `duplicate_targets` or `duplicate_histories` if two tables have the same target or history.
    """
    if not config.patterns:
        return select_matches(config, ())
    from mirrorfeed.source.catalog import list_tables

    own = {table.source.fold() for table in config.tables}

    def find(entry: Sources) -> list[FoundTable]:
        def needs_columns(found: FoundTable) -> bool:  # a broken table that is not selected must not matter
            return entry.keys is not None and found.source.fold() not in own and not _why_not(config, entry, found)

        return list_tables(entry.sources, needs_columns, spark, default_workspace, entry.tags)

    return select_matches(config, list(map(find, config.patterns)))


def select_matches(config: Config, matches: Sequence[Sequence[FoundTable]]) -> Expansion:
    """Return two values: the configuration with an entry for each table to publish, and a list of all candidates.

    `matches` contains a list of tables for each pattern. Candidates are these tables and the tables with their own
    entry. If several patterns match a table, the first one selects it. Raises the errors of `expand_patterns`.
    """
    candidates = [Candidate(table.source, table, _OWN_ENTRY) for table in config.tables]
    reasons = {table.source.fold(): _OWN_ENTRY for table in config.tables}
    for entry, found_tables in zip(config.patterns, matches, strict=True):
        of_entry = []
        for found in found_tables:
            why_not = reasons.get(found.source.fold()) or _why_not(config, entry, found)
            candidate = Candidate(found.source, None, why_not) if why_not else _select(entry, found)
            of_entry.append(candidate)
            if candidate.table:
                reasons[found.source.fold()] = f"by {entry.sources} already"
        if not any(each.source.fold() in reasons for each in of_entry):
            left_out = tuple(f"{each.source} {each.why}" for each in of_entry)
            raise nothing_matches(pattern=str(entry.sources), path=config.path, left_out=left_out)
        candidates += [each for each in of_entry if each.why != _OWN_ENTRY]
    tables = [each.table for each in candidates if each.table]
    pairs = _find_repeated(tables, lambda table: table.target.fold())
    if conflicts := [f"{a.source} and {b.source} in {b.target}" for a, b in pairs]:
        raise duplicate_targets(conflicts=conflicts, path=config.path)
    pairs = _find_repeated(tables, lambda table: table.history and table.history.table.fold())
    if conflicts := [f"{a.target} and {b.target} in {b.history.table}" for a, b in pairs if b.history]:
        raise duplicate_histories(conflicts=conflicts, path=config.path)
    for position, each in enumerate(candidates):
        if each.table and each.table.landing_zone:  # another landing zone than the one in use
            candidates[position] = Candidate(each.source, None, f"goes into {each.table.landing_zone}")
    selected = tuple(each.table for each in candidates if each.table)
    return Expansion(config.model_copy(update={"entries": (*selected, *config.patterns)}), tuple(candidates))


def _find_repeated(tables: Sequence[Table], key: Callable[[Table], Hashable]) -> Iterator[tuple[Table, Table]]:
    """Yield pairs of tables for which `key` returns the same value, except None. The earlier table is first."""
    first: dict[Hashable, Table] = {}
    for table in tables:
        other = first.setdefault(key(table), table)
        if other is not table and key(table) is not None:
            yield other, table


def _why_not(config: Config, entry: Sources, found: FoundTable) -> str:
    """Return the reason why a table that matches a pattern is not selected, or an empty string if it is selected."""
    source, ledger = found.source, config.ledger
    if any(matches_end(source, ending) for ending in entry.exclude):
        return "is listed in `exclude`"
    if missing := [each for each in (entry.tags or {}).items() if each not in found.tags]:
        return f"lacks the tag {', '.join(f'{name}={value}' if value else name for name, value in missing)}"
    if found.unsupported and entry.changes != "compare":
        return f"is {found.unsupported}, which has no change data feed"
    if ledger and source.fold() == ledger.fold():
        return "is the ledger"
    if ledger and may_be_hashes(ledger, source):
        return "contains row hashes of a compared table"
    if any(table.history and source.fold() == table.history.table.fold() for table in config.tables):
        return "is a history"
    if any(pattern.history and _is_below(source, pattern.history.table) for pattern in config.patterns):
        return "is in the history location"
    if config.staging_path and source.path and PurePath(source.path).is_relative_to(config.staging_path):
        return "is in the staging area"
    return "is in the landing zone" if source.path and config.is_in_landing_zone(source.path) else ""


def _is_below(source: Source, location: Source) -> bool:
    if source.path is not None and location.path is not None:
        return PurePath(source.path).is_relative_to(location.path)
    return source.path is None and location.path is None and source.fold()[: len(location.parts)] == location.fold()


_COMMON_OPTIONS = (Table.model_fields.keys() & Sources.model_fields.keys()) - {"target", "keys", "history"}


def _select(entry: Sources, found: FoundTable) -> Candidate:
    """Return an entry for a table that matches a pattern, in a `Candidate`. No entry if the target is invalid."""
    try:
        target = validators.fill_target(entry.target, parts_by_name(found.source))
    except TargetNameError as error:
        return Candidate(found.source, None, f"cannot be the target {error.text!r}, which {error.reason}")
    table = Table(source=found.source, target=target, keys=_keys_of(entry, found))
    history = history_below(entry.history, target) if entry.history else None
    options = {name: getattr(entry, name) for name in _COMMON_OPTIONS}
    return Candidate(found.source, table.model_copy(update={**options, "history": history}), f"by {entry.sources}")


def _keys_of(entry: Sources, found: FoundTable) -> tuple[str, ...] | None:
    """Return the pattern's keys if the table has all of them. Otherwise, return None: the primary key is used.

    If the columns are unknown, returns the pattern's keys: publishing then fails, and does not start without keys.
    """
    if entry.keys is None or found.columns is None:
        return entry.keys
    columns = {fold(name): name for name in found.columns}
    return tuple(columns[fold(key)] for key in entry.keys) if all(fold(key) in columns for key in entry.keys) else None
