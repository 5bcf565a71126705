"""Compare the numbers of rows of tables and their mirrors from the Delta logs, for all tables in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table
from mirrorfeed.errors import MirrorfeedError, wrap_error
from mirrorfeed.mirror.errors import mirror_moved, mirror_not_reached
from mirrorfeed.mirror.row_counts import CountComparison, compare_counts
from mirrorfeed.mirror.verify import mirrors_folder
from mirrorfeed.orchestration.scheduler import map_parallel
from mirrorfeed.orchestration.verify_and_repair import ATTEMPTS, Comparison, position, verify_tables
from mirrorfeed.publish.errors import load_unfinished, nothing_published
from mirrorfeed.publish.table_log.audit import mirror_positions


def verify_or_count(
    spark: Callable[[], SparkSession],
    config: Config,
    names: Sequence[str],
    mirror: str | None,
    shown: int,
    quick: bool,
    since_last: bool,
    sample: int,
) -> tuple[tuple[Comparison, ...], list[MirrorfeedError]]:
    """Return the result of `verify_tables` or, with `quick`, of `count_tables`, and problems with ledger and marks."""
    problems: list[MirrorfeedError] = []
    config.select(names)
    if quick:
        return tuple(count_tables(spark, config, names, mirror)), problems
    folder = mirrors_folder(config, mirror)
    rows = verify_tables(spark(), config, names, folder, shown, problems.append, since_last=since_last, sample=sample)
    return tuple(rows), problems


def count_tables(
    spark: Callable[[], SparkSession], config: Config, names: Sequence[str], mirror: str | None
) -> list[Comparison]:
    """Compare the numbers of rows of the tables `names` (if empty: all tables) and their mirrors.

    Equal numbers do not prove equal rows, so this writes nothing to the ledger, and no verification mark. `mirror` is
    the folder of the mirrored tables, or None for OneLake. Starts Spark only for tables whose logs only Spark can read.
    """
    return map_parallel(lambda table: _count(spark, config, table, mirror), config.select(names))


def _count(spark: Callable[[], SparkSession], config: Config, table: Table, mirror: str | None) -> Comparison:
    name = str(table.target)
    try:
        return _compare(spark, config, table, mirror)
    except Exception as error:
        return Comparison(name, "not compared", None, error=wrap_error(f"Verifying {name}", error), is_quick=True)


def _compare(spark: Callable[[], SparkSession], config: Config, table: Table, mirror: str | None) -> Comparison:
    name, before = str(table.target), None
    found: CountComparison | None = None
    for _ in range(ATTEMPTS):
        ((_, view, candidates),) = mirror_positions(config, [name])
        if view is None or view.newest is None:
            raise nothing_published(table=name)
        if view.newest.complete_version is None:
            raise load_unfinished(table=name, part=str(view.newest.load))
        if not candidates:
            raise mirror_not_reached(table=str(table.source))
        now = position(view, candidates)
        if found and now == before:  # the mirror did not move, so the difference is real
            return _row(name, view.newest.to_version_inclusive, found)
        compared = [compare_counts(spark, config, table, mirror, each) for each in candidates]
        found = next((each for each in compared if each.equal is not False), compared[0])
        if found.equal is not False:
            return _row(name, view.newest.to_version_inclusive, found)
        before = now
    raise mirror_moved(table=name)


def _row(name: str, published: int, found: CountComparison) -> Comparison:
    return Comparison(
        name,
        str(found),
        found.equal,
        found.version,
        published,
        source_rows=found.source_rows,
        mirror_rows=found.mirror_rows,
        differences=found.differences,
        is_quick=True,
    )
