"""The engine of open source Delta on classic Spark: reads plans, and clones the active files of a table.

Plans show which files a query needs, the log shows their age. A shallow clone without the archived files has a log
and no data, and is created in a folder of this machine.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import IO, Any, ClassVar

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import spark_plan_tree, spark_scans
from mirrorfeed.archive.errors import (
    BadPredicate,
    BadStatement,
    CannotBePlanned,
    NoQuery,
    NoSuchVersion,
    OnlyOnOneMachine,
)
from mirrorfeed.archive.file_index import columnar_log, data_skipping
from mirrorfeed.archive.file_index.archived_files import archived_among, archived_of, created_until
from mirrorfeed.archive.file_index.data_skipping import Doubt
from mirrorfeed.archive.file_index.log_file import LogFile, column_names, uri_of
from mirrorfeed.archive.file_index.spark_log import DeltaLog, log_of
from mirrorfeed.archive.guard.archived_files_needed import NeededFiles
from mirrorfeed.archive.guard.engine import TableFacts
from mirrorfeed.archive.guard.predicate import filtered
from mirrorfeed.archive.interval import Policy, any_property, understood
from mirrorfeed.archive.spark_scans import Scan, planned
from mirrorfeed.errors import first_line
from mirrorfeed.runtime.session_settings import PASS_OVER
from mirrorfeed.runtime.spark_errors import EXPIRED, LOG_GONE, first_of
from mirrorfeed.runtime.spark_session import unlogged
from mirrorfeed.source import reader, versions
from mirrorfeed.source.errors import NotDelta, VersionExpired
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage import UnreadableFile
from mirrorfeed.storage.folder import open_regular

_NEVER = -1
"""A creation time before that of every file."""
_PREFIX = "mirrorfeed-active-"
_LOCK = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}\.lock")


@dataclass(frozen=True)
class LocalEngine:
    spark: SparkSession
    guards_itself: ClassVar[bool] = False

    def judges(self, statement: str) -> bool:
        with unlogged():
            kind = spark_scans.command_kind(self.spark, statement)
        if kind is not None and not spark_scans.reads_no_rows(kind):
            raise NoQuery(statement=statement, kind=kind)
        return kind is None

    def query(self, statement: str) -> DataFrame:
        try:
            with unlogged():
                kind = spark_scans.command_kind(self.spark, statement)
                if kind is not None:
                    raise NoQuery(statement=statement, kind=kind)
                return self.spark.sql(statement)
        except AnalysisException as error:
            raise BadStatement(statement=statement, reason=first_line(str(error))) from error

    def judge(self, frame: DataFrame, now: datetime) -> tuple[DataFrame, Sequence[NeededFiles]]:
        self._check_settings()
        rows, scans = planned(frame)
        return rows, self._needed_by(scans, now)

    def needed_by_change(self, source: Source, statement: str, now: datetime) -> Sequence[NeededFiles]:
        self._check_settings()
        return self._needed_by([spark_scans.candidates(self.spark, statement, self.newest(source))], now)

    def _check_settings(self) -> None:
        """A file that is archived after its tier was read must make the query fail."""
        for name in PASS_OVER:
            if str(self.spark.conf.get(name)).lower() == "true":
                raise CannotBePlanned(reason=f"{name} is true, so rows of unreadable files would be missing")

    def _needed_by(self, scans: Sequence[Scan], now: datetime) -> Sequence[NeededFiles]:
        """By table and version. The interval of the newest version applies to all versions."""
        grouped: dict[tuple[str, int], list[Scan]] = {}
        for each in scans:
            grouped.setdefault((each.location, each.version), []).append(each)
        found = []
        for _, same in sorted(grouped.items(), key=lambda each: each[0]):
            newest = spark_scans.whole(self.spark.table(Source(path=same[0].location).sql)) or same[0]
            needed = self._needed_of(same, understood(same[0].name, newest.properties), now)
            if needed.files:
                found.append(needed)
        return found

    def _needed_of(self, scans: Sequence[Scan], policy: Policy | None, now: datetime) -> NeededFiles:
        """For scans of one table at one version."""
        first, *others = scans
        until = _NEVER if policy is None else created_until(policy, now)
        files = {file.uri: file for scan in scans for file in scan.files(until)}
        archived = archived_of(self.spark, first.name, first.location, files.values(), policy, now)
        active = None if others else first.count - len(archived)  # several scans may share files
        listed = tuple(sorted(archived, key=lambda file: file.uri))
        return NeededFiles(first.name, first.table_id, first.location, first.version, listed, active)

    def facts(self, source: Source) -> TableFacts:
        try:
            with columnar_log.columns(self.spark, source, None) as (_, log):
                found = log.metadata()
                id_, location, properties = found.table_id, log.location, found.properties
            columns = tuple(column_names(found.schema).values())
        except Doubt:
            newest = self.newest(source)
            id_, location, properties = newest.table_id, newest.location, newest.properties
            columns = tuple(self.spark.table(source.sql).columns)
        return TableFacts(str(source), id_, location, columns, understood(str(source), properties))

    def needed(
        self, source: Source, facts: TableFacts, where: str | None, now: datetime, version: int | None = None
    ) -> NeededFiles:
        try:
            return self.compared(source, facts, where, now, version)
        except Doubt:
            return self.planned(source, facts, where, now, version)

    def compared(
        self, source: Source, facts: TableFacts, where: str | None, now: datetime, version: int | None = None
    ) -> NeededFiles:
        """From the columns of the log, for conditions that are only comparisons. Raises `Doubt` if Delta might plan
        other files."""
        policy = facts.policy
        with columnar_log.columns(self.spark, source, version) as (at, log):
            table = log.metadata()
            asked = []
            if where is not None:
                try:
                    rows = spark_plan_tree.frame_of_schema(self.spark, table.schema)
                    asked = spark_plan_tree.comparisons_in(filtered(rows, str(source), where))
                except (BadPredicate, PySparkException) as error:
                    raise Doubt("a condition that only Delta may accept") from error
            until = None if policy is None else created_until(policy, now)
            rules = data_skipping.rules(asked, table.schema, table.partitions, table.properties)
            count, files = log.files(table, rules, until)
        archived = archived_among(sorted(files, key=lambda file: file.uri), policy, now)
        return NeededFiles(str(source), table.table_id, log.location, at, tuple(archived), count - len(archived))

    def planned(
        self, source: Source, facts: TableFacts, where: str | None, now: datetime, version: int | None = None
    ) -> NeededFiles:
        """From Delta's plan."""
        whole = self.whole(source, version)
        scans: Sequence[Scan] = [whole]
        if where is not None:
            _, scans = planned(filtered(self.rows(source, whole.version), str(source), where))
        if not scans:
            return NeededFiles(str(source), whole.table_id, whole.location, whole.version, (), 0)
        return replace(self._needed_of(scans, facts.policy, now), table=str(source))

    def whole(self, source: Source, version: int | None = None) -> Scan:
        """All files of a version. The default version is the newest."""
        newest = self.newest(source)
        if version is None or version == newest.version:
            return newest
        found = spark_scans.whole(self.rows(source, version))
        assert found is not None, "the newest version was read in the same way"
        return found

    def newest(self, source: Source) -> Scan:
        try:
            found = spark_scans.whole(self.spark.table(source.sql))
        except AnalysisException:
            found = None
        if found is None:
            what = read_table_info(self.spark, source)  # raises an error that names what is there instead
            raise NotDelta(table=str(source), found=f"a table at {what.location} whose log cannot be found")
        return found

    def location(self, source: Source) -> str:
        return self.newest(source).location

    def newest_version(self, source: Source) -> int:
        return self.newest(source).version

    def partitions(self, source: Source, version: int | None) -> list[dict[str, str | None]]:
        return sorted(self.whole(source, version).partitions(), key=str)

    def changed(self, source: Source, first: int) -> Sequence[LogFile]:
        newest = versions.newest_version(self.spark, source)
        return self.log(source).changed_files(first, newest) if first <= newest else ()

    def without(self, source: Source, left_out: Collection[str], version: int) -> DataFrame:
        if left_out:
            rows = _clone_without(self.spark, source, self.newest(source).table_id, version, left_out)
        else:
            rows = reader.at_version(self.spark, source, version)
        return planned(rows)[0]

    def log(self, source: Source) -> DeltaLog:
        return log_of(self.spark, source, read_table_info(self.spark, source))

    def rows(self, source: Source, version: int) -> DataFrame:
        try:
            if version >= 0:
                return reader.at_version(self.spark, source, version)
        except Exception as error:
            if first_of(error, (EXPIRED,)):
                raise VersionExpired(table=str(source), version=version) from error
            if first_of(error, LOG_GONE) is None:
                raise
        raise NoSuchVersion(table=str(source), version=version, newest=self.newest(source).version)


def files_of(frame: DataFrame) -> list[str]:
    """The data files that a query reads, after Delta has skipped files by partition and statistics."""
    _, scans = planned(frame)
    return sorted({file.uri for scan in scans for file in scan.files()})


def _clone_without(
    spark: SparkSession, source: Source, table_id: str, version: int, left_out: Collection[str]
) -> DataFrame:
    """The rows of a table version that are not in these files, read from a clone."""
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        raise OnlyOnOneMachine(table=str(source))
    files = frozenset(left_out)
    key = (spark, source, table_id, version, files)
    cut = _clones.get(key, lambda path: _cut_out(spark, source, version, files, path))
    return spark.read.option("versionAsOf", 1).table(cut.sql)


def _cut_out(spark: SparkSession, source: Source, version: int, left_out: frozenset[str], path: Path) -> None:
    with any_property(spark):
        clone = Source(path=str(path))
        spark.sql(f"CREATE TABLE {clone.sql} SHALLOW CLONE {source.sql} VERSION AS OF {version}")
    log = path / "_delta_log"
    time = int(datetime.now(UTC).timestamp() * 1000)
    lines = [{"commitInfo": {"timestamp": time, "inCommitTimestamp": time, "operation": "DELETE"}}]
    for line in (log / f"{0:020d}.json").read_text(encoding="utf-8").splitlines():
        if (added := json.loads(line).get("add")) and uri_of(str(path), added["path"]) in left_out:
            kept = {name: added[name] for name in ("path", "deletionVector", "size") if name in added}
            lines.append({"remove": {**kept, "deletionTimestamp": time, "dataChange": True}})
    (log / f"{1:020d}.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


class Clones:
    """The newest clones of this process, in a folder of its own.

    The folder is deleted when the process ends. If the process was killed, the next process that clones deletes it.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._made: dict[Hashable, Path] = {}
        self._own: tuple[Path, IO[str]] | None = None
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[Path], None]) -> Source:
        with self._lock:
            self._own = self._own or _own_folder()
            path = self._made.pop(key, None)
            if path is None:
                path = self._own[0] / uuid.uuid4().hex
                make(path)
            self._made[key] = path  # the most recently used clone is last
            while len(self._made) > self._most:
                shutil.rmtree(self._made.pop(next(iter(self._made))), ignore_errors=True)
        return Source(path=str(path))


_clones = Clones()


def _own_folder() -> tuple[Path, IO[str]]:
    """A new folder, and a file next to it that this process keeps locked."""
    temporary = Path(tempfile.gettempdir())
    _remove_abandoned(temporary)
    folder = temporary / f"{_PREFIX}{uuid.uuid4().hex}"
    lock = folder.with_suffix(".lock").open("x", encoding="utf-8")
    _try_lock(lock)
    folder.mkdir(mode=0o700)
    atexit.register(Path(lock.name).unlink, missing_ok=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder, lock


def _remove_abandoned(temporary: Path) -> None:
    """Deletes the folders of killed processes."""
    for path in temporary.glob(f"{_PREFIX}*.lock"):
        if not _LOCK.fullmatch(path.name):
            continue
        with suppress(OSError, UnreadableFile), open_regular(path) as lock:  # it may belong to another user
            if _try_lock(lock):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink()


def _try_lock(file: IO[Any]) -> bool:
    """Locks a file until it is closed; False if another process has it locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
