"""What `verify` finds different, published once more. The comparison says which keys; what is published of them comes
from the source alone, by the publisher's own translation, so that the two stay independent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.config import Config, Table
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.landing.output_format import PARQUET
from mirrorfeed.landing.record import Record
from mirrorfeed.mirror.verify import (
    IN_MIRROR,
    IN_SOURCE,
    Comparison,
    ConditionUnreadable,
    MirrorColumns,
    NothingTaken,
    differing,
    mirror_of,
    readable,
    verify_at,
)
from mirrorfeed.orchestration.publish_run import RunContext, RunMode, publish_tables
from mirrorfeed.publish.errors import FeedRequired, NothingPublished, RebuildRequired, TooManyToRepair
from mirrorfeed.publish.log.mirror_position import mirror_positions
from mirrorfeed.publish.republish import repair
from mirrorfeed.publish.result import TableResult
from mirrorfeed.publish.translate.landing_rows import DELETE_FIRST
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.session_settings import faithful
from mirrorfeed.source.catalog import Workspace
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import selected, snapshot


@dataclass(frozen=True, slots=True)
class DifferingKeys:
    """What is to be published once more, counted by key."""

    keys: int
    """That can be named."""
    doubled: int = 0
    """Those among them that the mirror has more than once: they are taken out first."""
    nameless: int = 0
    """Rows with a NULL in their key, or what is no value of its type: no delete and no upsert meets them."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What is done about it: these keys are published, and what is left needs something else."""

    keys: int
    doubled: bool
    """Whether those that the mirror has more than once are among them."""
    left: MirrorfeedError | None = None


@dataclass(frozen=True, slots=True)
class RepairResult:
    found: Comparison | None
    """None where nothing was compared."""
    outcome: TableResult | None = None
    """None where there was nothing to do."""
    left: MirrorfeedError | None = None
    """What this does not mend."""


def decide(
    table: str, wrong: DifferingKeys, *, by_time: bool = False, at_most: int | None = None
) -> RepairPlan | TooManyToRepair:
    """What of it is published once more. With files that are read by their times, a delete and an upsert of one key
    might be in two files of one moment."""
    left = by_time and wrong.doubled > 0
    keys = wrong.keys - wrong.doubled if left else wrong.keys
    reasons = []
    if left:
        words = f"{counted(wrong.doubled, 'key')} stand{'s' if wrong.doubled == 1 else ''} in the mirror more than once"
        reasons.append(f"{words}, and its files have no order in which a delete comes first")
    if wrong.nameless:
        reasons.append(f"{counted(wrong.nameless, 'row')} cannot be named by a key, for a part of it is NULL")
    if at_most is not None and keys > at_most:
        return TooManyToRepair(table=table, keys=keys, at_most=at_most)
    return RepairPlan(keys, not left, RebuildRequired(table=table, reason="; ".join(reasons)) if reasons else None)


def repair_table(
    spark: SparkSession,
    config: Config,
    table: Table,
    mirrors: str | None,
    where: str | None = None,
    *,
    at_most: int | None = None,
    on_trouble: Callable[[MirrorfeedError], None] = lambda _: None,
    workspace: Callable[[], Workspace] = default_workspace,
) -> RepairResult:
    """Publishes the rows that differ from the mirror below a folder, or all that fulfil a condition, in the source or
    in the mirror. Without a folder the mirror is not read: then rows that the source does not have stay there."""
    name = str(table.target)
    if table.changes == "compare":
        raise FeedRequired(table=str(table.source), asked="to repair its mirror")
    ((_, standing),) = mirror_positions(config, [name])
    newest = standing.newest
    if newest is None:
        raise NothingPublished(table=name)
    if not newest.keys:
        raise RebuildRequired(table=name, reason="it has no keys, so its rows can be added and not replaced")
    found: Comparison | None = None
    mirror = None if mirrors is None else mirror_of(mirrors, table.target)
    with readable(spark, table.source, newest.to_version_inclusive, mirror), faithful(spark):
        if mirror is None:
            keys = _of_source(spark, table, newest, where)
        else:
            try:
                found, keys = _of_mirror(spark, table, mirror, standing.candidates, where)
            except MirrorColumns as error:
                raise RebuildRequired(table=name, reason="; ".join(error.faults)) from error
            if found is not None and found.equal:
                return RepairResult(found)
        wrong = _counted(keys, newest.keys)
    decision = decide(name, wrong, by_time=table.detection == "time", at_most=at_most)
    if isinstance(decision, TooManyToRepair):
        return RepairResult(found, left=decision)
    if decision.keys == 0:
        return RepairResult(found, left=decision.left)
    chosen = _named(keys, newest.keys)
    if not decision.doubled:
        chosen = chosen.where(f"NOT {DELETE_FIRST}")
    way = RunMode(
        lambda feed, store, plan, progress, on_step, _: repair(feed, store, plan, chosen, progress, on_step),
        starts_again=False,
        heeds_pauses=False,
    )
    (outcome,) = publish_tables(RunContext(spark, config, on_trouble=on_trouble, workspace=workspace, way=way), [name])
    return RepairResult(found, outcome, decision.left)


def _of_mirror(
    spark: SparkSession, table: Table, mirror: Source, candidates: tuple[Record, ...], where: str | None
) -> tuple[Comparison | None, DataFrame]:
    """The comparison, where there is no condition, and the keys, with how often each is on either side."""
    if not candidates:
        raise NothingTaken(table=str(table.source))
    record, chosen = candidates[0], table.selection
    found = verify_at(spark, table.source, mirror, candidates, selection=chosen) if where is None else None
    version = found.version if found else record.to_version_inclusive
    as_text = record.extension != PARQUET
    keys = differing(spark, table.source, version, mirror, record.keys, where, as_text=as_text, selection=chosen)
    return found, keys


def _of_source(spark: SparkSession, table: Table, newest: Record, where: str | None) -> DataFrame:
    rows = selected(str(table.source), snapshot(spark, table.source, newest.to_version_inclusive), table.selection)
    names = [quote(name) for name in newest.keys]
    try:
        chosen = rows if where is None else rows.where(where)
        return chosen.groupBy(*names).agg(F.count(F.lit(1)).alias(IN_SOURCE)).withColumn(IN_MIRROR, F.lit(0))
    except Exception as error:
        raise ConditionUnreadable(
            table=str(table.source), condition=where or "", reason=first_line(str(error))
        ) from error


def _counted(keys: DataFrame, names: tuple[str, ...]) -> DifferingKeys:
    nameless = _nameless(names)
    counts = keys.agg(
        F.count_if(~nameless),
        F.count_if(~nameless & (F.col(IN_MIRROR) > 1)),
        F.sum(F.when(nameless, F.greatest(IN_SOURCE, IN_MIRROR)).otherwise(0)),
    ).first()
    assert counts is not None
    return DifferingKeys(*(int(value or 0) for value in counts))


def _named(keys: DataFrame, names: tuple[str, ...]) -> DataFrame:
    chosen = keys.where(~_nameless(names))
    return chosen.select(*(F.col(quote(name)) for name in names), (F.col(IN_MIRROR) > 1).alias(DELETE_FIRST))


def _nameless(names: tuple[str, ...]) -> Column:
    return reduce(or_, (F.col(quote(name)).isNull() for name in names))


def words(found: RepairResult, target: str) -> list[str]:
    """What was done, for people."""
    lines = []
    if found.outcome and not found.outcome.error:
        progress = found.outcome.progress
        rows = [counted(count, marker) for marker, count in sorted(progress.rows.items(), reverse=True) if count]
        version = f"at version {progress.published}"
        said = ", ".join(rows) if progress.publications else "nothing, for no row is concerned"
        lines.append(f"{target}: published once more, {version}: {said}, {counted(progress.files, 'file')}.")
    elif found.outcome is None and found.left is None:
        lines.append(f"{target}: nothing to repair{f', {found.found}' if found.found else ''}.")
    return lines
