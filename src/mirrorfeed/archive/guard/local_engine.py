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
from dataclasses import dataclass
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
from mirrorfeed.archive.file_index.archived_files import archived_among, archived_by_owner, created_until
from mirrorfeed.archive.file_index.data_skipping import Doubt
from mirrorfeed.archive.file_index.log_file import LogFile, column_names, uri_of
from mirrorfeed.archive.file_index.spark_log import DeltaLog, log_of
from mirrorfeed.archive.guard.engine import Answer, Facts, Judged, Need
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


@dataclass(frozen=True)
class Here:
    spark: SparkSession
    guards_itself: ClassVar[bool] = False

    def table(self, source: Source) -> LocalIndex:
        return LocalIndex(self.spark, source)

    def judges(self, statement: str) -> bool:
        with unlogged():
            kind = spark_scans.command_kind(self.spark, statement)
        if kind is not None and not spark_scans.reads_no_rows(kind):
            raise NoQuery(statement=statement, kind=kind)
        return kind is None

    def query(self, statement: str) -> DataFrame:
        return query(self.spark, statement)

    def judged(self, frame: DataFrame, now: datetime) -> Judged:
        _check_settings(self.spark)
        found = planned(frame)
        return Judged(found.rows, self._needs(found.scans, now))

    def looked_into(self, source: Source, statement: str, now: datetime) -> Sequence[Need]:
        _check_settings(self.spark)
        whole = LocalIndex(self.spark, source).newest()
        return self._needs([spark_scans.candidates(self.spark, statement, whole)], now)

    def _needs(self, scans: Sequence[Scan], now: datetime) -> Sequence[Need]:
        """By table and version. The interval of the newest version holds for all."""
        grouped: dict[tuple[str, int], list[Scan]] = {}
        for each in scans:
            grouped.setdefault((each.location, each.version), []).append(each)
        found = []
        for (location, version), same in sorted(grouped.items(), key=lambda each: each[0]):
            newest = spark_scans.whole(self.spark.table(Source(path=location).sql)) or same[0]
            archived = archived_in(self.spark, same, understood(same[0].name, newest.properties), now)
            if archived:
                found.append(Need(same[0].name, same[0].table_id, location, version, archived))
        return found


def _check_settings(spark: SparkSession) -> None:
    """A file that the cloud moves after it was looked at must make a query fail."""
    for name in PASS_OVER:
        if str(spark.conf.get(name)).lower() == "true":
            raise CannotBePlanned(reason=f"{name} is true, so that rows of files that cannot be read would be missing")


def query(spark: SparkSession, statement: str) -> DataFrame:
    """A query that is understood and not run; nothing else is carried out."""
    try:
        with unlogged():
            kind = spark_scans.command_kind(spark, statement)
            if kind is not None:
                raise NoQuery(statement=statement, kind=kind)
            return spark.sql(statement)
    except AnalysisException as error:
        raise BadStatement(statement=statement, reason=first_line(str(error))) from error


@dataclass(frozen=True)
class LocalIndex:
    """For open source Delta on classic Spark."""

    spark: SparkSession
    source: Source
    guards_itself: ClassVar[bool] = False

    def facts(self) -> Facts:
        try:
            with columnar_log.columns(self.spark, self.source, None) as (_, log):
                found = log.described()
            return Facts(found.table_id, tuple(column_names(found.schema).values()), found.properties)
        except Doubt:
            newest = self.newest()
            return Facts(newest.table_id, tuple(self.spark.table(self.source.sql).columns), newest.properties)

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        try:
            return self.compared(predicate, policy, now, version)
        except Doubt:
            return self.planned(predicate, policy, now, version)

    def compared(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """From the log's columns, where that is beyond doubt what Delta would plan: for comparisons alone."""
        with columnar_log.columns(self.spark, self.source, version) as (at, log):
            table = log.described()
            asked = []
            if predicate is not None:
                try:
                    rows = spark_plan_tree.frame_of_schema(self.spark, table.schema)
                    asked = spark_plan_tree.comparisons_in(filtered(rows, str(self.source), predicate))
                except (BadPredicate, PySparkException) as error:
                    raise Doubt("a condition that only Delta may take") from error
            until = None if policy is None else created_until(policy, now)
            found = log.files(
                table, data_skipping.rules(asked, table.schema, table.partitions, table.properties), until
            )
        archived = archived_among(sorted(found.files, key=lambda file: file.uri), policy, now) if policy else []
        return Answer(tuple(archived), found.count - len(archived), at)

    def planned(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """As Delta plans it."""
        whole = self.whole(version)
        if predicate is None:
            return answer_of(self.spark, [whole], policy, now)
        found = planned(filtered(self.rows(whole.version), str(self.source), predicate))
        return answer_of(self.spark, found.scans, policy, now) if found.scans else Answer((), 0, whole.version)

    def whole(self, version: int | None = None) -> Scan:
        """All files of a version; without one, of the newest."""
        newest = self.newest()
        if version is None or version == newest.version:
            return newest
        found = spark_scans.whole(self.rows(version))
        assert found is not None, "the newest version was looked at in the same way"
        return found

    def newest(self) -> Scan:
        """All files of the newest version."""
        try:
            found = spark_scans.whole(self.spark.table(self.source.sql))
        except AnalysisException:
            found = None
        if found is None:
            what = read_table_info(self.spark, self.source)  # which says what is there instead
            raise NotDelta(table=str(self.source), found=f"a table at {what.location} whose log cannot be found")
        return found

    def location(self) -> str:
        return self.newest().location

    def newest_version(self) -> int:
        return self.newest().version

    def partitions(self, version: int | None) -> list[dict[str, str | None]]:
        return sorted(self.whole(version).partitions(), key=str)

    def changed(self, first: int) -> Sequence[LogFile]:
        newest = versions.newest_version(self.spark, self.source)
        return self.log().changed_files(first, newest) if first <= newest else ()

    def without(self, left_out: Collection[str], version: int) -> DataFrame:
        if left_out:
            rows = clone_without(self.spark, self.source, self.newest().table_id, version, left_out)
        else:
            rows = reader.at_version(self.spark, self.source, version)
        return planned(rows).rows

    def log(self) -> DeltaLog:
        return log_of(self.spark, self.source, read_table_info(self.spark, self.source))

    def rows(self, version: int) -> DataFrame:
        try:
            if version >= 0:
                return reader.at_version(self.spark, self.source, version)
        except Exception as error:
            if first_of(error, (EXPIRED,)):
                raise VersionExpired(table=str(self.source), version=version) from error
            if first_of(error, LOG_GONE) is None:
                raise
        raise NoSuchVersion(table=str(self.source), version=version, newest=self.newest().version)


def answer_of(spark: SparkSession, scans: Sequence[Scan], policy: Policy | None, now: datetime) -> Answer:
    """For scans of one table at one version, of which there are some."""
    first, *others = scans
    archived = sorted(
        (file for files in archived_in(spark, scans, policy, now).values() for file in files), key=lambda file: file.uri
    )
    hot = None if others else first.count - len(archived)  # several may share files
    return Answer(tuple(archived), hot, first.version)


_NEVER = -1
"""No file was made by then."""


def archived_in(
    spark: SparkSession, scans: Sequence[Scan], policy: Policy | None, now: datetime
) -> dict[str, list[LogFile]]:
    """What counts as archived of the files of one table with this policy, by the table in whose folder it lies."""
    until = _NEVER if policy is None else created_until(policy, now)
    files = {file.uri: file for scan in scans for file in scan.files(until)}
    return archived_by_owner(spark, scans[0].name, scans[0].location, list(files.values()), policy, now)


def files_of(frame: DataFrame) -> list[str]:
    """The data files that a query on Delta opens, after Delta's skipping by partition and statistics."""
    return sorted({file.uri for scan in planned(frame).scans for file in scan.files()})


_PREFIX = "mirrorfeed-hot-"
_LOCK = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}\.lock")


def clone_without(
    spark: SparkSession, source: Source, table_id: str, version: int, left_out: Collection[str]
) -> DataFrame:
    """The rows of a table at a version that are not in these files."""
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
    """The clones that this process made last, as folders in a folder of its own.

    The folder is removed when the process ends. If it was killed, the next process that makes a clone removes it.
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
            self._made[key] = path  # the one that was used last comes last
            while len(self._made) > self._most:
                shutil.rmtree(self._made.pop(next(iter(self._made))), ignore_errors=True)
        return Source(path=str(path))


_clones = Clones()


def _own_folder() -> tuple[Path, IO[str]]:
    """A new folder, and a file beside it that this process keeps locked."""
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
    """Removes the folders of processes that were killed."""
    for path in temporary.glob(f"{_PREFIX}*.lock"):
        if not _LOCK.fullmatch(path.name):
            continue
        with suppress(OSError, UnreadableFile), open_regular(path) as lock:  # it may be another user's
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
