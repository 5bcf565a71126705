"""A Delta table as the source of a publication: its history and feed, read and staged by Spark."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import mirrorfeed
from mirrorfeed.archive.guard import feed as archive
from mirrorfeed.errors import MirrorfeedError, Terminal, Transient
from mirrorfeed.feed import changes, history, read
from mirrorfeed.feed.days import all_days
from mirrorfeed.feed.ranges import Facts, Range
from mirrorfeed.feed.source import Source
from mirrorfeed.landing.schema import Column, columns_of, lost
from mirrorfeed.publish import unique
from mirrorfeed.publish.carry import Carrier, send
from mirrorfeed.publish.table import Plan, Repair
from mirrorfeed.publish.writer import (
    CARRIED_DDL,
    RECEIPT_DDL,
    BadRow,
    Batches,
    Receipt,
    StagingJob,
    bad_rows,
    executor_task,
    receipts_in,
    stage_empty,
)

_KEYS_SHOWN = 5
_OURS = re.compile(r"^\W*(mirrorfeed(?:\.\w+)+)\.(\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class DeltaFeed:
    spark: SparkSession
    source: Source
    carrier: Callable[[], Carrier | None] = lambda: None
    """Asked when there is something to stage: who brings files to the landing zone; None: executors themselves."""
    _schemas: dict[int, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By version, as asked since the last facts: if another table took the name since, its id tells in the end."""

    def facts(self, after: int | None, limit: int) -> Facts:
        self._schemas.clear()
        return history.facts(self.spark, self.source, after, limit, self._schema)

    def table_id(self) -> str:
        return history.detail(self.spark, self.source).table_id

    def columns(self, version: int) -> tuple[Column, ...]:
        return columns_of(str(self.source), self._schema(version))

    def check(self, what: Range | int, facts: Facts) -> None:
        self.carrier()  # a way that is refused is refused before anything is written
        with read.read_faults(str(self.source), what):
            archive.check(self.spark, self.source, what, facts.properties)
            if isinstance(what, Range) and what.to_version_inclusive < facts.latest:
                self._feed(what, self.columns(what.to_version_inclusive))

    def stage(self, what: Range | int, plan: Plan, job: StagingJob) -> tuple[Sequence[Receipt], Sequence[BadRow]]:
        with read.read_faults(str(self.source), what):
            if isinstance(what, int):
                return self._snapshot(what, plan, job)
            with all_days(self.spark):
                return self._write(self._changed_rows(what, plan, job), job)

    def stage_again(self, what: Repair, plan: Plan, job: StagingJob) -> tuple[Sequence[Receipt], Sequence[BadRow]]:
        with read.read_faults(str(self.source), what.version):
            there = read.snapshot(self.spark, self.source, what.version)
            return self._write(changes.again(there, what.keys, job.columns, plan.keys), job)

    def _schema(self, version: int) -> dict[str, Any]:
        if version not in self._schemas:
            self._schemas[version] = history.schema_at(self.spark, self.source, version)
        return self._schemas[version]

    def _snapshot(self, version: int, plan: Plan, job: StagingJob) -> tuple[Sequence[Receipt], Sequence[BadRow]]:
        rows = read.snapshot(self.spark, self.source, version)

        def wrong_keys() -> list[BadRow]:
            found = changes.key_problems(rows, plan.keys, _KEYS_SHOWN).toArrow()
            return bad_rows(found, changes.PROBLEM, plan.keys)

        by_hash = plan.keys if plan.check_keys else ()
        if by_hash and rows.count() > unique.MOST:
            if found := wrong_keys():
                return (), found
            by_hash = ()
        receipts, bad = self._write(changes.snapshot_rows(rows, job.columns, by_hash), job, wrong_keys)
        return receipts if receipts or bad else [stage_empty(job)], bad

    def _changed_rows(self, range_: Range, plan: Plan, job: StagingJob) -> DataFrame:
        feed = self._feed(range_, job.columns)
        if not plan.keys:
            return changes.inserts(feed, job.columns)
        if plan.changes == "full":
            exact = plan.markers == "exact"
            return changes.full(feed, job.columns, plan.keys, exact=exact, skip_unchanged=plan.skip_unchanged)
        return changes.net(feed, job.columns, plan.keys, skip_unchanged=plan.skip_unchanged)

    def _feed(self, range_: Range, columns: Sequence[Column]) -> DataFrame:
        """The rows of a range, or a finding where Delta reads them with columns that lack something of these."""
        feed = read.changes(self.spark, self.source, range_)
        names = {column.name for column in columns if not column.dropped}
        now = [field for field in json.loads(feed.schema.json())["fields"] if field["name"] in names]
        if missing := lost(columns, columns_of(str(self.source), {"fields": now})):
            raise read.FeedUnreadable(str(self.source), range_, str(range_.to_version_inclusive), None, missing)
        return feed

    def _write(
        self, rows: DataFrame, job: StagingJob, wrong_keys: Callable[[], list[BadRow]] = list
    ) -> tuple[Sequence[Receipt], Sequence[BadRow]]:
        """`wrong_keys` is asked where hashes of keys came back and repeat."""

        def told(found: Sequence[dict[str, Any]]) -> tuple[list[Receipt], list[BadRow]]:
            receipts, bad = receipts_in(found)
            hashes = [row["hashes"] for row in found if row["hashes"]]
            return receipts, bad or (wrong_keys() if unique.repeat(hashes) else [])

        let_code_travel()
        carrier = self.carrier()
        key_hash = changes.KEY_HASH if changes.KEY_HASH in rows.columns else None
        task = _by_place(rows.columns, executor_task(job.carried() if carrier else job, changes.PROBLEM, key_hash))
        given = rows.toDF(*map(str, range(len(rows.columns))))
        try:
            if carrier is None:
                return told(given.mapInArrow(task, RECEIPT_DDL).toArrow().to_pylist())
            with carrier.keep(given.mapInArrow(task, CARRIED_DDL), job) as kept:
                receipts, bad = told(kept.rows)
                return (receipts if bad else send(job, receipts, kept)), bad
        except Exception as error:
            # All that Spark tells of a task's failure, by whatever class, is its text.
            kind, sentences = told_by_executors(str(error))
            if kind is None:
                raise
            refused = ExecutorsCannotWrite if issubclass(kind, Transient) else ExecutorsMayNotWrite
            raise refused(job.store.address(job.folder), sentences) from error


def _by_place(names: Sequence[str], task: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """A task for rows whose columns lost their names on the way, for `mapInArrow` takes dots and backticks in a name
    for more than a name."""

    def named(batches: Batches) -> Batches:
        return task(pa.RecordBatch.from_arrays(batch.columns, names=list(names)) for batch in batches)

    return named


def told_by_executors(text: str) -> tuple[type[MirrorfeedError] | None, str]:
    """The kind and the sentences of the last error of ours in a traceback."""
    for module, name, sentences in reversed(_OURS.findall(text)):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, MirrorfeedError):
            return kind, sentences.strip()
    return None, ""


class ExecutorsCannotWrite(Transient):
    def __init__(self, address: str, sentences: str) -> None:
        self.address, self.sentences = address, sentences

    def what(self) -> str:
        return f"The landing zone did not take what executors wrote to {self.address}."

    def next(self) -> str:
        return self.sentences


class ExecutorsMayNotWrite(Terminal):
    """What they met does not pass by itself."""

    def __init__(self, address: str, sentences: str) -> None:
        self.address, self.sentences = address, sentences

    def what(self) -> str:
        return f"Executors cannot write to {self.address}."

    def next(self) -> str:
        return self.sentences


def let_code_travel() -> None:
    """Executors have the package where it is installed, as from a wheel. In a notebook that imports the bundle's files
    they do not: then the code travels with the task."""
    if not {"site-packages", "dist-packages"}.intersection(Path(mirrorfeed.__file__).parts):
        cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
