"""Errors and warnings of publications that use a history or a comparison of rows instead of the change data feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorfeed.errors import (
    ConcurrentPublisherError,
    MirrorfeedError,
    MirrorfeedWarning,
    SourceError,
    TransientError,
    problem,
)
from mirrorfeed.source.errors import FeedGapError, GapReason, PublicationBlockedError

if TYPE_CHECKING:
    from mirrorfeed.source.snapshot_or_range import Range


@problem(MirrorfeedWarning, "MF3406")
def read_from_history(*, history: str, gap: FeedGapError) -> None:
    """{gap.problem} mirrorfeed read these changes from the history {history} instead.

    No data is lost. To prevent this, publish more often, or increase the retention of the source.
    """


@problem(
    MirrorfeedWarning,
    "MF3407",
    meaning=(
        "The change data feed has a gap, and the permanent history of the table cannot fill the gap. The message"
        " includes the error of the history: correct its cause and publish again, or run `mirrorfeed rebuild`."
    ),
)
def history_unusable(*, history: str, gap: FeedGapError, error: MirrorfeedError) -> None:
    """The changes of {gap.table} cannot be read from its history {history} either: {error.problem}

    {error.solution}
    """


@problem(
    FeedGapError,
    "MF3501",
    meaning=(
        "The row hashes of the published version are missing, so the rows that changed since then cannot be found."
        " Nothing was published."
    ),
)
def row_hashes_lost(
    *, table: str, published: int, where: int | Range, reason: str = "its row hashes are gone", states: str
) -> None:
    """The row hashes of {table} at version {published} are missing in {states}.

    If the table with the row hashes was deleted or replaced, restore it. Otherwise reload {table} with `mirrorfeed
    rebuild`; with `on_gap: reseed` this happens automatically.
    """


@problem(ConcurrentPublisherError, "MF3502")
def row_hashes_changed(*, states: str, table: str) -> None:
    """Another process wrote to {states} while {table} was compared. Nothing was published.

    Publish again, and run only one publisher at a time for this table.
    """


@problem(SourceError, "MF3503")
def foreign_row_hashes(*, table: str, states: str) -> None:
    """The row hashes of {table} belong in {states}, but this table exists and was not created by mirrorfeed.

    Move or delete that table, or choose a `ledger` in another schema or folder.
    """


@problem(
    SourceError,
    "MF3513",
    meaning=(
        "Two configurations publish a table with the same target to different landing zones, and their ledgers are in"
        " the same schema or folder. Then both would use the same row hashes. Nothing was published."
    ),
)
def row_hashes_of_other_zone(*, table: str, states: str, other: str) -> None:
    """The row hashes of {table} belong in {states}, but this table has the hashes of rows in the landing zone {other}.

    Choose a `ledger` in another schema or folder. If nothing is published to {other} any more, delete {states} instead.
    """


@problem(TransientError, "MF3504")
def columns_changed_during_comparison(*, table: str) -> None:
    """The columns of {table} changed during the comparison. Nothing was published.

    Publish again.
    """


class VersionNotComparableError(FeedGapError):
    code = "MF3509"
    what = (
        "The change data feed of {table} has a gap, and the published version {published} can no longer be read, so it"
        " cannot be compared with the newest version."
    )
    fix = "Reload the table with `mirrorfeed rebuild`."
    meaning = (
        "The change data feed has a gap. `on_gap: compare` cannot close the gap, because the published version can no"
        " longer be read: VACUUM deleted its files, or its log is gone."
    )
    reason: str = "its files or its log are gone"


@problem(MirrorfeedWarning, "MF3511")
def feed_off_after_replacement(*, table: str) -> None:
    """The change data feed of {table} is off since the table was replaced. The rows that differ were published.

    Add `delta.enableChangeDataFeed = true` to the table properties in the statement that replaces the table. Without
    the feed, only further replacements are published. Any other change stops the table, except with `on_gap: compare`.
    """


class RangeComparedWarning(MirrorfeedWarning):
    code = "MF3510"
    what = (
        "{cause.problem} The rows that differ between versions {range.from_version_exclusive} and"
        " {range.to_version_inclusive} were published instead."
    )
    fix = {
        "the columns changed": "No data is lost, and no action is needed.",
        "a deletion vector is large": (
            "No data is lost. To prevent this, run `REORG TABLE … APPLY (PURGE)`: it rewrites files that have large"
            " deletion vectors."
        ),
        "the feed has a gap": (
            "No data is lost. To prevent this, publish more often, or increase the retention of the source."
        ),
    }
    range: Range
    cause: PublicationBlockedError

    @property
    def case(self) -> str:
        if not isinstance(self.cause, FeedGapError):
            return "the columns changed"
        large = self.cause.reason == GapReason.LARGE_VECTOR
        return "a deletion vector is large" if large else "the feed has a gap"


UNFINISHED = "its first load is not complete"
NO_KEYS = "its rows were published without keys"
GONE = "its files or its log are gone"
OTHER_TABLE = "the table was replaced, restored, or dropped and created again"
NOT_DELTA = "the source is not a Delta table now"


@problem(
    FeedGapError,
    "MF3512",
    meaning=(
        "The table was published from its change data feed, and then got `changes: compare`. The first comparison"
        " reads the published version of the source, but this version can no longer be read. Nothing was published."
    ),
)
def first_comparison_impossible(*, table: str, published: int, where: int | Range, reason: str = GONE) -> None:
    """{table} was published from its change data feed until now. The first comparison with `changes: compare` requires
    the rows of the published version {published}, but {reason}.

    Reload {table} with `mirrorfeed rebuild`; with `on_gap: reseed` this happens automatically. To continue without a
    reload, set `changes` back to its previous value, such as `net`.
    """


@problem(PublicationBlockedError, "MF2111")
def load_incomplete(*, table: str, version: int, published: int, rows: int) -> None:
    """The parts of the first load of {table} have {published:,} rows, and version {version} has {rows:,}. The last part
    was not published.

    Set `load_part_size` to more than the size of the table, and run `mirrorfeed rebuild`. Please report this error: it
    means that a part did not read a file that it needed, or read it twice.
    """
