"""Errors and warnings of publications that use a history or a comparison of rows instead of the change data feed."""

from __future__ import annotations

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient
from mirrorfeed.source.errors import BlockingFinding, Gap, GapReason


class ReadFromHistory(Transient):
    code = "MF3406"
    what = "{gap.problem} mirrorfeed read these changes from the history {history} instead."
    fix = "No data is lost. To prevent this, publish more often, or increase the retention of the source."
    is_warning = True
    gap: Gap


class HistoryUnusable(Transient):
    code = "MF3407"
    what = "The changes of {gap.table} cannot be read from its history {history} either: {error.problem}"
    fix = "{error.solution}"
    meaning = (
        "The change data feed has a gap, and the permanent history of the table cannot fill the gap. The message"
        " includes the error of the history: correct its cause and publish again, or run `mirrorfeed rebuild`."
    )
    is_warning = True
    gap: Gap
    error: MirrorfeedError


class RowHashesLost(Gap):
    code = "MF3501"
    what = "The row hashes of {table} at version {published} are missing in {states}."
    fix = (
        "If the table with the row hashes was deleted or replaced, restore it. Otherwise reload {table} with"
        " `mirrorfeed rebuild`; with `on_gap: reseed` this happens automatically."
    )
    meaning = (
        "The row hashes of the published version are missing, so the rows that changed since then cannot be found."
        " Nothing was published."
    )
    states: str
    reason: str = "its row hashes are gone"


class RowHashesChanged(Transient):
    code = "MF3502"
    what = "Another process wrote to {states} while {table} was compared. Nothing was published."
    fix = "Publish again, and run only one publisher at a time for this table."


class NotRowHashes(Terminal):
    code = "MF3503"
    what = "The row hashes of {table} belong in {states}, but this table exists and was not created by mirrorfeed."
    fix = "Move or delete that table, or choose a `ledger` in another schema or folder."


class ColumnsChanged(Transient):
    code = "MF3504"
    what = "The columns of {table} changed during the comparison. Nothing was published."
    fix = "Publish again."


class NotComparable(Gap):
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


class FeedOffAfterReplacement(Transient):
    code = "MF3511"
    what = "The change data feed of {table} is off since the table was replaced. The rows that differ were published."
    fix = (
        "Add `delta.enableChangeDataFeed = true` to the table properties in the statement that replaces the table."
        " Without the feed, only further replacements are published. Any other change stops the table, except with"
        " `on_gap: compare`."
    )
    is_warning = True


class RangeCompared(Transient):
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
    is_warning = True
    cause: BlockingFinding

    @property
    def case(self) -> str:
        if not isinstance(self.cause, Gap):
            return "the columns changed"
        large = self.cause.reason == GapReason.LARGE_VECTOR
        return "a deletion vector is large" if large else "the feed has a gap"


NO_KEYS = "its rows were published without keys"
GONE = "its files or its log are gone"
OTHER_TABLE = "the table was replaced, restored, or dropped and created again"
NOT_DELTA = "the source is not a Delta table now"


class PublishedFromFeed(Gap):
    code = "MF3512"
    what = (
        "{table} was published from its change data feed until now. The first comparison with `changes: compare`"
        " requires the rows of the published version {published}, but {reason}."
    )
    fix = (
        "Reload {table} with `mirrorfeed rebuild`; with `on_gap: reseed` this happens automatically. To continue"
        " without a reload, set `changes` back to its previous value, such as `net`."
    )
    meaning = (
        "The table was published from its change data feed, and then got `changes: compare`. The first comparison reads"
        " the published version of the source, but this version can no longer be read. Nothing was published."
    )
    reason: str = GONE
