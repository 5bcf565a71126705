"""Verify tables against their mirrors, and repair them by publishing the differing rows again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed import archive
from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.display.html import Chart, html_of
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.errors import MirrorfeedError, first_line, with_code, wrap_error
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.output_format import PARQUET
from mirrorfeed.mirror.errors import (
    MirrorColumnsError,
    condition_unreadable,
    full_verification_required,
    mirror_moved,
    mirror_not_reached,
)
from mirrorfeed.mirror.verify import find_differing_keys, mirror_of, row_comparison, verify_at, version_gone_errors
from mirrorfeed.mirror.verify.row_comparison import IN_MIRROR, IN_SOURCE, SHOWN, Difference
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.errors import rebuild_required, too_many_to_repair
from mirrorfeed.orchestration.publish_run import report_problems, update_partner_events
from mirrorfeed.orchestration.result_writer import ResultWriter
from mirrorfeed.orchestration.run_context import Callbacks, RunContext, Stop
from mirrorfeed.orchestration.table_task import TableTask
from mirrorfeed.publish.change_sources import ChangeSource
from mirrorfeed.publish.errors import feed_required, load_unfinished, nothing_published
from mirrorfeed.publish.key_repair import repair
from mirrorfeed.publish.next_publication import with_tags
from mirrorfeed.publish.rows_and_markers import DELETE_FIRST
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.audit import mirror_positions
from mirrorfeed.publish.table_log.verification_mark import (
    VerificationMark,
    different_at,
    equal_at,
    read_mark,
    write_mark,
)
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import apply_selection, read_snapshot
from mirrorfeed.source.snapshot_or_range import Snapshot
from mirrorfeed.source.table_info import read_table_info

ATTEMPTS = 3
"""Attempts to compare a table whose mirror moves at the same time."""


@row
class Repair(Row):
    """Result of repairing a mirror: source rows that differ from it are published again."""

    table: str = shown("table")
    what: str = shown("repair")
    """Result in words, such as "nothing to repair". Empty if `error` prevented the repair."""
    upserts: int = 0
    deletes: int = 0
    files: int = 0
    published_version: int | None = None
    error: MirrorfeedError | None = None
    """Failure of the repair, or the reason why some rows were not repaired."""


@row
class Comparison(Row):
    """Comparison of a source with its mirror, at the version that the mirror contains."""

    table: str = shown("table")
    what: str = shown("mirror")
    """Result in words, such as "not compared"."""
    equal: bool | None
    """True if source and mirror are equal. None if the comparison was not possible."""
    version: int | None = None
    published_version: int | None = None
    """Newest published version. The mirror can still be at an older version."""
    waiting_files: int = 0
    """Number of published files that the mirror does not contain yet."""
    source_rows: int | None = None
    mirror_rows: int | None = None
    differing: int | None = None
    """Number of keys, or of distinct rows in a table without keys, that differ between source and mirror."""
    differences: tuple[Difference, ...] = ()
    """First differences between source and mirror."""
    repair: Repair | None = None
    """Result of the automatic repair. None if the mirror was equal, or if `auto_repair_max_keys` is not set."""
    error: MirrorfeedError | None = None
    is_quick: bool = False
    """True if only the numbers of rows were compared, from the Delta logs. Then `equal` is None if one is not known."""
    since_version: int | None = None
    """With `--since-last`: the verified version since which changed keys were compared. All rows were counted."""
    compared_keys: int | None = None
    """With `--since-last`: number of compared keys. None if unknown."""
    verified_through: int | None = None
    """Newest version at which source and mirror are verified, after this verification. None if there is none."""

    @property
    def ok(self) -> bool:
        """True if source and mirror are equal. False if the mirror was different, even if it is now repaired.

        Also true if the numbers of rows cannot be known from the Delta logs."""
        return self.equal is True or (self.is_quick and self.equal is None and self.error is None)

    def chart(self) -> Chart:
        """Return a bar chart with the number of `differences` by column."""
        from mirrorfeed.display.html import bars

        counts = Counter(each.column or "(whole row)" for each in self.differences)
        columns = [(column, {"differences": count}) for column, count in counts.most_common()]
        return Chart(f"{self.table}: first differences by column", bars(columns, ["differences"], "rows", "column"))

    def _repr_html_(self) -> str:
        if not self.differences:
            return html_of((self,))
        return html_of(self.differences, summary=f"{self.table}: {self.what}")

    def remarks(self) -> Sequence[str]:
        lines = [with_code(self.error)] if self.error else [str(each) for each in self.differences]
        if self.repair:
            lines += [self.repair.what] if self.repair.what else []
            lines += [with_code(self.repair.error)] if self.repair.error else []
        return [f"{self.table}: {line}" for line in lines]


def verify_tables(
    spark: SparkSession,
    config: Config,
    names: Sequence[str],
    mirrors: str,
    shown: int = SHOWN,
    on_problem: Callable[[MirrorfeedError], None] = lambda _: None,
    *,
    since_last: bool = False,
    sample: int = 0,
) -> list[Comparison]:
    """Compare the tables `names` (if empty: all tables) with their mirrors, and write the results to the ledger.

    With `since_last`, compares only the keys that changed since the mark of the last verification, and of `sample`
    random rows, and counts all rows. Each verification writes the mark, except if the mirror moves meanwhile.

    `mirrors` is the folder of the mirrored tables. Each `Comparison` lists the differences of at most `shown` keys. If
    a table cannot be compared, its `Comparison` has the error. A mirror is repaired if the table has the option
    `auto_repair_max_keys` and at most this number of keys differ. If the ledger cannot be written, `on_problem`
    receives the error.
    """
    rows: list[Comparison] = []
    ledger_rows: list[ledger.LedgerRow] = []
    progress.info("Reading the positions of the mirrors")
    positions = mirror_positions(config, names)
    for at, (table, view, candidates) in enumerate(positions, 1):
        name = str(table.target)
        progress.info("Table %d of %d, %s: comparing it with its mirror", at, len(positions), name)
        if view is None or view.newest is None:
            rows.append(Comparison(name, "not compared", None, error=nothing_published(table=name)))
            continue
        if view.newest.complete_version is None:
            error = load_unfinished(table=name, part=str(view.newest.load))
            rows.append(Comparison(name, "not compared", None, error=error))
            continue
        verification = _Verification(spark, config, table, mirrors, shown, since_last, sample, view, candidates)
        result = verification.run()
        try:
            verification.write_mark(result)
        except Exception as error:
            on_problem(wrap_error(f"Writing the verification mark of {name}", error))
        mark = verification.mark
        now, through = datetime.now(UTC), mark.verified_through if mark else None
        ledger_rows.append(replace(ledger.comparison_row(name, result, now), verified_through=through))
        published = verification.view.newest or view.newest
        comparison = _row(name, published.to_version_inclusive, len(verification.view.numbers) - 1, result)
        comparison = replace(comparison, verified_through=through)
        can_repair = table.changes != "compare" and not table.delivery.appends
        if comparison.equal is False and table.auto_repair_max_keys and can_repair:
            context = RunContext(spark, config, Callbacks(on_problem=on_problem))
            try:
                repair = repair_table(context, table, mirrors, max_keys=table.auto_repair_max_keys)
            except Exception as error:
                repair = Repair(name, "", error=wrap_error(f"Repairing {name}", error))
            comparison = replace(comparison, repair=repair)
        rows.append(comparison)
    if lost := ledger.append(spark, config.ledger, ledger_rows):
        on_problem(lost)
    return rows


def position(view: View, candidates: Sequence[Record]) -> tuple[str, list[str]]:
    """Return what identifies the position of a mirror: the log, and the publications that can be the newest one."""
    return view.log_id, [each.batch for each in candidates]


@dataclass
class _Verification:
    """Verification of one table. Reads the position of the mirror again if rows differ, because it may have moved."""

    spark: SparkSession
    config: Config
    table: Table
    mirrors: str
    shown: int
    since_last: bool
    sample: int
    view: View
    candidates: tuple[Record, ...]
    mark: VerificationMark | None = None
    """Mark before the verification and, after `write_mark`, the mark after it."""

    @property
    def log(self) -> TableLog:
        return TableLog(zone_of(self.config), self.table.target.folder)

    def run(self) -> row_comparison.RowComparison | MirrorfeedError:
        name = str(self.table.target)
        try:
            self.table = with_tags(self.table, self.spark)
            for _ in range(ATTEMPTS):
                self.mark = read_mark(self.log, self.view)
                result = self._compare()
                if result.equal or result.has_no_versions or not self._has_moved():
                    return result
        except Exception as error:
            return wrap_error(f"Verifying {name}", error)
        return mirror_moved(table=name)

    def write_mark(self, result: row_comparison.RowComparison | MirrorfeedError) -> None:
        if isinstance(result, MirrorfeedError) or not self.candidates:
            return
        now, source_id = datetime.now(UTC), self.candidates[0].source_id
        if result.equal:
            new = equal_at(result.version, source_id, now)
        else:
            # Rows outside the changed keys are not compared again by the next verification of changes.
            are_compared_again = result.since is not None and not result.uncompared_rows and not self.sample
            new = different_at(result.version, source_id, now, self.mark if are_compared_again else None)
        self.mark = write_mark(self.log, self.view, self.mark, new) or self.mark

    def _compare(self) -> row_comparison.RowComparison:
        table, mirror = self.table, mirror_of(self.mirrors, self.table.target)
        if self.since_last:
            since, sample = self._since(), self.sample
            return verify_at(
                self.spark,
                table.source,
                mirror,
                self.candidates,
                self.shown,
                table.selection,
                since=since,
                sample=sample,
            )
        published = self.log.records(self.view) if table.delivery.appends else ()
        return verify_at(self.spark, table.source, mirror, self.candidates, self.shown, table.selection, published)

    def _since(self) -> int:
        table, mark = str(self.table.source), self.mark
        if mark is None or mark.verified_through is None:
            what = "no verification found source and mirror equal"
            lost = "the last verification found differences in rows that did not change"
            raise full_verification_required(table=table, reason=lost if mark else what)
        ids = {each.source_id for each in self.candidates}
        if ids - {mark.source_id} or (ids and self._source_id() not in ids):
            raise full_verification_required(table=table, reason="the source was replaced since the last verification")
        return mark.verified_through

    def _source_id(self) -> str | None:
        if self.table.changes == "compare":  # refused later
            return self.mark.source_id if self.mark else None
        return read_table_info(self.spark, self.table.source).table_id

    def _has_moved(self) -> bool:
        """Read the position of the mirror again. Return whether it is another one than before the comparison."""
        before = position(self.view, self.candidates)
        ((_, view, self.candidates),) = mirror_positions(self.config, [str(self.table.target)])
        if view is None:
            raise nothing_published(table=str(self.table.target))
        self.view = view
        return position(self.view, self.candidates) != before


def _row(name: str, published: int, waiting: int, result: row_comparison.RowComparison | MirrorfeedError) -> Comparison:
    if isinstance(result, MirrorfeedError):
        return Comparison(name, "not compared", None, published_version=published, error=result)
    waiting = 0 if published == result.version else max(1, waiting)
    lag = f"; published up to version {published}, {counted(waiting, 'file')} not consumed" if waiting else ""
    if lag and result.since == result.version:
        lag = f"; not yet at a newer version{lag}"
    return Comparison(
        name,
        f"{result}{lag}",
        result.equal,
        result.version,
        published,
        waiting,
        result.source_rows,
        result.mirror_rows,
        result.differing,
        result.first,
        since_version=result.since,
        compared_keys=result.compared_keys,
    )


def count_repairable(
    table: str,
    differing: int,
    duplicated: int = 0,
    null_keys: int = 0,
    *,
    by_time: bool = False,
    max_keys: int | None = None,
) -> tuple[int, MirrorfeedError | None]:
    """Return the number of keys to publish again, and an error if some rows are not repaired, otherwise None.

    `differing` is the number of keys without NULL that need a repair. `duplicated` is the number of these keys that the
    mirror contains more than once. `null_keys` is the number of unrepairable rows: their keys contain NULL.

    `by_time` is True if Fabric reads files in the order of modification time. Then duplicated keys are not repaired. If
    more than `max_keys` keys remain (None: no limit), no key is repaired.
    """
    # A duplicated key needs a delete in one file and an upsert in the next. Both files could have the same time.
    skipped = duplicated if by_time else 0
    keys, reasons = differing - skipped, []
    if skipped:
        reasons.append(
            f"the mirror has duplicates of {counted(skipped, 'key')}, and the order of its files does not put a delete"
            " first"
        )
    if null_keys:
        reasons.append(f"{counted(null_keys, 'row')} of the mirror cannot be replaced, because the key contains NULL")
    if max_keys is not None and keys > max_keys:
        return 0, too_many_to_repair(table=table, keys=keys, at_most=max_keys)
    return keys, rebuild_required(table=table, reason="; ".join(reasons)) if reasons else None


def repair_table(
    context: RunContext, table: Table, mirrors: str | None, where: str | None = None, *, max_keys: int | None = None
) -> Repair:
    """Repair a mirror: publish again the rows that differ between source and mirror.

    If the SQL filter `where` is set, publishes all matching rows, even if they do not differ. `mirrors` is the folder
    of the mirrored tables. If `mirrors` is None, the function does not read the mirror: it publishes all source rows
    that match `where` (None: all rows), and rows that exist only in the mirror stay. The result has an error if more
    than `max_keys` keys need a repair, if some rows cannot be repaired, or if the publication fails.

    Raises `feed_required` if the table is published by comparing all rows (`changes: compare`), `nothing_published` if
    it was never published, and `rebuild_required` if it has no keys or if its columns do not match the mirror.
    """
    spark, name = context.session, str(table.target)
    newest, candidates = _position_to_repair(context.config, table)
    table = with_tags(table, spark)
    comparison: row_comparison.RowComparison | None = None
    mirror, published = None if mirrors is None else mirror_of(mirrors, table.target), newest.to_version_inclusive
    with version_gone_errors(spark, table.source, published, mirror), lossless_settings(spark):
        if mirror is None:
            keys = _keys_of_source(spark, table, newest, where)
        else:
            comparison, keys = _keys_of_mirror(spark, table, mirror, candidates, where)
        if comparison and comparison.equal:
            return Repair(name, f"nothing to repair, {comparison}", published_version=published)
        counts = _count_keys(keys, newest.keys)
    by_time = table.file_order == "modified_time"
    count, unrepaired = count_repairable(name, *counts, by_time=by_time, max_keys=max_keys)
    if count == 0:
        what = "" if unrepaired else "nothing to repair"
        return Repair(name, what, published_version=published, error=unrepaired)
    done = publish_again(context, table, _repairable_keys(keys, newest.keys, by_time=by_time))
    rows = [counted(count, noun) for count, noun in ((done.upserts, "upsert"), (done.deletes, "delete")) if count]
    what = f"published again at version {done.published_version}: {', '.join((*rows, counted(done.files, 'file')))}"
    return Repair(
        name,
        "" if done.error else what,
        done.upserts,
        done.deletes,
        done.files,
        done.published_version,
        done.error or unrepaired,
    )


def _position_to_repair(config: Config, table: Table) -> tuple[Record, tuple[Record, ...]]:
    """Return the newest log record of a table, and the records of which Fabric may have applied one last, newest first.

    Raises an error if the table cannot be repaired."""
    name = str(table.target)
    if table.changes == "compare":
        raise feed_required(table=str(table.source), operation="Repairing a mirror")
    ((_, view, candidates),) = mirror_positions(config, [name])
    if view is None or view.newest is None:
        raise nothing_published(table=name)
    if view.newest.complete_version is None:
        raise load_unfinished(table=name, part=str(view.newest.load))
    if not view.newest.keys:
        raise rebuild_required(table=name, reason="the table has no keys, so rows can be added but not replaced")
    if view.newest.delivery.appends:
        raise rebuild_required(table=name, reason="with `delivery: append`, rows can be added but not replaced")
    return view.newest, candidates


def _has_null(names: Sequence[str]) -> Column:
    return reduce(or_, (F.col(quote(name)).isNull() for name in names))


def _count_keys(keys: DataFrame, names: Sequence[str]) -> tuple[int, int, int]:
    """Return the number of keys without NULL, the number of these keys that the mirror has more than once, and the
    number of rows whose keys have NULL."""
    is_null = _has_null(names)
    (counts,) = keys.agg(
        F.count_if(~is_null),
        F.count_if(~is_null & (F.col(IN_MIRROR) > 1)),
        F.sum(F.when(is_null, F.greatest(IN_SOURCE, IN_MIRROR)).otherwise(0)),
    ).collect()
    differing, duplicated, null_keys = (count or 0 for count in counts)
    return differing, duplicated, null_keys


def _repairable_keys(keys: DataFrame, names: Sequence[str], *, by_time: bool) -> DataFrame:
    columns = [F.col(quote(name)) for name in names]
    repairable = keys.where(~_has_null(names)).select(*columns, (F.col(IN_MIRROR) > 1).alias(DELETE_FIRST))
    return repairable.where(f"NOT {DELETE_FIRST}") if by_time else repairable


@dataclass
class _RepairTask(TableTask):
    """Task that publishes the rows of some keys again."""

    keys: DataFrame

    def _publish(self, source: ChangeSource, table: Table, ends: Stop) -> None:
        repair(source, self.context.zone, table, self.keys, self.result, self._on_step, ends)

    def _needs_reload(self, error: MirrorfeedError) -> bool:
        return False


def publish_again(context: RunContext, table: Table, keys: DataFrame) -> TableResult:
    """Publish the rows of `keys` again, with the attempts and the time limit of a run, and write the result."""
    update_partner_events(context)
    task, writer = _RepairTask(context, table, keys), ResultWriter(context, lambda _: table)
    writer.begin()
    while (result := task.attempt()) is None:
        context.clock.sleep(task.state.pause, context.callbacks.stop)
    writer.add([result])
    writer.finish()
    report_problems(context, [result])
    return result


def _keys_of_mirror(
    spark: SparkSession, table: Table, mirror: Source, candidates: tuple[Record, ...], where: str | None
) -> tuple[row_comparison.RowComparison | None, DataFrame]:
    """Return the comparison of source and mirror, and the keys to repair.
    If it is unknown which log record Fabric applied last, `candidates` has all possible log records, newest first. If
    `where` is None, the keys to repair are the keys that differ. Otherwise nothing is compared: the comparison is None,
    and the keys to repair are the keys of all rows in source or mirror that match the SQL filter `where`. Raises
    `rebuild_required` if the columns do not match the mirror."""
    if not candidates:
        raise mirror_not_reached(table=str(table.source))
    record, selection, comparison = candidates[0], table.selection, None
    try:
        if where is None:
            comparison = verify_at(spark, table.source, mirror, candidates, selection=selection)
        version = comparison.version if comparison else record.to_version_inclusive
        as_text = record.extension != PARQUET
        keys = find_differing_keys(
            spark,
            table.source,
            version,
            mirror,
            record.keys,
            where,
            as_text=as_text,
            selection=selection,
            delivery=record.delivery,
        )
    except MirrorColumnsError as error:
        raise rebuild_required(table=str(table.target), reason="; ".join(error.faults)) from error
    return comparison, keys


def _keys_of_source(spark: SparkSession, table: Table, newest: Record, where: str | None) -> DataFrame:
    version = newest.to_version_inclusive
    archive.check(spark, table.source, Snapshot(version), read_table_info(spark, table.source).properties)
    rows = apply_selection(str(table.source), read_snapshot(spark, table.source, version), table.selection)
    names = [quote(name) for name in newest.keys]
    try:
        matching = rows if where is None else rows.where(where)
        return matching.groupBy(*names).agg(F.count(F.lit(1)).alias(IN_SOURCE)).withColumn(IN_MIRROR, F.lit(0))
    except (AnalysisException, ParseException) as error:
        raise condition_unreadable(
            table=str(table.source), condition=where or "", reason=first_line(str(error))
        ) from error
