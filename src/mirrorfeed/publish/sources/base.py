"""What the publication of a table asks of its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.files.staging_job import BadRow, StagedFile, StagingJob
from mirrorfeed.publish.plan import Plan
from mirrorfeed.source.ranges import Facts, Range

COMPARISON = "COMPARISON"
"""The operation of a commit that stands for a comparison, which has seen every row."""


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """The rows of some keys once more, as they are at the version that is published."""

    version: int
    keys: Any
    """As the feed has them: which rows, and which of them are to be taken out first."""

    def __str__(self) -> str:
        return f"a repair at version {self.version}"


class ChangeSource(Protocol):
    """The source of one table."""

    def facts(self, after: int | None, limit: int) -> Facts:
        """What the history says about the versions after the published one."""
        ...

    def is_as(self, facts: Facts) -> bool:
        """Whether it is still the table that these facts tell of, and its changes are read as they say."""
        ...

    def columns(self, version: int) -> tuple[Column, ...]:
        """The landing form of the columns that are selected of the table at a version."""
        ...

    def source_columns(self, version: int) -> Mapping[str, str]:
        """All of the table's columns at a version, and their types in short. Asked only where a part is selected."""
        ...

    def check(self, what: Range | int, facts: Facts) -> None:
        """Raises what is known, before anything is read, to stand in the way of reading it."""
        ...

    def stage(
        self, what: Range | int, plan: Plan, job: StagingJob
    ) -> tuple[Sequence[StagedFile], Sequence[BadRow]] | None:
        """Writes the landing rows of a range, or of a snapshot at a version, where the job says. The receipts are in
        the order in which the files are to be applied. An empty snapshot still gives one file. None where a comparison
        found that the range has no version after all, for nothing differs."""
        ...

    def bad_keys(self, version: int, plan: Plan) -> Sequence[BadRow]:
        """The first keys of a version that are NULL or stand for more than one row."""
        ...

    def rows_read(self) -> int | None:
        """How many rows of the source the last `stage` read, where it reads all of them each time."""
        ...

    def look_up_seconds(self) -> float:
        """How long the last `stage` looked up deleted keys in the source."""
        ...

    def stage_again(self, what: Repair, plan: Plan, job: StagingJob) -> tuple[Sequence[StagedFile], Sequence[BadRow]]:
        """Writes, for each of the keys, its row at the version as an upsert, or a delete where there is none."""
        ...
