"""The hot part of a table as a table of its own, for open source Delta: a shallow clone without the archived files.

A clone has a log and no data, so this reads and writes none. It is made in a folder of this machine, for Spark on this
machine; on Databricks the engine itself leaves archived files out where it may.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import IO, Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import OnlyOnOneMachine
from mirrorfeed.archive.file_index.log_file import uri_of
from mirrorfeed.archive.interval import any_property
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import UnreadableFile
from mirrorfeed.storage.folder import open_regular

_PREFIX = "mirrorfeed-hot-"
_LOCK = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}\.lock")


def without(spark: SparkSession, source: Source, table_id: str, version: int, left_out: Collection[str]) -> DataFrame:
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
