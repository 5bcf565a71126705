"""Where Spark writes files that this process reads: the landing zone itself if both share it, else the staging area.

Each publication has a folder of its own below it, named by where the table is published, by the table's log, and by the
number of the record. So deployments may share one, and a folder whose rows can never be published is known by its name.
Nothing else is removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient, first_line, innermost_cause
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.spark_session import is_on_databricks, is_on_this_machine
from mirrorfeed.storage import FolderStore
from mirrorfeed.storage.create_once import Sink
from mirrorfeed.storage.folder import open_regular, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VOLUMES = "/Volumes/"
IN_ZONE = "_mirrorfeed_files"
"""At the top of a landing zone, and never in a table's folder: Spark would make one anew that was deleted."""
_FOLDER = re.compile(r"([0-9a-f]{20})-([0-9a-z-]+)-([0-9]{20})-[0-9a-f]+(?:-2)?(?:-probe)?")
"""By table, log and record."""
_GLOB = re.compile(r"([\\*?{}\[\]])")
_PART = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?(?:\.\w+)*\.parquet")
_COPIED = 2**20
_FULL = "No space left on device"


@dataclass(frozen=True)
class StagingArea:
    root: str
    in_zone: bool = False
    """Whether it is in the landing zone, so that to send a file is to rename it."""
    workspace: Callable[[], Any] = default_workspace

    def folder(self, job: StagingJob) -> str:
        return f"{self.root}/{_hash(job.table)}-{job.log_id}-{job.record_number:020d}-{job.batch}"

    def check(self, folder: str) -> None:
        """Raises `SymbolicLink` if Spark would write through one."""
        resolve("write", *self._below(folder))

    def in_order(self, folder: str, written: DataFrame) -> list[str]:
        """The names of files that count, by the partitions that they were written from: those that Spark's reader
        names. A listing shows also what failed and repeated tasks have left."""
        found: list[tuple[int, int, str]] = []
        for uri in written.inputFiles():
            name = unquote(uri).rpartition("/")[2]
            if not (part := _PART.fullmatch(name)):
                raise StagingFilesLost(folder, f"{name} is in it, which is not of this publication")
            found.append((int(part[1]), int(part[2] or 0), name))
        return [name for *_, name in sorted(found)]

    def read(self, spark: SparkSession, folder: str, schema: Any) -> DataFrame:
        return spark.read.schema(schema).parquet(_GLOB.sub(r"\\\1", folder))

    def open(self, path: str) -> BinaryIO:
        """What Spark wrote, as a file that can be read in any order."""
        try:
            if self.sees():
                return open_regular(resolve("read", *self._below(path)))
            if self.root.startswith(VOLUMES):  # Spark is elsewhere
                return self._fetched(path)
        except PermissionError as error:
            raise StagingUnreadable(self.root, error.strerror or "permission denied") from error
        except OSError as error:
            raise StagingFilesLost(path, error.strerror or str(error)) from error
        raise StagingNotVisible(self.root)

    def remove(self, folder: str) -> None:
        """As far as that can be done: what is left harms nobody, and the next publication of the table tries again."""
        if self.sees():
            root, below = self._below(folder)
            with suppress(MirrorfeedError):
                FolderStore(root).remove_folder(below)
        elif self.root.startswith(VOLUMES):
            with suppress(Exception):
                self.workspace().dbfs.delete(folder, recursive=True)

    def clear(self, job: StagingJob, *, may_ask: bool = True) -> None:
        """Removes what is there of a table from other logs, and up to this record: of a run that died, or is about to
        lose the race for the same number. Where Spark is elsewhere that takes calls."""
        if may_ask or self.sees():
            for folder, log_id, number in self._folders(job.table):
                if log_id != job.log_id or number <= job.record_number:
                    self.remove(folder)

    def clear_table(self, address: str) -> None:
        """Removes all that is there of a table, which is about to start again or is dropped."""
        for folder, *_ in self._folders(address):
            self.remove(folder)

    def _folders(self, address: str) -> Iterator[tuple[str, str, int]]:
        """The folders of a table's publications, with their logs and record numbers."""
        names: list[str] = []
        with suppress(Exception):
            if self.sees():
                root, below = self._below(self.root)
                names = [entry.name for entry in FolderStore(root).list(below) if entry.is_folder]
            elif self.root.startswith(VOLUMES):
                names = [entry.path.rpartition("/")[2] for entry in self.workspace().dbfs.list(self.root)]
        for name in names:
            if (found := _FOLDER.fullmatch(name)) and found[1] == _hash(address):
                yield f"{self.root}/{name}", found[2], int(found[3])

    def _below(self, path: str) -> tuple[str, str]:
        """The folder that the configuration names, and the path below it."""
        root = self.root.removesuffix(f"/{IN_ZONE}") if self.in_zone else self.root
        return root, path[len(root) + 1 :]

    def sees(self) -> bool:
        """Whether its files are at hand for this process, without a call."""
        return os.path.isdir(self.root)

    def _fetched(self, path: str) -> BinaryIO:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - who reads it closes it
        try:
            with self.workspace().files.download(path).contents as content:
                shutil.copyfileobj(content, copy, _COPIED)
        except Exception as error:
            copy.close()
            if type(error).__name__ == "PermissionDenied":
                raise StagingUnreadable(self.root, first_line(str(error))) from error
            raise StagingFilesLost(path, first_line(str(error))) from error
        copy.seek(0)
        return copy

    def trouble(self, spark: SparkSession, folder: str, error: Exception) -> MirrorfeedError:
        """Why Spark could not write a folder here: at all, or what became of it, which is removed."""
        self.remove(folder)
        probe = f"{self.root}/{Path(folder).name}-probe"
        try:
            spark.range(1).write.parquet(probe)
        except Exception as again:
            if _FULL not in str(again):
                return StagingUnusable(self.root, innermost_cause(again))
        finally:
            self.remove(probe)
        return StagingFilesLost(folder, innermost_cause(error))


def staging_area_for(
    spark: SparkSession, staging_path: str | None, store: Sink, environment: Mapping[str, str] = os.environ
) -> StagingArea | None:
    """None where there is none, as over Connect without `staging_path`: then few rows can be published, and no more."""
    zone, databricks = store.address(""), is_on_databricks(environment)
    here = is_on_this_machine(spark, environment)
    if Path(zone).is_absolute() and (here or (databricks and zone.startswith(VOLUMES))):
        return StagingArea(f"{zone}/{IN_ZONE}", in_zone=True)
    if staging_path is not None:
        if databricks and not staging_path.startswith(VOLUMES):
            raise StagingNotInVolume(staging_path)
        return StagingArea(staging_path)
    return StagingArea(_temporary()) if here else None


def clear_staging(staging_path: str | None, store: Sink, table: str) -> None:
    """Removes what is left of a table, by its address, wherever Spark may have written its files."""
    zone = store.address("")
    places = [StagingArea(staging_path)] if staging_path else []
    if Path(zone).is_absolute():
        places.append(StagingArea(f"{zone}/{IN_ZONE}", in_zone=True))
    with suppress(StagingUnusable):
        places.append(StagingArea(_temporary()))
    for place in places:
        place.clear_table(table)


def _hash(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:20]


def _temporary() -> str:
    """Of this user, and the same for each run, so that one finds what another left."""
    folder = Path(tempfile.gettempdir(), f"mirrorfeed-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StagingUnusable(str(folder), "it is somebody else's")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StagingUnusable(str(folder), "other users can write to it")
    return str(folder)


_SET_ONE = "Set `staging_path` to a volume of Unity Catalog, /Volumes/catalog/schema/volume"


class StagingPathRequired(Terminal):
    """There is more to publish than fits into the answer of a query, and Spark and the publisher share no folder over
    which to hand it."""

    code = "MF3301"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return (
            f"What is to be published of {self.table} is more than comes to this process as the result of a query, and"
            " there is no folder that Spark and this process share."
        )

    def next(self) -> str:
        return f"{_SET_ONE}, and publish again. Nothing was staged."


class StagingNotInVolume(Terminal):
    """The staging area is no volume. On Databricks nothing else is seen by all of Spark and by the publisher."""

    code = "MF3302"

    def __init__(self, staging_path: str) -> None:
        self.staging_path = staging_path

    def what(self) -> str:
        place = self.staging_path
        return f"The staging area {place} is no volume, and on Databricks only volumes are shared by all of Spark."

    def next(self) -> str:
        return f"{_SET_ONE}. Nothing was staged."


class StagingNotVisible(Terminal):
    """Spark wrote files for the publisher, and the publisher does not see them: the folder is not the same on both
    sides."""

    code = "MF3303"

    def __init__(self, root: str) -> None:
        self.root = root

    def what(self) -> str:
        return f"Spark has written into the staging area {self.root}, and this process does not see that folder."

    def next(self) -> str:
        return f"{_SET_ONE}: whoever publishes sees it, from any machine. Nothing was staged."


class StagingUnusable(Terminal):
    """Spark may not write into the folder over which files are handed to the publisher, or it is not there."""

    code = "MF3304"

    def __init__(self, root: str, reason: str) -> None:
        self.root, self.reason = root, reason

    def what(self) -> str:
        return f"Spark cannot write into the staging area {self.root}: {self.reason}."

    def next(self) -> str:
        return (
            "Check `staging_path`: a volume (/Volumes/catalog/schema/volume) with the privileges READ VOLUME and WRITE"
            " VOLUME for who publishes. Nothing was staged."
        )


class StagingUnreadable(Terminal):
    """The publisher may not read the folder into which Spark wrote its files."""

    code = "MF3305"

    def __init__(self, root: str, reason: str) -> None:
        self.root, self.reason = root, reason

    def what(self) -> str:
        return f"This process may not read what Spark wrote into the staging area {self.root}: {self.reason}."

    def next(self) -> str:
        return "Grant READ VOLUME on it to who publishes, beside WRITE VOLUME. Nothing was staged."


class StagingFilesLost(Transient):
    """Files that Spark handed over changed or vanished before they were sent. They are not published."""

    code = "MF3306"

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason

    def what(self) -> str:
        return f"The staging area {self.place} did not keep what Spark wrote: {self.reason}."

    def next(self) -> str:
        return "Nothing of it is published. See that there is room and that nobody else changes it, then publish again."
