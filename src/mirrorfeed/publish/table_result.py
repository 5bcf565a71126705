"""Result and progress of publishing one table in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorfeed.display.rows import MARKERS, Row, by_marker, counted, duration, nonzero, shown, size
from mirrorfeed.errors import MirrorfeedError, with_code
from mirrorfeed.landing.load_part import LoadProgress
from mirrorfeed.landing.log_record import Record

_LONG_LOOK_UP = 300.0
"""Minimum seconds in one publication from which `remarks` reports the look-ups of deleted keys.

The advice is to check less, so a look-up must cost more than a user would give for the check."""


@dataclass(slots=True)
class TableResult(Row):
    """Result of publishing one table in a run. Numbers of rows, files and bytes are from successful publications."""

    table: str = shown("table")
    what: str = shown("published", init=False)
    """Published versions, such as `snapshot to 3` or `4 to 7`. Otherwise `nothing new at 7`, `failed` or `stopped`."""
    from_version_exclusive: int | None = None
    """Last version before the published range. None for a snapshot, or if nothing was published."""
    to_version_inclusive: int | None = None
    """Last version that the run published. None if nothing was published."""
    published_version: int | None = None
    """Last version that this run or an earlier run published. None while parts of a first load are missing."""
    load: LoadProgress | None = None
    """Published share of a first load, if parts of it are missing. The next run continues it."""
    inserts: int = shown("inserts", nonzero, default=0)
    updates: int = shown("updates", nonzero, default=0)
    upserts: int = shown("upserts", nonzero, default=0)
    deletes: int = shown("deletes", nonzero, default=0)
    files: int = shown("files", default=0)
    bytes: int = shown("size", size, right=True, default=0)
    seconds: float = shown("took", duration, right=True, default=0.0)
    """Seconds spent on this table, without waiting for other tables, and without the start of Spark."""
    lag_versions: int | None = shown("lag", init=False)
    """Number of source versions that are not published yet. None if unknown."""
    tries: int = 1
    """Number of attempts in this run."""
    error: MirrorfeedError | None = None
    reseeded: MirrorfeedError | None = None
    """Error that caused a reload of the table from a snapshot, or None."""
    stopped: bool = False
    """True if the run was stopped before everything was published."""
    keys_checked: bool = field(default=True, repr=False)
    """False if the table has `validate_keys: none`."""
    keys_configured: bool = field(default=True, repr=False)
    """False if the configuration does not set `keys`, so that the keys are the primary key, if there is one."""
    published_before: bool = field(default=False, repr=False)
    """True if the ledger has earlier publications of the table, although the landing zone had no log of it."""
    freshness_target_minutes: float | None = field(default=None, repr=False)
    """Freshness target in minutes, from commit to publication."""
    decision: str = field(default="", repr=False)
    """Next step that the run decided, such as `versions 4 to 7`. Empty after the record of the step was added."""
    stopped_since: datetime | None = field(default=None, repr=False)
    """Time of the first of the consecutive failures, if the run found without Spark that the last error remains."""
    latest: int | None = field(default=None, repr=False)
    """Newest version of the source, or None if unknown."""
    records: list[Record] = field(default_factory=list, repr=False)
    """Records that the run added to the log, or whose files it finished renaming."""
    measured: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """Measurements of each record by batch id. Their names, such as `stage_seconds`, are columns of the ledger.
    A record that an earlier run added has only `rename_seconds`."""
    sent: dict[str, tuple[str, Record]] = field(default_factory=dict, repr=False)
    """Records that this run wrote but has not yet found in the log. The keys are batch ids. Each value has the id of
    the log and the record."""
    differed: str = field(default="", repr=False)
    """Difference from the table's schema, if files from Spark were rewritten to correct it. Otherwise empty."""
    retention_warning: MirrorfeedError | None = field(default=None, repr=False)
    """Warning that the source may delete changes before they are published."""
    missing_file_warning: MirrorfeedError | None = field(default=None, repr=False)
    """Warning that the last data file was removed, possibly before Fabric consumed it."""
    source_note: MirrorfeedError | None = field(default=None, repr=False)
    """Warning that changes were not read from the change data feed, for example because of a gap."""
    rebuild_hint: str = field(default="", repr=False)
    """Sentence that offers a rebuild, if much of a large table changed. Otherwise empty."""
    cleanup_error: MirrorfeedError | None = field(default=None, repr=False)
    """Error that prevented the deletion of old log records or staged files. These files do no harm."""

    def __post_init__(self) -> None:
        latest, published = self.latest, self.published_version
        self.lag_versions = None if latest is None or published is None else latest - published
        first, last = self.from_version_exclusive, self.to_version_inclusive
        if last is None:
            self.what = "failed" if self.error else "stopped" if self.stopped else f"nothing new at {published}"
        elif first is None:
            self.what = f"snapshot to {last}{f', {self.load.in_words}' if self.load else ''}"
        elif first == last:
            self.what = f"row hashes at {last}"
        else:
            self.what = str(last) if first + 1 == last else f"{first + 1} to {last}"

    @property
    def rows(self) -> dict[str, int]:
        """Number of published rows by marker, without zeros."""
        counts = {marker: getattr(self, f"{marker}s") for marker in MARKERS}
        return {marker: count for marker, count in counts.items() if count}

    @property
    def step(self) -> str:
        """Progress for display: the publication in progress, if any, otherwise a summary of the run."""
        return f"publishing {self.decision}" if self.decision else self.in_words

    @property
    def in_words(self) -> str:
        """One-line summary of the publications of the run."""
        rows = by_marker(self.rows) or "no rows"
        if self.load:
            left = self._seconds_left
            return f"loaded {self.load.in_words}: {rows}{f', about {duration(left)} left' if left else ''}"
        return f"published up to version {self.published_version}: {rows}, {counted(self.files, 'file')}"

    @property
    def _seconds_left(self) -> float | None:
        """Estimated seconds until a first load is complete, from the parts of this run. None if unknown."""
        seconds, size = 0.0, 0
        for record in self.records:
            measured = self.measured.get(record.batch, {})
            if record.load and "stage_seconds" in measured:
                seconds += measured["stage_seconds"]
                size += record.load.slice.bytes
        return seconds / size * (self.load.bytes - self.load.bytes_published) if self.load and size else None

    @property
    def first_load(self) -> bool:
        """True if the run published a snapshot, or the first part of one."""
        began = not (self.records and self.records[0].load and self.records[0].load.number > 1)
        return began and self.to_version_inclusive is not None and self.from_version_exclusive is None

    @property
    def _long_look_ups(self) -> float:
        """Total seconds spent on looking up deleted keys, summed over publications with slow look-ups.
        Look-ups are slow if they take at least 5 minutes and more than half of the time of the publication."""
        seconds = 0.0
        for measured in (self.measured.get(record.batch, {}) for record in self.records):
            look_up = measured.get("look_up_seconds", 0.0)
            total = sum(measured.get(f"{phase}_seconds", 0.0) for phase in ("stage", "record", "rename"))
            if look_up >= _LONG_LOOK_UP and look_up > total / 2:
                seconds += look_up
        return seconds

    @property
    def ok(self) -> bool:
        """True if the table did not fail and was not stopped."""
        return self.error is None and not self.stopped

    @property
    def is_idle(self) -> bool:
        """True if nothing was published, although the run neither failed nor was stopped."""
        return self.ok and not self.records

    @property
    def quiet(self) -> bool:
        return self.ok and not self.remarks()

    @property
    def QUIET(self) -> str:  # type: ignore[override]
        return f"{{tables}}: {'published' if self.records else 'nothing new'}."

    def remarks(self) -> Sequence[str]:
        lines = []
        if self.reseeded:
            lines.append(f"reloaded from a snapshot. {self.reseeded.problem}")
        elif self.published_before:
            lines.append(
                "loaded from a snapshot: the ledger has earlier publications, but this landing zone has none. If the"
                " folder was deleted here, Fabric drops the table and loads it again."
            )
        if self.error:
            lines.append(with_code(self.error))
        if self.tries > 1:
            lines.append(f"{self.tries} attempts.")
        if self.first_load and not self.keys_checked:
            lines.append("the keys of the initial load were not validated, because of `validate_keys: none`.")
        if self.first_load and not self.keys_configured and not self.records[0].keys:
            lines.append(
                "the table has no keys and no primary key, so it takes only inserts: an update or a delete in the"
                " source stops it. To publish all changes, set `keys`."
            )
        if seconds := self._long_look_ups:
            lines.append(
                f"looking up deleted keys in the source took {duration(seconds)}, more than half of the time. If the"
                " keys of the table are always unique, set `validate_keys: range`."
            )
        if self.rebuild_hint:
            lines.append(self.rebuild_hint)
        return [f"{self.table}: {line}" for line in lines]


def add_record(result: TableResult, record: Record) -> None:
    """Add the versions, files and rows of a record to a result."""
    if not result.records:
        result.from_version_exclusive = record.from_version_exclusive
    result.records.append(record)
    result.published_version, result.load = record.complete_version, record.progress
    result.to_version_inclusive = record.to_version_inclusive
    result.files += len(record.files)
    result.bytes += record.size
    for marker, count in record.rows.items():
        setattr(result, f"{marker}s", getattr(result, f"{marker}s") + count)
