"""Expand the patterns of a configuration to tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from mirrorfeed.config import values
from mirrorfeed.config.errors import HistoriesMeet, NothingMatches, TargetsMeet
from mirrorfeed.config.model import Config, Sources, Table, may_be_hashes
from mirrorfeed.config.options import history_below
from mirrorfeed.config.values import ONELAKE
from mirrorfeed.landing.errors import BadTarget
from mirrorfeed.landing.names import fold
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source.identifier import FoundTable, Source, matches_end, parts_by_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BY_ITSELF = "has its own entry"


@dataclass(frozen=True, slots=True)
class Listed:
    """Configured or found table, with the reason why it is selected or not."""

    source: Source
    table: Table | None
    """Selected table. None if the table is not selected."""
    why: str


@dataclass(frozen=True, slots=True)
class Expansion:
    config: Config
    """Configuration with all selected tables."""
    listed: tuple[Listed, ...]


def expanded(config: Config, spark: Callable[[], SparkSession]) -> Expansion:
    """Expand the patterns. Without patterns, no catalog is read and no Spark session is started."""
    if not config.patterns:
        return expand(config, ())
    from mirrorfeed.source.catalog import list_tables

    found = [list_tables(each.sources, each.keys is not None, spark, default_workspace) for each in config.patterns]
    return expand(config, found)


def expand(config: Config, found: Sequence[Sequence[FoundTable]]) -> Expansion:
    """Return the named tables, then the tables found for each pattern. The first matching pattern selects a table.

    Raises `NothingMatches`, `TargetsMeet` or `HistoriesMeet`.
    """
    listed = [Listed(table.source, table, _BY_ITSELF) for table in config.tables]
    listed_reasons = {table.source.fold(): _BY_ITSELF for table in config.tables}
    for entry, found_tables in zip(config.patterns, found, strict=True):
        of_entry = []
        for each in found_tables:
            why = listed_reasons.get(each.source.fold()) or _why_not(config, entry, each)
            listed_as = _listed(entry, each) if not why else Listed(each.source, None, why)
            of_entry.append(listed_as)
            if listed_as.table:
                listed_reasons[each.source.fold()] = f"by {entry.sources} already"
        if not any(each.table or each.source.fold() in listed_reasons for each in of_entry):
            raise NothingMatches(
                pattern=str(entry.sources),
                path=config.path,
                left_out=tuple(f"{row.source} {row.why}" for row in of_entry),
            )
        listed += [row for row in of_entry if row.why != _BY_ITSELF]
    tables = [row.table for row in listed if row.table]
    if repeated := tuple((str(a.source), str(b.source), str(b.target)) for a, b in _repeated(tables, _target)):
        raise TargetsMeet(conflicts=repeated, path=config.path)
    if shared := list(_repeated(tables, _history)):
        conflicts = tuple((str(a.target), str(b.target), str(b.history.table)) for a, b in shared if b.history)
        raise HistoriesMeet(conflicts=conflicts, path=config.path)
    for at, row in enumerate(listed):
        if row.table and row.table.landing_zone:  # in another landing zone than the one in use
            listed[at] = Listed(row.source, None, f"goes into {row.table.landing_zone}")
    selected = tuple(row.table for row in listed if row.table)
    return Expansion(config.model_copy(update={"entries": (*selected, *config.patterns)}), tuple(listed))


def _target(table: Table) -> Hashable:
    return table.target.fold()


def _history(table: Table) -> Hashable:
    return table.history and table.history.table.fold()


def _repeated(tables: Sequence[Table], key: Callable[[Table], Hashable]) -> Iterator[tuple[Table, Table]]:
    """Yield pairs of tables with the same key: the later table first. A key of None is ignored."""
    first: dict[Hashable, Table] = {}
    for table in tables:
        other = first.setdefault(key(table), table)
        if other is not table and key(table) is not None:
            yield other, table


def _why_not(config: Config, entry: Sources, found: FoundTable) -> str:
    """Return why a found table is not selected, or an empty string."""
    if any(matches_end(found.source, ending) for ending in entry.exclude):
        return "is listed in `exclude`"
    if found.unsupported and entry.changes != "compare":
        return f"is {found.unsupported}, which has no change data feed"
    return _own_purpose(config, found.source)


def _own_purpose(config: Config, source: Source) -> str:
    """Return the purpose of a table that mirrorfeed itself created, or an empty string."""
    if config.ledger and source.fold() == config.ledger.fold():
        return "is the ledger"
    if config.ledger and may_be_hashes(config.ledger, source):
        return "contains row hashes of a compared table"
    if any(table.history and source.fold() == table.history.table.fold() for table in config.tables):
        return "is a history"
    if any(entry.history and _is_below(source, entry.history.table) for entry in config.patterns):
        return "is in the history location"
    if config.staging_path and source.path and PurePath(source.path).is_relative_to(config.staging_path):
        return "is in the staging area"
    zone = None if config.landing_zone.startswith(ONELAKE) else config.landing_zone
    if zone and source.path and PurePath(source.path).is_relative_to(zone):
        return "is in the landing zone"
    return ""


def _is_below(source: Source, place: Source) -> bool:
    if source.path is not None and place.path is not None:
        return PurePath(source.path).is_relative_to(place.path)
    return source.path is None and place.path is None and source.fold()[: len(place.parts)] == place.fold()


def _listed(entry: Sources, found: FoundTable) -> Listed:
    """Return the found table with the options of its entry."""
    try:
        target = values.fill_target(entry.target, parts_by_name(found.source))
    except BadTarget as error:
        return Listed(found.source, None, f"cannot be the target {error.text!r}, which {error.reason}")
    table = Table(source=found.source, target=target, keys=_keys(entry, found))
    history = history_below(entry.history, target) if entry.history else None
    options = {name: getattr(entry, name) for name in _ALIKE}
    return Listed(found.source, table.model_copy(update={**options, "history": history}), f"by {entry.sources}")


_ALIKE = (Table.model_fields.keys() & Sources.model_fields.keys()) - {"target", "keys", "history"}


def _keys(entry: Sources, found: FoundTable) -> tuple[str, ...] | None:
    """Return the keys of the entry if the table has these columns. None means the primary key in Unity Catalog."""
    if entry.keys is None:
        return None
    columns = {fold(name): name for name in found.columns}
    return tuple(columns[fold(key)] for key in entry.keys) if all(fold(key) in columns for key in entry.keys) else None
