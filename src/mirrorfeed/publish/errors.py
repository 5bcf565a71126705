"""Errors and warnings that occur when a table is published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorfeed.errors import (
    ConcurrentPublisherError,
    ConfigurationError,
    LandingZoneError,
    MirrorfeedWarning,
    StorageError,
    TerminalError,
    TransientError,
    problem,
)
from mirrorfeed.landing.schema import Problem
from mirrorfeed.source.errors import PublicationBlockedError
from mirrorfeed.source.snapshot_or_range import Snapshot

if TYPE_CHECKING:
    from mirrorfeed.publish.files.staging_job import BadRow
    from mirrorfeed.source.snapshot_or_range import Range

_REBUILD = "reload the table with `mirrorfeed rebuild`"


_BAD_KEY = "a key is NULL or not unique"
_LATER_PART = "the row is in a later part of a first load"
_BAD_KEY_IN_SNAPSHOT = "a key of a snapshot is NULL or not unique"
_NO_KEYS = "a row changed in a table without keys"
_YEAR = "a year is outside 1 to 9999"
_INVALID_TEXT = "a text is not valid UTF-8"
_UNFIT = "delimited text cannot store a value"
_REASONS = {
    Problem.NULL_KEY: (_BAD_KEY, "a key is NULL"),
    Problem.DUPLICATE_KEY: (_BAD_KEY, "a key is not unique"),
    Problem.CHANGE_WITHOUT_KEY: (
        _NO_KEYS,
        "a row was updated or deleted, but a table without keys accepts only inserts",
    ),
    Problem.NOT_IN_ENCODING: (_UNFIT, "a value has a character that the encoding of the files does not contain"),
    Problem.LIKE_NULL: (_UNFIT, "without quotes, a value cannot be distinguished from NULL"),
    Problem.NOT_ESCAPABLE: (_UNFIT, "a value has a character that cannot be escaped in the files"),
    Problem.YEAR: (_YEAR, "a date or time is outside the years 1 to 9999, which delimited text cannot store"),
    Problem.INVALID_TEXT: (_INVALID_TEXT, "a text is not valid UTF-8"),
}
"""For each problem of a row: the key of its fix in `RowsRefusedError`, and the description of the problem."""


class RowsRefusedError(TerminalError):
    """Rows of a source table cannot be published, for example because a key is NULL. Correct the rows."""

    code = "MF3009"
    what = "Rows of {table} cannot be published: {place} {reason}{keys}."
    fix = {
        _BAD_KEY: (
            "Correct these rows in the source, or choose keys that are unique and never NULL. If a later version"
            " corrects the rows, increase `max_versions_per_publication` so that the range includes that version."
        ),
        _BAD_KEY_IN_SNAPSHOT: (
            "Correct these rows in the source, or choose keys that are unique and never NULL. The next run publishes a"
            " snapshot of the version that is then the newest."
        ),
        _LATER_PART: (
            "Correct the rows in the source, then run `mirrorfeed rebuild`: all parts of a load publish the same"
            " version, which was the newest when the load began."
        ),
        _NO_KEYS: "Set `keys` in the configuration, or define a primary key in Unity Catalog.",
        _YEAR: "Correct the rows in the source, or set `format: parquet` and run `mirrorfeed rebuild`.",
        _INVALID_TEXT: (
            "Correct the rows in the source, for example with `make_valid_utf8`, or exclude the column with"
            " `exclude_columns`. If a corrected row is still rejected, run `mirrorfeed rebuild`."
        ),
        _UNFIT: (
            "Correct the rows in the source, or set another `encoding`, `quote`, `escape` or `null` under `delimited`."
            " If the table is already published, then run `mirrorfeed rebuild`."
        ),
    }
    meaning = (
        "Rows cannot be published. A key is NULL or not unique, a row changed in a table without keys, a text is not"
        " valid UTF-8, or the file format cannot store a value. The versions with these rows were not published."
    )
    table: str
    range: Range | Snapshot
    rows: Sequence[BadRow]

    @property
    def is_snapshot(self) -> bool:
        return self.range.from_version_exclusive is None

    @property
    def case(self) -> str:
        reason = _REASONS[self.rows[0].problem][0]
        if isinstance(self.range, Snapshot) and self.range.continues:
            return _LATER_PART
        return _BAD_KEY_IN_SNAPSHOT if reason == _BAD_KEY and self.is_snapshot else reason

    @property
    def place(self) -> str:
        return f"at version {self.range.to_version_inclusive}" if self.is_snapshot else f"in {self.range}"

    @property
    def reason(self) -> str:
        return _REASONS[self.rows[0].problem][1]

    @property
    def keys(self) -> str:
        problem = self.rows[0].problem
        keys = "; ".join(dict.fromkeys(row.key for row in self.rows if row.problem == problem and row.key))
        return f" ({keys})" if keys else ""


@problem(ConcurrentPublisherError, "MF3204")
def concurrent_changes(*, address: str) -> None:
    """Other publishers keep changing {address}.

    Publish again later, and run only one publisher at a time for this table. No row is published twice.
    """


@problem(ConcurrentPublisherError, "MF3205")
def equal_file_times(*, address: str) -> None:
    """The storage gave the new files of {address} no later modification time than existing files.

    Publish again. None of these files were published, because Fabric would not know their order.
    """


@problem(LandingZoneError, "MF3219")
def storage_clock_behind(*, address: str, published: str, new: str) -> None:
    """The newest published file of {address} has the modification time {published} UTC, but the storage gives new files
    the time {new} UTC. Fabric would read the new files first.

    If the clock of the storage is slow, correct it and publish again. Otherwise publish after {published} UTC, or
    reload the table with `mirrorfeed rebuild`. Until then, nothing is published.
    """


class RecordsMissingError(PublicationBlockedError):
    code = "MF3206"
    what = (
        "The log records before number {number} in {address} are missing: the folder of {table} was deleted during a"
        " publication, or files were removed."
    )
    fix = f"R{_REBUILD[1:]}. With `on_gap: reseed`, the reload happens automatically. Until then, nothing is published."
    number: int
    address: str


@problem(LandingZoneError, "MF3207")
def final_name_taken(*, address: str, staged: str) -> None:
    """{address} already exists, so the recorded file {staged} cannot get this name. Neither file was overwritten.

    Run `mirrorfeed log` to compare size and checksum of both files with the record. Delete the file that does not
    match, then publish again.
    """


@problem(LandingZoneError, "MF3208")
def staged_file_damaged(*, address: str, found: int, expected: int) -> None:
    """The staged file {address} has {found:count byte} instead of the recorded {expected:,}. It was not published.

    Run `mirrorfeed log`. If the complete file exists under its final name, delete the staged file and publish again.
    Otherwise reload the table with `mirrorfeed rebuild`.
    """


@problem(LandingZoneError, "MF3209")
def foreign_file(*, address: str) -> None:
    """{address} was not written by a publisher of this table, and Fabric may read it.

    Delete the file, or rename it so that its name starts with an underscore, then publish again.
    """


class FileNumberConflictError(LandingZoneError):
    code = "MF3210"
    what = {
        True: "{address} exists, but the table has no log.",
        False: "{address} exists, but the last file number in the log is {last}.",
    }
    fix = (
        "Another publisher writes to this folder, or the log was deleted. Use a separate folder for this table, or"
        f" {_REBUILD}. To continue the files of another publisher without a reload, run `mirrorfeed adopt`."
    )
    address: str
    expected: int

    @property
    def case(self) -> bool:
        return self.expected == 1

    @property
    def last(self) -> int:
        return self.expected - 1


@problem(LandingZoneError, "MF3211")
def log_id_missing(*, folder: str, number: int, time: str, log_id: str) -> None:
    """The file {folder}/_mirrorfeed/log.json with the log id was deleted. The log {log_id} still exists, with records
    up to {number} of {time}.

    Restore the file with the content {{"log_id": "{log_id}"}} and publish again. If this log does not belong to the
    files in the folder, reload the table with `mirrorfeed rebuild`.
    """


class PublishedFilesLostError(LandingZoneError):
    code = "MF3216"
    what = "Published files of {address} were removed before Fabric consumed them: {numbers:few}."
    fix = (
        "If you can, restore the same files under the same names. OneLake keeps deleted files for seven days by"
        " default."
        f" Otherwise {_REBUILD}."
    )
    address: str
    numbers: Sequence[int]


class LastFileMissingWarning(MirrorfeedWarning):
    code = "MF3217"
    what = (
        "{address} contains no data file. Fabric leaves the last file, so somebody else removed file {last}, possibly"
        " before Fabric consumed it."
    )
    fix = f"Run `mirrorfeed verify`. If rows are missing, {_REBUILD}."
    address: str
    numbers: Sequence[int]

    @property
    def last(self) -> int:
        return self.numbers[-1]


@problem(ConfigurationError, "MF3218")
def too_many_files(*, address: str, files: int, mib: int) -> None:
    """The publication to {address} has {files:,} files. Their list in the log would exceed the limit of {mib} MiB.

    Set a larger `target_file_size` and publish again. Nothing was published.
    """


@problem(ConfigurationError, "MF3301")
def staging_path_required(*, table: str) -> None:
    """{table} has more rows to publish than fit in the result of a query, but there is no folder that both Spark and
    this process can access.

    Set `staging_path` to a Unity Catalog volume, /Volumes/catalog/schema/volume, and publish again. Nothing was
    published.
    """


@problem(ConfigurationError, "MF3303")
def staging_not_visible(*, root: str) -> None:
    """The folder {root} is not visible to both this process and Spark.

    Set `staging_path` to a Unity Catalog volume, /Volumes/catalog/schema/volume: a volume is visible from every
    machine. Nothing was published.
    """


class StagingUnusableError(StorageError):
    code = "MF3304"
    what = "The staging area {root} cannot be used: {reason}."
    fix = (
        "Set `staging_path` to a volume (/Volumes/catalog/schema/volume), and grant the publisher READ VOLUME and WRITE"
        " VOLUME on it. Nothing was published."
    )
    root: str
    reason: str


class StagingFilesLostError(TransientError):
    code = "MF3306"
    what = "Files that Spark wrote to {place} changed or disappeared before they were uploaded: {reason}."
    fix = (
        "Check that the disk has enough space and that nobody else changes the folder, then publish again. Nothing was"
        " published."
    )
    place: str
    reason: str


@problem(TransientError, "MF3307")
def executor_upload_failed(*, address: str, reason: str) -> None:
    """The upload from executors to {address} failed: {reason}

    Publish again. If it fails again, remove `upload_from: executors`.
    """


@problem(ConfigurationError, "MF3308")
def executor_upload_impossible(*, address: str, reason: str) -> None:
    """Executors cannot upload files to {address}: {reason}

    Remove `upload_from: executors`, so that the driver uploads the files, or use a dedicated cluster. On serverless
    compute and in standard access mode, executors have no direct network access.
    """


@problem(ConfigurationError, "MF3403")
def nothing_published(*, table: str) -> None:
    """{table} is not published yet.

    Run `mirrorfeed publish`. The first run publishes a snapshot.
    """


@problem(ConfigurationError, "MF3409")
def load_unfinished(*, table: str, part: str) -> None:
    """The first load of {table} is not complete: {part} is the newest published part.

    Run `mirrorfeed publish`, which continues the load.
    """


@problem(ConfigurationError, "MF3506")
def keys_required(*, table: str) -> None:
    """{table} is published by comparison (`changes: compare`), but has no keys.

    Set `keys` in the configuration to columns that are unique together and never NULL.
    """


@problem(ConfigurationError, "MF3016")
def soft_delete_without_keys(*, table: str) -> None:
    """{table} has `delivery: soft_delete`, but no keys.

    Set `keys` in the configuration, or define a primary key in Unity Catalog.
    """


@problem(ConfigurationError, "MF3507")
def feed_required(*, operation: str, table: str) -> None:
    """{operation} requires a change data feed, but {table} is published by comparison (`changes: compare`).

    Run `mirrorfeed publish` to compare and publish the table, or `mirrorfeed rebuild` to reload it.
    """
