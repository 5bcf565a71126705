"""Errors about source tables and their change data feed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from mirrorfeed.errors import (
    Computed,
    ConfigurationError,
    MirrorfeedWarning,
    SourceError,
    Template,
    TransientError,
    problem,
)

if TYPE_CHECKING:
    from mirrorfeed.source.snapshot_or_range import Range, Snapshot


class GapReason(StrEnum):
    FEED_OFF = "the change data feed is off"
    STILL_OFF = "the change data feed was turned off and is still off"
    """Used instead of `FEED_OFF` if the feed is off now, because then no snapshot can be published."""
    FILE_MISSING = "a file is missing"
    LOG_HOLE = "the log has a hole"
    NO_COMMIT = "the log has no commit"
    EXPIRED = "the retention has expired (delta.deletedFileRetentionDuration)"
    """Delta does not read the version, even if its files still exist."""
    LARGE_VECTOR = "a deletion vector is too large for Delta's feed reader"


_OTHER_REASON = "another reason"


class Recreation(StrEnum):
    """Reason why the rows of a table with another id were not compared with the published version."""

    NOT_COMPARED = "the published version was not compared"
    RESTORED = "an older version was restored"
    UNPROVEN = "the table was dropped and created again"
    """Nothing proves that the log of the table contains the published version."""
    UNREADABLE = "the published version can no longer be read"
    COMPARED = "the table was published by comparison"


class IntervalTextError(ConfigurationError):
    code = "MF1108"
    what = "The interval {text!r} {reason}."
    fix = "Write at least one whole day, such as '60 days'. The lifecycle rules of Azure and S3 support no other unit."
    text: str
    reason: str


class SourceNameError(ConfigurationError):
    code = "MF1109"
    what = "The source {text!r} {reason}."
    fix = (
        "Write a table name such as main.sales.orders, with backticks around a part that contains a dot, or the path of"
        " the table's folder without backticks."
    )
    text: str
    reason: str


class SourceMissingError(SourceError):
    code = "MF2001"
    what = "The table {table} does not exist, or you cannot access it."
    fix = {
        "": "Check `source` in the configuration and the SELECT privilege on the table.",
        "a name without a schema": (
            "Check `source` in the configuration and the SELECT privilege on the table. For a folder,"
            " write `./{table}`."
        ),
    }
    table: str

    @property
    def case(self) -> str:
        return "a name without a schema" if self.table.isidentifier() else ""


class NoTableAtPathError(SourceError):
    code = "MF2002"
    what = "There is no Delta table at {path}."
    fix = "Set `source` to the folder that contains the table's _delta_log."
    path: str


class NotDeltaError(SourceError):
    code = "MF2003"
    what = "{table} is {found}, not a Delta table, so it has no change data feed."
    fix = "Set `source` to the Delta table that holds the data, or set `changes: compare`."
    table: str
    found: str


@problem(SourceError, "MF2004")
def no_table_id(*, table: str, format: str) -> None:
    """DESCRIBE DETAIL returns no id for {table} ({format} format), so mirrorfeed cannot detect when the table is
    dropped and created again.

    Publish a Delta table with the same rows, or open an issue with the output of DESCRIBE DETAIL.
    """


class DeltaLogDamagedError(SourceError):
    code = "MF2005"
    what = "The transaction log of {table} cannot be read: {damage}."
    fix = (
        "Restore these files in the _delta_log folder of the table, or restore the whole table from a copy. If"
        " the table is new, write to it, then publish again."
    )
    table: str
    damage: str = "commits are missing"


class TableNotReadyError(TransientError):
    code = "MF2009"
    what = "The table {table} is not ready: its transaction log has no commit yet."
    fix = (
        "Publish again after the table has been created. If nothing creates it, delete its folder, exclude it with"
        " `exclude`, or restore the files of its _delta_log folder."
    )
    table: str


class VersionExpiredError(SourceError):
    code = "MF2006"
    what = "Version {version} of {table} is older than the delta.deletedFileRetentionDuration of the table."
    fix = (
        "Choose a newer version. If VACUUM has not deleted the files, you can increase"
        " delta.deletedFileRetentionDuration instead."
    )
    version: int
    table: str


@problem(SourceError, "MF2008")
def no_table_or_files(*, path: str) -> None:
    """There is no Delta table and there are no Parquet files at {path}.

    Check the path, or set `source` to the name of a view or table in the catalog.
    """


class PublicationBlockedError(SourceError):
    """Error that prevents the publication of the next versions of a table until a person acts."""

    table: str


@problem(
    PublicationBlockedError,
    "MF2101",
    meaning=(
        "The change data feed of the source is off. No snapshot was published, because later changes would be missing."
    ),
)
def feed_off(*, table: str, version: int) -> None:
    """The change data feed of {table} is off at version {version}.

    Run `mirrorfeed enable-cdf`, then `mirrorfeed publish`.
    """


class FeedGapError(PublicationBlockedError):
    code = "MF2102"
    what = "The changes of {table} after version {published} cannot be read: {place} {reason}."
    fix: ClassVar[Template] = {
        GapReason.EXPIRED: (
            "If VACUUM has not deleted the files yet, increase delta.deletedFileRetentionDuration and publish again."
            " Otherwise publish only the rows that differ with `on_gap: compare`. If the published version can no"
            " longer be read, run `mirrorfeed rebuild`; with `on_gap: reseed`, this happens automatically."
        ),
        GapReason.STILL_OFF: (
            "To publish only the rows that differ, turn the feed on, set `on_gap: compare` for the table, and publish"
            " again. If the published version can no longer be read, run `mirrorfeed enable-cdf`, then `mirrorfeed"
            " rebuild`."
        ),
        _OTHER_REASON: (
            "To publish only the rows that differ, set `on_gap: compare` for the table, and publish again. If the"
            " published version can no longer be read, run `mirrorfeed rebuild`; with `on_gap: reseed`, this happens"
            " automatically."
        ),
    }
    meaning = (
        "Changes that are not published yet can no longer be read, and no permanent history contains these changes. The"
        " feed was off, its retention expired, or VACUUM or log cleanup deleted the changes. The mirror stays at the"
        " last published version."
    )
    published: int
    where: int | Range
    reason: str

    @property
    def case(self) -> str:
        return self.reason if self.reason in FeedGapError.fix else _OTHER_REASON

    @property
    def place(self) -> str:
        return f"at version {self.where}" if isinstance(self.where, int) else f"in {self.where}"


class SourceRecreatedError(PublicationBlockedError):
    code = "MF2103"
    what = {
        Recreation.RESTORED: (
            "{table} was restored to an older version: version {published} is published, the newest is {latest}."
        ),
        Recreation.NOT_COMPARED: (
            "{table} was replaced, or dropped and created again, after version {published} was published: the id of the"
            " table changed from {published_id} to {found_id}."
        ),
        Recreation.UNPROVEN: (
            "{table} was dropped and created again, or its folder was restored from a copy, after version {published}"
            " was published: nothing proves that its log contains the published version."
        ),
        Recreation.UNREADABLE: (
            "{table} was replaced after version {published} was published. Version {published} can no longer be read,"
            " so it cannot be compared with the newest version."
        ),
        Recreation.COMPARED: (
            "{table} was published by comparison (`changes: compare`) until now. A comparison does not record a version"
            " of the source, so the changes since then cannot be found in the change data feed."
        ),
    }
    fix: ClassVar[Template] = {
        Recreation.RESTORED: "Publish a new snapshot with `mirrorfeed rebuild`.",
        Recreation.NOT_COMPARED: (
            "If the table has keys and was replaced with CREATE OR REPLACE TABLE, set `on_replace: compare` to publish"
            " only the rows that differ. Otherwise publish a new snapshot with `mirrorfeed rebuild`; with `on_replace:"
            " reseed` this happens automatically."
        ),
        Recreation.UNPROVEN: (
            "Publish a new snapshot with `mirrorfeed rebuild`; with `on_replace: reseed` this happens automatically. To"
            " prevent this, replace the table with CREATE OR REPLACE TABLE, which keeps its Delta log."
        ),
        Recreation.UNREADABLE: (
            "Publish a new snapshot with `mirrorfeed rebuild`; with `on_replace: reseed` this happens automatically. To"
            " prevent this, publish more often, or increase delta.deletedFileRetentionDuration in the statement that"
            " replaces the table."
        ),
        Recreation.COMPARED: (
            "Set `changes: compare` again to continue without a reload. To read the change data feed from now on,"
            " reload {table} with `mirrorfeed rebuild`; with `on_replace: reseed` this happens automatically."
        ),
    }
    meaning = (
        "The source has another table id than the published version, or fewer versions, or the table was published by"
        " comparison until now. Nothing was published. If CREATE OR REPLACE TABLE keeps the Delta log of a table with"
        " keys, publishing continues with `on_replace: compare`."
    )
    published_id: str
    found_id: str
    published: int
    latest: int
    reason: Recreation = Recreation.NOT_COMPARED

    @property
    def case(self) -> Recreation:
        return Recreation.RESTORED if self.published_id == self.found_id else self.reason


class PartitionsChangedError(PublicationBlockedError):
    code = "MF2104"
    what = (
        "The partition columns of {table} changed from {old} to {new} after version {published}. Delta returns earlier"
        " changes with NULL in these columns."
    )
    fix = (
        "Publish a new snapshot with `mirrorfeed rebuild`. With `on_schema_change: reseed` this happens automatically."
    )
    published: int
    before: Sequence[str]
    now: Sequence[str]

    @property
    def old(self) -> str:
        return ", ".join(map(repr, self.before)) or "none"

    @property
    def new(self) -> str:
        return ", ".join(map(repr, self.now)) or "none"


class FeedUnreadableError(PublicationBlockedError):
    code = "MF2105"
    what = {
        False: (
            "Delta cannot read the changes of {table} in {range}: Delta reads them with the columns of version {newer},"
            " and the columns of version {older} do not match."
        ),
        True: (
            "Delta cannot read the changes of {table} in {range} with the newest columns. Since version {older}:"
            " {lost:reasons}."
        ),
    }
    fix = (
        "Publish a new snapshot with `mirrorfeed rebuild`. With `on_schema_change: reseed` this happens automatically."
    )
    range: Range
    version: str | None
    read_version: str | None
    lost: Sequence[str] = ()

    @property
    def case(self) -> bool:
        return bool(self.lost)

    @property
    def older(self) -> str:
        return self.version or "?"

    @property
    def newer(self) -> str:
        return self.read_version or "?"


class SnapshotFilesDeletedError(SourceError):
    code = "MF2106"
    what = "Files of {table} at version {version} were deleted{names}."
    fix = (
        "Run `mirrorfeed publish` again. If it fails again, the table is damaged: run FSCK REPAIR TABLE, or restore"
        " the table."
    )
    table: str
    version: int
    uris: Sequence[str] = ()

    @property
    def names(self) -> str:
        return self._format(": {uris:few}") if self.uris else ""


@problem(PublicationBlockedError, "MF2110")
def load_version_lost(*, table: str, version: int, part: str) -> None:
    """The first load of {table} cannot continue with {part}: version {version}, which all parts of the load publish,
    can no longer be read.

    Run `mirrorfeed rebuild` to start a new load with the newest version; with `on_gap: reseed` this happens
    automatically. To prevent this, increase delta.deletedFileRetentionDuration of the source before the load.
    """


def snapshot_unreadable(*, table: str, what: Snapshot, uris: Sequence[str] = ()) -> SourceError:
    """Return the error about a snapshot, or a part of one, whose files or log are gone."""
    if what.continues:
        return load_version_lost(table=table, version=what.version, part=str(what.part))
    return SnapshotFilesDeletedError(table=table, version=what.version, uris=uris)


class FilesArchivedError(SourceError):
    code = "MF2107"
    what = "{table} cannot be read: {part} needs files in the archive tier."
    fix = (
        "Run `mirrorfeed archive set {table:argument} 'X days'`, where X is the age at which the lifecycle rule"
        " archives files. If {table} is a shallow clone, run it for the table from which it was cloned. The next run"
        " then names the archived files and the command that restores them."
    )
    table: str
    range: Range | Snapshot

    @property
    def part(self) -> str:
        is_snapshot = self.range.from_version_exclusive is None
        return f"version {self.range.to_version_inclusive}" if is_snapshot else f"the change feed in {self.range}"


@problem(MirrorfeedWarning, "MF2108")
def retention_too_short(*, table: str, retention: float, name: str, waited: float) -> None:
    """{table} keeps changes for {retention:duration} ({name}), but a change was published {waited:duration} after its
    commit. One failed run may lose changes.

    Publish more often, or increase {name}. `mirrorfeed doctor` prints the statement.
    """


@problem(SourceError, "MF2109")
def source_file_damaged(*, table: str, uri: str, cause: str) -> None:
    """A file of {table} cannot be read: {uri} ({cause}).

    Run the same command again. If it fails again, replace the file with an intact copy, or restore the table to a
    version that does not need the file.
    """


@problem(SourceError, "MF2201")
def rows_protected(*, table: str, row_filter: str | None, masked: Sequence[str]) -> Computed:
    """{table} has {protection}. Its rows depend on the reader, and time travel is not possible, so the mirror would be
    incomplete.

    Move the row filter and the column masks to a view over the table, or publish an unprotected copy.
    """
    parts = [f"the row filter {row_filter}"] if row_filter else []
    parts += [f"column masks on {', '.join(masked)}"] if masked else []
    return {"protection": " and ".join(parts)}


@problem(SourceError, "MF2208")
def policies_not_excluded(*, table: str, reason: str) -> None:
    """{table} may be under a policy of attribute-based access control: {reason:phrase}. Its rows may be filtered or
    masked for this identity, and reads of old versions then report no error.

    Ask the owner to name this identity in EXCEPT of the policies, or to grant READ METADATA on the catalog. Or count
    the rows as owner and as this identity, and if the counts are equal, set `policies: accept` for the table.
    """


@problem(SourceError, "MF2209")
def no_computed_feed(*, table: str) -> None:
    """{table} is an Iceberg table, and this engine cannot compute its changes.

    Use a managed Iceberg table of version 3 on Databricks Runtime 18 or newer. Otherwise set `changes: compare` for it.
    """


class CatalogRefusedError(SourceError):
    code = "MF2202"
    what = "{name} cannot be read: {reason:phrase}."
    fix = "Check the name and your privileges. If you cannot read the primary key, set `keys` in the configuration."
    name: str
    reason: str


class CatalogUnavailableError(TransientError):
    code = "MF2203"
    what = "{name} cannot be read, because Unity Catalog did not respond: {reason:phrase}."
    fix = "Run the same command again."
    name: str
    reason: str


@problem(SourceError, "MF2204")
def unknown_table_features(*, table: str, names: Sequence[str]) -> None:
    """{table} uses table features that this release of mirrorfeed does not know: {names:list}.

    Install a newer release of mirrorfeed, or drop the features with ALTER TABLE … DROP FEATURE.
    """


@problem(SourceError, "MF5213")
def copy_target_exists(*, table: str, expected: str) -> None:
    """The table {table} already exists and is not a {expected}. It was not changed.

    Choose another table for --into, or drop {table}.
    """
