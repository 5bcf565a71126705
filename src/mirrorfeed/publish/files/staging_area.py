"""The staging area: the folder in which Spark writes files before they are uploaded.

The folder is in the landing zone if Spark and this process can both open the landing zone under a file system path.
Otherwise it is at `staging_path`, or in a temporary folder for local Spark. Each publication has a subfolder, whose
name contains a hash of the table's address. A publisher deletes only the subfolders of its tables, so several
publishers can share a staging area.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote

from mirrorfeed.errors import MirrorfeedError, first_line, innermost_cause
from mirrorfeed.publish import errors
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.runtime.spark_session import is_on_databricks, is_on_this_machine
from mirrorfeed.storage import VOLUMES, Store
from mirrorfeed.storage.errors import PathMissingError, StorageUnavailableError, VolumeUnusableError
from mirrorfeed.storage.local_folder import FolderStore, open_regular, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorfeed.storage.databricks_volume import VolumeStore

IN_ZONE = "_mirrorfeed_files"
"""Name of the staging area in a landing zone. It is a folder directly in the landing zone."""
_FOLDER = re.compile(r"([0-9a-f]{20})-([0-9a-z-]+)-([0-9]{20})-[0-9a-f]+(?:-[234])?(?:-probe)?")
"""Name of a publication's folder. The groups are the hash of the table's address, the log id and the record number."""
_GLOB = re.compile(r"([\\*?{}\[\]])")
"""Characters that Spark would interpret as a pattern in a path."""
_PART = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?(?:\.\w+)*\.parquet")


@dataclass(frozen=True)
class StagingArea:
    """Folder in which Spark writes files before they are uploaded. Paths in arguments and results are absolute."""

    root: str
    in_zone: bool = False
    """True if the staging area is in the landing zone, so that an upload is a rename."""
    workspace: Callable[[], Any] = default_workspace
    """Function that returns the Databricks client for reading and deleting files in a volume."""

    def folder(self, job: StagingJob) -> str:
        return f"{self.root}/{_hash(job.table)}-{job.log_id}-{job.record_number:020d}-{job.batch}"

    def check(self, folder: str) -> None:
        """Check that neither `folder` nor a parent in the staging area is a symbolic link.
        Raises `SymbolicLinkError`."""
        resolve("write", *self._below(folder))

    def file_paths(self, folder: str, written: DataFrame) -> list[str]:
        """Return the paths of the files that Spark wrote to `folder`, in the order of the partitions that wrote them.
        `written` is a DataFrame that reads `folder`. Raises `StagingFilesLostError` if a file has no Spark file name.
        """
        # A listing of the folder would also show files of failed and repeated tasks.
        parts: list[tuple[int, int, str]] = []
        for uri in written.inputFiles():
            name = unquote(uri).rpartition("/")[2]
            if not (part := _PART.fullmatch(name)):
                raise errors.StagingFilesLostError(
                    place=folder, reason=f"{name} in it does not belong to this publication"
                )
            parts.append((int(part[1]), int(part[2] or 0), name))
        return [f"{folder}/{name}" for *_, name in sorted(parts)]

    def read(self, spark: SparkSession, folder: str, schema: Any) -> DataFrame:
        return spark.read.schema(schema).parquet(_GLOB.sub(r"\\\1", folder))

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader of a file that Spark wrote.

        Raises `StagingUnusableError` without read permission, `StagingFilesLostError` if the file cannot be opened, and
        `staging_not_visible` if this process cannot access the staging area.
        """
        root, below = self._below(path)
        try:
            if self.is_visible():
                return open_regular(resolve("read", root, below))
            if self._is_volume:  # Spark runs on another machine
                return self._volume(root).open_read(below)
        except VolumeUnusableError as error:
            reason = f"this process cannot read its files: {error.reason}"
            raise errors.StagingUnusableError(root=self.root, reason=reason) from error
        except (PathMissingError, StorageUnavailableError) as error:
            raise errors.StagingFilesLostError(place=path, reason=first_line(error.problem).rstrip(".")) from error
        except PermissionError as error:
            reason = f"this process cannot read its files: {error.strerror or 'permission denied'}"
            raise errors.StagingUnusableError(root=self.root, reason=reason) from error
        except OSError as error:
            raise errors.StagingFilesLostError(place=path, reason=error.strerror or str(error)) from error
        raise errors.staging_not_visible(root=self.root)

    def remove(self, folder: str) -> None:
        """Delete the folder of a publication. Ignores storage errors: later publications of this table try again."""
        root, below = self._below(folder)
        with suppress(MirrorfeedError):
            # Deleting a folder starts with a rename, which the mount of a volume does not support.
            if self._is_volume:
                self._volume(root).remove_folder(below)
            elif self.is_visible():
                FolderStore(root).remove_folder(below)

    @property
    def _is_volume(self) -> bool:
        return self.root.startswith(VOLUMES)

    def _volume(self, root: str) -> VolumeStore:
        from mirrorfeed.storage.databricks_volume import VolumeStore  # imported late: few runs need it

        return VolumeStore(root, self.workspace)

    def clear(self, job: StagingJob, *, may_request: bool = True) -> None:
        """Delete the folders of the job's table, except folders with the job's log id and a higher record number.
        If `may_request` is False and deleting requires requests to a workspace, nothing is deleted."""
        if may_request or self.is_visible():
            for folder, log_id, number in self._folders(job.table):
                if log_id != job.log_id or number <= job.record_number:
                    self.remove(folder)

    def clear_table(self, address: str) -> None:
        """Delete all files of a table in the staging area. Ignores storage errors.
        `address` is the address of the table's folder in the landing zone."""
        for folder, *_ in self._folders(address):
            self.remove(folder)

    def _folders(self, address: str) -> Iterator[tuple[str, str, int]]:
        """Yield the folder of each publication of the table at `address`: its path, log id and record number.
        Yields nothing if the folders cannot be listed."""
        root, below = self._below(self.root)
        names: list[str] = []
        with suppress(MirrorfeedError):
            store: Store = self._volume(root) if self._is_volume and not self.is_visible() else FolderStore(root)
            names = [entry.name for entry in store.list(below) if entry.is_folder]
        for name in names:
            if (parts := _FOLDER.fullmatch(name)) and parts[1] == _hash(address):
                yield f"{self.root}/{name}", parts[2], int(parts[3])

    def _below(self, path: str) -> tuple[str, str]:
        """Split an absolute path into the root of its store and the path below the root.
        The root is the landing zone if the staging area is in the landing zone, otherwise the staging area."""
        root = self.root.removesuffix(f"/{IN_ZONE}") if self.in_zone else self.root
        return root, path[len(root) + 1 :]

    def is_visible(self) -> bool:
        """Return whether this process can open the staging area as a folder, without requests to a workspace."""
        return os.path.isdir(self.root)

    def write_error(self, spark: SparkSession, folder: str, error: Exception) -> MirrorfeedError:
        """Return the error to raise after a Spark write to `folder` failed with `error`.

        Deletes the folder, and lets Spark write a test file. Returns `StagingFilesLostError` if the test write succeeds
        or the disk is full, and otherwise `StagingUnusableError`.
        """
        self.remove(folder)
        probe = f"{self.root}/{Path(folder).name}-probe"
        try:
            spark.range(1).write.parquet(probe)
        except Exception as second_error:
            if "No space left on device" not in str(second_error):
                reason = f"Spark cannot write files: {innermost_cause(second_error)}"
                return errors.StagingUnusableError(root=self.root, reason=reason)
        finally:
            self.remove(probe)
        return errors.StagingFilesLostError(place=folder, reason=innermost_cause(error))


def staging_area_for(
    spark: SparkSession, staging_path: str | None, store: Store, environment: Mapping[str, str] = os.environ
) -> StagingArea | None:
    """Return the staging area for publications to the landing zone `store`.

    Returns None if Spark and this process share no folder, for example with Spark Connect without `staging_path`. Then
    only small batches can be published. Raises `staging_not_visible` on Databricks if `staging_path` is not in a
    volume.
    """
    zone, databricks = store.address(""), is_on_databricks(environment)
    is_local = is_on_this_machine(spark, environment)
    # Spark on this machine would create the path of a volume on the disk.
    if Path(zone).is_absolute() and (databricks if zone.startswith(VOLUMES) else is_local):
        return StagingArea(f"{zone}/{IN_ZONE}", in_zone=True)
    if staging_path is not None and not (is_local and staging_path.startswith(VOLUMES)):
        if databricks and not staging_path.startswith(VOLUMES):
            raise errors.staging_not_visible(root=staging_path)
        return StagingArea(staging_path)
    return StagingArea(_temporary_folder()) if is_local else None


def clear_staging(staging_path: str | None, store: Store, table: str) -> None:
    """Delete the files of a table in every staging area that its publications may have used. Ignores storage errors.
    `table` is the address of the table's folder in the landing zone."""
    zone = store.address("")
    areas = [StagingArea(staging_path)] if staging_path else []
    if Path(zone).is_absolute():
        areas.append(StagingArea(f"{zone}/{IN_ZONE}", in_zone=True))
    with suppress(errors.StagingUnusableError):
        areas.append(StagingArea(_temporary_folder()))
    for area in areas:
        area.clear_table(table)


def _hash(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:20]


def _temporary_folder() -> str:
    """Create and return this user's temporary folder. Its path is the same in every run, so runs can delete old files.
    Raises `StagingUnusableError` if other users can write to it."""
    folder = Path(tempfile.gettempdir(), f"mirrorfeed-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise errors.StagingUnusableError(root=str(folder), reason="it belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise errors.StagingUnusableError(root=str(folder), reason="other users can write to it")
    return str(folder)
