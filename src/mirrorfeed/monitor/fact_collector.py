"""Read the sources, logs and mirrors of tables, and the mirrored database, for `status`, `doctor` and alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.display.progress import ProgressCounter
from mirrorfeed.display.rows import counted, duration
from mirrorfeed.errors import wrap_error
from mirrorfeed.landing.log_record import unselected_columns
from mirrorfeed.landing.names import LOG as LOGS
from mirrorfeed.landing.names import PROCESSED, data_number, is_log_id
from mirrorfeed.monitor.findings import DatabaseFacts, LogFacts, SourceFacts, TableFacts, is_long_lag
from mirrorfeed.monitor.freshness import NOT_READ, Freshness, Step, freshness_of, read_mirror
from mirrorfeed.monitor.measurements import LongestText, Measurements, identify_rows
from mirrorfeed.orchestration.last_failure import LastFailures
from mirrorfeed.orchestration.next_step import LARGEST_CHECKED, check_source_keys, find_certain_stop, find_next_step
from mirrorfeed.orchestration.scheduler import map_parallel
from mirrorfeed.publish.change_sources import NO_SPARK, ChangeSource, needs_no_spark, source_for
from mirrorfeed.publish.change_sources.local_feed import LocalFeed
from mirrorfeed.publish.errors import PublishedFilesLostError
from mirrorfeed.publish.next_publication import published_version, with_keys, with_tags
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source import versions
from mirrorfeed.source.snapshot_or_range import Commit, Facts, NothingNew, find_recreation
from mirrorfeed.source.table_info import FILES, LOG, count_files, open_local_table, read_table_info, retention_seconds
from mirrorfeed.source.versions import SPARK_REQUIRED
from mirrorfeed.storage.local_folder import arrow_files

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from mirrorfeed.landing.log_record import Record
    from mirrorfeed.landing.selection import Selection
    from mirrorfeed.mirror.fabric.status_and_settings import TableState, TableSync
    from mirrorfeed.publish.table_log.verification_mark import VerificationMark
    from mirrorfeed.publish.table_log.view import View
    from mirrorfeed.source.identifier import Source
    from mirrorfeed.storage import Store


def database_facts(config: Config) -> DatabaseFacts:
    if config.onelake is None:
        return DatabaseFacts()
    from mirrorfeed.mirror.fabric import database_of

    try:
        database = database_of(config)
        return DatabaseFacts(database.status(), states=database.tables())
    except Exception as error:
        return DatabaseFacts(error=wrap_error("Reading the state of the mirrored database", error))


@dataclass(frozen=True)
class Collector:
    """Reads sources, logs and mirrors of tables, and returns `TableFacts`. Starts Spark only if a table needs it."""

    config: Config
    spark: Callable[[], SparkSession]
    deep: bool = False
    """True for checks that read rows of the source, its whole history, and all records of the table's log."""
    states: Sequence[TableState] | None = None
    """State of each table in Fabric, or None if Fabric was not read."""
    syncs: Sequence[TableSync] | str | None = None
    """Results of refreshing the SQL endpoint, or the reason why there are none. None to read no mirrors."""
    mirror: str | None = None
    """Folder of the mirrored tables, or None for the mirror in Fabric."""
    measurements: Measurements = field(default_factory=Measurements)
    """Results of queries over all rows. Known results count even if not `deep`."""
    follows_up: bool = False
    """True to make a deep check in part if the first facts about a table give a reason: its lag, an error in Fabric."""
    workspace: Callable[[], WorkspaceClient] = default_workspace
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def collect(
        self,
        tables: Sequence[Table],
        on_facts: Callable[[Table, TableFacts], None] = lambda *_: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[TableFacts]:
        """Return the facts about source, log and mirror of each table, in the order of `tables`.

        Errors in reading a table are part of its facts, and not raised. `on_facts` is called with the facts of each
        table as soon as they are known, in this thread. When `stop` returns True, the facts of the tables that were not
        read yet are missing in the result."""
        store = zone_of(self.config)
        failures, found, counter = LastFailures(store), dict[str, TableFacts](), ProgressCounter("Checked", len(tables))

        def add(results: Sequence[tuple[Table, TableFacts | None]]) -> None:
            for table, facts in results:
                if facts:
                    found[facts.table] = _with_last_failure(facts, table, failures)
                    on_facts(table, found[facts.table])
            counter.show(len(found))

        map_parallel(lambda table: (table, self._without_spark(store, table)), tables, add, stop)
        left = [table for table in tables if str(table.target) not in found]
        if left and not stop():
            shared, spark = replace(self, workspace=cache(self.workspace)), self.spark()
            map_parallel(lambda table: (table, shared._facts(spark, store, table)), left, add, stop)
        return [found[name] for name in map(str, (table.target for table in tables)) if name in found]

    def _without_spark(self, store: Store, table: Table) -> TableFacts | None:
        """Return the facts about a table whose source is a local folder. None if Spark is needed."""
        if not needs_no_spark(table):
            return None
        with suppress(Exception):  # Spark reads the table then, and its error counts
            return self._facts(NO_SPARK, store, table)
        return None

    def _facts(self, spark: Any, store: Store, table: Table) -> TableFacts:
        """Return the facts about a table, including the errors that occurred while facts were read.

        `spark` is a Spark session, or `NO_SPARK` to read the table without Spark. With `NO_SPARK`, an error is raised
        if Spark may decide otherwise.
        """
        max_lag, now = self.config.alerts.max_lag_minutes, self.now()
        pause = table.pause_at(now)
        published = table.finite_freshness_target if table.freshness_target_minutes else max_lag.published
        minutes = max_lag.model_dump() | {"published": published}
        facts = TableFacts(
            table=str(table.target),
            source=table.source.sql,
            source_name=str(table.source),
            zone=self.config.landing_zone,
            delivery=table.delivery,
            paused=str(pause) if pause else None,
            service=next((each for each in self.states or () if each.is_of(table.target)), None),
            read_service=self.states is not None,
            at=now,
            limits={Step(step): each and each * 60 for step, each in minutes.items()},
            max_verification_age=(hours := self.config.alerts.max_verification_age_hours) and hours * 3600,
        )
        log, view = TableLog(store, table.target.folder), None
        try:
            view = log.read_view()
            facts = replace(facts, log_facts=read_log(log, view, now))
        except Exception as error:
            facts = replace(facts, errors=(wrap_error(f"Reading the log of {table.target}", error),))
        is_log_read = facts.log_facts.is_read
        try:
            measures = self.deep or bool(self.follows_up and facts.service and facts.service.error)
            table = with_tags(table, spark)
            source, committed, unpublished, known = self._read_source(spark, table, log, view, now, measures)
            facts = replace(facts, source_facts=source)
            if is_log_read:
                facts = replace(facts, freshness=self._freshness(table, facts, log, view, committed, unpublished))
            if is_log_read and facts.log_facts.lost is None:  # lost files stop the next run before it reads the source
                step, are_keys_checked = self._check_next(spark, log, table, view, known)
                facts = replace(facts, special_step=step, are_keys_checked=are_keys_checked)
        except Exception as error:
            stop = find_certain_stop(table, error) if spark is NO_SPARK else None
            if spark is NO_SPARK and stop is None:
                raise
            facts = replace(facts, errors=(*facts.errors, stop or wrap_error(f"Checking {table.target}", error)))
        return facts

    def _read_source(
        self, spark: Any, table: Table, log: TableLog, view: View | None, now: datetime, measures: bool
    ) -> tuple[SourceFacts, datetime | None, datetime | None, Callable[[], Facts] | None]:
        """Return facts about the source, two commit times, and a function for the facts that decide the next
        publication.

        The first time is the commit time of the newest version. The second time is the commit time of the oldest
        unpublished version, or None if nothing or everything is published. Both times are None if each publication
        compares all rows (`changes: compare`). Then the function is None. If `measures` is True, the longest text is
        measured.

        Raises an error if the source cannot be read. Also raises an error if the table must be rebuilt, because the
        source was recreated or a published column is no longer selected.
        """
        from mirrorfeed.publish.change_sources.full_compare import COMPARED
        from mirrorfeed.source.change_feed import read_facts
        from mirrorfeed.source.feed_activation import feed_kind

        newest = view.newest if view else None
        if table.changes == "compare":
            last_read = newest.read if newest else None
            shown = f", {counted(last_read.rows, 'row')} in {duration(last_read.seconds)}" if last_read else ""
            rows = identify_rows(view.log_id, view.number, table.selection) if view else None
            text, is_measured = self._longest_text(spark, table, rows, measures)
            facts = SourceFacts(f"{COMPARED}{shown}", longest_text=text, is_measured=is_measured)
            return facts, None, None, None
        published = newest.to_version_inclusive if newest else None
        records = list(log.records(view)) if self.deep and view else []
        local = open_local_table(table.source)  # once, because it takes long if the Delta log has many files
        commits = self._read_commits(spark, table, records, published, local)
        detail = read_table_info(spark, table.source, local=local)
        feed = feed_kind(spark, table.source, detail).value
        if newest:
            if find_recreation(str(table.source), published_version(newest), detail.table_id, commits[-1].version):
                self._check_next(spark, log, table, view, None)  # returns if publishing continues
            unselected_columns(str(table.source), newest, table.selection)
        since = next((each.timestamp for each in commits if published is not None and each.version > published), None)
        lag_seconds: float | None = max(0.0, (now - since).total_seconds()) if since else 0.0
        if newest is None or newest.complete_version is None:
            lag_seconds = None
        retentions = {name: retention_seconds(detail.properties, name) for name in (FILES, LOG)}
        if view and not records and self.follows_up and is_long_lag(lag_seconds, retentions):
            records = list(log.records(view))
            commits = self._read_commits(spark, table, records, published, local)
        times = {each.version: each.timestamp for each in commits}
        lag_before = None
        if since and len(records) > 1 and (committed := times.get(records[-1].to_version_inclusive)):
            lag = max(0.0, (records[-1].at - committed).total_seconds())
            lag_before = (now - records[-1].at).total_seconds(), lag
        rows = identify_rows(detail.table_id, commits[-1].version, table.selection)
        text, is_measured = self._longest_text(spark, table, rows, measures)
        source = SourceFacts(
            feed,
            commits[-1].version,
            lag_seconds=lag_seconds,
            lag_before=lag_before,
            longest_wait=longest_wait(records, times) if records else shortest_wait(newest),
            retentions=retentions,
            cloned_from=versions.clone_source(spark, table.source) if self.deep and spark else None,
            longest_text=text,
            is_measured=is_measured,
        )
        if published == commits[-1].version:
            properties, partitions = detail.properties, detail.partition_columns
            known = partial(Facts, detail.table_id, published, (), properties=properties, partitions=partitions)
        else:
            limit, without_spark = table.max_versions_per_publication, spark is NO_SPARK
            read = partial(read_facts, spark, table.source, published, limit, without_spark=without_spark)
            known = partial(read, known=(detail, commits))
        return source, commits[-1].timestamp, since, known

    def _read_commits(
        self, spark: Any, table: Table, records: Sequence[Record], published: int | None, local: DeltaTable | None
    ) -> Sequence[Commit]:
        """Return the newest commit, the commits that are not published, and those since the oldest of `records`."""
        after = records[-1].to_version_inclusive - 1 if records else published
        if after is None:
            return [versions.read_newest_commit(spark, table.source, local)]
        return versions.read_commits(spark, table.source, after, local)

    def _check_next(
        self, spark: Any, log: TableLog, table: Table, view: View | None, known: Callable[[], Facts] | None
    ) -> tuple[str | None, bool]:
        """Raise the error that would stop the next run. Returns `special_step` and `are_keys_checked` of `TableFacts`.
        `known` returns the facts about the source. If it is None, they are read."""
        table = with_keys(table, self.workspace)
        source = source_for(spark, self.config, table)
        if spark is NO_SPARK:
            source = LocalFeed(spark, table.source, selection=table.selection)
        step = find_next_step(source, log, table, view, known)
        if step.error:
            raise step.error
        is_new = not isinstance(step.decision, NothingNew)
        if self.deep and is_new:
            rows = identify_rows(step.facts.table_id, step.facts.latest, table.keys, table.selection)
            check = partial(_check_keys, spark, source, table, step.facts)
            self.measurements.check_keys(str(table.target), rows, check)
        return step.text if step.cause else None, self.deep or not is_new

    def _freshness(
        self,
        table: Table,
        facts: TableFacts,
        log: TableLog,
        view: View | None,
        committed: datetime | None,
        unpublished: datetime | None,
    ) -> Freshness:
        """Return when changes of a table last reached each step on the way to Fabric, and how long changes wait.

        `committed` is the commit time of the newest source version, or None if unknown. `unpublished` is the commit
        time of the oldest unpublished source version, or None if unknown or if all versions are published.
        """
        lost, mirror = facts.log_facts.lost, NOT_READ
        if self.syncs is not None:
            mirror = read_mirror(self.config, table, facts.service, self.syncs, self.mirror)
        return freshness_of(
            log.records(view) if view else (),
            [*(view.numbers if view else ()), *(lost.numbers if isinstance(lost, PublishedFilesLostError) else ())],
            committed,
            unpublished,
            reads_commits=table.changes != "compare",
            unfinished=bool(view and view.unfinished),
            has_consumed=facts.has_consumed,
            mirror=mirror,
        )

    def _longest_text(self, spark: Any, table: Table, rows: str | None, measures: bool) -> tuple[LongestText, bool]:
        """Return the longest text of the source, and whether it is known. Reads the source only if `measures`."""
        name = str(table.target)
        if not (measures or self.measurements.has_text(name, rows)):
            return None, False
        try:
            return self.measurements.longest_text(name, rows, partial(_measure_text, spark, table)), True
        except Exception:
            if spark is NO_SPARK:
                raise
            return None, False  # the check of the next publication reports files that cannot be read


def _check_keys(spark: Any, source: ChangeSource, table: Table, facts: Facts) -> None:
    if spark is NO_SPARK and table.keys:
        raise ValueError(SPARK_REQUIRED)
    check_source_keys(source, table, facts)


def _measure_text(spark: Any, table: Table) -> LongestText:
    """Return the longest text of a source, or None if it is larger than `LARGEST_CHECKED` or has no text."""
    if spark is NO_SPARK:
        if table.selection or (local := open_local_table(table.source)) is None:
            raise ValueError(SPARK_REQUIRED)
        return longest_local_text(local, table.source.path or "")
    if read_table_info(spark, table.source, counted=True).bytes > LARGEST_CHECKED:
        return None
    return longest_text(spark, table.source, table.selection)


def _with_last_failure(facts: TableFacts, table: Table, failures: LastFailures) -> TableFacts:
    """Return the facts with the last failure of the table, unless everything is published."""
    log, newest = facts.log_facts, facts.source_facts.newest_version
    published = log.published
    if not log.is_read or (published is not None and published == newest and not log.unfinished):
        return facts
    return replace(facts, last_failure=failures.read(table.target, published))


def read_log(log: TableLog, view: View | None, now: datetime) -> LogFacts:
    """Return the facts about a table's folder and log. `view` is the content of the log, or None if there is no log."""
    store, folder = log.store, log.folder
    parent, _, name = folder.rpartition("/")
    entries = view.entries if view else store.list(folder)
    files = [entry for entry in entries if not entry.is_folder and data_number(entry.name, None)]
    newest = max((entry.modified for entry in files), default=None)
    facts = LogFacts(
        exists=bool(entries) or any(entry.name == name for entry in store.list(parent)),
        data_files=len(files),
        empty_files=tuple(store.address(f"{folder}/{entry.name}") for entry in files if entry.size == 0),
        newest_file_age=(now - newest).total_seconds() if newest else None,
    )
    if view is None:
        return facts
    is_processed = any(entry.name in PROCESSED for entry in entries)
    logs = [entry.name for entry in store.list(f"{folder}/{LOGS}") if entry.is_folder and is_log_id(entry.name)]
    return replace(
        facts,
        published=view.newest.complete_version if view.newest else None,
        mark=_read_mark(log, view),
        load=view.newest.progress if view.newest else None,
        is_adopted=view.newest is not None and view.newest.is_adoption,
        unfinished=len(view.unfinished),
        # Fabric removes the first file when it has consumed a later one.
        has_consumed=is_processed or (view.next_file_number > 1 and 1 not in view.numbers),
        orphans=(*view.leftovers(), *(name for name in logs if name != view.log_id)),
        lost=log.find_lost_files(view),
    )


def _read_mark(log: TableLog, view: View) -> VerificationMark | None:
    if not view.marks:
        return None
    from mirrorfeed.publish.table_log.verification_mark import read_mark  # imported late: many tables have none

    return read_mark(log, view)


def longest_wait(newest_first: Sequence[Record], committed: Mapping[int, datetime]) -> float:
    """Return the longest time in seconds from a commit to its publication. 0 if no time is known.

    `committed` maps versions to commit times. Ignores the last record, the oldest, because it can be a snapshot, and
    parts of a first load.
    """
    changes = [record for record in newest_first[:-1] if record.load is None]
    firsts = {record.at: committed.get((record.from_version_exclusive or 0) + 1) for record in changes}
    return max(((at - first).total_seconds() for at, first in firsts.items() if first), default=0.0)


def shortest_wait(newest: Record | None) -> float:
    """Return the seconds from the last commit of a publication to the publication. 0 if unknown, or for a snapshot."""
    committed = published_version(newest).committed if newest and newest.from_version_exclusive is not None else None
    return max(0.0, (newest.at - committed).total_seconds()) if newest and committed else 0.0


def longest_text(spark: SparkSession, source: Source, selection: Selection | None = None) -> LongestText:
    """Return the name of the column with the longest text in the source, and the length of the text in UTF-8 bytes.

    Ignores columns that are not selected. Measures nested values as JSON. Returns None if there is no text.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    from mirrorfeed.source.identifier import quote
    from mirrorfeed.source.reader import apply_selection

    frame = apply_selection(str(source), spark.read.table(source.sql), selection)
    lengths = {}
    for each in frame.schema:
        column = F.col(quote(each.name))
        if isinstance(each.dataType, StringType):
            lengths[each.name] = F.max(F.octet_length(column))
        elif isinstance(each.dataType, ArrayType | MapType | StructType):
            lengths[each.name] = F.max(F.octet_length(F.to_json(column)))
    row = frame.agg(*lengths.values()).first() if lengths else None
    measured = [(name, length) for name, length in zip(lengths, row or (), strict=True) if length is not None]
    return max(measured, key=lambda each: each[1], default=None)


def longest_local_text(table: DeltaTable, folder: str) -> LongestText:
    """Return, without Spark, the name of the column with the longest text, and the length of the text in UTF-8 bytes.

    Returns None if there is no text, or if the data is larger than 64 MiB. Raises an error if a column is nested.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if count_files(table)[1] > LARGEST_CHECKED:
        return None
    rows = table.to_pyarrow_dataset(filesystem=arrow_files(folder))
    if any(pa.types.is_nested(each.type) for each in rows.schema):
        raise ValueError("nested")
    texts = [each.name for each in rows.schema if pa.types.is_string(each.type) or pa.types.is_large_string(each.type)]
    batches = rows.to_batches(columns=texts)
    lengths = ((name, pc.max(pc.binary_length(batch[name])).as_py()) for batch in batches for name in texts)
    return max((each for each in lengths if each[1] is not None), key=lambda each: each[1], default=None)
