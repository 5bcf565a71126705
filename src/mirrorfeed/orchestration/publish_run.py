"""Publish many tables, in a single pass or continuously. A table that fails does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table
from mirrorfeed.display.progress import ProgressCounter, progress
from mirrorfeed.display.row_limit import MANY
from mirrorfeed.display.rows import counted, duration
from mirrorfeed.errors import MirrorfeedError, with_code
from mirrorfeed.orchestration.errors import files_rewritten, leftovers_not_deleted
from mirrorfeed.orchestration.result_writer import ResultWriter
from mirrorfeed.orchestration.run_context import Callbacks, OnDone, OnStep, RunContext, Stop
from mirrorfeed.orchestration.scheduler import (
    QueuedTable,
    Scheduler,
    default_max_tables,
    map_parallel,
    run_queue,
)
from mirrorfeed.orchestration.table_task import TableTask
from mirrorfeed.publish.errors import feed_required
from mirrorfeed.publish.table_log.metadata_files import write_partner_events
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.request_retries import retry_counter

EXPAND_INTERVAL = 300.0
"""Seconds between two expansions of the configured patterns in continuous publishing."""
Published = tuple[tuple[TableResult, ...], tuple[str, ...], str]
"""Results of the tables, notes to show, and a summary in one sentence, which may be empty."""


def publish_new(
    spark: Callable[..., SparkSession],
    config: Config,
    names: Sequence[str] = (),
    on_step: OnStep | None = None,
    on_done: OnDone | None = None,
    stop: Stop | None = None,
) -> Published:
    """Publish new changes of all tables or only of `names`. Ends early if `stop` returns True.

    After an early end, `stopped` is True in the result of each unfinished table. A paused table has a note and no
    result. If a table fails, its result has the error. If Spark is needed, `spark` is called to start a session.
    Usually `spark` receives the sources of all selected tables. `spark` receives no arguments if the configuration has
    a ledger, or if at least one selected table is published by comparing all rows (`changes: compare`).
    """
    now, before, started = datetime.now(UTC), retry_counter().value, time.monotonic()
    chosen = config.select(names)
    if not chosen:
        return (), (), f"No table is in {' or '.join(names)}."
    pauses = {str(table.target): pause for table in chosen if (pause := table.pause_at(now))}
    progress.info("Reading what is published")
    problems: list[MirrorfeedError] = []
    session = partial(spark, *([] if config.ledger else delta_sources(chosen)))
    context = RunContext(session, config, Callbacks.guarded(problems.append, on_step, on_done, stop))
    rows = {row.table: row for row in publish_tables(context, names)}
    for name in (str(table.target) for table in chosen):
        if name not in rows and name not in pauses:
            rows[name] = TableResult(name, stopped=True)
    stopped = sum(row.stopped for row in rows.values())
    summary = f"Stopped on request. The next run continues with {stopped} of {counted(len(chosen), 'table')}."
    notes = [*map(with_code, problems), *(f"{name}: {pause}" for name, pause in pauses.items())]
    if repeated := retry_counter().value - before:
        notes.append(f"{counted(repeated, 'request')} had to be repeated.")
    took = run_time(time.monotonic() - started, context.start_seconds)
    totals = total_of(tuple(rows.values())) if len(rows) > MANY else ""
    return tuple(rows.values()), tuple(notes), " ".join(filter(None, [totals, summary if stopped else "", took]))


def total_of(results: Sequence[TableResult]) -> str:
    """Return a sentence with the number of tables that failed, were stopped, were published or had nothing new."""
    counts = {
        "failed": sum(each.error is not None for each in results),
        "stopped": sum(each.stopped and each.error is None for each in results),
        "published": sum(each.ok and bool(each.records) for each in results),
        "nothing new": sum(each.is_idle for each in results),
    }
    return f"{counted(len(results), 'table')}: {', '.join(f'{n:,} {kind}' for kind, n in counts.items() if n)}."


def run_time(seconds: float, start_seconds: float) -> str:
    """Return a sentence with the duration of a run, and of the start of Spark, which `TableResult.seconds` excludes."""
    start = f", of which Spark took {duration(start_seconds)} to start" if start_seconds >= 1 else ""
    return f"The run took {duration(seconds)}{start}."


def delta_sources(tables: Sequence[Table]) -> list[Source]:
    """Return the sources that a command checks before it starts Spark: the sources of all tables, or no source.
    No source is returned if at least one table is published by comparing all rows, because its source can also be a
    folder with Parquet files. Then a command starts Spark without a check."""
    return [] if any(table.changes == "compare" for table in tables) else [table.source for table in tables]


def publish_tables(
    context: RunContext, names: Sequence[str] = (), *, includes_paused: bool = False
) -> list[TableResult]:
    """Publish all configured tables, or only `names`, and write the ledger and `_partnerEvents.json`.

    Returns one result for each table with at least one attempt, in the order of the configuration. If a table fails,
    its result has the error. Continuous publishing returns the newest result of each table, and raises `feed_required`
    if a table is published by comparing all rows.
    """
    follows, now = context.follows, datetime.now(UTC)
    if not follows:  # in continuous publishing, each table reports an unreachable landing zone and tries again
        update_partner_events(context)
        if not names:
            report_orphans(context)
    run, skips = _Run(context, names), not (includes_paused or follows)
    run.set_tables([each for each in context.config.select(names) if not (skips and each.pause_at(now))])
    run.counter = ProgressCounter("Finished", len(run.tasks))
    if not follows:
        map_parallel(TableTask.attempt_without_spark, list(run.tasks.values()), run.add)
    tasks = [task for name, task in run.tasks.items() if name not in run.newest]
    if tasks and not context.callbacks.stop():
        _ = context.session  # starts in this thread, and fails for all tables
        run.writer.begin()
    # If all tables start at the same time, their order does not matter.
    ordered = not follows and len(tasks) > run.scheduler.max_parallel_tables
    run.scheduler.waiting = map_parallel(partial(TableTask.queued, ordered=ordered), tasks)
    run_queue(
        run.scheduler,
        lambda name: run.tasks[name].attempt(),
        run.ended,
        context.clock,
        stop=context.callbacks.stop,
        on_pass=run.on_pass,
        endless=follows,
    )
    return run.finish()


class _Run:
    """State of a run: the tasks and newest results of its tables, the queue, and the writer of results."""

    def __init__(self, context: RunContext, names: Sequence[str]) -> None:
        self.context, self.names = context, names
        self.tasks, self.newest = dict[str, TableTask](), dict[str, TableResult]()
        self.counter = ProgressCounter("Finished", 0)
        self.current: Sequence[str] = ()
        """Names of the tables to publish. In continuous publishing, they change when patterns are expanded again."""
        self.writer = ResultWriter(context, lambda name: self.tasks[name].table)
        self.scheduler = Scheduler(context.config.max_parallel_tables or default_max_tables(), [])
        self.expanded_at = context.clock.now()

    def set_tables(self, tables: Sequence[Table]) -> list[TableTask]:
        """Set the tables to publish from now on. Return a task for each table that this run did not publish before."""
        self.current, new = [str(table.target) for table in tables], []
        for name, table in zip(self.current, tables, strict=True):
            if self.context.follows and table.changes == "compare":
                raise feed_required(table=str(table.source), operation="Continuous publishing")
            if name in self.tasks:
                self.tasks[name].table = table
            else:
                self.tasks[name] = TableTask(self.context, table)
                new.append(self.tasks[name])
        return new

    def on_pass(self) -> None:
        context = self.context
        self.writer.add([])
        if context.follows and context.clock.now() - self.expanded_at >= EXPAND_INTERVAL:
            from mirrorfeed.orchestration.pattern_changes import expand_again  # only continuous publishing needs it

            self.expanded_at = context.clock.now()
            if tables := expand_again(context, self.names):
                new = self.set_tables(tables)
                self.scheduler.waiting = [each for each in self.scheduler.waiting if each.name in self.current]
                self.scheduler.waiting += [task.queued() for task in new]

    def ended(self, name: str, result: TableResult | None) -> QueuedTable | None:
        context, task = self.context, self.tasks[name]
        if result:
            self.add([result])
        if result and result.error and context.follows:
            context.reconnect(result.error)
        is_left = name in self.current if context.follows else task.state.remaining
        return task.queued() if is_left else None

    def add(self, results: Sequence[TableResult | None]) -> None:
        """Keep each result as the newest of its table, and pass the result to `on_done`. Ignores None in `results`.

        The ledger receives the first result of each table. It receives a later result only if the table published
        something, or if the error of the table changed.
        """
        new_results: list[TableResult] = []
        for result in filter(None, results):
            before, self.newest[result.table] = self.newest.get(result.table), result
            self.context.callbacks.on_done(result)
            if before is None or result.records or str(result.error) != str(before.error):
                new_results.append(result)
        self.record_failures(new_results)
        self.writer.add(new_results)
        if self.context.follows:
            report_problems(self.context, new_results)
        else:
            self.counter.show(len(self.newest))

    def finish(self) -> list[TableResult]:
        """Write what is left to the ledger, report problems, and return the newest result of each table."""
        if not self.context.follows:
            waiting = [self.tasks[each.name] for each in self.scheduler.waiting]
            self.add([task.finished() for task in waiting if task.state.tries or task.result.records])
        self.writer.finish()
        results = [self.newest[name] for name in self.current if name in self.newest]
        if not self.context.follows:
            report_problems(self.context, results)
        return [replace(each, published_before=each.table in self.writer.reloaded_tables) for each in results]

    def record_failures(self, results: Sequence[TableResult]) -> None:
        """Write the last failure of tables that failed, and delete that of tables that succeeded. Raises no error."""
        with suppress(MirrorfeedError):  # the landing zone cannot be opened, which the results of the tables report
            for result in results:
                self.context.failures.update(self.tasks[result.table].table.target, result)


def update_partner_events(context: RunContext) -> None:
    """Write `_partnerEvents.json` if necessary. Raises an error only if the landing zone cannot be opened."""
    zone = context.zone
    try:
        write_partner_events(zone, context.config)
    except MirrorfeedError as problem:  # tables can be published without the file
        context.callbacks.on_problem(problem)


def report_orphans(context: RunContext) -> None:
    """Report published tables that no pattern selects any more: a source can disappear although its entry did not
    change."""
    if context.config.patterns:
        from mirrorfeed.orchestration.orphaned_targets import orphans_problem  # imported late: only patterns need it

        if orphans := orphans_problem(context.config, context.zone):
            context.callbacks.on_problem(orphans)


def report_problems(context: RunContext, results: Sequence[TableResult]) -> None:
    """Report the warnings in `results`."""
    for result in results:
        for warning in (result.retention_warning, result.missing_file_warning):
            if warning:
                context.callbacks.on_problem(warning)
        if result.cleanup_error:
            context.callbacks.on_problem(leftovers_not_deleted(table=result.table, cause=result.cleanup_error))
    if rewritten := [result for result in results if result.differed]:
        tables = [result.table for result in rewritten]
        context.callbacks.on_problem(files_rewritten(tables=tables, differed=rewritten[0].differed))
